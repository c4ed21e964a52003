//! The format of published trees, version 1: what a publisher writes and a client believes.
//!
//! Owns handles, frames, inodes, directory pages, file blobs, the signed fsinfo, keys, names, key
//! statements, the messages of the replica protocol, and the decision whether a signed fsinfo is to
//! be believed. Does no I/O, reads no clock and draws no randomness: bytes, `now` and seeds come in
//! as parameters.
//!
//! The format descends from the self-certifying read-only file system (Fu, Kaashoek, Mazières, OSDI
//! 2000), and is drawn byte by byte in `docs/formats/tree.md`.

pub mod blob;
pub mod directory;
pub mod frame;
pub mod fsinfo;
pub mod handle;
pub mod inode;
pub mod inode_number;
pub mod key;
pub mod keyfile;
pub mod name;
pub mod protocol;
pub mod references;
pub mod statement;
pub mod time_text;
pub mod verify;
pub mod xattr;

pub use blob::{Blob, BlobBody};
pub use directory::{DirEntry, PageRef};
pub use frame::{FRAME_LEN_MAX, FrameKind, LEAF_LEN_MAX};
pub use fsinfo::{Counts, Fsinfo, SignedFsinfo};
pub use handle::{BlockHandle, Iv};
pub use inode::{Content, FileType, Inode, Timestamp};
pub use name::{FileName, HostId, PORT_DEFAULT, TreeName};
