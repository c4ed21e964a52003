use std::fs::File;
use std::io;

/// The record of the newest revision seen.
pub fn seen_file(bytes: &[u8]) {
    crate::freshness::seen_store::exercise(bytes);
}

/// What a replica sends.
pub fn replica_stream(bytes: &[u8]) {
    crate::replica::reply_parser::exercise(bytes);
}

/// The list of a disk cache's segments.
pub fn cache_list(bytes: &[u8]) {
    crate::disk_cache::segment::exercise_list(bytes);
}

/// A disk cache segment of `len` bytes.
pub fn cache_segment(file: &File, len: u64) -> io::Result<()> {
    crate::disk_cache::segment::exercise_segment(file, len)
}

/// The result of a proxy auto-configuration script.
pub fn proxy_list(text: &str) {
    crate::http::proxy_script::result::exercise(text);
}
