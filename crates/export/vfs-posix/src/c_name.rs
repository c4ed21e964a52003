//! NUL-terminated names on the stack.

use std::ffi::CStr;

use vouch_vfs::{NAME_LEN_MAX, Name};

pub(crate) struct CName {
    bytes: [u8; NAME_LEN_MAX + 1],
    len: usize,
}

impl CName {
    pub(crate) fn new(name: Name<'_>) -> Self {
        let mut bytes = [0; NAME_LEN_MAX + 1];
        let len = name.as_bytes().len();
        bytes[..len].copy_from_slice(name.as_bytes());
        CName { bytes, len }
    }
}

impl std::ops::Deref for CName {
    type Target = CStr;
    fn deref(&self) -> &CStr {
        CStr::from_bytes_with_nul(&self.bytes[..=self.len])
            .expect("a name has no NUL, and one follows it")
    }
}
