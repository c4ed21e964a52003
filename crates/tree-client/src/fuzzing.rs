//! Ways into private decoders, for fuzz targets alone: what files on this machine say is not believed either.
//!
//! No part of the interface; may change at any time. Each takes a file of any content and panics where an invariant fails.

use std::fs::File;
use std::io;

/// A file that says which revision was seen last.
pub fn seen_file(bytes: &[u8]) {
    crate::seen::exercise(bytes);
}

/// A list of a segment of the disk cache.
pub fn cache_list(bytes: &[u8]) {
    crate::disk_cache::segment::exercise_list(bytes);
}

/// A segment of the disk cache, of `len` bytes.
///
/// # Errors
/// Where the file can't be read.
pub fn cache_segment(file: &File, len: u64) -> io::Result<()> {
    crate::disk_cache::segment::exercise_segment(file, len)
}
