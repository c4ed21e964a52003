//! RPCSEC_GSS version 1 (RFC 2203): server and client. No I/O: the caller passes bytes, time and
//! randomness. Mechanisms implement [`Acceptor`] and [`Initiator`]; `vouch-krb5-seal` protects
//! messages.
//!
//! A server calls [`arrive`] to classify a call, [`check_many`] to verify many calls at once,
//! [`Envelope::begin`] to reserve room in a reply, and [`wrap_many`] to protect many replies at
//! once. [`Contexts`] is the table of contexts, which [`InitCall`] creates. A client uses
//! [`Initiation`], then [`ClientContext`].

mod arrival;
mod bodies;
mod check;
mod client;
mod context;
mod contexts;
mod envelope;
mod init;
mod window;
mod wire;

#[cfg(test)]
mod tests;

pub use arrival::{Arrival, GssCall, arrive};
pub use check::{Check, Verdict, check_many};
pub use client::{
    CallWrap, ClientContext, EstablishedClient, InitError, InitStep, Initiated, Initiation, Initiator, OpenError, ReplyOpen, ReplyOpener,
};
pub use context::{ContextHandle, EstablishedContext, HANDLE_LEN, ServerContext};
pub use contexts::{ContextLimits, Contexts, Gone};
pub use envelope::{Envelope, Wrap, long_wraps, wrap_many};
pub use init::{Accept, Acceptor, InitCall, Kept};
pub use window::{WINDOW_LEN, Window};
pub use wire::{Credential, CredentialError, GssSeq, InitResult, Procedure, Service, TOKEN_LEN_MAX, decode_init_args};
