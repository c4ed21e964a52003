//! `vouch._vouch`: the classes below the Python package. `python/vouch` has the documented
//! interface; this crate owns what must be fast, and the conversion of errors. All calls that may
//! wait release the interpreter lock and obey Ctrl-C.

use pyo3::prelude::*;

mod audit; // Search in trails.
mod audit_columns;
mod changes; // Revisions, differences, the full check, proofs.
mod errors; // Errors of the reader as exceptions of vouch.errors.
mod file;
mod joined; // Pieces of a file as one object.
mod listing;
mod session;
mod stat;
mod tree;

#[pymodule(gil_used = false)]
mod _vouch {
    #[pymodule_export]
    use crate::audit::Search;
    #[pymodule_export]
    use crate::changes::{Change, Changes, Log, Revision};
    #[pymodule_export]
    use crate::file::File;
    #[pymodule_export]
    use crate::listing::Listing;
    #[pymodule_export]
    use crate::session::Session;
    #[pymodule_export]
    use crate::stat::Stat;
    #[pymodule_export]
    use crate::tree::Tree;
}
