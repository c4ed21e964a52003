//! Whether an operation of a COMPOUND is done at all, before it is: by its place, by its number, by
//! what can be told of it.

use vouch_nfs4::Status;
use vouch_nfs4::op::{Args, Op};

use super::Place;
use crate::Server;
use crate::walk::{Core, Object};

/// Whether an operation may stand where it does, and be done at all.
pub(super) fn judge(core: &Core, args: &Args<'_>, place: &Place, server: &Server) -> Result<(), Status> {
    let op = args.op();
    if matches!(args, Args::Illegal(_)) {
        return Err(Status::OP_ILLEGAL);
    }
    if place.done >= server.config().limits.operations_max {
        return Err(if core.minor == 0 { Status::RESOURCE } else { Status::TOO_MANY_OPS });
    }
    if core.minor > 0 {
        let alone =
            matches!(op, Op::EXCHANGE_ID | Op::CREATE_SESSION | Op::BIND_CONN_TO_SESSION | Op::DESTROY_SESSION | Op::DESTROY_CLIENTID);
        match place.done {
            0 if op == Op::SEQUENCE => {}
            // RFC 8881, section 2.10.2 and the descriptions of these: without SEQUENCE they must be alone.
            0 if alone && place.count > 1 => return Err(Status::NOT_ONLY_OP),
            0 if alone => {}
            0 => return Err(Status::OP_NOT_IN_SESSION),
            _ if op == Op::SEQUENCE => return Err(Status::SEQUENCE_POS),
            // Section 18.34.3: never with others.
            _ if op == Op::BIND_CONN_TO_SESSION => return Err(Status::NOT_ONLY_OP),
            _ => {}
        }
        if op.removed_in_4_1() {
            return Err(Status::NOTSUPP);
        }
    }
    // What can't be recorded must not be done, where the administrator wants it so.
    if let Some(Object::File(file)) = &core.current
        && !server.observer().admits(core.op, file.grant.site.export.id)
    {
        return Err(Status::SERVERFAULT);
    }
    // What changes something must not be done if its result could not be told.
    if crate::op::changes(op) && core.result_at + core.spans_len + CHANGE_LEN_MAX > core.end_max {
        return Err(core.end_status);
    }
    Ok(())
}

/// Longest result of an operation that changes something: an OPEN with a delegation.
const CHANGE_LEN_MAX: usize = 512;
