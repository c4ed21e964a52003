//! Splits an exports(5) file into words.

use super::entry::LineError;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) number: usize,
    pub(super) path: Vec<u8>,
    pub(super) words: Vec<String>,
}

pub(super) fn lines(text: &[u8], errors: &mut Vec<LineError>) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut rest = text;
    let mut number = 1;
    while !rest.is_empty() {
        let (joined, physical, tail) = join(rest);
        match words(&joined) {
            Ok(words) => {
                let mut words = words.into_iter();
                if let Some(path) = words.next() {
                    let (plain, broken): (Vec<_>, Vec<_>) =
                        words.map(String::from_utf8).partition(Result::is_ok);
                    if broken.is_empty() {
                        lines.push(Line {
                            number,
                            path,
                            words: plain.into_iter().flatten().collect(),
                        });
                    } else {
                        errors.push(LineError::new(
                            number,
                            "a client specification is not text",
                            "write host names and options in ASCII",
                        ));
                    }
                }
            }
            Err((what, cure)) => errors.push(LineError::new(number, what, cure)),
        }
        number += physical;
        rest = tail;
    }
    lines
}

fn join(text: &[u8]) -> (Vec<u8>, usize, &[u8]) {
    let mut joined = Vec::new();
    let (mut rest, mut physical) = (text, 0);
    loop {
        let end = rest.iter().position(|&byte| byte == b'\n');
        let (line, tail) = end.map_or((rest, &b""[..]), |end| (&rest[..end], &rest[end + 1..]));
        physical += 1;
        rest = tail;
        match line.strip_suffix(b"\\") {
            Some(front) if end.is_some() => {
                joined.extend_from_slice(front);
                joined.push(b' ');
            }
            _ => {
                joined.extend_from_slice(line);
                return (joined, physical, rest);
            }
        }
    }
}

type WordFault = (&'static str, &'static str);

fn words(line: &[u8]) -> Result<Vec<Vec<u8>>, WordFault> {
    let mut words = Vec::new();
    let mut at = 0;
    loop {
        while line.get(at).is_some_and(|byte| byte.is_ascii_whitespace()) {
            at += 1;
        }
        // exports(5): # starts a comment, except within a word.
        if line.get(at).is_none_or(|&byte| byte == b'#') {
            return Ok(words);
        }
        let (mut word, mut quoted) = (Vec::new(), false);
        while let Some(&byte) = line.get(at) {
            match byte {
                b'"' => {
                    quoted = !quoted;
                    at += 1;
                }
                b'\\' => match octal(&line[at + 1..]) {
                    Some(value) => {
                        word.push(value);
                        at += 4;
                    }
                    None => {
                        return Err((
                            "a backslash is followed by no octal number",
                            "write a space in a path as \\040 and a backslash as \\134",
                        ));
                    }
                },
                _ if byte.is_ascii_whitespace() && !quoted => break,
                _ => {
                    word.push(byte);
                    at += 1;
                }
            }
        }
        if quoted {
            return Err(("a quotation mark is not closed", "close it on the same line"));
        }
        words.push(word);
    }
}

fn octal(bytes: &[u8]) -> Option<u8> {
    let digits = bytes.first_chunk::<3>()?;
    let value = digits.iter().try_fold(0u32, |value, &digit| {
        matches!(digit, b'0'..=b'7').then(|| value * 8 + u32::from(digit - b'0'))
    })?;
    u8::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(usize, String, Vec<String>)> {
        let mut errors = Vec::new();
        let lines = lines(text.as_bytes(), &mut errors);
        assert!(errors.is_empty(), "{errors:?}");
        lines
            .into_iter()
            .map(|line| (line.number, String::from_utf8(line.path).unwrap(), line.words))
            .collect()
    }

    #[test]
    fn splits_lines_with_quotes_escapes_and_comments() {
        let text = "# head\n\n/a  b(rw) # tail\n\"/with space\" *(ro)\\\n   c\n/o\\040p\\134 x#y\n";
        let words = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            read(text),
            [
                (3, "/a".into(), words(&["b(rw)"])),
                (4, "/with space".into(), words(&["*(ro)", "c"])),
                (6, "/o p\\".into(), words(&["x#y"])),
            ]
        );
    }

    #[test]
    fn errors_name_their_line() {
        let mut errors = Vec::new();
        let lines = lines(b"/a *\n/b\\9 *\n\"/c *\n/d *", &mut errors);
        assert_eq!(lines.len(), 2);
        assert_eq!(errors.iter().map(|fault| fault.line).collect::<Vec<_>>(), [2, 3]);
    }

    proptest::proptest! {
        #[test]
        fn escaped_path_is_read_back(path in proptest::collection::vec(1u8.., 1..40)) {
            let escaped: String = path.iter().map(|byte| format!("\\{byte:03o}")).collect();
            let mut errors = Vec::new();
            let lines = lines(format!("{escaped} *").as_bytes(), &mut errors);
            proptest::prop_assert!(errors.is_empty());
            proptest::prop_assert_eq!(&lines[0].path, &path);
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            lines(&bytes, &mut Vec::new());
        }
    }
}
