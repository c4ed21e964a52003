//! Records every disk operation, then recreates the directory as a power cut after any step may
//! leave it. A seed decides whether unsynced bytes and names are lost, torn or kept.

#![allow(dead_code, reason = "each test uses its part")]

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use vouch_testkit::SplitMix64;
use vouch_tree_store::disk::{Disk, DiskFile, SystemDisk};

#[derive(Debug, Clone)]
pub(crate) enum Step {
    CreateDir(PathBuf),
    Create(PathBuf, usize),
    Append(usize, Vec<u8>),
    Sync(usize),
    Truncate(usize, usize),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
    SyncDir(PathBuf),
    Note(Note),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Note {
    Created,
    Asked(u64),
    Acknowledged(u64),
    /// Witnesses may have seen the checkpoint of this revision.
    Shown(u64),
    /// A collection without a grace period begins.
    FreesAtOnce,
}

/// Performs all but syncs on the real disk.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecordingDisk {
    record: Arc<Mutex<Record>>,
}

#[derive(Debug, Default)]
struct Record {
    steps: Vec<Step>,
    names: BTreeMap<PathBuf, usize>,
    files: usize,
}

impl RecordingDisk {
    /// What is in this directory is durable.
    pub(crate) fn holding(dir: &Path) -> Self {
        let disk = Self::default();
        disk.record.lock().hold(dir);
        disk
    }

    pub(crate) fn note(&self, note: Note) {
        self.record.lock().steps.push(Step::Note(note));
    }

    pub(crate) fn steps(&self) -> Vec<Step> {
        self.record.lock().steps.clone()
    }
}

impl Record {
    fn hold(&mut self, dir: &Path) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                self.steps.push(Step::CreateDir(path.clone()));
                self.hold(&path);
            } else {
                let id = self.files;
                self.files += 1;
                let bytes = std::fs::read(&path).unwrap();
                self.steps.extend([
                    Step::Create(path.clone(), id),
                    Step::Append(id, bytes),
                    Step::Sync(id),
                ]);
                self.names.insert(path, id);
            }
        }
        self.steps.push(Step::SyncDir(dir.to_owned()));
    }
}

impl Disk for RecordingDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        SystemDisk.create_dir(path)?;
        self.record.lock().steps.push(Step::CreateDir(path.to_owned()));
        Ok(())
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = SystemDisk.create(path)?;
        let mut record = self.record.lock();
        let id = record.files;
        record.files += 1;
        record.names.insert(path.to_owned(), id);
        record.steps.push(Step::Create(path.to_owned(), id));
        Ok(Arc::new(RecordingFile { id, file, record: self.record.clone() }))
    }

    fn reopen(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = SystemDisk.reopen(path)?;
        let id = self.record.lock().names[path];
        Ok(Arc::new(RecordingFile { id, file, record: self.record.clone() }))
    }

    fn truncate(&self, path: &Path, len: u64) -> io::Result<()> {
        SystemDisk.truncate(path, len)?;
        let mut record = self.record.lock();
        let id = record.names[path];
        record.steps.push(Step::Truncate(id, len as usize));
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        SystemDisk.rename(from, to)?;
        let mut record = self.record.lock();
        let id = record.names.remove(from).unwrap();
        record.names.insert(to.to_owned(), id);
        record.steps.push(Step::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        SystemDisk.remove(path)?;
        let mut record = self.record.lock();
        record.names.remove(path);
        record.steps.push(Step::Remove(path.to_owned()));
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.record.lock().steps.push(Step::SyncDir(path.to_owned()));
        Ok(())
    }
}

#[derive(Debug)]
struct RecordingFile {
    id: usize,
    file: Arc<dyn DiskFile>,
    record: Arc<Mutex<Record>>,
}

impl DiskFile for RecordingFile {
    fn append(&self, parts: &[&[u8]]) -> io::Result<()> {
        self.file.append(parts)?;
        self.record.lock().steps.push(Step::Append(self.id, parts.concat()));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.record.lock().steps.push(Step::Sync(self.id));
        Ok(())
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct QuietDisk;

#[derive(Debug)]
struct QuietFile(Arc<dyn DiskFile>);

impl Disk for QuietDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        SystemDisk.create_dir(path)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(QuietFile(SystemDisk.create(path)?)))
    }

    fn reopen(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(QuietFile(SystemDisk.reopen(path)?)))
    }

    fn truncate(&self, path: &Path, len: u64) -> io::Result<()> {
        SystemDisk.truncate(path, len)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        SystemDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        SystemDisk.remove(path)
    }

    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
}

impl DiskFile for QuietFile {
    fn append(&self, parts: &[&[u8]]) -> io::Result<()> {
        self.0.append(parts)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug, Default)]
struct DiskState {
    files: BTreeMap<usize, Bytes>,
    cached: BTreeMap<PathBuf, Name>,
    durable: BTreeMap<PathBuf, Name>,
    pending: Vec<NameChange>,
}

#[derive(Debug, Clone, Default)]
struct Bytes {
    cached: Vec<u8>,
    durable: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    Dir,
    File(usize),
}

#[derive(Debug, Clone)]
struct NameChange {
    removed: Option<PathBuf>,
    added: Option<(PathBuf, Name)>,
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<PathBuf, Name>) {
        if let Some(path) = &self.removed {
            names.remove(path);
        }
        names.extend(self.added.clone());
    }

    fn is_in(&self, dir: &Path) -> bool {
        self.removed
            .iter()
            .chain(self.added.iter().map(|(path, _)| path))
            .any(|path| path.parent() == Some(dir))
    }
}

impl DiskState {
    fn take(&mut self, step: &Step) {
        match step {
            Step::CreateDir(path) if self.cached.contains_key(path) => {}
            Step::CreateDir(path) => self.change(None, Some((path.clone(), Name::Dir))),
            Step::Create(path, id) => {
                self.files.insert(*id, Bytes::default());
                self.change(None, Some((path.clone(), Name::File(*id))));
            }
            Step::Append(id, bytes) => self.file(*id).cached.extend_from_slice(bytes),
            Step::Truncate(id, len) => self.file(*id).cached.truncate(*len),
            Step::Sync(id) => {
                let file = self.file(*id);
                file.durable = file.cached.clone();
            }
            Step::Rename(from, to) => {
                let name = self.cached[from];
                self.change(Some(from.clone()), Some((to.clone(), name)));
            }
            Step::Remove(path) => self.change(Some(path.clone()), None),
            Step::SyncDir(dir) => {
                let (synced, pending) =
                    self.pending.drain(..).partition(|change| change.is_in(dir));
                self.pending = pending;
                let synced: Vec<NameChange> = synced;
                synced.iter().for_each(|change| change.apply(&mut self.durable));
            }
            Step::Note(_) => {}
        }
    }

    fn file(&mut self, id: usize) -> &mut Bytes {
        self.files.get_mut(&id).unwrap()
    }

    fn change(&mut self, removed: Option<PathBuf>, added: Option<(PathBuf, Name)>) {
        let change = NameChange { removed, added };
        change.apply(&mut self.cached);
        self.pending.push(change);
    }
}

/// Manifests that were durable, the oldest first.
pub(crate) fn durable_manifests(steps: &[Step], root: &Path) -> Vec<Vec<u8>> {
    let mut contents: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
    let (mut written, mut renamed, mut durable) = (None, None, Vec::new());
    for step in steps {
        match step {
            Step::Create(path, id) if *path == root.join("manifest.next") => written = Some(*id),
            Step::Append(id, bytes) if Some(*id) == written => {
                contents.entry(*id).or_default().extend_from_slice(bytes)
            }
            Step::Rename(_, to) if *to == root.join("manifest") => renamed = written,
            Step::SyncDir(dir) if dir == root => {
                durable.extend(renamed.take().and_then(|id| contents.remove(&id)))
            }
            _ => {}
        }
    }
    durable
}

/// The manifest that readers have seen last, durable or not.
pub(crate) fn visible_manifest(steps: &[Step], root: &Path) -> Option<Vec<u8>> {
    let renamed = |step: &Step| matches!(step, Step::Rename(_, to) if *to == root.join("manifest"));
    let last = steps.iter().rposition(renamed)?;
    let mut with_sync = steps[..=last].to_vec();
    with_sync.push(Step::SyncDir(root.to_owned()));
    durable_manifests(&with_sync, root).pop()
}

pub(crate) fn cut(steps: &[Step], seed: u64, from: &Path, to: &Path) {
    let mut platter = DiskState::default();
    steps.iter().for_each(|step| platter.take(step));
    let mut random = SplitMix64(seed);
    let fate = random.roll(4);
    let mut names = platter.durable.clone();
    for change in &platter.pending {
        if fate == 0 || fate > 1 && random.roll(2) == 0 {
            change.apply(&mut names);
        }
    }
    for (path, name) in names {
        let Ok(below) = path.strip_prefix(from) else { continue };
        let path = to.join(below);
        match name {
            Name::Dir => std::fs::create_dir_all(&path).unwrap(),
            Name::File(id) => {
                if path.parent().is_some_and(Path::is_dir) {
                    std::fs::write(
                        &path,
                        bytes_after_power_cut(&platter.files[&id], fate, &mut random),
                    )
                    .unwrap();
                }
            }
        }
    }
}

fn bytes_after_power_cut(file: &Bytes, fate: u64, random: &mut SplitMix64) -> Vec<u8> {
    let Bytes { cached, durable } = file;
    if !cached.starts_with(durable) {
        return if random.roll(2) == 0 { cached.clone() } else { durable.clone() };
    }
    let loose = (cached.len() - durable.len()) as u64;
    let kept = durable.len() + random.roll(loose + 1) as usize;
    match (fate, random.roll(4)) {
        (0, _) => cached.clone(),
        (1, _) => durable.clone(),
        (_, 0) => cached[..kept].to_vec(),
        (_, 1) => [&cached[..kept], &vec![0; cached.len() - kept]].concat(),
        (_, 2) => {
            let mut bytes = cached.clone();
            let end = (kept + 512).min(bytes.len());
            bytes[kept..end].fill(0);
            bytes
        }
        _ => {
            let mut bytes = cached.clone();
            bytes[kept..].iter_mut().for_each(|b| *b = random.roll(256) as u8);
            bytes
        }
    }
}
