//! The observer interface: each operation with its caller, file and outcome. For an audit trail.
//!
//! The kernel checks modes, owners and ACLs itself, and does not repeat requests for cached names,
//! attributes and pages. With an observer, it sends a request for each open, listing and symbolic
//! link.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use vouch_tree_client::ErrorClass;

/// Operations of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    Lookup,
    Attributes,
    Link,
    List,
    Xattr,
    Xattrs,
    Open,
    Read,
    Seek,
    Close,
}

/// The process that an operation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    pub uid: u32,
    pub gid: u32,
    /// Thread id; `None` if the kernel itself asks, or if the process is in another PID namespace.
    pub pid: Option<u32>,
    /// Login uid, if it is available; `u32::MAX` if the process has none.
    pub login: Option<u32>,
}

/// An operation and its outcome.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    pub caller: Caller,
    pub operation: Operation,
    pub tree: &'a str,
    /// Path below the mount point; empty for the mount point itself, otherwise it begins with `/`.
    /// Of several hard links, the first that was looked up.
    pub path: &'a [u8],
    pub other_paths: &'a [Vec<u8>],
    /// Inode number; `None` for a missing name.
    pub number: Option<u64>,
    pub executes: bool,
    pub offset: Option<u64>,
    /// Read and close: bytes sent to the kernel. Reads from the page cache are not counted.
    pub read: Option<u64>,
    pub open: Option<Duration>,
    /// Why the operation failed; `None` on success.
    pub failure: Option<Failure<'a>>,
    pub remark: &'a str,
}

/// Why an operation failed.
#[derive(Clone, Copy, Debug)]
pub struct Failure<'a> {
    pub errno: i32,
    pub why: &'a str,
}

/// Events of a tree.
#[derive(Clone, Copy, Debug)]
pub enum TreeEvent<'a> {
    Shown {
        tree: &'a str,
        revision: u64,
        /// The previous revision; `None` for the first.
        before: Option<u64>,
    },
    Withdrawn {
        tree: &'a str,
        class: ErrorClass,
        why: &'a str,
    },
    Restored {
        tree: &'a str,
        revision: u64,
    },
    /// A tree of the namespace cannot be opened.
    NotOpened {
        tree: &'a str,
        class: ErrorClass,
        why: &'a str,
    },
}

/// Ready when the observation is recorded and the reply may be sent.
pub type Recorded = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Receives every operation before its reply is sent.
pub trait Observer: Send + Sync {
    fn wants(&self, operation: Operation) -> bool;

    /// Receives an operation. The reply waits for the returned future, if any; at the deadline it
    /// is EIO. A close does not wait.
    fn observe(&self, observation: &Observation<'_>) -> Option<Recorded>;

    /// Receives an event. Must not block.
    fn tree_event(&self, event: &TreeEvent<'_>);
}
