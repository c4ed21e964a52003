//! Canonical base64 (RFC 4648 §4): one text for each sequence of bytes.

use data_encoding::BASE64;

/// `None` unless `text` is exactly the base64 of the result.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    // The library also takes joined texts, with padding in the middle.
    let is_one_text = !text.trim_end_matches('=').contains('=');
    is_one_text.then(|| BASE64.decode(text.as_bytes()).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sequence_of_bytes_has_one_text() {
        assert_eq!(decode("AAAAAA=="), Some(vec![0; 4]));
        for other in ["AAAAAA==AAAA", "AAAAAA=", "AAAAAB==", "AAAAAA== ", "====", "AAAAAA======"] {
            assert_eq!(decode(other), None, "{other}");
        }
    }
}
