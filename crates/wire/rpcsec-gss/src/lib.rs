//! RPCSEC_GSS version 1 (RFC 2203): server and client. No I/O: the caller passes bytes, time and
//! randomness. Mechanisms implement [`Acceptor`] and [`Initiator`]; `vouch-krb5-seal` protects
//! messages.
//!
//! A server calls [`classify`] to classify a call, [`check_many`] to verify many calls at once,
//! [`Envelope::begin`] to reserve room in a reply, and [`wrap_many`] to protect many replies at
//! once. [`Contexts`] is the table of contexts, which [`InitCall`] creates. A client uses
//! [`Initiation`], then [`ClientContext`].
//!
//! # Example
//!
//! The first call of a context, as a server sees it. The program in `examples/echo.rs` shows a
//! whole exchange.
//!
//! ```
//! use vouch_oncrpc::Call;
//! use vouch_rpcsec_gss::{CallClass, ContextLimits, Contexts, InitStep, Initiation, Initiator, Service, classify};
//! use vouch_xdr::Writer;
//!
//! struct Mechanism; // a Kerberos library in real programs
//!
//! impl Initiator for Mechanism {
//!     type Error = std::io::Error;
//!
//!     fn step(&mut self, _token: Option<&[u8]>) -> Result<InitStep, std::io::Error> {
//!         Ok(InitStep::Continue { token: b"AP-REQ".to_vec() })
//!     }
//! }
//!
//! let creation = Initiation::begin(Mechanism, Service::Privacy)?;
//! let mut writer = Writer::new();
//! creation.call(1, 100_003, 4, &mut writer);
//! let record = writer.into_bytes();
//!
//! let mut contexts = Contexts::<()>::new(ContextLimits::default());
//! let call = Call::decode(&record)?;
//! let CallClass::Init(init) = classify(&record, &call, |handle| contexts.find(handle, 0)) else { panic!("no creation") };
//! assert_eq!(init.token, b"AP-REQ");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bodies;
mod check;
mod classify;
mod client;
mod context;
mod contexts;
mod envelope;
mod init;
mod window;
mod wire;

#[cfg(test)]
mod tests;

pub use check::{Check, Verdict, check_many};
pub use classify::{CallClass, GssCall, classify};
pub use client::{
    CallWrap, ClientContext, EstablishedClient, InitError, InitStep, Initiated, Initiation,
    Initiator, OpenError, ReplyOpen, ReplyOpener,
};
pub use context::{ContextHandle, EstablishedContext, HANDLE_LEN, ServerContext};
pub use contexts::{ContextLimits, Contexts, RemovedContext};
pub use envelope::{Envelope, Wrap, long_wraps, wrap_many};
pub use init::{Accept, Acceptor, InitCall, InitOutcome};
pub use window::Window;
pub use wire::{
    Credential, CredentialError, GssSeq, InitResult, Procedure, Service, decode_init_args,
};
