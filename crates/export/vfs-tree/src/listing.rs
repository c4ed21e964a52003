//! Listings continue after a cookie in any revision.

use std::ops::ControlFlow;

use vouch_tree::Inode;
use vouch_tree_client::Position;
use vouch_vfs::{Caller, DirectoryEntry, Error, Result};

use crate::cookie::Cookie;
use crate::core::CallContext;
use crate::node::Node;
use crate::rights::{EXECUTE, READ};

pub(crate) type EntryCallback<'a> = &'a mut dyn FnMut(DirectoryEntry<'_>) -> ControlFlow<()>;

struct List<'a, 'c> {
    call: &'a CallContext<'c>,
    directory: &'a Node,
    files: Option<Result<()>>,
    each: EntryCallback<'a>,
    given: u64,
}

impl CallContext<'_> {
    pub(crate) fn list(
        &self,
        caller: &Caller,
        directory: &Node,
        cookie: u64,
        with_files: bool,
        each: EntryCallback<'_>,
    ) -> Result<bool> {
        if !directory.inode.is_directory() {
            return Err(Error::NotDirectory);
        }
        self.check_access(caller, directory, READ)?;
        let after = match cookie {
            0 => None,
            cookie => Some(Cookie::of(cookie).ok_or(Error::BadCookie)?),
        };
        let files = with_files.then(|| self.check_access(caller, directory, EXECUTE));
        let mut list = List { call: self, directory, files, each, given: 0 };
        let done = if directory.is_opaque() { list.used_names(after) } else { list.pages(after) };
        match done {
            Err(Error::WouldBlock) if list.given > 0 => Ok(false),
            // The rest is listed from the replicas' next revision.
            Err(_) if list.given > 0 && self.is_frame_missing.get() => Ok(false),
            done => done,
        }
    }

    fn position(&self, directory: &Node, cookie: Cookie) -> Result<ListedEntry> {
        if self.name_at(&directory.inode, cookie)?.is_some() {
            return Ok(ListedEntry::Number(cookie.number + 1));
        }
        for revision in self.core.earlier_revisions(self.generation) {
            let tree = &self.core.tree;
            let then = match self
                .answer(tree.try_lookup_path(revision.root(), &directory.path), || {
                    tree.lookup_path(revision.root(), &directory.path)
                }) {
                Err(Error::WouldBlock) => return Err(Error::WouldBlock),
                Err(_) => continue,
                Ok(then) => then,
            };
            match self.name_at(&then, cookie) {
                Err(Error::WouldBlock) => return Err(Error::WouldBlock),
                Ok(Some(name)) => return Ok(ListedEntry::Name(name)),
                Err(_) | Ok(None) => {}
            }
        }
        let mut page = self.page(&directory.inode, Position::Start)?;
        loop {
            for (entry, number) in page.entries().iter().zip(page.number..) {
                if cookie.fits(entry.name.as_bytes()) {
                    return Ok(ListedEntry::Number(number + 1));
                }
            }
            if page.last || page.entries().is_empty() {
                return Err(Error::BadCookie);
            }
            page = self.page(&directory.inode, page.next())?;
        }
    }

    fn name_at(&self, directory: &Inode, cookie: Cookie) -> Result<Option<Box<[u8]>>> {
        let page = self.page(directory, Position::Number(cookie.number))?;
        let entry = page
            .entries()
            .first()
            .filter(|entry| page.number == cookie.number && cookie.fits(entry.name.as_bytes()));
        Ok(entry.map(|entry| entry.name.as_bytes().into()))
    }
}

enum ListedEntry {
    Number(u64),
    Name(Box<[u8]>),
}

impl List<'_, '_> {
    fn pages(&mut self, after: Option<Cookie>) -> Result<bool> {
        let inode = self.directory.inode.clone();
        let found = after.map(|cookie| self.call.position(self.directory, cookie)).transpose()?;
        let mut page = match &found {
            None => self.call.page(&inode, Position::Start)?,
            Some(ListedEntry::Number(number)) => {
                self.call.page(&inode, Position::Number(*number))?
            }
            Some(ListedEntry::Name(name)) => self.call.page(&inode, Position::After(name))?,
        };
        loop {
            for (entry, number) in page.entries().iter().zip(page.number..) {
                if self.deliver(number, entry.name.as_bytes(), &entry.inode)?.is_break() {
                    return Ok(false);
                }
            }
            if page.last || page.entries().is_empty() {
                return Ok(true);
            }
            page = self.call.page(&inode, page.next())?;
        }
    }

    fn used_names(&mut self, after: Option<Cookie>) -> Result<bool> {
        let names = self.call.core.used_names(&self.directory.id);
        let first = match after {
            None => 0,
            Some(cookie) => {
                1 + names.iter().position(|name| cookie.fits(name)).ok_or(Error::BadCookie)?
            }
        };
        for (name, number) in names.iter().zip(0..).skip(first) {
            let Some(entry) = self.call.entry(&self.directory.inode, name)? else { continue };
            if self.deliver(number, name, &entry.inode)?.is_break() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn deliver(&mut self, number: u64, name: &[u8], inode: &Inode) -> Result<ControlFlow<()>> {
        let core = self.call.core;
        let cookie = Cookie::after(number, name).ok_or(Error::TooLarge)?.value();
        let (file_number, file) = match &self.files {
            Some(Ok(())) => {
                let node = self.call.enter(self.directory, name, inode)?;
                (node.number, Some(Ok((node.id, core.attributes(&node)))))
            }
            refused => (
                core.numbering.of_file(self.directory.number, name, inode, 0),
                refused.as_ref().map(|_| Err(Error::Access)),
            ),
        };
        let flow = (self.each)(DirectoryEntry { name, cookie, file_number: file_number.0, file });
        self.given += u64::from(flow.is_continue());
        Ok(flow)
    }
}
