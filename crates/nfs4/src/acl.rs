//! Access control lists on the wire (RFC 8881, section 6.2).

use std::borrow::Cow;

use vouch_xdr::{Error, Reader, Writer};

use crate::macros::{wire_bits, wire_newtype, wire_struct};
use crate::{Bytes, Wire};

/// Maximum number of entries in a list. Linux file systems store about 170; the limit leaves room
/// for other clients.
pub(crate) const ACES_MAX: usize = 4096;
/// Maximum length of a principal's name in an entry, and of an owner attribute.
pub(crate) const ACL_WHO_LEN_MAX: usize = 1024;

wire_newtype! {
    /// Type of an entry (`acetype4`).
    pub struct AceType(pub u32);
}

impl AceType {
    /// The entry allows access.
    pub const ALLOW: Self = Self(0);
    /// The entry denies access.
    pub const DENY: Self = Self(1);
    /// The entry requests an audit record.
    pub const AUDIT: Self = Self(2);
    /// The entry requests an alarm.
    pub const ALARM: Self = Self(3);
}

wire_bits! {
    /// Inheritance of an entry and kind of its principal (`aceflag4`).
    pub struct AceFlags {
        /// New files inherit the entry.
        FILE_INHERIT = 1,
        /// New directories inherit the entry.
        DIRECTORY_INHERIT = 2,
        /// Children inherit the entry, but their children do not.
        NO_PROPAGATE_INHERIT = 4,
        /// The entry does not apply to the directory itself; children inherit it.
        INHERIT_ONLY = 8,
        /// Audit or alarm on success.
        SUCCESSFUL_ACCESS = 0x10,
        /// Audit or alarm on failure.
        FAILED_ACCESS = 0x20,
        /// The principal is a group.
        IDENTIFIER_GROUP = 0x40,
        /// The entry was inherited.
        INHERITED = 0x80,
    }
}

wire_bits! {
    /// Kinds of access that an entry covers (`acemask4`).
    pub struct AceMask {
        /// Read data or list a directory.
        READ_DATA = 1,
        /// Write data or add a file to a directory.
        WRITE_DATA = 2,
        /// Append data or add a subdirectory.
        APPEND_DATA = 4,
        /// Read named attributes.
        READ_NAMED_ATTRS = 8,
        /// Write named attributes.
        WRITE_NAMED_ATTRS = 0x10,
        /// Execute a file or search a directory.
        EXECUTE = 0x20,
        /// Remove a child of the directory.
        DELETE_CHILD = 0x40,
        /// Read attributes.
        READ_ATTRIBUTES = 0x80,
        /// Write attributes.
        WRITE_ATTRIBUTES = 0x100,
        /// Write retention attributes.
        WRITE_RETENTION = 0x200,
        /// Change a retention hold.
        WRITE_RETENTION_HOLD = 0x400,
        /// Remove the object.
        DELETE = 0x1_0000,
        /// Read the access control list.
        READ_ACL = 0x2_0000,
        /// Write the access control list and the mode.
        WRITE_ACL = 0x4_0000,
        /// Change the owner and the group.
        WRITE_OWNER = 0x8_0000,
        /// Use the object synchronously.
        SYNCHRONIZE = 0x10_0000,
    }
}

wire_bits! {
    /// Flags of a whole list (`aclflag4`).
    pub struct AclFlags {
        /// The server propagates changes of the parent's list to this list.
        AUTO_INHERIT = 1,
        /// Automatic inheritance does not change this list.
        PROTECTED = 2,
        /// The server chose the list by default.
        DEFAULTED = 4,
    }
}

wire_bits! {
    /// Entry types that a server supports (`aclsupport`).
    pub struct AclSupport {
        /// `ALLOW` entries.
        ALLOW = 1,
        /// `DENY` entries.
        DENY = 2,
        /// `AUDIT` entries.
        AUDIT = 4,
        /// `ALARM` entries.
        ALARM = 8,
    }
}

wire_struct! {
    /// One entry (`nfsace4`).
    #[derive(Copy)]
    pub struct Ace<'a> {
        /// Entry type.
        pub kind: AceType,
        /// Inheritance flags.
        pub flags: AceFlags,
        /// Kinds of access.
        pub mask: AceMask,
        /// The principal: a special name such as `OWNER@`, or a user or group name.
        pub who: Bytes<'a, ACL_WHO_LEN_MAX>,
    }
}

/// An ordered list of entries (`nfsace4<>`). A sender borrows the slice; a receiver owns it.
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
    /// An access control list with flags (`nfsacl41`), used by `dacl` and `sacl`.
    #[derive(Default)]
    pub struct Acl41<'a> {
        /// Flags of the list.
        pub flags: AclFlags,
        /// Entries of the list.
        pub aces: Acl<'a>,
    }
}
