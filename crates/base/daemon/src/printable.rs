//! File names may have any bytes. No name can control a terminal or forge a log line.

use serde::Serialize;

/// Control characters, bidirectional controls and invalid UTF-8 become `\xNN`.
pub fn printable(name: &[u8]) -> String {
    escaped(name, "")
}

/// Escapes quotes and backslashes, so that different names look different.
pub fn quoted(name: &[u8]) -> String {
    format!("\"{}\"", escaped(name, "\"\\"))
}

/// As text if possible, otherwise the bytes beside a readable form.
#[derive(Debug, Serialize)]
pub struct JsonName {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_base64: Option<String>,
}

impl JsonName {
    pub fn new(name: &[u8]) -> JsonName {
        match std::str::from_utf8(name) {
            Ok(text) => JsonName { name: text.to_owned(), name_base64: None },
            Err(_) => JsonName {
                name: printable(name),
                name_base64: Some(data_encoding::BASE64.encode(name)),
            },
        }
    }
}

impl std::fmt::Display for JsonName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&printable(self.name.as_bytes()))
    }
}

fn escaped(name: &[u8], marked: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() || changes_direction(c) {
                let mut utf8 = [0; 4];
                c.encode_utf8(&mut utf8)
                    .bytes()
                    .for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
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

/// Bidirectional controls (UAX #9, §2), and line and paragraph separators.
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

    #[test]
    fn non_text_names_keep_their_bytes_in_json() {
        let json =
            serde_json::to_string(&JsonName::new(b"a\xff")).expect("plain data always encodes");
        assert_eq!(json, r#"{"name":"a\\xff","name_base64":"Yf8="}"#);
    }
}
