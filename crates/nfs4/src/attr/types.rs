//! Types that only attributes use.

use crate::macros::{wire_bits, wire_enum, wire_newtype, wire_struct};
use crate::{Bitmap, Bytes, Time};

wire_enum! {
    /// Type of a file (`nfs_ftype4`).
    pub enum FileType = "nfs_ftype4" {
        /// A regular file.
        Regular = 1,
        /// A directory.
        Directory = 2,
        /// A block device.
        Block = 3,
        /// A character device.
        Character = 4,
        /// A symbolic link.
        Symlink = 5,
        /// A socket.
        Socket = 6,
        /// A FIFO.
        Fifo = 7,
        /// A directory of named attributes.
        AttrDir = 8,
        /// A named attribute.
        NamedAttr = 9,
    }
}

wire_bits! {
    /// When filehandles expire (`fh_expire_type`); zero means never.
    pub struct FhExpireType {
        /// Filehandles of open files do not expire.
        NOEXPIRE_WITH_OPEN = 1,
        /// A filehandle can expire at any time.
        VOLATILE_ANY = 2,
        /// A filehandle expires when its file system migrates.
        VOL_MIGRATION = 4,
        /// A filehandle expires when its file is renamed.
        VOL_RENAME = 8,
    }
}

wire_newtype! {
    /// How the change attribute changes (`change_attr_type4`, RFC 7862, section 12.2.3).
    pub struct ChangeAttrType(pub u32);
}

impl ChangeAttrType {
    /// The attribute increases with every change.
    pub const MONOTONIC_INCR: Self = Self(0);
    /// The attribute counts changes.
    pub const VERSION_COUNTER: Self = Self(1);
    /// The attribute counts changes, except pNFS writes.
    pub const VERSION_COUNTER_NOPNFS: Self = Self(2);
    /// The attribute is the time of the last metadata change.
    pub const TIME_METADATA: Self = Self(3);
    /// The attribute has no defined order.
    pub const UNDEFINED: Self = Self(4);
}

wire_struct! {
    /// Device numbers (`specdata4`).
    #[derive(Copy, Default)]
    pub struct SpecData {
        /// Major number.
        pub major: u32,
        /// Minor number.
        pub minor: u32,
    }
}

wire_struct! {
    /// A change of selected mode bits (`mode_masked4`).
    #[derive(Copy)]
    pub struct ModeMasked {
        /// New values of the bits.
        pub value: u32,
        /// The bits to change.
        pub mask: u32,
    }
}

wire_struct! {
    /// Mode and umask of a new file, sent separately because an inherited access control list
    /// overrides the umask (RFC 8275).
    #[derive(Copy)]
    pub struct ModeUmask {
        /// Mode before the umask applies.
        pub mode: u32,
        /// Umask of the creating process.
        pub umask: u32,
    }
}

wire_struct! {
    /// A security label (`sec_label4`).
    #[derive(Copy)]
    pub struct SecLabel<'a> {
        /// Label format.
        pub format: u32,
        /// Policy within the format.
        pub policy: u32,
        /// Label data.
        pub data: Bytes<'a, 4096>,
    }
}

wire_struct! {
    /// Version of a file system's policies (`change_policy4`).
    #[derive(Copy)]
    pub struct ChangePolicy {
        /// Major part of the version.
        pub major: u64,
        /// Minor part of the version.
        pub minor: u64,
    }
}

wire_enum! {
    /// Kind of file system copy (`fs4_status_type`).
    pub enum FsStatusType = "fs4_status_type" {
        /// The copy never changes.
        Fixed = 1,
        /// The copy is updated from a source from time to time.
        Updated = 2,
        /// The copy is one version of a source.
        Versioned = 3,
        /// Clients can write to the file system.
        Writable = 4,
        /// The file system is at another location.
        Referral = 5,
    }
}

wire_struct! {
    /// Status of a file system (`fs4_status`).
    #[derive(Copy)]
    pub struct FsStatus<'a> {
        /// Whether the file system is absent from this server.
        pub absent: bool,
        /// Kind of copy.
        pub kind: FsStatusType,
        /// Source of the copy.
        pub source: Bytes<'a, 4096>,
        /// Current version of the copy.
        pub current: Bytes<'a, 4096>,
        /// Age in seconds; negative if unknown.
        pub age_s: i32,
        /// Time at which the copy was up to date.
        pub version: Time,
    }
}

wire_struct! {
    /// Preferred layout (`layouthint4`).
    #[derive(Copy)]
    pub struct LayoutHint<'a> {
        /// Layout type.
        pub kind: u32,
        /// Body, as defined by the layout type.
        pub body: Bytes<'a, 4096>,
    }
}

wire_struct! {
    /// Retention time of a file (`retention_get4`).
    #[derive(Copy)]
    pub struct RetentionGet {
        /// Duration in seconds.
        pub duration_s: u64,
        /// Start of the retention.
        pub begin: Option<Time>,
    }
}

wire_struct! {
    /// New retention time of a file (`retention_set4`).
    #[derive(Copy)]
    pub struct RetentionSet {
        /// Whether the retention starts now.
        pub enable: bool,
        /// Duration in seconds.
        pub duration_s: Option<u64>,
    }
}

wire_struct! {
    /// OPEN arguments that a server supports (`open_arguments4`, RFC 9754, section 3). Each set
    /// contains argument values or bit numbers.
    #[derive(Copy)]
    pub struct OpenArguments {
        /// Supported access values.
        pub share_access: Bitmap,
        /// Supported deny values.
        pub share_deny: Bitmap,
        /// Supported delegation requests: values of the delegation byte, and numbers of the bits
        /// above it.
        pub share_access_want: Bitmap,
        /// Supported claim types.
        pub open_claim: Bitmap,
        /// Supported create modes.
        pub create_mode: Bitmap,
    }
}
