//! Blocking reading of published trees: the interface below the Python package and the C library.
//!
//! [`Session`] has the caches, the record of the newest revisions seen and the network.
//! [`ReadTree`] is one revision of a tree, and [`ReadFile`] an open file. The work is that of
//! [`vouch_tree_client`]: each byte is verified before it is returned, and each operation ends
//! within [`SessionOptions::timeout`].
//!
//! All types may be used from any number of threads at once. No callback runs in a thread that the
//! caller did not bring. After fork(2), the child gets [`Error::Forked`] from everything that the
//! parent opened, and may open trees itself.
//!
//! # Example
//!
//! ```no_run
//! use vouch_tree_reader::{NOT_INTERRUPTED, Session, SessionOptions, TreeSelection};
//!
//! let session = Session::new(SessionOptions::default())?;
//! let name = "@pub.example.org,aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
//! let tree = session.open(&name.parse()?, &TreeSelection::default(), NOT_INTERRUPTED)?;
//! let file = tree.open_file(b"docs/hello.txt", NOT_INTERRUPTED)?;
//! assert_eq!(file.read(0, 5, NOT_INTERRUPTED)?.concat(), b"hello");
//! # Ok::<(), vouch_tree_reader::Error>(())
//! ```

mod directories; // Default directories of the cache and of the record of revisions.
mod error;
mod file;
mod selection; // Which revision of a tree is read.
mod session;
mod tree;

pub use directories::{STATEMENTS, cache_directory, state_directory};
pub use error::{Error, ErrorKind, Result};
pub use file::{RangeRequest, ReadFile};
pub use selection::{RevisionChoice, TreeSelection};
pub use session::{Interrupt, NOT_INTERRUPTED, Session, SessionOptions};
pub use tree::{Found, ReadTree};
