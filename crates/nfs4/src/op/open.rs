//! OPEN (RFC 8881, section 18.16).

use vouch_xdr::{Error, Reader, Writer};

use crate::macros::{wire_bits, wire_enum, wire_struct, wire_union};
use crate::{Ace, Bitmap, ChangeInfo, Fattr, Name, OwnerSeq, StateOwner, Stateid, Verifier, Wire};

wire_bits! {
    /// Access of an open, and the requested delegation.
    pub struct ShareAccess {
        /// Read access.
        READ = 1,
        /// Write access.
        WRITE = 2,
        /// Read and write access.
        BOTH = 3,
        /// All bits of the access.
        MASK = 0xff,
        /// All bits of the delegation type (4.1).
        WANT_MASK = 0xff00,
        /// The client wants a read delegation.
        WANT_READ_DELEG = 0x100,
        /// The client wants a write delegation.
        WANT_WRITE_DELEG = 0x200,
        /// The client wants any delegation.
        WANT_ANY_DELEG = 0x300,
        /// The client wants no delegation.
        WANT_NO_DELEG = 0x400,
        /// The client cancels an earlier request.
        WANT_CANCEL = 0x500,
        /// The server signals when resources are available.
        WANT_SIGNAL = 0x1_0000,
        /// The server pushes a delegation when the conflict ends.
        WANT_PUSH = 0x2_0000,
        /// The client wants a delegation that covers access and modification times (RFC 9754,
        /// section 5).
        WANT_DELEG_TIMESTAMPS = 0x10_0000,
        /// The client wants either a delegation or an open stateid, not both (RFC 9754, section 4).
        WANT_OPEN_XOR_DELEGATION = 0x20_0000,
    }
}

wire_bits! {
    /// Access that an open denies to other opens.
    pub struct ShareDeny {
        /// Deny read access.
        READ = 1,
        /// Deny write access.
        WRITE = 2,
        /// Deny read and write access.
        BOTH = 3,
    }
}

wire_struct! {
    /// Verifier and attributes of an exclusive create (`creatverfattr`).
    #[derive(Copy)]
    pub struct CreateVerifierAttrs<'a> {
        /// Identifies the attempt.
        pub verifier: Verifier,
        /// Attributes of the new file.
        pub attrs: Fattr<'a>,
    }
}

wire_union! {
    /// How OPEN creates the file (`createhow4`).
    #[derive(Copy)]
    pub enum CreateHow<'a> = "createmode4" {
        /// Use an existing file, or create one.
        0 => Unchecked(attrs: Fattr<'a>),
        /// Fail if the file exists.
        1 => Guarded(attrs: Fattr<'a>),
        /// Fail if the file exists, unless an earlier attempt with this verifier created it.
        2 => Exclusive(verifier: Verifier),
        /// Exclusive create with attributes (4.1).
        3 => Exclusive41(both: CreateVerifierAttrs<'a>),
    }
}

wire_union! {
    /// Whether OPEN creates the file (`openflag4`).
    #[derive(Copy)]
    pub enum OpenHow<'a> = "opentype4" {
        /// OPEN does not create the file.
        0 => NoCreate,
        /// OPEN creates the file.
        1 => Create(how: CreateHow<'a>),
    }
}

wire_enum! {
    /// Type of a delegation (`open_delegation_type4`).
    pub enum DelegationType = "open_delegation_type4" {
        /// No delegation.
        None = 0,
        /// Read delegation.
        Read = 1,
        /// Write delegation.
        Write = 2,
        /// No delegation, with a reason (4.1).
        NoneExt = 3,
        /// Read delegation that covers the access time (RFC 9754).
        ReadAttrs = 4,
        /// Write delegation that covers access and modification times (RFC 9754).
        WriteAttrs = 5,
    }
}

wire_struct! {
    /// A file under a delegation that the client holds (`open_claim_delegate_cur4`).
    #[derive(Copy)]
    pub struct DelegateCur<'a> {
        /// Stateid of the delegation.
        pub stateid: Stateid,
        /// Name in the current directory.
        pub name: Name<'a>,
    }
}

wire_union! {
    /// File to open and the claim on it (`open_claim4`).
    #[derive(Copy)]
    pub enum OpenClaim<'a> = "open_claim_type4" {
        /// An entry of the current directory.
        0 => Null(name: Name<'a>),
        /// The current file, reclaimed after a server restart with this type of delegation.
        1 => Previous(kind: DelegationType),
        /// An entry of the current directory, under a delegation that the client holds.
        2 => DelegateCur(cur: DelegateCur<'a>),
        /// An entry of the current directory, under a delegation from before a client restart.
        3 => DelegatePrev(name: Name<'a>),
        /// The current file (4.1).
        4 => Fh,
        /// The current file, under a delegation that the client holds (4.1).
        5 => DelegCurFh(stateid: Stateid),
        /// The current file, under a delegation from before a client restart (4.1).
        6 => DelegPrevFh,
    }
}

wire_struct! {
    /// `OPEN4args`.
    #[derive(Copy)]
    pub struct OpenArgs<'a> {
        /// Sequence number of the open owner (4.0).
        pub seq: OwnerSeq,
        /// Access of the open.
        pub access: ShareAccess,
        /// Access denied to other opens.
        pub deny: ShareDeny,
        /// The open owner.
        pub owner: StateOwner<'a>,
        /// Whether and how to create the file.
        pub how: OpenHow<'a>,
        /// File to open.
        pub claim: OpenClaim<'a>,
    }
}

wire_struct! {
    /// A limit in blocks (`nfs_modified_limit4`).
    #[derive(Copy)]
    pub struct SpaceBlocks {
        /// Number of blocks.
        pub blocks: u32,
        /// Bytes in each block.
        pub bytes_per_block: u32,
    }
}

wire_union! {
    /// Amount of data that a client may write before it must flush (`nfs_space_limit4`).
    #[derive(Copy)]
    pub enum SpaceLimit = "limit_by4" {
        /// Maximum size of the file.
        1 => Size(bytes: u64),
        /// Maximum number of blocks.
        2 => Blocks(blocks: SpaceBlocks),
    }
}

wire_struct! {
    /// `open_read_delegation4`.
    #[derive(Copy)]
    pub struct ReadDelegation<'a> {
        /// Stateid of the delegation.
        pub stateid: Stateid,
        /// Whether the server recalls the delegation immediately.
        pub recall: bool,
        /// Principals that may open the file without a request to the server.
        pub permissions: Ace<'a>,
    }
}

wire_struct! {
    /// `open_write_delegation4`.
    #[derive(Copy)]
    pub struct WriteDelegation<'a> {
        /// Stateid of the delegation.
        pub stateid: Stateid,
        /// Whether the server recalls the delegation immediately.
        pub recall: bool,
        /// Amount of data that the client may write.
        pub space_limit: SpaceLimit,
        /// Principals that may open the file without a request to the server.
        pub permissions: Ace<'a>,
    }
}

/// Reason for not granting a delegation (`open_none_delegation4`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoDelegation {
    /// Other clients use the file; the flag says whether the server will push a delegation.
    Contention(bool),
    /// No resources are available; the flag says whether the server will signal when they are.
    Resource(bool),
    /// Another reason (`why_no_delegation4`).
    Other(u32),
}

impl NoDelegation {
    /// The client did not want a delegation.
    pub const NOT_WANTED: Self = Self::Other(0);
    /// The file type does not support delegations.
    pub const NOT_SUPP_FTYPE: Self = Self::Other(3);
    /// The file type does not support write delegations.
    pub const WRITE_NOT_SUPP_FTYPE: Self = Self::Other(4);
    /// The server does not support upgrades.
    pub const NOT_SUPP_UPGRADE: Self = Self::Other(5);
    /// The server does not support downgrades.
    pub const NOT_SUPP_DOWNGRADE: Self = Self::Other(6);
    /// The client cancelled the request.
    pub const CANCELLED: Self = Self::Other(7);
    /// The object is a directory.
    pub const IS_DIR: Self = Self::Other(8);
}

impl<'a> Wire<'a> for NoDelegation {
    fn decode(r: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(match r.u32()? {
            1 => Self::Contention(r.bool()?),
            2 => Self::Resource(r.bool()?),
            why => Self::Other(why),
        })
    }

    fn encode(&self, w: &mut Writer) {
        match *self {
            Self::Contention(will_push) => {
                w.u32(1);
                w.bool(will_push);
            }
            Self::Resource(will_signal) => {
                w.u32(2);
                w.bool(will_signal);
            }
            Self::Other(why) => w.u32(why),
        }
    }

    #[cfg(test)]
    fn sample(s: &mut crate::sample::Sampler) -> Self {
        match s.below(3) {
            0 => Self::Contention(true),
            1 => Self::Resource(false),
            _ => Self::IS_DIR,
        }
    }
}

wire_union! {
    /// Delegation in the result of OPEN (`open_delegation4`).
    #[derive(Copy)]
    pub enum Delegation<'a> = "open_delegation_type4" {
        /// No delegation.
        0 => None,
        /// Read delegation.
        1 => Read(delegation: ReadDelegation<'a>),
        /// Write delegation.
        2 => Write(delegation: WriteDelegation<'a>),
        /// No delegation, with a reason (4.1).
        3 => NoneExt(why: NoDelegation),
        /// Read delegation that covers the access time (RFC 9754).
        4 => ReadAttrs(delegation: ReadDelegation<'a>),
        /// Write delegation that covers access and modification times (RFC 9754).
        5 => WriteAttrs(delegation: WriteDelegation<'a>),
    }
}

wire_bits! {
    /// Flags in the result of OPEN (`rflags`).
    pub struct OpenResultFlags {
        /// The client must confirm the open owner (4.0).
        CONFIRM = 2,
        /// Byte-range locks have POSIX semantics.
        LOCKTYPE_POSIX = 4,
        /// The server preserves the open file after its last name is removed.
        PRESERVE_UNLINKED = 8,
        /// The result has no open stateid; the client uses the delegation stateid (RFC 9754,
        /// section 4).
        NO_OPEN_STATEID = 0x10,
        /// The server may send CB_NOTIFY_LOCK.
        MAY_NOTIFY_LOCK = 0x20,
    }
}

wire_struct! {
    /// `OPEN4resok`.
    #[derive(Copy)]
    pub struct OpenOk<'a> {
        /// Stateid of the open.
        pub stateid: Stateid,
        /// Change of the directory.
        pub change: ChangeInfo,
        /// Result flags.
        pub flags: OpenResultFlags,
        /// Attributes that the server has set.
        pub attrs_set: Bitmap,
        /// The delegation, if any.
        pub delegation: Delegation<'a>,
    }
}
