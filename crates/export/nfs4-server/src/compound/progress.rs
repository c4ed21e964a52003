//! The result of a run of a call: effects, and the reply or the cause of its wait.

use vouch_vfs::{Blocking, SystemId};

use crate::{Effect, Reply};

#[must_use]
pub struct RunResult {
    /// To be carried out in order, before the reply leaves.
    pub effects: Vec<Effect>,
    pub progress: Progress,
}

pub enum Progress {
    Done(Option<Reply>),
    /// Run the call again on a thread that may wait for this.
    Blocked(BlockedOn),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockedOn {
    Disk,
    NameService,
    Remote(SystemId),
    /// Other calls of the thread ([`MayBlock::write_len_max`]). It may run on at once.
    Turn,
}

impl BlockedOn {
    pub(crate) fn files(remote: Option<SystemId>) -> Self {
        remote.map_or(BlockedOn::Disk, BlockedOn::Remote)
    }

    pub fn remote(self) -> Option<SystemId> {
        if let BlockedOn::Remote(system) = self { Some(system) } else { None }
    }
}

/// The things that the thread of a run may wait for.
#[derive(Clone, Copy, Debug)]
pub struct MayBlock {
    pub disks: Blocking,
    pub names: Blocking,
    pub remote: Option<SystemId>,
    /// A longer WRITE without sync stops after this many bytes: each run writes so many.
    pub write_len_max: usize,
}

impl From<Blocking> for MayBlock {
    fn from(blocking: Blocking) -> Self {
        MayBlock { disks: blocking, names: blocking, remote: None, write_len_max: usize::MAX }
    }
}

impl From<BlockedOn> for MayBlock {
    fn from(on: BlockedOn) -> Self {
        let (disks, names) = match on {
            BlockedOn::Disk | BlockedOn::Remote(_) => (Blocking::Allowed, Blocking::Forbidden),
            BlockedOn::NameService => (Blocking::Forbidden, Blocking::Allowed),
            BlockedOn::Turn => (Blocking::Forbidden, Blocking::Forbidden),
        };
        MayBlock { disks, names, remote: on.remote(), write_len_max: usize::MAX }
    }
}

pub(super) enum RunOutcome {
    Answered,
    Unanswered,
    Blocked(BlockedOn),
}
