//! Errors of publishing, and their classes.

use std::io;

use vouch_tree::time_text::Utc;

use crate::printable::printable;

/// Reasons why there is no new revision. The previous one stays in force.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something in the source is unreadable for this user.
    #[error("{path}: cannot {doing}: {source}; run as a user with access, or use --skip-unreadable")]
    Unreadable {
        /// Printable path of the file.
        path: String,
        /// Attempted operation, to follow "cannot".
        doing: &'static str,
        /// System error.
        #[source]
        source: io::Error,
    },
    /// A file changed during each read.
    #[error("{path}: changed each time it was read; publish a snapshot, or use --skip-unreadable")]
    Changed {
        /// Printable path.
        path: String,
    },
    /// The format can't represent it.
    #[error("{path}: {what}; use --skip-unreadable to leave it out")]
    Unsupported {
        /// Printable path.
        path: String,
        /// Description.
        what: &'static str,
    },
    /// The source can't be opened.
    #[error("{path}: cannot open the directory to publish: {source}")]
    Source {
        /// Printable path of the source.
        path: String,
        /// System error.
        #[source]
        source: io::Error,
    },
    /// The source contains the database.
    #[error("{path}: this is the database itself; keep it outside the directory that is published")]
    DatabaseInside {
        /// Path of the database in the walk.
        path: String,
    },
    /// The source contains a private key.
    #[error("{path}: {what}, and published files are readable by everyone; keep keys outside the directory that is published")]
    Private {
        /// Printable path.
        path: String,
        /// Description.
        what: &'static str,
    },
    /// Invalid option.
    #[error("{0}")]
    Option(String),
    /// The key may not sign this tree now.
    #[error("{0}")]
    Key(String),
    /// The clock went back.
    #[error(
        "revision {revision} starts on {}, which is in the future of this clock ({}); set the clock right and publish again, or, if it is right now and was ahead then, publish with --clock-was-ahead",
        Utc(*start),
        Utc(*now)
    )]
    Clock {
        /// Newest revision.
        revision: u64,
        /// Its start, in seconds since 1970.
        start: u64,
        /// Requested start.
        now: u64,
    },
    /// The head in the database is malformed.
    #[error("the newest revision in the database is damaged: {0}")]
    Head(vouch_xdr::Error),
    /// Store error.
    #[error(transparent)]
    Store(#[from] vouch_tree_store::Error),
    /// Threads could not be started.
    #[error("cannot start threads: {0}")]
    Threads(String),
    /// Stopped on request.
    #[error("stopped; the previous revision stays in force, and the next run uses the stored frames")]
    Stopped,
}

/// Class of an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Source or options.
    Input,
    /// Key or certificate.
    Refused,
    /// This machine.
    Environment,
    /// Another writer holds the database.
    Busy,
    /// Stopped on request.
    Stopped,
}

impl Error {
    /// Class of the error.
    pub const fn fault(&self) -> Fault {
        match self {
            Self::Changed { .. } | Self::Unsupported { .. } | Self::DatabaseInside { .. } | Self::Private { .. } | Self::Option(_) => {
                Fault::Input
            }
            Self::Unreadable { .. } | Self::Source { .. } => Fault::Input,
            Self::Key(_) | Self::Clock { .. } => Fault::Refused,
            Self::Store(error) if error.is_busy() => Fault::Busy,
            Self::Head(_) | Self::Store(_) | Self::Threads(_) => Fault::Environment,
            Self::Stopped => Fault::Stopped,
        }
    }

    /// Whether `--skip-unreadable` may continue without the file.
    pub(crate) const fn is_skippable(&self) -> bool {
        matches!(self, Self::Unreadable { .. } | Self::Changed { .. } | Self::Unsupported { .. })
    }

    /// The reason without the path, for the list of skipped files.
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

/// Error with one file. Paths are built only for printing.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The file is gone or has another type: the directory changed.
    Vanished,
    /// The file changed during the read.
    Changed,
    /// A system call failed.
    System { doing: &'static str, error: rustix::io::Errno },
    /// The format can't represent the file.
    Unsupported(&'static str),
    /// The file is a private key.
    Private,
    /// An error independent of the file.
    Fatal(Error),
}

impl Trouble {
    /// Maps the error of a system call on a listed name.
    pub(crate) fn system(doing: &'static str) -> impl Fn(rustix::io::Errno) -> Self {
        use rustix::io::Errno;
        move |error| match error {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::STALE | Errno::NXIO => Self::Vanished,
            error => Self::System { doing, error },
        }
    }

    /// Adds the path.
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
