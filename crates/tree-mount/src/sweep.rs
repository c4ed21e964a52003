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
use vouch_tree_client::{ErrorClass, Order, Revision};

use crate::attr;
use crate::core::Core;
use crate::kernel::Notice;
use crate::number::NodeId;
use crate::observer::News;
use crate::table::{KnownChild, Updated};
use crate::volume::Volume;

/// Follows a tree's revisions and its freshness until the mount ends.
pub(crate) async fn follow(core: Weak<Core>, volume: Arc<Volume>) {
    let mut revisions = volume.tree().watch();
    let mut was_fresh = volume.is_fresh();
    loop {
        // The clock is the wall's, and may be set: it is looked at, not slept by.
        let _ = tokio::time::timeout(TICK, revisions.changed()).await;
        let Some(core) = core.upgrade() else { return };
        if Arc::strong_count(&volume) == 1 {
            // The namespace has let go of it, and the kernel of its last file.
            return;
        }
        let newest = volume.tree().newest();
        if newest.order() > volume.shown().order() || lags(&core, &volume) {
            take_over(&core, &volume, newest).await;
        }
        let is_fresh = volume.is_fresh();
        match (was_fresh, is_fresh) {
            (true, false) => {
                let error = volume.tree().revision().err();
                let why = error.as_ref().map(ToString::to_string).unwrap_or_default();
                tracing::warn!(tree = volume.label(), "nothing of this tree is served any more: {why}");
                let class = error.map_or(ErrorClass::Expired, |error| error.class());
                core.tell_news(&News::Withdrawn { tree: volume.label(), class, why: &why });
                withdraw(&core, &volume);
            }
            (false, true) => {
                let revision = volume.shown().number();
                tracing::info!(tree = volume.label(), revision, "served again");
                core.tell_news(&News::Back { tree: volume.label(), revision });
            }
            _ => {}
        }
        was_fresh = is_fresh;
    }
}

/// Whether the root entered the table from an older revision while the sweep was passing.
fn lags(core: &Core, volume: &Arc<Volume>) -> bool {
    core.table.get(volume.root()).is_some_and(|view| *view.inode != attr::brief(volume.shown().root()))
}

/// Makes the kernel forget all content of a tree: what it has cached is not fresh any more.
fn withdraw(core: &Core, volume: &Arc<Volume>) {
    for (id, _) in core.table.all_of(volume) {
        core.kernel.tell(Notice::Content(id));
    }
}

/// Takes all known files to `revision`, then shows it. Gives up when a still newer one appears,
/// which finishes the work.
async fn take_over(core: &Arc<Core>, volume: &Arc<Volume>, revision: Arc<Revision>) {
    let sweep = Sweep { core, volume, number: revision.number(), order: revision.order() };
    let root = Arc::new(attr::brief(revision.root()));
    let mut queue = VecDeque::from([(volume.root(), root.clone())]);
    // What an earlier sweep left is found again by its path.
    let unfinished: Vec<NodeId> = volume.unfinished.lock().iter().copied().collect();
    for id in unfinished {
        match sweep.resolve(id, &root).await {
            Ok(Some(inode)) => queue.push_back((id, Arc::new(attr::brief(&inode)))),
            Ok(None) => sweep.bury(id),
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
    if core.without_xattrs && revision.fsinfo.counts.with_xattrs > 0 {
        tracing::warn!(
            tree = volume.label(),
            "revision {} brings extended attributes, which show after the next mount (or mount with xattrs on); until then files that have any are their owner's alone",
            revision.number()
        );
    }
    core.follow_opens(volume).await;
    tracing::info!(tree = volume.label(), revision = revision.number(), "a new revision is in force");
    let (before, now) = (volume.shown().number(), revision.number());
    volume.show(revision);
    core.tell_news(&News::Shown { tree: volume.label(), revision: now, before: Some(before) });
}

/// A still newer revision has appeared.
struct Superseded;

struct Sweep<'a> {
    core: &'a Core,
    volume: &'a Arc<Volume>,
    number: u64,
    order: Order,
}

/// A known name, and what it led to and leads to now.
struct Judged {
    child: KnownChild,
    new: Option<Inode>,
}

impl Sweep<'_> {
    /// Takes one directory over; returns the known directories in it that changed.
    async fn directory(&self, id: NodeId, new: &Arc<Inode>) -> Result<Vec<(NodeId, Arc<Inode>)>, Superseded> {
        let Some(view) = self.core.table.get(id) else { return Ok(Vec::new()) };
        let old = view.inode;
        if old == *new && !view.gone {
            return Ok(Vec::new());
        }
        let same_pages = !view.gone && top(&old) == top(new);
        let mut known = if same_pages { Vec::new() } else { self.core.table.children(id) };
        let mut judged = Vec::new();
        let mut fresh = known.clone();
        loop {
            for child in fresh {
                let was = self.volume.tree().try_lookup(&old, &child.name);
                let new = self.entry(new, &child.name).await?;
                // Equal in both versions: nothing to do, and nothing below either.
                if let (false, Some(Ok(Some(was))), Some(now)) = (view.gone, &was, &new)
                    && was.inode == *now
                {
                    continue;
                }
                judged.push(Judged { child, new });
            }
            match self.core.table.move_directory(id, new, &known) {
                _ if same_pages => break,
                Ok(()) => break,
                Err(more) => {
                    known.extend(more.iter().cloned());
                    fresh = more;
                }
            }
        }
        self.volume.keep_older(id, old);
        let changed = judged.into_iter().filter_map(|judged| self.settle(id, judged)).collect();
        for name in self.volume.negatives.lock().drain(id) {
            self.core.kernel.tell(Notice::Name(id, name));
        }
        self.core.kernel.tell(Notice::Content(id));
        Ok(changed)
    }

    /// Takes one known name over, after its directory.
    fn settle(&self, directory: NodeId, judged: Judged) -> Option<(NodeId, Arc<Inode>)> {
        let Judged { child, new } = judged;
        let before = self.core.table.get(child.id)?;
        let updated = self.core.table.update(self.volume, directory, &child, new.as_ref());
        let tell = |notice| self.core.kernel.tell(notice);
        match updated {
            Updated::Unknown => return None,
            Updated::Gone => {
                self.bury(child.id);
                tell(Notice::Name(directory, child.name));
                return None;
            }
            Updated::Renumbered => tell(Notice::Name(directory, child.name)),
            Updated::Same => {}
        }
        let new = new?;
        if new.is_directory() {
            return (before.inode.is_directory()).then(|| (child.id, Arc::new(attr::brief(&new))));
        }
        tell(if same_content(&before.inode, &new) { Notice::Attributes(child.id) } else { Notice::Content(child.id) });
        None
    }

    /// All known files at and below `id` are no more.
    fn bury(&self, id: NodeId) {
        self.volume.unfinished.lock().remove(&id);
        for id in self.core.table.bury(id).into_iter().chain([id]) {
            self.volume.unfinished.lock().remove(&id);
            self.core.kernel.tell(Notice::Content(id));
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
            let Some((parent, name)) = self.core.table.path(at) else { return Ok(None) };
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
        (Content::Regular { blob: a, .. }, Content::Regular { blob: b, .. }) => a == b && !attr::is_brief(a),
        (a, b) => a == b,
    }
}

/// How often the clock is looked at.
const TICK: Duration = Duration::from_secs(1);

const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(15);
