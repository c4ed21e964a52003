//! Paths of files, from names that operations have told: each file's directory and its name there, so that a directory that is renamed takes all below it along. What no
//! operation has named is asked of the file system once.

mod stamps;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use quick_cache::sync::Cache;
use vouch_audit::operations::number;
use vouch_nfs4_server::{Export, ExportId, Observation, Told};
use vouch_vfs::FileId;

use stamps::{Stamped, Stamps};

/// A file of an export.
type Node = (ExportId, FileId);
/// A name's bytes.
type Name = Box<[u8]>;

/// What is known of names. Bounded: what is forgotten is asked for again.
pub(super) struct Names {
    links: Cache<Node, (FileId, Name)>,
    /// The same the other way round: a rename tells names only.
    children: Cache<(ExportId, FileId, Name), FileId>,
    /// Paths as the file system told them.
    told: Cache<Node, Arc<Stamped>>,
    /// Paths that were put together.
    whole: Cache<Node, Arc<Stamped>>,
    stamps: Stamps,
}

/// The paths of an operation; empty where there is none.
#[derive(Default)]
pub(super) struct Paths {
    pub(super) path: Arc<[u8]>,
    pub(super) new_path: Arc<[u8]>,
}

impl Names {
    pub(super) fn new() -> Self {
        let mut seed = [0; 8];
        // Without randomness the paths are as right, and somebody may make them slow.
        let _ = getrandom::fill(&mut seed);
        Names::seeded(u64::from_le_bytes(seed))
    }

    fn seeded(seed: u64) -> Self {
        let (links, children) = (Cache::new(FILES_MAX), Cache::new(FILES_MAX));
        Names { links, children, told: Cache::new(FILES_MAX), whole: Cache::new(FILES_MAX), stamps: Stamps::new(seed) }
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
                if done && let (Some(from), Some(to)) = (told.saved, current) {
                    self.renamed(export, (from, old), (to, new), &paths.path);
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
                    self.learn(export, file, directory, name);
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

    fn learn(&self, export: &Export, file: &FileId, directory: &FileId, name: &[u8]) {
        let key = (export.id, *file);
        let before = self.links.get(&key);
        let known = before.as_ref().is_some_and(|(parent, known)| *parent == *directory && **known == *name);
        if known || file == directory {
            return;
        }
        // Another name of the file, or of a directory that was renamed on the server itself: then what lies below has other paths, too. Whoever looks up the names of one
        // file in turn makes old that file's path and nobody else's.
        let old = before.is_some().then(|| self.path(export, file));
        self.links.insert(key, (*directory, name.into()));
        self.children.insert((export.id, *directory, name.into()), *file);
        match old {
            Some(old) => self.stamps.moved(&old),
            None => drop(self.whole.remove(&key)),
        }
    }

    /// A file's new name is learnt if its old one was known. `path`: what it had before.
    fn renamed(&self, export: &Export, (from, old): (&FileId, &[u8]), (to, new): (&FileId, &[u8]), path: &[u8]) {
        if let Some((_, file)) = self.children.remove(&(export.id, *from, old.into())) {
            self.learn(export, &file, to, new);
        }
        // Also where no name was known: the file system may have told paths of what lies below.
        match self.path(export, from).is_empty() {
            true => self.stamps.all_moved(),
            false => self.stamps.moved(path),
        }
    }

    /// The path of a file; of one that nobody knows a name of, the export's and its identity's place in `file`.
    pub(super) fn path(&self, export: &Export, file: &FileId) -> Arc<[u8]> {
        let key = (export.id, *file);
        if let Some(known) = self.whole.get(&key)
            && self.stamps.is_good(&known)
        {
            return known.path.clone();
        }
        let moves = self.stamps.moves();
        let path = Arc::<[u8]>::from(self.put_together(export, file));
        if !path.is_empty()
            && let Some(stamped) = self.stamps.stamp(path.clone(), moves)
        {
            self.whole.insert(key, stamped);
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
                        Some(above) => path = above.to_vec(),
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

    /// The path as the file system tells it.
    fn asked(&self, export: &Export, file: &FileId) -> Option<Arc<[u8]>> {
        let key = (export.id, *file);
        if let Some(known) = self.told.get(&key)
            && self.stamps.is_good(&known)
        {
            return Some(known.path.clone());
        }
        let moves = self.stamps.moves();
        let below = export.file_system.path(file)?;
        let mut path = export.source.as_bytes().to_vec();
        if !below.starts_with(b"/") && !path.ends_with(b"/") {
            path.push(b'/');
        }
        path.extend_from_slice(&below);
        let path = Arc::<[u8]>::from(path);
        if let Some(stamped) = self.stamps.stamp(path.clone(), moves) {
            self.told.insert(key, stamped);
        }
        Some(path)
    }
}

/// Files whose names are remembered.
const FILES_MAX: usize = 65_536;
/// Deepest path that is put together.
const DEPTH_MAX: usize = 256;
