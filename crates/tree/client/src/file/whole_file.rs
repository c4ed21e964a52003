//! Whole copies in the disk cache, for FUSE passthrough. This process writes each copy from
//! verified frames, or compares an earlier one with the hashes of its leaves. docs/formats/cache.md
//! says how copies stay protected.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::{Arc, Weak};

use tokio::time::Instant;
use vouch_tree::{Blob, BlobBody, BlockHandle, FrameKind, LEAF_LEN_MAX, frame};

use crate::disk_cache::{StoredFile, WholeFiles, WholeKey};
use crate::file::blob::{LeafPlace, leaf_len};
use crate::frame::Frame;
use crate::replica::Priority;
use crate::tree::Source;
use crate::{Error, Result, Tree};

/// 4 MiB per write: the page cache then uses large folios, which are cheaper to read.
const LEAVES_AT_ONCE: u64 = 32;

/// 8 GiB: some milliseconds.
const LEAVES_COUNTED_MAX: u64 = 1 << 16;

const CACHED_SHARE: u64 = 2;

/// In exclusive use. Returns to the cache when dropped.
pub struct WholeFile {
    tree: Arc<Tree>,
    body: Option<StoredFile>,
    blob: Blob,
    is_renamed: bool,
    /// The file holds old and new content: an update is unfinished.
    is_mixed: bool,
    is_resumed: bool,
}

enum Comparison {
    Equal,
    Different,
    /// A compressed leaf is not cached, so it cannot be compared.
    Unknown,
}

impl Tree {
    /// True with a disk cache for whole files.
    pub fn keeps_whole_files(&self) -> bool {
        self.whole_files().is_some()
    }

    /// False if one leaf holds the file, or the cache is too small for it.
    pub fn may_keep_whole_file(&self, blob: &Blob) -> bool {
        key_of(blob).is_some() && self.whole_files().is_some_and(|files| files.fits(blob.size))
    }

    /// Also `None` while another user has the copy. Costs one fstat(2).
    pub fn take_whole_file(self: &Arc<Self>, blob: &Blob) -> Option<WholeFile> {
        let body = self.whole_files()?.take(&key_of(blob)?)?;
        Some(WholeFile {
            tree: Arc::clone(self),
            body: Some(body),
            blob: blob.clone(),
            is_renamed: false,
            is_mixed: false,
            is_resumed: false,
        })
    }

    /// The copy that an earlier process opened and the kernel still reads, by its inode number.
    pub fn resume_whole_file(self: &Arc<Self>, blob: &Blob, inode: u64) -> Option<WholeFile> {
        let (body, is_renamed) = self.whole_files()?.reopen(&key_of(blob)?, inode)?;
        // A renamed file was being changed to another revision.
        Some(WholeFile {
            tree: Arc::clone(self),
            body: Some(body),
            blob: blob.clone(),
            is_renamed,
            is_mixed: is_renamed,
            is_resumed: true,
        })
    }

    /// Copies a blob that is mostly cached, or accepts a matching copy of an earlier process.
    pub async fn make_whole_file(self: &Arc<Self>, blob: &Blob) -> bool {
        let (tree, blob) = (Arc::clone(self), blob.clone());
        // Shutdown waits for blocking threads: stop when nobody awaits the result.
        let wanted = Arc::new(());
        let waiting = Arc::downgrade(&wanted);
        let made =
            tokio::task::spawn_blocking(move || tree.make_whole_file_blocking(&blob, &waiting))
                .await;
        drop(wanted);
        match made {
            Ok(Ok(made)) => made,
            Ok(Err(error)) => {
                tracing::warn!("disk cache: cannot make a whole copy of a file: {error}");
                false
            }
            Err(_) => false,
        }
    }

    fn whole_files(&self) -> Option<&WholeFiles> {
        self.client().disk.as_ref().map(|disk| &disk.whole)
    }

    fn make_whole_file_blocking(&self, blob: &Blob, waiting: &Weak<()>) -> io::Result<bool> {
        let (Some(files), Some(key)) = (self.whole_files(), key_of(blob)) else { return Ok(false) };
        let Some(_building) = files.start_building() else { return Ok(false) };
        if files.has(&key) || !files.fits(key.size) {
            return Ok(files.has(&key));
        }
        let Some(places) = self.places_if_cached(blob) else { return Ok(false) };
        let existing = match files.open_existing(&key) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            existing => existing?,
        };
        if let Some(body) = existing {
            match self.compare(&body, blob, &places, waiting) {
                Comparison::Equal => {
                    files.put(key, body);
                    return Ok(true);
                }
                Comparison::Unknown => return Ok(false),
                Comparison::Different => {
                    tracing::warn!("disk cache: a whole copy has wrong content; making it again");
                    files.remove(body);
                }
            }
        }
        let Some(body) = files.create(&key)? else { return Ok(false) };
        if let Err(error) = self.fill(&body, blob, &places, waiting) {
            files.remove(body);
            return Err(error);
        }
        files.put(key, files.finish(&key, body)?);
        Ok(true)
    }

    fn places_if_cached(&self, blob: &Blob) -> Option<Vec<LeafPlace>> {
        let count = blob.size.div_ceil(LEAF_LEN_MAX as u64);
        let places = self.run_local(self.leaf_places(blob, 0..count, Source::Local))?.ok()?;
        let is_here = |place: &&LeafPlace| match place {
            LeafPlace::Hole => true,
            LeafPlace::At(handle) => self.is_cached(handle),
        };
        let cached = places.iter().filter(is_here).count() as u64;
        (cached >= count.div_ceil(CACHED_SHARE)).then_some(places)
    }

    /// Counts memory and disk cache; `None` if the blob is too long to count. O(leaves).
    pub fn cached_len(&self, blob: &Blob) -> Option<u64> {
        if matches!(blob.body, BlobBody::Inline(_) | BlobBody::Hole) {
            return Some(blob.size);
        }
        let count = blob.size.div_ceil(LEAF_LEN_MAX as u64);
        let is_here = |leaf: &u64| match self.local_leaf_place(blob, *leaf) {
            Some(LeafPlace::Hole) => true,
            Some(LeafPlace::At(handle)) => self.is_cached(&handle),
            None => false,
        };
        let here = (0..count).filter(is_here).map(|leaf| leaf_len(blob.size, leaf) as u64);
        (count <= LEAVES_COUNTED_MAX).then(|| here.sum())
    }

    pub(super) fn is_cached(&self, handle: &BlockHandle) -> bool {
        self.is_in_memory(handle)
            || self.client().disk.as_ref().is_some_and(|disk| disk.contains(handle))
    }

    /// The hash of a compressed frame covers other bytes, so that leaf is compared with its cached
    /// content.
    fn compare(
        &self,
        body: &StoredFile,
        blob: &Blob,
        places: &[LeafPlace],
        waiting: &Weak<()>,
    ) -> Comparison {
        if !body.file().metadata().is_ok_and(|m| m.is_file() && m.len() == blob.size) {
            return Comparison::Different;
        }
        let mut buffer = vec![0; LEAF_LEN_MAX];
        for (leaf, place) in (0..).zip(places) {
            if waiting.strong_count() == 0 {
                return Comparison::Unknown;
            }
            let bytes = &mut buffer[..leaf_len(blob.size, leaf)];
            if body.file().read_exact_at(bytes, leaf * LEAF_LEN_MAX as u64).is_err() {
                return Comparison::Different;
            }
            let fits = match place {
                LeafPlace::Hole => bytes.iter().all(|&b| b == 0),
                LeafPlace::At(handle)
                    if self.iv().handle_of(&frame::build(FrameKind::Leaf, bytes, 0)) == *handle =>
                {
                    true
                }
                LeafPlace::At(handle) => match self.cached_leaf(handle) {
                    Some(leaf) => leaf == *bytes,
                    None => return Comparison::Unknown,
                },
            };
            if !fits {
                return Comparison::Different;
            }
        }
        Comparison::Equal
    }

    fn fill(
        &self,
        body: &StoredFile,
        blob: &Blob,
        places: &[LeafPlace],
        waiting: &Weak<()>,
    ) -> io::Result<()> {
        let mut batch = Vec::with_capacity(LEAVES_AT_ONCE as usize * LEAF_LEN_MAX);
        for (number, group) in (0..).zip(places.chunks(LEAVES_AT_ONCE as usize)) {
            if waiting.strong_count() == 0 {
                return Err(io::Error::new(io::ErrorKind::Interrupted, "the mount is ending"));
            }
            let first = number * LEAVES_AT_ONCE;
            batch.clear();
            for (leaf, place) in (first..).zip(group) {
                let len = leaf_len(blob.size, leaf);
                match place {
                    LeafPlace::Hole => batch.resize(batch.len() + len, 0),
                    LeafPlace::At(handle) => {
                        let bytes = match self.cached_leaf(handle) {
                            Some(bytes) => bytes,
                            None => self.fetched_leaf(handle, len).map_err(io::Error::other)?,
                        };
                        if bytes.len() != len {
                            return Err(io::Error::other(format!(
                                "leaf {handle} has {} bytes instead of {len}",
                                bytes.len()
                            )));
                        }
                        batch.extend_from_slice(&bytes);
                    }
                }
            }
            body.write_at(&batch, first * LEAF_LEN_MAX as u64)?;
        }
        Ok(())
    }

    fn cached_leaf(&self, handle: &BlockHandle) -> Option<bytes::Bytes> {
        match self.peek(FrameKind::Leaf, handle)? {
            Frame::Leaf(bytes) => Some(bytes),
            _ => None,
        }
    }

    fn fetched_leaf(&self, handle: &BlockHandle, len: usize) -> Result<bytes::Bytes> {
        let by = Instant::now() + self.operation_max();
        match self.client().runtime.block_on(self.frame_by(
            FrameKind::Leaf,
            handle,
            len,
            Priority::Background,
            by,
        ))? {
            Frame::Leaf(bytes) => Ok(bytes),
            _ => Err(Error::Damaged { what: format!("frame {handle} is not a leaf") }),
        }
    }
}

impl WholeFile {
    /// The content.
    pub const fn blob(&self) -> &Blob {
        &self.blob
    }

    /// Inode number of the cache file; 0 without one.
    pub fn inode(&self) -> u64 {
        self.body
            .as_ref()
            .and_then(|body| body.file().metadata().ok())
            .map_or(0, |metadata| metadata.ino())
    }

    /// Changes the content to `blob` in place, also while the file is open: fetches, verifies and
    /// writes the leaves that differ. Readers see verified bytes of either version. May be repeated
    /// after an error.
    pub async fn move_to(&mut self, blob: &Blob) -> Result<()> {
        if self.blob == *blob && !self.is_mixed {
            return Ok(());
        }
        let files = self
            .tree
            .whole_files()
            .ok_or_else(|| Error::Damaged { what: "the disk cache is closed".into() })?;
        let Some(body) = &mut self.body else { return Ok(()) };
        let disk_failed = |error: io::Error| Error::Damaged {
            what: format!("writing a whole copy in the disk cache: {error}"),
        };
        if !self.is_renamed {
            files.mark_unfinished(body).map_err(disk_failed)?;
            self.is_renamed = true;
        }
        let may_skip = !std::mem::replace(&mut self.is_mixed, true);
        let by = Instant::now() + self.tree.operation_max();
        let count = blob.size.div_ceil(LEAF_LEN_MAX as u64);
        for leaf in 0..count {
            let offset = leaf * LEAF_LEN_MAX as u64;
            if may_skip && self.tree.same_leaf(&self.blob, blob, leaf, by).await? {
                continue;
            }
            let bytes = self.tree.read(blob, offset, LEAF_LEN_MAX).await?;
            body.write_at(&bytes, offset).map_err(disk_failed)?;
        }
        body.file().set_len(blob.size).map_err(disk_failed)?;
        (self.blob, self.is_mixed) = (blob.clone(), false);
        Ok(())
    }
}

impl Tree {
    async fn same_leaf(&self, old: &Blob, new: &Blob, leaf: u64, by: Instant) -> Result<bool> {
        let end = |blob: &Blob| leaf < blob.size.div_ceil(LEAF_LEN_MAX as u64);
        if key_of(old).is_none()
            || key_of(new).is_none()
            || !end(old)
            || leaf_len(old.size, leaf) != leaf_len(new.size, leaf)
        {
            return Ok(false);
        }
        // An unknown old location: write the leaf.
        let source = Source::Replicas(Priority::Background, by);
        let was = self.leaf_places(old, leaf..leaf + 1, source).await.ok();
        Ok(was == Some(self.leaf_places(new, leaf..leaf + 1, source).await?))
    }
}

impl AsFd for WholeFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.body.as_ref().expect("only `drop` takes the body").file().as_fd()
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        let (Some(body), Some(files)) = (self.body.take(), self.tree.whole_files()) else { return };
        match key_of(&self.blob) {
            // A resumed file was not verified here.
            Some(key) if !self.is_renamed && !self.is_resumed => files.put(key, body),
            _ => files.remove(body),
        }
    }
}

const fn key_of(blob: &Blob) -> Option<WholeKey> {
    match blob.body {
        BlobBody::Tree { top, .. } => Some(WholeKey { top, size: blob.size }),
        _ => None,
    }
}
