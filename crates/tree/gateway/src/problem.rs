//! Status code, sentence and page for each error of the tree. Only the log names replicas,
//! addresses and files of this machine.

use hyper::StatusCode;
use vouch_tree::time_text::Utc;
use vouch_tree_client::{Error, ErrorClass};

use crate::target::TargetError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) reason: String,
    /// `None` for faults of the requester.
    pub(crate) log: Option<String>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Self { status, reason: reason.into(), log: None }
    }

    pub(crate) fn not_found(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, reason)
    }

    pub(crate) fn of(error: &Error) -> Self {
        let problem = Self::without_log(error);
        let log = problem.status.is_server_error().then(|| error.to_string());
        Self { log, ..problem }
    }

    fn without_log(error: &Error) -> Self {
        use StatusCode as Status;
        match error {
            Error::NotFound { .. } => Self::not_found("the signed tree has no file with this name"),
            Error::NotADirectory { .. } => Self::not_found("a part of the path is not a directory"),
            Error::SymlinkLoop { .. } => Self::not_found("the path has too many symbolic links"),
            Error::Path { why, .. } => Self::new(Status::BAD_REQUEST, *why),
            Error::Expired { revision, since, .. } => Self::new(
                Status::SERVICE_UNAVAILABLE,
                format!(
                    "revision {revision} expired on {}, and no replica has a newer one",
                    Utc(*since)
                ),
            ),
            Error::Revoked { .. } => {
                Self::new(Status::GONE, "the publisher has revoked the key of this tree")
            }
            Error::Forwarded { to } => {
                Self::new(Status::GONE, format!("this tree has moved to {to}"))
            }
            Error::Missing { .. } => {
                Self::new(Status::BAD_GATEWAY, "no replica has a part of this revision")
            }
            Error::Unreachable { .. } | Error::NoSuchTree { .. } => {
                Self::new(Status::GATEWAY_TIMEOUT, "no replica of the tree can be reached")
            }
            Error::TimedOut { .. } => {
                Self::new(Status::GATEWAY_TIMEOUT, "no replica of the tree answered in time")
            }
            error => match error.class() {
                ErrorClass::Expired => Self::new(
                    Status::SERVICE_UNAVAILABLE,
                    "the revision has expired, and no replica has a newer one",
                ),
                ErrorClass::Refused => Self::new(
                    Status::BAD_GATEWAY,
                    "the replicas offer no data that can be verified",
                ),
                ErrorClass::Unreachable => {
                    Self::new(Status::GATEWAY_TIMEOUT, "no replica of the tree can be reached")
                }
                ErrorClass::Damaged => {
                    Self::new(Status::BAD_GATEWAY, "the published tree is damaged")
                }
                _ => Self::new(
                    Status::INTERNAL_SERVER_ERROR,
                    "an error of the gateway's own machine; its log has the details",
                ),
            },
        }
    }

    pub(crate) fn is_temporary(&self) -> bool {
        matches!(self.status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT)
    }

    pub(crate) fn title(&self) -> &'static str {
        self.status.canonical_reason().unwrap_or("Error")
    }
}

impl From<TargetError> for Problem {
    fn from(error: TargetError) -> Self {
        let status = if error == TargetError::Selector {
            StatusCode::NOT_FOUND
        } else {
            StatusCode::BAD_REQUEST
        };
        Self::new(status, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_says_whose_fault_it_was() {
        let expired = Error::Expired {
            revision: 3,
            since: 0,
            now: 9,
            last: "replica 192.0.2.1: gone".into(),
        };
        let problem = Problem::of(&expired);
        assert_eq!(problem.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(
            problem.reason,
            "revision 3 expired on 1970-01-01T00:00:00Z, and no replica has a newer one"
        );
        for (error, status) in [
            (Error::NotFound { path: b"a".into() }, 404),
            (Error::Unreachable { attempts: String::new() }, 504),
            (Error::Lied { reasons: String::new() }, 502),
            (Error::Damaged { what: String::new() }, 502),
            (Error::NoState, 500),
        ] {
            assert_eq!(Problem::of(&error).status.as_u16(), status, "{error}");
        }
    }
}
