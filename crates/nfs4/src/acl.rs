//! Access control lists (RFC 8881, section 6.2). What they mean for a file is elsewhere.

use std::borrow::Cow;

use vouch_xdr::{Error, Reader, Writer};

use crate::macros::{wire_bits, wire_newtype, wire_struct};
use crate::{Bytes, Wire};

/// Most entries of a list. Linux takes about 170 in a page of its own; this leaves room for other
/// clients.
pub const ACES_MAX: usize = 4096;
/// Longest name of whom an entry is about, or of an owner.
pub const ACL_WHO_LEN_MAX: usize = 1024;

wire_newtype! {
    /// What an entry does (`acetype4`).
    pub struct AceType(pub u32);
}

impl AceType {
    /// Allows.
    pub const ALLOW: Self = Self(0);
    /// Denies.
    pub const DENY: Self = Self(1);
    /// Asks for an audit record.
    pub const AUDIT: Self = Self(2);
    /// Asks for an alarm.
    pub const ALARM: Self = Self(3);
}

wire_bits! {
    /// How an entry is inherited and whom it means (`aceflag4`).
    pub struct AceFlags {
        /// New files inherit it.
        FILE_INHERIT = 1,
        /// New directories inherit it.
        DIRECTORY_INHERIT = 2,
        /// It is inherited once only.
        NO_PROPAGATE_INHERIT = 4,
        /// It is only there to be inherited.
        INHERIT_ONLY = 8,
        /// Audit or alarm at success.
        SUCCESSFUL_ACCESS = 0x10,
        /// Audit or alarm at failure.
        FAILED_ACCESS = 0x20,
        /// The name is a group's.
        IDENTIFIER_GROUP = 0x40,
        /// It was inherited.
        INHERITED = 0x80,
    }
}

wire_bits! {
    /// What an entry is about (`acemask4`).
    pub struct AceMask {
        /// Read data, or list a directory.
        READ_DATA = 1,
        /// Write data, or add a file.
        WRITE_DATA = 2,
        /// Append, or add a directory.
        APPEND_DATA = 4,
        /// Read named attributes.
        READ_NAMED_ATTRS = 8,
        /// Write named attributes.
        WRITE_NAMED_ATTRS = 0x10,
        /// Execute, or search.
        EXECUTE = 0x20,
        /// Remove from the directory.
        DELETE_CHILD = 0x40,
        /// Read attributes.
        READ_ATTRIBUTES = 0x80,
        /// Write attributes.
        WRITE_ATTRIBUTES = 0x100,
        /// Write retention attributes.
        WRITE_RETENTION = 0x200,
        /// Write retention hold.
        WRITE_RETENTION_HOLD = 0x400,
        /// Remove it.
        DELETE = 0x1_0000,
        /// Read the list.
        READ_ACL = 0x2_0000,
        /// Write the list and the mode.
        WRITE_ACL = 0x4_0000,
        /// Give it away.
        WRITE_OWNER = 0x8_0000,
        /// Use it synchronously.
        SYNCHRONIZE = 0x10_0000,
    }
}

wire_bits! {
    /// How a list as a whole is inherited (`aclflag4`).
    pub struct AclFlags {
        /// It changes with the directory's.
        AUTO_INHERIT = 1,
        /// It does not.
        PROTECTED = 2,
        /// Nobody has set it.
        DEFAULTED = 4,
    }
}

wire_bits! {
    /// Which entries a server takes (`aclsupport`).
    pub struct AclSupport {
        /// Those that allow.
        ALLOW = 1,
        /// Those that deny.
        DENY = 2,
        /// Those that audit.
        AUDIT = 4,
        /// Those that alarm.
        ALARM = 8,
    }
}

wire_struct! {
    /// One entry (`nfsace4`).
    #[derive(Copy)]
    pub struct Ace<'a> {
        /// What it does.
        pub kind: AceType,
        /// How it is inherited.
        pub flags: AceFlags,
        /// What it is about.
        pub mask: AceMask,
        /// Whom it is about: `OWNER@` and its kin, or a name.
        pub who: Bytes<'a, ACL_WHO_LEN_MAX>,
    }
}

/// A list of entries (`nfsace4<>`), in order; the sender's slice, or the receiver's own.
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
    /// A list with flags of its own (`nfsacl41`), as dacl and sacl have it.
    #[derive(Default)]
    pub struct Acl41<'a> {
        /// How it is inherited as a whole.
        pub flags: AclFlags,
        /// Its entries.
        pub aces: Acl<'a>,
    }
}
