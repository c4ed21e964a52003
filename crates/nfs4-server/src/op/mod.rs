//! The operations, one file for each. An operation depends on the context, on state and on files,
//! never on another operation.

pub(crate) mod access;
pub(crate) mod allocate;
pub(crate) mod clone;
pub(crate) mod close;
pub(crate) mod commit;
pub(crate) mod copy;
pub(crate) mod create;
pub(crate) mod delegreturn;
pub(crate) mod exchange_id;
pub(crate) mod filehandles;
pub(crate) mod getattr;
pub(crate) mod io_advise;
pub(crate) mod link;
pub(crate) mod lock;
pub(crate) mod lookup;
pub(crate) mod offload;
pub(crate) mod open;
pub(crate) mod open_change;
pub(crate) mod read;
pub(crate) mod read_plus;
pub(crate) mod readdir;
pub(crate) mod readlink;
pub(crate) mod remove;
pub(crate) mod rename;
pub(crate) mod secinfo;
pub(crate) mod seek;
pub(crate) mod sessions;
pub(crate) mod setattr;
pub(crate) mod setclientid;
pub(crate) mod stateids;
pub(crate) mod verify;
pub(crate) mod write;
pub(crate) mod xattr;
