//! `user.` attributes, and raw values for ACLs.

use std::os::fd::AsFd;

use rustix::fs::{self, XattrFlags};
use rustix::io::Errno;
use vouch_vfs::{Error, NAME_LEN_MAX, Result, XattrHow};

use crate::errno::{OrError, error};
use crate::export::Inner;
use crate::identity;
use crate::node::Node;
use crate::probe::LABEL;

const PREFIX: &[u8] = b"user.";

/// Linux's longest value and list of names, bytes.
const LEN_MAX: usize = 64 << 10;

/// Initial buffer, bytes.
const LEN_USUAL: usize = 4 << 10;

fn full_name(name: &[u8]) -> Result<Vec<u8>> {
    if name.is_empty() || name.contains(&0) {
        return Err(Error::Invalid);
    }
    if name.len() + PREFIX.len() > NAME_LEN_MAX {
        return Err(Error::NameTooLong);
    }
    Ok([PREFIX, name].concat())
}

impl Node {
    pub(crate) fn raw_xattr(&self, name: &[u8]) -> std::result::Result<Vec<u8>, Errno> {
        let path = Inner::descriptor_path(self.as_fd());
        with_growing_buffer(|buffer| {
            fs::getxattr(&path, name, rustix::buffer::spare_capacity(buffer))
        })
    }

    pub(crate) fn set_raw_xattr(
        &self,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> std::result::Result<(), Errno> {
        let _changing = self.changing();
        fs::setxattr(Inner::descriptor_path(self.as_fd()), name, value, flags)
    }

    pub(crate) fn remove_raw_xattr(&self, name: &[u8]) -> std::result::Result<(), Errno> {
        let _changing = self.changing();
        fs::removexattr(Inner::descriptor_path(self.as_fd()), name)
    }

    pub(crate) fn xattr(&self, name: &[u8]) -> Result<Vec<u8>> {
        self.raw_xattr(&full_name(name)?).or_error()
    }

    pub(crate) fn set_xattr(&self, name: &[u8], value: &[u8], how: XattrHow) -> Result<()> {
        let flags = match how {
            XattrHow::Either => XattrFlags::empty(),
            XattrHow::Create => XattrFlags::CREATE,
            XattrHow::Replace => XattrFlags::REPLACE,
        };
        let name = full_name(name)?;
        self.set_raw_xattr(&name, value, flags).map_err(|errno| match errno {
            // File systems that store attributes in a small block report NOSPC for values that are
            // too long.
            Errno::NOSPC if value.len() > LEN_USUAL / 2 => Error::XattrTooLarge,
            errno => error(errno),
        })
    }

    pub(crate) fn remove_xattr(&self, name: &[u8]) -> Result<()> {
        self.remove_raw_xattr(&full_name(name)?).or_error()
    }

    /// Tools store it with a final NUL, which is no part of it (RFC 7862 §12.2.4).
    pub(crate) fn label(&self) -> Result<Vec<u8>> {
        let mut label = self.raw_xattr(LABEL.as_bytes()).or_error()?;
        if label.last() == Some(&0) {
            label.pop();
        }
        Ok(label)
    }

    /// The thread is root. Without SELinux, the kernel asks for CAP_SYS_ADMIN.
    pub(crate) fn set_label(&self, label: &[u8]) -> Result<()> {
        let value = [label, b"\0"].concat();
        let set = || self.set_raw_xattr(LABEL.as_bytes(), &value, XattrFlags::empty());
        match set() {
            Err(Errno::PERM) => identity::with_administration(set),
            done => done,
        }
        .or_error()
    }

    pub(crate) fn xattrs(&self) -> Result<Vec<Vec<u8>>> {
        let path = Inner::descriptor_path(self.as_fd());
        let list = match with_growing_buffer(|buffer| {
            fs::listxattr(&path, rustix::buffer::spare_capacity(buffer))
        }) {
            Err(Errno::OPNOTSUPP) => Vec::new(),
            list => list.or_error()?,
        };
        let names = list.split(|&byte| byte == 0).filter_map(|name| name.strip_prefix(PREFIX));
        let mut names: Vec<_> = names.filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect();
        names.sort_unstable();
        Ok(names)
    }
}

fn with_growing_buffer(
    call: impl Fn(&mut Vec<u8>) -> std::result::Result<usize, Errno>,
) -> std::result::Result<Vec<u8>, Errno> {
    let mut buffer = Vec::with_capacity(LEN_USUAL);
    match call(&mut buffer) {
        Err(Errno::RANGE) => {
            buffer = Vec::with_capacity(LEN_MAX);
            call(&mut buffer)?;
        }
        result => {
            result?;
        }
    }
    Ok(buffer)
}
