//! Cheap to clone: one fetch may answer many readers.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use vouch_tree::time_text::{RelativeTime, Utc};
use vouch_tree::verify::Refusal;
use vouch_tree::{BlockHandle, FileType, HostId, TreeName, frame};
use vouch_tree_store::BucketErrorKind;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Each message is one line for the user.
#[derive(Debug, Clone, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum Error {
    #[error("{}: no such file or directory", lossy(path))]
    NotFound { path: Vec<u8> },
    #[error("{}: not a directory", lossy(path))]
    NotADirectory { path: Vec<u8> },
    #[error("{}: {why}", lossy(path))]
    Path { path: Vec<u8>, why: &'static str },
    #[error("the file is a {found:?}, not a {expected:?}")]
    WrongType { expected: FileType, found: FileType },
    #[error("{}: too many levels of symbolic links", lossy(path))]
    SymlinkLoop { path: Vec<u8> },
    #[error(
        "revision {revision} expired on {}, {}, and no replica has a newer one ({last}); the publisher must publish again, or this machine's clock is wrong",
        Utc(*since),
        RelativeTime { at: *since, now: *now }
    )]
    Expired { revision: u64, since: u64, now: u64, last: String },
    #[error(
        "no replica can be trusted: {reasons}; name another with --replica, and ask the administrators of these to check their databases (vouch verify --db)"
    )]
    Lied { reasons: String },
    #[error("no replica offers a valid revision: {reason}{}", advice(source))]
    Refused { reason: String, source: Refusal },
    #[error("{}: {what}; replace the file with an intact copy, or remove it if it is not a revocation", path.display())]
    Statement { path: PathBuf, what: String },
    #[error("{}: {what}; write a policy as C2SP tlog-policy says, in a file that this user may read", path.display())]
    Policy { path: PathBuf, what: String },
    #[error("authorities of replicas' certificates: {what}")]
    Authorities { what: String },
    #[error(
        "the key of {hostid} was revoked{}; ask the publisher for the tree's new name",
        revocation_reason(reason)
    )]
    Revoked { hostid: HostId, reason: String },
    #[error("this tree has moved to {to}")]
    Forwarded { to: TreeName },
    #[error("no replica serves the tree now: {attempts}")]
    Unreachable { attempts: String },
    #[error(
        "{}: the newest revision has another iv than this database: either the publisher created a new database, or the signing key is stolen; ask the publisher, and pull a new database into an empty directory",
        db.display()
    )]
    OtherIv { db: PathBuf },
    #[error(
        "the log of this tree has two histories: this database has {ours} entries of one, and the replicas offer {theirs} of another; somebody who has the log's key shows readers different revisions, or the publisher has lost its database: ask the publisher, and show the signed heads in {}",
        dir.display()
    )]
    ForkedLog { dir: PathBuf, ours: u64, theirs: u64 },
    #[error("no answer within {} s: {last}", after.as_secs_f32())]
    TimedOut { after: Duration, last: String },
    #[error("none of {asked} replicas has the frame {handle}{}", missing_cause(refused.as_deref()))]
    Missing { handle: BlockHandle, asked: usize, refused: Option<String> },
    #[error("none of {asked} replicas serves the tree {hostid}")]
    NoSuchTree { hostid: HostId, asked: usize },
    #[error("the published tree is damaged: {what}")]
    Damaged { what: String },
    #[error("{doing} {}: {source}", path.display())]
    Local { doing: &'static str, path: PathBuf, source: Arc<io::Error> },
    #[error("the record of the newest revision seen, {}, can't be read: {source}; restore the file, or move it away if its loss is explained: until the next refresh an older revision may then be accepted", path.display())]
    StateUnreadable { path: PathBuf, source: Arc<io::Error> },
    #[error("state directory {} {} and restore an older revision; check for changes and {}, or give another directory with --state", .0.place.display(), .0.what, .0.cure)]
    StateExposed(vouch_trust::Exposure),
    #[error(
        "no state directory for the newest revision seen (HOME is not set); name one with --state DIR"
    )]
    NoState,
    #[error(transparent)]
    Store(Arc<vouch_tree_store::Error>),
}

/// What a caller can do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// The name does not exist: proven by the signed tree.
    NotFound,
    /// The caller asked for something impossible.
    Input,
    /// Signature, rollback, revocation, or wrong data.
    Refused,
    /// Witnesses that a policy demands have not seen the revision.
    Unwitnessed,
    /// No valid revision.
    Expired,
    /// No replica answers in time. A later attempt may succeed.
    Unreachable,
    /// The tree or all copies are damaged.
    Damaged,
    /// A file or the configuration of this machine.
    Local,
    /// Another process writes the database.
    Busy,
}

impl Error {
    /// Each error has one class.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::NotFound { .. } => ErrorClass::NotFound,
            Self::Statement { .. } | Self::Policy { .. } | Self::Authorities { .. } => {
                ErrorClass::Input
            }
            Self::NotADirectory { .. }
            | Self::Path { .. }
            | Self::WrongType { .. }
            | Self::SymlinkLoop { .. } => ErrorClass::Input,
            Self::Expired { .. } => ErrorClass::Expired,
            Self::Refused { source: Refusal::Expired { .. }, .. } => ErrorClass::Expired,
            Self::Refused { source: Refusal::Unwitnessed { .. }, .. } => ErrorClass::Unwitnessed,
            Self::Refused { .. }
            | Self::Revoked { .. }
            | Self::Forwarded { .. }
            | Self::Lied { .. }
            | Self::ForkedLog { .. }
            | Self::OtherIv { .. } => ErrorClass::Refused,
            Self::Unreachable { .. } | Self::TimedOut { .. } | Self::NoSuchTree { .. } => {
                ErrorClass::Unreachable
            }
            Self::Missing { refused: Some(_), .. } => ErrorClass::Refused,
            Self::Missing { .. } | Self::Damaged { .. } => ErrorClass::Damaged,
            Self::Local { .. }
            | Self::StateUnreadable { .. }
            | Self::StateExposed(_)
            | Self::NoState => ErrorClass::Local,
            Self::Store(error) => match **error {
                ref error if error.is_busy() => ErrorClass::Busy,
                // A pull that watches tries again.
                vouch_tree_store::Error::Bucket(ref error)
                    if error.kind == BucketErrorKind::Unreachable =>
                {
                    ErrorClass::Unreachable
                }
                vouch_tree_store::Error::NotEmpty { .. } => ErrorClass::Input,
                _ => ErrorClass::Local,
            },
        }
    }

    /// Positive, for a file system.
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

fn revocation_reason(reason: &str) -> String {
    if reason.is_empty() { ", without a reason".to_owned() } else { format!(": {reason}") }
}

fn missing_cause(refused: Option<&str>) -> String {
    match refused {
        Some(why) => {
            format!(
                ", and none offers a valid revision: {why}; wait until a replica is up to date, or name another with --replica"
            )
        }
        None => "; their copies may be incomplete, or they have dropped an old revision".to_owned(),
    }
}

const fn advice(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Malformed(_) | Refusal::Forged(_) => {
            "; check that the name is complete, or name another replica with --replica"
        }
        Refusal::Superseded { .. } | Refusal::OutsideCertificate { .. } => {
            "; the publisher must use the newest certificate, or a replaced signing key is in use"
        }
        Refusal::Rollback { .. } => {
            "; wait until a replica is up to date, or name another with --replica"
        }
        Refusal::Unwitnessed { .. } => {
            "; the publisher must have its witnesses cosign, or the signing key is stolen"
        }
        _ => "",
    }
}

fn lossy(path: &[u8]) -> std::borrow::Cow<'_, str> {
    if path.is_empty() { "/".into() } else { String::from_utf8_lossy(path) }
}
