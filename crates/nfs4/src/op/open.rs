//! OPEN (RFC 8881, section 18.16).

use vouch_xdr::{Error, Reader, Writer};

use crate::macros::{wire_bits, wire_enum, wire_struct, wire_union};
use crate::{Ace, Bitmap, ChangeInfo, Fattr, Name, OwnerSeq, StateOwner, Stateid, Verifier, Wire};

wire_bits! {
    /// What an open allows, and which delegation is wanted.
    pub struct ShareAccess {
        /// Reading.
        READ = 1,
        /// Writing.
        WRITE = 2,
        /// Both.
        BOTH = 3,
        /// All bits of the access proper.
        MASK = 0xff,
        /// All bits of the wish (4.1).
        WANT_MASK = 0xff00,
        /// A delegation to read is wanted.
        WANT_READ_DELEG = 0x100,
        /// A delegation to write is wanted.
        WANT_WRITE_DELEG = 0x200,
        /// Any delegation is wanted.
        WANT_ANY_DELEG = 0x300,
        /// None is wanted.
        WANT_NO_DELEG = 0x400,
        /// An earlier wish is withdrawn.
        WANT_CANCEL = 0x500,
        /// Tell when there are resources.
        WANT_SIGNAL = 0x1_0000,
        /// Push a delegation when nobody contends.
        WANT_PUSH = 0x2_0000,
        /// A delegation shall cover the times of access and of change (RFC 9754, section 5).
        WANT_DELEG_TIMESTAMPS = 0x10_0000,
        /// Where there is a delegation, no stateid of an open is wanted beside it (RFC 9754, section 4).
        WANT_OPEN_XOR_DELEGATION = 0x20_0000,
    }
}

wire_bits! {
    /// What an open forbids to others.
    pub struct ShareDeny {
        /// Reading.
        READ = 1,
        /// Writing.
        WRITE = 2,
        /// Both.
        BOTH = 3,
    }
}

wire_struct! {
    /// The verifier of an exclusive create, and attributes (`creatverfattr`).
    #[derive(Copy)]
    pub struct CreateVerifierAttrs<'a> {
        /// Names the attempt.
        pub verifier: Verifier,
        /// Attributes of the new file.
        pub attrs: Fattr<'a>,
    }
}

wire_union! {
    /// How to make the file (`createhow4`).
    #[derive(Copy)]
    pub enum CreateHow<'a> = "createmode4" {
        /// Or use one that is there.
        0 => Unchecked(attrs: Fattr<'a>),
        /// Only if none is there.
        1 => Guarded(attrs: Fattr<'a>),
        /// Only if none is there but by an earlier attempt.
        2 => Exclusive(verifier: Verifier),
        /// The same with attributes (4.1).
        3 => Exclusive41(both: CreateVerifierAttrs<'a>),
    }
}

wire_union! {
    /// Whether to make the file (`openflag4`).
    #[derive(Copy)]
    pub enum OpenHow<'a> = "opentype4" {
        /// No.
        0 => NoCreate,
        /// Yes.
        1 => Create(how: CreateHow<'a>),
    }
}

wire_enum! {
    /// A kind of delegation (`open_delegation_type4`).
    pub enum DelegationType = "open_delegation_type4" {
        /// None.
        None = 0,
        /// To read.
        Read = 1,
        /// To write.
        Write = 2,
        /// None, and why (4.1).
        NoneExt = 3,
        /// To read, and of the time of access (RFC 9754).
        ReadAttrs = 4,
        /// To write, and of the times of access and of change (RFC 9754).
        WriteAttrs = 5,
    }
}

wire_struct! {
    /// A file under a delegation that is held (`open_claim_delegate_cur4`).
    #[derive(Copy)]
    pub struct DelegateCur<'a> {
        /// The delegation.
        pub stateid: Stateid,
        /// The file in the current directory.
        pub name: Name<'a>,
    }
}

wire_union! {
    /// Which file, and on what grounds (`open_claim4`).
    #[derive(Copy)]
    pub enum OpenClaim<'a> = "open_claim_type4" {
        /// This one in the current directory.
        0 => Null(name: Name<'a>),
        /// The current file, open before the server restarted; with the delegation held then.
        1 => Previous(kind: DelegationType),
        /// A file under a delegation.
        2 => DelegateCur(cur: DelegateCur<'a>),
        /// A file under a delegation from before the client restarted.
        3 => DelegatePrev(name: Name<'a>),
        /// The current file (4.1).
        4 => Fh,
        /// The current file, under this delegation (4.1).
        5 => DelegCurFh(stateid: Stateid),
        /// The current file, under a delegation from before the client restarted (4.1).
        6 => DelegPrevFh,
    }
}

wire_struct! {
    /// `OPEN4args`.
    #[derive(Copy)]
    pub struct OpenArgs<'a> {
        /// The open owner's number (4.0).
        pub seq: OwnerSeq,
        /// What the open allows.
        pub access: ShareAccess,
        /// What it forbids to others.
        pub deny: ShareDeny,
        /// The open owner.
        pub owner: StateOwner<'a>,
        /// Whether to make the file.
        pub how: OpenHow<'a>,
        /// Which file.
        pub claim: OpenClaim<'a>,
    }
}

wire_struct! {
    /// A limit in blocks (`nfs_modified_limit4`).
    #[derive(Copy)]
    pub struct SpaceBlocks {
        /// How many.
        pub blocks: u32,
        /// How long each.
        pub bytes_per_block: u32,
    }
}

wire_union! {
    /// How much a client may write before it must flush (`nfs_space_limit4`).
    #[derive(Copy)]
    pub enum SpaceLimit = "limit_by4" {
        /// Up to this size of the file.
        1 => Size(bytes: u64),
        /// So many blocks.
        2 => Blocks(blocks: SpaceBlocks),
    }
}

wire_struct! {
    /// `open_read_delegation4`.
    #[derive(Copy)]
    pub struct ReadDelegation<'a> {
        /// The delegation.
        pub stateid: Stateid,
        /// Whether it is recalled at once.
        pub recall: bool,
        /// Who may open without asking.
        pub permissions: Ace<'a>,
    }
}

wire_struct! {
    /// `open_write_delegation4`.
    #[derive(Copy)]
    pub struct WriteDelegation<'a> {
        /// The delegation.
        pub stateid: Stateid,
        /// Whether it is recalled at once.
        pub recall: bool,
        /// How much may be written.
        pub space_limit: SpaceLimit,
        /// Who may open without asking.
        pub permissions: Ace<'a>,
    }
}

/// Why there is no delegation (`open_none_delegation4`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoDelegation {
    /// Others use the file; whether one will be pushed.
    Contention(bool),
    /// No resources; whether the client will be told.
    Resource(bool),
    /// Another reason (`why_no_delegation4`).
    Other(u32),
}

impl NoDelegation {
    /// It wasn't wanted.
    pub const NOT_WANTED: Self = Self::Other(0);
    /// Not for this type of file.
    pub const NOT_SUPP_FTYPE: Self = Self::Other(3);
    /// Not to write this type of file.
    pub const WRITE_NOT_SUPP_FTYPE: Self = Self::Other(4);
    /// Upgrades aren't supported.
    pub const NOT_SUPP_UPGRADE: Self = Self::Other(5);
    /// Downgrades aren't supported.
    pub const NOT_SUPP_DOWNGRADE: Self = Self::Other(6);
    /// The wish was withdrawn.
    pub const CANCELLED: Self = Self::Other(7);
    /// It is a directory.
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
    /// The delegation that came with an open (`open_delegation4`).
    #[derive(Copy)]
    pub enum Delegation<'a> = "open_delegation_type4" {
        /// None.
        0 => None,
        /// To read.
        1 => Read(delegation: ReadDelegation<'a>),
        /// To write.
        2 => Write(delegation: WriteDelegation<'a>),
        /// None, and why (4.1).
        3 => NoneExt(why: NoDelegation),
        /// To read, and of the time of access (RFC 9754).
        4 => ReadAttrs(delegation: ReadDelegation<'a>),
        /// To write, and of the times of access and of change (RFC 9754).
        5 => WriteAttrs(delegation: WriteDelegation<'a>),
    }
}

wire_bits! {
    /// About the open (`rflags`).
    pub struct OpenResultFlags {
        /// The owner must be confirmed (4.0).
        CONFIRM = 2,
        /// Locks are those of POSIX.
        LOCKTYPE_POSIX = 4,
        /// The file outlives its last name while it is open.
        PRESERVE_UNLINKED = 8,
        /// There is no stateid of the open: the delegation serves in its place (RFC 9754, section 4).
        NO_OPEN_STATEID = 0x10,
        /// Locks that become free are notified.
        MAY_NOTIFY_LOCK = 0x20,
    }
}

wire_struct! {
    /// `OPEN4resok`.
    #[derive(Copy)]
    pub struct OpenOk<'a> {
        /// The open.
        pub stateid: Stateid,
        /// What it did to the directory.
        pub change: ChangeInfo,
        /// About the open.
        pub flags: OpenResultFlags,
        /// Which attributes were set.
        pub attrs_set: Bitmap,
        /// The delegation, if any.
        pub delegation: Delegation<'a>,
    }
}
