use crate::macros::{wire_bits, wire_copy, wire_enum, wire_newtype, wire_struct};
use crate::{Bitmap, Bytes, Time};

wire_enum! {
    pub enum FileType = "nfs_ftype4" {
        Regular = 1,
        Directory = 2,
        Block = 3,
        Character = 4,
        Symlink = 5,
        Socket = 6,
        Fifo = 7,
        AttrDir = 8,
        NamedAttr = 9,
    }
}

wire_bits! {
    /// `fh_expire_type`; zero: filehandles never expire.
    pub struct FhExpireType {
        NOEXPIRE_WITH_OPEN = 1,
        VOLATILE_ANY = 2,
        VOL_MIGRATION = 4,
        VOL_RENAME = 8,
    }
}

wire_newtype! {
    /// `change_attr_type4` (RFC 7862 §12.2.3).
    pub struct ChangeAttrType(pub u32);
}

impl ChangeAttrType {
    pub const MONOTONIC_INCR: Self = Self(0);
    pub const VERSION_COUNTER: Self = Self(1);
    pub const VERSION_COUNTER_NOPNFS: Self = Self(2);
    pub const TIME_METADATA: Self = Self(3);
    pub const UNDEFINED: Self = Self(4);
}

wire_struct! {
    #[derive(Copy, Default)]
    pub struct SpecData { pub major: u32, pub minor: u32 }
}

wire_copy! {
    pub struct ModeMasked { pub value: u32, pub mask: u32 }

    /// Mode and umask are separate because an inherited access control list overrides the umask
    /// (RFC 8275).
    pub struct ModeUmask { pub mode: u32, pub umask: u32 }

    pub struct SecLabel<'a> {
        pub format: u32,
        pub policy: u32,
        pub data: Bytes<'a, 4096>,
    }

    pub struct ChangePolicy { pub major: u64, pub minor: u64 }
}

wire_enum! {
    /// `fs4_status_type`.
    pub enum FsStatusType = "fs4_status_type" {
        Fixed = 1,
        Updated = 2,
        Versioned = 3,
        Writable = 4,
        Referral = 5,
    }
}

wire_copy! {
    pub struct FsStatus<'a> {
        pub absent: bool,
        pub kind: FsStatusType,
        pub source: Bytes<'a, 4096>,
        pub current: Bytes<'a, 4096>,
        /// Negative if unknown.
        pub age_s: i32,
        pub version: Time,
    }

    pub struct LayoutHint<'a> { pub kind: u32, pub body: Bytes<'a, 4096> }
    pub struct RetentionGet { pub duration_s: u64, pub begin: Option<Time> }
    pub struct RetentionSet { pub enable: bool, pub duration_s: Option<u64> }

    /// `open_arguments4` (RFC 9754 §3). Each set contains argument values or bit numbers.
    pub struct OpenArguments {
        pub share_access: Bitmap,
        pub share_deny: Bitmap,
        /// Values of the delegation byte, and numbers of the bits above it.
        pub share_access_want: Bitmap,
        pub open_claim: Bitmap,
        pub create_mode: Bitmap,
    }
}
