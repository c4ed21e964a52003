//! The outcome of a run of a call: its reply, or the cause of its wait.

use vouch_vfs::SystemId;

use crate::Reply;

pub enum Progress {
    Done(Option<Reply>),
    /// Run the next operation with [`Blocking::Allowed`](vouch_vfs::Blocking) on a thread that may wait for this.
    Blocked(BlockedOn),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockedOn {
    Disk,
    NameService,
    Remote(SystemId),
}

impl BlockedOn {
    pub fn remote(self) -> Option<SystemId> {
        if let BlockedOn::Remote(system) = self { Some(system) } else { None }
    }
}

pub(super) enum RunOutcome {
    Answered,
    Unanswered,
    Blocked(Stop),
}

#[derive(Clone, Copy)]
pub(super) enum Stop {
    ForFiles,
    ForNames,
}
