//! LOCK, LOCKT, LOCKU and RELEASE_LOCKOWNER (RFC 8881 §18.10 to 18.12; RFC 7530 §16.37).

use std::borrow::Cow;

use vouch_nfs4::op::{
    LockArgs, LockDenied, LockFailure, LockOk, LockType, Locker, LocktArgs, LockuArgs, LockuOk, Op,
    ReleaseLockownerArgs, Results,
};
use vouch_nfs4::{Bytes, StateOwner, Status};

use crate::compound::context::CompoundContext;
use crate::compound::owner_sequence::{in_turn, in_turn_by_stateid, owner_key};
use crate::error::{OpError, OpResult};
use crate::files::file_ref::FileRef;
use crate::state::{Denied, LockBy, LockCall, LockError, Mode, Range};

pub(crate) fn lock(context: &mut CompoundContext<'_>, args: &LockArgs<'_>) -> OpResult {
    let file = lockable(context)?;
    let now = context.now.mono_ms;
    let (stateid, seq) = match &args.locker {
        Locker::New(new) => (context.substituted(&new.open)?, new.open_seq),
        Locker::Old(old) => (context.substituted(&old.lock)?, old.seq),
    };
    let turn = in_turn_by_stateid(context, stateid, seq);
    in_turn(context, turn, |context| {
        if let (Locker::New(new), 0) = (&args.locker, context.origin.minor) {
            // RFC 7530 §16.10.5.
            let caller = context.proven();
            context.state(|state| state.v40_client(new.owner.client, caller.as_ref(), now))?;
        }
        let owner = match &args.locker {
            Locker::New(new) => owner_key(context, &new.owner.owner),
            Locker::Old(_) => Cow::default(),
        };
        let by = match &args.locker {
            Locker::New(new) => LockBy::New { open: &stateid, owner: &owner, seq: new.lock_seq },
            Locker::Old(_) => LockBy::Old(&stateid),
        };
        let (mode, wait) = mode(args.kind);
        let range = Range::new(args.offset, args.length)?;
        let call = LockCall {
            client: context.client_of_session(),
            file: file.key(),
            by,
            range,
            mode,
            wait,
            reclaim: args.reclaim,
        };
        match context.state(|state| state.lock(&call, now)) {
            Ok(stateid) => {
                context.result_stateid(stateid);
                Results::Lock(Ok(LockOk { stateid })).encode(context.out);
                Ok(())
            }
            Err(error) => refused(context, error),
        }
    })
}

pub(crate) fn lockt(context: &mut CompoundContext<'_>, args: &LocktArgs<'_>) -> OpResult {
    let file = lockable(context)?;
    let now = context.now.mono_ms;
    let client = match context.client_of_session() {
        Some(client) => client,
        None => {
            let caller = context.proven();
            context.state(|state| state.v40_client(args.owner.client, caller.as_ref(), now))?
        }
    };
    let owner = owner_key(context, &args.owner.owner);
    let range = Range::new(args.offset, args.length)?;
    let (mode, _) = mode(args.kind);
    match context.state(|state| state.test_lock(client, &owner, &file.key(), range, mode, now)) {
        Ok(()) => {
            Results::Lockt(Ok(())).encode(context.out);
            Ok(())
        }
        Err(error) => refused(context, error),
    }
}

pub(crate) fn locku(context: &mut CompoundContext<'_>, args: &LockuArgs) -> OpResult {
    let file = lockable(context)?;
    let stateid = context.substituted(&args.stateid)?;
    let now = context.now.mono_ms;
    let turn = in_turn_by_stateid(context, stateid, args.seq);
    in_turn(context, turn, |context| {
        let range = Range::new(args.offset, args.length)?;
        let client = context.client_of_session();
        let stateid =
            context.state(|state| state.unlock(client, &stateid, &file.key(), range, now))?;
        context.result_stateid(stateid);
        Results::Locku(Ok(LockuOk { stateid })).encode(context.out);
        Ok(())
    })
}

pub(crate) fn release_lockowner(
    context: &mut CompoundContext<'_>,
    args: &ReleaseLockownerArgs<'_>,
) -> OpResult {
    let (now, caller) = (context.now.mono_ms, context.proven());
    context.state(|state| {
        let client = state.v40_client(args.owner.client, caller.as_ref(), now)?;
        state.release_lock_owner(client, &args.owner.owner, caller.as_ref())
    })?;
    Results::ReleaseLockowner(Ok(())).encode(context.out);
    Ok(())
}

/// RFC 8881 §18.10.3.
fn lockable(context: &CompoundContext<'_>) -> Result<FileRef, OpError> {
    let file = context.current_file(Status::ISDIR)?;
    match file.files().attributes(&file.id, context.blocking)?.file_type {
        vouch_vfs::FileType::Regular => Ok(file),
        vouch_vfs::FileType::Directory => Err(Status::ISDIR.into()),
        vouch_vfs::FileType::Symlink if context.origin.minor > 0 => Err(Status::SYMLINK.into()),
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

/// RFC 8881 §18.10.3.
fn refused(context: &mut CompoundContext<'_>, error: LockError) -> OpResult {
    let denied = match error {
        LockError::Status(status) => return Err(status.into()),
        LockError::Denied(denied) => denied,
    };
    let Denied { range, mode, client, owner } = &denied;
    let kind = if *mode == Mode::Shared { LockType::Read } else { LockType::Write };
    let owner = StateOwner { client: *client, owner: Bytes(owner) };
    let failure = LockFailure::Denied(LockDenied {
        offset: range.offset(),
        length: range.length(),
        kind,
        owner,
    });
    match context.result.op {
        Op::LOCK => Results::Lock(Err(failure)),
        _ => Results::Lockt(Err(failure)),
    }
    .encode(context.out);
    Err(OpError::Encoded(Status::DENIED))
}
