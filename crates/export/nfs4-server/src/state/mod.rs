//! Pure state machines: `now` (monotonic milliseconds) and seeds are parameters, an open file is an
//! opaque `F`. One lock covers all state; no call holds it across `vfs`. Take the queued
//! [`StateEffect`]s by [`State::take_effects`] under the same lock, and carry them out after its
//! release.

mod callback;
mod client;
mod copy;
mod delegation;
pub(crate) mod effect;
mod export_end;
mod file;
mod hash;
mod id;
mod layout;
mod lease;
mod limits;
mod lock;
mod open;
mod owner;
mod queries;
mod quota;
mod recovery;
mod report;
mod session;
mod slab;
mod stateid;
mod tables;
#[cfg(test)]
mod tests;

pub use crate::access::network::Network;
pub(crate) use client::credential::Credential;
pub use client::credential::Family;
pub use client::principal::ClientPrincipal;
pub(crate) use client::record::Callback40;
pub(crate) use client::setclientid::SetClientError;
pub(crate) use client::v40_principals::internal_owner_name;
pub(crate) use delegation::directory::DirectoryCall;
pub(crate) use delegation::record::{AccessWithoutOpen, Granted, Holder, Want};
pub(crate) use effect::{
    CallbackAnswer, CallbackCredential, CallbackOp, HolderAttributes, OutgoingCallback, StateEffect,
};
pub use effect::{ClientEnd, Loss};
pub(crate) use export_end::{HOLDINGS_AT_ONCE, Holding};
pub(crate) use id::{ClientKey, FileKey, OwnerKey, StateKey};
pub(crate) use lock::range::{Mode, Range};
pub(crate) use lock::request::{Denied, LockBy, LockCall, LockError};
pub(crate) use open::request::{Claim, DelegationExtensions, OpenCall, Opened};
pub(crate) use open::share::Share;
pub(crate) use owner::sequence::{OwnerToken, OwnerTurn};
pub use recovery::record::RecoveryRecord;
pub(crate) use report::StateRow;
pub use report::{HeldKind, LockedRange, Totals};
pub(crate) use session::record::{SequenceCall, Sequenced, Turn};
pub(crate) use stateid::entry::{OwnerKind, OwnerReply, Terms};
pub(crate) use stateid::lookup::{Io, IoGrant};
pub(crate) use tables::{DelegationPolicy, State, StateConfig};
