//! Checks every frame against its handle, and every kept revision for completeness.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use vouch_log::merkle::{Hash, verify_inclusion};
use vouch_log::proof::TlogProof;
use vouch_log::revision::revision_entry;
use vouch_tree::{FrameKind, frame};

use crate::frames::{Progress, ProgressFn};
use crate::index::Index;
use crate::layout::pack_name;
use crate::log::{open_log, read_checkpoint};
use crate::manifest::PackMeta;
use crate::marking::{Marks, Walk};
use crate::pack::{PackScan, Scanned};
use crate::view::View;
use crate::{Database, FrameSource, Result, Snapshot};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verified {
    pub packs: u64,
    pub frames: u64,
    pub bytes: u64,
    pub unindexed_frames: u64,
    pub reachable_frames: u64,
    pub revisions: u64,
    /// Of the log.
    pub log_entries: u64,
    pub problems: Vec<String>,
    pub problem_count: u64,
    /// States that the next writer mends.
    pub notes: Vec<String>,
}

impl Verified {
    pub fn is_sound(&self) -> bool {
        self.problem_count == 0
    }
}

impl Database {
    /// On all cores, without a lock. The result has the damage; an error means that the check
    /// cannot run.
    pub fn verify(path: &Path, progress: Option<&ProgressFn<'_>>) -> Result<Verified> {
        let snapshot = Snapshot::open(path)?;
        for _ in 0..ATTEMPTS_MAX {
            let verified = Check::new(&snapshot.view(), &snapshot, progress).run();
            if verified.is_sound() || !snapshot.refresh()? {
                return Ok(verified);
            }
        }
        Ok(Check::new(&snapshot.view(), &snapshot, progress).run())
    }
}

struct Check<'a> {
    view: &'a View,
    snapshot: &'a Snapshot,
    progress: Option<&'a ProgressFn<'a>>,
    found: Marks,
    bytes_done: AtomicU64,
    frames: AtomicU64,
    unindexed: AtomicU64,
    problems: Mutex<(Vec<String>, u64)>,
}

impl<'a> Check<'a> {
    fn new(view: &'a View, snapshot: &'a Snapshot, progress: Option<&'a ProgressFn<'a>>) -> Self {
        let found = Marks::new(view.index());
        let (bytes_done, frames, unindexed) = Default::default();
        Self {
            view,
            snapshot,
            progress,
            found,
            bytes_done,
            frames,
            unindexed,
            problems: Mutex::default(),
        }
    }

    fn index(&self) -> &Index {
        self.view.index()
    }

    fn run(self) -> Verified {
        for segment in &self.index().segments {
            if let Err(error) = segment.verify() {
                self.problem(error.to_string());
            }
        }
        self.check_packs();
        let reachable_frames = self.check_revisions();
        let log_entries = self.check_log();
        let manifest = self.view.manifest();
        let notes = self.snapshot.checkpoint_lag().unwrap_or_else(|error| {
            self.problem(error.to_string());
            None
        });
        let (problems, problem_count) = self.problems.into_inner();
        Verified {
            packs: manifest.packs.len() as u64,
            frames: self.frames.into_inner(),
            bytes: self.bytes_done.into_inner(),
            unindexed_frames: self.unindexed.into_inner(),
            reachable_frames,
            revisions: manifest.revisions.len() as u64,
            log_entries,
            problems,
            problem_count,
            notes: notes.into_iter().collect(),
        }
    }

    fn check_packs(&self) {
        let packs = &self.view.manifest().packs;
        let total = packs.iter().map(|pack| pack.len).sum();
        let next = AtomicUsize::new(0);
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(packs.len());
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while let Some(pack) = packs.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if let Err(error) = self.check_pack(pack) {
                            self.problem(error.to_string());
                        }
                        let done =
                            self.bytes_done.fetch_add(pack.len, Ordering::Relaxed) + pack.len;
                        if let Some(progress) = self.progress {
                            progress(Progress { stage: "hashing", done, total: Some(total) });
                        }
                    }
                });
            }
        });
    }

    fn check_pack(&self, pack: &PackMeta) -> Result<()> {
        let path = self.snapshot.layout().fresh_pack(pack.class, pack.id)?;
        let shown = self.snapshot.path().join("packs").join(pack_name(pack.class, pack.id));
        let Some(mut scan) = PackScan::open(&path, pack.class, &self.view.iv(), pack.len)? else {
            self.problem(format!("{}: not a pack of this database", shown.display()));
            return Ok(());
        };
        loop {
            match scan.next()? {
                Scanned::Record { offset, handle, .. } => {
                    self.frames.fetch_add(1, Ordering::Relaxed);
                    match self.index().position(&handle)? {
                        None => drop(self.unindexed.fetch_add(1, Ordering::Relaxed)),
                        Some(position) => {
                            let place = self.index().entry(position)?.place;
                            if (place.pack, place.offset) == (pack.id, offset) {
                                self.found.set(position);
                            }
                        }
                    }
                }
                Scanned::End => return Ok(()),
                Scanned::Torn => {
                    self.problem(format!(
                        "{}: no whole record at offset {} of {}",
                        shown.display(),
                        scan.whole_len(),
                        pack.len
                    ));
                    return Ok(());
                }
            }
        }
    }

    fn check_revisions(&self) -> u64 {
        let marks = Marks::new(self.index());
        let (index, iv) = (self.index(), self.view.iv());
        let source = FrameFault { check: self, source: self.snapshot };
        let mut walk =
            Walk { index, source: &source, iv, marks: &marks, progress: self.progress, marked: 0 };
        for revision in &self.view.manifest().revisions {
            let walked = walk.mark(&revision.fsinfo, |lack| {
                self.problem(format!(
                    "revision {} needs {:?} frame {}: {}",
                    revision.number, lack.kind, lack.handle, lack.why
                ));
                Ok(())
            });
            if let Err(error) = walked {
                self.problem(format!("revision {}: {error}", revision.number));
            }
        }
        let marked = walk.marked;
        let lost = crate::marking::for_each_entry(index, |position, entry| {
            if marks.has(position) && !self.found.has(position) {
                self.problem(format!(
                    "{:?} frame {} is not where the index has it",
                    entry.place.kind, entry.handle
                ));
            }
            Ok(())
        });
        if let Err(error) = lost {
            self.problem(error.to_string());
        }
        marked
    }

    fn check_log(&self) -> u64 {
        let manifest = self.view.manifest();
        if manifest.evidence_bytes().is_none() {
            return 0;
        }
        let unreadable = || "its evidence cannot be read".to_owned();
        let read = manifest.evidence().ok_or_else(unreadable);
        read.and_then(|evidence| self.read_log(&evidence.proof)).unwrap_or_else(|why| {
            self.problem(format!("the log of revisions: {why}"));
            0
        })
    }

    /// Every entry must match the head that the manifest names, and every kept revision be one.
    fn read_log(&self, proof: &TlogProof) -> std::result::Result<u64, String> {
        let mut reader = open_log(self.snapshot.log_files(), &proof.checkpoint)
            .map_err(|error| error.to_string())?;
        let mut missing = HashMap::new();
        for revision in &self.view.manifest().revisions {
            // Missing frames are reported by the revision's own check.
            let Ok(Some(stored)) = self.snapshot.get(&revision.fsinfo) else { continue };
            let Ok(signed) = frame::payload(FrameKind::Fsinfo, &stored) else { continue };
            missing.insert(Hash::leaf(&revision_entry(&signed)).0, revision.number);
        }
        let head = self.view.head().map(|head| Hash::leaf(&revision_entry(head)));
        let size = reader.size();
        let is_proven = head.is_some_and(|head| {
            let root = proof.checkpoint.checkpoint().root;
            verify_inclusion(head, proof.index, size, &proof.hashes, root).is_ok()
        });
        if !is_proven {
            self.problem("the log of revisions does not prove the newest revision".to_owned());
        }
        let file =
            read_checkpoint(&self.snapshot.log_files()).map_err(|error| error.to_string())?;
        if let Some(file) =
            file.as_ref().map(|file| file.checkpoint()).filter(|file| file.size <= size)
        {
            let root = reader.root_at(file.size).map_err(|error| error.to_string())?;
            if root != file.root {
                self.problem("log/checkpoint is of another history of the log".to_owned());
            }
        }
        let mut index = 0;
        while index < size {
            let (first, entries) = reader.bundle(index).map_err(|error| error.to_string())?;
            index = first + entries.len() as u64;
            for entry in entries {
                missing.remove(&Hash::leaf(&entry).0);
            }
        }
        let mut missing: Vec<u64> = missing.into_values().collect();
        missing.sort_unstable();
        for number in missing {
            self.problem(format!("the log of revisions lacks revision {number}"));
        }
        Ok(size)
    }

    fn problem(&self, line: String) {
        let mut problems = self.problems.lock();
        problems.1 += 1;
        if problems.0.len() < PROBLEM_COUNT_MAX {
            problems.0.push(line);
        }
    }
}

struct FrameFault<'a> {
    check: &'a Check<'a>,
    source: &'a Snapshot,
}

impl FrameSource for FrameFault<'_> {
    fn get(&self, handle: &vouch_tree::BlockHandle) -> Result<Option<Vec<u8>>> {
        let found = self
            .check
            .index()
            .position(handle)?
            .is_some_and(|position| self.check.found.has(position));
        if found { self.source.get(handle) } else { Ok(None) }
    }
}

const ATTEMPTS_MAX: usize = 3;
const PROBLEM_COUNT_MAX: usize = 100;
