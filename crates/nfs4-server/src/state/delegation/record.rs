//! Delegation records.

use vouch_nfs4::op::{NoDelegation, ShareAccess};
use vouch_nfs4::{Stateid, Status};

use crate::state::effect::HolderAttributes;
use crate::state::id::FileKey;

pub(in crate::state) struct Delegation<F> {
    /// The file as the holder knows it.
    pub(in crate::state) key: FileKey,
    /// Write delegation rather than read.
    pub(in crate::state) write: bool,
    pub(in crate::state) file: F,
    /// Whether the holder keeps the file's access and change times (RFC 9754, section 5).
    pub(in crate::state) times: bool,
    /// Time of the recall.
    pub(in crate::state) recalled_ms: Option<u64>,
    /// Last attributes from the holder, and their time.
    pub(in crate::state) holder: Option<(HolderAttributes, u64)>,
    /// Start of the pending CB_GETATTR.
    pub(in crate::state) asked_ms: Option<u64>,
}

impl<F> Delegation<F> {
    /// The file as the holder knows it.
    pub(in crate::state) fn key(&self) -> &FileKey {
        &self.key
    }
}

/// Attributes known from the holder of a write delegation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// No holder other than the asker.
    None,
    /// Reported attributes.
    Reported(HolderAttributes),
    /// CB_GETATTR was sent at this time and is not answered.
    Pending(u64),
}

/// Kind of delegation that an OPEN asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// No preference given; always so in 4.0.
    Unstated,
    /// Read delegation.
    Read,
    /// Write delegation.
    Write,
    /// Either kind.
    Any,
    /// No delegation.
    No,
    /// Withdraws an earlier request.
    Cancel,
}

impl Want {
    /// From the arguments of a 4.1 OPEN. Errors: INVAL for an undefined value (RFC 8881, section
    /// 18.16.3).
    pub(crate) fn new(access: ShareAccess) -> Result<Self, Status> {
        Ok(match access.0 & ShareAccess::WANT_MASK.0 {
            0 => Want::Unstated,
            bits if bits == ShareAccess::WANT_READ_DELEG.0 => Want::Read,
            bits if bits == ShareAccess::WANT_WRITE_DELEG.0 => Want::Write,
            bits if bits == ShareAccess::WANT_ANY_DELEG.0 => Want::Any,
            bits if bits == ShareAccess::WANT_NO_DELEG.0 => Want::No,
            bits if bits == ShareAccess::WANT_CANCEL.0 => Want::Cancel,
            _ => return Err(Status::INVAL),
        })
    }
}

/// Delegation granted with an OPEN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Granted {
    /// None.
    None,
    /// None, with the reason. Only if the client stated a preference.
    Refused(NoDelegation),
    /// Read delegation.
    Read(Stateid),
    /// Write delegation.
    Write(Stateid),
}

/// An access to a file, as it matters to delegations of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touch {
    /// Data is read.
    Read,
    /// Data or size changes.
    Change,
    /// Other attributes change.
    Attributes,
    /// A name is created, removed or renamed.
    Name,
}
