//! The client's errors in the words of a file system.

use std::io;

use vouch_tree_client::Error as ClientError;
use vouch_vfs::Error;

/// What can't be fetched or believed is a failure, never an absence: only a verified page proves
/// that a name is missing.
pub(crate) fn error(error: ClientError) -> Error {
    match error {
        ClientError::NotFound { .. } => Error::NotFound,
        ClientError::NotADirectory { .. } => Error::NotDirectory,
        ClientError::WrongType { expected: vouch_tree::FileType::Directory, .. } => Error::NotDirectory,
        other => Error::Io(io::Error::other(other)),
    }
}
