//! Everything that can go wrong in a store, and whose fault it is.

use std::io;
use std::path::{Path, PathBuf};

use vouch_tree::BlockHandle;

/// What a store's operations return.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a store did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller's: there is no database at this path.
    #[error("{}: no database here; `vouch publish` or `vouch pull` makes one", path.display())]
    NotFound {
        /// Where one was looked for.
        path: PathBuf,
    },
    /// The caller's: there is a database already.
    #[error("{}: a database is here already", path.display())]
    Exists {
        /// Where one was to be made.
        path: PathBuf,
    },
    /// The caller's: something else is in the directory, and would be mixed up with a database's
    /// files.
    #[error("{}: not empty ({} is in it), and no database; nothing was changed: name an empty or a new directory", path.display(), found.display())]
    NotEmpty {
        /// Where a database was to be made.
        path: PathBuf,
        /// One of the things in it.
        found: PathBuf,
    },
    /// Nobody's: another writer is at work.
    #[error("{}: another process{} is writing this database; wait for it to end", path.display(), pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default())]
    Busy {
        /// The database.
        path: PathBuf,
        /// The holder, as far as it left its name.
        pid: Option<u32>,
    },
    /// The environment's: a file is not what was written to it.
    #[error("{}: {what}; the database is damaged: `vouch verify --db` tells how much of it", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The configuration's: a file of a later version of the format.
    #[error("{}: version {found} of the database format; a newer vouch may know it", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// The version that it names.
        found: u32,
    },
    /// The environment's: a system call failed.
    #[error("{}: cannot {doing}: {source}", path.display())]
    Io {
        /// What was being done, as the words after "cannot".
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The environment's: the disk or the quota is full. The last committed revision stays in
    /// force.
    #[error(
        "{}: no space to {doing}: {source}; the last committed revision stays in force: make room in the file system of {}, or let `vouch gc` drop what no kept revision needs, and run it again",
        path.display(),
        path.parent().unwrap_or(path).display()
    )]
    NoSpace {
        /// What was being done, as the words after "to".
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// An earlier write of this writer failed, so it writes no more; a new writer goes on from what
    /// is whole.
    #[error("{first}")]
    Broken {
        /// The earlier error.
        first: String,
    },
    /// The caller's: the bytes are no frame.
    #[error("not a frame: {0}")]
    Frame(&'static str),
    /// The caller's: the revision names a frame that the database lacks.
    #[error("revision {number} is not complete: frame {handle} is missing")]
    Incomplete {
        /// The revision.
        number: u64,
        /// What it lacks.
        handle: BlockHandle,
    },
    /// The caller's: revisions count up.
    #[error("revision {offered} does not come after revision {newest}, which is committed already")]
    RevisionOrder {
        /// The newest that is committed.
        newest: u64,
        /// The one that was to be.
        offered: u64,
    },
    /// The caller's: something is over a limit of the format.
    #[error("{what}: {found} is over the limit of {max}")]
    Limit {
        /// Of what there is too much.
        what: &'static str,
        /// How much there is.
        found: u64,
        /// How much there may be.
        max: u64,
    },
}

impl Error {
    /// Wraps what the system said while `doing` something to `path`.
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace { doing, path, source },
            _ => Self::Io { doing, path, source },
        }
    }

    pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), what: what.into() }
    }

    /// What of the database is damaged or missing, if that is what is wrong.
    pub fn as_damage(&self) -> Option<String> {
        match self {
            Self::Damaged { path, what } => Some(format!("{}: {what}", path.display())),
            Self::Io { path, .. } if self.is_missing_file() => Some(format!("{}: the file is missing", path.display())),
            _ => None,
        }
    }

    /// Whether the file that was to be opened is not there.
    pub(crate) fn is_missing_file(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}
