//! The NFSv4 service of Vouch: it exports directories and published trees.
//!
//! | module | content |
//! |---|---|
//! | `server` | opens, runs and stops the service by its `config` |
//! | `exports` | the list of exports: exports(5), file systems behind it, rights of clients, reload |
//! | `hosts` | host names, netgroups and their refresh |
//! | `transport` | TCP connections, RPC records, replies |
//! | `worker` | the threads that read calls, run them and send replies |
//! | `driver` | effects of the protocol engine, calls that block, group commit, callbacks |
//! | `tls` | RPC-with-TLS: credentials, handshakes, sealed output, client certificates |
//! | `gss` | RPCSEC_GSS: contexts, verification in batches, sealing in batches |
//! | `identity` | AUTH_SYS numbers and Kerberos principals become local identities |
//! | `audit` | audit records of clients' operations |
//! | `recovery`, `state_directory` | state that survives a restart |
//! | `lease` | which of several heads serves a shared state directory |
//! | `thread_pool`, `memory_quota`, `limits` | bounds on threads, calls and memory, shared by source address |
//! | `management` | orders of administrators, over the control socket and by gRPC over TLS |
//! | `monitoring` | metrics, health and status |
//!
//! The protocol itself is in `vouch_nfs4_server`, which has no sockets, threads or clocks.
//! No module here knows an NFS operation.

#![allow(missing_docs, reason = "an internal crate documents what a name does not say")]

mod audit;
mod clock;
mod config;
mod driver;
mod error;
mod exports;
mod fair_queue;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod gss;
mod hosts;
mod identity;
mod lease;
mod limits;
pub mod management;
mod memory_quota;
mod monitoring;
mod privileges;
mod qos;
mod recovery;
mod server;
mod state_directory;
mod system_hooks;
#[cfg(test)]
mod tests;
mod thread_pool;
mod tls;
mod transport;
mod worker;

pub use audit::AuditConfig;
pub use config::ExportConfig;
pub use error::ExportError;
pub use exports::Source;
pub use exports::changes::{Origin, path_word};
pub use exports::effective::EffectiveExport;
pub use exports::list_check::{CheckedList, CheckedTls, check_principal_map, system_keytab};
pub use exports::source_error::SourceError;
pub use exports::sources::ExportList;
pub use exports::syntax::option_forms;
pub use identity::{GroupSource, IdentityLives, UnknownPrincipal, UserLookup, look_up_user};
pub use lease::{HeldLease, LeaseError, SharedState, admit, ignore_attempts, wait_for_lease};
pub use limits::Limits;
pub use monitoring::status::{
    AwaitedStatus, ClientStatus, ErrorStatus, ExportStatus, HeadRole, HeadStatus,
    NameServiceStatus, QosStatus, QuotaStatus, RefusalStatus, SiteStatus, Status, TlsStatus,
};
pub use recovery::RecoveryError;
pub use server::Server;
pub use state_directory::{StateError, control_path};
pub use tls::{TlsConfig, TlsServiceError};
pub use transport::proxy_header::Balancers;
pub use vouch_rpc_tls::credentials::ServerFiles as TlsFiles;
