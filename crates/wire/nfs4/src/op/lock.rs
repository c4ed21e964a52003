//! LOCK, LOCKT, LOCKU and RELEASE_LOCKOWNER (RFC 8881 §18.10 to 18.12; RFC 7530 §16.37).

use vouch_xdr::{Error, Reader, Writer};

use crate::macros::{wire_copy, wire_enum, wire_failure};
use crate::{OwnerSeq, StateOwner, Stateid, Wire};

wire_enum! {
    pub enum LockType = "nfs_lock_type4" {
        Read = 1,
        Write = 2,
        ReadWait = 3,
        /// The client will wait for it.
        WriteWait = 4,
    }
}

wire_copy! {
    pub struct NewLockOwner<'a> {
        pub open_seq: OwnerSeq,
        pub open: Stateid,
        /// 4.0.
        pub lock_seq: OwnerSeq,
        pub owner: StateOwner<'a>,
    }

    pub struct OldLockOwner {
        pub lock: Stateid,
        /// 4.0.
        pub seq: OwnerSeq,
    }
}

/// `locker4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locker<'a> {
    New(NewLockOwner<'a>),
    /// The owner has a lock stateid on the file.
    Old(OldLockOwner),
}

impl<'a> Wire<'a> for Locker<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(match r.bool()? {
            true => Self::New(NewLockOwner::decode(r)?),
            false => Self::Old(OldLockOwner::decode(r)?),
        })
    }

    fn encode(&self, w: &mut Writer) {
        w.bool(matches!(self, Self::New(_)));
        match self {
            Self::New(locker) => locker.encode(w),
            Self::Old(locker) => locker.encode(w),
        }
    }

    #[cfg(test)]
    fn sample(s: &mut crate::sample::Sampler) -> Self {
        match bool::sample(s) {
            true => Self::New(NewLockOwner::sample(s)),
            false => Self::Old(OldLockOwner::sample(s)),
        }
    }
}

wire_copy! {
    pub struct LockArgs<'a> {
        pub kind: LockType,
        pub reclaim: bool,
        pub offset: u64,
        /// All ones means up to the end of the file.
        pub length: u64,
        pub locker: Locker<'a>,
    }

    pub struct LockDenied<'a> {
        pub offset: u64,
        pub length: u64,
        pub kind: LockType,
        pub owner: StateOwner<'a>,
    }

    pub struct LockOk { pub stateid: Stateid }
}

wire_failure! {
    pub enum LockFailure<'a> {
        DENIED => Denied(LockDenied<'a>)
    }
}

wire_copy! {
    pub struct LocktArgs<'a> {
        pub kind: LockType,
        pub offset: u64,
        /// All ones means up to the end of the file.
        pub length: u64,
        pub owner: StateOwner<'a>,
    }

    pub struct LockuArgs {
        pub kind: LockType,
        /// 4.0.
        pub seq: OwnerSeq,
        pub stateid: Stateid,
        pub offset: u64,
        /// All ones means up to the end of the file.
        pub length: u64,
    }

    pub struct LockuOk { pub stateid: Stateid }
    pub struct ReleaseLockownerArgs<'a> { pub owner: StateOwner<'a> }
}
