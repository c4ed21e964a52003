//! From the nearest cached directory. A file is stale only if the signed pages prove it missing or
//! of another type.

use std::sync::Arc;

use vouch_tree::inode_number::InodeNumber;
use vouch_tree::{FileType, Inode};
use vouch_vfs::{Blocking, Error, FileId, Result};

use crate::core::{CallContext, split};
use crate::identity::{Address, Identities};
use crate::node::{Node, without_inline_content};

impl CallContext<'_> {
    pub(crate) fn node(&self, id: &FileId) -> Result<Arc<Node>> {
        if let Some(node) = self.core.nodes.get(id) {
            if node.generation >= self.generation {
                return Ok(node);
            }
            return self.same(id, self.at(&node.path)?);
        }
        match Identities::place(id)? {
            (_, Address::Path(path)) => self.same(id, self.at(&path)?),
            (file_type, Address::Trail(trail)) => {
                if self.core.gone.get(id).is_some_and(|generation| generation >= self.generation) {
                    return Err(Error::Stale);
                }
                if self.blocking == Blocking::Forbidden {
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

    fn same(&self, id: &FileId, found: Option<Arc<Node>>) -> Result<Arc<Node>> {
        found.filter(|node| node.id == *id).ok_or(Error::Stale)
    }

    /// `None` if the signed tree proves the file's absence.
    pub(crate) fn at(&self, path: &[u8]) -> Result<Option<Arc<Node>>> {
        let mut known = path;
        let mut node = loop {
            if known.is_empty() {
                break self.root();
            }
            let (above, _) = split(known);
            // Only directories can be on the way. The file itself is looked up whatever its type
            // was.
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

    fn known(&self, path: &[u8]) -> Option<Arc<Node>> {
        let id = self.core.identities.of(path, FileType::Directory);
        self.core.nodes.get(&id).filter(|node| node.generation >= self.generation)
    }

    pub(crate) fn root(&self) -> Arc<Node> {
        self.remember(self.core.root, Arc::default(), InodeNumber::ROOT, self.revision.root())
    }

    pub(crate) fn enter(&self, directory: &Node, name: &[u8], inode: &Inode) -> Result<Arc<Node>> {
        let path = directory.path_of(name);
        if path.len() > PATH_LEN_MAX {
            return Err(Error::NameTooLong);
        }
        let id = self.core.identities.of(&path, inode.file_type());
        let number = self.core.numbering.of_file(directory.number, name, inode, 0);
        Ok(self.remember(id, path.into(), number, inode))
    }

    fn remember(
        &self,
        id: FileId,
        path: Arc<[u8]>,
        number: InodeNumber,
        inode: &Inode,
    ) -> Arc<Node> {
        let generation = self.generation;
        let before = self.core.nodes.get(&id);
        if let Some(node) = before.as_ref().filter(|node| node.generation >= generation) {
            return node.clone();
        }
        let inode = without_inline_content(inode);
        let node = match before {
            Some(before) if *before.inode == inode => Node {
                id,
                path: before.path.clone(),
                number,
                inode: before.inode.clone(),
                generation,
                change: before.change,
            },
            _ => Node::new(id, path, number, Arc::new(inode), generation),
        };
        let node = Arc::new(node);
        self.core.nodes.insert(id, node.clone());
        node
    }
}

/// Bytes: four times Linux's limit for a system call. Each cached file stores its path.
const PATH_LEN_MAX: usize = 16 << 10;
