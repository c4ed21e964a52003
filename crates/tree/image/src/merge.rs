//! The merged view of an image's layers, without data of files (image-spec, layer.md). Links and
//! `..` never lead out of it: it is a table in memory.

use std::collections::BTreeMap;

use vouch_tree::{Content, FileName, Inode};
use vouch_tree_publish::Assembly;

use crate::error::LayerError;

/// Index into the table of nodes. Hard links share one.
pub(crate) type NodeIndex = usize;

struct Node {
    inode: Inode,
    parent: NodeIndex,
    /// Of a directory.
    names: BTreeMap<FileName, Name>,
    /// The last layer that has hidden what the layers before have below this directory. Whiteouts that
    /// follow in this layer find nothing more.
    hidden_in: usize,
}

struct Name {
    node: NodeIndex,
    /// The last layer that has an entry of this name or below it.
    layer: usize,
}

pub(crate) struct Merged {
    nodes: Vec<Node>,
    layer: usize,
    /// Bytes of names, hard links included, and of targets of symbolic links.
    memory_len: usize,
    /// Names that whiteouts have looked at.
    #[cfg(test)]
    hidden_from: usize,
}

const ROOT: NodeIndex = 0;

impl Node {
    const fn new(inode: Inode, parent: NodeIndex) -> Self {
        Self { inode, parent, names: BTreeMap::new(), hidden_in: 0 }
    }
}

impl Merged {
    pub(crate) fn new() -> Self {
        Self {
            nodes: vec![Node::new(directory_inode(), ROOT)],
            layer: 0,
            memory_len: 0,
            #[cfg(test)]
            hidden_from: 0,
        }
    }

    /// Whiteouts that follow hide only entries of the layers before.
    pub(crate) const fn begin_layer(&mut self) {
        self.layer += 1;
    }

    /// Adds an entry, or replaces the one of this path. A directory keeps its entries.
    pub(crate) fn put(&mut self, path: &[u8], inode: Inode) -> Result<NodeIndex, LayerError> {
        let components = components(path)?;
        let Some((name, parents)) = components.split_last() else {
            if !inode.is_directory() {
                return Err(entry(path, "the root is no directory"));
            }
            self.nodes[ROOT].inode = inode;
            return Ok(ROOT);
        };
        let parent = self.parent(path, parents, true)?;
        let old = self.nodes[parent].names.get(name).map(|name| name.node);
        if let Some(node) = old
            && inode.is_directory()
            && self.nodes[node].inode.is_directory()
        {
            self.nodes[node].inode = inode;
            let layer = self.layer;
            self.nodes[parent].names.insert(name.clone(), Name { node, layer });
            return Ok(node);
        }
        self.add(parent, name.clone(), inode)
    }

    /// Adds a name of the file at `target`, of this layer or of one before.
    pub(crate) fn link(&mut self, path: &[u8], target: &[u8]) -> Result<(), LayerError> {
        let missing = || entry(path, "the target of a hard link is missing or a directory");
        let to = components(target)?;
        let (last, parents) = to.split_last().ok_or_else(missing)?;
        let above = self.parent(target, parents, false).map_err(|_| missing())?;
        let node = self.nodes[above].names.get(last).ok_or_else(missing)?.node;
        if self.nodes[node].inode.is_directory() {
            return Err(missing());
        }
        let components = components(path)?;
        let (name, parents) = components.split_last().ok_or_else(missing)?;
        let parent = self.parent(path, parents, true)?;
        // Has no node of its own, so that the number of entries does not bound it.
        self.take_memory(name, &Content::Fifo)?;
        self.nodes[parent].names.insert(name.clone(), Name { node, layer: self.layer });
        Ok(())
    }

    /// Obeys a whiteout; false if `path` is none.
    pub(crate) fn whiteout(&mut self, path: &[u8]) -> Result<bool, LayerError> {
        let at = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
        let Some(hidden) = path[at..].strip_prefix(WHITEOUT) else { return Ok(false) };
        let parents = components(&path[..at])?;
        // Nothing to hide in a directory that no layer has made yet.
        let Ok(parent) = self.parent(path, &parents, false) else { return Ok(true) };
        if hidden == OPAQUE {
            self.hide_lower(parent);
        } else if !hidden.starts_with(WHITEOUT) {
            let name = FileName::parse(hidden).map_err(|_| entry(path, "invalid whiteout"))?;
            let names = &mut self.nodes[parent].names;
            if names.get(&name).is_some_and(|name| name.layer < self.layer) {
                names.remove(&name);
            } else if let Some(name) = names.get(&name) {
                let node = name.node;
                self.hide_lower(node);
            }
        }
        Ok(true)
    }

    fn hide_lower(&mut self, directory: NodeIndex) {
        let mut directories = vec![directory];
        while let Some(directory) = directories.pop() {
            let layer = self.layer;
            let node = &mut self.nodes[directory];
            if std::mem::replace(&mut node.hidden_in, layer) == layer {
                continue;
            }
            #[cfg(test)]
            {
                self.hidden_from += node.names.len();
            }
            node.names.retain(|_, name| name.layer == layer);
            directories.extend(node.names.values().map(|name| name.node));
        }
    }

    /// Follows symbolic links, as tools do that unpack: `lib/x` where `lib` leads to `usr/lib`.
    fn parent(
        &mut self,
        path: &[u8],
        components: &[FileName],
        makes: bool,
    ) -> Result<NodeIndex, LayerError> {
        let mut left: Vec<Option<FileName>> = components.iter().rev().cloned().map(Some).collect();
        let (mut above, mut links) = (vec![ROOT], 0);
        while let Some(component) = left.pop() {
            let at = above[above.len() - 1];
            let Some(name) = component else {
                // `..` of a link's target; at the root it stays there.
                above.truncate((above.len() - 1).max(1));
                continue;
            };
            let layer = self.layer;
            let found = self.nodes[at].names.get_mut(&name);
            let node = match found {
                Some(found) => {
                    if makes {
                        found.layer = layer;
                    }
                    found.node
                }
                // The layers have no entry for this directory.
                None if makes => self.add(at, name, directory_inode())?,
                None => return Err(entry(path, "its directory is missing")),
            };
            match &self.nodes[node].inode.content {
                Content::Directory { .. } => above.push(node),
                Content::Symlink(target) => {
                    links += 1;
                    if links > LINKS_MAX || left.len() > DEPTH_MAX {
                        return Err(entry(path, "too many symbolic links on the way"));
                    }
                    if target.starts_with(b"/") {
                        above.truncate(1);
                    }
                    for part in target.split(|&byte| byte == b'/').rev() {
                        match part {
                            b"" | b"." => {}
                            b".." => left.push(None),
                            part => left.push(Some(FileName::parse(part).map_err(|_| {
                                entry(path, "a symbolic link on the way is invalid")
                            })?)),
                        }
                    }
                }
                _ => return Err(entry(path, "a file is on the way")),
            }
            if above.len() > DEPTH_MAX {
                return Err(entry(path, "too deep"));
            }
        }
        Ok(above[above.len() - 1])
    }

    fn add(
        &mut self,
        parent: NodeIndex,
        name: FileName,
        inode: Inode,
    ) -> Result<NodeIndex, LayerError> {
        let node = self.nodes.len();
        if node >= ENTRIES_MAX {
            return Err(LayerError::TooLarge("image, in entries,", ENTRIES_MAX as u64));
        }
        self.take_memory(&name, &inode.content)?;
        self.nodes.push(Node::new(inode, parent));
        self.nodes[parent].names.insert(name, Name { node, layer: self.layer });
        Ok(node)
    }

    /// Counts a new name. All names stay in memory until the image is stored.
    fn take_memory(&mut self, name: &FileName, content: &Content) -> Result<(), LayerError> {
        let target_len = match content {
            Content::Symlink(target) => target.len(),
            _ => 0,
        };
        self.memory_len += name.as_bytes().len() + NAME_COST + target_len;
        if self.memory_len > MEMORY_LEN_MAX {
            let what = "image, in bytes of names and symbolic links,";
            return Err(LayerError::TooLarge(what, MEMORY_LEN_MAX as u64));
        }
        Ok(())
    }

    pub(crate) fn set_content(&mut self, node: NodeIndex, content: Content) {
        self.nodes[node].inode.content = content;
    }

    /// Stores all directories, and returns the root.
    pub(crate) fn store(mut self, into: &Assembly<'_>) -> Result<Inode, vouch_tree_publish::Error> {
        self.number_links();
        let mut stack = vec![(ROOT, false, false)];
        while let Some((node, is_private, is_ready)) = stack.pop() {
            if is_ready {
                let names = std::mem::take(&mut self.nodes[node].names);
                let entries = names
                    .into_iter()
                    .map(|(name, below)| (name, self.nodes[below.node].inode.clone()));
                self.nodes[node].inode.content = into.directory(entries)?;
                continue;
            }
            let is_private =
                is_private || (node != ROOT && self.nodes[node].inode.mode & 0o001 == 0);
            stack.push((node, is_private, true));
            for (name, below) in &self.nodes[node].names {
                let inode = &self.nodes[below.node].inode;
                match inode.content {
                    Content::Directory { .. } => stack.push((below.node, is_private, false)),
                    Content::Regular { .. } if is_private || inode.mode & 0o004 == 0 => {
                        into.count_private(|| self.path(node, name));
                    }
                    _ => {}
                }
            }
        }
        Ok(self.nodes.swap_remove(ROOT).inode)
    }

    /// Every directory has one name, and lies below the root.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn check(mut self) {
        let (mut stack, mut seen) = (vec![ROOT], std::collections::HashSet::from([ROOT]));
        while let Some(directory) = stack.pop() {
            for name in self.nodes[directory].names.values() {
                if self.nodes[name.node].inode.is_directory() {
                    assert_eq!(self.nodes[name.node].parent, directory, "a parent");
                    assert!(seen.insert(name.node), "a directory with two names");
                    stack.push(name.node);
                }
            }
        }
        self.number_links();
    }

    /// Counts the links. Groups are numbered in the order of paths: equal images have equal groups.
    fn number_links(&mut self) {
        let mut groups = vec![0; self.nodes.len()];
        let (mut stack, mut count) = (vec![ROOT], 0_u64);
        while let Some(node) = stack.pop() {
            let below: Vec<_> = self.nodes[node].names.values().map(|name| name.node).collect();
            let directories = stack.len();
            for node in below {
                let inode = &mut self.nodes[node].inode;
                if inode.is_directory() {
                    stack.push(node);
                } else if groups[node] == 0 {
                    count += 1;
                    groups[node] = link_group(count);
                    inode.nlink = 1;
                } else {
                    inode.nlink = inode.nlink.saturating_add(1);
                    inode.link_group = groups[node];
                }
            }
            let subdirectories = u32::try_from(stack.len() - directories).unwrap_or(u32::MAX);
            self.nodes[node].inode.nlink = subdirectories.saturating_add(2);
        }
    }

    fn path(&self, mut directory: NodeIndex, name: &FileName) -> String {
        let mut parts = vec![name.as_bytes()];
        while directory != ROOT {
            let above = self.nodes[directory].parent;
            let names = &self.nodes[above].names;
            parts.extend(
                names.iter().find(|(_, name)| name.node == directory).map(|(n, _)| n.as_bytes()),
            );
            directory = above;
        }
        parts.reverse();
        printable(&parts.join(&b'/'))
    }
}

/// Spread over 64 bits, as those of published directories are.
fn link_group(number: u64) -> u64 {
    let hash = blake3::hash(&number.to_be_bytes());
    let (bytes, _) = hash.as_bytes().split_first_chunk().expect("a hash has 32 bytes");
    u64::from_be_bytes(*bytes).max(1)
}

fn directory_inode() -> Inode {
    Inode::new(0o755, Content::Directory { entries: 0, subdirs: 0, opaque: false, top: None })
}

/// Leading slashes and `.` are ignored, as by tools that unpack; `..` is refused.
fn components(path: &[u8]) -> Result<Vec<FileName>, LayerError> {
    let parts = path.split(|&byte| byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    let names: Result<Vec<_>, _> = parts.map(FileName::parse).collect();
    let names = names.map_err(|_| entry(path, "has an invalid name, or `..`"))?;
    if path.len() > PATH_LEN_MAX || names.len() > DEPTH_MAX {
        return Err(entry(path, "the path is too long"));
    }
    Ok(names)
}

fn entry(path: &[u8], why: &'static str) -> LayerError {
    LayerError::Entry { path: printable(&path[..path.len().min(SHOWN_LEN_MAX)]), why }
}

pub(crate) fn printable(path: &[u8]) -> String {
    path.escape_ascii().to_string()
}

const WHITEOUT: &[u8] = b".wh.";

const OPAQUE: &[u8] = b".wh..opq";

/// Of Linux.
const PATH_LEN_MAX: usize = 4096;

const DEPTH_MAX: usize = 1024;

/// As Linux follows on one path.
const LINKS_MAX: usize = 40;

/// Some 300 bytes of memory each.
const ENTRIES_MAX: usize = 4 << 20;

/// Images of a million files have some 100 MiB.
const MEMORY_LEN_MAX: usize = 1 << 30;

/// Of a name's place in its directory.
const NAME_COST: usize = 64;

pub(crate) const SHOWN_LEN_MAX: usize = 200;

#[cfg(test)]
mod tests;
