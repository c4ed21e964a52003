//! State: clients, sessions, stateids, opens, byte-range locks, delegations, copies, leases, grace.
//!
//! Pure machines: `now` (milliseconds of a monotonic clock) is a parameter, randomness is a seed,
//! an open file is an opaque `F` that is kept for the operations and handed back. Nothing here does
//! I/O, sleeps, encodes an XDR result or looks at a file system. All of it lives behind one lock,
//! which the operations hold for one call at a time and never across `vfs`. What must happen
//! outside (callbacks, records, files to close) is queued as [`StateEffect`]s, to be taken with
//! [`State::take_effects`] under the same lock and carried out after it is released.
//!
//! | operation | calls |
//! |---|---|
//! | EXCHANGE_ID | [`State::exchange_id`] |
//! | CREATE_SESSION, DESTROY_SESSION | [`State::create_session`], [`State::destroy_session`] |
//! | BIND_CONN_TO_SESSION, BACKCHANNEL_CTL | [`State::bind_connection`], [`State::backchannel_ctl`] |
//! | SEQUENCE, end of the compound | [`State::sequence`], [`State::finish`] |
//! | DESTROY_CLIENTID, RECLAIM_COMPLETE | [`State::destroy_client`], [`State::reclaim_complete`] |
//! | SETCLIENTID, SETCLIENTID_CONFIRM, RENEW | [`State::set_client_id`], [`State::confirm_client`], [`State::renew`] |
//! | any operation of 4.0 that names a client id | [`State::v40_client`] |
//! | any operation of 4.0 with an owner's seqid | [`State::owner_turn`] or [`State::owner_turn_by_state`] first, [`State::owner_done`] last |
//! | any operation of 4.0 with a stateid | [`State::authorize_v40_stateid`] before |
//! | OPEN | [`State::check_open`], then the file is opened or made, then [`State::open`] |
//! | OPEN_CONFIRM, OPEN_DOWNGRADE, CLOSE | [`State::confirm_open`], [`State::downgrade`], [`State::close`] |
//! | READ, WRITE, SETATTR of size, SEEK, COPY, … | [`State::io`] gives the open file for a stateid |
//! | LOCK, LOCKT, LOCKU, RELEASE_LOCKOWNER | [`State::lock`], [`State::test_lock`], [`State::unlock`], [`State::release_lock_owner`] |
//! | SETATTR, REMOVE, RENAME, LINK, WRITE without open | [`State::touch`]: recalls what conflicts |
//! | GETATTR of size, change or times | [`State::delegated_attributes`] |
//! | DELEGRETURN, DELEGPURGE | [`State::return_delegation`], [`State::purge_delegations`] |
//! | TEST_STATEID, FREE_STATEID | [`State::test_stateid`], [`State::free_stateid`] |
//! | COPY, OFFLOAD_STATUS, OFFLOAD_CANCEL | [`State::copy_begin`] …, [`State::copy_status`], [`State::copy_cancel`] |
//! | any operation under SP4_MACH_CRED | [`State::enforce`], [`State::machine_operations`] |

mod callback;
mod client;
mod copy;
mod delegation;
mod effect;
mod export_end;
mod file;
mod hash;
mod id;
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
pub(crate) use delegation::record::{AccessWithoutOpen, Granted, Holder, Want};
pub use effect::Loss;
pub(crate) use effect::{CallbackAnswer, CallbackCredential, CallbackOp, HolderAttributes, OutgoingCallback, StateEffect};
pub(crate) use export_end::{HOLDINGS_AT_ONCE, Holding};
pub(crate) use id::{ClientKey, FileKey, OwnerKey, StateKey};
pub(crate) use lock::range::{Mode, Range};
pub(crate) use lock::request::{Denied, LockBy, LockCall, LockError};
pub(crate) use open::request::{Claim, Extra, OpenCall, Opened};
pub(crate) use open::share::Share;
pub(crate) use owner::sequence::{OwnerToken, OwnerTurn};
pub use recovery::record::RecoveryRecord;
pub(crate) use report::{StateStatus, Totals};
pub(crate) use session::record::{SequenceCall, Sequenced, Turn};
pub(crate) use stateid::entry::{OwnerKind, OwnerReply, Terms};
pub(crate) use stateid::lookup::{Io, IoGrant};
pub(crate) use tables::{DelegationPolicy, State, StateConfig};
