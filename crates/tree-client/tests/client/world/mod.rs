//! Published trees made in memory, with all that a test knows about them, and replicas that serve
//! them, or lie.

pub mod network;
pub mod replica;

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::Arc;

use vouch_tree::blob::{BlobBuilder, INLINE_LEN_MAX};
use vouch_tree::directory::DirectoryBuilder;
use vouch_tree::fsinfo::Counts;
use vouch_tree::key::{SecretKey, SigningCert};
use vouch_tree::xattr::Xattrs;
use vouch_tree::{
    Blob, BlobBody, BlockHandle, Content, FileName, FrameKind, Fsinfo, HostId, Inode, Iv, LEAF_LEN_MAX, SignedFsinfo, Timestamp, TreeName,
    frame,
};
use vouch_xdr::Xdr;

/// When the tests play, in seconds since 1970.
pub const NOW: u64 = 1_800_000_000;

/// How long a revision is valid, in seconds.
pub const DURATION_S: u32 = 86_400;

/// What a test says that a tree holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    File(Vec<u8>),
    /// Length, and where the only byte that isn't 0 is.
    Sparse(u64, u64),
    Link(Vec<u8>),
    Dir(BTreeMap<Vec<u8>, Node>),
}

pub fn dir<const N: usize>(entries: [(&str, Node); N]) -> Node {
    Node::Dir(entries.into_iter().map(|(name, node)| (name.as_bytes().to_vec(), node)).collect())
}

/// Bytes that no other seed gives.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// A publisher: keys, and the frames of all revisions so far.
pub struct Publisher {
    pub root: SecretKey,
    pub signing: SecretKey,
    pub cert: SigningCert,
    pub iv: Iv,
    pub frames: HashMap<BlockHandle, Arc<[u8]>>,
    pub revision: u64,
    pub previous: Option<BlockHandle>,
    pub location: String,
    counts: Counts,
    level: i32,
}

/// One signed revision and the frames that a replica has.
#[derive(Clone)]
pub struct Published {
    pub signed: Vec<u8>,
    pub fsinfo: Fsinfo,
    pub frames: Arc<HashMap<BlockHandle, Arc<[u8]>>>,
}

impl Publisher {
    pub fn new(seed: u8) -> Self {
        let (root, signing) = (SecretKey::from_seed(&[seed; 32]), SecretKey::from_seed(&[seed ^ 0x80; 32]));
        let cert = SigningCert::issue(&root, signing.public(), 1, NOW - 1_000_000, NOW + 100_000_000);
        Self {
            root,
            signing,
            cert,
            iv: Iv::from_bytes([seed ^ 0x55; 32]),
            frames: HashMap::new(),
            revision: 0,
            previous: None,
            location: "replicas.test".into(),
            counts: Counts::default(),
            level: i32::from(seed % 2),
        }
    }

    pub fn hostid(&self) -> HostId {
        self.root.public().hostid()
    }

    pub fn name(&self) -> TreeName {
        TreeName::new(&self.location, self.hostid()).unwrap()
    }

    /// Publishes `tree` as the next revision, signed at `start`.
    pub fn publish(&mut self, tree: &Node, start: u64) -> Published {
        self.publish_for(tree, start, DURATION_S)
    }

    pub fn publish_for(&mut self, tree: &Node, start: u64, duration_s: u32) -> Published {
        self.counts = Counts::default();
        let root = self.node(tree);
        self.sign(root, start, duration_s)
    }

    pub fn sign(&mut self, root: Inode, start: u64, duration_s: u32) -> Published {
        self.revision += 1;
        let fsinfo = Fsinfo {
            hostid: self.hostid(),
            revision: self.revision,
            start,
            duration_s,
            iv: self.iv,
            root,
            previous: self.previous,
            counts: self.counts,
            tag: String::new(),
        };
        let signed = SignedFsinfo::sign(&fsinfo, &self.signing, self.cert).to_xdr();
        let stored = frame::build(FrameKind::Fsinfo, &signed, 0);
        self.previous = Some(self.put(stored));
        Published { signed, fsinfo, frames: Arc::new(self.frames.clone()) }
    }

    fn put(&mut self, stored: Vec<u8>) -> BlockHandle {
        let handle = self.iv.handle_of(&stored);
        self.frames.insert(handle, stored.into());
        handle
    }

    fn put_payload(&mut self, kind: FrameKind, payload: &[u8]) -> Result<BlockHandle, Infallible> {
        Ok(self.put(frame::build(kind, payload, self.level)))
    }

    fn node(&mut self, node: &Node) -> Inode {
        let content = match node {
            Node::File(bytes) => {
                self.counts.files += 1;
                self.counts.bytes += bytes.len() as u64;
                Content::Regular { blob: self.blob(bytes), space: bytes.len() as u64 }
            }
            Node::Sparse(len, at) => {
                self.counts.files += 1;
                Content::Regular { blob: self.sparse(*len, *at), space: LEAF_LEN_MAX as u64 }
            }
            Node::Link(target) => {
                self.counts.symlinks += 1;
                Content::Symlink(target.clone())
            }
            Node::Dir(entries) => {
                self.counts.directories += 1;
                let mut builder = DirectoryBuilder::new();
                let mut subdirs = 0;
                let inodes: Vec<_> = entries.iter().map(|(name, node)| (FileName::parse(name).unwrap(), self.node(node))).collect();
                for (name, inode) in inodes {
                    subdirs += u32::from(inode.is_directory());
                    let Ok(()) = builder.push(name, inode, &mut |kind, payload: &[u8]| self.put_payload(kind, payload));
                }
                let Ok(top) = builder.finish(&mut |kind, payload: &[u8]| self.put_payload(kind, payload));
                Content::Directory { entries: entries.len() as u64, subdirs, opaque: false, top }
            }
        };
        let xattrs = match node {
            Node::File(bytes) if bytes.len() % 7 == 3 => {
                self.counts.with_xattrs += 1;
                self.blob(&Xattrs::new(vec![(b"user.len".to_vec(), noise(bytes.len() as u64, bytes.len() % 3000))]).to_xdr())
            }
            _ => Blob::empty(),
        };
        Inode { mode: 0o644, uid: 1, gid: 2, mtime: Timestamp { s: 3, ns: 4 }, nlink: 1, link_group: 0, xattrs, content }
    }

    fn blob(&mut self, bytes: &[u8]) -> Blob {
        let size = bytes.len() as u64;
        if bytes.len() <= INLINE_LEN_MAX {
            return Blob { size, body: BlobBody::Inline(bytes.to_vec()) };
        }
        let mut builder = BlobBuilder::new();
        for leaf in bytes.chunks(LEAF_LEN_MAX) {
            let mut put = |kind, payload: &[u8]| self.put_payload(kind, payload);
            if leaf.iter().all(|&b| b == 0) {
                let Ok(()) = builder.holes(1, &mut put);
            } else {
                let Ok(handle) = put(FrameKind::Leaf, leaf);
                let Ok(()) = builder.leaf(handle, &mut put);
            }
        }
        let Ok(blob) = builder.finish(size, &mut |kind, payload: &[u8]| self.put_payload(kind, payload));
        blob
    }

    fn sparse(&mut self, size: u64, at: u64) -> Blob {
        let (leaves, leaf) = (size.div_ceil(LEAF_LEN_MAX as u64), at / LEAF_LEN_MAX as u64);
        let mut bytes = vec![0; (size - leaf * LEAF_LEN_MAX as u64).min(LEAF_LEN_MAX as u64) as usize];
        bytes[(at % LEAF_LEN_MAX as u64) as usize] = 1;
        let mut builder = BlobBuilder::new();
        let mut put = |kind, payload: &[u8]| self.put_payload(kind, payload);
        let Ok(()) = builder.holes(leaf, &mut put);
        let Ok(handle) = put(FrameKind::Leaf, &bytes);
        let Ok(()) = builder.leaf(handle, &mut put);
        let Ok(()) = builder.holes(leaves - leaf - 1, &mut put);
        let Ok(blob) = builder.finish(size, &mut put);
        blob
    }
}

/// A clock that a test sets.
#[derive(Default)]
pub struct TestClock(std::sync::atomic::AtomicI64);

impl TestClock {
    pub fn at(now: u64) -> Arc<Self> {
        let clock = Arc::new(Self::default());
        clock.set(now);
        clock
    }

    pub fn set(&self, now: u64) {
        self.0.store(now as i64, std::sync::atomic::Ordering::SeqCst);
    }
}

impl vouch_tree_client::Clock for TestClock {
    fn now(&self) -> i64 {
        self.0.load(std::sync::atomic::Ordering::SeqCst)
    }
}
