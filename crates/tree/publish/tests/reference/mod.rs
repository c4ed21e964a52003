//! Compares a published tree, frame by frame, with its source. Shares only the format's decoders
//! with publisher and client.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vouch_log::revision::{LogCert, LogSigners};
use vouch_tree::blob::{Blob, BlobBody, Indirect};
use vouch_tree::directory::{InteriorPage, LeafPage};
use vouch_tree::key::{SecretKey, SigningCert};
use vouch_tree::xattr::Xattrs;
use vouch_tree::{
    BlockHandle, Content, DirEntry, FrameKind, Fsinfo, Inode, Iv, LEAF_LEN_MAX, PageRef,
    SignedFsinfo, TreeName, frame,
};
use vouch_tree_publish::{Error, LogPublisher, Options, Progress, Signer, Summary, publish};
use vouch_tree_store::{Database, FrameSource as _, Snapshot, WriteOptions};
use vouch_xdr::Xdr as _;

pub(crate) struct Publisher {
    pub(crate) dir: tempfile::TempDir,
    root: SecretKey,
    signing: SecretKey,
    pub(crate) start: u64,
}

impl Publisher {
    pub(crate) fn new() -> Self {
        let publisher = Self::empty();
        Database::create(
            &publisher.db(),
            publisher.root.public().hostid(),
            Iv::from_bytes([9; 32]),
        )
        .unwrap();
        publisher
    }

    fn empty() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self {
            dir,
            root: SecretKey::from_seed(&[1; 32]),
            signing: SecretKey::from_seed(&[2; 32]),
            start: 1_000_000,
        }
    }

    pub(crate) fn db(&self) -> PathBuf {
        self.dir.path().join("db")
    }

    pub(crate) fn source(&self) -> PathBuf {
        let source = self.dir.path().join("source");
        fs::create_dir_all(&source).unwrap();
        source
    }

    pub(crate) fn options(&self) -> Options {
        let name = TreeName::new("localhost:4340", self.root.public().hostid()).unwrap();
        Options::new(self.source(), name, self.start, 86_400)
    }

    pub(crate) fn cert(&self) -> SigningCert {
        SigningCert::issue(&self.root, self.signing.public(), 1, 0, u64::MAX)
    }

    pub(crate) fn publish(&self, options: &Options) -> Result<Summary, Error> {
        self.publish_watched(options, &Progress::default())
    }

    pub(crate) fn publish_watched(
        &self,
        options: &Options,
        progress: &Progress,
    ) -> Result<Summary, Error> {
        publish_into(&self.db(), options, progress)
    }

    pub(crate) fn tree(&self) -> Tree {
        Tree::open(&self.db())
    }

    pub(crate) fn publish_and_compare(&self) -> Summary {
        let summary = self.publish(&self.options()).unwrap();
        self.tree().compare(&self.source());
        summary
    }
}

pub(crate) fn log_keys(serial: u64, seed: u8) -> Arc<LogPublisher> {
    let root = SecretKey::from_seed(&[1; 32]);
    let hostid = root.public().hostid();
    let signers = LogSigners::from_seeds(&hostid, &[seed; 32], Some(&[seed + 1; 32])).unwrap();
    let signing = SecretKey::from_seed(&[2; 32]).public();
    let signing = SigningCert::issue(&root, signing, serial, 0, u64::MAX);
    let (cert, _) = LogCert::issue(&root, signing, hostid, signers.keys(), None);
    Arc::new(LogPublisher { cert, signers, cosign: None })
}

pub(crate) fn publish_into(
    db: &Path,
    options: &Options,
    progress: &Progress,
) -> Result<Summary, Error> {
    let (root, signing) = (SecretKey::from_seed(&[1; 32]), SecretKey::from_seed(&[2; 32]));
    let of_log = options.log.as_ref().and_then(|log| log.cert.signing_cert().cloned());
    let cert =
        of_log.unwrap_or_else(|| SigningCert::issue(&root, signing.public(), 1, 0, u64::MAX));
    let writer = Database::open_write(db, WriteOptions::default()).unwrap();
    publish(&writer, &Signer { key: &signing, cert }, options, progress)
}

pub(crate) struct Tree {
    snapshot: Snapshot,
    pub(crate) fsinfo: Fsinfo,
}

impl Tree {
    pub(crate) fn open(db: &Path) -> Self {
        let snapshot = Database::open_read(db).unwrap();
        let head = snapshot.head().expect("a revision");
        let fsinfo = SignedFsinfo::from_xdr(&head).unwrap().open(&snapshot.hostid()).unwrap();
        Self { snapshot, fsinfo }
    }

    fn payload(&self, kind: FrameKind, handle: &BlockHandle) -> Vec<u8> {
        let stored =
            self.snapshot.get(handle).unwrap().expect("every frame that is named is there");
        frame::open(&self.snapshot.iv(), handle, kind, &stored).unwrap().into_owned()
    }

    pub(crate) fn pages(
        &self,
        top: PageRef,
        handles: &mut Vec<BlockHandle>,
        entries: &mut Vec<DirEntry>,
    ) {
        handles.push(top.handle);
        let payload = self.payload(top.kind(), &top.handle);
        if top.height == 0 {
            entries.extend_from_slice(LeafPage::from_xdr(&payload).unwrap().entries());
            return;
        }
        let page = InteriorPage::from_xdr(&payload).unwrap();
        (0..page.children().len())
            .for_each(|i| self.pages(page.page(i).unwrap(), handles, entries));
    }

    pub(crate) fn entries(&self, inode: &Inode) -> Vec<DirEntry> {
        let Content::Directory { entries: count, subdirs, top, .. } = &inode.content else {
            panic!("a directory")
        };
        let (mut handles, mut entries) = (Vec::new(), Vec::new());
        if let Some(top) = top {
            self.pages(*top, &mut handles, &mut entries);
        }
        assert_eq!(entries.len() as u64, *count);
        assert_eq!(
            entries.iter().filter(|e| e.inode.is_directory()).count() as u64,
            u64::from(*subdirs)
        );
        entries
    }

    pub(crate) fn find(&self, path: &str) -> Option<Inode> {
        path.split('/').filter(|c| !c.is_empty()).try_fold(self.fsinfo.root.clone(), |dir, name| {
            self.entries(&dir)
                .into_iter()
                .find(|e| e.name.as_bytes() == name.as_bytes())
                .map(|e| e.inode)
        })
    }

    pub(crate) fn leaves(&self, blob: &Blob) -> Vec<(u64, BlockHandle)> {
        let mut leaves = Vec::new();
        match &blob.body {
            BlobBody::Inline(_) | BlobBody::Hole => {}
            BlobBody::Leaf(handle) => leaves.push((0, *handle)),
            BlobBody::Tree { depth, top } => self.below(*depth, top, 0, &mut leaves),
        }
        leaves
    }

    fn below(
        &self,
        depth: u8,
        handle: &BlockHandle,
        first: u64,
        leaves: &mut Vec<(u64, BlockHandle)>,
    ) {
        let page = Indirect::from_xdr(&self.payload(FrameKind::Indirect, handle)).unwrap();
        assert_eq!(page.depth, depth);
        for (i, child) in page.children.iter().enumerate() {
            let first = first + i as u64 * 1024u64.pow(u32::from(depth) - 1);
            match child {
                Some(handle) if depth == 1 => leaves.push((first, *handle)),
                Some(handle) => self.below(depth - 1, handle, first, leaves),
                None => {}
            }
        }
    }

    pub(crate) fn read(&self, blob: &Blob) -> Vec<u8> {
        let mut bytes = vec![0; blob.size as usize];
        if let BlobBody::Inline(inline) = &blob.body {
            bytes.copy_from_slice(inline);
        }
        for (leaf, handle) in self.leaves(blob) {
            let at = leaf as usize * LEAF_LEN_MAX;
            let payload = self.payload(FrameKind::Leaf, &handle);
            bytes[at..at + payload.len()].copy_from_slice(&payload);
        }
        bytes
    }

    pub(crate) fn compare(&self, source: &Path) {
        let mut links = HashMap::new();
        let mut seen = vouch_tree::Counts { directories: 1, ..Default::default() };
        self.compare_inode(&self.fsinfo.root, source, &mut links);
        seen.with_xattrs += u64::from(self.fsinfo.root.xattrs.size > 0);
        self.compare_directory(&self.fsinfo.root, source, &mut links, &mut seen);
        assert_eq!(seen, self.fsinfo.counts);
    }

    fn compare_directory(
        &self,
        inode: &Inode,
        path: &Path,
        links: &mut HashMap<(u64, u64), Inode>,
        seen: &mut vouch_tree::Counts,
    ) {
        let entries = self.entries(inode);
        let mut names: Vec<_> =
            fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
        let published: Vec<_> =
            entries.iter().map(|e| OsStr::from_bytes(e.name.as_bytes()).to_owned()).collect();
        assert_eq!(published, names, "{}", path.display());
        let dir = File::open(path).unwrap();
        let here =
            PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&dir)));
        for entry in &entries {
            let path = here.join(OsStr::from_bytes(entry.name.as_bytes()));
            self.compare_inode(&entry.inode, &path, links);
            match &entry.inode.content {
                Content::Directory { .. } => {
                    seen.directories += 1;
                    self.compare_directory(&entry.inode, &path, links, seen);
                }
                Content::Regular { blob, .. } => {
                    seen.files += 1;
                    seen.bytes += blob.size;
                }
                Content::Symlink(_) => seen.symlinks += 1,
                _ => seen.others += 1,
            }
            seen.with_xattrs += u64::from(entry.inode.xattrs.size > 0);
        }
    }

    fn compare_inode(&self, inode: &Inode, path: &Path, links: &mut HashMap<(u64, u64), Inode>) {
        let meta = fs::symlink_metadata(path).unwrap();
        let what = path.display();
        assert_eq!(u32::from(inode.mode), meta.mode() & 0o7777, "mode of {what}");
        assert_eq!((inode.uid, inode.gid), (meta.uid(), meta.gid()), "owner of {what}");
        assert_eq!(
            (inode.mtime.s, i64::from(inode.mtime.ns)),
            (meta.mtime(), meta.mtime_nsec()),
            "mtime of {what}"
        );
        assert_eq!(u64::from(inode.nlink), meta.nlink(), "links of {what}");
        assert_eq!(self.xattrs(inode), xattrs_of(path), "xattrs of {what}");
        let linked = meta.nlink() > 1 && !meta.is_dir();
        assert_eq!(inode.link_group != 0, linked, "link group of {what}");
        if linked {
            let first = links.entry((meta.dev(), meta.ino())).or_insert_with(|| inode.clone());
            assert_eq!(first, inode, "names of one file: {what}");
        }
        let kind = meta.file_type();
        match &inode.content {
            Content::Regular { blob, space } => {
                assert!(kind.is_file(), "{what}");
                assert_eq!(blob.size, meta.size(), "size of {what}");
                self.compare_content(blob, *space, path);
            }
            Content::Directory { .. } => assert!(kind.is_dir(), "{what}"),
            Content::Symlink(target) => {
                assert_eq!(fs::read_link(path).unwrap().as_os_str().as_bytes(), target, "{what}")
            }
            Content::Fifo => assert!(kind.is_fifo(), "{what}"),
            Content::Socket => assert!(kind.is_socket(), "{what}"),
            Content::CharDevice(n) => {
                assert!(
                    kind.is_char_device() && rustix::fs::makedev(n.major, n.minor) == meta.rdev(),
                    "{what}"
                );
            }
            Content::BlockDevice(n) => {
                assert!(
                    kind.is_block_device() && rustix::fs::makedev(n.major, n.minor) == meta.rdev(),
                    "{what}"
                );
            }
        }
    }

    pub(crate) fn xattrs(&self, inode: &Inode) -> Xattrs {
        if inode.xattrs.size == 0 {
            Xattrs::default()
        } else {
            Xattrs::from_xdr(&self.read(&inode.xattrs)).unwrap()
        }
    }

    fn compare_content(&self, blob: &Blob, space: u64, path: &Path) {
        let file = File::open(path).unwrap();
        let leaf = LEAF_LEN_MAX as u64;
        if let BlobBody::Inline(bytes) = &blob.body {
            assert_eq!(*bytes, fs::read(path).unwrap(), "{}", path.display());
            return;
        }
        let stored: HashMap<u64, BlockHandle> = self.leaves(blob).into_iter().collect();
        let mut total = 0;
        let mut buffer = vec![0; LEAF_LEN_MAX];
        let mut compare = |n: u64| {
            let len = (blob.size - n * leaf).min(leaf) as usize;
            file.read_exact_at(&mut buffer[..len], n * leaf).unwrap();
            match stored.get(&n) {
                Some(handle) => assert!(
                    self.payload(FrameKind::Leaf, handle) == buffer[..len],
                    "leaf {n} of {}",
                    path.display()
                ),
                None => assert!(
                    buffer[..len].iter().all(|b| *b == 0),
                    "leaf {n} of {} is no hole",
                    path.display()
                ),
            }
        };
        for n in stored.keys() {
            compare(*n);
            total += (blob.size - n * leaf).min(leaf);
        }
        assert_eq!(space, total, "space of {}", path.display());
        let mut at = 0;
        while let Ok(start) = rustix::fs::seek(file.as_fd(), rustix::fs::SeekFrom::Data(at)) {
            let end = rustix::fs::seek(file.as_fd(), rustix::fs::SeekFrom::Hole(start)).unwrap();
            (start / leaf..end.div_ceil(leaf))
                .filter(|n| !stored.contains_key(n))
                .for_each(&mut compare);
            at = end;
        }
    }
}

fn xattrs_of(path: &Path) -> Xattrs {
    let mut names = vec![0; 65536];
    let len = rustix::fs::llistxattr(path, names.as_mut_slice()).unwrap_or(0);
    let mut value = vec![0; 65536];
    let pairs = names[..len].split(|b| *b == 0).filter(|n| !n.is_empty()).map(|name| {
        let len = rustix::fs::lgetxattr(path, name, value.as_mut_slice()).unwrap();
        (name.to_vec(), value[..len].to_vec())
    });
    Xattrs::new(pairs.collect())
}

pub(crate) fn let_timestamps_age() {
    std::thread::sleep(std::time::Duration::from_millis(3_100));
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
