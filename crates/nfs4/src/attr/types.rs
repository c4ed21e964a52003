//! The types of attributes that no other part of the protocol has.

use crate::macros::{wire_bits, wire_enum, wire_newtype, wire_struct};
use crate::{Bitmap, Bytes, Time};

wire_enum! {
    /// What a file is (`nfs_ftype4`).
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
        /// The directory of a file's named attributes.
        AttrDir = 8,
        /// A named attribute.
        NamedAttr = 9,
    }
}

wire_bits! {
    /// When filehandles expire (`fh_expire_type`); never, if no bit is set.
    pub struct FhExpireType {
        /// Not while the file is open.
        NOEXPIRE_WITH_OPEN = 1,
        /// At any time.
        VOLATILE_ANY = 2,
        /// At migration.
        VOL_MIGRATION = 4,
        /// At rename.
        VOL_RENAME = 8,
    }
}

wire_newtype! {
    /// How the change attribute moves (`change_attr_type4`, RFC 7862, section 12.2.3).
    pub struct ChangeAttrType(pub u32);
}

impl ChangeAttrType {
    /// It only grows.
    pub const MONOTONIC_INCR: Self = Self(0);
    /// It counts changes.
    pub const VERSION_COUNTER: Self = Self(1);
    /// It counts changes, but for writes by way of pNFS.
    pub const VERSION_COUNTER_NOPNFS: Self = Self(2);
    /// It is the time of the last change of metadata.
    pub const TIME_METADATA: Self = Self(3);
    /// Nothing is promised.
    pub const UNDEFINED: Self = Self(4);
}

wire_struct! {
    /// The numbers of a device (`specdata4`).
    #[derive(Copy, Default)]
    pub struct SpecData {
        /// Major.
        pub major: u32,
        /// Minor.
        pub minor: u32,
    }
}

wire_struct! {
    /// Some bits of the mode (`mode_masked4`).
    #[derive(Copy)]
    pub struct ModeMasked {
        /// Their values.
        pub value: u32,
        /// Which bits.
        pub mask: u32,
    }
}

wire_struct! {
    /// The mode of a new file, and the umask that an inherited ACL overrides (RFC 8275).
    #[derive(Copy)]
    pub struct ModeUmask {
        /// The mode before the umask.
        pub mode: u32,
        /// The umask.
        pub umask: u32,
    }
}

wire_struct! {
    /// A security label (`sec_label4`).
    #[derive(Copy)]
    pub struct SecLabel<'a> {
        /// Its format.
        pub format: u32,
        /// The policy within the format.
        pub policy: u32,
        /// The label.
        pub data: Bytes<'a, 4096>,
    }
}

wire_struct! {
    /// Changes with the policies of a file system (`change_policy4`).
    #[derive(Copy)]
    pub struct ChangePolicy {
        /// Major part.
        pub major: u64,
        /// Minor part.
        pub minor: u64,
    }
}

wire_enum! {
    /// What kind of copy a file system is (`fs4_status_type`).
    pub enum FsStatusType = "fs4_status_type" {
        /// It never changes.
        Fixed = 1,
        /// It changes from time to time.
        Updated = 2,
        /// It is one version of something.
        Versioned = 3,
        /// It is written to.
        Writable = 4,
        /// It is elsewhere.
        Referral = 5,
    }
}

wire_struct! {
    /// How a file system fares (`fs4_status`).
    #[derive(Copy)]
    pub struct FsStatus<'a> {
        /// Whether it isn't here.
        pub absent: bool,
        /// What it is.
        pub kind: FsStatusType,
        /// What it is a copy of.
        pub source: Bytes<'a, 4096>,
        /// Which version.
        pub current: Bytes<'a, 4096>,
        /// How old, in seconds; negative if unknown.
        pub age_s: i32,
        /// When it was up to date.
        pub version: Time,
    }
}

wire_struct! {
    /// A wish about the layout (`layouthint4`).
    #[derive(Copy)]
    pub struct LayoutHint<'a> {
        /// The layout's type.
        pub kind: u32,
        /// What the type makes of it.
        pub body: Bytes<'a, 4096>,
    }
}

wire_struct! {
    /// How long a file is retained (`retention_get4`).
    #[derive(Copy)]
    pub struct RetentionGet {
        /// Seconds.
        pub duration_s: u64,
        /// Since when.
        pub begin: Option<Time>,
    }
}

wire_struct! {
    /// How long a file shall be retained (`retention_set4`).
    #[derive(Copy)]
    pub struct RetentionSet {
        /// Whether retention starts.
        pub enable: bool,
        /// Seconds.
        pub duration_s: Option<u64>,
    }
}

wire_struct! {
    /// What OPEN understands (`open_arguments4`, RFC 9754, section 3): sets of the values and bit numbers of its arguments.
    #[derive(Copy)]
    pub struct OpenArguments {
        /// Values of the access.
        pub share_access: Bitmap,
        /// Values of the denial.
        pub share_deny: Bitmap,
        /// Wishes: values of the byte that names a delegation, and numbers of the bits above it.
        pub share_access_want: Bitmap,
        /// Claims.
        pub open_claim: Bitmap,
        /// Ways to make the file.
        pub create_mode: Bitmap,
    }
}
