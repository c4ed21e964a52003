use std::sync::Arc;

use vouch_nfs4::attr::{Attr, OpenArguments};
use vouch_nfs4::{Bitmap, Filehandle, Fsid};
use vouch_vfs::{Attributes, Space, Traits};

use super::acl;
use crate::pseudo_fs::Site;

pub(crate) struct View {
    pub(crate) minor: u32,
    pub(crate) attributes: Attributes,
    pub(crate) fsid: Fsid,
    pub(crate) mounted_on: u64,
    pub(crate) traits: Traits,
    pub(crate) quotas: bool,
    /// Of the file system (pNFS).
    pub(crate) has_layouts: bool,
    pub(crate) handle: Option<Filehandle>,
    pub(crate) space: Option<Space>,
    pub(crate) acl: Option<Vec<acl::Entry>>,
    pub(crate) label: Option<Vec<u8>>,
    /// For the locations. `None` in the pseudo file system.
    pub(crate) site: Option<Arc<Site>>,
}

impl View {
    pub(crate) fn supported(&self) -> Bitmap {
        let all = supported(self.minor, &self.traits, self.quotas, self.has_layouts);
        if self.attributes.created.is_some() { all } else { all.without(Attr::TIME_CREATE.0) }
    }
}

pub(crate) const SPACE: Bitmap = Bitmap::of(&[
    Attr::FILES_AVAIL.0,
    Attr::FILES_FREE.0,
    Attr::FILES_TOTAL.0,
    Attr::QUOTA_AVAIL_HARD.0,
    Attr::QUOTA_AVAIL_SOFT.0,
    Attr::QUOTA_USED.0,
    Attr::SPACE_AVAIL.0,
    Attr::SPACE_FREE.0,
    Attr::SPACE_TOTAL.0,
]);

/// Attributes of an absent file system (RFC 8881 §11.4).
pub(crate) const ABSENT: Bitmap =
    LOCATIONS.or(Bitmap::of(&[Attr::FSID.0, Attr::MOUNTED_ON_FILEID.0, Attr::RDATTR_ERROR.0]));

pub(crate) const LOCATIONS: Bitmap = Bitmap::of(&[Attr::FS_LOCATIONS.0, Attr::FS_LOCATIONS_INFO.0]);

pub(crate) const ACL: Bitmap = Bitmap::of(&[Attr::ACL.0, Attr::DACL.0]);

/// RFC 8881, section 5.12.
const LAYOUT: Bitmap = Bitmap::of(&[Attr::FS_LAYOUT_TYPES.0, Attr::LAYOUT_BLKSIZE.0]);

const QUOTA: Bitmap =
    Bitmap::of(&[Attr::QUOTA_AVAIL_HARD.0, Attr::QUOTA_AVAIL_SOFT.0, Attr::QUOTA_USED.0]);

/// REQUIRED, and the RECOMMENDED ones that a local file system has.
const MINOR_0: Bitmap = Bitmap::of(&[
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 26, 27,
    28, 29, 30, 31, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 47, 48, 50, 51, 52, 53, 54,
    55,
]);
const MINOR_1: Bitmap = Bitmap::of(&[
    Attr::DACL.0,
    Attr::FS_LOCATIONS_INFO.0,
    Attr::MODE_SET_MASKED.0,
    Attr::SUPPATTR_EXCLCREAT.0,
    Attr::FS_CHARSET_CAP.0,
]);
/// RFC 7862 §12; RFC 8275; RFC 8276; RFC 9754; draft-ietf-nfsv4-uncacheable-files.
const MINOR_2: Bitmap = Bitmap::of(&[
    Attr::CLONE_BLKSIZE.0,
    Attr::SPACE_FREED.0,
    Attr::CHANGE_ATTR_TYPE.0,
    Attr::SEC_LABEL.0,
    Attr::MODE_UMASK.0,
    Attr::XATTR_SUPPORT.0,
    Attr::TIME_DELEG_ACCESS.0,
    Attr::TIME_DELEG_MODIFY.0,
    Attr::OPEN_ARGUMENTS.0,
    Attr::UNCACHEABLE_FILE_DATA.0,
]);

/// RFC 9754 §3.
pub(super) const OPEN_ARGUMENTS: OpenArguments = OpenArguments {
    share_access: Bitmap::of(&[1, 2, 3]),
    share_deny: Bitmap::of(&[0, 1, 2, 3]),
    share_access_want: Bitmap::of(&[3, 4, 5, 20, 21]),
    open_claim: Bitmap::of(&[0, 1, 2, 4, 5]),
    create_mode: Bitmap::of(&[0, 1, 2, 3]),
};

/// RFC 8881 §5.8.1.14. No times: a file system may store the verifier there.
pub(crate) const EXCLUSIVE_CREATE: Bitmap = Bitmap::of(&[
    Attr::SIZE.0,
    Attr::ACL.0,
    Attr::MODE.0,
    Attr::OWNER.0,
    Attr::OWNER_GROUP.0,
    Attr::DACL.0,
    Attr::MODE_SET_MASKED.0,
    Attr::SEC_LABEL.0,
    Attr::MODE_UMASK.0,
]);

pub(crate) fn supported(minor: u32, traits: &Traits, quotas: bool, has_layouts: bool) -> Bitmap {
    let mut all = match minor {
        0 => MINOR_0,
        1 => MINOR_0.or(MINOR_1),
        _ => MINOR_0.or(MINOR_1).or(MINOR_2),
    };
    if !traits.acls {
        all = all.minus(ACL).without(Attr::ACLSUPPORT.0);
    }
    if !traits.labels {
        all = all.without(Attr::SEC_LABEL.0);
    }
    if !traits.uncacheable {
        all = all.without(Attr::UNCACHEABLE_FILE_DATA.0);
    }
    if !quotas {
        all = all.minus(QUOTA);
    }
    if has_layouts && minor > 0 {
        all = all.or(LAYOUT);
    }
    if !traits.read_only {
        // RFC 7862 §12.2.3. Linux 6.1 then orders attributes by the change attribute alone: an
        // older GETATTR reply after an O_DIRECT write resets the file's size.
        all = all.without(Attr::CHANGE_ATTR_TYPE.0);
    }
    if traits.clone_block_len == 0 {
        all = all.without(Attr::CLONE_BLKSIZE.0);
    }
    all
}
