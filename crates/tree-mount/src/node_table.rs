//! The node table: which files the kernel knows, by which paths, as of which revision.
//!
//! A node lives as long as the kernel holds it or a known file lies below it, because open files
//! are followed by path. All changes are single steps under one short lock; nothing here waits,
//! fetches or talks to the kernel.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use parking_lot::Mutex;
use vouch_tree::{FileType, Inode};

use crate::attributes;
use crate::volume::Volume;
use vouch_tree::inode_number::{InodeNumber as NodeId, InodeNumbering};

/// What a node belongs to; tests have none with a network behind it.
pub(crate) trait Owner {
    /// How its files are numbered.
    fn numbering(&self) -> &InodeNumbering;
}

/// What the kernel is to be told of one node.
pub(crate) struct NodeView<V = Volume> {
    /// The tree that it belongs to; `None` for what the namespace itself made.
    pub(crate) volume: Option<Arc<V>>,
    /// Its inode in the revision in force; [`attributes::without_inline`] but for directories' pages.
    pub(crate) inode: Arc<Inode>,
    /// The directory of its first path.
    pub(crate) parent: NodeId,
    /// A signed root has proven that it is no more.
    pub(crate) is_removed: bool,
}

/// The directory has moved on to another revision since its inode was looked at: look again.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DirectoryChanged;

/// A child of a directory by one of its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownChild {
    pub(crate) id: NodeId,
    pub(crate) name: Box<[u8]>,
}

/// What [`NodeTable::update`] did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Updated {
    /// The node follows the entry; the same number names it.
    Same,
    /// The node follows the path, or its other paths, but the entry has another number now.
    Renumbered,
    /// The path was the last one and the file is no more.
    Gone,
    /// The kernel had forgotten it already.
    Unknown,
}

/// All nodes of a mount.
pub(crate) struct NodeTable<V = Volume> {
    inner: Mutex<Inner<V>>,
}

type Map<V> = HashMap<NodeId, V, BuildHasherDefault<NumberHasher>>;

struct Inner<V> {
    /// Boxed: a map doubles its places when it grows, and moves what is in them.
    nodes: Map<Box<Node<V>>>,
    /// By directory, the nodes with a path in it. Sets of hashes: a sorted map of 200,000 cost a
    /// fifth of listing them.
    children: Map<HashSet<NodeId, BuildHasherDefault<NumberHasher>>>,
}

struct Node<V> {
    view: NodeView<V>,
    /// Of the first path; `view.parent` is its directory.
    name: Box<[u8]>,
    /// Further paths of a file with several links.
    more: Vec<(NodeId, Box<[u8]>)>,
    /// The link group that its number was made of; 0: made of its path.
    group: u64,
    /// How often the kernel was given it and has not yet forgotten it.
    lookups: u64,
    /// Never dropped: the root of the mount.
    is_pinned: bool,
}

impl<V> Clone for NodeView<V> {
    fn clone(&self) -> Self {
        Self { volume: self.volume.clone(), inode: self.inode.clone(), parent: self.parent, is_removed: self.is_removed }
    }
}

impl<V> Default for NodeTable<V> {
    fn default() -> Self {
        Self { inner: Mutex::new(Inner { nodes: Map::default(), children: Map::default() }) }
    }
}

impl<V: Owner> NodeTable<V> {
    /// Adds the root of the mount, for good.
    pub(crate) fn insert_root(&self, volume: Option<Arc<V>>, inode: Arc<Inode>) {
        let view = NodeView { volume, inode, parent: NodeId::ROOT, is_removed: false };
        let node = Node { view, name: Box::default(), more: Vec::new(), group: 0, lookups: 1, is_pinned: true };
        self.inner.lock().nodes.insert(NodeId::ROOT, Box::new(node));
    }

    /// Adds or finds what the namespace's root holds under `name` (a tree's root, a link), and
    /// counts a lookup.
    pub(crate) fn insert_reference(&self, id: NodeId, volume: Option<Arc<V>>, name: &[u8], inode: Arc<Inode>) -> Arc<Inode> {
        let mut inner = self.inner.lock();
        let view = NodeView { volume, inode, parent: NodeId::ROOT, is_removed: false };
        let fresh = || Node { view, name: name.into(), more: Vec::new(), group: 0, lookups: 0, is_pinned: false };
        let node = inner.nodes.entry(id).or_insert_with(|| Box::new(fresh()));
        node.lookups += 1;
        let inode = node.view.inode.clone();
        inner.children.entry(NodeId::ROOT).or_default().insert(id);
        inode
    }

    /// What is known of a node.
    pub(crate) fn get(&self, id: NodeId) -> Option<NodeView<V>> {
        self.inner.lock().nodes.get(&id).map(|node| node.view.clone())
    }

    /// The node's first path: its directory, and its name there.
    pub(crate) fn path(&self, id: NodeId) -> Option<(NodeId, Box<[u8]>)> {
        self.inner.lock().nodes.get(&id).map(|node| (node.view.parent, node.name.clone()))
    }

    /// All paths by which a node is known, below the root: the first one first, each beginning with
    /// `/`, or empty for the root itself.
    pub(crate) fn paths(&self, id: NodeId) -> Vec<Vec<u8>> {
        let inner = self.inner.lock();
        let Some(node) = inner.nodes.get(&id).filter(|_| id != NodeId::ROOT) else { return vec![Vec::new()] };
        let firsts = std::iter::once((node.view.parent, &node.name));
        let links = firsts.chain(node.more.iter().map(|(directory, name)| (*directory, name)));
        links
            .map(|(directory, name)| {
                let (mut names, mut at) = (vec![&**name], directory);
                while let Some(node) = inner.nodes.get(&at).filter(|_| at != NodeId::ROOT && names.len() < DEPTH_MAX) {
                    names.push(&*node.name);
                    at = node.view.parent;
                }
                names.iter().rev().flat_map(|name| std::iter::once(b'/').chain(name.iter().copied())).collect()
            })
            .collect()
    }

    /// Locks the table to add entries of one directory, whose inode was `seen` when they were read.
    pub(crate) fn enter<'a>(&'a self, directory: NodeId, seen: &Arc<Inode>) -> Result<DirectoryGuard<'a, V>, DirectoryChanged> {
        let inner = self.inner.lock();
        match inner.nodes.get(&directory) {
            Some(node) if Arc::ptr_eq(&node.view.inode, seen) && !node.view.is_removed => {
                let volume = node.view.volume.clone();
                Ok(DirectoryGuard { inner, directory, volume })
            }
            _ => Err(DirectoryChanged),
        }
    }

    /// The kernel forgets `count` lookups of a node.
    pub(crate) fn forget(&self, id: NodeId, count: u64) {
        self.inner.lock().forget(id, count);
    }

    /// How many nodes there are.
    pub(crate) fn len(&self) -> usize {
        self.inner.lock().nodes.len()
    }

    /// The known names in a directory.
    pub(crate) fn children(&self, directory: NodeId) -> Vec<KnownChild> {
        self.inner.lock().children_of(directory)
    }

    /// All nodes of a tree, directories and others.
    pub(crate) fn all_of(&self, volume: &Arc<V>) -> Vec<(NodeId, FileType)> {
        let inner = self.inner.lock();
        let ours = |node: &Node<V>| node.view.volume.as_ref().is_some_and(|v| Arc::ptr_eq(v, volume));
        inner.nodes.iter().filter(|(_, node)| ours(node)).map(|(id, node)| (*id, node.view.inode.file_type())).collect()
    }

    /// Takes a directory to `inode`, if still `known` are all its known names; else returns those
    /// that came since. From here on lookups in it are answered from the new revision.
    pub(crate) fn move_directory(&self, directory: NodeId, inode: &Arc<Inode>, known: &[KnownChild]) -> Result<(), Vec<KnownChild>> {
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
        }
        Ok(())
    }

    /// Takes the node that `name` in `directory` led to over to what the name leads to now. A
    /// directory's own pages are left as they are: [`NodeTable::move_directory`] takes them over
    /// when its children have been looked at.
    pub(crate) fn update(&self, volume: &V, directory: NodeId, child: &KnownChild, entry: Option<&Inode>) -> Updated {
        let mut inner = self.inner.lock();
        let Some(node) = inner.nodes.get_mut(&child.id) else { return Updated::Unknown };
        let same_type = entry.filter(|e| e.file_type() == node.view.inode.file_type());
        let follows = |e: &&Inode| (0..ATTEMPTS_MAX).any(|n| volume.numbering().of_file(directory, &child.name, e, n) == child.id);
        if let Some(inode) = same_type.filter(follows) {
            // A directory follows when its own known names have been looked at.
            if !inode.is_directory() {
                node.adopt(inode);
            }
            return Updated::Same;
        }
        if !node.more.is_empty() {
            inner.drop_path(child.id, directory, &child.name);
            return Updated::Renumbered;
        }
        match same_type {
            Some(inode) => {
                node.adopt(inode);
                Updated::Renumbered
            }
            None => {
                node.view.is_removed = true;
                Updated::Gone
            }
        }
    }

    /// Marks all below a directory that is no more; returns them.
    pub(crate) fn remove_below(&self, directory: NodeId) -> Vec<NodeId> {
        let mut inner = self.inner.lock();
        let (mut buried, mut queue) = (Vec::new(), vec![directory]);
        while let Some(id) = queue.pop() {
            let below: Vec<NodeId> = inner.children.get(&id).into_iter().flatten().copied().collect();
            for child in below {
                if inner.remove_path(child, id) {
                    buried.push(child);
                    queue.push(child);
                }
            }
        }
        buried
    }
}

/// The table, locked to add entries of one directory.
pub(crate) struct DirectoryGuard<'a, V = Volume> {
    inner: parking_lot::MutexGuard<'a, Inner<V>>,
    directory: NodeId,
    volume: Option<Arc<V>>,
}

impl<V: Owner> DirectoryGuard<'_, V> {
    /// Adds an entry or finds its node, brings it up to date, and counts a lookup.
    pub(crate) fn insert(&mut self, name: &[u8], inode: &Inode) -> Option<NodeId> {
        let volume = self.volume.as_ref()?;
        let (directory, group) = (self.directory, inode.link_group);
        for attempt in 0..ATTEMPTS_MAX {
            let id = volume.numbering().of_file(directory, name, inode, attempt);
            let node = match self.inner.nodes.entry(id) {
                Entry::Occupied(there) => there.into_mut(),
                Entry::Vacant(place) => {
                    let inode = Arc::new(attributes::without_inline(inode));
                    let view = NodeView { volume: Some(volume.clone()), inode, parent: directory, is_removed: false };
                    place.insert(Box::new(Node { view, name: name.into(), more: Vec::new(), group, lookups: 1, is_pinned: false }));
                    self.inner.children.entry(directory).or_default().insert(id);
                    return Some(id);
                }
            };
            let is_same = node.group == group && (group != 0 || (node.view.parent == directory && *node.name == *name));
            if !is_same || !node.view.volume.as_ref().is_some_and(|v| Arc::ptr_eq(v, volume)) {
                continue;
            }
            if node.view.is_removed || !node.view.inode.is_directory() {
                node.adopt(inode);
            }
            node.lookups += 1;
            if node.add_path(directory, name) {
                self.inner.children.entry(directory).or_default().insert(id);
            }
            return Some(id);
        }
        None
    }

    /// Takes back an [`DirectoryGuard::insert`] that the reply had no room for.
    pub(crate) fn undo_insert(&mut self, id: NodeId) {
        self.inner.forget(id, 1);
    }
}

impl<V> Node<V> {
    fn adopt(&mut self, inode: &Inode) {
        self.view.inode = Arc::new(attributes::without_inline(inode));
        self.view.is_removed = false;
    }

    /// True if the path was new.
    fn add_path(&mut self, directory: NodeId, name: &[u8]) -> bool {
        let known =
            (self.view.parent == directory && *self.name == *name) || self.more.iter().any(|(d, n)| *d == directory && **n == *name);
        if !known && self.more.len() < PATHS_MAX {
            self.more.push((directory, name.into()));
            return true;
        }
        false
    }

    fn has_path_in(&self, directory: NodeId) -> bool {
        self.view.parent == directory || self.more.iter().any(|(d, _)| *d == directory)
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
            found.extend(node.more.iter().filter(|(d, _)| *d == directory).map(|(_, name)| KnownChild { id, name: name.clone() }));
        }
        found
    }

    fn forget(&mut self, id: NodeId, count: u64) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.lookups = node.lookups.saturating_sub(count);
            self.drop_unused(id);
        }
    }

    /// Drops a node that nobody holds, and then its directories, as far as they were only held by
    /// it.
    fn drop_unused(&mut self, id: NodeId) {
        let mut queue = vec![id];
        while let Some(id) = queue.pop() {
            let Some(node) = self.nodes.get(&id) else { continue };
            let has_children = self.children.contains_key(&id);
            if node.lookups > 0 || node.is_pinned || has_children {
                continue;
            }
            let Some(node) = self.nodes.remove(&id) else { continue };
            for directory in node.more.iter().map(|(d, _)| *d).chain([node.view.parent]) {
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

    /// A file has lost its names in `directory`. True if they were its last: it is gone, and was
    /// not before.
    fn remove_path(&mut self, id: NodeId, directory: NodeId) -> bool {
        while let Some(node) = self.nodes.get_mut(&id).filter(|node| node.has_path_in(directory)) {
            if node.more.is_empty() {
                return !std::mem::replace(&mut node.view.is_removed, true);
            }
            let more = node.more.iter().find(|(d, _)| *d == directory).map(|(_, name)| name.clone());
            let name = more.unwrap_or_else(|| node.name.clone());
            self.drop_path(id, directory, &name);
        }
        false
    }

    fn drop_path(&mut self, id: NodeId, directory: NodeId, name: &[u8]) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if let Some(at) = node.more.iter().position(|(d, n)| *d == directory && **n == *name) {
            node.more.swap_remove(at);
        } else if node.view.parent == directory && *node.name == *name && !node.more.is_empty() {
            let (parent, name) = node.more.swap_remove(0);
            (node.view.parent, node.name) = (parent, name);
        }
        if !node.has_path_in(directory) {
            self.remove_child(directory, id);
            self.drop_unused(directory);
        }
    }
}

/// Node ids are hashes already.
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

/// Directories above a file that its path is put together of; of a deeper one the first are left
/// out.
const DEPTH_MAX: usize = 2048;

/// Two files of a million collide with a chance of 1 in 37 million; eight do not.
const ATTEMPTS_MAX: u32 = 8;

/// Paths that are followed for one file. Each further link is found by lookup as ever; it only is
/// not followed.
const PATHS_MAX: usize = 64;

#[cfg(test)]
mod tests;
