use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use vouch_vfs::{Caller, DirectoryWatch, OpenAccess, OpenFile};

use super::file_ref::FileRef;
use crate::background_job::{JobProgress, Steps};
use crate::observer::interface::{EndedState, Opener, Totals};
use crate::state::{FileKey, Loss};
use crate::{Effect, ExportId, Job, Now, Observer, Server};

pub(crate) type OpenHandle = Arc<OpenState>;

pub(crate) struct OpenState {
    open: Held,
    opener: Arc<Caller>,
    tally: Arc<UsageCounter>,
    address: IpAddr,
    origin: Option<Arc<(Opener, FileRef)>>,
}

pub(crate) enum Held {
    File(Arc<dyn OpenFile>),
    /// By a directory delegation, for as long as it lasts.
    #[expect(dead_code, reason = "dropped at the end")]
    Directory(DirectoryWatch),
}

impl Held {
    fn remote_system(&self) -> Option<vouch_vfs::SystemId> {
        match self {
            Held::File(file) => file.remote_system(),
            Held::Directory(_) => None,
        }
    }

    fn frees_when_closed(&self) -> u64 {
        match self {
            Held::File(file) => file.frees_when_closed(),
            Held::Directory(_) => 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UsedBy {
    Opener,
    Delegation,
    Another,
}

pub(crate) struct UsageCounter {
    since_ms: u64,
    read: AtomicU64,
    written: AtomicU64,
    delegation_used: [AtomicBool; 2],
}

impl UsageCounter {
    pub(crate) fn add(&self, read: u64, written: u64) {
        for (sum, bytes) in [(&self.read, read), (&self.written, written)] {
            if bytes > 0 {
                sum.fetch_add(bytes, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn is_unopened(&self, by: UsedBy, writes: usize) -> bool {
        match by {
            UsedBy::Opener => false,
            UsedBy::Delegation => !self.delegation_used[writes].swap(true, Ordering::Relaxed),
            UsedBy::Another => true,
        }
    }

    pub(crate) fn take(&self, now_ms: u64) -> Totals {
        let take = |sum: &AtomicU64| sum.swap(0, Ordering::Relaxed);
        self.delegation_used.iter().for_each(|used| used.store(false, Ordering::Relaxed));
        Totals {
            read: take(&self.read),
            written: take(&self.written),
            open_ms: now_ms.saturating_sub(self.since_ms),
        }
    }
}

impl OpenState {
    pub(crate) fn new(
        open: Held,
        opener: &Arc<Caller>,
        address: IpAddr,
        since_ms: u64,
        origin: Option<(Opener, FileRef)>,
    ) -> OpenState {
        let tally = Arc::new(UsageCounter {
            since_ms,
            read: AtomicU64::new(0),
            written: AtomicU64::new(0),
            delegation_used: Default::default(),
        });
        OpenState { open, opener: opener.clone(), tally, address, origin: origin.map(Arc::new) }
    }

    pub(crate) fn widened(
        open: Arc<dyn OpenFile>,
        opener: &Arc<Caller>,
        before: &OpenState,
    ) -> OpenHandle {
        let (tally, origin) = (before.tally.clone(), before.origin.clone());
        let (open, address) = (Held::File(open), before.address);
        Arc::new(OpenState { open, opener: opener.clone(), tally, address, origin })
    }

    fn report_lost(&self, lost: &LostOpen, may_block: bool) {
        let Some(origin) = &self.origin else { return };
        let (opener, FileRef { grant, id, .. }) = &**origin;
        lost.observer.state_ended(&EndedState {
            opener,
            export: &grant.site.export,
            caller: &grant.caller,
            file: id,
            delegation: lost.delegation,
            totals: self.tally.take(lost.now_ms),
            why: lost.why,
            may_block,
        });
    }

    pub(crate) fn usage(&self) -> &UsageCounter {
        &self.tally
    }

    pub(crate) fn is_by(&self, caller: &Arc<Caller>) -> bool {
        Arc::ptr_eq(&self.opener, caller) || self.opener == *caller
    }

    pub(crate) fn file(&self) -> &dyn OpenFile {
        match &self.open {
            Held::File(file) => &**file,
            Held::Directory(_) => unreachable!("the state grants no I/O under such a delegation"),
        }
    }
}

#[derive(Default)]
pub(crate) struct CloseQueue {
    closed: usize,
    rest: Vec<OpenState>,
}

const CLOSES_AT_ONCE: usize = 256;

impl CloseQueue {
    pub(crate) fn add(&mut self, open: OpenHandle, effects: &mut Vec<Effect>) {
        let Ok(held) = Arc::try_unwrap(open) else { return };
        if let Some(remote) = held.open.remote_system() {
            return effects.push(Effect::Background(Job::new(
                held.address,
                Some(remote),
                Closing(vec![held]),
            )));
        }
        if self.closed >= CLOSES_AT_ONCE {
            return self.rest.push(held);
        }
        self.closed += 1;
        if held.open.frees_when_closed() >= FREED_LEN_LONG {
            effects.push(Effect::Background(Job::new(held.address, None, Closing(vec![held]))));
        }
    }

    pub(crate) fn end(self, effects: &mut Vec<Effect>) {
        if let Some(first) = self.rest.first() {
            effects.push(Effect::Background(Job::new(first.address, None, Closing(self.rest))));
        }
    }
}

/// The observer may ask the file system for the path, so the record of a remote file is made on the
/// thread that closes it.
pub(crate) fn end_lost(mut lost: LostOpen, releases: &mut CloseQueue, effects: &mut Vec<Effect>) {
    let held = lost.file.clone();
    match held.open.remote_system().filter(|_| held.origin.is_some()) {
        Some(remote) => {
            effects.push(Effect::Background(Job::new(held.address, Some(remote), lost)))
        }
        None => {
            lost.report(true);
            drop(lost);
            releases.add(held, effects);
        }
    }
}

/// An open file whose state the server has ended. It is reported once.
pub(crate) struct LostOpen {
    file: OpenHandle,
    delegation: bool,
    why: Loss,
    now_ms: u64,
    observer: Arc<dyn Observer>,
    is_reported: bool,
}

impl LostOpen {
    pub(crate) fn new(
        file: OpenHandle,
        delegation: bool,
        why: Loss,
        now_ms: u64,
        observer: Arc<dyn Observer>,
    ) -> LostOpen {
        LostOpen { file, delegation, why, now_ms, observer, is_reported: false }
    }

    fn report(&mut self, may_block: bool) {
        if !std::mem::replace(&mut self.is_reported, true) {
            self.file.report_lost(self, may_block);
        }
    }
}

/// A server that stops drops its queue of background jobs.
impl Drop for LostOpen {
    fn drop(&mut self) {
        self.report(false);
    }
}

impl Steps for LostOpen {
    fn step(&mut self, _: &Server, _: Now) -> JobProgress {
        self.report(true);
        JobProgress::Done(Vec::new())
    }
}

struct Closing(Vec<OpenState>);

impl Steps for Closing {
    fn step(&mut self, _: &Server, _: Now) -> JobProgress {
        self.0.truncate(self.0.len().saturating_sub(CLOSES_AT_ONCE));
        if self.0.is_empty() { JobProgress::Done(Vec::new()) } else { JobProgress::More }
    }
}

#[derive(Default)]
pub(crate) struct AnonymousOpens {
    entries: Mutex<VecDeque<Entry>>,
}

struct Entry {
    file: FileKey,
    caller: Arc<Caller>,
    access: OpenAccess,
    open: OpenHandle,
    used_ms: u64,
}

impl Entry {
    /// Another export may allow more.
    fn of(&self, file: &FileKey) -> bool {
        self.file.export == file.export && self.file == *file
    }
}

const ENTRIES_MAX: usize = 64;
/// Short, because rights are checked only at the open.
const IDLE_MS_MAX: u64 = 2_000;

impl AnonymousOpens {
    pub(crate) fn get(
        &self,
        file: &FileKey,
        caller: &Arc<Caller>,
        access: OpenAccess,
        now_ms: u64,
    ) -> Option<OpenHandle> {
        let mut entries = self.entries.lock();
        let entry = entries.iter_mut().find(|entry| {
            entry.of(file)
                && entry.access == access
                && (Arc::ptr_eq(&entry.caller, caller) || entry.caller == *caller)
        })?;
        if entry.used_ms.saturating_add(IDLE_MS_MAX) <= now_ms {
            return None;
        }
        Some(entry.open.clone())
    }

    /// Returns an entry that it replaces, to be closed by the caller.
    pub(crate) fn put(
        &self,
        file: FileKey,
        caller: Arc<Caller>,
        access: OpenAccess,
        open: OpenHandle,
        now_ms: u64,
    ) -> Vec<OpenHandle> {
        let mut entries = self.entries.lock();
        let mut replaced = take(&mut entries, |entry| {
            entry.of(&file) && entry.access == access && entry.caller == caller
        });
        if entries.len() >= ENTRIES_MAX {
            replaced.extend(entries.pop_front().map(|entry| entry.open));
        }
        entries.push_back(Entry { file, caller, access, open, used_ms: now_ms });
        replaced
    }

    pub(crate) fn clean(&self, now_ms: u64) -> Vec<OpenHandle> {
        take(&mut self.entries.lock(), |entry| entry.used_ms.saturating_add(IDLE_MS_MAX) <= now_ms)
    }

    pub(crate) fn forget_exports(&self, gone: &[ExportId]) {
        let closed = take(&mut self.entries.lock(), |entry| gone.contains(&entry.file.export));
        drop(closed);
    }

    pub(crate) fn forget(&self, file: &FileKey) {
        let mut entries = self.entries.lock();
        if entries.iter().any(|entry| entry.file == *file) {
            let closed = take(&mut entries, |entry| entry.file == *file);
            drop(entries);
            drop(closed);
        }
    }
}

/// A close may wait, so it happens after the lock is released.
fn take(entries: &mut VecDeque<Entry>, is_taken: impl Fn(&Entry) -> bool) -> Vec<OpenHandle> {
    let (taken, kept): (VecDeque<_>, _) = std::mem::take(entries).into_iter().partition(is_taken);
    *entries = kept;
    taken.into_iter().map(|entry| entry.open).collect()
}

/// Freeing this many bytes takes milliseconds.
pub(crate) const FREED_LEN_LONG: u64 = 64 << 20;
