//! Untrusted text may move the cursor or reverse a line.

pub(crate) fn word(text: &str) -> String {
    shown(text, |_| false)
}

pub(crate) fn lines(text: &str) -> String {
    shown(text, |c| c == '\n')
}

fn shown(text: &str, keep: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if !keep(c) && (c.is_control() || is_bidi_control(c)) {
            c.encode_utf8(&mut [0; 4])
                .bytes()
                .for_each(|byte| out.push_str(&format!("\\x{byte:02x}")));
        } else {
            out.push(c);
        }
    }
    out
}

/// Bidirectional controls (UAX #9, §2), and separators of lines and paragraphs.
fn is_bidi_control(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

pub(crate) fn record(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::String(text) => *text = word(text),
        serde_json::Value::Array(all) => all.iter_mut().for_each(record),
        serde_json::Value::Object(all) => all.values_mut().for_each(record),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_cursor_and_direction_controls() {
        assert_eq!(word("a\u{1b}[2Jb\nµ\u{202e}"), "a\\x1b[2Jb\\x0aµ\\xe2\\x80\\xae");
        assert_eq!(lines("a\u{1b}\nb\r"), "a\\x1b\nb\\x0d");
    }
}
