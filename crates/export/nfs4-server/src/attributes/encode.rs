use vouch_nfs4::attr::{Attr, ChangeAttrType, FileType as Type, SecLabel, SpecData};
use vouch_nfs4::{Ace, AclSupport, Bitmap, Bytes, List, Status, Time, Wire as _, flex_files};
use vouch_vfs::FileType;
use vouch_xdr::Writer;

use super::{EXCLUSIVE_CREATE, View, locations};
use crate::attributes::acl::{Entry, Who};
use crate::attributes::owner::{Kind, Owners};
use crate::error::OpError;

/// Appends a `fattr4`. `error`: value of `rdattr_error` (RFC 8881 §5.8.1.12).
pub(crate) fn encode(
    view: &View,
    wanted: Bitmap,
    error: Status,
    owners: &Owners<'_>,
    out: &mut Writer,
) -> Result<(), OpError> {
    let mut mask = wanted.and(view.supported());
    let absent = [
        (Attr::FILEHANDLE, view.handle.is_none()),
        (Attr::ACL, view.acl.is_none()),
        (Attr::DACL, view.acl.is_none()),
        (Attr::TIME_ACCESS_SET, true),
        (Attr::TIME_MODIFY_SET, true),
        (Attr::SEC_LABEL, view.label.is_none()),
        (Attr::UNCACHEABLE_FILE_DATA, view.attributes.file_type != FileType::Regular),
        (Attr::MODE_SET_MASKED, true),
        (Attr::MODE_UMASK, true),
        (Attr::TIME_DELEG_ACCESS, true),
        (Attr::TIME_DELEG_MODIFY, true),
    ];
    for (attr, is_absent) in absent {
        if is_absent {
            mask = mask.without(attr.0);
        }
    }
    if view.space.is_none() {
        mask = mask.minus(super::SPACE);
    }
    mask.encode(out);
    let start = out.begin_opaque();
    for number in mask.iter() {
        value(view, Attr(number), error, owners, out)?;
    }
    out.end_opaque(start);
    Ok(())
}

fn value(
    view: &View,
    attr: Attr,
    error: Status,
    owners: &Owners<'_>,
    out: &mut Writer,
) -> Result<(), OpError> {
    let a = &view.attributes;
    let limits = &owners.config.limits;
    match attr {
        Attr::SUPPORTED_ATTRS => view.supported().encode(out),
        Attr::TYPE => wire_type(a.file_type).encode(out),
        Attr::FH_EXPIRE_TYPE => {
            out.u32(if view.traits.persistent_ids { FH4_PERSISTENT } else { FH4_VOLATILE_ANY })
        }
        Attr::CHANGE => out.u64(a.change),
        Attr::SIZE => out.u64(a.size),
        Attr::LINK_SUPPORT | Attr::SYMLINK_SUPPORT => out.bool(true),
        Attr::UNIQUE_HANDLES => out.bool(view.traits.unique_ids),
        Attr::NAMED_ATTR => out.bool(false),
        Attr::FSID => view.fsid.encode(out),
        Attr::LEASE_TIME => {
            out.u32(u32::try_from(owners.config.lease_ms / 1000).unwrap_or(u32::MAX))
        }
        Attr::RDATTR_ERROR => error.encode(out),
        Attr::ACL => acl(view.acl.as_deref().unwrap_or_default(), owners, out)?,
        Attr::DACL => {
            out.u32(0);
            acl(view.acl.as_deref().unwrap_or_default(), owners, out)?;
        }
        Attr::ACLSUPPORT => (AclSupport::ALLOW | AclSupport::DENY).encode(out),
        Attr::CANSETTIME
        | Attr::CASE_PRESERVING
        | Attr::CHOWN_RESTRICTED
        | Attr::HOMOGENEOUS
        | Attr::NO_TRUNC => out.bool(true),
        Attr::CASE_INSENSITIVE => out.bool(false),
        Attr::FILEHANDLE => view.handle.as_ref().into_iter().for_each(|handle| handle.encode(out)),
        Attr::FILEID => out.u64(a.file_number),
        Attr::MOUNTED_ON_FILEID => out.u64(view.mounted_on),
        Attr::MAXFILESIZE => out.u64(view.traits.file_size_max),
        Attr::MAXLINK => out.u32(view.traits.links_max),
        Attr::MAXNAME => out.u32(view.traits.name_len_max),
        Attr::MAXREAD | Attr::MAXWRITE => out.u64(limits.io_len_max.into()),
        Attr::MODE => out.u32(a.mode.into()),
        Attr::NUMLINKS => out.u32(a.links),
        Attr::OWNER => owner(Kind::User, a.uid, owners, out)?,
        Attr::OWNER_GROUP => owner(Kind::Group, a.gid, owners, out)?,
        Attr::RAWDEV => SpecData { major: a.device.0, minor: a.device.1 }.encode(out),
        // Removing one of several links frees nothing.
        Attr::SPACE_FREED => out.u64(if a.links > 1 { 0 } else { a.space_used }),
        Attr::SPACE_USED => out.u64(a.space_used),
        Attr::TIME_ACCESS => time(a.accessed).encode(out),
        Attr::TIME_CREATE => time(a.created.unwrap_or_default()).encode(out),
        Attr::TIME_DELTA => Time { seconds: 0, nanoseconds: 1 }.encode(out),
        Attr::TIME_METADATA => time(a.changed).encode(out),
        Attr::TIME_MODIFY => time(a.modified).encode(out),
        Attr::SUPPATTR_EXCLCREAT => EXCLUSIVE_CREATE.and(view.supported()).encode(out),
        // FSCHARSET_CAP4_CONTAINS_NON_UTF8: names are bytes.
        Attr::FS_CHARSET_CAP => out.u32(1),
        Attr::CLONE_BLKSIZE => out.u32(view.traits.clone_block_len),
        Attr::OPEN_ARGUMENTS => super::OPEN_ARGUMENTS.encode(out),
        // RFC 7862 §12.2.3. A client would take a smaller value for an old reply.
        Attr::CHANGE_ATTR_TYPE if view.traits.change_grows => {
            ChangeAttrType::MONOTONIC_INCR.encode(out)
        }
        Attr::CHANGE_ATTR_TYPE => ChangeAttrType::UNDEFINED.encode(out),
        Attr::FS_LOCATIONS | Attr::FS_LOCATIONS_INFO => {
            locations::encode(view, attr, owners.config, out)
        }
        Attr::FS_LAYOUT_TYPES => List::<u32, 1>(vec![flex_files::LAYOUT_TYPE]).encode(out),
        Attr::LAYOUT_BLKSIZE => out.u32(crate::limits::LAYOUT_LEN),
        Attr::SEC_LABEL => {
            let label = Bytes(view.label.as_deref().unwrap_or_default());
            // RFC 7862 §12.2.4: 0 leaves format and policy to the client.
            SecLabel { format: 0, policy: 0, data: label }.encode(out);
        }
        Attr::UNCACHEABLE_FILE_DATA => out.bool(true),
        Attr::XATTR_SUPPORT => out.bool(view.traits.xattrs),
        other => space(view, other, out),
    }
    Ok(())
}

fn space(view: &View, attr: Attr, out: &mut Writer) {
    let space = view.space.unwrap_or_default();
    let (used, soft, hard) = space.quota.unwrap_or_default();
    // A limit of 0 means no limit.
    let left =
        |limit: u64| if limit == 0 { space.bytes_available } else { limit.saturating_sub(used) };
    out.u64(match attr {
        Attr::FILES_AVAIL => space.files_available,
        Attr::FILES_FREE => space.files_free,
        Attr::FILES_TOTAL => space.files_total,
        Attr::SPACE_AVAIL => space.bytes_available,
        Attr::SPACE_FREE => space.bytes_free,
        Attr::SPACE_TOTAL => space.bytes_total,
        Attr::QUOTA_AVAIL_HARD => left(hard),
        Attr::QUOTA_AVAIL_SOFT => left(soft),
        Attr::QUOTA_USED => used,
        other => unreachable!("attribute {} is supported but has no value", other.0),
    });
}

fn owner(kind: Kind, id: u32, owners: &Owners<'_>, out: &mut Writer) -> Result<(), OpError> {
    let start = out.begin_opaque();
    owners.write(kind, id, out.bytes_mut())?;
    out.end_opaque(start);
    Ok(())
}

fn acl(entries: &[Entry], owners: &Owners<'_>, out: &mut Writer) -> Result<(), OpError> {
    out.count(entries.len());
    let mut name = Vec::new();
    for entry in entries {
        name.clear();
        match entry.who {
            Who::Owner => name.extend_from_slice(b"OWNER@"),
            Who::Group => name.extend_from_slice(b"GROUP@"),
            Who::Everyone => name.extend_from_slice(b"EVERYONE@"),
            Who::User(id) => owners.write(Kind::User, id, &mut name)?,
            Who::NamedGroup(id) => owners.write(Kind::Group, id, &mut name)?,
        }
        Ace { kind: entry.kind, flags: entry.flags, mask: entry.mask, who: Bytes(&name) }
            .encode(out);
    }
    Ok(())
}

fn wire_type(kind: FileType) -> Type {
    match kind {
        FileType::Regular => Type::Regular,
        FileType::Directory => Type::Directory,
        FileType::Symlink => Type::Symlink,
        FileType::BlockDevice => Type::Block,
        FileType::CharDevice => Type::Character,
        FileType::Fifo => Type::Fifo,
        FileType::Socket => Type::Socket,
    }
}

/// RFC 8881 §4.2.3.
const FH4_PERSISTENT: u32 = 0;
const FH4_VOLATILE_ANY: u32 = 2;

fn time(time: vouch_vfs::Time) -> Time {
    Time { seconds: time.seconds, nanoseconds: time.nanos }
}
