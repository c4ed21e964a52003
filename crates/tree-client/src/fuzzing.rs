//! Ways into private decoders, for fuzz targets alone: neither a replica nor the files of this
//! machine are believed.
//!
//! No part of the interface; may change at any time. Each takes any content and panics where an
//! invariant fails.

use std::fs::File;
use std::io;

/// A file that says which revision was seen last.
pub fn seen_file(bytes: &[u8]) {
    crate::freshness::seen_store::exercise(bytes);
}

/// What a replica sends: how it is read, and then a stream, or the results of a GETDATA.
pub fn replica_stream(bytes: &[u8]) {
    crate::replica::reply_parser::exercise(bytes);
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
