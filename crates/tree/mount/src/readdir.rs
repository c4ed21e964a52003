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
use crate::state::{FreshFile, MountKind, MountState, is_opaque};
use crate::volume::{Volume, tag_of};

enum ListError {
    DirectoryChanged,
    Failed(OpError),
}

impl From<DirectoryChanged> for ListError {
    fn from(_: DirectoryChanged) -> Self {
        ListError::DirectoryChanged
    }
}

impl<E: Into<OpError>> From<E> for ListError {
    fn from(error: E) -> Self {
        ListError::Failed(error.into())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    Left,
    Full,
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
            let FreshFile { view, volume, left } = self.fresh_file(id).await?;
            if !view.inode.is_directory() {
                return Err(OpError::NotDirectory);
            }
            let mut at = Cookie::from_offset(offset);
            let current = tag_of(&view.inode);
            if reply.dots(&mut at, current, &self.attributes_of(id, &view.inode), view.parent) {
                return Ok(());
            }
            let Cookie::Entry { tag, number } = at else { return Ok(()) };
            let listed = if is_opaque(&view.inode) {
                self.list_referenced(id, &view.inode, &volume, number, left, reply).await
            } else {
                let older_directory =
                    (tag != current).then(|| volume.older_directory(id, tag)).flatten();
                self.list_pages(id, &view.inode, older_directory, &volume, number, left, reply)
                    .await
            };
            match listed {
                Err(ListError::Failed(error)) => return Err(error),
                Err(ListError::DirectoryChanged) if !reply.has_entries() => {}
                Ok(()) | Err(ListError::DirectoryChanged) => return Ok(()),
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
    ) -> Result<(), ListError> {
        let directory = older_directory.as_ref().unwrap_or(current);
        let tag = tag_of(directory);
        loop {
            let page = match volume.tree().try_list(directory, Position::Number(number)) {
                Some(page) => page?,
                None if reply.has_entries() => return Ok(()),
                None => {
                    if number == 0 {
                        self.read_ahead_beside(id, volume);
                    }
                    volume.tree().list(directory, Position::Number(number)).await?
                }
            };
            let mut room = Room::Left;
            if older_directory.is_none() {
                room = self.fill(
                    id,
                    current,
                    volume,
                    page.entries(),
                    (tag, page.number),
                    left,
                    reply,
                )?;
            } else {
                for (entry, number) in page.entries().iter().zip(page.number..) {
                    // Skips names removed in the current version.
                    let name = entry.name.as_bytes();
                    let Some(now) = volume.tree().lookup(current, name).await? else { continue };
                    let now = std::slice::from_ref(&*now);
                    room = self.fill(id, current, volume, now, (tag, number), left, reply)?;
                    if room == Room::Full {
                        break;
                    }
                }
            }
            if room == Room::Full || page.last || page.entries().is_empty() {
                return Ok(());
            }
            number = page.number + page.entries().len() as u64;
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
    ) -> Result<(), ListError> {
        let skip = usize::try_from(number).unwrap_or(usize::MAX);
        for (i, name) in volume.referenced(id).iter().enumerate().skip(skip) {
            let Some(entry) = volume.tree().lookup(directory, name).await? else { continue };
            let at = (tag_of(directory), i as u64);
            let entry = std::slice::from_ref(&*entry);
            if self.fill(id, directory, volume, entry, at, left, reply)? == Room::Full {
                break;
            }
        }
        Ok(())
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
    ) -> Result<Room, DirectoryChanged> {
        let next = |i: usize| Cookie::Entry { tag: at.0, number: at.1 + i as u64 + 1 };
        if !reply.is_plus() {
            for (i, DirEntry { name, inode }) in entries.iter().enumerate() {
                let child = volume.numbering().of_file(id, name.as_bytes(), inode, 0);
                if reply.add(&self.attributes_of(child, inode), next(i), name.as_bytes(), left) {
                    return Ok(Room::Full);
                }
            }
            return Ok(Room::Left);
        }
        let mut guard = self.table.lock_directory(id, directory)?;
        for (i, DirEntry { name, inode }) in entries.iter().enumerate() {
            let Some(child) = guard.insert(name.as_bytes(), inode) else { continue };
            if reply.add(&self.attributes_of(child, inode), next(i), name.as_bytes(), left) {
                guard.undo_insert(child);
                return Ok(Room::Full);
            }
        }
        Ok(Room::Left)
    }
}

const RETRIES_MAX: usize = 16;
