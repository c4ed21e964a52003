//! Nothing waits for a node. The last delivery of a window continues it.

use std::ops::Range;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use vouch_tree::directory::{InteriorPage, LeafPage};
use vouch_tree::{Inode, PageRef};
use vouch_xdr::Xdr as _;

use crate::attributes::Attributes;
use crate::descriptor::{Descriptors, OpenDirectory, Slot};
use crate::error::{Error, FileError};
use crate::frames::Frames;
use crate::listing::Listing;
use crate::pages::{Outcome, Pages, PagesError};
use crate::record::{Earlier, Record};

#[derive(Debug)]
pub(crate) struct Node {
    /// Parent and index there; `None` for the root and during drop.
    parent: Option<(Arc<Node>, usize)>,
    name: Box<[u8]>,
    depth: usize,
    identity: (u64, u64),
    /// A file system not to be entered: shown empty.
    pub(crate) closed: bool,
    open: Arc<Slot>,
    pending: AtomicUsize,
    repeated: AtomicBool,
    /// Below a directory that other users cannot enter.
    is_private: bool,
    /// Its files that other users cannot read.
    private_count: AtomicU64,
    /// The last page of the previous revision that was asked for.
    previous_page: Mutex<Option<Arc<LeafPage>>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    snapshot: DirectorySnapshot,
    pages: Pages,
    start: usize,
    window: Vec<Option<Outcome>>,
    vanished: bool,
    repeats: u32,
    /// Compared with the next listing, instead of the cache's record.
    memory: Memory,
}

#[derive(Debug, Clone)]
pub(crate) enum Memory {
    Cache,
    Own(Arc<Earlier>),
    /// The record did not match the database.
    Nothing,
}

#[derive(Debug, Clone)]
pub(crate) struct DirectorySnapshot {
    pub(crate) attributes: Attributes,
    pub(crate) racy: bool,
    pub(crate) opaque: bool,
    pub(crate) listing: Arc<Listing>,
    pub(crate) earlier: Option<Arc<Earlier>>,
    /// Pages in the previous revision.
    pub(crate) previous: Option<PageRef>,
}

pub(crate) enum Next {
    Window(Range<usize>),
    Finish(Box<Finished>),
}

pub(crate) struct Finished {
    pub(crate) snapshot: DirectorySnapshot,
    pub(crate) record: Record,
    pub(crate) same: bool,
    pub(crate) vanished: bool,
    pub(crate) repeats: u32,
}

impl Node {
    pub(crate) fn root(path: &[u8], open: OpenDirectory, attributes: Attributes) -> Self {
        Self::new(None, path, 0, attributes, false, Some(Arc::new(open)))
    }

    pub(crate) fn child(
        parent: &Arc<Self>,
        index: usize,
        name: &[u8],
        attributes: Attributes,
        closed: bool,
    ) -> Self {
        let child = Self::new(
            Some((parent.clone(), index)),
            name,
            parent.depth + 1,
            attributes,
            closed,
            None,
        );
        child.repeated.store(parent.is_repeated(), Ordering::Relaxed);
        child
    }

    fn new(
        parent: Option<(Arc<Self>, usize)>,
        name: &[u8],
        depth: usize,
        attributes: Attributes,
        closed: bool,
        open: Option<Arc<OpenDirectory>>,
    ) -> Self {
        let snapshot = DirectorySnapshot {
            attributes,
            racy: true,
            opaque: false,
            listing: Arc::default(),
            earlier: None,
            previous: None,
        };
        let state = State {
            snapshot,
            pages: Pages::new(None, None, 0),
            start: 0,
            window: Vec::new(),
            vanished: false,
            repeats: 0,
            memory: Memory::Cache,
        };
        // The directory that is published was named by the publisher.
        let is_private = parent
            .as_ref()
            .is_some_and(|(parent, _)| parent.is_private || !attributes.is_open_to_others());
        Self {
            is_private,
            private_count: AtomicU64::new(0),
            previous_page: Mutex::default(),
            parent,
            name: name.into(),
            depth,
            identity: attributes.identity(),
            closed,
            open: Arc::new(Mutex::new(open)),
            pending: AtomicUsize::new(0),
            repeated: AtomicBool::new(false),
            state: Mutex::new(state),
        }
    }

    pub(crate) fn parent(&self) -> Option<(&Arc<Self>, usize)> {
        self.parent.as_ref().map(|(parent, index)| (parent, *index))
    }

    pub(crate) fn name(&self) -> &[u8] {
        &self.name
    }

    pub(crate) const fn identity(&self) -> (u64, u64) {
        self.identity
    }

    pub(crate) fn is_repeated(&self) -> bool {
        self.repeated.load(Ordering::Relaxed)
    }

    pub(crate) fn path(&self, name: Option<&[u8]>) -> Vec<u8> {
        let mut names = name.into_iter().collect::<Vec<_>>();
        let mut node = self;
        loop {
            names.push(&node.name);
            let Some((parent, _)) = &node.parent else { break };
            node = parent;
        }
        names.reverse();
        names.join(&b'/')
    }

    /// Below the directory that is published.
    pub(crate) fn relative_path(&self) -> Vec<u8> {
        let mut names: Vec<&[u8]> = Vec::new();
        let mut node = self;
        while let Some((parent, _)) = &node.parent {
            names.push(&node.name);
            node = parent;
        }
        names.reverse();
        names.join(&b'/')
    }

    pub(crate) const fn is_private(&self) -> bool {
        self.is_private
    }

    pub(crate) fn count_private(&self) {
        self.private_count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn private_count(&self) -> u64 {
        self.private_count.load(Ordering::Relaxed)
    }

    /// The whole directory is read again, and the previous revision has it.
    pub(crate) fn has_previous_pages_only(&self) -> bool {
        let state = self.state.lock();
        state.snapshot.earlier.is_none() && state.snapshot.previous.is_some()
    }

    /// `None`: absent, or a page is missing.
    pub(crate) fn previous_inode(
        &self,
        frames: &Frames<'_>,
        name: &[u8],
    ) -> Result<Option<Inode>, Error> {
        let Some(mut page) = self.state.lock().snapshot.previous else { return Ok(None) };
        if let Some(last) = &*self.previous_page.lock()
            && last.entries().first().is_some_and(|entry| entry.name.as_bytes() <= name)
            && last.entries().last().is_some_and(|entry| entry.name.as_bytes() >= name)
        {
            return Ok(last.find(name).map(|entry| entry.inode.clone()));
        }
        loop {
            let Some(payload) = frames.get(page.kind(), &page.handle)? else { return Ok(None) };
            if page.height == 0 {
                let Ok(leaf) = LeafPage::from_xdr(&payload) else { return Ok(None) };
                let found = leaf.find(name).map(|entry| entry.inode.clone());
                *self.previous_page.lock() = Some(Arc::new(leaf));
                return Ok(found);
            }
            let Ok(interior) = InteriorPage::from_xdr(&payload) else { return Ok(None) };
            match interior.child_for(name).and_then(|index| interior.page(index)) {
                Some(below) => page = below,
                None => return Ok(None),
            }
        }
    }

    pub(crate) fn is_at(&self, components: &[Vec<u8>]) -> bool {
        let mut node = self;
        self.depth == components.len()
            && components.iter().rev().all(|component| {
                let same = *component == *node.name;
                if let Some((parent, _)) = &node.parent {
                    node = parent;
                }
                same
            })
    }

    pub(crate) fn directory(
        &self,
        descriptors: &Descriptors,
    ) -> Result<Arc<OpenDirectory>, FileError> {
        // From the nearest open parent. Each directory must be the same.
        let mut closed = Vec::new();
        let mut node = self;
        let mut open = loop {
            if let Some(open) = node.open.lock().clone() {
                break open;
            }
            closed.push(node);
            let Some((parent, _)) = &node.parent else { return Err(FileError::Vanished) };
            node = parent;
        };
        for node in closed.into_iter().rev() {
            let next = descriptors
                .directory(open.as_fd(), &node.name)
                .map_err(FileError::system("open the directory"))?;
            if Attributes::of_fd(next.as_fd(), descriptors.alias)?.identity() != node.identity {
                return Err(FileError::Vanished);
            }
            open = Arc::new(next);
            descriptors.keep(&node.open, open.clone());
        }
        Ok(open)
    }

    /// Opens the parent again by `..`, if it was closed: a walk from the root would take a call for
    /// each directory above.
    pub(crate) fn reopen_parent(&self, open: &OpenDirectory, descriptors: &Descriptors) {
        let Some((parent, _)) = &self.parent else { return };
        if parent.open.lock().is_some() {
            return;
        }
        // A directory that was moved has another parent now. [`Self::directory`] reports errors.
        if let Ok(above) = descriptors.directory(open.as_fd(), b"..")
            && Attributes::of_fd(above.as_fd(), descriptors.alias)
                .is_ok_and(|attributes| attributes.identity() == parent.identity)
        {
            descriptors.keep(&parent.open, Arc::new(above));
        }
    }

    pub(crate) fn begin(&self, snapshot: DirectorySnapshot) {
        let mut state = self.state.lock();
        self.private_count.store(0, Ordering::Relaxed);
        // With a record, pages are rebuilt from a change on.
        let previous = snapshot.previous.filter(|_| snapshot.earlier.is_none());
        state.pages = Pages::new(snapshot.earlier.clone(), previous, snapshot.listing.len());
        state.snapshot = snapshot;
        state.start = 0;
        state.window = Vec::new();
        state.vanished = false;
    }

    pub(crate) fn memory(&self) -> Memory {
        self.state.lock().memory.clone()
    }

    pub(crate) fn snapshot(&self) -> DirectorySnapshot {
        self.state.lock().snapshot.clone()
    }

    /// Takes the finished window. Called by one thread with nothing pending.
    pub(crate) fn advance(&self, frames: &Frames<'_>) -> Result<Next, PagesError> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let len = state.window.len();
        for (i, outcome) in std::mem::take(&mut state.window).into_iter().enumerate() {
            state.pages.push(
                frames,
                &state.snapshot.listing,
                state.start + i,
                outcome.unwrap_or(Outcome::SKIPPED),
            )?;
        }
        state.start += len;
        let left = state.snapshot.listing.len() - state.start;
        if left > 0 {
            let len = left.min(window_len(self.depth));
            state.window.resize_with(len, || None);
            return Ok(Next::Window(state.start..state.start + len));
        }
        let pages = std::mem::replace(&mut state.pages, Pages::new(None, None, 0));
        let (record, same) =
            pages.finish(frames, &state.snapshot.listing, state.snapshot.opaque)?;
        let (snapshot, vanished, repeats) = (state.snapshot.clone(), state.vanished, state.repeats);
        Ok(Next::Finish(Box::new(Finished { snapshot, record, same, vanished, repeats })))
    }

    pub(crate) fn repeat(&self, record: Record) {
        self.repeated.store(true, Ordering::Relaxed);
        let mut state = self.state.lock();
        state.repeats += 1;
        state.memory = Memory::Own(Arc::new(Earlier::new(record)));
    }

    /// The record does not match the database: lists again without one.
    pub(crate) fn forget(&self) {
        self.state.lock().memory = Memory::Nothing;
    }

    pub(crate) fn set_vanished(&self) {
        self.state.lock().vanished = true;
    }

    pub(crate) fn deliver(&self, outcomes: impl IntoIterator<Item = (usize, Outcome)>) {
        let mut state = self.state.lock();
        let start = state.start;
        for (index, outcome) in outcomes {
            if let Some(slot) = index.checked_sub(start).and_then(|at| state.window.get_mut(at)) {
                *slot = Some(outcome);
            }
        }
    }

    pub(crate) fn expect(&self, count: usize) {
        self.pending.fetch_add(count, Ordering::AcqRel);
    }

    /// True for the last delivery: its thread continues the node.
    pub(crate) fn complete(&self) -> bool {
        self.pending.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let mut next = self.parent.take();
        while let Some((parent, _)) = next {
            next = Arc::into_inner(parent).and_then(|mut node| node.parent.take());
        }
    }
}

/// Each directory on the path has a window, so deep ones are shorter: some 100,000 entries over all
/// depths.
fn window_len(depth: usize) -> usize {
    (8192 / (depth + 1)).clamp(16, 4096)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[test]
    fn each_directory_of_a_deep_nest_is_opened_from_its_neighbour() {
        let top = tempfile::tempdir().unwrap();
        let descriptors = Descriptors::with_limit(LIMIT);
        let open = descriptors.directory(rustix::fs::CWD, top.path().as_os_str().as_bytes());
        let mut open = Arc::new(open.unwrap());
        let attributes =
            |open: &OpenDirectory| Attributes::of_fd(open.as_fd(), descriptors.alias).unwrap();
        let mut nest = Vec::new();
        let mut node =
            Arc::new(Node::new(None, b"", 0, attributes(&open), false, Some(open.clone())));
        for _ in 0..DEPTH {
            rustix::fs::mkdirat(open.as_fd(), "d", rustix::fs::Mode::RWXU).unwrap();
            let below = descriptors.directory(open.as_fd(), b"d").unwrap();
            let child = Arc::new(Node::child(&node, 0, b"d", attributes(&below), false));
            drop(below);
            assert!(node.open.lock().is_some(), "the walk to it would begin far above");
            open = child.directory(&descriptors).unwrap();
            nest.push(std::mem::replace(&mut node, child));
            assert!(descriptors.open_count() <= LIMIT + 2);
        }
        assert!(nest[DEPTH / 2].open.lock().is_none());
        while let Some(parent) = nest.pop() {
            node.reopen_parent(&node.directory(&descriptors).unwrap(), &descriptors);
            assert!(parent.open.lock().is_some(), "the walk to it would begin far above");
            assert!(descriptors.open_count() <= LIMIT + 2);
            node = parent;
        }
        // A directory that was moved has another parent.
        let moved = Node::child(&node, 0, b"m", node.state.lock().snapshot.attributes, false);
        let elsewhere = tempfile::tempdir().unwrap();
        let open = descriptors.directory(rustix::fs::CWD, elsewhere.path().as_os_str().as_bytes());
        node.open.lock().take();
        moved.reopen_parent(&open.unwrap(), &descriptors);
        assert!(node.open.lock().is_none());
    }

    const DEPTH: usize = 100;
    const LIMIT: usize = 8;
}
