use super::acl;
use super::rights::{self, EXECUTE, SET_GID, WRITE};
use super::state::{Node, ROOT, State};
use crate::{Caller, DirectoryChange, Error, FileType, Result, SetAttributes};

pub(super) const LINKS_MAX: u32 = 65_000;

impl State {
    pub(super) fn change_of(&self, directory: u64) -> u64 {
        self.get(directory).map_or(0, |inode| inode.change)
    }

    pub(super) fn changing<T>(
        &mut self,
        directory: u64,
        change: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<(T, DirectoryChange)> {
        let before = self.change_of(directory);
        let made = change(self)?;
        Ok((made, DirectoryChange { before, after: self.change_of(directory), atomic: true }))
    }

    pub(super) fn add_named(
        &mut self,
        caller: &Caller,
        directory: u64,
        name: &[u8],
        node: Node,
        set: &SetAttributes,
    ) -> Result<u64> {
        self.writable()?;
        let parent = self.get(directory)?;
        parent.directory()?;
        rights::check_access(caller, parent, EXECUTE)?;
        if parent.directory()?.get(name).is_some() {
            return Err(Error::Exists);
        }
        rights::check_access(caller, parent, WRITE | EXECUTE)?;
        if parent.links == 0 {
            return Err(Error::NotFound);
        }
        let is_directory = matches!(node, Node::Directory(_));
        if is_directory && parent.links == LINKS_MAX {
            return Err(Error::TooManyLinks);
        }
        let is_symlink = matches!(node, Node::Symlink(_));
        let mut mode = if is_symlink { 0o777 } else { set.mode.unwrap_or(0) & 0o7777 };
        let gid = if parent.mode & SET_GID != 0 { parent.gid } else { caller.gid };
        let (mut access_acl, mut default_acl) = Default::default();
        if !is_symlink {
            if parent.default_acl.entries.is_empty() {
                mode &= !set.umask.unwrap_or(0);
            } else {
                (access_acl, mode) = acl::inherit(parent, mode);
                if is_directory {
                    default_acl = parent.default_acl.clone();
                }
            }
        }
        if is_directory && parent.mode & SET_GID != 0 {
            mode |= SET_GID;
        } else if !is_directory && mode & SET_GID != 0 && caller.uid != 0 && !caller.is_in(gid) {
            mode &= !SET_GID;
        }
        let number = self.add(node, mode, caller.uid, gid);
        let inode = self.get_mut(number)?;
        inode.links = if is_directory { 2 } else { 1 };
        (inode.acl, inode.default_acl) = (access_acl, default_acl);
        let rest = SetAttributes { mode: None, mode_mask: None, umask: None, ..*set };
        if let Err(error) = self.set(caller, number, true, &rest) {
            self.inodes.remove(&number);
            return Err(error);
        }
        let parent = self.get_mut(directory)?;
        parent.directory_mut()?.insert(name, number);
        if is_directory {
            parent.links += 1;
        }
        self.touch_data(directory);
        Ok(number)
    }

    pub(super) fn link(
        &mut self,
        caller: &Caller,
        number: u64,
        directory: u64,
        name: &[u8],
    ) -> Result<()> {
        self.writable()?;
        let inode = self.get(number)?;
        if inode.file_type() == FileType::Directory {
            return Err(Error::Permission);
        }
        let (links, parent) = (inode.links, self.get(directory)?);
        parent.directory()?;
        rights::check_access(caller, parent, EXECUTE)?;
        if parent.directory()?.get(name).is_some() {
            return Err(Error::Exists);
        }
        rights::check_access(caller, parent, WRITE | EXECUTE)?;
        if links == 0 || parent.links == 0 {
            return Err(Error::NotFound);
        }
        if links == LINKS_MAX {
            return Err(Error::TooManyLinks);
        }
        self.get_mut(directory)?.directory_mut()?.insert(name, number);
        self.get_mut(number)?.links += 1;
        self.touch(number);
        self.touch_data(directory);
        Ok(())
    }

    pub(super) fn remove(
        &mut self,
        caller: &Caller,
        directory: u64,
        name: &[u8],
    ) -> Result<Option<u64>> {
        self.writable()?;
        let parent = self.get(directory)?;
        let entries = parent.directory()?;
        rights::check_access(caller, parent, EXECUTE)?;
        let number = entries.get(name).ok_or(Error::NotFound)?;
        let inode = self.get(number)?;
        rights::may_remove(caller, parent, inode)?;
        if let Node::Directory(entries) = &inode.node
            && entries.len() > 0
        {
            return Err(Error::NotEmpty);
        }
        self.get_mut(directory)?.directory_mut()?.remove(name);
        self.touch_data(directory);
        self.remove_link(number, directory)
    }

    fn remove_link(&mut self, number: u64, directory: u64) -> Result<Option<u64>> {
        let inode = self.get_mut(number)?;
        if inode.file_type() == FileType::Directory {
            inode.links = 0;
            self.get_mut(directory)?.links -= 1;
        } else {
            inode.links -= 1;
        }
        self.touch(number);
        Ok(self.remove_if_unused(number).then_some(number))
    }

    pub(super) fn rename(
        &mut self,
        caller: &Caller,
        from: u64,
        from_name: &[u8],
        to: u64,
        to_name: &[u8],
    ) -> Result<Option<u64>> {
        self.writable()?;
        let (source, target) = (self.get(from)?, self.get(to)?);
        let (from_entries, to_entries) = (source.directory()?, target.directory()?);
        rights::check_access(caller, source, EXECUTE)?;
        rights::check_access(caller, target, EXECUTE)?;
        let number = from_entries.get(from_name).ok_or(Error::NotFound)?;
        let replaced = to_entries.get(to_name);
        let inode = self.get(number)?;
        let is_directory = inode.file_type() == FileType::Directory;
        if is_directory && self.is_below(to, number) {
            return Err(Error::Invalid);
        }
        if replaced.is_some_and(|replaced| self.is_below(from, replaced)) {
            return Err(Error::NotEmpty);
        }
        if replaced == Some(number) {
            return Ok(None);
        }
        rights::may_remove(caller, source, inode)?;
        rights::check_access(caller, target, WRITE | EXECUTE)?;
        if target.links == 0 {
            return Err(Error::NotFound);
        }
        if let Some(replaced) = replaced {
            let old = self.get(replaced)?;
            rights::may_remove(caller, target, old)?;
            match (&old.node, is_directory) {
                (Node::Directory(entries), true) if entries.len() > 0 => {
                    return Err(Error::NotEmpty);
                }
                (Node::Directory(_), false) => return Err(Error::IsDirectory),
                (Node::Directory(_), true) => {}
                (_, true) => return Err(Error::NotDirectory),
                (_, false) => {}
            }
        }
        if is_directory && from != to {
            rights::check_access(caller, inode, WRITE)?;
        }
        self.get_mut(from)?.directory_mut()?.remove(from_name);
        self.get_mut(to)?.directory_mut()?.insert(to_name, number);
        let mut gone = None;
        if let Some(replaced) = replaced {
            gone = self.remove_link(replaced, to)?;
        }
        if is_directory && from != to {
            self.get_mut(from)?.links -= 1;
            self.get_mut(to)?.links += 1;
            self.get_mut(number)?.directory_mut()?.parent = to;
        }
        self.touch(number);
        self.touch_data(from);
        if to != from {
            self.touch_data(to);
        }
        Ok(gone)
    }

    fn is_below(&self, mut inner: u64, outer: u64) -> bool {
        loop {
            if inner == outer {
                return true;
            }
            match self.get(inner).and_then(|inode| Ok(inode.directory()?.parent)) {
                Ok(parent) if inner != ROOT => inner = parent,
                _ => return false,
            }
        }
    }
}
