use std::io;

use vouch_tree::xattr::Xattrs;
use vouch_vfs::{Error, PosixAcl, PosixAclEntry, PosixAclKind, PosixAclTag, Result};

const VERSION: u32 = 2;

const MINIMAL_COUNT: usize = 3;

pub(crate) fn acl_in(xattrs: &Xattrs, kind: PosixAclKind) -> Result<PosixAcl> {
    let name: &[u8] = match kind {
        PosixAclKind::Access => b"system.posix_acl_access",
        PosixAclKind::Default => b"system.posix_acl_default",
    };
    let Some(value) = xattrs.get(name) else { return Ok(PosixAcl::default()) };
    let mut acl = decode(value).ok_or_else(|| {
        Error::Io(io::Error::new(io::ErrorKind::InvalidData, "the published ACL is none"))
    })?;
    if kind == PosixAclKind::Access && acl.entries.len() <= MINIMAL_COUNT {
        acl.entries.clear();
    }
    Ok(acl)
}

fn decode(value: &[u8]) -> Option<PosixAcl> {
    let (version, entries) = value.split_first_chunk()?;
    let (entries, rest) = entries.as_chunks::<8>();
    if u32::from_le_bytes(*version) != VERSION || !rest.is_empty() {
        return None;
    }
    let mut acl = PosixAcl::default();
    for [tag_low, tag_high, low, high, id @ ..] in entries {
        let id = u32::from_le_bytes(*id);
        let tag = match u16::from_le_bytes([*tag_low, *tag_high]) {
            0x01 => PosixAclTag::UserObject,
            0x02 => PosixAclTag::User(id),
            0x04 => PosixAclTag::GroupObject,
            0x08 => PosixAclTag::Group(id),
            0x10 => PosixAclTag::Mask,
            0x20 => PosixAclTag::Other,
            _ => return None,
        };
        let permissions =
            u8::try_from(u16::from_le_bytes([*low, *high])).ok().filter(|bits| *bits <= 7)?;
        acl.entries.push(PosixAclEntry { tag, permissions });
    }
    acl.entries.sort();
    Some(acl)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_acl_is_refused_and_not_ignored() {
        for value in [
            &b""[..],
            b"\x02\0\0",
            b"\x01\0\0\0",
            b"\x02\0\0\0\x01",
            b"\x02\0\0\0\x03\0\x07\0\0\0\0\0",
            b"\x02\0\0\0\x01\0\x08\0\0\0\0\0",
        ] {
            let xattrs = Xattrs::new(vec![(b"system.posix_acl_access".to_vec(), value.to_vec())]);
            assert!(acl_in(&xattrs, PosixAclKind::Access).is_err(), "{value:?}");
        }
        assert_eq!(acl_in(&Xattrs::default(), PosixAclKind::Default).unwrap(), PosixAcl::default());
    }
}
