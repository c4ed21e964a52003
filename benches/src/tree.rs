//! Trees to serve: published by the real publisher, under made keys.

use std::fs;
use std::path::{Path, PathBuf};

use vouch_tree::key::{SecretKey, SigningCert};
use vouch_tree::{BlockHandle, FrameKind, HostId, Iv, SignedFsinfo, TreeName, frame, references};
use vouch_tree_publish::{Options, Progress, Signer, publish};
use vouch_tree_store::{Database, FrameSource as _, Snapshot, WriteOptions};
use vouch_xdr::Xdr as _;

use crate::OrStop as _;

/// A database with one revision.
#[derive(Debug)]
pub struct Published {
    dir: tempfile::TempDir,
    /// The tree's HOSTID.
    pub hostid: HostId,
    /// The key of its handles.
    pub iv: Iv,
    /// The signed fsinfo; its signatures have been checked.
    pub signed: Vec<u8>,
}

impl Published {
    /// Publishes `source` at zstd's `level` (0: as it is).
    pub fn new(source: &Path, level: i32) -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).or_stop("a directory for the database");
        let (root, key) = (SecretKey::from_seed(&[1; 32]), SecretKey::from_seed(&[2; 32]));
        let (hostid, iv, path) = (root.public().hostid(), Iv::from_bytes([7; 32]), dir.path().join("db"));
        Database::create(&path, hostid, iv).or_stop("database");
        let writer = Database::open_write(&path, WriteOptions::default()).or_stop("database");
        let signer = Signer { key: &key, cert: SigningCert::issue(&root, key.public(), 1, 0, u64::MAX) };
        let name = TreeName::new("localhost", hostid).or_stop("name");
        let options = Options { level, ..Options::new(source.to_owned(), name, START, 86_400) };
        publish(&writer, &signer, &options, &Progress::default()).or_stop("publish");
        let signed = writer.head().map(|head| head.to_vec()).unwrap_or_default();
        SignedFsinfo::from_xdr(&signed).or_stop("fsinfo").open(&hostid).or_stop("fsinfo");
        Self { dir, hostid, iv, signed }
    }

    /// The database's directory.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("db")
    }

    /// The frames that go along with the fsinfo.
    pub fn companions(&self) -> Vec<BlockHandle> {
        Database::open_read(&self.path()).or_stop("database").companions()
    }

    /// The frame and what it names, depth first, each handle once, in the order of its first use.
    pub fn walk(&self) -> Vec<(FrameKind, BlockHandle)> {
        let snapshot = Database::open_read(&self.path()).or_stop("database");
        let mut seen = std::collections::HashSet::new();
        let mut found = Vec::new();
        let mut todo = children_of(FrameKind::Fsinfo, &self.signed);
        todo.reverse();
        while let Some((kind, handle)) = todo.pop() {
            if seen.insert(handle) {
                found.push((kind, handle));
                if kind != FrameKind::Leaf {
                    let payload = self.payload(&snapshot, kind, &handle);
                    todo.extend(children_of(kind, &payload).into_iter().rev());
                }
            }
        }
        found
    }

    fn payload(&self, snapshot: &Snapshot, kind: FrameKind, handle: &BlockHandle) -> Vec<u8> {
        let stored = snapshot.get(handle).or_stop("frame").ok_or("is missing").or_stop(handle);
        frame::open(&self.iv, handle, kind, &stored).or_stop("frame").into_owned()
    }
}

fn children_of(kind: FrameKind, payload: &[u8]) -> Vec<(FrameKind, BlockHandle)> {
    references::of_payload(kind, payload).or_stop("frame")
}

/// Bytes that don't compress, the same for the same seed.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let words = std::iter::repeat_with(move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)).to_le_bytes()
    });
    words.flatten().take(len).collect()
}

/// A directory whose small files are 0 and 3 directories deep and one frame long, and one that lies
/// in its entry.
pub fn small_files(content: &[u8]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().or_stop("source");
    let write = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).or_stop(name);
    fs::create_dir_all(dir.path().join("a/b/c")).or_stop("source");
    write("small", content);
    write("a/b/c/leaf", &noise(LEAF_FILE_LEN, 3));
    (0..8).for_each(|i| write(&format!("other-{i}"), &noise(100, 100 + i)));
    dir
}

/// Length of the file that is one frame: too long to lie in its entry.
pub const LEAF_FILE_LEN: usize = 2000;

/// When the made trees are signed: 2026-11-21.
const START: u64 = 1_795_219_200;
