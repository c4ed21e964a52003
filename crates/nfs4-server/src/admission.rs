//! Whether who connects may be a client at all: some export is for its address. Asked before
//! anything is made of it that others could meet by its name; the kernel's server denies such a
//! host every call. Kept a while with the connection.

use vouch_nfs4::Status;
use vouch_nfs4::op::Op;

use crate::walk::Walk;

/// What is known of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Some export is for it.
    Admitted,
    /// None is.
    Refused,
    /// It can't be told yet: its name is being looked for.
    Undecided,
}

/// The last answer, of a list of exports, and when it was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    admission: Admission,
    generation: u64,
    made_ms: u64,
}

/// For how long an answer is believed: as long as a grant is.
pub(crate) const AGE_MS_MAX: u64 = 5_000;

/// Whether the operation makes or moves what a client is known by.
fn makes_a_client(op: Op) -> bool {
    matches!(op, Op::EXCHANGE_ID | Op::CREATE_SESSION | Op::BIND_CONN_TO_SESSION | Op::SETCLIENTID | Op::SETCLIENTID_CONFIRM)
}

/// ACCESS for an operation that makes a client of one whom no export is for, which Linux tells its
/// user as "access denied by server". DELAY if that can't be told yet.
pub(crate) fn check(walk: &Walk<'_>, op: Op) -> Result<(), Status> {
    if !makes_a_client(op) {
        return Ok(());
    }
    // Of now, and not of when the call began: what it makes would outlast a reload.
    let (tree, now_ms) = (walk.server.tree(), walk.now.mono_ms);
    let mut known = walk.connection.admission().lock();
    let fresh = |known: &&Known| known.generation == tree.generation && now_ms.saturating_sub(known.made_ms) < AGE_MS_MAX;
    let admission = match known.as_ref().filter(fresh) {
        Some(known) => known.admission,
        None => tree.admission(walk.connection.peer()),
    };
    if admission != Admission::Undecided && known.as_ref().is_none_or(|known| !fresh(&known)) {
        *known = Some(Known { admission, generation: tree.generation, made_ms: now_ms });
    }
    match admission {
        Admission::Admitted => Ok(()),
        Admission::Refused => Err(Status::ACCESS),
        Admission::Undecided => Err(Status::DELAY),
    }
}
