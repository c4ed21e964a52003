//! The table of attributes: number, name and type of each, which makes the structure of their
//! values and both directions. Not in it: fs_locations_info and mdsthreshold, which no server here
//! has.

use vouch_xdr::{Error, Reader, Writer};

use super::types::*;
use crate::component::{CharsetCap, FsLocations};
use crate::{ACL_WHO_LEN_MAX, Acl, Acl41, AclSupport, Bitmap, Bytes, ChangeId, Filehandle, Fsid, List, SetTime, Status, Time, Wire};

/// Numbers of attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attr(pub u32);

macro_rules! attributes {
    ($lt:lifetime; $( $(#[$meta:meta])* $number:literal $constant:ident $field:ident: $type:ty; )*) => {
        impl Attr {
            $( $(#[$meta])* pub const $constant: Self = Self($number); )*

            /// The name in the RFCs; none for a number that isn't in the table.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $( $number => Some(stringify!($field)), )*
                    _ => None,
                }
            }
        }

        /// Values of attributes; those that are absent aren't known, not wanted or not supported.
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct Attributes<$lt> {
            $( $(#[$meta])* pub $field: Option<$type>, )*
        }

        impl<$lt> Attributes<$lt> {
            /// All numbers in the table.
            pub const KNOWN: Bitmap = Bitmap::of(&[$( $number ),*]);

            /// Which of `wanted` have a value here. O(wanted).
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

            /// Appends the values of `mask`, in ascending order; absent ones are left out.
            pub(super) fn encode_values(&self, mask: Bitmap, w: &mut Writer) {
                for number in mask.iter() {
                    match number {
                        $( $number => if let Some(value) = &self.$field { value.encode(w) }, )*
                        _ => {}
                    }
                }
            }

            /// Reads the values of `mask`.
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
    /// Which attributes the file system has.
    0 SUPPORTED_ATTRS supported_attrs: Bitmap;
    /// What the file is.
    1 TYPE file_type: FileType;
    /// When filehandles expire.
    2 FH_EXPIRE_TYPE fh_expire_type: FhExpireType;
    /// Differs after every change.
    3 CHANGE change: ChangeId;
    /// Length in bytes; settable.
    4 SIZE size: u64;
    /// Whether the file system has hard links.
    5 LINK_SUPPORT link_support: bool;
    /// Whether the file system has symbolic links.
    6 SYMLINK_SUPPORT symlink_support: bool;
    /// Whether the file has named attributes.
    7 NAMED_ATTR named_attr: bool;
    /// The file system.
    8 FSID fsid: Fsid;
    /// Whether different handles mean different files.
    9 UNIQUE_HANDLES unique_handles: bool;
    /// Length of a lease in seconds.
    10 LEASE_TIME lease_time_s: u32;
    /// Why a READDIR entry has no other attributes.
    11 RDATTR_ERROR rdattr_error: Status;
    /// The access control list; settable.
    12 ACL acl: Acl<'a>;
    /// Which entries lists may have.
    13 ACLSUPPORT aclsupport: AclSupport;
    /// Whether the file was archived; settable.
    14 ARCHIVE archive: bool;
    /// Whether times can be set.
    15 CANSETTIME cansettime: bool;
    /// Whether names that differ in case are one.
    16 CASE_INSENSITIVE case_insensitive: bool;
    /// Whether the case of names is kept.
    17 CASE_PRESERVING case_preserving: bool;
    /// Whether only root gives files away.
    18 CHOWN_RESTRICTED chown_restricted: bool;
    /// The filehandle.
    19 FILEHANDLE filehandle: Filehandle;
    /// The inode number.
    20 FILEID fileid: u64;
    /// Inodes for this user.
    21 FILES_AVAIL files_avail: u64;
    /// Free inodes.
    22 FILES_FREE files_free: u64;
    /// All inodes.
    23 FILES_TOTAL files_total: u64;
    /// Where the file system also is.
    24 FS_LOCATIONS fs_locations: FsLocations<'a>;
    /// Whether the file is hidden; settable.
    25 HIDDEN hidden: bool;
    /// Whether these attributes are the same throughout the file system.
    26 HOMOGENEOUS homogeneous: bool;
    /// Largest size of a file.
    27 MAXFILESIZE maxfilesize: u64;
    /// Most links of a file.
    28 MAXLINK maxlink: u32;
    /// Longest name.
    29 MAXNAME maxname: u32;
    /// Longest READ.
    30 MAXREAD maxread: u64;
    /// Longest WRITE.
    31 MAXWRITE maxwrite: u64;
    /// MIME type; settable.
    32 MIMETYPE mimetype: Bytes<'a, 1024>;
    /// Permission bits; settable.
    33 MODE mode: u32;
    /// Whether names that are too long are refused.
    34 NO_TRUNC no_trunc: bool;
    /// How many links the file has.
    35 NUMLINKS numlinks: u32;
    /// The owner, `name@domain` or a number; settable.
    36 OWNER owner: Bytes<'a, ACL_WHO_LEN_MAX>;
    /// The group, likewise; settable.
    37 OWNER_GROUP owner_group: Bytes<'a, ACL_WHO_LEN_MAX>;
    /// Bytes up to the hard quota.
    38 QUOTA_AVAIL_HARD quota_avail_hard: u64;
    /// Bytes up to the soft quota.
    39 QUOTA_AVAIL_SOFT quota_avail_soft: u64;
    /// Bytes of the quota that are used.
    40 QUOTA_USED quota_used: u64;
    /// The numbers of a device.
    41 RAWDEV rawdev: SpecData;
    /// Bytes for this user.
    42 SPACE_AVAIL space_avail: u64;
    /// Free bytes.
    43 SPACE_FREE space_free: u64;
    /// All bytes.
    44 SPACE_TOTAL space_total: u64;
    /// Bytes that the file takes.
    45 SPACE_USED space_used: u64;
    /// Whether the file is the system's; settable.
    46 SYSTEM system: bool;
    /// Last access.
    47 TIME_ACCESS time_access: Time;
    /// Sets the last access.
    48 TIME_ACCESS_SET time_access_set: SetTime;
    /// Last backup; settable.
    49 TIME_BACKUP time_backup: Time;
    /// Creation; settable.
    50 TIME_CREATE time_create: Time;
    /// Granularity of times.
    51 TIME_DELTA time_delta: Time;
    /// Last change of attributes.
    52 TIME_METADATA time_metadata: Time;
    /// Last change of data.
    53 TIME_MODIFY time_modify: Time;
    /// Sets the last change of data.
    54 TIME_MODIFY_SET time_modify_set: SetTime;
    /// The inode number of what is mounted on.
    55 MOUNTED_ON_FILEID mounted_on_fileid: u64;
    /// How late notifications of a directory's attributes may be.
    56 DIR_NOTIF_DELAY dir_notif_delay: Time;
    /// How late notifications of entries' attributes may be.
    57 DIRENT_NOTIF_DELAY dirent_notif_delay: Time;
    /// The discretionary list; settable.
    58 DACL dacl: Acl41<'a>;
    /// The system's list; settable.
    59 SACL sacl: Acl41<'a>;
    /// Changes with policies.
    60 CHANGE_POLICY change_policy: ChangePolicy;
    /// How the file system fares.
    61 FS_STATUS fs_status: FsStatus<'a>;
    /// Layout types of the file system.
    62 FS_LAYOUT_TYPES fs_layout_types: List<u32, 64>;
    /// A wish about the layout; settable.
    63 LAYOUT_HINT layout_hint: LayoutHint<'a>;
    /// Layout types of the file.
    64 LAYOUT_TYPES layout_types: List<u32, 64>;
    /// Block size of layouts.
    65 LAYOUT_BLKSIZE layout_blksize: u32;
    /// Alignment of layouts.
    66 LAYOUT_ALIGNMENT layout_alignment: u32;
    /// Retention.
    69 RETENTION_GET retention_get: RetentionGet;
    /// Sets retention.
    70 RETENTION_SET retention_set: RetentionSet;
    /// Event-based retention.
    71 RETENTEVT_GET retentevt_get: RetentionGet;
    /// Sets event-based retention.
    72 RETENTEVT_SET retentevt_set: RetentionSet;
    /// Administrative holds; settable.
    73 RETENTION_HOLD retention_hold: u64;
    /// Sets some bits of the mode.
    74 MODE_SET_MASKED mode_set_masked: ModeMasked;
    /// Which attributes an exclusive create sets.
    75 SUPPATTR_EXCLCREAT suppattr_exclcreat: Bitmap;
    /// Which character sets names may have.
    76 FS_CHARSET_CAP fs_charset_cap: CharsetCap;
    /// Granularity of CLONE.
    77 CLONE_BLKSIZE clone_blksize: u32;
    /// Bytes that would be free if the file were removed.
    78 SPACE_FREED space_freed: u64;
    /// How the change attribute moves.
    79 CHANGE_ATTR_TYPE change_attr_type: ChangeAttrType;
    /// The security label; settable.
    80 SEC_LABEL sec_label: SecLabel<'a>;
    /// Mode and umask of a new file.
    81 MODE_UMASK mode_umask: ModeUmask;
    /// Whether the file system has extended attributes.
    82 XATTR_SUPPORT xattr_support: bool;
    /// The time of access, from the holder of a delegation that covers it; only in CB_GETATTR's answer and in SETATTR.
    84 TIME_DELEG_ACCESS time_deleg_access: Time;
    /// The time of change, likewise.
    85 TIME_DELEG_MODIFY time_deleg_modify: Time;
    /// What OPEN understands.
    86 OPEN_ARGUMENTS open_arguments: OpenArguments;
}

impl Attributes<'_> {
    /// What a client may ask to be set (RFC 8881, sections 5.8 and 5.12; RFC 7862, section 12.2;
    /// RFC 8275; RFC 9754).
    pub const SETTABLE: Bitmap =
        Bitmap::of(&[4, 12, 14, 25, 32, 33, 36, 37, 46, 48, 49, 50, 54, 58, 59, 63, 70, 72, 73, 74, 80, 81, 84, 85]);

    /// What can only be set, and rdattr_error: nothing to compare with.
    pub const NOT_COMPARABLE: Bitmap = Bitmap::of(&[11, 48, 54, 70, 72, 74, 81, 84, 85]);

    /// What GETATTR can't answer (RFC 8881, section 5.5: asking for what can only be set is INVAL).
    pub const WRITE_ONLY: Bitmap = Bitmap::of(&[48, 54, 70, 72, 74, 81, 84, 85]);

    /// What every server must support (RFC 8881, section 5.6); 4.0 without suppattr_exclcreat.
    pub const REQUIRED: Bitmap = Bitmap::of(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 19, 75]);
}
