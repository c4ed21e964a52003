pub(crate) mod blob;
mod read_ahead;
mod read_ahead_beside;
mod reader;
mod whole_file;

pub use blob::Seek;
pub use reader::FileReader;
pub use whole_file::WholeFile;
