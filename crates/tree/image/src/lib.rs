//! Images of OCI and Docker into published trees, and published trees into images of OCI.
//!
//! An image is unpacked in memory: its files go into the database as they are read, its directories
//! at the end. No file of it is made on this machine, so that needs no privileges.

mod chunked;
mod config;
mod digest;
mod download;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod layer;
mod merge;
mod pack;
mod platform;
mod registry;
mod source;
mod tar_writer;
mod unpack;

pub use config::CONFIG_NAME;
pub use error::{Error, LayerError};
pub use pack::{Packed, pack};
pub use platform::Platform;
pub use registry::RegistryOptions;
pub use source::{Image, Place};
pub use unpack::unpack;

/// Default limit of an image's uncompressed layers together.
pub const LEN_MAX_DEFAULT: u64 = 64 << 30;
