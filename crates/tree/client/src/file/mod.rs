pub(crate) mod blob;
pub(crate) mod known_layout;
mod read_ahead;
mod read_ahead_beside;
mod reader;
mod repeated_reads;
mod whole_file;

pub use blob::Seek;
pub use reader::FileReader;
pub use whole_file::WholeFile;
