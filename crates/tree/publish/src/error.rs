use std::io;

use vouch_tree::time_text::Utc;

use crate::printable::printable;

#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum Error {
    #[error(
        "{path}: cannot {doing}: {source}; run as a user with access, or use --skip-unreadable"
    )]
    Unreadable {
        path: String,
        doing: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("{path}: changed each time it was read; publish a snapshot, or use --skip-unreadable")]
    Changed { path: String },
    #[error("{path}: {what}; use --skip-unreadable to leave it out")]
    Unsupported { path: String, what: &'static str },
    #[error("{path}: cannot open the directory to publish: {source}")]
    Source {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("{path}: this is the database itself; keep it outside the directory that is published")]
    DatabaseInside { path: String },
    #[error(
        "{path}: {what}, and published files are readable by everyone; keep keys outside the directory that is published"
    )]
    Private { path: String, what: &'static str },
    #[error("{0}")]
    Option(String),
    #[error("{0}")]
    Key(String),
    #[error(
        "revision {revision} starts on {}, which is in the future of this clock ({}); set the clock right and publish again, or, if it is right now and was ahead then, publish with --clock-was-ahead",
        Utc(*start),
        Utc(*now)
    )]
    Clock { revision: u64, start: u64, now: u64 },
    #[error(
        "the key of this tree is revoked ({}), so clients refuse every revision; make new keys with `vouch keygen`, and publish into a new database",
        printable(reason.as_bytes())
    )]
    Revoked { reason: String },
    #[error(
        "{path}: {deleted} of the {before} files of revision {revision} are gone; check that the disk is mounted and is the right one, or publish with --max-delete 100%"
    )]
    Deleted { path: String, deleted: u64, before: u64, revision: u64 },
    #[error(
        "{example}: other users cannot read this file{}, and published files are readable by everyone; leave private files out with --exclude, or publish with --private-files allow",
        if *count > 1 { format!(" and {} more", count - 1) } else { String::new() }
    )]
    PrivateFiles { example: String, count: u64 },
    #[error("revision {0} is not kept in this database; `vouch log --db` lists the revisions")]
    NoRevision(String),
    #[error("the newest revision in the database is damaged: {0}")]
    Head(vouch_xdr::Error),
    #[error("the log of the tree's revisions: {0}; `vouch verify --db` lists the damage")]
    Log(#[from] vouch_log::reader::ReadError),
    #[error("the log of the tree's revisions: {0}")]
    LogFull(vouch_log::append::AppendError),
    #[error(
        "revision {revision} waits for witnesses, and readers do not see it yet; `vouch witness` asks them again"
    )]
    Held { revision: u64 },
    #[error(transparent)]
    Store(#[from] vouch_tree_store::Error),
    #[error("cannot start threads: {0}")]
    Threads(String),
    #[error(
        "stopped; the previous revision stays in force, and the next run uses the stored frames"
    )]
    Stopped,
}

/// Groups of errors: the program's exit codes follow them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// An option or a key is wrong.
    Input,
    /// Something named does not exist.
    Missing,
    /// A guard refused the publication.
    Refused,
    /// Cosignatures of witnesses are missing.
    Unwitnessed,
    /// The machine failed: disk, network, memory.
    Environment,
    /// Another process writes the database.
    Busy,
    /// The user stopped it.
    Stopped,
}

impl Error {
    /// The group of this error.
    pub const fn fault(&self) -> Fault {
        match self {
            Self::Changed { .. }
            | Self::Unsupported { .. }
            | Self::DatabaseInside { .. }
            | Self::Private { .. }
            | Self::Option(_) => Fault::Input,
            Self::Unreadable { .. }
            | Self::Source { .. }
            | Self::Deleted { .. }
            | Self::PrivateFiles { .. } => Fault::Input,
            Self::NoRevision(_) => Fault::Missing,
            Self::Held { .. } => Fault::Unwitnessed,
            Self::Key(_) | Self::Revoked { .. } | Self::Clock { .. } => Fault::Refused,
            Self::Store(error) if error.is_busy() => Fault::Busy,
            Self::Head(_) | Self::Log(_) | Self::LogFull(_) | Self::Store(_) | Self::Threads(_) => {
                Fault::Environment
            }
            Self::Stopped => Fault::Stopped,
        }
    }

    /// `--skip-unreadable` may continue without the file.
    pub(crate) const fn is_skippable(&self) -> bool {
        matches!(self, Self::Unreadable { .. } | Self::Changed { .. } | Self::Unsupported { .. })
    }

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

/// Paths are built only for printing.
#[derive(Debug)]
pub(crate) enum FileError {
    /// Gone or of another type: the directory changed.
    Vanished,
    Changed,
    System {
        doing: &'static str,
        error: rustix::io::Errno,
    },
    Unsupported(&'static str),
    Private,
    Fatal(Error),
}

impl FileError {
    pub(crate) fn system(doing: &'static str) -> impl Fn(rustix::io::Errno) -> Self {
        use rustix::io::Errno;
        move |error| match error {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::STALE | Errno::NXIO => {
                Self::Vanished
            }
            error => Self::System { doing, error },
        }
    }

    pub(crate) fn at(self, path: &[u8]) -> Error {
        let path = printable(path);
        match self {
            Self::Vanished | Self::Changed => Error::Changed { path },
            Self::System { doing, error } => {
                Error::Unreadable { path, doing, source: error.into() }
            }
            Self::Unsupported(what) => Error::Unsupported { path, what },
            Self::Private => Error::Private { path, what: "this is a private key" },
            Self::Fatal(error) => error,
        }
    }
}

impl From<vouch_tree_store::Error> for FileError {
    fn from(error: vouch_tree_store::Error) -> Self {
        Self::Fatal(error.into())
    }
}

impl From<Error> for FileError {
    fn from(error: Error) -> Self {
        Self::Fatal(error)
    }
}
