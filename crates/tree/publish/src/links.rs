//! A file is read once for all its names. If it changes between two names, only the next revision
//! has them equal.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use parking_lot::Mutex;
use vouch_tree::{Inode, Iv};

use crate::attributes::Attributes;
use crate::node::Node;

#[derive(Debug, Default)]
pub(crate) struct Links(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    files: HashMap<(u64, u64), Link>,
    held_len: usize,
}

#[derive(Debug)]
enum Link {
    Reading(Vec<Name>),
    Read { file: Arc<Read>, names_left: u32 },
}

#[derive(Debug)]
pub(crate) struct Name {
    pub(crate) node: Arc<Node>,
    pub(crate) index: usize,
}

#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) inode: Inode,
    pub(crate) attributes: Attributes,
    pub(crate) racy: bool,
}

#[derive(Debug)]
pub(crate) enum Claim {
    Read,
    Waits,
    Known(Arc<Read>),
}

impl Links {
    /// `wait` runs under the lock before the name is queued.
    pub(crate) fn claim(&self, attributes: &Attributes, wait: impl FnOnce() -> Name) -> Claim {
        let mut table = self.0.lock();
        let full = table.held_len >= HELD_LEN_MAX;
        match table.files.entry(attributes.identity()) {
            Entry::Occupied(mut entry) => match entry.get_mut() {
                Link::Reading(names) => {
                    names.push(wait());
                    Claim::Waits
                }
                Link::Read { file, names_left } => {
                    let file = file.clone();
                    *names_left = names_left.saturating_sub(1);
                    if *names_left == 0 {
                        entry.remove();
                        table.held_len -= held_len(&file.inode);
                    }
                    Claim::Known(file)
                }
            },
            Entry::Vacant(entry) => {
                // Over the limit each name is read; unchanged content gives equal inodes.
                if !full {
                    entry.insert(Link::Reading(Vec::new()));
                }
                Claim::Read
            }
        }
    }

    /// `None`: the file could not be read.
    pub(crate) fn settle(&self, identity: (u64, u64), file: Option<&Arc<Read>>) -> Vec<Name> {
        let mut table = self.0.lock();
        let Some(Link::Reading(names)) = table.files.remove(&identity) else { return Vec::new() };
        if let Some(file) = file {
            let met = u32::try_from(names.len() + 1).unwrap_or(u32::MAX);
            let names_left = file.attributes.nlink.saturating_sub(met);
            if names_left > 0 {
                table.held_len += held_len(&file.inode);
                table.files.insert(identity, Link::Read { file: file.clone(), names_left });
            }
        }
        names
    }
}

/// Shared by the names of one file: 64 bits of a keyed hash; 0 for a single name.
pub(crate) fn link_group(iv: &Iv, attributes: &Attributes) -> u64 {
    if !attributes.is_linked() {
        return 0;
    }
    let (dev, ino) = attributes.identity();
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&dev.to_be_bytes());
    bytes[8..].copy_from_slice(&ino.to_be_bytes());
    iv.handle_of(&bytes).prefix().max(1)
}

fn held_len(inode: &Inode) -> usize {
    let blob = |b: &vouch_tree::Blob| {
        if let vouch_tree::BlobBody::Inline(bytes) = &b.body { bytes.len() } else { 0 }
    };
    let content = match &inode.content {
        vouch_tree::Content::Regular { blob: content, .. } => blob(content),
        vouch_tree::Content::Symlink(target) => target.len(),
        _ => 0,
    };
    size_of::<Read>() + ENTRY_LEN + content + blob(&inode.xattrs)
}

const ENTRY_LEN: usize = 96;

/// Inodes for names to come: some 150,000 files.
const HELD_LEN_MAX: usize = 48 * 1024 * 1024;
