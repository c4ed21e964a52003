//! The kernel's FUSE protocol: requests, replies, the device, mounting.
//!
//! The library that tree mounts use answers INTERRUPT with ENOSYS, after which a process that waits
//! for a lock or for a server cannot be killed.

mod abi;
mod attach;
mod device;
mod init;
mod reply;
mod request;

pub(crate) use abi::{
    AttrFlags, FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FOPEN_CACHE_DIR, FOPEN_KEEP_CACHE, Opcode,
    RELEASE_FLOCK_UNLOCK, WRITE_HEAD_LEN,
};
pub(crate) use attach::{Attachment, attach};
pub(crate) use device::Device;
pub(crate) use init::{Wishes, negotiate};
pub(crate) use reply::{Attr, Entry, Listing, Record};
pub(crate) use request::{Fields, Header, Request};
