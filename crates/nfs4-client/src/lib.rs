//! A user-space NFSv4 client: minor versions 0, 1 and 2. It serves tests, demonstrations and load
//! generation; it caches nothing.
//!
//! The engine is sans-IO: [`Core`] numbers calls, takes and gives slots and matches replies;
//! [`Handshake`] introduces the client; [`BackChannel`] answers callbacks. Two drivers join it to
//! sockets: [`Client`] (tokio; any number of tasks, typed compounds, helpers for files) and
//! [`Pipeline`] (one thread, replies by callback, nothing allocated per call). What secures calls
//! stands behind [`Protection`].

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
mod xattrs;

pub use back_channel::{BackChannel, CallbackHandler, NoCallbacks};
pub use callback_listener::{serve_callbacks, universal_address};
pub use callback_security::CallbackSecurity;
pub use client::{Client, Config};
pub use compound::Compound;
pub use core::{CallBuilder, CallKind, Completion, Core};
pub use directories::Entry;
pub use error::Error;
pub use files::{FileInfo, OpenFile};
pub use gss::{GssError, GssProtection, Renewal, establish};
pub use handshake::{Handshake, Identity};
pub use locks::{Lock, LockConflict};
pub use pipeline::{Pipeline, Submitter};
pub use protection::{CallTag, IncomingReply, Opener, OutgoingCall, Plain, Protection, ProtectionError};
pub use record_buffer::RecordBuffer;
pub use reply::{Reply, ReplyBody};
pub use slots::SLOTS_MAX;
