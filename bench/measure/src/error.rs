use std::io;
use std::path::Path;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Input(String),
    #[error("{0}")]
    NotFound(String),
    #[error("{0} is not empty")]
    NotEmpty(String),
    #[error("{0}")]
    Unreachable(String),
    #[error("{0}")]
    Refused(String),
    #[error("{0}: the data read is not the data written")]
    Corrupt(String),
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("{0}")]
    Program(String),
    #[error("{what}: {source}")]
    Nfs { what: String, source: vouch_nfs4_client::Error },
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    pub fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        Self::io(path.display().to_string())
    }

    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotEmpty(_) => Some(
                "name an empty directory, or use --not-empty, which leaves existing files untouched",
            ),
            Self::Nfs { source, .. } => of_call(source),
            _ => None,
        }
    }

    pub fn with_hint(&self) -> String {
        self.hint().map_or_else(|| self.to_string(), |hint| format!("{self}; {hint}"))
    }

    pub fn nfs(what: impl Into<String>) -> impl FnOnce(vouch_nfs4_client::Error) -> Self {
        let what = what.into();
        move |source| match source {
            vouch_nfs4_client::Error::Lost | vouch_nfs4_client::Error::Io(_) => {
                Self::Unreachable(format!("{what}: {source}"))
            }
            source if source.status() == Some(vouch_nfs4::Status::NOENT) => {
                Self::NotFound(format!("{what}: no such file or directory"))
            }
            source => Self::Nfs { what, source },
        }
    }
}

fn of_call(error: &vouch_nfs4_client::Error) -> Option<&'static str> {
    use vouch_nfs4::Status;
    use vouch_nfs4::op::Op;
    use vouch_nfs4_client::Error as Call;
    let changes = |op: Op| [Op::CREATE, Op::OPEN, Op::REMOVE, Op::RENAME, Op::WRITE].contains(&op);
    match error {
        Call::Refused { op, status: Status::ACCESS | Status::PERM } if changes(*op) => Some(
            "this user may not write there; with AUTH_SYS root becomes nobody unless the export has no_root_squash; with Kerberos the server \
             maps the ticket's principal to a user; name a directory that the user may write to (chmod 1777)",
        ),
        Call::Refused { status: Status::ACCESS | Status::PERM, .. } => Some(
            "the server refuses this host or user; it may require a privileged port (exports(5): insecure allows others), or not \
             list this host, or the directory may be closed to the user; with Kerberos the principal may have no user (getent passwd on the server)",
        ),
        Call::Refused { status: Status::WRONGSEC, .. } => Some(
            "the export demands another flavour or TLS (exports(5): sec=, xprtsec=); choose with --sec, for example sys+tls",
        ),
        Call::Refused { status: Status::ROFS, .. } => {
            Some("the export is read-only; name a directory that is exported rw")
        }
        Call::Refused { status: Status::NOSPC | Status::DQUOT, .. } => Some(
            "no space is left; use --quick or smaller files (--file-size, --sizes, --large-size)",
        ),
        Call::Refused { status: Status::MINOR_VERS_MISMATCH, .. } => {
            Some("the server does not speak NFSv4.1")
        }
        Call::Denied(_) => Some(
            "the server does not allow this flavour, or not for this user; choose flavours with --sec",
        ),
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
    fn refusal_has_hint() {
        let message = |op, status| Error::nfs("there")(Call::Refused { op, status }).with_hint();
        assert!(message(Op::CREATE, Status::ACCESS).contains("no_root_squash"));
        assert!(message(Op::LOOKUP, Status::ACCESS).contains("insecure"));
        assert!(message(Op::LOOKUP, Status::ACCESS).contains("principal"));
        assert!(message(Op::LOOKUP, Status::WRONGSEC).contains("--sec"));
        assert!(message(Op::WRITE, Status::NOSPC).contains("no space"));
        assert_eq!(message(Op::READ, Status::IO), "there: READ: NFS4ERR_IO");
        assert!(Error::NotEmpty("nfs://h/x".into()).with_hint().ends_with("untouched"));
    }
}
