use std::collections::VecDeque;

use vouch_tree::{Content, FileName, Inode};

use crate::tree::Source;
use crate::{Error, Result, Tree};

/// Limit of Linux.
const SYMLINKS_MAX: usize = 40;

/// Components of one path with its links. Exceeds PATH_MAX times 40 links.
const COMPONENTS_MAX: usize = 100_000;

/// Where a path leads, with symbolic links followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResolvedPath {
    /// To a file of the tree.
    Inside {
        /// Path from the root, without symbolic links.
        path: Vec<u8>,
        /// The file, never a symbolic link.
        inode: Inode,
    },
    /// A symbolic link out of the tree.
    Outside {
        /// Path of the link from the root, without symbolic links.
        link: Vec<u8>,
        /// Absolute, or above the root.
        target: Vec<u8>,
        /// The path after the link.
        rest: Vec<u8>,
    },
}

fn components(path: &[u8]) -> Result<Vec<&[u8]>> {
    let parts = path.split(|&b| b == b'/').filter(|part| !part.is_empty() && *part != b".");
    parts
        .map(|part| match FileName::parse(part) {
            Ok(_) => Ok(part),
            Err(_) if part == b".." => {
                Err(Error::Path { path: path.to_vec(), why: "'..' is not allowed" })
            }
            Err(_) => Err(Error::Path {
                path: path.to_vec(),
                why: "a component is longer than 255 bytes or contains a NUL",
            }),
        })
        .collect()
}

impl Tree {
    /// Path below `from`. Skips empty components and `.`, refuses `..` and symbolic links.
    pub async fn lookup_path(&self, from: &Inode, path: &[u8]) -> Result<Inode> {
        let deadline = self.start_operation().await?;
        let inode = self.lookup_path_from(from, path, Source::foreground(deadline)).await?;
        Ok(inode.expect("fetched pages lead to an inode"))
    }

    /// As [`Tree::lookup_path`], without the network.
    pub fn try_lookup_path(&self, from: &Inode, path: &[u8]) -> Option<Result<Inode>> {
        self.run_local(self.lookup_path_from(from, path, Source::Local))
    }

    async fn lookup_path_from(
        &self,
        from: &Inode,
        path: &[u8],
        source: Source,
    ) -> Result<Option<Inode>> {
        let parts = components(path)?;
        let mut inode = from.clone();
        for (i, part) in parts.iter().enumerate() {
            if !inode.is_directory() {
                return Err(Error::NotADirectory { path: parts[..i].join(&b'/') });
            }
            match self.lookup_from(&inode, part, source).await? {
                None => return Ok(None),
                Some(Some(entry)) => inode = entry.inode.clone(),
                Some(None) => return Err(Error::NotFound { path: parts[..=i].join(&b'/') }),
            }
        }
        Ok(Some(inode))
    }

    /// Path below `root`, the root of a revision. Follows all symbolic links and `..`. Returns a
    /// link out of the tree.
    pub async fn resolve_path(&self, root: &Inode, path: &[u8]) -> Result<ResolvedPath> {
        let deadline = self.start_operation().await?;
        let split = |path: &[u8]| {
            path.split(|&b| b == b'/')
                .filter(|p| !p.is_empty() && *p != b".")
                .map(<[u8]>::to_vec)
                .collect::<Vec<_>>()
        };
        let mut left: VecDeque<Vec<u8>> = split(path).into();
        let mut way: Vec<(Vec<u8>, Inode)> = Vec::new();
        let (mut links, mut steps) = (0, 0);
        let joined = |way: &[(Vec<u8>, Inode)]| {
            way.iter().map(|(name, _)| name.as_slice()).collect::<Vec<_>>().join(&b'/')
        };
        while let Some(part) = left.pop_front() {
            steps += 1;
            if steps > COMPONENTS_MAX {
                return Err(Error::SymlinkLoop { path: path.to_vec() });
            }
            let at = way.last().map_or(root, |(_, inode)| inode);
            if !at.is_directory() {
                return Err(Error::NotADirectory { path: joined(&way) });
            }
            if part == b".." {
                if way.pop().is_none() {
                    return Err(Error::Path {
                        path: path.to_vec(),
                        why: "the path leads above the root of the tree",
                    });
                }
                continue;
            }
            let Some(entry) =
                self.lookup_from(at, &part, Source::foreground(deadline)).await?.flatten()
            else {
                let parent = joined(&way);
                return Err(Error::NotFound {
                    path: if parent.is_empty() {
                        part
                    } else {
                        [&parent[..], b"/", &part].concat()
                    },
                });
            };
            if let Content::Symlink(target) = &entry.inode.content {
                links += 1;
                if links > SYMLINKS_MAX {
                    return Err(Error::SymlinkLoop { path: path.to_vec() });
                }
                let parts = split(target);
                if target.first() == Some(&b'/') || climbs_above(&parts, way.len()) {
                    let mut link = joined(&way);
                    if !link.is_empty() {
                        link.push(b'/');
                    }
                    link.extend_from_slice(&part);
                    let rest: Vec<Vec<u8>> = left.into();
                    return Ok(ResolvedPath::Outside {
                        link,
                        target: target.clone(),
                        rest: rest.join(&b'/'),
                    });
                }
                parts.into_iter().rev().for_each(|part| left.push_front(part));
                continue;
            }
            way.push((part, entry.inode.clone()));
        }
        let inode = way.last().map_or_else(|| root.clone(), |(_, inode)| inode.clone());
        Ok(ResolvedPath::Inside { path: joined(&way), inode })
    }
}

fn climbs_above(parts: &[Vec<u8>], depth: usize) -> bool {
    let mut depth = depth as i64;
    parts.iter().any(|part| {
        depth += if part == b".." { -1 } else { 1 };
        depth < 0
    })
}
