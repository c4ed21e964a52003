//! Text of others on a terminal: what a record, a server or an agent says may hold what moves the
//! cursor, or turns the direction of a line.

/// Shows what would not be shown as `\xNN`, ends of lines among it.
pub(crate) fn word(text: &str) -> String {
    shown(text, |_| false)
}

/// The same of a text of several lines.
pub(crate) fn lines(text: &str) -> String {
    shown(text, |c| c == '\n')
}

fn shown(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if !stays(c) && (c.is_control() || turns_direction(c)) {
            c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| out.push_str(&format!("\\x{byte:02x}")));
        } else {
            out.push(c);
        }
    }
    out
}

/// The format characters of Unicode's bidirectional algorithm (UAX #9, section 2), and the
/// separators of lines and paragraphs.
fn turns_direction(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The same of each text of a record.
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
    fn what_moves_the_cursor_is_shown_and_does_not() {
        assert_eq!(word("a\u{1b}[2Jb\nµ\u{202e}"), "a\\x1b[2Jb\\x0aµ\\xe2\\x80\\xae");
        assert_eq!(lines("a\u{1b}\nb\r"), "a\\x1b\nb\\x0d");
    }
}
