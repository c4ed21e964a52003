//! Moves known files to a new revision. Open files are followed by path (SFSRO paper, §7, without
//! fhdb).
//!
//! From the root down, each known directory that has changed is one step: look up its known names
//! in the new version, change the table, notify the kernel. A name is removed only if the new root
//! proves its absence. Until then the old revision remains visible, at most until it expires.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use vouch_tree::inode_number::InodeNumber as NodeId;
use vouch_tree::{Content, Inode};
use vouch_tree_client::{ErrorClass, Revision, RevisionOrder};

use crate::attributes;
use crate::kernel_notices::Notice;
use crate::node_table::{KnownChild, Updated};
use crate::observer::TreeEvent;
use crate::state::MountState;
use crate::volume::Volume;

pub(crate) async fn follow(state: Weak<MountState>, volume: Arc<Volume>) {
    let mut revisions = volume.tree().watch();
    let mut was_fresh = volume.is_fresh();
    loop {
        let _ = tokio::time::timeout(TICK, revisions.changed()).await;
        let Some(state) = state.upgrade() else { return };
        if Arc::strong_count(&volume) == 1 {
            return;
        }
        let newest = volume.target();
        if newest.order() > volume.shown().order() || root_is_outdated(&state, &volume) {
            update_to(&state, &volume, newest).await;
        }
        let is_fresh = volume.is_fresh();
        match (was_fresh, is_fresh) {
            (true, false) => {
                let error = volume.tree().revision().err();
                let why = error.as_ref().map(ToString::to_string).unwrap_or_default();
                tracing::warn!(tree = volume.label(), "this tree is no longer served: {why}");
                let class = error.map_or(ErrorClass::Expired, |error| error.class());
                state.observe_event(&TreeEvent::Withdrawn {
                    tree: volume.label(),
                    class,
                    why: &why,
                });
                invalidate_all(&state, &volume);
            }
            (false, true) => {
                let revision = volume.shown().number();
                tracing::info!(tree = volume.label(), revision, "this tree is served again");
                state.observe_event(&TreeEvent::Restored { tree: volume.label(), revision });
            }
            _ => {}
        }
        was_fresh = is_fresh;
    }
}

fn root_is_outdated(state: &MountState, volume: &Arc<Volume>) -> bool {
    state
        .table
        .get(volume.root())
        .is_some_and(|view| *view.inode != attributes::without_inline(volume.shown().root()))
}

fn invalidate_all(state: &MountState, volume: &Arc<Volume>) {
    for (id, _) in state.table.all_of(volume) {
        state.kernel.send(Notice::Content(id));
    }
}

async fn update_to(state: &Arc<MountState>, volume: &Arc<Volume>, revision: Arc<Revision>) {
    // No other process may take the mount over in the middle.
    let _updating = state.updating.read().await;
    volume.record(true);
    let update =
        RevisionUpdate { state, volume, number: revision.number(), order: revision.order() };
    let root = Arc::new(attributes::without_inline(revision.root()));
    let mut queue = VecDeque::from([(volume.root(), root.clone())]);
    // Finds directories of an interrupted update by path.
    let unfinished: Vec<NodeId> = volume.unfinished.lock().iter().copied().collect();
    for id in unfinished {
        match update.resolve(id, &root).await {
            Ok(Some(inode)) => queue.push_back((id, Arc::new(attributes::without_inline(&inode)))),
            Ok(None) => update.remove_below(id),
            Err(Superseded) => return,
        }
    }
    while let Some((id, inode)) = queue.pop_front() {
        match update.update_directory(id, &inode).await {
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
            "revision {} adds extended attributes, which appear after the next mount; until then files with extended attributes are accessible by their owner only",
            revision.number()
        );
    }
    state.update_open_files(volume).await;
    tracing::info!(
        tree = volume.label(),
        revision = revision.number(),
        "a new revision is in force"
    );
    let (before, now) = (volume.shown().number(), revision.number());
    volume.show(revision);
    state.observe_event(&TreeEvent::Shown {
        tree: volume.label(),
        revision: now,
        before: Some(before),
    });
}

struct Superseded;

struct RevisionUpdate<'a> {
    state: &'a MountState,
    volume: &'a Arc<Volume>,
    number: u64,
    order: RevisionOrder,
}

struct ChildUpdate {
    child: KnownChild,
    new: Option<Inode>,
}

impl RevisionUpdate<'_> {
    async fn update_directory(
        &self,
        id: NodeId,
        new: &Arc<Inode>,
    ) -> Result<Vec<(NodeId, Arc<Inode>)>, Superseded> {
        let Some(view) = self.state.table.get(id) else { return Ok(Vec::new()) };
        let old = view.inode;
        if old == *new && !view.is_removed {
            return Ok(Vec::new());
        }
        let same_pages = !view.is_removed && top(&old) == top(new);
        let mut known = if same_pages { Vec::new() } else { self.state.table.children(id) };
        let mut changes = Vec::new();
        let mut added = known.clone();
        loop {
            for child in added {
                let old_entry = self.volume.tree().try_lookup(&old, &child.name);
                let new = self.entry(new, &child.name).await?;
                if let (false, Some(Ok(Some(old_entry))), Some(now)) =
                    (view.is_removed, &old_entry, &new)
                    && old_entry.inode == *now
                {
                    continue;
                }
                changes.push(ChildUpdate { child, new });
            }
            match self.state.table.move_directory(id, new, &known) {
                _ if same_pages => break,
                Ok(()) => break,
                Err(more) => {
                    known.extend(more.iter().cloned());
                    added = more;
                }
            }
        }
        self.volume.keep_older_directory(id, old);
        let changed =
            changes.into_iter().filter_map(|changes| self.update_child(id, changes)).collect();
        for name in self.volume.drain_missing(id) {
            self.state.kernel.send(Notice::Name(id, name));
        }
        self.state.kernel.send(Notice::Content(id));
        Ok(changed)
    }

    fn update_child(
        &self,
        directory: NodeId,
        changes: ChildUpdate,
    ) -> Option<(NodeId, Arc<Inode>)> {
        let ChildUpdate { child, new } = changes;
        let before = self.state.table.get(child.id)?;
        let updated = self.state.table.update(self.volume, directory, &child, new.as_ref());
        let send = |notice| self.state.kernel.send(notice);
        match updated {
            Updated::Unknown => return None,
            Updated::Gone => {
                self.remove_below(child.id);
                send(Notice::Name(directory, child.name));
                return None;
            }
            Updated::Renumbered => send(Notice::Name(directory, child.name)),
            Updated::Same => {}
        }
        let new = new?;
        if new.is_directory() {
            return (before.inode.is_directory())
                .then(|| (child.id, Arc::new(attributes::without_inline(&new))));
        }
        send(if same_content(&before.inode, &new) {
            Notice::Attributes(child.id)
        } else {
            Notice::Content(child.id)
        });
        None
    }

    fn remove_below(&self, id: NodeId) {
        self.volume.unfinished.lock().remove(&id);
        for id in self.state.table.remove_below(id).into_iter().chain([id]) {
            self.volume.unfinished.lock().remove(&id);
            self.state.kernel.send(Notice::Content(id));
        }
    }

    /// Looks up a name in the new version. Retries until a newer revision appears.
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
            tracing::warn!(
                tree = self.volume.label(),
                revision = self.number,
                "waiting for the new revision: {error}"
            );
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

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

/// Inline content is not stored, so it counts as changed.
fn same_content(old: &Inode, new: &Inode) -> bool {
    match (&old.content, &new.content) {
        (Content::Regular { blob: a, .. }, Content::Regular { blob: b, .. }) => {
            a == b && !attributes::lacks_inline(a)
        }
        (a, b) => a == b,
    }
}

/// The wall clock may be set: poll it.
const TICK: Duration = Duration::from_secs(1);

const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(15);
