//! RFC 8881 §6.2.

use std::borrow::Cow;

use vouch_xdr::{Error, Reader, Writer};

use crate::macros::{wire_bits, wire_copy, wire_newtype, wire_struct};
use crate::{Bytes, Wire};

/// Linux file systems store about 170; the limit leaves room for other clients.
pub(crate) const ACES_MAX: usize = 4096;
/// Also of an owner attribute.
pub(crate) const ACL_WHO_LEN_MAX: usize = 1024;

wire_newtype! {
    pub struct AceType(pub u32);
}

impl AceType {
    pub const ALLOW: Self = Self(0);
    pub const DENY: Self = Self(1);
    pub const AUDIT: Self = Self(2);
    pub const ALARM: Self = Self(3);
}

wire_bits! {
    /// `aceflag4`: inheritance, and kind of the principal.
    pub struct AceFlags {
        FILE_INHERIT = 1,
        DIRECTORY_INHERIT = 2,
        NO_PROPAGATE_INHERIT = 4,
        /// Not for the directory itself; children inherit it.
        INHERIT_ONLY = 8,
        SUCCESSFUL_ACCESS = 0x10,
        FAILED_ACCESS = 0x20,
        IDENTIFIER_GROUP = 0x40,
        INHERITED = 0x80,
    }
}

wire_bits! {
    /// `acemask4`.
    pub struct AceMask {
        READ_DATA = 1,
        WRITE_DATA = 2,
        APPEND_DATA = 4,
        READ_NAMED_ATTRS = 8,
        WRITE_NAMED_ATTRS = 0x10,
        EXECUTE = 0x20,
        DELETE_CHILD = 0x40,
        READ_ATTRIBUTES = 0x80,
        WRITE_ATTRIBUTES = 0x100,
        WRITE_RETENTION = 0x200,
        WRITE_RETENTION_HOLD = 0x400,
        DELETE = 0x1_0000,
        READ_ACL = 0x2_0000,
        WRITE_ACL = 0x4_0000,
        WRITE_OWNER = 0x8_0000,
        SYNCHRONIZE = 0x10_0000,
    }
}

wire_bits! {
    pub struct AclFlags {
        AUTO_INHERIT = 1,
        PROTECTED = 2,
        DEFAULTED = 4,
    }
}

wire_bits! {
    pub struct AclSupport {
        ALLOW = 1,
        DENY = 2,
        AUDIT = 4,
        ALARM = 8,
    }
}

wire_copy! {
    pub struct Ace<'a> {
        pub kind: AceType,
        pub flags: AceFlags,
        pub mask: AceMask,
        /// A special name such as `OWNER@`, or a user or group.
        pub who: Bytes<'a, ACL_WHO_LEN_MAX>,
    }
}

/// `nfsace4<>`. A sender borrows the slice; a receiver owns it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Acl<'a>(pub Cow<'a, [Ace<'a>]>);

impl<'a> Wire<'a> for Acl<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, Error> {
        let count = r.count(ACES_MAX)?;
        let mut aces = Vec::new();
        for _ in 0..count {
            aces.push(Ace::decode(r)?);
        }
        Ok(Self(Cow::Owned(aces)))
    }

    fn encode(&self, w: &mut Writer) {
        w.count(self.0.len());
        self.0.iter().for_each(|ace| ace.encode(w));
    }

    #[cfg(test)]
    fn sample(s: &mut crate::sample::Sampler) -> Self {
        Self((0..s.below(4)).map(|_| Ace::sample(s)).collect())
    }
}

wire_struct! {
    /// `nfsacl41`, of `dacl` and `sacl`.
    #[derive(Default)]
    pub struct Acl41<'a> { pub flags: AclFlags, pub aces: Acl<'a> }
}
