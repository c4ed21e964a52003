//! Synthetic trees without a publisher: revisions of frames that name each other like real ones.

#![allow(dead_code, reason = "each test uses its part")]

use std::path::{Path, PathBuf};

use vouch_tree::directory::DirectoryBuilder;
use vouch_tree::key::{SecretKey, SigningCert};
use vouch_tree::{
    Blob, BlobBody, BlockHandle, Content, Counts, FileName, FrameKind, Fsinfo, HostId, Inode, SignedFsinfo, Timestamp, frame,
};
use vouch_tree_store::conformance::{self, IV};
use vouch_tree_store::{Database, FrameSink, NewRevision, Result, WriteOptions, Writer};
use vouch_xdr::Xdr;

pub(crate) const HOSTID: HostId = HostId::from_bytes([1; 32]);

/// A new database in a temporary directory.
pub(crate) fn database() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    Database::create(&path, HOSTID, IV).unwrap();
    (dir, path)
}

/// A directory in memory if possible, for tests with thousands of files.
pub(crate) fn fast_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

pub(crate) fn writer(path: &Path) -> Writer {
    Database::open_write(path, WriteOptions::default()).unwrap()
}

pub(crate) fn leaf(seed: u64) -> (BlockHandle, Vec<u8>) {
    conformance::frame(FrameKind::Leaf, seed, 20 + (seed % 997) as usize * 3)
}

/// Stores all frames of a revision with one directory and a file for each leaf, to be committed.
pub(crate) fn revision(writer: &Writer, number: u64, leaves: impl IntoIterator<Item = u64>) -> NewRevision {
    try_revision(writer, number, leaves).unwrap()
}

/// [`revision`] on a disk that may fail.
pub(crate) fn try_revision(writer: &Writer, number: u64, leaves: impl IntoIterator<Item = u64>) -> Result<NewRevision> {
    let mut put = |kind, payload: &[u8]| {
        let bytes = frame::build(kind, payload, 0);
        let handle = IV.handle_of(&bytes);
        writer.put(&handle, &bytes).map(|_| handle)
    };
    let mut directory = DirectoryBuilder::new();
    let mut entries = 0;
    for seed in leaves {
        let (handle, bytes) = leaf(seed);
        writer.put(&handle, &bytes)?;
        // Not the leaf's real length, which stores ignore: a shorter blob would be inline.
        let blob = Blob { size: 5000, body: BlobBody::Leaf(handle) };
        let name = FileName::parse(format!("{seed:020}").as_bytes()).unwrap();
        directory.push(name, inode(Content::Regular { blob, space: 0 }), &mut put)?;
        entries += 1;
    }
    let top = directory.finish(&mut put)?;
    let root = inode(Content::Directory { entries, subdirs: 0, opaque: false, top });
    let signed = signed(writer, number, root).to_xdr();
    let fsinfo = put(FrameKind::Fsinfo, &signed)?;
    let companions = top.map(|page| page.handle).into_iter().collect();
    Ok(NewRevision { number, start: 1000 + number as i64, fsinfo, signed, tag: None, companions, keep: None, supersedes: false })
}

fn signed(writer: &Writer, revision: u64, root: Inode) -> SignedFsinfo {
    let (root_key, key) = (SecretKey::from_seed(&[3; 32]), SecretKey::from_seed(&[4; 32]));
    let previous = writer.revisions().last().map(|r| r.fsinfo).filter(|_| revision > 1);
    let previous = previous.or((revision > 1).then_some(BlockHandle::from_bytes([9; 32])));
    let fsinfo = Fsinfo {
        hostid: root_key.public().hostid(),
        revision,
        start: 1000 + revision,
        duration_s: 3600,
        iv: IV,
        root,
        previous,
        counts: Counts::default(),
        tag: String::new(),
    };
    SignedFsinfo::sign(&fsinfo, &key, SigningCert::issue(&root_key, key.public(), 1, 0, u64::MAX))
}

fn inode(content: Content) -> Inode {
    let mtime = Timestamp { s: 0, ns: 0 };
    Inode { mode: 0o755, uid: 0, gid: 0, mtime, nlink: 1, link_group: 0, xattrs: Blob::empty(), content }
}
