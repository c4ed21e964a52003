//! Takes no lock, continues during commits and collections.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use vouch_tree::{BlockHandle, HostId, Iv};

use crate::bucket::BucketDatabase;
use crate::garbage::{Garbage, dropped_paths};
use crate::layout::{Layout, PackClass, pack_name, parse_pack_name, parse_segment_name};
use crate::manifest::Revision;
use crate::pack;
use crate::pack_file::{Location, PackFile, PackFiles};
use crate::view::View;
use crate::{Error, FrameSource, Result};

#[derive(Debug)]
pub struct Snapshot {
    layout: Layout,
    view: RwLock<Arc<View>>,
    refreshing: Mutex<()>,
    files: PackFiles,
    retired: Mutex<RetiredFiles>,
}

/// Lengths of files of earlier generations, and when a newer one was read. A web cache may still
/// have their manifest.
type RetiredFiles = HashMap<String, (u64, Instant)>;

impl Snapshot {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let layout = Layout::open(path)?;
        if !layout.refresh(Duration::ZERO)? {
            return Err(Error::NotFound { path: path.to_owned() });
        }
        let view = RwLock::new(Arc::new(View::load(&layout, None)?));
        let retired = Mutex::new(listed_files(&layout));
        Ok(Self {
            layout,
            view,
            refreshing: Mutex::default(),
            files: PackFiles::default(),
            retired,
        })
    }

    /// True if there is a new generation. One system call if not.
    pub fn refresh(&self) -> Result<bool> {
        let _one_at_a_time = self.refreshing.lock();
        self.layout.refresh(BUCKET_INTERVAL)?;
        let old = self.view();
        if old.is_current(&self.layout)? {
            return Ok(false);
        }
        let new = Arc::new(View::load(&self.layout, Some(&old))?);
        let same_tree = new.iv() == old.iv();
        self.retire(&old, &new, same_tree);
        *self.view.write() = new.clone();
        self.files.retain(|id| same_tree && new.has_pack(id));
        Ok(true)
    }

    fn retire(&self, old: &View, new: &View, same_tree: bool) {
        let now = Instant::now();
        let mut retired = self.retired.lock();
        retired.retain(|_, (_, since)| same_tree && now.duration_since(*since) < RETIRED_AGE_MAX);
        let dropped =
            if same_tree { dropped_paths(old.manifest(), new.manifest()) } else { Vec::new() };
        retired.extend(
            dropped
                .into_iter()
                .filter_map(|path| old.file_len(&path).map(|len| (path, (len, now)))),
        );
    }

    pub fn view(&self) -> Arc<View> {
        self.view.read().clone()
    }

    pub fn path(&self) -> &Path {
        self.layout.name()
    }

    pub fn local_dir(&self) -> &Path {
        self.layout.root()
    }

    pub fn hostid(&self) -> HostId {
        self.view.read().hostid()
    }

    pub fn iv(&self) -> Iv {
        self.view.read().iv()
    }

    pub fn head(&self) -> Option<Arc<[u8]>> {
        self.view.read().head().cloned()
    }

    pub fn statements(&self) -> Vec<Vec<u8>> {
        self.view.read().statements().to_vec()
    }

    pub fn companions(&self) -> Vec<BlockHandle> {
        self.view.read().companions().to_vec()
    }

    pub fn revisions(&self) -> Vec<Revision> {
        self.view.read().revisions().to_vec()
    }

    pub fn contains(&self, handle: &BlockHandle) -> Result<bool> {
        self.view.read().index().contains(handle)
    }

    /// No system call if the pack was open.
    pub fn locate(&self, handle: &BlockHandle) -> Result<Option<Location>> {
        loop {
            let view = self.view();
            let Some(place) = view.place(&self.layout, handle)? else { return Ok(None) };
            match self.files.open(&self.layout, PackClass::of(place.kind), place.pack, &view.iv()) {
                Ok(pack) => return Ok(Some(Location::new(pack, &place))),
                // A collection replaced the pack; read the newest manifest.
                Err(error) if error.is_missing_file() => {
                    if !self.refresh()? && self.view().generation() == view.generation() {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Path of the pack and bytes of the record. Opens no pack.
    pub fn place(&self, handle: &BlockHandle) -> Result<Option<(String, Range<u64>)>> {
        let view = self.view();
        let Some(place) = view.place(&self.layout, handle)? else { return Ok(None) };
        let path = format!("packs/{}", pack_name(PackClass::of(place.kind), place.pack));
        let start = u64::from(place.offset);
        Ok(Some((path, start..start + u64::from(pack::record_len(place.len)))))
    }

    /// Length in the current generation, by path.
    pub fn pack_len(&self, path: &str) -> Option<u64> {
        let (class, id) = parse_pack_name(path.strip_prefix("packs/")?)?;
        self.view().pack_len(class, id)
    }

    /// Of the current generation or of one that was current some minutes ago. `None` for other
    /// paths and removed files.
    pub fn file(&self, path: &str) -> Result<Option<(Arc<PackFile>, u64)>> {
        let view = self.view();
        let named = view.file_len(path);
        let Some(len) = named.or_else(|| self.retired.lock().get(path).map(|(len, _)| *len)) else {
            return Ok(None);
        };
        let opened =
            if let Some((class, id)) = path.strip_prefix("packs/").and_then(parse_pack_name) {
                if named.is_some() {
                    self.files.open(&self.layout, class, id, &view.iv())
                } else {
                    // A descriptor that is kept would keep the space of a removed pack.
                    PackFile::open(&self.layout, class, id, &view.iv()).map(Arc::new)
                }
            } else if let Some(id) = path.strip_prefix("index/").and_then(parse_segment_name) {
                PackFile::open_segment(&self.layout, id).map(Arc::new)
            } else {
                return Ok(None);
            };
        match opened {
            Ok(file) => Ok(Some((file, len))),
            Err(error) if error.is_missing_file() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Every pack must exist with its length. One system call each.
    pub fn check_packs(&self) -> Result<()> {
        let view = self.view();
        if let Some(bucket) = self.layout.bucket() {
            return check_objects(&self.layout, &**bucket, &view);
        }
        for pack in &view.manifest().packs {
            let path = self.layout.pack(pack.class, pack.id);
            let checked = match std::fs::metadata(&path) {
                Ok(found) if found.len() >= pack.len => Ok(()),
                Ok(found) => Err(Error::damaged(
                    &path,
                    format!("the pack has {} bytes instead of {}", found.len(), pack.len),
                )),
                Err(error) => Err(Error::io("look at", &path)(error)),
            };
            if checked.is_err() && view.is_current(&self.layout)? {
                return checked;
            }
        }
        Ok(())
    }

    /// The pack may have been repaired: the next use opens it by name.
    pub fn reopen(&self, pack: &PackFile) {
        self.files.retain(|id| id != pack.id());
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }
}

/// A replica that starts again serves what it served before.
fn listed_files(layout: &Layout) -> RetiredFiles {
    let listed = if layout.bucket().is_none() {
        Garbage::read(layout).unwrap_or_default()
    } else {
        Garbage::default()
    };
    let now = Instant::now();
    let len =
        |path: &String| std::fs::metadata(layout.root().join(path)).ok().map(|found| found.len());
    listed.names().filter_map(|path| len(&path).map(|len| (path, (len, now)))).collect()
}

fn check_objects(layout: &Layout, bucket: &dyn BucketDatabase, view: &View) -> Result<()> {
    let listed = bucket.list("packs", "").map_err(Error::io("list", layout.name()))?;
    let lens: HashMap<String, u64> = listed.into_iter().collect();
    for pack in &view.manifest().packs {
        let what = match lens.get(&pack_name(pack.class, pack.id)) {
            Some(len) if *len == pack.len => continue,
            Some(len) => format!("the pack has {len} bytes instead of {}", pack.len),
            None => "the pack is missing".to_owned(),
        };
        return Err(Error::damaged(
            &layout.name().join("packs").join(pack_name(pack.class, pack.id)),
            what,
        ));
    }
    Ok(())
}

impl FrameSource for Snapshot {
    fn get(&self, handle: &BlockHandle) -> Result<Option<Vec<u8>>> {
        self.locate(handle)?.map(|location| location.read_frame()).transpose()
    }
}

const BUCKET_INTERVAL: Duration = Duration::from_secs(5);
/// Caches have an earlier manifest for a minute.
const RETIRED_AGE_MAX: Duration = Duration::from_secs(10 * 60);
