//! Linux's encoding: the xattrs `system.posix_acl_access` and `system.posix_acl_default`. A 32-bit
//! version, then 8 bytes for each entry (tag, permissions, user or group), little-endian.

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use vouch_vfs::{Error, FileType, PosixAcl, PosixAclEntry, PosixAclKind, PosixAclTag, Result};

use crate::errno::error;
use crate::node::Node;

const VERSION: u32 = 2;
const NOBODY: u32 = u32::MAX;

/// The capacity of a 64 KiB xattr.
const ENTRY_COUNT_MAX: usize = 8191;

fn attribute(kind: PosixAclKind) -> &'static [u8] {
    match kind {
        PosixAclKind::Access => b"system.posix_acl_access",
        PosixAclKind::Default => b"system.posix_acl_default",
    }
}

impl Node {
    pub(crate) fn acl(&self, kind: PosixAclKind) -> Result<PosixAcl> {
        if self.file_type == FileType::Symlink
            || kind == PosixAclKind::Default && self.file_type != FileType::Directory
        {
            return Ok(PosixAcl::default());
        }
        match self.raw_xattr(attribute(kind)) {
            Ok(value) => decode(&value).ok_or(Error::Io(std::io::ErrorKind::InvalidData.into())),
            Err(Errno::NODATA) => Ok(PosixAcl::default()),
            Err(errno) => Err(error(errno)),
        }
    }

    pub(crate) fn set_acl(&self, kind: PosixAclKind, acl: &PosixAcl) -> Result<()> {
        if self.file_type == FileType::Symlink {
            return Err(Error::NotSupported);
        }
        if acl.entries.len() > ENTRY_COUNT_MAX {
            return Err(Error::XattrTooLarge);
        }
        let set = if acl.entries.is_empty() {
            match self.remove_raw_xattr(attribute(kind)) {
                Err(Errno::NODATA) => Ok(()),
                removed => removed,
            }
        } else {
            self.set_raw_xattr(attribute(kind), &encode(acl), XattrFlags::empty())
        };
        set.map_err(error)
    }
}

fn encode(acl: &PosixAcl) -> Vec<u8> {
    let mut value = VERSION.to_le_bytes().to_vec();
    for entry in &acl.entries {
        let (tag, id) = match entry.tag {
            PosixAclTag::UserObject => (0x01u16, NOBODY),
            PosixAclTag::User(uid) => (0x02, uid),
            PosixAclTag::GroupObject => (0x04, NOBODY),
            PosixAclTag::Group(gid) => (0x08, gid),
            PosixAclTag::Mask => (0x10, NOBODY),
            PosixAclTag::Other => (0x20, NOBODY),
        };
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&u16::from(entry.permissions).to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    value
}

fn decode(value: &[u8]) -> Option<PosixAcl> {
    let (version, entries) = value.split_first_chunk()?;
    if u32::from_le_bytes(*version) != VERSION {
        return None;
    }
    let (entries, rest) = entries.as_chunks::<8>();
    if !rest.is_empty() {
        return None;
    }
    let entry = |bytes: &[u8; 8]| {
        let id = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        let tag = match u16::from_le_bytes([bytes[0], bytes[1]]) {
            0x01 => PosixAclTag::UserObject,
            0x02 => PosixAclTag::User(id),
            0x04 => PosixAclTag::GroupObject,
            0x08 => PosixAclTag::Group(id),
            0x10 => PosixAclTag::Mask,
            0x20 => PosixAclTag::Other,
            _ => return None,
        };
        Some(PosixAclEntry { tag, permissions: bytes[2] & 7 })
    };
    let mut entries = entries.iter().map(entry).collect::<Option<Vec<_>>>()?;
    entries.sort_unstable();
    Some(PosixAcl { entries })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acl_round_trips_and_garbage_is_refused() {
        let tags = [
            PosixAclTag::UserObject,
            PosixAclTag::User(7),
            PosixAclTag::GroupObject,
            PosixAclTag::Group(8),
            PosixAclTag::Mask,
        ];
        let entries = tags.map(|tag| PosixAclEntry { tag, permissions: 5 }).to_vec();
        let acl = PosixAcl { entries };
        assert_eq!(decode(&encode(&acl)), Some(acl));
        for bytes in [
            &b""[..],
            &[2, 0, 0],
            &[1, 0, 0, 0],
            &[2, 0, 0, 0, 1],
            &[2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0],
        ] {
            assert_eq!(decode(bytes), None, "{bytes:?}");
        }
    }
}
