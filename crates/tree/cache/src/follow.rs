//! Takes over the manifest and index of each new revision of the origin.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use vouch_tree_client::{DatabaseFiles, Tree, location_of_name};
use vouch_tree_store::{RemoteFile, RemoteView, SegmentBytes, read_segment};

use crate::cache::TreeCache;
use crate::pack::MissingFrames;
use crate::table::{PackTable, TableBuilder};
use crate::{CachedRange, Error, Result, io_error};

impl TreeCache {
    pub(crate) async fn start(self: &Arc<Self>) -> Result<()> {
        let stored = std::fs::read(self.manifest_path())
            .ok()
            .and_then(|bytes| RemoteView::parse(&bytes).ok());
        let stored = stored.filter(|view| view.hostid() == self.options.name.hostid());
        let has_layout = match &stored {
            Some(view) => match self.tables_of(view) {
                Ok(tables) => {
                    self.set_layout(tables, *view.iv(), true);
                    self.note_index_len(view);
                    true
                }
                Err(error) => {
                    tracing::warn!(dir = %self.dir().display(), "{error}; the index is read again");
                    false
                }
            },
            None => false,
        };
        // A cache that has a layout serves it at once.
        let until =
            Instant::now() + if has_layout { Duration::ZERO } else { self.client.deadline() };
        if let Err(error) = self.follow(until).await {
            if !has_layout {
                return Err(error);
            }
            tracing::warn!(name = %self.options.name, "{error}; serving what the cache has");
        }
        let weak = Arc::downgrade(self);
        tokio::spawn(follow_on(weak, self.options.refresh));
        Ok(())
    }

    /// While no replica answers, tries until the deadline.
    async fn follow(self: &Arc<Self>, deadline: Instant) -> Result<()> {
        let tree = self.open_tree().await?;
        loop {
            let error = match self.follow_once(&tree).await {
                Err(error) if error.is_outage() && Instant::now() + RETRY_PAUSE < deadline => error,
                done => return done,
            };
            tracing::debug!("{error}; trying again");
            sleep(RETRY_PAUSE).await;
        }
    }

    async fn follow_once(self: &Arc<Self>, tree: &Arc<Tree>) -> Result<()> {
        let mut last = None;
        for location in self.locations() {
            let files = DatabaseFiles::new(&location, tree.hostid(), &self.options.http)?;
            match self.follow_from(tree, &files).await {
                Ok(()) => return Ok(()),
                Err(error) => {
                    tracing::debug!(location, "{error}");
                    last = Some(error);
                }
            }
        }
        Err(last.unwrap_or_else(|| Error::Origin {
            origin: self.options.name.to_string(),
            what: "no replica is known".into(),
        }))
    }

    async fn follow_from(self: &Arc<Self>, tree: &Arc<Tree>, files: &DatabaseFiles) -> Result<()> {
        let (bytes, view) = files.manifest().await?;
        if std::fs::read(self.manifest_path()).is_ok_and(|stored| stored == bytes) {
            return Ok(());
        }
        let refused = |what: &str| Error::Origin { origin: files.url(), what: what.to_owned() };
        if view.hostid() != tree.hostid() {
            return Err(refused("the database of another tree"));
        }
        let head = view.head().ok_or_else(|| refused("no revision yet"))?;
        if !tree.admits(head, view.statements()).await? || *view.iv() != tree.iv() {
            return Err(refused("an old or invalid revision"));
        }
        for segment in view.segments() {
            self.copy_segment(files, &segment).await?;
        }
        if let Err(error) = self.copy_log(files, &view).await {
            tracing::warn!(name = %self.options.name, "the log of revisions is not copied: {error}");
        }
        let tables = self.tables_of(&view)?;
        self.set_layout(tables, *view.iv(), false);
        self.note_index_len(&view);
        let (index, quota) = (self.index_len.load(Ordering::Relaxed), self.options.quota);
        if index + ROOM_MIN > quota {
            return Err(Error::Quota { quota, index, needed: index + ROOM_MIN });
        }
        self.prefetch(&view).await;
        self.write_manifest(&bytes)?;
        self.remove_old_segments(&view);
        tracing::info!(name = %self.options.name, generation = view.generation(), "the cache follows the origin");
        Ok(())
    }

    async fn prefetch(self: &Arc<Self>, view: &RemoteView) {
        let mut wanted: Vec<MissingFrames> = Vec::new();
        for handle in view.companions() {
            let found = view
                .segments()
                .iter()
                .find_map(|segment| read_segment(&self.path_of(segment)).ok()?.find(handle));
            let Some(frame) = found.and_then(|record| view.frame(&record).ok()) else { continue };
            if let CachedRange::Absent(missing) = self.cover(&frame.file.path, &frame.range) {
                wanted.push(missing);
            }
        }
        let (done, waited) = tokio::sync::oneshot::channel();
        self.fetch(wanted, move |_| {
            let _ = done.send(());
        });
        let _ = waited.await;
    }

    async fn open_tree(&self) -> Result<Arc<Tree>> {
        if let Some(tree) = self.tree.read().clone() {
            return Ok(tree);
        }
        let tree = self.client.open(&self.options.name, &self.options.tree).await?;
        *self.tree.write() = Some(Arc::clone(&tree));
        Ok(tree)
    }

    fn locations(&self) -> Vec<String> {
        let mut locations = self.options.tree.replicas.clone();
        if !self.options.tree.only_replicas {
            locations.push(location_of_name(&self.options.name));
        }
        locations
    }

    async fn copy_segment(&self, files: &DatabaseFiles, segment: &RemoteFile) -> Result<()> {
        let path = self.path_of(segment);
        let tail = segment.len.saturating_sub(TAIL_LEN)..segment.len;
        if path.metadata().is_ok_and(|found| found.len() == segment.len) {
            let theirs = files.read(segment, &tail, false).await?;
            let mut ours = vec![0; theirs.len()];
            let file = File::open(&path).map_err(io_error(&path))?;
            if file.read_exact_at(&mut ours, tail.start).is_ok() && ours == theirs {
                return Ok(());
            }
        }
        let new = path.with_extension("new");
        let outcome = match self.download_segment(files, segment, &new, false).await {
            Err(Error::Store(_)) => self.download_segment(files, segment, &new, true).await,
            done => done,
        };
        outcome?;
        std::fs::rename(&new, &path).map_err(io_error(&path))
    }

    /// Verifies the checksum of the segment.
    async fn download_segment(
        &self,
        files: &DatabaseFiles,
        segment: &RemoteFile,
        new: &Path,
        is_anew: bool,
    ) -> Result<()> {
        let mut file = File::create(new).map_err(io_error(new))?;
        let mut at = 0;
        while at < segment.len {
            let end = segment.len.min(at + PART_LEN);
            let part = files.read(segment, &(at..end), is_anew).await?;
            file.write_all(&part).map_err(io_error(new))?;
            at = end;
        }
        file.sync_all().map_err(io_error(new))?;
        read_segment(new)?;
        Ok(())
    }

    fn tables_of(&self, view: &RemoteView) -> Result<HashMap<String, PackTable>> {
        let mut builder = TableBuilder::default();
        let mut newer: Vec<SegmentBytes> = Vec::new();
        for file in view.segments() {
            let segment = read_segment(&self.path_of(&file))?;
            for (handle, record) in segment.records() {
                match view.frame(&record) {
                    Ok(frame) => builder.add(handle, frame),
                    // A collection has moved the frame and removed its old pack.
                    Err(_) if newer.iter().any(|segment| segment.find(&handle).is_some()) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            newer.push(segment);
        }
        builder.finish().ok_or_else(|| Error::Origin {
            origin: self.options.name.to_string(),
            what: "frames overlap in the index".into(),
        })
    }

    fn note_index_len(&self, view: &RemoteView) {
        let segments: u64 = view.segments().iter().map(|segment| segment.len).sum();
        self.index_len.store(segments + MANIFEST_LEN + self.log_len(), Ordering::Relaxed);
    }

    fn write_manifest(&self, bytes: &[u8]) -> Result<()> {
        let (next, path) = (self.options.dir.join("manifest.next"), self.manifest_path());
        let mut file = File::create(&next).map_err(io_error(&next))?;
        file.write_all(bytes).and_then(|()| file.sync_all()).map_err(io_error(&next))?;
        std::fs::rename(&next, &path).map_err(io_error(&path))
    }

    fn remove_old_segments(&self, view: &RemoteView) {
        let named: Vec<PathBuf> =
            view.segments().iter().map(|segment| self.path_of(segment)).collect();
        for entry in
            std::fs::read_dir(self.options.dir.join("index")).into_iter().flatten().flatten()
        {
            if !named.contains(&entry.path()) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    fn manifest_path(&self) -> PathBuf {
        self.options.dir.join(RemoteView::MANIFEST)
    }

    fn path_of(&self, file: &RemoteFile) -> PathBuf {
        self.options.dir.join(&file.path)
    }
}

async fn follow_on(cache: Weak<TreeCache>, refresh: Duration) {
    let mut last_error = String::new();
    loop {
        sleep(refresh).await;
        let Some(cache) = cache.upgrade() else { return };
        let error = match cache.follow(Instant::now()).await {
            Ok(()) => String::new(),
            Err(error) => error.to_string(),
        };
        if error != last_error && !error.is_empty() {
            tracing::warn!(name = %cache.options.name, "{error}; serving what the cache has");
        }
        last_error = error;
    }
}

/// Count and checksum of a segment.
const TAIL_LEN: u64 = 40;

const PART_LEN: u64 = 8 << 20;

/// Estimate: some bytes for each pack and revision.
const MANIFEST_LEN: u64 = 64 << 10;

const ROOM_MIN: u64 = 16 << 20;

const RETRY_PAUSE: Duration = Duration::from_secs(1);
