//! The NFSv4 server: minor versions 0, 1 and 2 (RFC 7530, RFC 8881, RFC 7862, RFC 8276), without
//! pNFS.
//!
//! Owns what a COMPOUND means: its operations, the state behind them, filehandles, the pseudo file
//! system, attributes and ACLs. Sans-IO: bytes of a call in, bytes of a reply out, and [`Effect`]s
//! for what must happen outside. Has no sockets, no threads, no clock and no randomness of its own;
//! files are reached through [`vouch_vfs`].
//!
//! A driver makes a [`Server`], tells it of connections, hands each call to [`Server::begin`] and
//! runs the [`Compound`] that it gets. One that would have to wait for a disk stops before the
//! operation that would, and goes on where sleeping does no harm.

mod acl;
mod admission;
mod asked;
mod attribute;
mod callback;
mod compound;
mod config;
mod connection;
mod cookie;
mod effect;
mod export;
mod filehandle;
mod fingerprint;
mod grant;
mod identity;
mod io;
mod job;
mod limits;
mod look;
mod machine;
mod naming;
mod observe;
mod observer;
mod op;
mod owner;
mod principal;
mod replies;
mod request;
mod rest;
mod server;
mod session;
mod sight;
pub mod state;
mod status_report;
mod stop;
mod syncs;
#[cfg(feature = "testing")]
pub mod testing;
mod time;
mod tree;
mod walk;

pub use compound::{Compound, Progress};
pub use config::Config;
pub use connection::Connection;
pub use effect::{CallbackContext, CallbackContexts, CallbackId, CallbackTo, ConnectionId, ContextLife, Effect, Recovered, Unreachable};
pub use export::{ClientAccess, ClientMatcher, Export, ExportId, Exports, ExportsError, FlavourAccess, Squash, SquashWho};
pub use identity::{Identity, Unanswered};
pub use job::{Job, JobProgress};
pub use limits::Limits;
pub use naming::NameOrder;
pub use observer::{
    Asked, Denial, Denied, Lost, Named, Naming, NoObserver, Observation, Observer, Stage, Told, Totals, asked as asked_bits,
};
pub use principal::{Flavour, Principal};
pub use request::{Reply, Request};
pub use server::{Replaced, Server, Tick};
pub use state::Loss;
pub use status_report::{ClientReport, ErrorReport, StatusReport};
pub use time::Now;

pub(crate) use io::OpenHandle;
