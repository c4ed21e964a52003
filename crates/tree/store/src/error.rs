use std::io;
use std::path::{Path, PathBuf};

use vouch_tree::BlockHandle;

use crate::bucket::{BucketError, BucketErrorKind};

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: no database here; create one with `vouch publish` or `vouch pull`", path.display())]
    NotFound { path: PathBuf },
    #[error("{}: the directory already has a database", path.display())]
    Exists { path: PathBuf },
    #[error("{}: not a database, and not empty (it has {}); nothing was changed; name an empty or new directory", path.display(), found.display())]
    NotEmpty { path: PathBuf, found: PathBuf },
    #[error("{}: another process{} is writing this database; wait for it to end", path.display(), pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default())]
    Busy { path: PathBuf, pid: Option<u32> },
    #[error("{}: {what}; the database is damaged; `vouch verify --db` lists the damage", path.display())]
    Damaged { path: PathBuf, what: String },
    #[error("{}: its manifest has {size} entries of the log and log/checkpoint {found}; was the database restored from an older copy? Pull the newest revision from a replica first: the log's key must not sign two logs of one length", path.display())]
    OlderThanLog { path: PathBuf, size: u64, found: u64 },
    #[error("{}: database format version {found} is not supported; a newer vouch may support it", path.display())]
    Version { path: PathBuf, found: u32 },
    #[error("{}: cannot {doing}: {source}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Bucket(BucketError),
    #[error(
        "{}: no space to {doing}: {source}; the last committed revision stays in force, and what was stored since is removed: free space in the file system of {}, or forget old revisions with `vouch gc --keep N --grace 0s`, then repeat the command",
        path.display(),
        path.parent().unwrap_or(path).display()
    )]
    NoSpace {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{first}")]
    Broken { first: String },
    #[error("not a frame: {0}")]
    Frame(&'static str),
    #[error("revision {number} is not complete: frame {handle} is missing")]
    Incomplete { number: u64, handle: BlockHandle },
    #[error("revision {offered} does not come after revision {newest}, which is committed already")]
    RevisionOrder { newest: u64, offered: u64 },
    #[error("{what}: {found} is over the limit of {max}")]
    Limit { what: &'static str, found: u64, max: u64 },
}

impl Error {
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| match source.kind() {
            _ if source.get_ref().is_some_and(|inner| inner.is::<BucketError>()) => {
                Self::of_bucket(source)
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::NoSpace { doing, path, source }
            }
            _ => Self::Io { doing, path, source },
        }
    }

    /// `source`: of a [`BucketDatabase`](crate::BucketDatabase).
    pub fn of_bucket(source: io::Error) -> Self {
        let text = source.to_string();
        let inner = source.into_inner().and_then(|inner| inner.downcast::<BucketError>().ok());
        Self::Bucket(inner.map_or_else(
            || BucketError { kind: BucketErrorKind::Unreachable, text },
            |inner| *inner,
        ))
    }

    /// Another writer holds the database, or has committed before.
    pub const fn is_busy(&self) -> bool {
        matches!(
            self,
            Self::Busy { .. } | Self::Bucket(BucketError { kind: BucketErrorKind::Busy, .. })
        )
    }

    pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), what: what.into() }
    }

    pub fn as_damage(&self) -> Option<String> {
        match self {
            Self::Damaged { path, what } => Some(format!("{}: {what}", path.display())),
            Self::Io { path, .. } if self.is_missing_file() => {
                Some(format!("{}: the file is missing", path.display()))
            }
            Self::Bucket(error) if self.is_missing_file() => Some(error.text.clone()),
            _ => None,
        }
    }

    pub(crate) fn is_missing_file(&self) -> bool {
        match self {
            Self::Io { source, .. } => source.kind() == io::ErrorKind::NotFound,
            Self::Bucket(error) => error.kind == BucketErrorKind::Missing,
            _ => false,
        }
    }
}
