use vouch_nfs4::Status;
use vouch_nfs4::op::{Args, Op};

use super::context::{CallState, CompoundContext};
use super::run::OperationCursor;
use crate::Server;
use crate::access::admission::{AGE_MS_MAX, Admission, CachedAdmission};
use crate::files::file_ref::Object;

pub(super) fn check(
    call: &CallState,
    args: &Args<'_>,
    cursor: &OperationCursor,
    server: &Server,
) -> Result<(), Status> {
    let op = args.op();
    if matches!(args, Args::Illegal(_)) {
        return Err(Status::OP_ILLEGAL);
    }
    if cursor.done >= server.config().limits.operations_max {
        return Err(if call.origin.minor == 0 { Status::RESOURCE } else { Status::TOO_MANY_OPS });
    }
    if call.origin.minor > 0 {
        let alone = matches!(
            op,
            Op::EXCHANGE_ID
                | Op::CREATE_SESSION
                | Op::BIND_CONN_TO_SESSION
                | Op::DESTROY_SESSION
                | Op::DESTROY_CLIENTID
        );
        match cursor.done {
            0 if op == Op::SEQUENCE => {}
            // RFC 8881 §2.10.2: without SEQUENCE these operations must be alone.
            0 if alone && cursor.count > 1 => return Err(Status::NOT_ONLY_OP),
            0 if alone => {}
            0 => return Err(Status::OP_NOT_IN_SESSION),
            _ if op == Op::SEQUENCE => return Err(Status::SEQUENCE_POS),
            // §18.34.3.
            _ if op == Op::BIND_CONN_TO_SESSION => return Err(Status::NOT_ONLY_OP),
            _ => {}
        }
        if op.removed_in_4_1() {
            return Err(Status::NOTSUPP);
        }
    }
    // `--audit-deny`: an operation that cannot be recorded must not run.
    if let Some(Object::File(file)) = &call.current.object
        && !server.observer().admits(op, file.grant.site.export.id)
    {
        return Err(Status::SERVERFAULT);
    }
    if op.changes_something() && !call.space.fits(call.result.at, CHANGE_LEN_MAX) {
        return Err(call.space.end_status);
    }
    Ok(())
}

/// An OPEN with a delegation.
const CHANGE_LEN_MAX: usize = 512;

fn creates_client_record(op: Op) -> bool {
    matches!(
        op,
        Op::EXCHANGE_ID
            | Op::CREATE_SESSION
            | Op::BIND_CONN_TO_SESSION
            | Op::SETCLIENTID
            | Op::SETCLIENTID_CONFIRM
    )
}

/// Linux reports ACCESS as "access denied by server". DELAY during the look-up of the host name.
pub(super) fn check_admission(
    context: &CompoundContext<'_>,
    args: &Args<'_>,
) -> Result<(), Status> {
    if !creates_client_record(args.op()) {
        return Ok(());
    }
    let name = match args {
        Args::ExchangeId(args) => Some(&args.owner.id),
        Args::Setclientid(args) => Some(&args.client.id),
        _ => None,
    };
    name.iter().for_each(|name| context.origin.connection.set_client_name(|| name.0.into()));
    let (tree, now_ms) = (context.server.tree(), context.now.mono_ms);
    let mut known = context.origin.connection.admission().lock();
    let fresh = |known: &&CachedAdmission| {
        known.generation == tree.generation && now_ms.saturating_sub(known.made_ms) < AGE_MS_MAX
    };
    let admission = match known.as_ref().filter(fresh) {
        Some(known) => known.admission,
        None => tree.admission(context.origin.connection.peer()),
    };
    if admission != Admission::Undecided && known.as_ref().is_none_or(|known| !fresh(&known)) {
        *known = Some(CachedAdmission { admission, generation: tree.generation, made_ms: now_ms });
    }
    match admission {
        Admission::Admitted => Ok(()),
        Admission::Refused => Err(Status::ACCESS),
        Admission::Undecided => Err(Status::DELAY),
    }
}
