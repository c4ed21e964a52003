pub(crate) mod blob; // Byte ranges to leaves, holes, SEEK_DATA, extended attributes.
mod read_ahead;
mod reader;
mod whole_file; // Verified whole copies of large files, for FUSE passthrough.

pub use blob::Seek;
pub use reader::FileReader;
pub use whole_file::WholeFile;
