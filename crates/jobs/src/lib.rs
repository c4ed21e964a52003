//! Kerberos tickets for batch jobs that outlive them.
//!
//! A broker knows the live jobs by the word of the scheduler. For a job on a node it mints service
//! tickets in the user's name by constrained delegation. An agent on the node writes them where
//! rpc.gssd reads them, renews them until the job's deadline, and removes them at its end.
//!
//! | module | content |
//! |---|---|
//! | [`names`], [`hostlist`] | names of jobs, nodes and users; Slurm's lists of nodes |
//! | `registry` | the jobs and what each node may get: a state machine without I/O |
//! | [`limits`] | all bounds |
//! | [`wire`], `channel` | messages, and the connections that carry them |
//! | [`spool`] | ends of jobs that the broker has not heard yet |
//! | [`pods`] | tokens of Kubernetes, which say who a pod is |
//! | [`broker`] | the broker: store, minting, audit records, listeners |
//! | [`agent`] | the agent: caches of tickets, renewal, state across restarts |
//! | `faults`, `clock` | failures that `vouch check` shows; the time |

#![allow(missing_docs, reason = "an internal crate documents what a name does not say")]

pub mod agent;
pub mod broker;
mod channel;
mod clock;
mod faults;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod hostlist;
pub mod limits;
pub mod names;
pub mod pods;
mod registry;
pub mod spool;
pub mod wire;

pub use channel::{ChannelError, ask_local};
pub use faults::{OutageStatus, RefusalStatus};

use std::path::PathBuf;

/// The service of the broker's principal: `vouch-jobs/HOST`.
pub const SERVICE: &str = "vouch-jobs";
/// Default TCP port of the broker.
pub const PORT_DEFAULT: u16 = 4344;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Kerberos(#[from] vouch_gss_mit::KerberosError),
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{0}")]
    Exposed(#[from] vouch_trust::Exposure),
    #[error("{0}")]
    Connection(#[from] channel::ChannelError),
    #[error("{}: {why}", path.display())]
    Store { path: PathBuf, why: String },
    #[error("{0}")]
    Trail(#[from] vouch_daemon::audit_trail::TrailError),
    /// A request that the other side refuses.
    #[error("refused: {0}")]
    Refused(String),
    /// A user whom this machine does not know.
    #[error("refused: {0}")]
    NoAccount(String),
    /// A request that the other side cannot answer now.
    #[error("not available: {0}")]
    Unavailable(String),
    #[error("{0}")]
    Pods(#[from] pods::PodError),
    #[error("{0}")]
    Configuration(String),
}

impl Error {
    /// The Kerberos library's error, if it is one.
    pub(crate) fn kerberos(&self) -> Option<&vouch_gss_mit::KerberosError> {
        match self {
            Self::Kerberos(error) | Self::Connection(ChannelError::Kerberos(error)) => Some(error),
            _ => None,
        }
    }
}

pub(crate) fn io_at(path: &std::path::Path) -> impl Fn(std::io::Error) -> Error + '_ {
    |source| Error::Io { path: path.to_owned(), source }
}

#[cfg(test)]
mod simulation;
