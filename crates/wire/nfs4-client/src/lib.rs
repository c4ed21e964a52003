//! A user-space NFSv4 client for minor versions 0, 1 and 2, without a cache.
//!
//! The crate needs no mount and no privileges, so it suits tools, tests and load generators. Choose
//! one of two drivers:
//!
//! - [`Client`] runs on tokio. Any number of tasks share it. It has a builder for compounds
//!   ([`Compound`]) and methods for common file operations. It reconnects, repeats calls after a
//!   lost connection, and renews lost security contexts.
//! - [`Pipeline`] runs on one thread for load generation. It keeps many calls in flight and reports
//!   each reply to a closure. It allocates nothing per call and does not reconnect.
//!
//! Both drivers use the same engine, which does no I/O: [`Handshake`] registers the client with the
//! server, [`Core`] assigns slots and transaction ids to calls, and [`BackChannel`] executes
//! callbacks. A [`Protection`] secures calls: [`Plain`] for AUTH_NONE and AUTH_SYS,
//! [`GssProtection`] for RPCSEC_GSS with Kerberos.
//!
//! The types of the protocol are in the crate `vouch_nfs4`.
//!
//! # Example
//!
//! List a directory and read a file of it with AUTH_SYS:
//!
//! ```no_run
//! use vouch_nfs4::Verifier;
//! use vouch_nfs4::op::ShareAccess;
//! use vouch_nfs4_client::{Client, Config, Error, Identity, Plain};
//! use vouch_oncrpc::AuthSys;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Error> {
//! // A program that restarts must use another verifier, for example its start time.
//! let identity = Identity::new("example client", Verifier([1; 8]));
//! let user = Plain::sys(&AuthSys { uid: 1000, gid: 1000, ..AuthSys::default() });
//! let address = ([127, 0, 0, 1], 2049).into();
//! let client = Client::connect(Config::new(address, 2, identity, user)).await?;
//!
//! let directory = client.walk(b"/export").await?.handle;
//! for entry in client.list(&directory, 100_000).await? {
//!     println!("{}", String::from_utf8_lossy(&entry.name));
//! }
//!
//! let file = client.open(&directory, b"README", ShareAccess::READ, None).await?;
//! let (data, eof) = client.read(&file, 0, 64 * 1024).await?;
//! println!("{} bytes, end of file: {eof}", data.len());
//! client.close_file(file).await?;
//! client.close().await
//! # }
//! ```
//!
//! `examples/list_and_read.rs` is a complete program that also waits while the server is in its
//! grace period.
//!
//! # Errors
//!
//! - A refused operation is [`Error::Refused`] with its status. The caller repeats the operation
//!   after DELAY and GRACE.
//! - After BADSESSION, DEADSESSION or STALE_CLIENTID the caller uses [`Client::renew`] and reclaims
//!   its opens with [`Client::reclaim_open`]. See `examples/survivor.rs`.

mod back_channel;
mod callback_listener;
mod callback_security;
mod client;
mod compound;
mod core;
mod directories;
mod error;
mod files;
mod gss;
mod handshake;
mod locks;
mod pipeline;
mod protection;
mod ranges;
mod reclaim;
mod record_buffer;
mod reply;
mod slots;
mod tls;
mod xattrs;

pub use back_channel::{BackChannel, CallbackHandler, NoCallbacks};
pub use callback_listener::{serve_callbacks, universal_address};
pub use callback_security::CallbackSecurity;
pub use client::{Client, Config, Connector, Io, Stream};
pub use compound::Compound;
pub use core::{CallBuilder, CallKind, Completion, Core};
pub use directories::Entry;
pub use error::Error;
pub use files::{FileInfo, OpenFile};
pub use gss::{GssError, GssProtection, Renewal, establish, establish_with};
pub use handshake::{Handshake, Identity};
pub use locks::{Lock, LockConflict};
pub use pipeline::{Pipeline, Submitter};
pub use protection::{
    CallTag, IncomingReply, Opener, OutgoingCall, Plain, Protection, ProtectionError,
};
pub use record_buffer::RecordBuffer;
pub use reply::{Reply, ReplyBody};
pub use tls::{TlsClient, TlsClientError};
pub use vouch_rpc_tls::credentials::ClientFiles;
