//! Inodes by number, and the clock.

use std::collections::BTreeMap;

use super::data::Data;
use super::directory::Directory;
use crate::{Attributes, Error, FileType, PosixAcl, Quota, QuotaEnforcement, Result, Space, Time};

pub(super) const ROOT: u64 = 1;

#[derive(Clone)]
pub(super) enum Node {
    Regular(Data),
    Directory(Directory),
    Symlink(Vec<u8>),
    Device(FileType, (u32, u32)),
    Plain(FileType),
}

#[derive(Clone)]
pub(super) struct Inode {
    pub(super) number: u64,
    pub(super) node: Node,
    pub(super) mode: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) links: u32,
    pub(super) accessed: Time,
    pub(super) modified: Time,
    pub(super) changed: Time,
    pub(super) created: Time,
    pub(super) change: u64,
    pub(super) acl: PosixAcl,
    pub(super) default_acl: PosixAcl,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) verifier: Option<[u8; 8]>,
    pub(super) opens: usize,
    pub(super) cold: bool,
}

impl Inode {
    pub(super) fn file_type(&self) -> FileType {
        match &self.node {
            Node::Regular(_) => FileType::Regular,
            Node::Directory(_) => FileType::Directory,
            Node::Symlink(_) => FileType::Symlink,
            Node::Device(kind, _) | Node::Plain(kind) => *kind,
        }
    }

    pub(super) fn attributes(&self) -> Attributes {
        let (size, space_used) = match &self.node {
            Node::Regular(data) => (data.size, data.used()),
            Node::Directory(directory) => (directory.len() as u64 * 32, 4096),
            Node::Symlink(target) => (target.len() as u64, 0),
            Node::Device(..) | Node::Plain(_) => (0, 0),
        };
        Attributes {
            file_type: self.file_type(),
            mode: self.mode,
            links: self.links,
            uid: self.uid,
            gid: self.gid,
            size,
            space_used,
            device: if let Node::Device(_, device) = self.node { device } else { (0, 0) },
            fsid: 1,
            file_number: self.number,
            accessed: self.accessed,
            modified: self.modified,
            changed: self.changed,
            created: Some(self.created),
            change: self.change,
        }
    }

    pub(super) fn directory(&self) -> Result<&Directory> {
        if let Node::Directory(directory) = &self.node {
            Ok(directory)
        } else {
            Err(Error::NotDirectory)
        }
    }

    pub(super) fn directory_mut(&mut self) -> Result<&mut Directory> {
        if let Node::Directory(directory) = &mut self.node {
            Ok(directory)
        } else {
            Err(Error::NotDirectory)
        }
    }

    pub(super) fn data(&self) -> Result<&Data> {
        match &self.node {
            Node::Regular(data) => Ok(data),
            Node::Directory(_) => Err(Error::IsDirectory),
            Node::Symlink(_) => Err(Error::IsSymlink),
            _ => Err(Error::WrongType),
        }
    }

    pub(super) fn data_mut(&mut self) -> Result<&mut Data> {
        match &mut self.node {
            Node::Regular(data) => Ok(data),
            Node::Directory(_) => Err(Error::IsDirectory),
            Node::Symlink(_) => Err(Error::IsSymlink),
            _ => Err(Error::WrongType),
        }
    }
}

#[derive(Clone)]
pub(super) struct State {
    pub(super) inodes: BTreeMap<u64, Inode>,
    pub(super) now: Time,
    pub(super) capacity: u64,
    pub(super) used: u64,
    pub(super) quota: Option<u64>,
    pub(super) read_only: bool,
    pub(super) slow_sync: bool,
    pub(super) next_number: u64,
    pub(super) last_change: u64,
}

impl State {
    pub(super) fn new() -> Self {
        let mut state = State {
            inodes: BTreeMap::new(),
            now: Time { seconds: 1_700_000_000, nanos: 0 },
            capacity: 1 << 30,
            used: 0,
            quota: None,
            read_only: false,
            slow_sync: false,
            next_number: ROOT,
            last_change: 0,
        };
        let root = state.add(Node::Directory(Directory::new(ROOT)), 0o755, 0, 0);
        state.get_mut(root).expect("just made").links = 2;
        state
    }

    pub(super) fn add(&mut self, node: Node, mode: u16, uid: u32, gid: u32) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        let (now, change) = self.tick();
        let inode = Inode {
            number,
            node,
            mode,
            uid,
            gid,
            links: 0,
            accessed: now,
            modified: now,
            changed: now,
            created: now,
            change,
            acl: PosixAcl::default(),
            default_acl: PosixAcl::default(),
            xattrs: BTreeMap::new(),
            verifier: None,
            opens: 0,
            cold: false,
        };
        self.inodes.insert(number, inode);
        number
    }

    fn tick(&mut self) -> (Time, u64) {
        self.now.nanos += 1;
        if self.now.nanos == 1_000_000_000 {
            self.now = Time { seconds: self.now.seconds + 1, nanos: 0 };
        }
        // The numbers between are for data that only the holder of a delegation has.
        self.last_change += 1 << 16;
        (self.now, self.last_change)
    }

    pub(super) fn get(&self, number: u64) -> Result<&Inode> {
        self.inodes.get(&number).ok_or(Error::Stale)
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Result<&mut Inode> {
        self.inodes.get_mut(&number).ok_or(Error::Stale)
    }

    pub(super) fn touch(&mut self, number: u64) {
        let (now, change) = self.tick();
        if let Some(inode) = self.inodes.get_mut(&number) {
            inode.changed = now;
            inode.change = change;
        }
    }

    pub(super) fn touch_data(&mut self, number: u64) {
        self.touch(number);
        let now = self.now;
        if let Some(inode) = self.inodes.get_mut(&number) {
            inode.modified = now;
        }
    }

    pub(super) fn writable(&self) -> Result<()> {
        if self.read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }

    pub(super) fn take(&mut self, bytes: u64) -> Result<()> {
        if self.used + bytes > self.capacity {
            return Err(Error::NoSpace);
        }
        if self.quota.is_some_and(|quota| self.used + bytes > quota) {
            return Err(Error::Quota);
        }
        self.used += bytes;
        Ok(())
    }

    pub(super) fn quota(&self) -> Option<Quota> {
        let (limit, enforced_by) = (self.quota?, QuotaEnforcement::FileSystem);
        Some(Quota { used: self.used, limit, enforced_by })
    }

    pub(super) fn space(&self) -> Space {
        let bytes_total = self.quota.unwrap_or(self.capacity).min(self.capacity);
        let free = bytes_total.saturating_sub(self.used);
        let files = u64::from(u32::MAX);
        let left = files - self.inodes.len() as u64;
        Space {
            bytes_total,
            bytes_free: free,
            bytes_available: free,
            files_total: files,
            files_free: left,
            files_available: left,
            quota: self.quota.map(|limit| (self.used, limit, limit)),
        }
    }

    pub(super) fn release_space(&mut self, bytes: u64) {
        self.used = self.used.saturating_sub(bytes);
    }

    /// Removes the inode if it has neither names nor opens. True if the last name is gone.
    pub(super) fn remove_if_unused(&mut self, number: u64) -> bool {
        let Some(inode) = self.inodes.get(&number) else { return true };
        if inode.links > 0 {
            return false;
        }
        if inode.opens == 0 {
            let used = inode.data().map_or(0, Data::used);
            self.release_space(used);
            self.inodes.remove(&number);
        }
        true
    }
}
