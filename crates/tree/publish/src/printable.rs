//! Printable paths: one line, no control characters.

use std::fmt::Write as _;

/// Escapes control and direction characters, and invalid bytes.
pub(crate) fn printable(path: &[u8]) -> String {
    let mut out = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            // Direction marks could disguise a name.
            let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
            if c == '\\' || c.is_control() || turns {
                out.extend(c.escape_default())
            } else {
                out.push(c)
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn odd_bytes_are_escaped_and_plain_text_is_not() {
        assert_eq!(printable("/src/übung".as_bytes()), "/src/übung");
        assert_eq!(printable(b"a\nb\x1b[2J\xff\\"), "a\\nb\\u{1b}[2J\\xff\\\\");
        assert_eq!(printable("x\u{202e}y".as_bytes()), "x\\u{202e}y");
    }
}
