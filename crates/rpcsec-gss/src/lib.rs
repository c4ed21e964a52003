//! RPCSEC_GSS, version 1 (RFC 2203): server and client.
//!
//! Owns contexts, the window of numbers, and the protection of calls and replies around
//! `vouch-krb5-seal`. Sans-IO: bytes, `now` and randomness in, values out. Knows no program, no
//! socket and no Kerberos library: mechanisms are behind [`Acceptor`] and [`Initiator`].
//!
//! A server's way: [`arrive`] says what a call is; [`check_many`] says of many calls at once
//! whether they are genuine, and where their arguments lie; [`Envelope::begin`] leaves room in a
//! reply for what will be around its results; [`wrap_many`] fills it in, for many at once. Contexts
//! are in [`Contexts`], and come to be by [`InitCall`]. A client's way: [`Initiation`], then
//! [`ClientContext`].

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
