use std::io;

use vouch_tree_client::Error as ClientError;
use vouch_vfs::Error;

/// Data that cannot be fetched or verified is an error, never an absence.
pub(crate) fn error(error: ClientError) -> Error {
    match error {
        ClientError::NotFound { .. } => Error::NotFound,
        ClientError::NotADirectory { .. } => Error::NotDirectory,
        ClientError::WrongType { expected: vouch_tree::FileType::Directory, .. } => {
            Error::NotDirectory
        }
        other => Error::Io(io::Error::other(other)),
    }
}
