//! NFSv4 on the wire: 4.0 (RFC 7530, 7531), 4.1 (RFC 8881, 5662), 4.2 (RFC 7862, 7863), extended
//! attributes (RFC 8276) and the umask (RFC 8275). Types and their codec, both directions of all:
//! arguments, results, callbacks. No behaviour, no state, no I/O, no clock.
//!
//! A server reads [`CompoundHead`], then one [`op::Args`] after the other, and executes each before
//! it looks at the next; it writes each [`op::Results`] as it arises, or the large ones in place
//! ([`op::ReadWriter`], [`op::ReaddirWriter`], [`op::GetattrOk::write`]). A client does the
//! reverse. Callbacks are the same under [`cb`].
//!
//! Decoding refuses what is not XDR of the protocol, and nothing else: whether a name, an attribute
//! or a combination is allowed is found by a second step that yields a [`Status`]
//! ([`Name::component`], [`Fattr::settings`]), because the order of such answers matters, and an
//! owner's sequence number moves on with them while it doesn't with BADXDR.

mod acl;
pub mod attr;
mod bitmap;
pub mod cb;
mod component;
mod compound;
mod filehandle;
mod id;
mod macros;
mod net;
pub mod op;
mod owner;
#[cfg(test)]
pub mod sample;
mod security;
mod stateid;
mod status;
#[cfg(test)]
mod tests;
mod time;
mod wire;

pub use acl::{ACES_MAX, ACL_WHO_LEN_MAX, Ace, AceFlags, AceMask, AceType, Acl, Acl41, AclFlags, AclSupport};
pub use attr::{Attr, Attributes, Fattr};
pub use bitmap::{BITMAP_WORDS_MAX, Bitmap};
pub use component::{Component, NAME_LEN_MAX, NAME_WIRE_LEN_MAX, Name, PATH_COMPONENTS_MAX, Pathname};
pub use compound::{CallbackHead, CompoundHead, ReplyHead, ReplyWriter, TAG_LEN_MAX};
pub use filehandle::{FILEHANDLE_LEN_MAX, Filehandle};
pub use id::{ChangeId, ChangeInfo, ClientId, Cookie, CreateSeq, DeviceId, Fsid, OwnerSeq, SessionId, SlotId, SlotSeq, StateSeq, Verifier};
pub use net::{NET_NAME_LEN_MAX, NetAddr, NetLoc};
pub use owner::{ClientOwner, OPAQUE_LIMIT, ServerOwner, StateOwner};
pub use security::{
    CallbackSec, GssCallbackHandles, GssInfo, GssService, SEC_PARMS_MAX, SecInfo, StateProtect, StateProtectOps, StateProtectReply, SysCred,
};
pub use stateid::Stateid;
pub use status::Status;
pub use time::{SetTime, Time};
pub use wire::{Bytes, List, Wire};

/// The RPC program of NFS (RFC 8881, section 4.2 of RFC 5662).
pub const PROGRAM: u32 = 100_003;
/// The RPC version of all minor versions of NFSv4.
pub const VERSION: u32 = 4;
/// The RPC version of the callback program.
pub const CALLBACK_VERSION: u32 = 1;
/// The procedure that does nothing.
pub const PROC_NULL: u32 = 0;
/// COMPOUND, and CB_COMPOUND of the callback program.
pub const PROC_COMPOUND: u32 = 1;
/// The newest minor version that this crate knows.
pub const MINOR_VERSION_MAX: u32 = 2;
