//! Which open file I/O goes to: the one that a stateid names, or one opened for an anonymous
//! stateid and kept for a while.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use vouch_nfs4::{Stateid, Status};
use vouch_vfs::{Access, Caller, Error, Leniency, OpenAccess, OpenFile};

use crate::job::{JobProgress, Steps};
use crate::observer::{Lost, Totals};
use crate::op::FREED_LEN_LONG;
use crate::state::{FileKey, Io, IoGrant, Loss};
use crate::stop::Stop;
use crate::walk::{FileRef, Walk};
use crate::{ConnectionId, Effect, ExportId, Flavour, Job, Now, Observer, Principal, Server};

/// An open file as state keeps it.
pub(crate) type OpenHandle = Arc<Held>;

/// An open file, and with whose rights it was opened.
pub(crate) struct Held {
    open: Arc<dyn OpenFile>,
    opener: Arc<Caller>,
    tally: Arc<Tally>,
    /// Where it was opened from.
    address: IpAddr,
    /// Where it came from, if the observer wants to know how it ends.
    origin: Option<Arc<Origin>>,
}

/// Who opened what. The client may be gone when that is told.
pub(crate) struct Origin {
    connection: ConnectionId,
    peer: SocketAddr,
    principal: Principal,
    flavour: Flavour,
    enctype: Option<u32>,
    minor: u32,
    file: FileRef,
}

/// Who uses an open file, and by what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UsedBy {
    /// Who opened it, by that open.
    Opener,
    /// The same, by the delegation that came with it: for opens that the server is not told of.
    Delegation,
    /// Somebody else, by the opener's stateid.
    Another,
}

/// What was read and written by it. Goes with the open.
pub(crate) struct Tally {
    since_ms: u64,
    read: AtomicU64,
    written: AtomicU64,
    /// Whether its delegation was read and written by, since the open or the last close.
    delegation_used: [AtomicBool; 2],
}

impl Tally {
    pub(crate) fn add(&self, read: u64, written: u64) {
        for (sum, bytes) in [(&self.read, read), (&self.written, written)] {
            // Others may be at it, so even nothing would cost the line of the cache that it is in.
            if bytes > 0 {
                sum.fetch_add(bytes, Ordering::Relaxed);
            }
        }
    }

    /// Whether a use of the file is one of which no OPEN has told: any of who didn't open it; of
    /// the delegation the first to read and the first to write, since the open or
    /// the last close, as an open that the server is not told of. `writes`: 1, or 0.
    pub(crate) fn is_unopened(&self, by: UsedBy, writes: usize) -> bool {
        match by {
            UsedBy::Opener => false,
            UsedBy::Delegation => !self.delegation_used[writes].swap(true, Ordering::Relaxed),
            UsedBy::Another => true,
        }
    }

    /// The sums, which begin anew.
    pub(crate) fn take(&self, now_ms: u64) -> Totals {
        let take = |sum: &AtomicU64| sum.swap(0, Ordering::Relaxed);
        self.delegation_used.iter().for_each(|used| used.store(false, Ordering::Relaxed));
        Totals { read: take(&self.read), written: take(&self.written), open_ms: now_ms.saturating_sub(self.since_ms) }
    }
}

impl Held {
    /// Of an open that has a stateid.
    pub(crate) fn new(open: Arc<dyn OpenFile>, walk: &Walk<'_>, file: &FileRef) -> OpenHandle {
        let origin = || Origin {
            connection: walk.connection.id(),
            peer: walk.connection.peer(),
            principal: walk.principal.clone(),
            flavour: walk.flavour,
            enctype: walk.enctype,
            minor: walk.minor,
            file: file.clone(),
        };
        let origin = walk.tracks.then(|| Arc::new(origin()));
        Arc::new(Held { origin, ..Held::nameless(open, &file.grant.caller, walk) })
    }

    fn nameless(open: Arc<dyn OpenFile>, opener: &Arc<Caller>, walk: &Walk<'_>) -> Held {
        let since_ms = walk.now.mono_ms;
        let tally = Arc::new(Tally { since_ms, read: AtomicU64::new(0), written: AtomicU64::new(0), delegation_used: Default::default() });
        Held { open, opener: opener.clone(), tally, address: walk.connection.peer().ip(), origin: None }
    }

    /// In the place of another, for more than that was opened for.
    pub(crate) fn widened(open: Arc<dyn OpenFile>, opener: &Arc<Caller>, before: &Held) -> OpenHandle {
        let (tally, origin) = (before.tally.clone(), before.origin.clone());
        Arc::new(Held { open, opener: opener.clone(), tally, address: before.address, origin })
    }

    /// Tells the observer that it ended otherwise than by its client's word.
    pub(crate) fn tell_lost(&self, observer: &dyn Observer, delegation: bool, why: Loss, now_ms: u64) {
        let Some(origin) = &self.origin else { return };
        let grant = &origin.file.grant;
        observer.lost(&Lost {
            connection: origin.connection,
            peer: origin.peer,
            principal: &origin.principal,
            flavour: origin.flavour,
            enctype: origin.enctype,
            minor: origin.minor,
            export: &grant.site.export,
            caller: &grant.caller,
            file: &origin.file.id,
            delegation,
            totals: self.tally.take(now_ms),
            why,
        });
    }

    /// What was read and written by it.
    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Whether it was opened with these rights.
    pub(crate) fn is_by(&self, caller: &Arc<Caller>) -> bool {
        Arc::ptr_eq(&self.opener, caller) || self.opener == *caller
    }

    /// The open file.
    pub(crate) fn file(&self) -> &dyn OpenFile {
        &*self.open
    }
}

/// Open files that are let go of. What would take its time is done by a thread that may sleep: with
/// the last that has it open go the blocks of a file without a name, and who ends another's
/// thousands of opens has his own call to answer.
#[derive(Default)]
pub(crate) struct Releases {
    closed: usize,
    rest: Vec<Held>,
}

/// So many are closed at once.
const CLOSES_AT_ONCE: usize = 256;

impl Releases {
    pub(crate) fn add(&mut self, open: OpenHandle, effects: &mut Vec<Effect>) {
        let Ok(held) = Arc::try_unwrap(open) else { return };
        if self.closed >= CLOSES_AT_ONCE {
            return self.rest.push(held);
        }
        self.closed += 1;
        if held.open.frees_when_closed() >= FREED_LEN_LONG {
            effects.push(Effect::Background(Job::new(held.address, Closing(vec![held]))));
        }
    }

    /// There are no more.
    pub(crate) fn end(self, effects: &mut Vec<Effect>) {
        if let Some(first) = self.rest.first() {
            effects.push(Effect::Background(Job::new(first.address, Closing(self.rest))));
        }
    }
}

struct Closing(Vec<Held>);

impl Steps for Closing {
    fn step(&mut self, _: &Server, _: Now) -> JobProgress {
        self.0.truncate(self.0.len().saturating_sub(CLOSES_AT_ONCE));
        if self.0.is_empty() { JobProgress::Done(Vec::new()) } else { JobProgress::More }
    }
}

/// What a file is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    Write,
    /// Whatever it is open for.
    Any,
}

/// The open file that `stateid` lets be used. Special stateids open with the caller's own rights
/// (RFC 8881, section 8.2.3).
pub(crate) fn open_for(walk: &mut Walk<'_>, file: &FileRef, stateid: &Stateid, purpose: Use) -> Result<OpenHandle, Stop> {
    let stateid = walk.substituted(stateid)?;
    let io = match purpose {
        Use::Read | Use::Any => Io::Read,
        Use::Write => Io::Write,
    };
    let (client, key, now) = (walk.client_of_session(), file.key(), walk.now.mono_ms);
    let caller = if walk.minor == 0 { walk.proven() } else { None };
    let granted = walk.state(|state| {
        if client.is_none() {
            // Whether the lease is renewed by it. Who may read and write is told by rights, whoever has opened
            // the file.
            let _ = state.heard_by(&stateid, caller.as_ref(), now);
        }
        match state.io(client, &stateid, &key, io, now) {
            Err(Status::OPENMODE) if purpose == Use::Any => state.io(client, &stateid, &key, Io::Write, now),
            granted => granted,
        }
    });
    let granted = granted.map_err(|status| match file.files().attributes(&file.id, walk.patience) {
        // The export shows another directory now: that the file is gone says more than that its state is.
        Err(Error::Stale) if status == Status::BAD_STATEID => Status::STALE,
        _ => status,
    })?;
    let delegated = matches!(granted, IoGrant::Delegated(_));
    match granted {
        IoGrant::Open(held) | IoGrant::Delegated(held) => {
            // A stateid is no key: whoever isn't the opener needs the rights himself (RFC 8881, section 8.2.4
            // and 18.32.3: ACCESS).
            let opener = held.is_by(&file.grant.caller);
            let by = match (opener, delegated) {
                (false, _) => UsedBy::Another,
                (true, true) => UsedBy::Delegation,
                (true, false) => UsedBy::Opener,
            };
            // Before the rights: what is refused was tried.
            match purpose {
                Use::Read if walk.tracks => walk.used[0] = Some((held.clone(), by)),
                Use::Write if walk.tracks => walk.used[1] = Some((held.clone(), by)),
                _ => {}
            }
            if by == UsedBy::Another && !walk.is_machine_for(&file.grant) {
                rights(walk, file, purpose)?;
            }
            Ok(held)
        }
        IoGrant::Anonymous => {
            walk.tell();
            anonymous(walk, file, purpose)
        }
    }
}

/// An open file for COMMIT, which carries no stateid: one of those that there are, or a new one.
/// RFC 8881, section 18.3.4: ACCESS for whom the file is not to write; as Linux's server has it, it
/// is to write for its owner whatever its mode. Who has it open for writing was let in, and may
/// make durable what he wrote.
pub(crate) fn open_to_commit(walk: &mut Walk<'_>, file: &FileRef) -> Result<OpenHandle, Stop> {
    let (key, caller) = (file.key(), &file.grant.caller);
    let client = walk.client_of_session();
    if let Some(own) = walk.state(|state| state.open_to_write(client, &key, |held| held.is_by(caller))) {
        return Ok(own);
    }
    let is_machine = walk.is_machine_for(&file.grant);
    match walk.state(|state| state.any_open(&key)) {
        Some(open) if is_machine => Ok(open),
        Some(open) => {
            if caller.uid != open.file().attributes()?.uid {
                rights(walk, file, Use::Write)?;
            }
            Ok(open)
        }
        None => anonymous(walk, file, Use::Write),
    }
}

fn rights(walk: &Walk<'_>, file: &FileRef, purpose: Use) -> Result<(), Stop> {
    let wanted = match purpose {
        // As Linux does: what may be executed may be read for it.
        Use::Read | Use::Any => Access::READ | Access::EXECUTE,
        Use::Write => Access::MODIFY,
    };
    let has = file.files().access(&file.grant.caller, &file.id, wanted, walk.patience)?;
    if (has & wanted) == Access::default() { Err(Status::ACCESS.into()) } else { Ok(()) }
}

fn anonymous(walk: &mut Walk<'_>, file: &FileRef, purpose: Use) -> Result<OpenHandle, Stop> {
    let access = match purpose {
        Use::Read | Use::Any => OpenAccess { read: true, write: false },
        Use::Write => OpenAccess { read: false, write: true },
    };
    let (key, caller) = (file.key(), &file.grant.caller);
    if let Some(open) = walk.server.anonymous().get(&key, caller, access, walk.now.mono_ms) {
        return Ok(open);
    }
    let opened =
        file.files().open(caller, &file.id, access, Leniency::Owner, walk.patience).map_err(|error| wrong_type(walk.minor, error))?;
    let open = Arc::new(Held::nameless(opened, caller, walk));
    walk.server.anonymous().put(key, caller.clone(), access, open.clone(), walk.now.mono_ms);
    if walk.server.tree().generation != walk.tree.generation {
        // Those of exports that are gone may have been closed before.
        walk.server.anonymous().forget_exports(&[key.export]);
    }
    Ok(open)
}

/// RFC 8881, section 18.22.3 and others: a directory is ISDIR, a symbolic link SYMLINK, anything
/// else WRONG_TYPE; RFC 7530 has INVAL for both.
pub(crate) fn wrong_type(minor: u32, error: Error) -> Stop {
    match error {
        Error::IsSymlink | Error::WrongType if minor == 0 => Status::INVAL.into(),
        Error::IsSymlink => Status::SYMLINK.into(),
        error => error.into(),
    }
}

/// Files that were opened for anonymous stateids. Small: clients that open files don't use it.
#[derive(Default)]
pub(crate) struct Anonymous {
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
    /// Whether it is this file, opened by this export: by another it may be open for more.
    fn of(&self, file: &FileKey) -> bool {
        self.file.export == file.export && self.file == *file
    }
}

/// Open files that are kept: each is looked at to find one.
const ENTRIES_MAX: usize = 64;
/// How long an unused one is kept, milliseconds: rights are checked when it is opened, so not for
/// long.
const IDLE_MS_MAX: u64 = 2_000;

impl Anonymous {
    fn get(&self, file: &FileKey, caller: &Arc<Caller>, access: OpenAccess, now_ms: u64) -> Option<OpenHandle> {
        let mut entries = self.entries.lock();
        let entry = entries
            .iter_mut()
            .find(|entry| entry.of(file) && entry.access == access && (Arc::ptr_eq(&entry.caller, caller) || entry.caller == *caller))?;
        if entry.used_ms.saturating_add(IDLE_MS_MAX) <= now_ms {
            return None;
        }
        Some(entry.open.clone())
    }

    fn put(&self, file: FileKey, caller: Arc<Caller>, access: OpenAccess, open: OpenHandle, now_ms: u64) {
        let mut entries = self.entries.lock();
        entries.retain(|entry| !(entry.of(&file) && entry.access == access && entry.caller == caller));
        let dropped = if entries.len() >= ENTRIES_MAX { entries.pop_front() } else { None };
        entries.push_back(Entry { file, caller, access, open, used_ms: now_ms });
        drop(entries);
        drop(dropped);
    }

    /// Closes what has aged.
    pub(crate) fn clean(&self, now_ms: u64) {
        let old: Vec<Entry> = {
            let mut entries = self.entries.lock();
            let all = std::mem::take(&mut *entries);
            let (kept, old) = all.into_iter().partition(|entry| entry.used_ms.saturating_add(IDLE_MS_MAX) > now_ms);
            *entries = kept;
            old.into()
        };
        drop(old);
    }

    /// Closes those of exports that are gone.
    pub(crate) fn forget_exports(&self, gone: &[ExportId]) {
        self.entries.lock().retain(|entry| !gone.contains(&entry.file.export));
    }

    /// Closes those of a file that is gone, so that its blocks are freed.
    pub(crate) fn forget(&self, file: &FileKey) {
        let mut entries = self.entries.lock();
        if entries.iter().any(|entry| entry.file == *file) {
            entries.retain(|entry| entry.file != *file);
        }
    }
}
