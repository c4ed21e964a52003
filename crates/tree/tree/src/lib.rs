//! The format of published trees, version 1: frames, names, keys, signatures and messages.
//!
//! A publisher turns a directory into content-addressed frames and signs their root, the fsinfo. A
//! client that knows the tree's name verifies every byte it reads, wherever the frames come from.
//!
//! - A [`TreeName`] is `@HOST[:PORT],HOSTID`; the [`HostId`] is the hash of the tree's root key.
//! - A [`frame`] is a compressed payload named by its [`BlockHandle`], a keyed BLAKE3 hash.
//! - [`Blob`]s hold file content, [`directory`] pages hold names and [`Inode`]s.
//! - The [`Fsinfo`] is the signed root of one revision. [`verify::verify_fsinfo`] decides whether
//!   a client may use it: signatures, revocation, rollback and expiry.
//! - A [`proof`] shows offline what a signed revision holds at one path.
//! - [`protocol`] has the messages between client and replica.
//!
//! This crate does no I/O, reads no clock and draws no randomness: bytes, the time and key seeds
//! are parameters. The format follows SFSRO (Fu, Kaashoek, Mazières: "Fast and secure distributed
//! read-only file system", OSDI 2000). `docs/formats/tree.md` and `docs/formats/keys.md`
//! describe it byte by byte.
//!
//! # Example
//!
//! Sign the root of an empty tree, then verify it as a client does:
//!
//! ```
//! use vouch_tree::key::{SecretKey, SigningCert};
//! use vouch_tree::verify::{NewestSeen, verify_fsinfo};
//! use vouch_tree::{Blob, Content, Counts, Fsinfo, Inode, Iv, SignedFsinfo, Timestamp};
//! use vouch_xdr::Xdr;
//!
//! // Real seeds come from a secure random source.
//! let (root_key, signing_key) = (SecretKey::from_seed(&[1; 32]), SecretKey::from_seed(&[2; 32]));
//! let hostid = root_key.public().hostid();
//! let now = 1_800_000_000;
//! let cert = SigningCert::issue(&root_key, signing_key.public(), 1, now, now + 86_400);
//!
//! let content = Content::Directory { entries: 0, subdirs: 0, opaque: false, top: None };
//! let mtime = Timestamp { s: now as i64, ns: 0 };
//! let root =
//!     Inode { mode: 0o755, uid: 0, gid: 0, mtime, nlink: 2, link_group: 0, xattrs: Blob::empty(), content };
//! let fsinfo = Fsinfo {
//!     hostid,
//!     revision: 1,
//!     start: now,
//!     duration_s: 3600,
//!     iv: Iv::from_bytes([3; 32]),
//!     root,
//!     previous: None,
//!     counts: Counts { directories: 1, ..Counts::default() },
//!     tag: String::new(),
//! };
//! let mut signed = SignedFsinfo::sign(&fsinfo, &signing_key, cert).to_xdr();
//!
//! let verified = verify_fsinfo(&hostid, &signed, now + 60, &NewestSeen::default(), [])?;
//! assert_eq!(verified.fsinfo, fsinfo);
//! // After the validity, or with any bit changed, the same bytes are refused.
//! assert!(verify_fsinfo(&hostid, &signed, now + 3600, &NewestSeen::default(), []).is_err());
//! signed[40] ^= 1;
//! assert!(verify_fsinfo(&hostid, &signed, now + 60, &NewestSeen::default(), []).is_err());
//! # Ok::<(), vouch_tree::verify::Refusal>(())
//! ```

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
pub mod proof;
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
