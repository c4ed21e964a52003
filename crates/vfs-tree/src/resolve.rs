//! From an identity to the file that it names in the revision in force.
//!
//! A file that was looked at in this revision is in memory. Any other is looked up by its path,
//! from the nearest directory above it that is; only what the signed pages prove missing, or
//! another type of file, is stale.

use std::sync::Arc;

use vouch_tree::inode_number::InodeNumber;
use vouch_tree::{FileType, Inode};
use vouch_vfs::{Error, FileId, Patience, Result};

use crate::core::{Asking, split};
use crate::identity::{Identities, Place};
use crate::node::{Node, brief};

impl Asking<'_> {
    /// The file that the identity names.
    pub(crate) fn node(&self, id: &FileId) -> Result<Arc<Node>> {
        if let Some(node) = self.core.nodes.get(id) {
            if node.generation >= self.generation {
                return Ok(node);
            }
            return self.same(id, self.at(&node.path)?);
        }
        match Identities::place(id)? {
            (_, Place::Path(path)) => self.same(id, self.at(&path)?),
            (file_type, Place::Trail(trail)) => {
                if self.core.gone.get(id).is_some_and(|generation| generation >= self.generation) {
                    return Err(Error::Stale);
                }
                if self.patience == Patience::None {
                    return Err(Error::WouldBlock);
                }
                let found = self.search(file_type, &trail)?;
                if found.is_none() {
                    self.core.gone.insert(*id, self.generation);
                }
                self.same(id, found)
            }
        }
    }

    /// What was found at an identity's path, if it is what the identity names.
    fn same(&self, id: &FileId, found: Option<Arc<Node>>) -> Result<Arc<Node>> {
        found.filter(|node| node.id == *id).ok_or(Error::Stale)
    }

    /// The file at a path of this revision; `None` if the signed tree proves that there is none.
    pub(crate) fn at(&self, path: &[u8]) -> Result<Option<Arc<Node>>> {
        let mut known = path;
        let mut node = loop {
            if known.is_empty() {
                break self.root();
            }
            let (above, _) = split(known);
            // What a path leads through is a directory. What it leads to is looked up, whatever its type was.
            if let Some(node) = self.known(above) {
                known = above;
                break node;
            }
            known = above;
        };
        let rest = path[known.len()..].split(|&byte| byte == b'/').filter(|name| !name.is_empty());
        for name in rest {
            if !node.inode.is_directory() {
                return Ok(None);
            }
            let Some(entry) = self.entry(&node.inode, name)? else { return Ok(None) };
            node = self.enter(&node, name, &entry.inode)?;
        }
        Ok(Some(node))
    }

    /// The directory at a path, if it was looked at in this revision.
    fn known(&self, path: &[u8]) -> Option<Arc<Node>> {
        let id = self.core.identities.of(path, FileType::Directory);
        self.core.nodes.get(&id).filter(|node| node.generation >= self.generation)
    }

    /// The root directory.
    pub(crate) fn root(&self) -> Arc<Node> {
        self.remember(self.core.root, Arc::default(), InodeNumber::ROOT, self.revision.root())
    }

    /// What has this name in a directory, as its entry tells.
    pub(crate) fn enter(&self, directory: &Node, name: &[u8], inode: &Inode) -> Result<Arc<Node>> {
        let path = directory.path_of(name);
        if path.len() > PATH_LEN_MAX {
            return Err(Error::NameTooLong);
        }
        let id = self.core.identities.of(&path, inode.file_type());
        let number = self.core.numbering.of_file(directory.number, name, inode, 0);
        Ok(self.remember(id, path.into(), number, inode))
    }

    fn remember(&self, id: FileId, path: Arc<[u8]>, number: InodeNumber, inode: &Inode) -> Arc<Node> {
        let generation = self.generation;
        let before = self.core.nodes.get(&id);
        if let Some(node) = before.as_ref().filter(|node| node.generation >= generation) {
            return node.clone();
        }
        let inode = brief(inode);
        let node = match before {
            Some(before) if *before.inode == inode => {
                Node { id, path: before.path.clone(), number, inode: before.inode.clone(), generation, since: before.since }
            }
            _ => Node { id, path, number, inode: Arc::new(inode), generation, since: generation },
        };
        let node = Arc::new(node);
        self.core.nodes.insert(id, node.clone());
        node
    }
}

/// Longest path that is followed, bytes: four times what Linux takes in one system call. Each file
/// that is known keeps its own.
const PATH_LEN_MAX: usize = 16 << 10;
