//! What can end a measurement, and whose fault it was.

use std::io;
use std::path::Path;

/// Why a measurement can't go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What was asked for makes no sense here.
    #[error("{0}")]
    Input(String),
    /// Nothing is there.
    #[error("{0}")]
    NotFound(String),
    /// The place to work in holds something already.
    #[error("{0} is not empty")]
    NotEmpty(String),
    /// Nobody answers, or no longer.
    #[error("{0}")]
    Unreachable(String),
    /// The peer, or a check of who it is, said no.
    #[error("{0}")]
    Refused(String),
    /// What was read is not what was written.
    #[error("{0}: what was read is not what was written")]
    Corrupt(String),
    /// The system under us.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// A program that we started.
    #[error("{0}")]
    Program(String),
    /// The server's answer to a call.
    #[error("{what}: {source}")]
    Nfs {
        /// What was being done.
        what: String,
        /// What came of it.
        source: vouch_nfs4_client::Error,
    },
    /// Somebody asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// An error of the system about a file.
    pub fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        Self::io(path.display().to_string())
    }

    /// An error of the system while doing something.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// What whoever measures may do about it, where that is known.
    pub fn cure(&self) -> Option<&'static str> {
        match self {
            Self::NotEmpty(_) => Some("name an empty directory, or say --not-empty: nothing that is there is touched"),
            Self::Nfs { source, .. } => of_call(source),
            _ => None,
        }
    }

    /// The error and its cure, on one line.
    pub fn with_cure(&self) -> String {
        self.cure().map_or_else(|| self.to_string(), |cure| format!("{self}; {cure}"))
    }

    /// An error of a call.
    pub fn nfs(what: impl Into<String>) -> impl FnOnce(vouch_nfs4_client::Error) -> Self {
        let what = what.into();
        move |source| match source {
            vouch_nfs4_client::Error::Lost | vouch_nfs4_client::Error::Io(_) => Self::Unreachable(format!("{what}: {source}")),
            source if source.status() == Some(vouch_nfs4::Status::NOENT) => Self::NotFound(format!("{what}: no such file or directory")),
            source => Self::Nfs { what, source },
        }
    }
}

/// What helps against a server's refusal.
fn of_call(error: &vouch_nfs4_client::Error) -> Option<&'static str> {
    use vouch_nfs4::Status;
    use vouch_nfs4::op::Op;
    use vouch_nfs4_client::Error as Call;
    let changes = |op: Op| [Op::CREATE, Op::OPEN, Op::REMOVE, Op::RENAME, Op::WRITE].contains(&op);
    match error {
        Call::Refused { op, status: Status::ACCESS | Status::PERM } if changes(*op) => Some(
            "this user may not write there: with AUTH_SYS root is nobody unless the export says no_root_squash, with Kerberos the user is who the server \
             maps the ticket's principal to; name a directory that the user may write to (chmod 1777)",
        ),
        Call::Refused { status: Status::ACCESS | Status::PERM, .. } => Some(
            "the server lets this host or user in nowhere there: it may want calls from a privileged port (exports(5): insecure lets others in), or not \
             know this host, or the directory is closed to the user; under Kerberos it may know no user for the ticket's principal (getent passwd on the server)",
        ),
        Call::Refused { status: Status::WRONGSEC, .. } => {
            Some("the export does not take this flavour (exports(5): sec=); --sec says which are measured")
        }
        Call::Refused { status: Status::ROFS, .. } => Some("it can only be read: name a directory that is exported rw"),
        Call::Refused { status: Status::NOSPC | Status::DQUOT, .. } => {
            Some("there is no room: --quick, or smaller files (--file-size, --sizes, --large-size)")
        }
        Call::Refused { status: Status::MINOR_VERS_MISMATCH, .. } => Some("the server does not speak NFSv4.1"),
        Call::Denied(_) => Some("the server does not take this flavour, or not from this user; --sec says which are measured"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use vouch_nfs4::Status;
    use vouch_nfs4::op::Op;
    use vouch_nfs4_client::Error as Call;

    use super::*;

    #[test]
    fn a_refusal_names_what_helps() {
        let said = |op, status| Error::nfs("there")(Call::Refused { op, status }).with_cure();
        assert!(said(Op::CREATE, Status::ACCESS).contains("no_root_squash"));
        assert!(said(Op::LOOKUP, Status::ACCESS).contains("insecure"));
        assert!(said(Op::LOOKUP, Status::ACCESS).contains("principal"));
        assert!(said(Op::LOOKUP, Status::WRONGSEC).contains("--sec"));
        assert!(said(Op::WRITE, Status::NOSPC).contains("no room"));
        assert_eq!(said(Op::READ, Status::IO), "there: READ: NFS4ERR_IO");
        assert!(Error::NotEmpty("nfs://h/x".into()).with_cure().ends_with("touched"));
    }
}
