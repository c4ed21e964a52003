//! The NFSv4 server core: minor versions 0, 1 and 2 (RFC 7530, RFC 8881, RFC 7862, RFC 8276),
//! without pNFS.
//!
//! Sans-IO: it takes the bytes of a call and returns the bytes of a reply and [`Effect`]s. It
//! reaches files through [`vouch_vfs`].
//!
//! A driver creates a [`Server`], reports connections, passes each call to [`Server::begin`] and
//! runs the [`Compound`]. A compound that would wait for a disk continues on a thread that may
//! block.

#![allow(missing_docs, reason = "an internal crate documents what a name does not say")]

mod access;
mod attributes;
mod background_job;
mod callback;
mod callback_target;
mod compound;
mod config;
mod connection;
mod effect;
mod error;
mod export;
mod filehandle;
mod files;
mod limits;
mod name_cookie;
mod observer;
mod op;
mod pseudo_fs;
mod request;
mod server;
mod state;
#[cfg(feature = "testing")]
pub mod testing;
mod time;
mod transport;

pub use access::identity::{Identity, Unanswered};
pub use access::principal::{Flavour, Principal};
pub use background_job::{Job, JobProgress};
pub use callback_target::{
    CallbackContext, CallbackContexts, CallbackId, CallbackTo, ConnectionId, ContextLife,
};
pub use compound::progress::{BlockedOn, MayBlock, Progress, RunResult};
pub use compound::run::Compound;
pub use config::Config;
pub use connection::Connection;
pub use effect::{Effect, Recovered, Unreachable};
pub use export::{
    ClientAccess, ClientMatcher, Export, ExportId, Exports, ExportsError, FlavourAccess, Location,
    Locations, Qos, Rates, Squash, SquashWho,
};
pub use limits::Limits;
pub use observer::event::{CallOrigin, CompletedOp, OpDetails};
pub use observer::interface::{
    Arguments, Denial, EndedState, EventPaths, NameChange, NoObserver, Observer, Opener,
    OtherNames, SharedPath, Stage, Totals, requested,
};
pub use observer::name_order::NameOrder;
pub use request::{Reply, ReplyKind, Request};
pub use server::administration::HeldState;
pub use server::export_change::Replaced;
pub use server::status::{AwaitedReport, ClientReport, ErrorReport, StatusReport};
pub use server::{Server, Tick};
pub use state::ClientEnd;
pub use state::{
    ClientPrincipal, Family, HeldKind, LockedRange, Loss, Network, RecoveryRecord,
    Totals as StateTotals,
};
pub use time::Now;
pub use transport::{ClientCertificate, TlsPeer, Transport};

pub(crate) use files::open_handle::OpenHandle;
