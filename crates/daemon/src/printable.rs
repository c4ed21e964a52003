//! Escapes file names: no name can control a terminal or forge a log line.

/// Control characters, bidirectional controls and invalid UTF-8 become `\xNN`.
pub fn printable(name: &[u8]) -> String {
    escaped(name, "")
}

/// Quotes and backslashes get a backslash, so that different names look different.
pub fn quoted(name: &[u8]) -> String {
    format!("\"{}\"", escaped(name, "\"\\"))
}

fn escaped(name: &[u8], marked: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() || changes_direction(c) {
                let mut utf8 = [0; 4];
                c.encode_utf8(&mut utf8).bytes().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
            } else {
                if marked.contains(c) {
                    text.push('\\');
                }
                text.push(c);
            }
        }
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text
}

/// Bidirectional format characters (UAX #9, section 2), and line and paragraph separators.
fn changes_direction(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_write_to_the_terminal() {
        assert_eq!(printable(b"a\x1b[2Jb\xff"), "a\\x1b[2Jb\\xff");
    }
}
