//! NFSv4 on the wire: 4.0 (RFC 7530, 7531), 4.1 (RFC 8881, 5662) and 4.2 (RFC 7862, 7863), with
//! extended attributes (RFC 8276), the umask attribute (RFC 8275) and flexible file layouts (RFC 8435). Types and their codec, for
//! arguments, results and callbacks in both directions, without state or I/O.
//!
//! A server decodes [`CompoundHead`], then decodes and executes one [`op::Args`] after another, and
//! writes each [`op::Results`] as it completes; large ones in place, with [`op::ReadWriter`],
//! [`op::ReaddirWriter`] and [`op::GetattrOk::write`]. A client does the reverse. [`cb`] has the
//! same types for callbacks.
//!
//! Decoding refuses only invalid XDR. A second step validates names and attributes and returns a
//! [`Status`]: see [`Name::component`] and [`Fattr::settings`]. Its errors advance an owner's
//! sequence number; BADXDR does not.

#![allow(missing_docs, reason = "names are those of RFC 7530, 8881, 7862 and 8276")]

mod acl;
pub mod attr;
mod bitmap;
pub mod cb;
mod component;
mod compound;
mod filehandle;
pub mod flex_files;
mod id;
mod macros;
mod net;
pub mod op;
mod owner;
#[cfg(test)]
mod sample;
mod security;
mod stateid;
mod status;
#[cfg(test)]
mod tests;
mod time;
mod wire;

pub use acl::{Ace, AceFlags, AceMask, AceType, Acl, Acl41, AclFlags, AclSupport};
pub use attr::{Attr, Attributes, Fattr};
pub use bitmap::Bitmap;
pub use component::{Component, NAME_LEN_MAX, Name, Pathname};
pub use compound::{CallbackHead, CompoundHead, ReplyHead, ReplyWriter};
pub use filehandle::{FILEHANDLE_LEN_MAX, Filehandle};
pub use id::{
    ChangeId, ChangeInfo, ClientId, Cookie, CreateSeq, DeviceId, Fsid, OwnerSeq, SessionId, SlotId,
    SlotSeq, StateSeq, Verifier,
};
pub use net::{NetAddr, NetLoc, universal_address};
pub use owner::{ClientOwner, OPAQUE_LIMIT, ServerOwner, StateOwner};
pub use security::{
    CallbackSec, GssCallbackHandles, GssInfo, GssService, SEC_PARMS_MAX, SecInfo, StateProtect,
    StateProtectOps, StateProtectReply, SysCred,
};
pub use stateid::Stateid;
pub use status::Status;
pub use time::{SetTime, Time};
pub use wire::{Bytes, List, Wire};

/// RFC 5662 §4.2.
pub const PROGRAM: u32 = 100_003;
pub const VERSION: u32 = 4;
pub const CALLBACK_VERSION: u32 = 1;
pub const PROC_NULL: u32 = 0;
/// Also CB_COMPOUND of the callback program.
pub const PROC_COMPOUND: u32 = 1;
