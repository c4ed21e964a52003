use vouch_nfs4::op::{NoDelegation, ShareAccess};
use vouch_nfs4::{Stateid, Status};
use vouch_vfs::mutant;

use crate::state::effect::HolderAttributes;
use crate::state::id::{ClientKey, FileKey};
use crate::state::limits::HOLDER_ATTRIBUTES_MS;

pub(in crate::state) struct Delegation<F> {
    pub(in crate::state) key: FileKey,
    pub(in crate::state) write: bool,
    /// By GET_DIR_DELEGATION. Allows no I/O.
    pub(in crate::state) is_directory: bool,
    pub(in crate::state) file: F,
    /// The holder keeps the file's access and change times (RFC 9754 §5).
    pub(in crate::state) times: bool,
    pub(in crate::state) recalled_ms: Option<u64>,
    /// The log has a warning about the recall.
    pub(in crate::state) is_overdue: bool,
    pub(in crate::state) answer: Option<HolderAnswer>,
    /// CB_GETATTR is on its way.
    pub(in crate::state) question: Option<HolderQuestion>,
    /// Change attribute that others have seen for data that only the holder has.
    pub(in crate::state) shown_change: u64,
}

#[derive(Clone, Copy)]
pub(in crate::state) struct HolderQuestion {
    pub(in crate::state) asked_ms: u64,
    pub(in crate::state) asker: Option<ClientKey>,
}

pub(in crate::state) struct HolderAnswer {
    pub(in crate::state) question: HolderQuestion,
    pub(in crate::state) answered_ms: u64,
    pub(in crate::state) attributes: HolderAttributes,
    pub(in crate::state) is_used: bool,
}

impl HolderAnswer {
    /// The holder may have written since. So the answer serves calls that came before the question,
    /// and one call of the asker, which may have got DELAY and come again. Callers of 4.0 count as one.
    pub(in crate::state) fn serves(&self, by: Option<ClientKey>, now: u64) -> bool {
        let HolderQuestion { asked_ms, asker } = self.question;
        let is_recent = now < self.answered_ms + HOLDER_ATTRIBUTES_MS;
        let is_owed = !self.is_used && asker == by;
        now < asked_ms || (is_owed || mutant("holder-is-asked-once-a-second")) && is_recent
    }
}

impl<F> Delegation<F> {
    pub(in crate::state) fn key(&self) -> &FileKey {
        &self.key
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    None,
    Reported(HolderAttributes),
    Pending(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    Unstated,
    Read,
    Write,
    Any,
    No,
    Cancel,
}

impl Want {
    /// Errors: INVAL for an undefined value (RFC 8881 §18.16.3).
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Granted {
    None,
    Refused(NoDelegation),
    Read(Stateid),
    Write(Stateid),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessWithoutOpen {
    Read,
    Change,
    Attributes,
    Name,
}
