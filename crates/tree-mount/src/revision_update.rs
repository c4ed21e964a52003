//! A new revision under known files (section 7 of the paper: open files are followed by path,
//! without fhdb).
//!
//! From the root downward, each directory that the kernel knows and that has changed is taken over
//! in one step: first all its known names are looked up in the new version, then table and
//! directory change together, then the kernel is told what of it to forget. What has an equal inode
//! is skipped with all below it. A name is given up only when the new signed root proves it
//! missing; while that can't be told, the old revision stays as it is, until it expires.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use vouch_tree::{Content, Inode};
use vouch_tree_client::{ErrorClass, Revision, RevisionOrder};

use crate::attributes;
use crate::kernel_notices::Notice;
use crate::node_table::{KnownChild, Updated};
use crate::observer::TreeEvent;
use crate::state::MountState;
use crate::volume::Volume;
use vouch_tree::inode_number::InodeNumber as NodeId;

/// Follows a tree's revisions and its freshness until the mount ends.
pub(crate) async fn follow(state: Weak<MountState>, volume: Arc<Volume>) {
    let mut revisions = volume.tree().watch();
    let mut was_fresh = volume.is_fresh();
    loop {
        // The clock is the wall's, and may be set: it is looked at, not slept by.
        let _ = tokio::time::timeout(TICK, revisions.changed()).await;
        let Some(state) = state.upgrade() else { return };
        if Arc::strong_count(&volume) == 1 {
            // The namespace has let go of it, and the kernel of its last file.
            return;
        }
        let newest = volume.tree().newest();
        if newest.order() > volume.shown().order() || lags(&state, &volume) {
            update_to(&state, &volume, newest).await;
        }
        let is_fresh = volume.is_fresh();
        match (was_fresh, is_fresh) {
            (true, false) => {
                let error = volume.tree().revision().err();
                let why = error.as_ref().map(ToString::to_string).unwrap_or_default();
                tracing::warn!(tree = volume.label(), "nothing of this tree is served any more: {why}");
                let class = error.map_or(ErrorClass::Expired, |error| error.class());
                state.observe_event(&TreeEvent::Withdrawn { tree: volume.label(), class, why: &why });
                withdraw(&state, &volume);
            }
            (false, true) => {
                let revision = volume.shown().number();
                tracing::info!(tree = volume.label(), revision, "served again");
                state.observe_event(&TreeEvent::Restored { tree: volume.label(), revision });
            }
            _ => {}
        }
        was_fresh = is_fresh;
    }
}

/// Whether the root entered the table from an older revision while the sweep was passing.
fn lags(state: &MountState, volume: &Arc<Volume>) -> bool {
    state.table.get(volume.root()).is_some_and(|view| *view.inode != attributes::without_inline(volume.shown().root()))
}

/// Makes the kernel forget all content of a tree: what it has cached is not fresh any more.
fn withdraw(state: &MountState, volume: &Arc<Volume>) {
    for (id, _) in state.table.all_of(volume) {
        state.kernel.tell(Notice::Content(id));
    }
}

/// Takes all known files to `revision`, then shows it. Gives up when a still newer one appears,
/// which finishes the work.
async fn update_to(state: &Arc<MountState>, volume: &Arc<Volume>, revision: Arc<Revision>) {
    let sweep = RevisionUpdate { state, volume, number: revision.number(), order: revision.order() };
    let root = Arc::new(attributes::without_inline(revision.root()));
    let mut queue = VecDeque::from([(volume.root(), root.clone())]);
    // What an earlier sweep left is found again by its path.
    let unfinished: Vec<NodeId> = volume.unfinished.lock().iter().copied().collect();
    for id in unfinished {
        match sweep.resolve(id, &root).await {
            Ok(Some(inode)) => queue.push_back((id, Arc::new(attributes::without_inline(&inode)))),
            Ok(None) => sweep.remove_below(id),
            Err(Superseded) => return,
        }
    }
    while let Some((id, inode)) = queue.pop_front() {
        match sweep.directory(id, &inode).await {
            Ok(changed) => {
                volume.unfinished.lock().remove(&id);
                volume.unfinished.lock().extend(changed.iter().map(|(id, _)| *id));
                queue.extend(changed);
            }
            Err(Superseded) => {
                volume.unfinished.lock().insert(id);
                return;
            }
        }
    }
    if state.without_xattrs && revision.fsinfo.counts.with_xattrs > 0 {
        tracing::warn!(
            tree = volume.label(),
            "revision {} brings extended attributes, which show after the next mount (or mount with xattrs on); until then files that have any are their owner's alone",
            revision.number()
        );
    }
    state.follow_opens(volume).await;
    tracing::info!(tree = volume.label(), revision = revision.number(), "a new revision is in force");
    let (before, now) = (volume.shown().number(), revision.number());
    volume.show(revision);
    state.observe_event(&TreeEvent::Shown { tree: volume.label(), revision: now, before: Some(before) });
}

/// A still newer revision has appeared.
struct Superseded;

struct RevisionUpdate<'a> {
    state: &'a MountState,
    volume: &'a Arc<Volume>,
    number: u64,
    order: RevisionOrder,
}

/// A known name, and what it led to and leads to now.
struct Judged {
    child: KnownChild,
    new: Option<Inode>,
}

impl RevisionUpdate<'_> {
    /// Takes one directory over; returns the known directories in it that changed.
    async fn directory(&self, id: NodeId, new: &Arc<Inode>) -> Result<Vec<(NodeId, Arc<Inode>)>, Superseded> {
        let Some(view) = self.state.table.get(id) else { return Ok(Vec::new()) };
        let old = view.inode;
        if old == *new && !view.is_removed {
            return Ok(Vec::new());
        }
        let same_pages = !view.is_removed && top(&old) == top(new);
        let mut known = if same_pages { Vec::new() } else { self.state.table.children(id) };
        let mut judged = Vec::new();
        let mut fresh = known.clone();
        loop {
            for child in fresh {
                let was = self.volume.tree().try_lookup(&old, &child.name);
                let new = self.entry(new, &child.name).await?;
                // Equal in both versions: nothing to do, and nothing below either.
                if let (false, Some(Ok(Some(was))), Some(now)) = (view.is_removed, &was, &new)
                    && was.inode == *now
                {
                    continue;
                }
                judged.push(Judged { child, new });
            }
            match self.state.table.move_directory(id, new, &known) {
                _ if same_pages => break,
                Ok(()) => break,
                Err(more) => {
                    known.extend(more.iter().cloned());
                    fresh = more;
                }
            }
        }
        self.volume.keep_older_directory(id, old);
        let changed = judged.into_iter().filter_map(|judged| self.settle(id, judged)).collect();
        for name in self.volume.negative_names.lock().drain(id) {
            self.state.kernel.tell(Notice::Name(id, name));
        }
        self.state.kernel.tell(Notice::Content(id));
        Ok(changed)
    }

    /// Takes one known name over, after its directory.
    fn settle(&self, directory: NodeId, judged: Judged) -> Option<(NodeId, Arc<Inode>)> {
        let Judged { child, new } = judged;
        let before = self.state.table.get(child.id)?;
        let updated = self.state.table.update(self.volume, directory, &child, new.as_ref());
        let tell = |notice| self.state.kernel.tell(notice);
        match updated {
            Updated::Unknown => return None,
            Updated::Gone => {
                self.remove_below(child.id);
                tell(Notice::Name(directory, child.name));
                return None;
            }
            Updated::Renumbered => tell(Notice::Name(directory, child.name)),
            Updated::Same => {}
        }
        let new = new?;
        if new.is_directory() {
            return (before.inode.is_directory()).then(|| (child.id, Arc::new(attributes::without_inline(&new))));
        }
        tell(if same_content(&before.inode, &new) { Notice::Attributes(child.id) } else { Notice::Content(child.id) });
        None
    }

    /// All known files at and below `id` are no more.
    fn remove_below(&self, id: NodeId) {
        self.volume.unfinished.lock().remove(&id);
        for id in self.state.table.remove_below(id).into_iter().chain([id]) {
            self.volume.unfinished.lock().remove(&id);
            self.state.kernel.tell(Notice::Content(id));
        }
    }

    /// An entry of the new version, however long that takes, unless a newer revision appears.
    async fn entry(&self, directory: &Inode, name: &[u8]) -> Result<Option<Inode>, Superseded> {
        let tree = self.volume.tree();
        if let Some(Ok(entry)) = tree.try_lookup(directory, name) {
            return Ok(entry.map(|e| e.inode.clone()));
        }
        let mut pause = PAUSE_MIN;
        loop {
            let error = match tree.lookup(directory, name).await {
                Ok(entry) => return Ok(entry.map(|e| e.inode.clone())),
                Err(error) => error,
            };
            if tree.newest().order() != self.order {
                return Err(Superseded);
            }
            tracing::warn!(tree = self.volume.label(), revision = self.number, "taking over the new revision waits: {error}");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// What a directory's path leads to in the new root; `None` where that is proven to be no
    /// directory any more.
    async fn resolve(&self, id: NodeId, root: &Inode) -> Result<Option<Inode>, Superseded> {
        let (mut names, mut at) = (Vec::new(), id);
        while at != self.volume.root() {
            let Some((parent, name)) = self.state.table.path(at) else { return Ok(None) };
            names.push(name);
            at = parent;
        }
        let mut inode = root.clone();
        for name in names.iter().rev() {
            match self.entry(&inode, name).await? {
                Some(next) if next.is_directory() => inode = next,
                _ => return Ok(None),
            }
        }
        Ok(Some(inode))
    }
}

fn top(directory: &Inode) -> Option<vouch_tree::PageRef> {
    match &directory.content {
        Content::Directory { top, .. } => *top,
        _ => None,
    }
}

/// Whether the kernel's pages of a file stay right. Inline content is not held in the table, so it
/// counts as changed.
fn same_content(old: &Inode, new: &Inode) -> bool {
    match (&old.content, &new.content) {
        (Content::Regular { blob: a, .. }, Content::Regular { blob: b, .. }) => a == b && !attributes::lacks_inline(a),
        (a, b) => a == b,
    }
}

/// How often the clock is looked at.
const TICK: Duration = Duration::from_secs(1);

const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(15);
