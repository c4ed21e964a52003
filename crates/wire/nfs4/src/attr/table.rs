//! Number, name and type of each attribute, except mdsthreshold.

use vouch_xdr::{Error, Reader, Writer};

use super::types::*;
use crate::acl::ACL_WHO_LEN_MAX;
use crate::component::{CharsetCap, FsLocations, FsLocationsInfo};
use crate::{
    Acl, Acl41, AclSupport, Bitmap, Bytes, ChangeId, Filehandle, Fsid, List, SetTime, Status, Time,
    Wire,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attr(pub u32);

macro_rules! attributes {
    ($lt:lifetime; $( $(#[$meta:meta])* $number:literal $constant:ident $field:ident: $type:ty; )*) => {
        impl Attr {
            $( $(#[$meta])* pub const $constant: Self = Self($number); )*

            /// As in the RFCs; `None` if the table lacks the number.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $( $number => Some(stringify!($field)), )*
                    _ => None,
                }
            }
        }

        /// An absent value is unknown, not requested or not supported.
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct Attributes<$lt> {
            $( $(#[$meta])* pub $field: Option<$type>, )*
        }

        impl<$lt> Attributes<$lt> {
            pub const KNOWN: Bitmap = Bitmap::of(&[$( $number ),*]);

            /// The subset of `wanted` that has a value. O(wanted).
            pub fn present(&self, wanted: Bitmap) -> Bitmap {
                let mut present = Bitmap::EMPTY;
                for number in wanted.iter() {
                    let has = match number {
                        $( $number => self.$field.is_some(), )*
                        _ => false,
                    };
                    if has {
                        present = present.with(number);
                    }
                }
                present
            }

            pub(super) fn encode_values(&self, mask: Bitmap, w: &mut Writer) {
                for number in mask.iter() {
                    match number {
                        $( $number => if let Some(value) = &self.$field { value.encode(w) }, )*
                        _ => {}
                    }
                }
            }

            pub(super) fn decode_values(mask: Bitmap, r: &mut Reader<$lt>) -> Result<Self, Error> {
                let mut attributes = Self::default();
                for number in mask.iter() {
                    match number {
                        $( $number => attributes.$field = Some(Wire::decode(r)?), )*
                        value => return Err(Error::Unknown { what: "fattr4", value }),
                    }
                }
                Ok(attributes)
            }

            #[cfg(test)]
            pub(crate) fn sample(mask: Bitmap, s: &mut crate::sample::Sampler) -> Self {
                let mut attributes = Self::default();
                $( if mask.has($number) { attributes.$field = Some(Wire::sample(s)); } )*
                attributes
            }
        }
    };
}

attributes! { 'a;
    0 SUPPORTED_ATTRS supported_attrs: Bitmap;
    1 TYPE file_type: FileType;
    2 FH_EXPIRE_TYPE fh_expire_type: FhExpireType;
    3 CHANGE change: ChangeId;
    /// Bytes; settable.
    4 SIZE size: u64;
    5 LINK_SUPPORT link_support: bool;
    6 SYMLINK_SUPPORT symlink_support: bool;
    /// The file has a named attribute directory that is not empty.
    7 NAMED_ATTR named_attr: bool;
    8 FSID fsid: Fsid;
    /// Two different filehandles always mean two different files.
    9 UNIQUE_HANDLES unique_handles: bool;
    10 LEASE_TIME lease_time_s: u32;
    /// The error that kept READDIR from the entry's other attributes.
    11 RDATTR_ERROR rdattr_error: Status;
    12 ACL acl: Acl<'a>;
    13 ACLSUPPORT aclsupport: AclSupport;
    14 ARCHIVE archive: bool;
    15 CANSETTIME cansettime: bool;
    16 CASE_INSENSITIVE case_insensitive: bool;
    17 CASE_PRESERVING case_preserving: bool;
    /// Only a privileged user can change the owner.
    18 CHOWN_RESTRICTED chown_restricted: bool;
    19 FILEHANDLE filehandle: Filehandle;
    20 FILEID fileid: u64;
    21 FILES_AVAIL files_avail: u64;
    22 FILES_FREE files_free: u64;
    23 FILES_TOTAL files_total: u64;
    24 FS_LOCATIONS fs_locations: FsLocations<'a>;
    25 HIDDEN hidden: bool;
    26 HOMOGENEOUS homogeneous: bool;
    27 MAXFILESIZE maxfilesize: u64;
    28 MAXLINK maxlink: u32;
    29 MAXNAME maxname: u32;
    30 MAXREAD maxread: u64;
    31 MAXWRITE maxwrite: u64;
    32 MIMETYPE mimetype: Bytes<'a, 1024>;
    33 MODE mode: u32;
    /// Names that are too long are refused, not truncated.
    34 NO_TRUNC no_trunc: bool;
    35 NUMLINKS numlinks: u32;
    36 OWNER owner: Bytes<'a, ACL_WHO_LEN_MAX>;
    37 OWNER_GROUP owner_group: Bytes<'a, ACL_WHO_LEN_MAX>;
    38 QUOTA_AVAIL_HARD quota_avail_hard: u64;
    39 QUOTA_AVAIL_SOFT quota_avail_soft: u64;
    40 QUOTA_USED quota_used: u64;
    41 RAWDEV rawdev: SpecData;
    /// Bytes that this user can use.
    42 SPACE_AVAIL space_avail: u64;
    43 SPACE_FREE space_free: u64;
    /// Bytes.
    44 SPACE_TOTAL space_total: u64;
    45 SPACE_USED space_used: u64;
    46 SYSTEM system: bool;
    47 TIME_ACCESS time_access: Time;
    48 TIME_ACCESS_SET time_access_set: SetTime;
    49 TIME_BACKUP time_backup: Time;
    50 TIME_CREATE time_create: Time;
    51 TIME_DELTA time_delta: Time;
    52 TIME_METADATA time_metadata: Time;
    53 TIME_MODIFY time_modify: Time;
    54 TIME_MODIFY_SET time_modify_set: SetTime;
    55 MOUNTED_ON_FILEID mounted_on_fileid: u64;
    56 DIR_NOTIF_DELAY dir_notif_delay: Time;
    57 DIRENT_NOTIF_DELAY dirent_notif_delay: Time;
    58 DACL dacl: Acl41<'a>;
    59 SACL sacl: Acl41<'a>;
    60 CHANGE_POLICY change_policy: ChangePolicy;
    61 FS_STATUS fs_status: FsStatus<'a>;
    62 FS_LAYOUT_TYPES fs_layout_types: List<u32, 64>;
    63 LAYOUT_HINT layout_hint: LayoutHint<'a>;
    64 LAYOUT_TYPES layout_types: List<u32, 64>;
    65 LAYOUT_BLKSIZE layout_blksize: u32;
    66 LAYOUT_ALIGNMENT layout_alignment: u32;
    67 FS_LOCATIONS_INFO fs_locations_info: FsLocationsInfo<'a>;
    69 RETENTION_GET retention_get: RetentionGet;
    70 RETENTION_SET retention_set: RetentionSet;
    71 RETENTEVT_GET retentevt_get: RetentionGet;
    72 RETENTEVT_SET retentevt_set: RetentionSet;
    73 RETENTION_HOLD retention_hold: u64;
    74 MODE_SET_MASKED mode_set_masked: ModeMasked;
    75 SUPPATTR_EXCLCREAT suppattr_exclcreat: Bitmap;
    76 FS_CHARSET_CAP fs_charset_cap: CharsetCap;
    77 CLONE_BLKSIZE clone_blksize: u32;
    /// Bytes that removal would free.
    78 SPACE_FREED space_freed: u64;
    79 CHANGE_ATTR_TYPE change_attr_type: ChangeAttrType;
    80 SEC_LABEL sec_label: SecLabel<'a>;
    81 MODE_UMASK mode_umask: ModeUmask;
    82 XATTR_SUPPORT xattr_support: bool;
    84 TIME_DELEG_ACCESS time_deleg_access: Time;
    /// Only in CB_GETATTR replies and in SETATTR.
    85 TIME_DELEG_MODIFY time_deleg_modify: Time;
    86 OPEN_ARGUMENTS open_arguments: OpenArguments;
    87 UNCACHEABLE_FILE_DATA uncacheable_file_data: bool;
}

impl Attributes<'_> {
    /// RFC 8881 §5.8 and 5.12; RFC 7862 §12.2; RFC 8275; RFC 9754.
    pub(crate) const SETTABLE: Bitmap = Bitmap::of(&[
        4, 12, 14, 25, 32, 33, 36, 37, 46, 48, 49, 50, 54, 58, 59, 63, 70, 72, 73, 74, 80, 81, 84,
        85,
    ]);

    /// Write-only attributes and rdattr_error.
    pub(crate) const NOT_COMPARABLE: Bitmap = Bitmap::of(&[11, 48, 54, 70, 72, 74, 81, 84, 85]);

    /// INVAL in GETATTR (RFC 8881 §5.5).
    pub const WRITE_ONLY: Bitmap = Bitmap::of(&[48, 54, 70, 72, 74, 81, 84, 85]);

    /// RFC 8881 §5.6. 4.0 lacks suppattr_exclcreat.
    pub const REQUIRED: Bitmap = Bitmap::of(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 19, 75]);
}
