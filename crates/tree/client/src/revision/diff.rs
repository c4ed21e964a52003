//! Walks two revisions at once and skips equal subtrees by handle.

use std::cmp::Ordering;
use std::sync::Arc;

use vouch_tree::{Content, Inode};

use crate::directory::{Entry, LeafSpan, Listing, Position};
use crate::revision::Revision;
use crate::{Result, Tree};

/// One path that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Path from the root; empty for the root.
    pub path: Vec<u8>,
    /// How it differs.
    pub kind: ChangeKind,
    /// `None` if the path is new.
    pub old: Option<Inode>,
    /// `None` if the path is gone.
    pub new: Option<Inode>,
}

/// How a path differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// Only the new revision has it.
    Added,
    /// Only the old revision has it.
    Removed,
    /// Both have it.
    Changed(ChangedFields),
}

/// What differs between two inodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChangedFields {
    /// Data, link target or device number. Of directories only if one is opaque.
    pub content: bool,
    /// Permission bits.
    pub mode: bool,
    /// User or group.
    pub owner: bool,
    /// Time of the last change.
    pub mtime: bool,
    /// Extended attributes.
    pub xattrs: bool,
    /// Then the content differs too.
    pub file_type: bool,
    /// Number of hard links.
    pub links: bool,
}

impl ChangedFields {
    /// Of the fields that differ.
    pub fn names(&self) -> Vec<&'static str> {
        [
            (self.file_type, "type"),
            (self.content, "content"),
            (self.mode, "mode"),
            (self.owner, "owner"),
            (self.mtime, "mtime"),
            (self.xattrs, "xattrs"),
            (self.links, "links"),
        ]
        .into_iter()
        .filter_map(|(differs, name)| differs.then_some(name))
        .collect()
    }

    fn of(old: &Inode, new: &Inode) -> Self {
        let file_type = old.file_type() != new.file_type();
        let content = match (&old.content, &new.content) {
            (Content::Directory { top: old_top, .. }, Content::Directory { top: new_top, .. }) => {
                (is_opaque(old) || is_opaque(new)) && old_top != new_top
            }
            (Content::Regular { blob: old, .. }, Content::Regular { blob: new, .. }) => old != new,
            (old, new) => old != new,
        };
        Self {
            content,
            mode: old.mode != new.mode,
            owner: (old.uid, old.gid) != (new.uid, new.gid),
            mtime: old.mtime != new.mtime,
            xattrs: old.xattrs != new.xattrs,
            file_type,
            links: old.nlink != new.nlink,
        }
    }

    /// Nothing differs.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Memory: two pages per level. Between two trees, all content that is not inline counts as
/// changed.
pub struct Diff {
    levels: Vec<Level>,
    first: Option<Change>,
    failed: bool,
}

struct Level {
    path: Vec<u8>,
    old: Option<Cursor>,
    new: Option<Cursor>,
}

struct Cursor {
    tree: Arc<Tree>,
    dir: Inode,
    number: u64,
    page: Option<(Listing, usize)>,
}

impl Diff {
    /// Compares two revisions, each with the tree that reads it.
    pub fn new(old: (&Arc<Tree>, &Arc<Revision>), new: (&Arc<Tree>, &Arc<Revision>)) -> Self {
        let (old_root, new_root) = (old.1.root(), new.1.root());
        let mut diff = Self {
            levels: Vec::new(),
            first: compare(Vec::new(), old_root, new_root),
            failed: false,
        };
        diff.descend(Vec::new(), Some((old.0, old_root)), Some((new.0, new_root)));
        diff
    }

    /// Sorted by path, a directory before its entries. `None` at the end and after an error.
    pub async fn next(&mut self) -> Option<Result<Change>> {
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        while !self.failed && !self.levels.is_empty() {
            match self.step().await {
                Ok(Some(change)) => return Some(Ok(change)),
                Ok(None) => {}
                Err(error) => {
                    self.failed = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }

    async fn step(&mut self) -> Result<Option<Change>> {
        let Some(level) = self.levels.last_mut() else { return Ok(None) };
        if let (Some(old), Some(new)) = (&mut level.old, &mut level.new)
            && skip_equal_pages(old, new).await?
        {
            return Ok(None);
        }
        let old = peek(&mut level.old).await?;
        let new = peek(&mut level.new).await?;
        let order = match (&old, &new) {
            (None, None) => {
                self.levels.pop();
                return Ok(None);
            }
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(old), Some(new)) => old.name.cmp(&new.name),
        };
        let old = old.filter(|_| order.is_le());
        let new = new.filter(|_| order.is_ge());
        let Some(name) = old.as_ref().or(new.as_ref()).map(|e| e.name.as_bytes()) else {
            return Ok(None);
        };
        let path = if level.path.is_empty() {
            name.to_vec()
        } else {
            [&level.path[..], b"/", name].concat()
        };
        let trees =
            [&mut level.old, &mut level.new].map(|side| side.as_ref().map(|c| Arc::clone(&c.tree)));
        [(&mut level.old, old.is_some()), (&mut level.new, new.is_some())].into_iter().for_each(
            |(side, used)| {
                if let (Some(cursor), true) = (side, used) {
                    cursor.advance();
                }
            },
        );
        let [old_tree, new_tree] = &trees;
        let below = |tree: &Option<Arc<Tree>>, entry: &Option<Entry>| {
            Some((tree.clone()?, entry.as_ref()?.inode.clone()))
        };
        let (old_below, new_below) = (below(old_tree, &old), below(new_tree, &new));
        self.descend(
            path.clone(),
            old_below.as_ref().map(|(t, i)| (t, i)),
            new_below.as_ref().map(|(t, i)| (t, i)),
        );
        Ok(match (old, new) {
            (Some(old), Some(new)) => compare(path, &old.inode, &new.inode),
            (Some(old), None) => Some(Change {
                path,
                kind: ChangeKind::Removed,
                old: Some(old.inode.clone()),
                new: None,
            }),
            (None, Some(new)) => Some(Change {
                path,
                kind: ChangeKind::Added,
                old: None,
                new: Some(new.inode.clone()),
            }),
            (None, None) => None,
        })
    }

    fn descend(
        &mut self,
        path: Vec<u8>,
        old: Option<(&Arc<Tree>, &Inode)>,
        new: Option<(&Arc<Tree>, &Inode)>,
    ) {
        let top = |side: Option<(&Arc<Tree>, &Inode)>| match side
            .map(|(tree, inode)| (tree.iv(), &inode.content))
        {
            Some((iv, Content::Directory { top: Some(page), .. })) => Some((iv, *page)),
            _ => None,
        };
        // An opaque directory hides its names.
        if top(old) == top(new)
            || [old, new].into_iter().flatten().any(|(_, inode)| is_opaque(inode))
        {
            return;
        }
        let [old, new] = [old, new].map(|side| {
            let (tree, inode) = side.filter(|(_, inode)| inode.is_directory())?;
            Some(Cursor { tree: Arc::clone(tree), dir: inode.clone(), number: 0, page: None })
        });
        self.levels.push(Level { path, old, new });
    }
}

const fn is_opaque(inode: &Inode) -> bool {
    matches!(inode.content, Content::Directory { opaque: true, .. })
}

fn compare(path: Vec<u8>, old: &Inode, new: &Inode) -> Option<Change> {
    let fields = ChangedFields::of(old, new);
    (!fields.is_empty()).then(|| Change {
        path,
        kind: ChangeKind::Changed(fields),
        old: Some(old.clone()),
        new: Some(new.clone()),
    })
}

async fn skip_equal_pages(old: &mut Cursor, new: &mut Cursor) -> Result<bool> {
    if old.page.is_some() || new.page.is_some() || old.tree.iv() != new.tree.iv() {
        return Ok(false);
    }
    let (Some(a), Some(b)) = (old.span().await?, new.span().await?) else { return Ok(false) };
    let at_start = a.number == old.number && b.number == new.number;
    if !at_start || a.handle != b.handle {
        return Ok(false);
    }
    old.number += a.entries;
    new.number += b.entries;
    Ok(true)
}

async fn peek(side: &mut Option<Cursor>) -> Result<Option<Entry>> {
    match side {
        Some(cursor) => cursor.peek().await,
        None => Ok(None),
    }
}

impl Cursor {
    async fn span(&self) -> Result<Option<LeafSpan>> {
        self.tree.leaf_span(&self.dir, self.number).await
    }

    async fn peek(&mut self) -> Result<Option<Entry>> {
        if self.page.is_none() {
            self.page = Some((self.tree.list(&self.dir, Position::Number(self.number)).await?, 0));
        }
        Ok(self.page.as_ref().and_then(|(listing, index)| listing.entry(*index)))
    }

    fn advance(&mut self) {
        self.number += 1;
        if let Some((listing, index)) = &mut self.page {
            *index += 1;
            if *index >= listing.entries().len() && !listing.last {
                self.page = None;
            }
        }
    }
}
