//! Checks of decoders for arbitrary bytes, for the fuzz targets.

use crate::http::head::{HeadReader, RequestHead, RequestedRange};
use crate::limits::HEAD_LEN_MAX;

/// Heads of HTTP requests are bounded, and ranges lie within the file.
pub fn request_heads(mut input: &[u8]) {
    let mut reader = HeadReader::default();
    while let Ok(Some(bytes)) = reader.next(&mut input) {
        assert!(bytes.len() <= HEAD_LEN_MAX);
        let Some(request) = RequestHead::parse(&bytes) else { continue };
        assert!(request.path.starts_with('/'));
        let _ = request.has_current("\"tag\"");
        if let RequestedRange::Part(range) = request.range_of(1000, "\"tag\"") {
            assert!(range.start < range.end && range.end <= 1000);
        }
    }
}
