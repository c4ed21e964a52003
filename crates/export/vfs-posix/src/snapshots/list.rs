//! The `.snapshot` directory itself, which no disk has.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::io::Errno;
use vouch_vfs::{
    Access, Attributes, Blocking, Caller, DirectoryEntry, Error, FileId, FileSystem as _, FileType,
    Name, Result, Time,
};

use super::identity::{self, Within};
use super::source::{ListStamp, SnapshotDirectory};
use super::{SNAPSHOT_DIRECTORY, SnapshotFs};
use crate::directory_stream::COOKIE_OFFSET;
use crate::errno::error;
use crate::identity::assume_root;
use crate::open::mono_ms;

/// Position after `.snapshot` in the export's root: beyond all that file systems use, and positive
/// for clients with signed positions.
pub(super) const AFTER_LIST: u64 = i64::MAX as u64 - 1;

/// Snapshots as they were last seen.
#[derive(Default)]
pub(super) struct SeenList {
    /// Of the directory; `None` if there is none.
    stamp: Option<ListStamp>,
    seen_ms: u64,
    hash: Option<blake3::Hash>,
    /// When the server first saw these snapshots.
    changed_ns: u64,
    pub(super) names: HashMap<u64, Vec<u8>>,
    /// There are more than `SNAPSHOTS_MAX`.
    pub(super) is_cut: bool,
    /// A name that the server may not look up.
    pub(super) has_closed: bool,
    /// The first error of a snapshot that the list lacks.
    pub(super) failure: Option<Errno>,
}

/// A list opens each snapshot, which takes 10 µs each, so calls share it. A change that the
/// directory does not show, such as a mount over an entry, is seen after this time.
const LIST_AGE_MS: u64 = 1000;

impl SnapshotFs {
    /// A directory has `.snapshot` if the caller may search it.
    pub(super) fn find_list(
        &self,
        caller: &Caller,
        directory: &FileId,
        blocking: Blocking,
    ) -> Result<(FileId, Attributes)> {
        if self.live.attributes(directory, blocking)?.file_type != FileType::Directory {
            return Err(Error::NotDirectory);
        }
        self.require(caller, directory, Access::LOOKUP, blocking)?;
        let list = identity::list_of(directory).ok_or(Error::NotFound)?;
        Ok((list, self.list_attributes(&list, directory, blocking)?))
    }

    /// Of the directory, without the rights to write. It changes with the directory and with the
    /// snapshots.
    pub(super) fn list_attributes(
        &self,
        list: &FileId,
        directory: &FileId,
        blocking: Blocking,
    ) -> Result<Attributes> {
        if blocking == Blocking::Forbidden {
            return Err(Error::WouldBlock);
        }
        let of_directory = self.live.attributes(directory, blocking)?;
        let changed_ns = self.list_changed_ns()?;
        let seen = Time {
            seconds: (changed_ns / 1_000_000_000) as i64,
            nanos: (changed_ns % 1_000_000_000) as u32,
        };
        let changed = of_directory.changed.max(seen);
        Ok(Attributes {
            mode: of_directory.mode & 0o555,
            links: 2,
            size: 0,
            space_used: 0,
            file_number: identity::virtual_number(list),
            modified: changed,
            changed,
            created: None,
            // Both parts only grow, so each change of one shows.
            change: of_directory.change.wrapping_add(changed_ns),
            ..of_directory
        })
    }

    fn list_changed_ns(&self) -> Result<u64> {
        let list = self.list_of(self.directory()?.as_ref())?;
        list.failure.map_or(Ok(list.changed_ns), |errno| Err(error(errno)))
    }

    pub(super) fn list_of(
        &self,
        directory: Option<&SnapshotDirectory<'_>>,
    ) -> Result<Arc<SeenList>> {
        let stamp = directory.map(SnapshotDirectory::stamp).transpose()?;
        let current = || {
            let last = self.last_list.lock();
            let is_current = last.hash.is_some()
                && last.stamp == stamp
                && mono_ms().saturating_sub(last.seen_ms) < LIST_AGE_MS;
            is_current.then(|| Arc::clone(&last))
        };
        if let Some(list) = current() {
            return Ok(list);
        }
        let _turn = self.listing.lock();
        if let Some(list) = current() {
            return Ok(list);
        }
        let (mut list, mut hasher) =
            (SeenList { stamp, ..SeenList::default() }, blake3::Hasher::new());
        if let Some(directory) = directory {
            let listed = directory.names()?;
            list.is_cut = listed.is_cut;
            let _as_root = assume_root()?;
            for name in listed.sorted {
                match directory.find_as_root(&name) {
                    Ok(Some(found)) => {
                        hasher.update(&name).update(&[0]).update(&found.number.to_be_bytes());
                        list.names.insert(found.number, name);
                    }
                    Ok(None) => {}
                    // One that is closed to the server does not hide the others.
                    Err(Errno::ACCESS) => list.has_closed = true,
                    Err(errno) => list.failure = list.failure.or(Some(errno)),
                }
            }
        }
        (list.seen_ms, list.hash) = (mono_ms(), Some(hasher.finalize()));
        let mut last = self.last_list.lock();
        list.changed_ns = if last.hash == list.hash {
            last.changed_ns
        } else {
            let now =
                SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as u64);
            now.max(last.changed_ns + 1)
        };
        *last = Arc::new(list);
        Ok(Arc::clone(&last))
    }

    pub(super) fn list_access(
        &self,
        caller: &Caller,
        directory: &FileId,
        wanted: Access,
        blocking: Blocking,
    ) -> Result<Access> {
        self.live.access(caller, directory, wanted & (Access::READ | Access::LOOKUP), blocking)
    }

    /// The directory as it was in a snapshot, with the caller's rights on the way to it there.
    pub(super) fn enter(
        &self,
        caller: &Caller,
        directory: &FileId,
        name: &[u8],
    ) -> Result<(FileId, Attributes)> {
        let below = self.live.path(directory).ok_or(Error::NotFound)?;
        let snapshot = self.named(name)?;
        let files = &snapshot.files;
        let root = files.root();
        let mut found = (root, files.attributes(&root, Blocking::Allowed)?);
        for part in below.split(|&byte| byte == b'/').filter(|part| !part.is_empty()) {
            let name = Name::new(part).ok_or(Error::NotFound)?;
            found = files.lookup(caller, &found.0, name, Blocking::Allowed)?;
        }
        if found.1.file_type != FileType::Directory {
            return Err(Error::NotFound);
        }
        let id = Within { number: snapshot.number, id: found.0, is_entry: true }
            .id()
            .ok_or(Error::NotFound)?;
        Ok((id, found.1))
    }

    pub(super) fn list(
        &self,
        caller: &Caller,
        directory: &FileId,
        cookie: u64,
        with_files: bool,
        blocking: Blocking,
        each: &mut dyn FnMut(DirectoryEntry<'_>) -> ControlFlow<()>,
    ) -> Result<bool> {
        if (1..COOKIE_OFFSET).contains(&cookie) {
            return Err(Error::BadCookie);
        }
        if blocking == Blocking::Forbidden {
            return Err(Error::WouldBlock);
        }
        self.require(caller, directory, Access::READ, blocking)?;
        let _turn = self.reading.lock();
        let names = self
            .directory()?
            .map_or(Ok(Vec::new()), |directory| Ok::<_, Error>(directory.names()?.sorted))?;
        let mut entries: Vec<(u64, Vec<u8>)> =
            names.into_iter().map(|name| (cookie_of(&name), name)).collect();
        entries.sort_unstable();
        for (at, name) in entries.into_iter().filter(|(at, _)| *at > cookie) {
            let file = match self.enter(caller, directory, &name) {
                // Made later than the snapshot, or under another name, or closed to the caller.
                Err(
                    Error::NotFound
                    | Error::NotDirectory
                    | Error::Access
                    | Error::Stale
                    | Error::NotSupported,
                ) => continue,
                found => found?,
            };
            let file_number = identity::virtual_number(&file.0);
            let entry = DirectoryEntry {
                name: &name,
                cookie: at,
                file_number,
                file: with_files.then_some(Ok(file)),
            };
            if each(entry).is_break() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The live directory's entries without `.snapshot` of the disk, and with ours where it shows.
    pub(super) fn list_live(
        &self,
        caller: &Caller,
        directory: &FileId,
        cookie: u64,
        with_files: bool,
        blocking: Blocking,
        each: &mut dyn FnMut(DirectoryEntry<'_>) -> ControlFlow<()>,
    ) -> Result<bool> {
        let shows = self.is_visible && *directory == self.live.root();
        if shows && blocking == Blocking::Forbidden {
            return Err(Error::WouldBlock);
        }
        if shows && cookie == AFTER_LIST {
            return Ok(true);
        }
        let mut others = |entry: DirectoryEntry<'_>| match entry.name == SNAPSHOT_DIRECTORY {
            true => ControlFlow::Continue(()),
            false => each(entry),
        };
        let is_end = self.live.read_directory(
            caller,
            directory,
            cookie,
            with_files,
            blocking,
            &mut others,
        )?;
        if !shows || !is_end {
            return Ok(is_end);
        }
        let list = identity::list_of(directory).ok_or(Error::NotSupported)?;
        let file = with_files.then(|| {
            self.list_attributes(&list, directory, blocking).map(|attributes| (list, attributes))
        });
        let file_number = identity::virtual_number(&list);
        Ok(each(DirectoryEntry { name: SNAPSHOT_DIRECTORY, cookie: AFTER_LIST, file_number, file })
            .is_continue())
    }

    pub(super) fn require(
        &self,
        caller: &Caller,
        directory: &FileId,
        right: Access,
        blocking: Blocking,
    ) -> Result<()> {
        if self.live.access(caller, directory, right, blocking)?.has(right) {
            Ok(())
        } else {
            Err(Error::Access)
        }
    }
}

/// From the name, so it stays valid while other snapshots come and go.
fn cookie_of(name: &[u8]) -> u64 {
    (identity::word(blake3::hash(name)) >> 2) | COOKIE_OFFSET
}
