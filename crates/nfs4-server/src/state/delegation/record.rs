//! A delegation, and what is asked and answered about it.

use vouch_nfs4::op::{NoDelegation, ShareAccess};
use vouch_nfs4::{Stateid, Status};

use crate::state::effect::HolderAttributes;
use crate::state::id::FileKey;

/// A delegation.
pub(in crate::state) struct Delegation<F> {
    /// The file, as its holder knows it.
    pub(in crate::state) key: FileKey,
    /// To write, or only to read.
    pub(in crate::state) write: bool,
    pub(in crate::state) file: F,
    /// Whether its holder keeps the file's times of access and of change (RFC 9754, section 5).
    pub(in crate::state) times: bool,
    /// When the client was asked to return it.
    pub(in crate::state) recalled_ms: Option<u64>,
    /// What its holder said last about the file, and when.
    pub(in crate::state) holder: Option<(HolderAttributes, u64)>,
    /// Since when the holder is being asked.
    pub(in crate::state) asked_ms: Option<u64>,
}

impl<F> Delegation<F> {
    /// The file, as its holder knows it.
    pub(in crate::state) fn key(&self) -> &FileKey {
        &self.key
    }
}

/// What the holder of a write delegation has to say about the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// There is none, or none but the asker.
    None,
    /// This.
    Told(HolderAttributes),
    /// It was asked then, and has not answered yet.
    Asked(u64),
}

/// Which delegation a client would like with an open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// It doesn't say, or can't (4.0).
    Unstated,
    /// One to read.
    Read,
    /// One to write.
    Write,
    /// Any.
    Any,
    /// None.
    No,
    /// None any more.
    Cancel,
}

impl Want {
    /// From the arguments of OPEN in 4.1. INVAL for a wish that doesn't exist (RFC 8881, section
    /// 18.16.3).
    pub fn new(access: ShareAccess) -> Result<Self, Status> {
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

/// The delegation that comes with an open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granted {
    /// None.
    None,
    /// None, and why: only where the client said what it wants.
    Refused(NoDelegation),
    /// To read.
    Read(Stateid),
    /// To write.
    Write(Stateid),
}

/// What is done to a file that others may hold a delegation of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// Its data is read.
    Read,
    /// Its data or size is changed.
    Change,
    /// Other attributes are changed.
    Attributes,
    /// A name of it is removed, changed or made.
    Name,
}
