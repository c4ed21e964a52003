//! The kernel checks modes, owners and ACLs itself, and serves cached names, attributes and pages
//! without requests. With an observer, it sends a request for each open, listing and symbolic link.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use vouch_tree_client::ErrorClass;

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    pub uid: u32,
    pub gid: u32,
    /// Thread id; `None` for the kernel itself and for other PID namespaces.
    pub pid: Option<u32>,
    /// Login uid; `u32::MAX` if the process has none.
    pub login: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    pub caller: Caller,
    pub operation: Operation,
    pub tree: &'a str,
    /// Below the mount point, with a leading `/`. Of several hard links, the first that was looked
    /// up.
    pub path: &'a [u8],
    pub other_paths: &'a [Vec<u8>],
    pub number: Option<u64>,
    pub executes: bool,
    pub offset: Option<u64>,
    /// Read and close: bytes sent to the kernel, without reads from the page cache.
    pub read: Option<u64>,
    pub open: Option<Duration>,
    pub failure: Option<Failure<'a>>,
    pub remark: &'a str,
}

impl Observation<'_> {
    pub(crate) fn new(caller: Caller, operation: Operation) -> Self {
        Observation {
            caller,
            operation,
            tree: "",
            path: b"",
            other_paths: &[],
            number: None,
            executes: false,
            offset: None,
            read: None,
            open: None,
            failure: None,
            remark: "",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Failure<'a> {
    pub errno: i32,
    pub why: &'a str,
}

#[derive(Clone, Copy, Debug)]
pub enum TreeEvent<'a> {
    Shown {
        tree: &'a str,
        revision: u64,
        /// `None` for the first revision.
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
    NotOpened {
        tree: &'a str,
        class: ErrorClass,
        why: &'a str,
    },
}

/// Ready when the reply may be sent.
pub type Recorded = Pin<Box<dyn Future<Output = ()> + Send>>;

pub trait Observer: Send + Sync {
    fn wants(&self, operation: Operation) -> bool;

    /// Called before the reply, which waits for the returned future. At the deadline the reply is
    /// EIO. A close does not wait.
    fn observe(&self, observation: &Observation<'_>) -> Option<Recorded>;

    fn tree_event(&self, event: &TreeEvent<'_>);
}
