//! One generation for readers: a manifest and its segments.

use std::collections::HashMap;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use vouch_log::checkpoint::SignedCheckpoint;
use vouch_tree::{BlockHandle, HostId, Iv};

use crate::disk::Disk;
use crate::index::{Index, PackPosition};
use crate::layout::{Layout, PackClass, parse_pack_name, parse_segment_name};
use crate::manifest::{Manifest, Revision};
use crate::pack;
use crate::segment::{self, Segment};
use crate::{Error, Result};

#[derive(Debug)]
pub struct View {
    manifest: Manifest,
    index: Index,
    packs: HashMap<u32, (PackClass, u64)>,
    stamp: Stamp,
}

impl View {
    pub fn generation(&self) -> u64 {
        self.manifest.generation
    }

    pub fn hostid(&self) -> HostId {
        self.manifest.hostid
    }

    pub fn iv(&self) -> Iv {
        self.manifest.iv
    }

    /// Newest signed fsinfo. `None` before the first commit.
    pub fn head(&self) -> Option<&Arc<[u8]>> {
        self.manifest.head.as_ref()
    }

    pub fn statements(&self) -> &[Vec<u8>] {
        &self.manifest.statements
    }

    pub fn companions(&self) -> &[BlockHandle] {
        &self.manifest.companions
    }

    /// Newest head of the log. `None` for a tree without one.
    pub fn checkpoint(&self) -> Option<&SignedCheckpoint> {
        self.manifest.checkpoint()
    }

    pub fn revisions(&self) -> &[Revision] {
        &self.manifest.revisions
    }

    /// Replaces the manifest's statements by these.
    pub fn manifest_with(&self, statements: &[Vec<u8>]) -> Vec<u8> {
        Manifest { statements: statements.to_vec(), ..self.manifest.clone() }.to_bytes()
    }

    pub(crate) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    pub(crate) fn index(&self) -> &Index {
        &self.index
    }

    pub(crate) fn pack_len(&self, class: PackClass, id: u32) -> Option<u64> {
        self.packs.get(&id).filter(|(found, _)| *found == class).map(|(_, len)| *len)
    }

    /// `path`: below the database.
    pub(crate) fn file_len(&self, path: &str) -> Option<u64> {
        if let Some((class, id)) = path.strip_prefix("packs/").and_then(parse_pack_name) {
            return self.pack_len(class, id);
        }
        let id = path.strip_prefix("index/").and_then(parse_segment_name)?;
        let found = self.manifest.segments.iter().find(|segment| segment.id == id)?;
        Some(segment::file_len(found.count))
    }

    pub(crate) fn has_pack(&self, id: u32) -> bool {
        self.packs.contains_key(&id)
    }

    pub(crate) fn place(
        &self,
        layout: &Layout,
        handle: &BlockHandle,
    ) -> Result<Option<PackPosition>> {
        let Some(place) = self.index.find(handle)? else { return Ok(None) };
        let end = u64::from(place.offset) + u64::from(pack::record_len(place.len));
        match self.packs.get(&place.pack) {
            Some(&(_, len)) if end <= len => Ok(Some(place)),
            _ => {
                let path = layout.pack(PackClass::of(place.kind), place.pack);
                Err(Error::damaged(
                    &path,
                    format!(
                        "the index names a frame at {}..{end}, which the manifest does not",
                        place.offset
                    ),
                ))
            }
        }
    }

    /// Reads the newest generation. Reuses open segments of the earlier `before`.
    pub(crate) fn load(layout: &Layout, before: Option<&Self>) -> Result<Self> {
        let mut tried = None;
        loop {
            let (manifest, stamp) = read_manifest(layout)?;
            let generation = manifest.generation;
            match Self::assemble(layout, manifest, stamp, before) {
                Err(error) if error.is_missing_file() && tried != Some(generation) => {
                    tried = Some(generation)
                }
                other => return other,
            }
        }
    }

    pub(crate) fn is_current(&self, layout: &Layout) -> Result<bool> {
        let path = layout.manifest();
        let metadata = std::fs::metadata(&path).map_err(Error::io("look at", &path))?;
        Ok(Stamp::of(&metadata) == self.stamp)
    }

    fn assemble(
        layout: &Layout,
        manifest: Manifest,
        stamp: Stamp,
        before: Option<&Self>,
    ) -> Result<Self> {
        // Another iv means another database at this path.
        let before = before.filter(|b| {
            b.manifest.iv == manifest.iv && b.manifest.generation <= manifest.generation
        });
        let open = |id, count| -> Result<Arc<Segment>> {
            if let Some(segment) =
                before.and_then(|b| b.index.segments.iter().find(|s| s.id() == id))
            {
                return Ok(segment.clone());
            }
            let path = layout.segment(id);
            let segment = Segment::open(&path, id)?;
            if segment.len() as u64 != count {
                return Err(Error::damaged(
                    &path,
                    "the index segment differs from the one named in the manifest",
                ));
            }
            Ok(Arc::new(segment))
        };
        let segments = manifest
            .segments
            .iter()
            .map(|meta| open(meta.id, meta.count))
            .collect::<Result<_>>()?;
        let packs = manifest.packs.iter().map(|pack| (pack.id, (pack.class, pack.len))).collect();
        Ok(Self { manifest, index: Index { segments }, packs, stamp })
    }
}

pub(crate) fn read_manifest(layout: &Layout) -> Result<(Manifest, Stamp)> {
    let path = layout.manifest();
    let read = || -> io::Result<(Vec<u8>, Stamp)> {
        let mut file = std::fs::File::open(&path)?;
        let stamp = Stamp::of(&file.metadata()?);
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut file, &mut bytes)?;
        Ok((bytes, stamp))
    };
    let (bytes, stamp) = read().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::NotFound { path: layout.root().to_owned() },
        _ => Error::io("read", &path)(error),
    })?;
    Ok((Manifest::from_bytes(&bytes, &path)?, stamp))
}

/// Completes the commit of a killed writer of a directory, if it has another revision or a longer log:
/// a reader may have seen the one fsinfo of its number, the one checkpoint of its size. Others are
/// taken back.
pub(crate) fn finish_commit(layout: &Layout, disk: &dyn Disk) -> Result<()> {
    let next = layout.manifest_next();
    let Ok(bytes) = std::fs::read(&next) else { return Ok(()) };
    let (now, _) = read_manifest(layout)?;
    let is_final = Manifest::from_bytes(&bytes, &next).is_ok_and(|found| {
        found.iv == now.iv && found.generation == now.generation + 1 && found.is_signed_after(&now)
    });
    if is_final {
        let path = layout.manifest();
        // The writer may have been killed before its own sync.
        let synced = disk.reopen(&next).and_then(|file| file.sync());
        synced.map_err(Error::io("sync", &next))?;
        // Before any reader finds it, as in a commit that is final.
        disk.sync_dir(layout.root()).map_err(Error::io("sync", layout.root()))?;
        disk.rename(&next, &path).map_err(Error::io("replace", &path))?;
        disk.sync_dir(layout.root()).map_err(Error::io("sync", layout.root()))?;
    }
    Ok(())
}

/// Makes a new database durable, for a creator that may have been killed before it did so.
pub(crate) fn sync_created(path: &Path, disk: &dyn Disk) -> Result<()> {
    disk.sync_dir(path).map_err(Error::io("sync", path))?;
    sync_parent(path, disk)
}

pub(crate) fn sync_parent(path: &Path, disk: &dyn Disk) -> Result<()> {
    let parent =
        path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    disk.sync_dir(parent).map_err(Error::io("sync", parent))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    len: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            len: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}
