//! OPEN (RFC 8881 §18.16).

use vouch_xdr::{Error, Reader, Writer};

use crate::macros::{wire_bits, wire_copy, wire_enum, wire_union};
use crate::{Ace, Bitmap, ChangeInfo, Fattr, Name, OwnerSeq, StateOwner, Stateid, Verifier, Wire};

wire_bits! {
    pub struct ShareAccess {
        READ = 1,
        WRITE = 2,
        BOTH = 3,
        MASK = 0xff,
        WANT_MASK = 0xff00,
        WANT_READ_DELEG = 0x100,
        WANT_WRITE_DELEG = 0x200,
        WANT_ANY_DELEG = 0x300,
        WANT_NO_DELEG = 0x400,
        WANT_CANCEL = 0x500,
        WANT_SIGNAL = 0x1_0000,
        WANT_PUSH = 0x2_0000,
        /// RFC 9754 §5.
        WANT_DELEG_TIMESTAMPS = 0x10_0000,
        /// Either a delegation or an open stateid, not both (RFC 9754 §4).
        WANT_OPEN_XOR_DELEGATION = 0x20_0000,
    }
}

wire_bits! {
    pub struct ShareDeny {
        READ = 1,
        WRITE = 2,
        BOTH = 3,
    }
}

wire_copy! {
    pub struct CreateVerifierAttrs<'a> { pub verifier: Verifier, pub attrs: Fattr<'a> }
}

wire_union! {
    #[derive(Copy)]
    pub enum CreateHow<'a> = "createmode4" {
        0 => Unchecked(attrs: Fattr<'a>),
        1 => Guarded(attrs: Fattr<'a>),
        /// Fail if the file exists, unless an attempt with this verifier created it.
        2 => Exclusive(verifier: Verifier),
        3 => Exclusive41(both: CreateVerifierAttrs<'a>),
    }
}

wire_union! {
    #[derive(Copy)]
    pub enum OpenHow<'a> = "opentype4" {
        0 => NoCreate,
        1 => Create(how: CreateHow<'a>),
    }
}

wire_enum! {
    pub enum DelegationType = "open_delegation_type4" {
        None = 0,
        Read = 1,
        Write = 2,
        NoneExt = 3,
        /// Covers the access time (RFC 9754).
        ReadAttrs = 4,
        /// Covers access and modification times (RFC 9754).
        WriteAttrs = 5,
    }
}

wire_copy! {
    /// `open_claim_delegate_cur4`: under a delegation that the client holds.
    pub struct DelegateCur<'a> { pub stateid: Stateid, pub name: Name<'a> }
}

wire_union! {
    #[derive(Copy)]
    pub enum OpenClaim<'a> = "open_claim_type4" {
        0 => Null(name: Name<'a>),
        1 => Previous(kind: DelegationType),
        2 => DelegateCur(cur: DelegateCur<'a>),
        3 => DelegatePrev(name: Name<'a>),
        4 => Fh,
        5 => DelegCurFh(stateid: Stateid),
        /// Under a delegation from before a client restart (4.1).
        6 => DelegPrevFh,
    }
}

wire_copy! {
    pub struct OpenArgs<'a> {
        /// 4.0.
        pub seq: OwnerSeq,
        pub access: ShareAccess,
        pub deny: ShareDeny,
        pub owner: StateOwner<'a>,
        pub how: OpenHow<'a>,
        pub claim: OpenClaim<'a>,
    }

    /// `nfs_modified_limit4`.
    pub struct SpaceBlocks { pub blocks: u32, pub bytes_per_block: u32 }
}

wire_union! {
    /// `nfs_space_limit4`: data that a client may write before it must flush.
    #[derive(Copy)]
    pub enum SpaceLimit = "limit_by4" {
        1 => Size(bytes: u64),
        2 => Blocks(blocks: SpaceBlocks),
    }
}

wire_copy! {
    pub struct ReadDelegation<'a> {
        pub stateid: Stateid,
        pub recall: bool,
        pub permissions: Ace<'a>,
    }

    pub struct WriteDelegation<'a> {
        pub stateid: Stateid,
        pub recall: bool,
        pub space_limit: SpaceLimit,
        pub permissions: Ace<'a>,
    }
}

/// `open_none_delegation4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoDelegation {
    Contention(bool),
    Resource(bool),
    Other(u32),
}

impl NoDelegation {
    pub const NOT_WANTED: Self = Self::Other(0);
    pub const NOT_SUPP_FTYPE: Self = Self::Other(3);
    pub const WRITE_NOT_SUPP_FTYPE: Self = Self::Other(4);
    pub const NOT_SUPP_UPGRADE: Self = Self::Other(5);
    pub const NOT_SUPP_DOWNGRADE: Self = Self::Other(6);
    pub const CANCELLED: Self = Self::Other(7);
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
    #[derive(Copy)]
    pub enum Delegation<'a> = "open_delegation_type4" {
        0 => None,
        1 => Read(delegation: ReadDelegation<'a>),
        2 => Write(delegation: WriteDelegation<'a>),
        3 => NoneExt(why: NoDelegation),
        /// Covers the access time (RFC 9754).
        4 => ReadAttrs(delegation: ReadDelegation<'a>),
        /// Covers access and modification times (RFC 9754).
        5 => WriteAttrs(delegation: WriteDelegation<'a>),
    }
}

wire_bits! {
    pub struct OpenResultFlags {
        /// The client must confirm the open owner (4.0).
        CONFIRM = 2,
        /// Byte-range locks have POSIX semantics.
        LOCKTYPE_POSIX = 4,
        PRESERVE_UNLINKED = 8,
        /// The client uses the delegation stateid (RFC 9754 §4).
        NO_OPEN_STATEID = 0x10,
        MAY_NOTIFY_LOCK = 0x20,
    }
}

wire_copy! {
    pub struct OpenOk<'a> {
        pub stateid: Stateid,
        pub change: ChangeInfo,
        pub flags: OpenResultFlags,
        pub attrs_set: Bitmap,
        pub delegation: Delegation<'a>,
    }
}
