//! Files that the kernel knows, and how long it may trust their attributes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::io::Errno;
use vouch_nfs4::Filehandle;
use vouch_nfs4::attr::FileType;

use crate::attributes::Known;
use crate::error::Result;
use crate::locks::Locks;
use crate::options::CacheTimes;
use crate::write_buffer::WriteBuffer;

/// One file or directory.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) node: u64,
    pub(crate) handle: Filehandle,
    pub(crate) kind: FileType,
    pub(crate) locks: Locks,
    pub(crate) writes: WriteBuffer,
    /// Held while the kernel drops pages: it ignores attributes that it asked for before.
    pub(crate) dropping: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    lookups: u64,
    ino: u64,
    /// By which the kernel may know the file, that of the last look-up first.
    places: Vec<Place>,
    /// Of the newest attributes.
    change: u64,
    /// Of the content in the kernel's cache.
    cached_change: Option<u64>,
    is_searchable_by_all: bool,
    /// It has had several names. The kernel counts names itself and can miss some, and link(2) fails in the
    /// kernel if it counts none. A look-up corrects the count.
    has_links: bool,
    valid: Duration,
    size: u64,
    fresh: Option<Fresh>,
}

/// Attributes that an open or a lock has just read, for the GETATTR that follows.
#[derive(Debug)]
struct Fresh {
    known: Known,
    until: Instant,
    /// Number of changes by this mount before.
    changes: u64,
}

/// Directory and name.
pub(crate) type Place = (u64, Box<[u8]>);

/// Differences to the attributes before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    /// The kernel's cached content is old.
    pub(crate) is_foreign: bool,
    /// Names of the directory are no longer for everybody.
    pub(crate) lost_search: bool,
    /// The first time that the file has several names.
    pub(crate) gained_links: bool,
}

impl Inode {
    pub(crate) fn ino(&self) -> u64 {
        self.state.lock().ino
    }

    pub(crate) fn places(&self) -> Vec<Place> {
        self.state.lock().places.clone()
    }

    pub(crate) const fn is_directory(&self) -> bool {
        matches!(self.kind, FileType::Directory)
    }

    /// Validity of these attributes: it doubles as long as the file does not change, as in nfs(5).
    pub(crate) fn note(
        &self,
        known: &Known,
        times: &CacheTimes,
        is_own: bool,
    ) -> (Duration, Change) {
        let (min, max) = times.of(known.is_directory());
        let mut state = self.state.lock();
        let is_same = state.change == known.change;
        state.valid = match is_same {
            true => (state.valid * 2).clamp(min, max),
            false => min,
        };
        if is_own && state.cached_change == Some(state.change) {
            state.cached_change = Some(known.change);
        }
        (state.change, state.size, state.fresh) = (known.change, known.attr.size, None);
        let is_searchable_by_all = known.attr.mode & 0o001 != 0;
        let lost_search =
            known.is_directory() && state.is_searchable_by_all && !is_searchable_by_all;
        state.is_searchable_by_all = is_searchable_by_all;
        let gained_links = has_links(known) && !state.has_links;
        state.has_links |= gained_links;
        state.ino = known.attr.ino;
        let is_foreign = state.cached_change.is_some_and(|cached| cached != known.change);
        (state.valid, Change { is_foreign, lost_search, gained_links })
    }

    /// For the case that the kernel asks for attributes within `valid`. Older ones than the newest are not kept.
    pub(crate) fn set_fresh(&self, known: &Known, valid: Duration, changes: u64) {
        let mut state = self.state.lock();
        if state.change == known.change {
            let until = Instant::now() + valid;
            state.fresh = Some(Fresh { known: *known, until, changes });
        }
    }

    /// With their validity. `None` if this mount has changed anything since.
    pub(crate) fn take_fresh(&self, changes: u64) -> Option<(Known, Duration)> {
        let fresh = self.state.lock().fresh.take().filter(|fresh| fresh.changes == changes)?;
        let left = fresh.until.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some((fresh.known, left))
    }

    /// `None` if the kernel has the content.
    pub(crate) fn size_to_read(&self) -> Option<u64> {
        let state = self.state.lock();
        (state.cached_change != Some(state.change)).then_some(state.size)
    }

    pub(crate) fn change(&self) -> u64 {
        self.state.lock().change
    }

    /// The kernel's cached content is that of `change`. False if it was of another.
    pub(crate) fn keep_cache(&self, change: u64) -> bool {
        self.state.lock().cached_change.replace(change) == Some(change)
    }

    /// The kernel's content is not to be trusted. Returns the newest change id.
    pub(crate) fn drop_cache(&self) -> u64 {
        let mut state = self.state.lock();
        state.cached_change = None;
        state.change
    }

    pub(crate) fn is_cache_dropped(&self) -> bool {
        self.state.lock().cached_change.is_none()
    }

    /// The kernel has no content from before `change`.
    pub(crate) fn note_dropped(&self, change: u64) {
        self.state.lock().cached_change.get_or_insert(change);
    }

    pub(crate) fn has_links(&self) -> bool {
        self.state.lock().has_links
    }

    /// The kernel may use names of this directory for this time without asking.
    pub(crate) fn name_valid(&self, is_shared: bool) -> Duration {
        let state = self.state.lock();
        // The kernel checks no search permission: the server does, at each look-up.
        match is_shared && !state.is_searchable_by_all {
            true => Duration::ZERO,
            false => state.valid,
        }
    }
}

const fn has_links(known: &Known) -> bool {
    known.attr.nlink > 1 && !known.is_directory()
}

/// All files that the kernel knows. The kernel bounds them: it forgets what it evicts.
#[derive(Debug)]
pub(crate) struct InodeTable {
    nodes: Mutex<Nodes>,
    next: AtomicU64,
}

#[derive(Debug, Default)]
struct Nodes {
    by_node: HashMap<u64, Arc<Inode>>,
    by_handle: HashMap<Box<[u8]>, u64>,
    by_place: HashMap<Place, u64>,
}

impl Nodes {
    fn remove_place(&mut self, place: &Place) -> Option<Arc<Inode>> {
        let inode = self.by_place.remove(place).and_then(|node| self.by_node.get(&node))?;
        inode.state.lock().places.retain(|other| other != place);
        Some(inode.clone())
    }

    fn add_place(&mut self, inode: &Inode, place: Place) {
        self.remove_place(&place);
        self.by_place.insert(place.clone(), inode.node);
        inode.state.lock().places.insert(0, place);
    }
}

pub(crate) const ROOT: u64 = 1;

impl InodeTable {
    pub(crate) fn len(&self) -> usize {
        self.nodes.lock().by_node.len()
    }

    pub(crate) fn new(root: Filehandle, known: &Known) -> Self {
        let table = Self { nodes: Mutex::default(), next: AtomicU64::new(ROOT) };
        table.insert(&root, known, None);
        table
    }

    pub(crate) fn get(&self, node: u64) -> Result<Arc<Inode>> {
        self.nodes.lock().by_node.get(&node).cloned().ok_or(Errno::STALE)
    }

    /// Counts a look-up, which [`Self::forget`] takes back.
    pub(crate) fn insert(
        &self,
        handle: &Filehandle,
        known: &Known,
        place: Option<(u64, &[u8])>,
    ) -> Arc<Inode> {
        let mut nodes = self.nodes.lock();
        let inode = match nodes.by_handle.get(handle.as_bytes()).and_then(|n| nodes.by_node.get(n))
        {
            Some(inode) => inode.clone(),
            None => {
                let node = self.next.fetch_add(1, Ordering::Relaxed);
                let inode = Arc::new(Inode {
                    node,
                    handle: *handle,
                    kind: known.kind,
                    locks: Locks::default(),
                    writes: WriteBuffer::default(),
                    dropping: tokio::sync::Mutex::default(),
                    state: Mutex::new(State {
                        lookups: 0,
                        ino: known.attr.ino,
                        places: Vec::new(),
                        change: known.change,
                        cached_change: None,
                        is_searchable_by_all: false,
                        has_links: has_links(known),
                        valid: Duration::ZERO,
                        size: known.attr.size,
                        fresh: None,
                    }),
                });
                nodes.by_handle.insert(handle.as_bytes().into(), node);
                nodes.by_node.insert(node, inode.clone());
                inode
            }
        };
        inode.state.lock().lookups += 1;
        if let Some((directory, name)) = place {
            nodes.add_place(&inode, (directory, name.into()));
        }
        inode
    }

    pub(crate) fn remove_place(&self, place: &Place) {
        self.nodes.lock().remove_place(place);
    }

    /// As the kernel, after its rename(2).
    pub(crate) fn move_place(&self, from: &Place, to: Place) {
        let mut nodes = self.nodes.lock();
        if let Some(inode) = nodes.remove_place(from) {
            nodes.add_place(&inode, to);
        }
    }

    pub(crate) fn forget(&self, node: u64, count: u64) {
        let mut nodes = self.nodes.lock();
        let Some(inode) = nodes.by_node.get(&node).cloned() else { return };
        let mut state = inode.state.lock();
        state.lookups = state.lookups.saturating_sub(count);
        if state.lookups == 0 && node != ROOT {
            nodes.by_node.remove(&node);
            nodes.by_handle.remove(inode.handle.as_bytes());
            for place in state.places.drain(..) {
                nodes.by_place.remove(&place);
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::fuse::Attr;

    fn known(change: u64) -> Known {
        let attr = Attr { ino: 5, mode: 0o100_644, ..Attr::default() };
        Known { change, kind: FileType::Regular, attr }
    }

    pub(crate) fn table() -> (InodeTable, Arc<Inode>) {
        let table = InodeTable::new(Filehandle::new(b"root").unwrap(), &known(1));
        let inode = table.insert(&Filehandle::new(b"file").unwrap(), &known(1), Some((ROOT, b"f")));
        (table, inode)
    }

    #[test]
    fn same_handle_is_same_node_until_all_lookups_are_forgotten() {
        let (table, inode) = table();
        let again = table.insert(&inode.handle, &known(1), Some((ROOT, b"g")));
        let places = [b"g", b"f"].map(|name| (ROOT, name[..].into()));
        assert_eq!((again.node, again.places()), (inode.node, places.to_vec()));
        table.move_place(&places[1], (ROOT, b"h"[..].into()));
        let other =
            table.insert(&Filehandle::new(b"other").unwrap(), &known(1), Some((ROOT, b"g")));
        assert_eq!((inode.places().len(), other.places().len()), (1, 1));
        table.forget(inode.node, 1);
        assert!(table.get(inode.node).is_ok());
        table.forget(inode.node, 1);
        assert!(table.get(inode.node).is_err());
        table.forget(ROOT, 9);
        assert!(table.get(ROOT).is_ok());
    }

    #[test]
    fn validity_doubles_until_file_changes() {
        let (_, inode) = table();
        let times = CacheTimes::default();
        let valid: Vec<u64> =
            [1, 1, 1, 2].map(|change| inode.note(&known(change), &times, false).0.as_secs()).into();
        assert_eq!(valid, [3, 6, 12, 3]);
    }

    #[test]
    fn own_changes_keep_cache_and_foreign_ones_do_not() {
        let (_, inode) = table();
        let times = CacheTimes::default();
        assert!(!inode.keep_cache(1));
        inode.note(&known(1), &times, false);
        assert!(!inode.note(&known(2), &times, true).1.is_foreign);
        assert!(inode.keep_cache(2));
        assert!(inode.note(&known(3), &times, false).1.is_foreign);
        // A change of its own does not hide the earlier one.
        assert!(inode.note(&known(4), &times, true).1.is_foreign);
        assert!(!inode.keep_cache(4));
    }

    #[test]
    fn fresh_attributes_are_given_once_until_any_change() {
        let (_, inode) = table();
        let valid = Duration::from_secs(60);
        inode.set_fresh(&known(1), valid, 7);
        let (given, left) = inode.take_fresh(7).unwrap();
        assert!(given.change == 1 && left <= valid);
        assert!(inode.take_fresh(7).is_none());
        inode.set_fresh(&known(1), valid, 7);
        assert!(inode.take_fresh(8).is_none());
        inode.set_fresh(&known(1), valid, 7);
        inode.note(&known(2), &CacheTimes::default(), false);
        assert!(inode.take_fresh(7).is_none());
        for (change, valid) in [(1, valid), (2, Duration::ZERO)] {
            inode.set_fresh(&known(change), valid, 7);
            assert!(inode.take_fresh(7).is_none());
        }
    }

    #[test]
    fn each_foreign_change_of_an_open_file_is_seen() {
        let (_, inode) = table();
        let times = CacheTimes::default();
        inode.keep_cache(1);
        for change in 2..5 {
            assert!(inode.note(&known(change), &times, false).1.is_foreign);
            let newest = inode.drop_cache();
            assert!(inode.is_cache_dropped());
            inode.note_dropped(newest);
        }
        inode.drop_cache();
        inode.keep_cache(7);
        inode.note_dropped(4);
        assert!(inode.keep_cache(7));
    }
}
