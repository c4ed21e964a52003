//! The detail of a host event: fields of the kernel's lines that a record has no place for.

/// Appends ` name=value`. A value that could be taken for several fields is quoted.
pub(super) fn push(detail: &mut Vec<u8>, name: &str, value: &[u8], len_max: usize) {
    let is_plain = !value.is_empty()
        && value
            .iter()
            .all(|byte| !byte.is_ascii_whitespace() && !matches!(byte, b'"' | b'\\' | b'='));
    let mut text = Vec::with_capacity(value.len() + 2);
    if is_plain {
        text.extend_from_slice(value);
    } else {
        text.push(b'"');
        for byte in value {
            if matches!(byte, b'"' | b'\\') {
                text.push(b'\\');
            }
            text.push(*byte);
        }
        text.push(b'"');
    }
    if name.len() + text.len() + 2 > len_max.saturating_sub(detail.len()) {
        return;
    }
    if !detail.is_empty() {
        detail.push(b' ');
    }
    detail.extend_from_slice(name.as_bytes());
    detail.push(b'=');
    detail.extend_from_slice(&text);
}

/// The fields, in their order. A word without a name belongs to the value before it, as earlier
/// versions quoted nothing.
pub(crate) fn parse(detail: &[u8]) -> Vec<(&[u8], Vec<u8>)> {
    let mut fields: Vec<(&[u8], Vec<u8>)> = Vec::new();
    let mut rest = detail;
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
        let name = rest[..end].iter().position(|byte| *byte == b'=').map(|at| &rest[..at]);
        match name {
            Some(name) if rest.get(name.len() + 1) == Some(&b'"') => {
                let (value, behind) = unquote(&rest[name.len() + 2..]);
                fields.push((name, value));
                rest = behind.strip_prefix(b" ").unwrap_or(behind);
                continue;
            }
            Some(name) => fields.push((name, rest[name.len() + 1..end].to_vec())),
            None => {
                if let Some((_, value)) = fields.last_mut() {
                    value.push(b' ');
                    value.extend_from_slice(&rest[..end]);
                }
            }
        }
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    fields
}

fn unquote(text: &[u8]) -> (Vec<u8>, &[u8]) {
    let (mut value, mut at) = (Vec::new(), 0);
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => return (value, &text[at + 1..]),
            b'\\' if at + 1 < text.len() => {
                value.push(text[at + 1]);
                at += 2;
            }
            byte => {
                value.push(*byte);
                at += 1;
            }
        }
    }
    (value, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_were_written() {
        let values: [&[u8]; 6] =
            [b"plain", b"a b", b"x exe=/bin/forged", b"q\"uo\\te", b"", b"\xff \n"];
        let mut detail = Vec::new();
        values.iter().for_each(|value| push(&mut detail, "comm", value, 1000));
        let read: Vec<Vec<u8>> = parse(&detail).into_iter().map(|(_, value)| value).collect();
        assert_eq!(read, values);
        let old = parse(b"syscall=openat comm=tokio worker exe=/opt/a b");
        assert_eq!(
            old,
            [
                (&b"syscall"[..], b"openat".to_vec()),
                (b"comm", b"tokio worker".to_vec()),
                (b"exe", b"/opt/a b".to_vec())
            ]
        );
        let mut short = b"x=1".to_vec();
        push(&mut short, "comm", b"too long", 10);
        assert_eq!(short, b"x=1");
    }
}
