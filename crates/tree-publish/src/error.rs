//! Everything that can go wrong while publishing, and whose fault it is.

use std::io;

use vouch_tree::time_text::Utc;

use crate::printable::printable;

/// Why there is no new revision. The one before stays in force.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The source's: something in it can't be read by this user.
    #[error("{path}: cannot {doing}: {source}; run as a user who may, or use --skip-unreadable")]
    Unreadable {
        /// The file, ready for printing.
        path: String,
        /// What was being done, as the words after "cannot".
        doing: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The source's: it changed each time it was read.
    #[error("{path}: changed each time it was read; publish a snapshot, or use --skip-unreadable")]
    Changed {
        /// The file or directory, ready for printing.
        path: String,
    },
    /// The source's: it holds what the format can't.
    #[error("{path}: {what}; use --skip-unreadable to leave it out")]
    Unsupported {
        /// The file, ready for printing.
        path: String,
        /// What it is.
        what: &'static str,
    },
    /// The caller's: the source can't be opened.
    #[error("{path}: cannot open the directory to publish: {source}")]
    Source {
        /// The source, ready for printing.
        path: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The caller's: the database would be published into itself.
    #[error("{path}: this is the database itself; keep it outside the directory that is published")]
    DatabaseInside {
        /// The database's directory as the walk met it.
        path: String,
    },
    /// The caller's: a private key would be published.
    #[error("{path}: {what}, and whatever is published can be read by everyone; keep keys outside the directory that is published")]
    Private {
        /// The file or directory, ready for printing.
        path: String,
        /// What it is.
        what: &'static str,
    },
    /// The caller's: an option that can't be.
    #[error("{0}")]
    Option(String),
    /// The configuration's: this key may not sign this tree now.
    #[error("{0}")]
    Key(String),
    /// The environment's: time has gone backwards.
    #[error(
        "revision {revision} starts on {}, which is in the future of this clock ({}); set the clock right and publish again, or, if it is right now and was ahead then, publish with --clock-was-ahead",
        Utc(*start),
        Utc(*now)
    )]
    Clock {
        /// The newest revision.
        revision: u64,
        /// Its start, in seconds since 1970.
        start: u64,
        /// The start that was asked for.
        now: u64,
    },
    /// The environment's: the head in the database is not what a publisher wrote.
    #[error("the newest revision in the database is damaged: {0}")]
    Head(vouch_xdr::Error),
    /// The store's.
    #[error(transparent)]
    Store(#[from] vouch_tree_store::Error),
    /// The environment's: no threads.
    #[error("cannot start threads: {0}")]
    Threads(String),
    /// Nobody's: the caller asked to stop.
    #[error("stopped; the revision before stays in force, and the next run uses what was stored")]
    Stopped,
}

/// Whose fault an [`Error`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The source's or the options'.
    Input,
    /// A key's or a certificate's.
    Refused,
    /// This machine's.
    Environment,
    /// Another writer's: try again later.
    Busy,
    /// Nobody's: the caller stopped it.
    Stopped,
}

impl Error {
    /// Whose fault it is.
    pub const fn fault(&self) -> Fault {
        match self {
            Self::Changed { .. } | Self::Unsupported { .. } | Self::DatabaseInside { .. } | Self::Private { .. } | Self::Option(_) => {
                Fault::Input
            }
            Self::Unreadable { .. } | Self::Source { .. } => Fault::Input,
            Self::Key(_) | Self::Clock { .. } => Fault::Refused,
            Self::Store(vouch_tree_store::Error::Busy { .. }) => Fault::Busy,
            Self::Head(_) | Self::Store(_) | Self::Threads(_) => Fault::Environment,
            Self::Stopped => Fault::Stopped,
        }
    }

    /// Whether `--skip-unreadable` goes on without the file.
    pub(crate) const fn is_skippable(&self) -> bool {
        matches!(self, Self::Unreadable { .. } | Self::Changed { .. } | Self::Unsupported { .. })
    }

    /// The reason without the path, for the list of what was skipped.
    pub(crate) fn why(&self) -> String {
        match self {
            Self::Unreadable { doing, source, .. } => format!("cannot {doing}: {source}"),
            Self::Changed { .. } => "changed each time it was read".to_owned(),
            Self::Unsupported { what, .. } => (*what).to_owned(),
            other => other.to_string(),
        }
    }

    pub(crate) fn source_dir(path: &std::path::Path, error: impl Into<io::Error>) -> Self {
        use std::os::unix::ffi::OsStrExt as _;
        Self::Source { path: printable(path.as_os_str().as_bytes()), source: error.into() }
    }
}

/// What went wrong with one file, before its path is known: paths are built only when they are
/// printed.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// It is gone, or no longer what its directory said: the directory has changed.
    Vanished,
    /// It changed while it was read.
    Changed,
    /// A system call failed.
    System { doing: &'static str, error: rustix::io::Errno },
    /// The format has no place for it.
    Unsupported(&'static str),
    /// It is a private key.
    Private,
    /// Nothing to do with this file.
    Fatal(Error),
}

impl Trouble {
    /// Maps the error of a system call on a name that a directory has just listed.
    pub(crate) fn system(doing: &'static str) -> impl Fn(rustix::io::Errno) -> Self {
        use rustix::io::Errno;
        move |error| match error {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::STALE | Errno::NXIO => Self::Vanished,
            error => Self::System { doing, error },
        }
    }

    /// The error for the file at `path`.
    pub(crate) fn at(self, path: &[u8]) -> Error {
        let path = printable(path);
        match self {
            Self::Vanished | Self::Changed => Error::Changed { path },
            Self::System { doing, error } => Error::Unreadable { path, doing, source: error.into() },
            Self::Unsupported(what) => Error::Unsupported { path, what },
            Self::Private => Error::Private { path, what: "this is a private key" },
            Self::Fatal(error) => error,
        }
    }
}

impl From<vouch_tree_store::Error> for Trouble {
    fn from(error: vouch_tree_store::Error) -> Self {
        Self::Fatal(error.into())
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Fatal(error)
    }
}
