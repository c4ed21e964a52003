//! LOCK, LOCKT, LOCKU and RELEASE_LOCKOWNER (RFC 8881, sections 18.10 to 18.12; RFC 7530, section
//! 16.37).

use vouch_xdr::{Error, Reader, Writer};

use crate::macros::{wire_enum, wire_failure, wire_struct};
use crate::{OwnerSeq, StateOwner, Stateid, Wire};

wire_enum! {
    /// What kind of lock (`nfs_lock_type4`).
    pub enum LockType = "nfs_lock_type4" {
        /// Shared.
        Read = 1,
        /// Exclusive.
        Write = 2,
        /// Shared, and the client will wait.
        ReadWait = 3,
        /// Exclusive, and the client will wait.
        WriteWait = 4,
    }
}

wire_struct! {
    /// A lock owner's first lock of a file (`open_to_lock_owner4`).
    #[derive(Copy)]
    pub struct NewLockOwner<'a> {
        /// The open owner's number (4.0).
        pub open_seq: OwnerSeq,
        /// The open.
        pub open: Stateid,
        /// The lock owner's number (4.0).
        pub lock_seq: OwnerSeq,
        /// The lock owner.
        pub owner: StateOwner<'a>,
    }
}

wire_struct! {
    /// A lock owner's further locks (`exist_lock_owner4`).
    #[derive(Copy)]
    pub struct OldLockOwner {
        /// Its locks of the file.
        pub lock: Stateid,
        /// Its number (4.0).
        pub seq: OwnerSeq,
    }
}

/// Who locks (`locker4`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locker<'a> {
    /// An owner that has no locks of the file yet.
    New(NewLockOwner<'a>),
    /// One that has.
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

wire_struct! {
    /// `LOCK4args`.
    #[derive(Copy)]
    pub struct LockArgs<'a> {
        /// What kind.
        pub kind: LockType,
        /// Whether it was held before the server restarted.
        pub reclaim: bool,
        /// First byte.
        pub offset: u64,
        /// How many; all ones is up to the end.
        pub length: u64,
        /// Who locks.
        pub locker: Locker<'a>,
    }
}

wire_struct! {
    /// The lock in the way (`LOCK4denied`).
    #[derive(Copy)]
    pub struct LockDenied<'a> {
        /// First byte.
        pub offset: u64,
        /// How many.
        pub length: u64,
        /// What kind.
        pub kind: LockType,
        /// Whose.
        pub owner: StateOwner<'a>,
    }
}

wire_struct! {
    /// `LOCK4resok`.
    #[derive(Copy)]
    pub struct LockOk {
        /// The owner's locks of the file.
        pub stateid: Stateid,
    }
}

wire_failure! {
    /// How LOCK and LOCKT fail.
    pub enum LockFailure<'a> {
        /// Another holds a lock.
        DENIED => Denied(LockDenied<'a>)
    }
}

wire_struct! {
    /// `LOCKT4args`.
    #[derive(Copy)]
    pub struct LocktArgs<'a> {
        /// What kind.
        pub kind: LockType,
        /// First byte.
        pub offset: u64,
        /// How many; all ones is up to the end.
        pub length: u64,
        /// Who would lock.
        pub owner: StateOwner<'a>,
    }
}

wire_struct! {
    /// `LOCKU4args`.
    #[derive(Copy)]
    pub struct LockuArgs {
        /// What kind.
        pub kind: LockType,
        /// The lock owner's number (4.0).
        pub seq: OwnerSeq,
        /// The owner's locks of the file.
        pub stateid: Stateid,
        /// First byte.
        pub offset: u64,
        /// How many; all ones is up to the end.
        pub length: u64,
    }
}

wire_struct! {
    /// The result.
    #[derive(Copy)]
    pub struct LockuOk {
        /// The owner's locks of the file.
        pub stateid: Stateid,
    }
}

wire_struct! {
    /// `RELEASE_LOCKOWNER4args`.
    #[derive(Copy)]
    pub struct ReleaseLockownerArgs<'a> {
        /// The lock owner.
        pub owner: StateOwner<'a>,
    }
}
