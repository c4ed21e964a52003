//! Paths of files, from names that operations have told: each file's directory and its name there, so that a directory that is renamed takes all below it along. What no
//! operation has named is asked of the file system once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::sync::Cache;
use vouch_audit::operations::number;
use vouch_nfs4_server::{Export, ExportId, Observation, Told};
use vouch_vfs::FileId;

/// A file of an export.
type Node = (ExportId, FileId);
/// A name's bytes.
type Name = Box<[u8]>;

/// What is known of names. Bounded: what is forgotten is asked for again.
pub(super) struct Names {
    links: Cache<Node, (FileId, Name)>,
    /// The same the other way round: a rename tells names only.
    children: Cache<(ExportId, FileId, Name), FileId>,
    /// Paths as the file system told them, and after how many renames: one may have changed them all.
    told: Cache<Node, (u64, Name)>,
    /// Whole paths, and after how many renames they were put together.
    whole: Cache<Node, (u64, Arc<[u8]>)>,
    renames: AtomicU64,
}

/// The paths of an operation; empty where there is none.
#[derive(Default)]
pub(super) struct Paths {
    pub(super) path: Arc<[u8]>,
    pub(super) new_path: Arc<[u8]>,
}

impl Names {
    pub(super) fn new() -> Self {
        let renames = AtomicU64::new(0);
        let (links, children) = (Cache::new(FILES_MAX), Cache::new(FILES_MAX));
        Names { links, children, told: Cache::new(FILES_MAX), whole: Cache::new(FILES_MAX), renames }
    }

    /// The paths that an operation was about; learns from it.
    pub(super) fn paths(&self, seen: &Observation<'_>, told: &Told<'_>) -> Paths {
        let Some(export) = told.export else { return Paths::default() };
        let (asked, current, after) = (&told.asked, seen.file, told.after);
        let done = seen.status == 0;
        let op = u16::try_from(seen.op).unwrap_or(u16::MAX);
        let below = |directory: Option<&FileId>, name: &[u8]| {
            let above = directory.map(|directory| self.path(export, directory)).unwrap_or_default();
            let mut path = Vec::with_capacity(above.len() + 1 + name.len());
            path.extend_from_slice(&above);
            if !path.ends_with(b"/") {
                path.push(b'/');
            }
            path.extend_from_slice(name);
            Arc::<[u8]>::from(path)
        };
        let mut paths = Paths::default();
        match (op, asked.name, asked.new_name) {
            (number::RENAME, Some(old), Some(new)) => {
                paths.path = below(told.saved, old);
                paths.new_path = below(current, new);
                if done {
                    self.renamed(export, told.saved, old, current, new);
                }
            }
            (number::LINK, _, Some(new)) => {
                paths.path = told.saved.map(|file| self.path(export, file)).unwrap_or_default();
                paths.new_path = below(current, new);
            }
            // Above all exports: what was looked up is one.
            (_, Some(_), _) if current.is_none() && after.is_some() => {
                paths.path = after.map(|file| self.path(export, file)).unwrap_or_default();
            }
            (_, Some(name), _) => {
                paths.path = below(current, name);
                let follows = matches!(op, number::LOOKUP | number::OPEN | number::CREATE);
                if done
                    && follows
                    && let (Some(directory), Some(file)) = (current, after)
                {
                    self.learn(export.id, file, directory, name);
                }
            }
            _ => {
                if let Some(file) = current.or(after) {
                    paths.path = self.path(export, file);
                }
            }
        }
        paths
    }

    fn learn(&self, export: ExportId, file: &FileId, directory: &FileId, name: &[u8]) {
        let key = (export, *file);
        let known = self.links.get(&key).is_some_and(|(parent, known)| parent == *directory && *known == *name);
        if !known && file != directory {
            // What lies below a directory has other paths now, too.
            if self.links.get(&key).is_some() {
                self.renames.fetch_add(1, Ordering::Relaxed);
            } else {
                self.whole.remove(&key);
            }
            self.links.insert(key, (*directory, name.into()));
            self.children.insert((export, *directory, name.into()), *file);
        }
    }

    /// A file's new name is learnt if its old one was known; paths that the file system told are asked for anew.
    fn renamed(&self, export: &Export, from: Option<&FileId>, old: &[u8], to: Option<&FileId>, new: &[u8]) {
        self.renames.fetch_add(1, Ordering::Relaxed);
        let (Some(from), Some(to)) = (from, to) else { return };
        if let Some(file) = self.children.get(&(export.id, *from, old.into())) {
            self.learn(export.id, &file, to, new);
        }
    }

    /// The path of a file; of one that nobody knows a name of, the export's and its identity's place in `file`.
    fn path(&self, export: &Export, file: &FileId) -> Arc<[u8]> {
        let (key, renames) = ((export.id, *file), self.renames.load(Ordering::Relaxed));
        if let Some((when, path)) = self.whole.get(&key)
            && when == renames
        {
            return path;
        }
        let path = Arc::<[u8]>::from(self.put_together(export, file));
        if !path.is_empty() {
            self.whole.insert(key, (renames, path.clone()));
        }
        path
    }

    fn put_together(&self, export: &Export, file: &FileId) -> Vec<u8> {
        let root = export.file_system.root();
        let mut parts: Vec<Box<[u8]>> = Vec::new();
        let mut at = *file;
        let mut path = export.source.as_bytes().to_vec();
        while at != root && parts.len() < DEPTH_MAX {
            match self.links.get(&(export.id, at)) {
                Some((parent, name)) => {
                    parts.push(name);
                    at = parent;
                }
                None => {
                    match self.asked(export, &at) {
                        Some(above) => {
                            if !above.starts_with(b"/") && !path.ends_with(b"/") {
                                path.push(b'/');
                            }
                            path.extend_from_slice(&above);
                        }
                        None if parts.is_empty() => return Vec::new(),
                        None => path.extend_from_slice(b"/..."),
                    }
                    break;
                }
            }
        }
        for part in parts.iter().rev() {
            if !path.ends_with(b"/") {
                path.push(b'/');
            }
            path.extend_from_slice(part);
        }
        path
    }

    fn asked(&self, export: &Export, file: &FileId) -> Option<Box<[u8]>> {
        let key = (export.id, *file);
        let renames = self.renames.load(Ordering::Relaxed);
        if let Some((when, path)) = self.told.get(&key)
            && when == renames
        {
            return Some(path);
        }
        let path: Box<[u8]> = export.file_system.path(file)?.into();
        self.told.insert(key, (renames, path.clone()));
        Some(path)
    }
}

/// Files whose names are remembered.
const FILES_MAX: usize = 65_536;
/// Deepest path that is put together.
const DEPTH_MAX: usize = 256;
