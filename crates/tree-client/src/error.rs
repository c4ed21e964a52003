//! What can go wrong for a reader of a published tree, and whose fault it was.
//!
//! Errors are cheap to clone, since one fetch may answer many readers.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use vouch_tree::time_text::{RelativeTime, Utc};
use vouch_tree::verify::Refusal;
use vouch_tree::{BlockHandle, FileType, HostId, TreeName, frame};

/// The crate's results.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed: one line for the user each.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The signed tree proves that the name does not exist.
    #[error("{}: no such file or directory", lossy(path))]
    NotFound {
        /// The path asked for.
        path: Vec<u8>,
    },
    /// A name below something that is no directory.
    #[error("{}: not a directory", lossy(path))]
    NotADirectory {
        /// The path up to what is no directory.
        path: Vec<u8>,
    },
    /// A path that can't name anything in a tree.
    #[error("{}: {why}", lossy(path))]
    Path {
        /// The path.
        path: Vec<u8>,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The operation is for another type of file.
    #[error("it is a {found:?}, not a {expected:?}")]
    WrongType {
        /// The type that the operation is for.
        expected: FileType,
        /// The type found.
        found: FileType,
    },
    /// Too many symbolic links on the way.
    #[error("{}: too many levels of symbolic links", lossy(path))]
    SymlinkLoop {
        /// The path.
        path: Vec<u8>,
    },
    /// The newest revision known is no longer valid, and no replica has a newer one.
    #[error(
        "revision {revision} expired on {}, {}, and no replica has a newer one ({last}); the publisher must publish again, or this machine's clock is wrong",
        Utc(*since),
        RelativeTime { at: *since, now: *now }
    )]
    Expired {
        /// The newest revision seen.
        revision: u64,
        /// When it ended, in seconds since 1970.
        since: u64,
        /// The time that this was held against, in seconds since 1970.
        now: u64,
        /// What the replicas said last.
        last: String,
    },
    /// Every replica sent what is provably not what was asked for, or lacks it.
    #[error(
        "no replica can be believed: {said}; name another by --replica, and let the administrators of these check their databases (vouch verify --db)"
    )]
    Lied {
        /// One reason for each replica.
        said: String,
    },
    /// What the replicas offer must not be believed.
    #[error("no replica offers a revision that may be believed: {reason}{}", cure(source))]
    Refused {
        /// One line for each replica.
        reason: String,
        /// The weightiest of the reasons.
        source: Refusal,
    },
    /// A file that is named for the tree's key holds no statement of it that can be read: it may be
    /// a revocation.
    #[error("{}: {what}; put a whole copy there or take the file away, for it may be a revocation", path.display())]
    Statement {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The tree's root key has revoked itself.
    #[error("the key of {hostid} was revoked{}; ask the publisher for the tree's new name", because(reason))]
    Revoked {
        /// The tree.
        hostid: HostId,
        /// The publisher's words.
        reason: String,
    },
    /// The tree has moved, and following was refused or went in a circle.
    #[error("this tree has moved to {to}")]
    Forwarded {
        /// Where to.
        to: TreeName,
    },
    /// No replica could be reached.
    #[error("no replica can be reached: {tried}")]
    Unreachable {
        /// What was tried and how it failed.
        tried: String,
    },
    /// A database can't take up the newest revision, which was made with another iv: its frames
    /// would fit nowhere.
    #[error(
        "{}: the tree's newest revision was not made from the revisions that are in this database (another iv): either its publisher began a new database, or somebody has the signing key; ask the publisher, and pull a tree that was made anew into an empty directory",
        db.display()
    )]
    OtherIv {
        /// The database.
        db: PathBuf,
    },
    /// Replicas were reached, but none answered in time.
    #[error("no answer within {} s: {last}", after.as_secs_f32())]
    TimedOut {
        /// The operation's limit.
        after: Duration,
        /// What was going on.
        last: String,
    },
    /// Every replica says that it lacks a frame which the signed tree names.
    #[error("none of {asked} replicas has the frame {handle}{}", why_missing(refused.as_deref()))]
    Missing {
        /// The frame.
        handle: BlockHandle,
        /// How many were asked.
        asked: usize,
        /// Where every replica's offer was refused, as old, expired or forged: why, one reason for
        /// each.
        refused: Option<String>,
    },
    /// No replica serves this tree.
    #[error("none of {asked} replicas serves the tree {hostid}")]
    NoSuchTree {
        /// The tree.
        hostid: HostId,
        /// How many were asked.
        asked: usize,
    },
    /// Verified bytes that make no sense: the publisher's fault, or that of a newer format.
    #[error("the tree itself is damaged: {what}")]
    Damaged {
        /// What makes no sense.
        what: String,
    },
    /// A failure of this machine.
    #[error("{doing} {}: {source}", path.display())]
    Local {
        /// What was being done.
        doing: &'static str,
        /// To which file.
        path: PathBuf,
        /// The system's word.
        source: Arc<io::Error>,
    },
    /// What was seen before is there but can't be read: not to be taken for nothing.
    #[error("what was seen of this tree before can't be read from {}: {source}; put a copy of the file back, or, if a disk or a wrong owner explains it, move it away: then an older revision may pass until a newer one is seen", path.display())]
    StateUnreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Arc<io::Error>,
    },
    /// Others than its owner can write where it is remembered what was seen.
    #[error("others than its owner may write to the state directory {} (mode {mode:03o}), and so bring an older revision back; chmod 700 it after a look at who did, or name another by --state", dir.display())]
    StateOpen {
        /// The directory.
        dir: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// What was seen must be remembered, and there is no place for it.
    #[error("there is no directory to remember in what was seen (no HOME); name one by --state DIR")]
    NoState,
    /// The local database failed.
    #[error(transparent)]
    Store(Arc<vouch_tree_store::Error>),
}

/// Errors by what a caller can do about them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// Proven not to exist.
    NotFound,
    /// The request makes no sense.
    Input,
    /// Signature, rollback, revocation, or nobody who tells the truth.
    Refused,
    /// Nothing valid is at hand.
    Expired,
    /// No replica, or none in time.
    Unreachable,
    /// The tree or a replica's copy is not whole.
    Damaged,
    /// This machine's files.
    Local,
    /// Somebody else is writing the database.
    Busy,
}

impl Error {
    /// What kind of error it is.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::NotFound { .. } => ErrorClass::NotFound,
            Self::Statement { .. } => ErrorClass::Input,
            Self::NotADirectory { .. } | Self::Path { .. } | Self::WrongType { .. } | Self::SymlinkLoop { .. } => ErrorClass::Input,
            Self::Expired { .. } => ErrorClass::Expired,
            Self::Refused { source: Refusal::Expired { .. }, .. } => ErrorClass::Expired,
            Self::Refused { .. } | Self::Revoked { .. } | Self::Forwarded { .. } | Self::Lied { .. } | Self::OtherIv { .. } => {
                ErrorClass::Refused
            }
            Self::Unreachable { .. } | Self::TimedOut { .. } | Self::NoSuchTree { .. } => ErrorClass::Unreachable,
            Self::Missing { refused: Some(_), .. } => ErrorClass::Refused,
            Self::Missing { .. } | Self::Damaged { .. } => ErrorClass::Damaged,
            Self::Local { .. } | Self::StateUnreadable { .. } | Self::StateOpen { .. } | Self::NoState => ErrorClass::Local,
            Self::Store(error) => match **error {
                vouch_tree_store::Error::Busy { .. } => ErrorClass::Busy,
                vouch_tree_store::Error::NotEmpty { .. } => ErrorClass::Input,
                _ => ErrorClass::Local,
            },
        }
    }

    /// The error as a file system tells it: a positive errno of Linux.
    pub const fn errno(&self) -> i32 {
        let errno = match self {
            Self::NotFound { .. } => rustix::io::Errno::NOENT,
            Self::NotADirectory { .. } => rustix::io::Errno::NOTDIR,
            Self::SymlinkLoop { .. } => rustix::io::Errno::LOOP,
            Self::Path { .. } | Self::WrongType { .. } => rustix::io::Errno::INVAL,
            _ => rustix::io::Errno::IO,
        };
        errno.raw_os_error()
    }

    pub(crate) fn local(doing: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Local { doing, path: path.to_owned(), source: Arc::new(source) }
    }

    pub(crate) fn frame(handle: &BlockHandle, error: frame::Error) -> Self {
        Self::Damaged { what: format!("frame {handle}: {error}") }
    }

    pub(crate) fn malformed(handle: &BlockHandle, error: vouch_xdr::Error) -> Self {
        Self::Damaged { what: format!("frame {handle}: {error}") }
    }
}

impl From<vouch_tree_store::Error> for Error {
    fn from(error: vouch_tree_store::Error) -> Self {
        Self::Store(Arc::new(error))
    }
}

/// What somebody said of it, if anything.
fn because(reason: &str) -> String {
    if reason.is_empty() { ", without a word why".to_owned() } else { format!(": {reason}") }
}

/// What explains that nobody has a frame.
fn why_missing(refused: Option<&str>) -> String {
    match refused {
        Some(why) => {
            format!(
                ", and none offers a revision that may be believed: {why}; wait until a replica has caught up, or name another by --replica"
            )
        }
        None => "; they may be half copied, or have dropped an old revision".to_owned(),
    }
}

/// What to do about a refusal that does not say it by itself.
const fn cure(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Malformed(_) | Refusal::Forged(_) => "; check that the name was copied whole, or name another replica by --replica",
        Refusal::Superseded { .. } | Refusal::OutsideCertificate { .. } => {
            "; its publisher must publish with the newest certificate, or somebody uses a signing key that is not valid any more"
        }
        Refusal::Rollback { .. } => "; wait until a replica has caught up, or name another by --replica",
        _ => "",
    }
}

fn lossy(path: &[u8]) -> std::borrow::Cow<'_, str> {
    if path.is_empty() { "/".into() } else { String::from_utf8_lossy(path) }
}
