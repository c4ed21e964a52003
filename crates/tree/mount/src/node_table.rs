//! The files that the kernel knows. A node lives while the kernel holds it or a node below it: open
//! files are followed by path. Each change is one step under a short lock; nothing here blocks.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use parking_lot::Mutex;
use vouch_tree::inode_number::{InodeNumber as NodeId, InodeNumbering};
use vouch_tree::{FileType, Inode};

use crate::attributes;
use crate::journal::Journal;
use crate::volume::Volume;

mod recording;

/// The tree of a node. Tests have one without a network.
pub(crate) trait Owner {
    fn numbering(&self) -> &InodeNumbering;

    fn number(&self) -> u32;
}

pub(crate) struct NodeView<V = Volume> {
    /// `None` for the namespace's own nodes.
    pub(crate) volume: Option<Arc<V>>,
    /// The inode in the revision in force; without inline content, except for directories' pages.
    pub(crate) inode: Arc<Inode>,
    pub(crate) parent: NodeId,
    /// The signed tree proves the absence.
    pub(crate) is_removed: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DirectoryChanged;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownChild {
    pub(crate) id: NodeId,
    pub(crate) name: Box<[u8]>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Updated {
    Same,
    Renumbered,
    Gone,
    Unknown,
}

pub(crate) struct NodeTable<V = Volume> {
    inner: Mutex<Inner<V>>,
}

type Map<V> = HashMap<NodeId, V, BuildHasherDefault<NumberHasher>>;

struct Inner<V> {
    /// Boxed: a growing map moves its values.
    nodes: Map<Box<Node<V>>>,
    /// Sorted maps took a fifth of the time of large listings.
    children: Map<HashSet<NodeId, BuildHasherDefault<NumberHasher>>>,
    /// Written before the lock is released.
    journal: Option<Arc<Journal>>,
    changed: Vec<NodeId>,
    counted: Vec<NodeId>,
}

struct Node<V> {
    view: NodeView<V>,
    name: Box<[u8]>,
    other_paths: Vec<(NodeId, Box<[u8]>)>,
    /// Source of the number; 0: derived from the path.
    link_group: u64,
    lookups: u64,
    is_pinned: bool,
}

impl<V> Clone for NodeView<V> {
    fn clone(&self) -> Self {
        Self {
            volume: self.volume.clone(),
            inode: self.inode.clone(),
            parent: self.parent,
            is_removed: self.is_removed,
        }
    }
}

impl<V> Default for NodeTable<V> {
    fn default() -> Self {
        Self::new(None)
    }
}

impl<V> NodeTable<V> {
    pub(crate) fn new(journal: Option<Arc<Journal>>) -> Self {
        let inner = Inner {
            nodes: Map::default(),
            children: Map::default(),
            journal,
            changed: Vec::new(),
            counted: Vec::new(),
        };
        Self { inner: Mutex::new(inner) }
    }
}

impl<V: Owner> NodeTable<V> {
    pub(crate) fn insert_root(&self, volume: Option<Arc<V>>, inode: Arc<Inode>) {
        let view = NodeView { volume, inode, parent: NodeId::ROOT, is_removed: false };
        let node = Node {
            view,
            name: Box::default(),
            other_paths: Vec::new(),
            link_group: 0,
            lookups: 1,
            is_pinned: true,
        };
        let mut inner = self.inner.lock();
        inner.nodes.insert(NodeId::ROOT, Box::new(node));
        inner.note_changed(NodeId::ROOT);
        inner.record();
    }

    pub(crate) fn insert_reference(
        &self,
        id: NodeId,
        volume: Option<Arc<V>>,
        name: &[u8],
        inode: Arc<Inode>,
    ) -> Arc<Inode> {
        let mut inner = self.inner.lock();
        let view = NodeView { volume, inode, parent: NodeId::ROOT, is_removed: false };
        let fresh = || Node {
            view,
            name: name.into(),
            other_paths: Vec::new(),
            link_group: 0,
            lookups: 0,
            is_pinned: false,
        };
        let node = inner.nodes.entry(id).or_insert_with(|| Box::new(fresh()));
        node.lookups += 1;
        let inode = node.view.inode.clone();
        inner.children.entry(NodeId::ROOT).or_default().insert(id);
        inner.note_changed(id);
        inner.record();
        inode
    }

    pub(crate) fn get(&self, id: NodeId) -> Option<NodeView<V>> {
        self.inner.lock().nodes.get(&id).map(|node| node.view.clone())
    }

    pub(crate) fn path(&self, id: NodeId) -> Option<(NodeId, Box<[u8]>)> {
        self.inner.lock().nodes.get(&id).map(|node| (node.view.parent, node.name.clone()))
    }

    /// The first path first. Each begins with `/`; the root's is empty.
    pub(crate) fn paths(&self, id: NodeId) -> Vec<Vec<u8>> {
        let inner = self.inner.lock();
        let Some(node) = inner.nodes.get(&id).filter(|_| id != NodeId::ROOT) else {
            return vec![Vec::new()];
        };
        let firsts = std::iter::once((node.view.parent, &node.name));
        let links =
            firsts.chain(node.other_paths.iter().map(|(directory, name)| (*directory, name)));
        links
            .map(|(directory, name)| {
                let (mut names, mut at) = (vec![&**name], directory);
                while let Some(node) =
                    inner.nodes.get(&at).filter(|_| at != NodeId::ROOT && names.len() < DEPTH_MAX)
                {
                    names.push(&*node.name);
                    at = node.view.parent;
                }
                names
                    .iter()
                    .rev()
                    .flat_map(|name| std::iter::once(b'/').chain(name.iter().copied()))
                    .collect()
            })
            .collect()
    }

    pub(crate) fn lock_directory<'a>(
        &'a self,
        directory: NodeId,
        seen: &Arc<Inode>,
    ) -> Result<DirectoryGuard<'a, V>, DirectoryChanged> {
        let inner = self.inner.lock();
        match inner.nodes.get(&directory) {
            Some(node) if Arc::ptr_eq(&node.view.inode, seen) && !node.view.is_removed => {
                let volume = node.view.volume.clone();
                Ok(DirectoryGuard { inner, directory, volume })
            }
            _ => Err(DirectoryChanged),
        }
    }

    pub(crate) fn forget(&self, id: NodeId, count: u64) {
        let mut inner = self.inner.lock();
        inner.forget(id, count);
        inner.record_later();
    }

    pub(crate) fn len(&self) -> usize {
        self.inner.lock().nodes.len()
    }

    pub(crate) fn children(&self, directory: NodeId) -> Vec<KnownChild> {
        self.inner.lock().children_of(directory)
    }

    pub(crate) fn all_of(&self, volume: &Arc<V>) -> Vec<(NodeId, FileType)> {
        let inner = self.inner.lock();
        let ours =
            |node: &Node<V>| node.view.volume.as_ref().is_some_and(|v| Arc::ptr_eq(v, volume));
        inner
            .nodes
            .iter()
            .filter(|(_, node)| ours(node))
            .map(|(id, node)| (*id, node.view.inode.file_type()))
            .collect()
    }

    /// If `known` lacks known names, changes nothing and returns them.
    pub(crate) fn move_directory(
        &self,
        directory: NodeId,
        inode: &Arc<Inode>,
        known: &[KnownChild],
    ) -> Result<(), Vec<KnownChild>> {
        let index: HashSet<(NodeId, &[u8])> = known.iter().map(|k| (k.id, &*k.name)).collect();
        let mut inner = self.inner.lock();
        let mut fresh = inner.children_of(directory);
        fresh.retain(|k| !index.contains(&(k.id, &*k.name)));
        if !fresh.is_empty() {
            return Err(fresh);
        }
        if let Some(node) = inner.nodes.get_mut(&directory) {
            node.view.inode = inode.clone();
            node.view.is_removed = false;
            inner.note_changed(directory);
            inner.record();
        }
        Ok(())
    }

    /// Directories keep their pages until [`NodeTable::move_directory`].
    pub(crate) fn update(
        &self,
        volume: &V,
        directory: NodeId,
        child: &KnownChild,
        entry: Option<&Inode>,
    ) -> Updated {
        let mut inner = self.inner.lock();
        let updated = inner.update(volume, directory, child, entry);
        inner.note_changed(child.id);
        inner.record();
        updated
    }

    pub(crate) fn remove_below(&self, directory: NodeId) -> Vec<NodeId> {
        let mut inner = self.inner.lock();
        let (mut buried, mut queue) = (Vec::new(), vec![directory]);
        while let Some(id) = queue.pop() {
            let below: Vec<NodeId> =
                inner.children.get(&id).into_iter().flatten().copied().collect();
            for child in below {
                if inner.remove_path(child, id) {
                    buried.push(child);
                    queue.push(child);
                }
                inner.note_changed(child);
            }
        }
        inner.record();
        buried
    }
}

/// Locked to add entries of one directory.
pub(crate) struct DirectoryGuard<'a, V: Owner = Volume> {
    inner: parking_lot::MutexGuard<'a, Inner<V>>,
    directory: NodeId,
    volume: Option<Arc<V>>,
}

impl<V: Owner> DirectoryGuard<'_, V> {
    pub(crate) fn insert(&mut self, name: &[u8], inode: &Inode) -> Option<NodeId> {
        let volume = self.volume.as_ref()?;
        let (directory, link_group) = (self.directory, inode.link_group);
        for attempt in 0..ATTEMPTS_MAX {
            let id = volume.numbering().of_file(directory, name, inode, attempt);
            let node = match self.inner.nodes.entry(id) {
                Entry::Occupied(there) => there.into_mut(),
                Entry::Vacant(place) => {
                    let inode = Arc::new(attributes::without_inline(inode));
                    let view = NodeView {
                        volume: Some(volume.clone()),
                        inode,
                        parent: directory,
                        is_removed: false,
                    };
                    place.insert(Box::new(Node {
                        view,
                        name: name.into(),
                        other_paths: Vec::new(),
                        link_group,
                        lookups: 1,
                        is_pinned: false,
                    }));
                    self.inner.children.entry(directory).or_default().insert(id);
                    self.inner.note_changed(id);
                    return Some(id);
                }
            };
            let is_same = node.link_group == link_group
                && (link_group != 0 || (node.view.parent == directory && *node.name == *name));
            if !is_same || !node.view.volume.as_ref().is_some_and(|v| Arc::ptr_eq(v, volume)) {
                continue;
            }
            let mut is_changed = false;
            if node.view.is_removed || !node.view.inode.is_directory() {
                is_changed =
                    node.view.is_removed || *node.view.inode != attributes::without_inline(inode);
                node.set_inode(inode);
            }
            node.lookups += 1;
            if node.add_path(directory, name) {
                self.inner.children.entry(directory).or_default().insert(id);
                is_changed = true;
            }
            if is_changed {
                self.inner.note_changed(id);
            } else {
                self.inner.note_counted(id);
            }
            return Some(id);
        }
        None
    }

    pub(crate) fn undo_insert(&mut self, id: NodeId) {
        self.inner.forget(id, 1);
    }
}

impl<V: Owner> Drop for DirectoryGuard<'_, V> {
    fn drop(&mut self) {
        self.inner.record();
    }
}

impl<V> Node<V> {
    fn set_inode(&mut self, inode: &Inode) {
        self.view.inode = Arc::new(attributes::without_inline(inode));
        self.view.is_removed = false;
    }

    fn add_path(&mut self, directory: NodeId, name: &[u8]) -> bool {
        let known = (self.view.parent == directory && *self.name == *name)
            || self.other_paths.iter().any(|(d, n)| *d == directory && **n == *name);
        if !known && self.other_paths.len() < PATHS_MAX {
            self.other_paths.push((directory, name.into()));
            return true;
        }
        false
    }

    fn has_path_in(&self, directory: NodeId) -> bool {
        self.view.parent == directory || self.other_paths.iter().any(|(d, _)| *d == directory)
    }
}

impl<V: Owner> Inner<V> {
    fn update(
        &mut self,
        volume: &V,
        directory: NodeId,
        child: &KnownChild,
        entry: Option<&Inode>,
    ) -> Updated {
        let Some(node) = self.nodes.get_mut(&child.id) else { return Updated::Unknown };
        let same_type = entry.filter(|e| e.file_type() == node.view.inode.file_type());
        let follows = |e: &&Inode| {
            (0..ATTEMPTS_MAX)
                .any(|n| volume.numbering().of_file(directory, &child.name, e, n) == child.id)
        };
        if let Some(inode) = same_type.filter(follows) {
            if !inode.is_directory() {
                node.set_inode(inode);
            }
            return Updated::Same;
        }
        if !node.other_paths.is_empty() {
            self.drop_path(child.id, directory, &child.name);
            return Updated::Renumbered;
        }
        match same_type {
            Some(inode) => {
                node.set_inode(inode);
                Updated::Renumbered
            }
            None => {
                node.view.is_removed = true;
                Updated::Gone
            }
        }
    }
}

impl<V> Inner<V> {
    fn children_of(&self, directory: NodeId) -> Vec<KnownChild> {
        let mut found = Vec::new();
        for &id in self.children.get(&directory).into_iter().flatten() {
            let Some(node) = self.nodes.get(&id) else { continue };
            if node.view.parent == directory {
                found.push(KnownChild { id, name: node.name.clone() });
            }
            found.extend(
                node.other_paths
                    .iter()
                    .filter(|(d, _)| *d == directory)
                    .map(|(_, name)| KnownChild { id, name: name.clone() }),
            );
        }
        found
    }

    fn forget(&mut self, id: NodeId, count: u64) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.lookups = node.lookups.saturating_sub(count);
            self.note_counted(id);
            self.drop_unused(id);
        }
    }

    fn drop_unused(&mut self, id: NodeId) {
        let mut queue = vec![id];
        while let Some(id) = queue.pop() {
            let Some(node) = self.nodes.get(&id) else { continue };
            let has_children = self.children.contains_key(&id);
            if node.lookups > 0 || node.is_pinned || has_children {
                continue;
            }
            let Some(node) = self.nodes.remove(&id) else { continue };
            self.note_changed(id);
            for directory in node.other_paths.iter().map(|(d, _)| *d).chain([node.view.parent]) {
                self.remove_child(directory, id);
                queue.push(directory);
            }
        }
    }

    fn remove_child(&mut self, directory: NodeId, id: NodeId) {
        if let Some(below) = self.children.get_mut(&directory) {
            below.remove(&id);
            if below.is_empty() {
                self.children.remove(&directory);
            }
        }
    }

    fn remove_path(&mut self, id: NodeId, directory: NodeId) -> bool {
        while let Some(node) = self.nodes.get_mut(&id).filter(|node| node.has_path_in(directory)) {
            if node.other_paths.is_empty() {
                return !std::mem::replace(&mut node.view.is_removed, true);
            }
            let other_paths = node
                .other_paths
                .iter()
                .find(|(d, _)| *d == directory)
                .map(|(_, name)| name.clone());
            let name = other_paths.unwrap_or_else(|| node.name.clone());
            self.drop_path(id, directory, &name);
        }
        false
    }

    fn drop_path(&mut self, id: NodeId, directory: NodeId, name: &[u8]) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if let Some(at) = node.other_paths.iter().position(|(d, n)| *d == directory && **n == *name)
        {
            node.other_paths.swap_remove(at);
        } else if node.view.parent == directory
            && *node.name == *name
            && !node.other_paths.is_empty()
        {
            let (parent, name) = node.other_paths.swap_remove(0);
            (node.view.parent, node.name) = (parent, name);
        }
        if !node.has_path_in(directory) {
            self.remove_child(directory, id);
            self.drop_unused(directory);
        }
    }
}

#[derive(Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&b| self.0 = self.0.rotate_left(8) ^ u64::from(b));
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = n;
    }
}

const DEPTH_MAX: usize = 2048;

/// Two of a million files collide with a chance of 1 in 37 million; eight attempts suffice.
const ATTEMPTS_MAX: u32 = 8;

/// Paths followed per file. Further hard links are found by lookup only.
pub(crate) const PATHS_MAX: usize = 64;

#[cfg(test)]
mod tests;
