//! The one point at which who asks, what for and what comes of it are visible together. Records of
//! what was done hang there; nothing of them is known here.
//!
//! The kernel asks less than its users do: modes, owners and access lists it checks by itself, and
//! names, attributes and pages that it has cached it doesn't ask for again. Where somebody
//! observes, it asks at each open, each listing and each symbolic link: see `FuseFilesystem::init`.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use vouch_tree_client::ErrorClass;

/// What the kernel asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A name in a directory.
    Lookup,
    /// Attributes of a file.
    Attributes,
    /// The target of a symbolic link.
    Link,
    /// Names of a directory.
    List,
    /// The value of an extended attribute.
    Xattr,
    /// The names of extended attributes.
    Xattrs,
    /// To use a file's content.
    Open,
    /// Some of it.
    Read,
    /// Where there is some of it.
    Seek,
    /// No more of it.
    Close,
}

/// For whom the kernel asks, as it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User (fsuid).
    pub uid: u32,
    /// Group (fsgid).
    pub gid: u32,
    /// Thread, as this process sees it; `None` of the kernel itself, and of who is in another PID
    /// name space.
    pub pid: Option<u32>,
    /// Whom it logged in as (loginuid), where the kernel keeps that and shows it to us; `u32::MAX`
    /// of who never did.
    pub login: Option<u32>,
}

/// An operation, done or refused.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    /// For whom. Of a close: who opened.
    pub caller: Caller,
    /// What.
    pub operation: Operation,
    /// The tree, by its self-certifying name; empty above all trees.
    pub tree: &'a str,
    /// The file, below the mount point: empty for that itself, else it begins with `/`. Where a
    /// file has several names, the first that was looked up.
    pub path: &'a [u8],
    /// The other names by which the kernel knows it.
    pub other_paths: &'a [Vec<u8>],
    /// Its number; none of a name that leads nowhere.
    pub number: Option<u64>,
    /// Of an open: whether to execute it.
    pub executes: bool,
    /// Of a read and a listing: from where on.
    pub offset: Option<u64>,
    /// Of a read and a close: bytes that the kernel was given. What it reads again from its own
    /// cache is nobody's.
    pub read: Option<u64>,
    /// Of a close: how long it was open.
    pub open: Option<Duration>,
    /// Why it was refused; none if it was done.
    pub failure: Option<Failure<'a>>,
    /// Of a close: what else is to be said.
    pub remark: &'a str,
}

/// Why an operation was not done.
#[derive(Clone, Copy, Debug)]
pub struct Failure<'a> {
    /// What the caller gets.
    pub errno: i32,
    /// In words.
    pub why: &'a str,
}

/// What happens to a tree.
#[derive(Clone, Copy, Debug)]
pub enum TreeEvent<'a> {
    /// This revision is shown from now on.
    Shown {
        /// The tree, by its self-certifying name.
        tree: &'a str,
        /// The revision.
        revision: u64,
        /// The one before; none of a tree that was not shown.
        before: Option<u64>,
    },
    /// Nothing of it is shown any more.
    Withdrawn {
        /// The tree.
        tree: &'a str,
        /// What kind of reason it was.
        class: ErrorClass,
        /// In words.
        why: &'a str,
    },
    /// It is shown again, as its publisher has published.
    Restored {
        /// The tree.
        tree: &'a str,
        /// The revision.
        revision: u64,
    },
    /// A tree can't be shown at all.
    NotOpened {
        /// The tree.
        tree: &'a str,
        /// What kind of reason it was.
        class: ErrorClass,
        /// In words.
        why: &'a str,
    },
}

/// Ready when what was seen is kept, and its answer may leave.
pub type Recorded = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Sees every operation, in the moment before it is answered.
pub trait Observer: Send + Sync {
    /// Whether it is told of such operations. Asked first, before anything is found out.
    fn wants(&self, operation: Operation) -> bool;

    /// An operation was done, or not. Its answer leaves when what is returned is ready, if anything
    /// is, or is EIO if that takes longer than an operation may. Of a close nobody waits. Must
    /// not wait itself.
    fn observe(&self, observation: &Observation<'_>) -> Option<Recorded>;

    /// Something has happened to a tree. Must not wait.
    fn tree_event(&self, event: &TreeEvent<'_>);
}
