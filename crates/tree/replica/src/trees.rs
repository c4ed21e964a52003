//! The database of each HOSTID, and its prepared answer to GETFSINFO.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use vouch_log::evidence::is_evidence;
use vouch_oncrpc::{Accepted, Reply};
use vouch_tree::protocol::{COMPANIONS_LEN_MAX, COMPANIONS_MAX, FsinfoOffer, GetFsinfoResult};
use vouch_tree::statement::{STATEMENTS_MAX, revocation_reason};
use vouch_tree::{BlockHandle, HostId, SignedFsinfo};
use vouch_tree_cache::{CachedRange, MissingFrames, TreeCache};
use vouch_tree_store::{
    Database, FrameSource as _, Location, PackFile, Snapshot, View, is_bucket_address,
};
use vouch_xdr::Xdr as _;

use super::damage::Damage;
use super::output::Span;
use super::scrub::ScrubCounts;

#[derive(Debug, Clone)]
pub(super) struct ServedFile(pub(super) Arc<PackFile>);

impl PartialEq for ServedFile {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl AsFd for ServedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Changes only when a missing database appears.
#[derive(Debug, Default)]
pub(super) struct Trees {
    by_hostid: RwLock<HashMap<HostId, Arc<Tree>>>,
}

impl Trees {
    pub(super) fn get(&self, hostid: &HostId) -> Option<Arc<Tree>> {
        self.by_hostid.read().get(hostid).cloned()
    }

    pub(super) fn all(&self) -> Vec<Arc<Tree>> {
        let mut all: Vec<_> = self.by_hostid.read().values().cloned().collect();
        all.sort_by_key(|tree| tree.hostid);
        all
    }

    pub(super) fn only(&self) -> Option<Arc<Tree>> {
        let by_hostid = self.by_hostid.read();
        by_hostid.values().next().filter(|_| by_hostid.len() == 1).cloned()
    }

    /// Errors: the path of an existing database of the same tree.
    pub(super) fn add(&self, tree: Tree) -> Result<(), PathBuf> {
        let mut by_hostid = self.by_hostid.write();
        if let Some(there) = by_hostid.get(&tree.hostid) {
            return Err(there.path.clone());
        }
        by_hostid.insert(tree.hostid, Arc::new(tree));
        Ok(())
    }

    /// The tree counts as broken until the bytes are readable.
    pub(super) fn note_unreadable(&self, place: &Span<ServedFile>, error: &io::Error) {
        let pack = place.file.0.path();
        // A pack is in its database's directory.
        let tree = self.all().into_iter().find(|tree| pack.starts_with(tree.snapshot.local_dir()));
        let Some(tree) = tree else {
            tracing::error!(pack = %pack.display(), %error, "a pack ends early or can't be read; a connection is closed");
            return;
        };
        if tree.note(Damage::of_pack(place, error)) {
            let (path, pack) = (tree.path.display(), pack.display());
            tracing::error!(%path, %pack, offset = place.offset, %error, "a pack ends early or can't be read; connections are closed");
        }
        tree.snapshot.reopen(&place.file.0);
    }
}

pub(super) enum Located {
    Here(Span<ServedFile>),
    /// The frame is in the tree, not in the cache.
    Absent(MissingFrames),
    Missing,
}

#[derive(Debug)]
pub(super) struct Tree {
    hostid: HostId,
    path: PathBuf,
    snapshot: Snapshot,
    /// Its directory is the database: the packs are incomplete.
    pub(super) cache: Option<Arc<TreeCache>>,
    state: RwLock<State>,
    /// Last look at the manifest for a request.
    looked: Mutex<Instant>,
    /// A request found a new revision, and [`Tree::refresh`] has not reported it yet.
    has_news: AtomicBool,
    scrubbed: ScrubCounts,
    /// Received statements, in addition to those of the database.
    received: RwLock<Vec<Vec<u8>>>,
}

#[derive(Debug)]
struct State {
    offer: Arc<Offer>,
    trouble: Option<String>,
    packs_checked: Instant,
    pack_trouble: Option<String>,
    damage: Option<Damage>,
}

#[derive(Debug)]
pub(super) struct Offer {
    pub(super) revision: Option<OfferedRevision>,
    /// Why the key is revoked: clients refuse the tree.
    pub(super) revoked: Option<String>,
    /// Records without and with companions. The first 8 bytes are the record mark and room for the
    /// xid.
    plain: Option<Arc<[u8]>>,
    with_companions: Option<Arc<[u8]>>,
    /// Manifest for HTTP clients, with the received statements, and its entity tag.
    pub(super) manifest: Arc<[u8]>,
    pub(super) manifest_tag: String,
    /// Of the log, as text.
    pub(super) checkpoint: Option<Arc<[u8]>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OfferedRevision {
    pub(super) number: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) files: u64,
    pub(super) bytes: u64,
}

impl Tree {
    pub(super) fn open(
        path: &Path,
        cache: Option<Arc<TreeCache>>,
    ) -> vouch_tree_store::Result<Self> {
        let snapshot = Database::open_read(path)?;
        // Still served: intact parts are useful, and readers verify.
        let pack_trouble = match cache {
            Some(_) => None,
            None => snapshot.check_packs().err().map(|error| error.to_string()),
        };
        // Replies have the manifest's head. Web servers beside this one have the file.
        if let (None, Some(lag)) = (&cache, snapshot.checkpoint_lag()?) {
            tracing::warn!(path = %path.display(), "{lag}");
        }
        let offer = Arc::new(Offer::new(&snapshot, &[]));
        let state = State {
            offer,
            trouble: pack_trouble.clone(),
            packs_checked: Instant::now(),
            pack_trouble,
            damage: None,
        };
        Ok(Self {
            hostid: snapshot.hostid(),
            path: path.to_owned(),
            snapshot,
            cache,
            state: RwLock::new(state),
            looked: Mutex::new(Instant::now()),
            has_news: AtomicBool::new(false),
            scrubbed: ScrubCounts::default(),
            received: RwLock::default(),
        })
    }

    pub(super) const fn hostid(&self) -> &HostId {
        &self.hostid
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn refresh(&self) -> Result<bool, String> {
        let looked = self.snapshot.refresh().map_err(|error| error.to_string()).and_then(|new| {
            let found = self.snapshot.hostid();
            if found == self.hostid {
                Ok(new)
            } else {
                Err(format!("the database is now that of another tree, {found}"))
            }
        });
        match looked {
            Ok(new) => {
                let new = self.has_news.swap(false, Ordering::AcqRel) || new;
                let (damage, last) = (self.damage(), self.state.read().packs_checked);
                let is_checked = self.cache.is_none();
                let due = is_checked
                    && (new || damage.is_some() || last.elapsed() >= PACKS_CHECK_INTERVAL);
                let checked =
                    due.then(|| self.snapshot.check_packs().err().map(|error| error.to_string()));
                let is_mended = checked == Some(None)
                    && damage.as_ref().is_some_and(|damage| damage.is_mended(&self.snapshot));
                // Serving threads may have noted damage meanwhile.
                let mut state = self.state.write();
                if new {
                    // Made under the lock: another thread may have seen a newer revision.
                    state.offer = Arc::new(Offer::new(&self.snapshot, &self.received.read()));
                }
                if let Some(pack_trouble) = checked {
                    (state.pack_trouble, state.packs_checked) = (pack_trouble, Instant::now());
                }
                if is_mended && state.damage == damage {
                    state.damage = None;
                }
                state.trouble = state
                    .damage
                    .as_ref()
                    .map(ToString::to_string)
                    .or_else(|| state.pack_trouble.clone());
                state.trouble.clone().map_or(Ok(new), Err)
            }
            Err(trouble) => {
                self.state.write().trouble = Some(trouble.clone());
                Err(trouble)
            }
        }
    }

    pub(super) fn log_revocation(&self) {
        if let Some(reason) = &self.offer().revoked {
            tracing::error!(path = %self.path.display(), reason, "the key of this tree is revoked: clients refuse every revision");
        }
    }

    pub(super) fn statements(&self) -> Vec<Vec<u8>> {
        let mut all = self.snapshot.statements();
        all.extend(self.received.read().iter().cloned());
        all
    }

    /// Replaces the received statements, and offers them.
    pub(super) fn take_statements(&self, received: Vec<Vec<u8>>) {
        *self.received.write() = received;
        let mut state = self.state.write();
        state.offer = Arc::new(Offer::new(&self.snapshot, &self.received.read()));
    }

    pub(super) const fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    pub(super) const fn scrubbed(&self) -> &ScrubCounts {
        &self.scrubbed
    }

    pub(super) fn note_scrubbed(&self, pack: &Path, problem: Option<&str>) {
        match problem {
            Some(problem) => {
                let damage = Damage::of_scrub(pack, problem);
                if self.note(damage.clone()) {
                    tracing::error!(path = %self.path.display(), "{damage}; pull or publish again, or restore the pack");
                }
            }
            None => {
                let mut state = self.state.write();
                if state.damage.as_ref().is_some_and(|damage| damage.is_of_scrub(pack)) {
                    state.damage = None;
                    state.trouble = state.pack_trouble.clone();
                }
            }
        }
    }

    pub(super) fn note_unlocatable(&self, handle: &BlockHandle, error: &vouch_tree_store::Error) {
        tracing::error!(path = %self.path.display(), %handle, %error, "frame can't be served");
        self.note(Damage::of_frame(handle, error));
    }

    fn note(&self, damage: Damage) -> bool {
        let mut state = self.state.write();
        if state.damage.is_some() {
            return false;
        }
        state.trouble = Some(damage.to_string());
        state.damage = Some(damage);
        true
    }

    fn damage(&self) -> Option<Damage> {
        self.state.read().damage.clone()
    }

    pub(super) fn trouble(&self) -> Option<String> {
        self.state.read().trouble.clone()
    }

    pub(super) fn offer(&self) -> Arc<Offer> {
        self.state.read().offer.clone()
    }

    /// Of the newest revision: a client may ask right after a publication. A bucket is left to
    /// [`refresh`](Self::refresh), because a serving thread waits for no network.
    pub(super) fn newest_offer(&self) -> Arc<Offer> {
        let is_due = {
            let mut looked = self.looked.lock();
            let is_due = looked.elapsed() >= LOOK_INTERVAL && !is_bucket_address(&self.path);
            if is_due {
                *looked = Instant::now();
            }
            is_due
        };
        // Errors are for `refresh`, which reports them.
        if is_due
            && matches!(self.snapshot.refresh(), Ok(true))
            && self.snapshot.hostid() == self.hostid
        {
            let mut state = self.state.write();
            state.offer = Arc::new(Offer::new(&self.snapshot, &self.received.read()));
            self.has_news.store(true, Ordering::Release);
        }
        self.offer()
    }

    pub(super) fn locate(&self, handle: &BlockHandle) -> vouch_tree_store::Result<Located> {
        let Some(cache) = &self.cache else {
            return Ok(self.snapshot.locate(handle)?.map_or(
                Located::Missing,
                |location: Location| {
                    let (len, offset) = (location.record_len(), location.offset);
                    Located::Here(Span { file: ServedFile(location.pack), offset, len })
                },
            ));
        };
        let Some((path, record)) = self.snapshot.place(handle)? else {
            return Ok(Located::Missing);
        };
        Ok(match cache.cover(&path, &record) {
            CachedRange::Ready(file) => Located::Here(Span {
                file: ServedFile(file),
                offset: record.start,
                len: record.end - record.start,
            }),
            CachedRange::Absent(wanted) => Located::Absent(wanted),
            CachedRange::Unknown => Located::Missing,
        })
    }
}

impl Offer {
    fn new(snapshot: &Snapshot, received: &[Vec<u8>]) -> Self {
        let view = snapshot.view();
        let signed_fsinfo = view.head().map(|head| head.to_vec()).unwrap_or_default();
        let mut statements = view.statements().to_vec();
        // Received statements and the evidence of the log first: the limit must not cut off a
        // revocation, or the proof that readers demand.
        statements.retain(|statement| !received.contains(statement));
        statements.sort_by_key(|statement| !is_evidence(statement));
        statements.splice(0..0, received.iter().cloned());
        statements.truncate(STATEMENTS_MAX);
        let revoked = revocation_reason(&view.hostid(), &statements);
        let manifest: Arc<[u8]> = view.manifest_with(&statements).into();
        // The manifest's checksum is here.
        let manifest_tag = format!(
            "\"{}\"",
            manifest[12..28].iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        );
        let checkpoint = view.checkpoint().map(|found| found.to_text().into_bytes().into());
        if signed_fsinfo.is_empty() && statements.is_empty() {
            return Self {
                revision: None,
                revoked,
                plain: None,
                with_companions: None,
                manifest,
                manifest_tag,
                checkpoint,
            };
        }
        let revision = OfferedRevision::read(&signed_fsinfo);
        let plain = FsinfoOffer { signed_fsinfo, statements, companions: Vec::new() };
        let with_companions =
            FsinfoOffer { companions: companions(snapshot, &view), ..plain.clone() };
        Self {
            revision,
            revoked,
            plain: Some(record(GetFsinfoResult::Ok(plain))),
            with_companions: Some(record(GetFsinfoResult::Ok(with_companions))),
            manifest,
            manifest_tag,
            checkpoint,
        }
    }

    pub(super) fn record(&self, companions: bool) -> Option<&Arc<[u8]>> {
        if companions { self.with_companions.as_ref() } else { self.plain.as_ref() }
    }
}

impl OfferedRevision {
    fn read(signed: &[u8]) -> Option<Self> {
        let signed = SignedFsinfo::from_xdr(signed).ok()?;
        let fsinfo = signed.unverified().ok()?;
        let (number, start, end) =
            (fsinfo.revision, fsinfo.start, fsinfo.end().min(signed.cert().not_after));
        Some(Self { number, start, end, files: fsinfo.counts.files, bytes: fsinfo.counts.bytes })
    }
}

/// Frames within the protocol's limits. Skips unreadable frames; the client requests them.
fn companions(snapshot: &Snapshot, view: &View) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut len = 0;
    for handle in view.companions().iter().take(COMPANIONS_MAX) {
        match snapshot.get(handle) {
            Ok(Some(frame)) if len + frame.len() <= COMPANIONS_LEN_MAX => {
                len += frame.len();
                frames.push(frame);
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%handle, %error, "companion frame left out"),
        }
    }
    frames
}

fn record(result: GetFsinfoResult) -> Arc<[u8]> {
    let record = vouch_oncrpc::record(|w| {
        Reply::accepted(0, Accepted::Success(&[])).encode(w);
        result.encode(w);
    });
    record.into()
}

/// A check costs one system call for each 32 MiB.
const PACKS_CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Shorter than the start of a process that asks. A look costs one system call.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
