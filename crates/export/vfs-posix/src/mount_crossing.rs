//! Crossing of mount points below the root, for exports with `crossmnt`.
//!
//! The kernel's list tells what a mount is before a call can wait for it. A mount that a user made
//! is never crossed. Local mounts are found by number when the list has changed, remote ones only
//! when an identity names a number that no local mount has.

use std::collections::HashMap;
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use rustix::fs::{self, Mode, OFlags};
use vouch_vfs::{Blocking, Error, FileId, Home, Result, SystemId};

use crate::errno::OrError;
use crate::export::Inner;
use crate::mount::{Mount, mount_id};
use crate::mount_table::{MountLine, MountTable, MountView, MountWatch};
use crate::node::Node;
use crate::resolve::WITHIN;
use crate::subtree::Subtree;
use crate::{handle, identity};

const OPEN: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOCTTY);
const PATH: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The mounts below the root, as last read.
pub(crate) struct Crossing {
    watch: MountWatch,
    root: Subtree,
    /// Changes that were seen, and the last one that `mounts` has.
    seen: AtomicU64,
    applied: AtomicU64,
    applying: Mutex<()>,
    pub(crate) mounts: RwLock<Mounts>,
}

#[derive(Default)]
pub(crate) struct Mounts {
    table: Arc<MountTable>,
    root_view: MountView,
    /// Entered ones, by the kernel's number and by the number in identities.
    by_id: HashMap<i32, Arc<Mount>>,
    by_fsid: HashMap<u64, Arc<Mount>>,
    /// By the number in identities.
    points: HashMap<u64, MountPoint>,
    has_remote_points: bool,
    /// Also of mounts that are gone, whose state clients still return.
    systems: HashMap<u64, SystemId>,
}

#[derive(Clone)]
struct MountPoint {
    below_root: PathBuf,
    number: u64,
}

/// Systems of former mounts.
const SYSTEMS_MAX: usize = 4096;

impl Crossing {
    pub(crate) fn new(root: BorrowedFd<'_>) -> std::io::Result<Self> {
        Ok(Crossing {
            watch: MountWatch::new()?,
            root: Subtree::of(root)?,
            seen: AtomicU64::new(1),
            applied: AtomicU64::new(0),
            applying: Mutex::default(),
            mounts: RwLock::default(),
        })
    }

    fn line(&self, id: i32) -> Option<MountLine> {
        self.mounts.read().table.get(id).cloned()
    }
}

impl Inner {
    /// Call before each use of a mount below the root: a remounted one may permit less now.
    pub(crate) fn refresh_mounts(&self, blocking: Blocking) -> Result<()> {
        let Some(crossing) = &self.crossing else { return Ok(()) };
        if crossing.watch.has_changed() {
            crossing.seen.fetch_add(1, Ordering::AcqRel);
        }
        if crossing.applied.load(Ordering::Acquire) == crossing.seen.load(Ordering::Acquire) {
            return Ok(());
        }
        if blocking == Blocking::Forbidden {
            return Err(Error::WouldBlock);
        }
        let _turn = crossing.applying.lock();
        let seen = crossing.seen.load(Ordering::Acquire);
        if crossing.applied.load(Ordering::Acquire) != seen {
            self.apply_mounts(crossing)?;
            crossing.applied.store(seen, Ordering::Release);
        }
        Ok(())
    }

    /// O(n) in the machine's mounts.
    fn apply_mounts(&self, crossing: &Crossing) -> Result<()> {
        let root = &self.root.mount;
        let table = Arc::new(MountTable::read()?.within(&path_of(self.root.as_fd())?, root.id));
        // A new mapping at the same place need not show in the list.
        let is_mapped = table.lines().any(|line| line.view.mapped_at.is_some());
        if !is_mapped && !table.differs(&crossing.mounts.read().table) {
            crossing.mounts.write().table = table;
            return Ok(());
        }
        let root_view = table.get(root.id).map(|line| line.view.clone()).unwrap_or_default();
        let mut found = Mounts { table: Arc::clone(&table), root_view, ..Mounts::default() };
        let waits = |line: &MountLine| {
            line.id != root.id && (line.is_of_user || line.is_remote() || line.is_automount())
        };
        let local =
            table.lines().filter(|line| line.id != root.id && !table.is_behind(line, waits));
        self.add_points(crossing, &mut found, local)?;
        let mut mounts = crossing.mounts.write();
        for (fsid, system) in mounts.systems.drain().take(SYSTEMS_MAX) {
            found.systems.entry(fsid).or_insert(system);
        }
        *mounts = found;
        // Their descriptors may be on a mount that permits more or is gone.
        self.nodes.drop_descriptors();
        self.streams.lock().0.clear();
        Ok(())
    }

    fn add_points<'a>(
        &self,
        crossing: &Crossing,
        into: &mut Mounts,
        lines: impl Iterator<Item = &'a MountLine>,
    ) -> Result<()> {
        let above = path_of(self.root.as_fd())?;
        let _as_root = identity::assume_root()?;
        let mut read_only = Vec::new();
        for line in lines {
            let Ok(below_root) = line.point.strip_prefix(&above) else { continue };
            // The descriptor does not stay: it would keep the file system from being unmounted.
            let Ok(fd) = fs::openat2(&self.root, below_root, PATH, Mode::empty(), WITHIN) else {
                continue;
            };
            if mount_id(fd.as_fd()) != Ok(line.id) {
                // Another mount covers it.
                continue;
            }
            let Ok(subtree) = Subtree::of(fd.as_fd()) else { continue };
            let number = |view| subtree.number(line, view, &crossing.root, &into.root_view);
            let point =
                MountPoint { below_root: below_root.to_owned(), number: number(&line.view) };
            if line.view.is_read_only {
                let if_writable = number(&MountView { is_read_only: false, ..line.view.clone() });
                read_only.push((if_writable, line.system(), point.clone()));
            }
            into.systems.insert(point.number, line.system());
            into.points.insert(point.number, point);
        }
        // Made when the mount was writable, such an identity leads to it still.
        for (if_writable, system, point) in read_only {
            into.points.entry(if_writable).or_insert(point);
            into.systems.entry(if_writable).or_insert(system);
        }
        Ok(())
    }

    pub(crate) fn mount(&self, fsid: Option<u64>, blocking: Blocking) -> Result<Arc<Mount>> {
        let Some(fsid) = fsid.filter(|&fsid| fsid != self.root.mount.fsid) else {
            return Ok(Arc::clone(&self.root.mount));
        };
        let crossing = self.crossing.as_ref().ok_or(Error::Stale)?;
        let point = {
            let mounts = crossing.mounts.read();
            if let Some(mount) = mounts.by_fsid.get(&fsid) {
                return Ok(Arc::clone(mount));
            }
            match mounts.points.get(&fsid) {
                None if mounts.has_remote_points => return Err(Error::Stale),
                point => point.cloned(),
            }
        };
        if blocking == Blocking::Forbidden {
            return Err(Error::WouldBlock);
        }
        let point = match point {
            Some(point) => point,
            None => {
                self.find_remote_points(crossing)?;
                crossing.mounts.read().points.get(&fsid).cloned().ok_or(Error::Stale)?
            }
        };
        let _as_root = identity::assume_root()?;
        let fd = fs::openat2(&self.root, &point.below_root, OPEN, Mode::empty(), WITHIN)
            .map_err(|_| Error::Stale)?;
        let mount = self.enter(crossing, fd)?;
        if mount.fsid != point.number {
            return Err(Error::Stale);
        }
        crossing.mounts.write().by_fsid.insert(fsid, Arc::clone(&mount));
        Ok(mount)
    }

    /// Each is asked, and may not answer.
    fn find_remote_points(&self, crossing: &Crossing) -> Result<()> {
        let table = Arc::clone(&crossing.mounts.read().table);
        let is_closed = |line: &MountLine| line.is_of_user || line.is_automount();
        let remote: Vec<&MountLine> = table
            .lines()
            .filter(|line| line.is_remote() && !table.is_behind(line, is_closed))
            .collect();
        if let Some(first) = remote.iter().find(|line| line.id != self.root.mount.id) {
            self.wait_only_for(first)?;
        }
        let root_view = crossing.mounts.read().root_view.clone();
        let mut found = Mounts { root_view, ..Mounts::default() };
        self.add_points(crossing, &mut found, remote.into_iter())?;
        let mut mounts = crossing.mounts.write();
        if Arc::ptr_eq(&mounts.table, &table) {
            for (number, point) in found.points {
                mounts.points.entry(number).or_insert(point);
            }
            mounts.systems.extend(found.systems);
            mounts.has_remote_points = true;
        }
        Ok(())
    }

    /// `WouldBlock` until the call runs on a thread that may wait for remote file systems.
    fn wait_only_for(&self, line: &MountLine) -> Result<()> {
        if line.is_remote() && self.remote.set(line.system()).is_ok() {
            Err(Error::WouldBlock)
        } else {
            Ok(())
        }
    }

    pub(crate) fn home(&self, id: &FileId) -> Home {
        handle::home_of(id, |fsid| match fsid.filter(|&fsid| fsid != self.root.mount.fsid) {
            None => self.root.mount.system,
            // A file on a missing file system is stale.
            Some(fsid) => {
                let known = self
                    .crossing
                    .as_ref()
                    .and_then(|crossing| crossing.mounts.read().systems.get(&fsid).copied());
                known.unwrap_or(SystemId::UNKNOWN)
            }
        })
    }

    /// The file at the mount point `name` of `directory`, with the thread's rights.
    pub(crate) fn cross(
        &self,
        directory: &Node,
        name: &CStr,
        blocking: Blocking,
    ) -> Result<(OwnedFd, Arc<Mount>)> {
        let crossing = self.crossing.as_ref().ok_or(Error::Access)?;
        if blocking == Blocking::Forbidden {
            return Err(Error::WouldBlock);
        }
        // Some file systems are asked as soon as a path leads to them.
        let point = path_of(directory.as_fd())?.join(OsStr::from_bytes(name.to_bytes()));
        let table = Arc::clone(&crossing.mounts.read().table);
        for line in table.at(&point) {
            if line.is_of_user {
                return Err(Error::Access);
            }
            self.wait_only_for(line)?;
        }
        let fd = fs::openat2(directory, name, PATH, Mode::empty(), WITHIN).or_error()?;
        if let Some(mount) = self.entered(mount_id(fd.as_fd()).or_error()?) {
            return Ok((fd, mount));
        }
        let line = self.listed(crossing, mount_id(fd.as_fd()).or_error()?)?;
        if line.is_of_user {
            return Err(Error::Access);
        }
        self.wait_only_for(&line)?;
        // Mount points are public; access is checked below them.
        let _as_root = identity::assume_root()?;
        if line.is_automount() {
            let open = fs::openat2(directory, name, OPEN, Mode::empty(), WITHIN).or_error()?;
            let fd = self.reopen(open.as_fd(), OFlags::PATH).or_error()?;
            return Ok((fd, self.enter(crossing, open)?));
        }
        let open = self.reopen(fd.as_fd(), OPEN.difference(OFlags::NOFOLLOW)).or_error()?;
        Ok((fd, self.enter(crossing, open)?))
    }

    pub(crate) fn entered(&self, id: i32) -> Option<Arc<Mount>> {
        if id == self.root.mount.id {
            return Some(Arc::clone(&self.root.mount));
        }
        self.crossing.as_ref()?.mounts.read().by_id.get(&id).cloned()
    }

    /// The list names each mount that a name leads to. A renamed directory changes it unseen.
    fn listed(&self, crossing: &Crossing, id: i32) -> Result<MountLine> {
        if let Some(line) = crossing.line(id) {
            return Ok(line);
        }
        crossing.seen.fetch_add(1, Ordering::AcqRel);
        self.refresh_mounts(Blocking::Allowed)?;
        crossing.line(id).ok_or(Error::Access)
    }

    /// For a file below the mount's root.
    pub(crate) fn enter_above(&self, crossing: &Crossing, id: i32) -> Result<Arc<Mount>> {
        let line = self.listed(crossing, id)?;
        let above = path_of(self.root.as_fd())?;
        let below_root = line.point.strip_prefix(&above).map_err(|_| Error::Stale)?;
        let _as_root = identity::assume_root()?;
        let fd = fs::openat2(&self.root, below_root, OPEN, Mode::empty(), WITHIN).or_error()?;
        if mount_id(fd.as_fd()).or_error()? != id {
            return Err(Error::Stale);
        }
        self.enter(crossing, fd)
    }

    /// `fd`: the root of the mount, open for reading.
    pub(crate) fn enter(&self, crossing: &Crossing, fd: OwnedFd) -> Result<Arc<Mount>> {
        let id = mount_id(fd.as_fd()).or_error()?;
        if let Some(mount) = self.entered(id) {
            return Ok(mount);
        }
        let line = self.listed(crossing, id)?;
        let root = &self.root.mount;
        let root_view = crossing.mounts.read().root_view.clone();
        let number = Subtree::of(fd.as_fd()).or_error()?.number(
            &line,
            &line.view,
            &crossing.root,
            &root_view,
        );
        let mut mount = Arc::new(Mount::below(fd, &line, number).or_error()?);
        if !self.opens_by_handle(&mount) && self.options.ids.is_none() {
            // Files would be lost with their descriptors.
            return Err(Error::Access);
        }
        let mut mounts = crossing.mounts.write();
        if mounts.table.get(id) != Some(&line) || mounts.root_view != root_view {
            // It was remounted meanwhile.
            return Err(Error::WouldBlock);
        }
        let same =
            if mount.fsid == root.fsid { Some(root) } else { mounts.by_fsid.get(&mount.fsid) };
        if let Some(known) = same {
            if known.system != mount.system {
                // A block-by-block copy of another file system: identities would be ambiguous.
                return Err(Error::Access);
            }
            if known.is_root {
                mount = Arc::clone(known);
            }
        }
        mount.note_remote(&self.remote);
        mounts.by_id.insert(id, Arc::clone(&mount));
        mounts.by_fsid.insert(mount.fsid, Arc::clone(&mount));
        mounts.systems.insert(mount.fsid, mount.system);
        Ok(mount)
    }
}

impl Mounts {
    pub(crate) fn entered(&self) -> impl Iterator<Item = &Arc<Mount>> {
        self.by_id.values()
    }
}

pub(crate) fn path_of(directory: BorrowedFd<'_>) -> Result<PathBuf> {
    std::fs::read_link(Inner::descriptor_path(directory)).map_err(Error::Io)
}

pub(crate) fn mount_points(directory: BorrowedFd<'_>) -> Result<Vec<PathBuf>> {
    Ok(MountTable::read()?.points_below(&path_of(directory)?))
}
