//! LOCK, LOCKT, LOCKU and RELEASE_LOCKOWNER (RFC 8881, sections 18.10 to 18.12; RFC 7530, section
//! 16.37).

use std::borrow::Cow;

use vouch_nfs4::op::{
    LockArgs, LockDenied, LockFailure, LockOk, LockType, Locker, LocktArgs, LockuArgs, LockuOk, Op, ReleaseLockownerArgs, Results,
};
use vouch_nfs4::{Bytes, StateOwner, Status};

use super::owner_call::{by_state, in_turn, known_owner};
use crate::state::{Denied, LockBy, LockCall, LockError, Mode, Range};
use crate::stop::{Outcome, Stop};
use crate::walk::{FileRef, Walk};

pub(crate) fn lock(walk: &mut Walk<'_>, args: &LockArgs<'_>) -> Outcome {
    let file = lockable(walk)?;
    let now = walk.now.mono_ms;
    let (stateid, seq) = match &args.locker {
        Locker::New(new) => (walk.substituted(&new.open)?, new.open_seq),
        Locker::Old(old) => (walk.substituted(&old.lock)?, old.seq),
    };
    let turn = by_state(walk, stateid, seq);
    in_turn(walk, turn, |walk| {
        if let (Locker::New(new), 0) = (&args.locker, walk.minor) {
            // RFC 7530, section 16.10.5: the lock owner's client id must be a good one.
            let caller = walk.proven();
            walk.state(|state| state.client_of_40(new.owner.client, caller.as_ref(), now))?;
        }
        let owner = match &args.locker {
            Locker::New(new) => known_owner(walk, &new.owner.owner),
            Locker::Old(_) => Cow::default(),
        };
        let by = match &args.locker {
            Locker::New(new) => LockBy::New { open: &stateid, owner: &owner, seq: new.lock_seq },
            Locker::Old(_) => LockBy::Old(&stateid),
        };
        let (mode, wait) = mode(args.kind);
        let range = Range::new(args.offset, args.length)?;
        let call = LockCall { client: walk.client_of_session(), file: file.key(), by, range, mode, wait, reclaim: args.reclaim };
        match walk.state(|state| state.lock(&call, now)) {
            Ok(stateid) => {
                walk.result_stateid(stateid);
                Results::Lock(Ok(LockOk { stateid })).encode(walk.out);
                Ok(())
            }
            Err(error) => refused(walk, error),
        }
    })
}

pub(crate) fn lockt(walk: &mut Walk<'_>, args: &LocktArgs<'_>) -> Outcome {
    let file = lockable(walk)?;
    let now = walk.now.mono_ms;
    let client = match walk.client_of_session() {
        Some(client) => client,
        None => {
            let caller = walk.proven();
            walk.state(|state| state.client_of_40(args.owner.client, caller.as_ref(), now))?
        }
    };
    let owner = known_owner(walk, &args.owner.owner);
    let range = Range::new(args.offset, args.length)?;
    let (mode, _) = mode(args.kind);
    match walk.state(|state| state.test_lock(client, &owner, &file.key(), range, mode, now)) {
        Ok(()) => {
            Results::Lockt(Ok(())).encode(walk.out);
            Ok(())
        }
        Err(error) => refused(walk, error),
    }
}

pub(crate) fn locku(walk: &mut Walk<'_>, args: &LockuArgs) -> Outcome {
    let file = lockable(walk)?;
    let stateid = walk.substituted(&args.stateid)?;
    let now = walk.now.mono_ms;
    let turn = by_state(walk, stateid, args.seq);
    in_turn(walk, turn, |walk| {
        let range = Range::new(args.offset, args.length)?;
        let client = walk.client_of_session();
        let stateid = walk.state(|state| state.unlock(client, &stateid, &file.key(), range, now))?;
        walk.result_stateid(stateid);
        Results::Locku(Ok(LockuOk { stateid })).encode(walk.out);
        Ok(())
    })
}

pub(crate) fn release_lockowner(walk: &mut Walk<'_>, args: &ReleaseLockownerArgs<'_>) -> Outcome {
    let (now, caller) = (walk.now.mono_ms, walk.proven());
    walk.state(|state| {
        let client = state.client_of_40(args.owner.client, caller.as_ref(), now)?;
        state.release_lock_owner(client, &args.owner.owner, caller.as_ref())
    })?;
    Results::ReleaseLockowner(Ok(())).encode(walk.out);
    Ok(())
}

/// RFC 8881, section 18.10.3: only regular files have locks; a directory is ISDIR.
fn lockable(walk: &Walk<'_>) -> Result<FileRef, Stop> {
    let file = walk.current_file(Status::ISDIR)?;
    match file.files().attributes(&file.id, walk.patience)?.file_type {
        vouch_vfs::FileType::Regular => Ok(file),
        vouch_vfs::FileType::Directory => Err(Status::ISDIR.into()),
        vouch_vfs::FileType::Symlink if walk.minor > 0 => Err(Status::SYMLINK.into()),
        _ => Err(Status::WRONG_TYPE.into()),
    }
}

fn mode(kind: LockType) -> (Mode, bool) {
    match kind {
        LockType::Read => (Mode::Shared, false),
        LockType::Write => (Mode::Exclusive, false),
        LockType::ReadWait => (Mode::Shared, true),
        LockType::WriteWait => (Mode::Exclusive, true),
    }
}

/// RFC 8881, section 18.10.3: DENIED says which lock is in the way.
fn refused(walk: &mut Walk<'_>, error: LockError) -> Outcome {
    let denied = match error {
        LockError::Status(status) => return Err(status.into()),
        LockError::Denied(denied) => denied,
    };
    let Denied { range, mode, client, owner } = &denied;
    let kind = if *mode == Mode::Shared { LockType::Read } else { LockType::Write };
    let owner = StateOwner { client: *client, owner: Bytes(owner) };
    let failure = LockFailure::Denied(LockDenied { offset: range.offset(), length: range.length(), kind, owner });
    match Op(walk.op) {
        Op::LOCK => Results::Lock(Err(failure)),
        _ => Results::Lockt(Err(failure)),
    }
    .encode(walk.out);
    Err(Stop::Written(Status::DENIED))
}
