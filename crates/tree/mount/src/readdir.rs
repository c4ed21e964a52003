//! Over the pages of the directory's B+-tree. A listing continues in the version in which it began,
//! if still stored.

use std::sync::Arc;
use std::time::Duration;

use vouch_tree::inode_number::InodeNumber as NodeId;
use vouch_tree::{DirEntry, Inode};
use vouch_tree_client::Position;

use crate::cookie::Cookie;
use crate::error::OpError;
use crate::listing_reply::ListingReply;
use crate::node_table::{DirectoryChanged, Owner as _};
use crate::state::{MountKind, MountState, is_opaque};
use crate::volume::{Volume, tag_of};

enum ListingEnd {
    Full,
    DirectoryChanged,
}

impl MountState {
    pub(crate) async fn list(
        self: &Arc<Self>,
        id: NodeId,
        offset: u64,
        reply: &mut ListingReply,
    ) -> Result<(), OpError> {
        if let (MountKind::Namespace(namespace), NodeId::ROOT) = (&self.kind, id) {
            return namespace.list(self, offset, reply);
        }
        for _ in 0..RETRIES_MAX {
            let (view, volume) = self.view(id)?;
            let left = volume.wait_until_fresh(self.freshness_wait_max()).await?;
            if !view.inode.is_directory() {
                return Err(OpError::NotDirectory);
            }
            let mut at = Cookie::from_offset(offset);
            let current = tag_of(&view.inode);
            if reply.dots(&mut at, current, &self.attributes_of(id, &view.inode), view.parent) {
                return Ok(());
            }
            let Cookie::Entry { tag, number } = at else { return Ok(()) };
            let done = if is_opaque(&view.inode) {
                self.list_referenced(id, &view.inode, &volume, number, left, reply).await?
            } else {
                let older_directory =
                    (tag != current).then(|| volume.older_directory(id, tag)).flatten();
                self.list_pages(id, &view.inode, older_directory, &volume, number, left, reply)
                    .await?
            };
            if done.is_ok() || reply.has_entries() {
                return Ok(());
            }
        }
        Err(OpError::Unfit("the directory changes faster than it can be read"))
    }

    #[allow(clippy::too_many_arguments, reason = "one loop of one caller")]
    async fn list_pages(
        &self,
        id: NodeId,
        current: &Arc<Inode>,
        older_directory: Option<Arc<Inode>>,
        volume: &Arc<Volume>,
        mut number: u64,
        left: Duration,
        reply: &mut ListingReply,
    ) -> Result<Result<(), DirectoryChanged>, OpError> {
        let directory = older_directory.as_ref().unwrap_or(current);
        let tag = tag_of(directory);
        loop {
            let page = match volume.tree().try_list(directory, Position::Number(number)) {
                Some(page) => page?,
                None if reply.has_entries() => return Ok(Ok(())),
                None => volume.tree().list(directory, Position::Number(number)).await?,
            };
            let filled = match &older_directory {
                None => {
                    self.fill(id, current, volume, page.entries(), (tag, page.number), left, reply)
                }
                Some(_) => {
                    let mut filled = Ok(());
                    for (i, entry) in page.entries().iter().enumerate() {
                        // Skips names removed in the current version.
                        let name = entry.name.as_bytes();
                        let Some(now) = volume.tree().lookup(current, name).await? else {
                            continue;
                        };
                        filled = self.fill(
                            id,
                            current,
                            volume,
                            std::slice::from_ref(&*now),
                            (tag, page.number + i as u64),
                            left,
                            reply,
                        );
                        if filled.is_err() {
                            break;
                        }
                    }
                    filled
                }
            };
            match filled {
                Err(ListingEnd::Full) => return Ok(Ok(())),
                Err(ListingEnd::DirectoryChanged) => return Ok(Err(DirectoryChanged)),
                Ok(()) if page.last || page.entries().is_empty() => return Ok(Ok(())),
                Ok(()) => number = page.number + page.entries().len() as u64,
            }
        }
    }

    async fn list_referenced(
        &self,
        id: NodeId,
        directory: &Arc<Inode>,
        volume: &Arc<Volume>,
        number: u64,
        left: Duration,
        reply: &mut ListingReply,
    ) -> Result<Result<(), DirectoryChanged>, OpError> {
        let skip = usize::try_from(number).unwrap_or(usize::MAX);
        for (i, name) in volume.referenced(id).iter().enumerate().skip(skip) {
            let Some(entry) = volume.tree().lookup(directory, name).await? else { continue };
            let at = (tag_of(directory), i as u64);
            match self.fill(id, directory, volume, std::slice::from_ref(&*entry), at, left, reply) {
                Ok(()) => {}
                Err(ListingEnd::Full) => return Ok(Ok(())),
                Err(ListingEnd::DirectoryChanged) => return Ok(Err(DirectoryChanged)),
            }
        }
        Ok(Ok(()))
    }

    #[allow(clippy::too_many_arguments, reason = "one loop of one caller")]
    fn fill(
        &self,
        id: NodeId,
        directory: &Arc<Inode>,
        volume: &Volume,
        entries: &[DirEntry],
        at: (u32, u64),
        left: Duration,
        reply: &mut ListingReply,
    ) -> Result<(), ListingEnd> {
        let next = |i: usize| Cookie::Entry { tag: at.0, number: at.1 + i as u64 + 1 };
        if !reply.is_plus() {
            for (i, DirEntry { name, inode }) in entries.iter().enumerate() {
                let child = volume.numbering().of_file(id, name.as_bytes(), inode, 0);
                if reply.add(&self.attributes_of(child, inode), next(i), name.as_bytes(), left) {
                    return Err(ListingEnd::Full);
                }
            }
            return Ok(());
        }
        let Ok(mut guard) = self.table.lock_directory(id, directory) else {
            return Err(ListingEnd::DirectoryChanged);
        };
        for (i, DirEntry { name, inode }) in entries.iter().enumerate() {
            let Some(child) = guard.insert(name.as_bytes(), inode) else { continue };
            if reply.add(&self.attributes_of(child, inode), next(i), name.as_bytes(), left) {
                guard.undo_insert(child);
                return Err(ListingEnd::Full);
            }
        }
        Ok(())
    }
}

const RETRIES_MAX: usize = 16;
