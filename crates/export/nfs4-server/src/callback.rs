//! Callbacks as RPC calls, and their replies (RFC 8881 §20; RFC 7530 §15).

use vouch_nfs4::attr::Attr;
use vouch_nfs4::cb::{
    Args, CbGetattrArgs, CbNotifyLockArgs, CbOffloadArgs, CbRecallAnyArgs, CbRecallArgs,
    CbSequenceArgs, Results,
};
use vouch_nfs4::{
    Bitmap, Bytes, CALLBACK_VERSION, CallbackHead, ClientId, List, PROC_COMPOUND, PROC_NULL,
    ReplyHead, StateOwner, Status,
};
use vouch_oncrpc::{Accepted, AuthSys, Call, Flavor, OpaqueAuth, Reply, ReplyBody};
use vouch_xdr::{Reader, Writer, Xdr as _};

use crate::Effect;
use crate::filehandle::{HandleCodec, HandleTarget};
use crate::state::{
    CallbackAnswer, CallbackCredential, CallbackOp, FileKey, HolderAttributes, OutgoingCallback,
};

pub(crate) fn encode(callback: &OutgoingCallback, xid: u32, handles: &HandleCodec) -> Effect {
    let mut args = Writer::new();
    let null = callback.op == CallbackOp::Null;
    if !null {
        let count = 1 + u32::from(callback.sequence.is_some());
        CallbackHead { tag: b"", minor: callback.minor, ident: callback.ident, count }
            .encode(&mut args);
        if let Some(sequence) = callback.sequence {
            Args::Sequence(CbSequenceArgs {
                session: sequence.session,
                seq: sequence.seq,
                slot: sequence.slot,
                highest_slot: sequence.highest_slot,
                cache_this: false,
                referring: List::default(),
            })
            .encode(&mut args);
        }
        operation(&callback.op, handles, &mut args);
    }
    let mut context = None;
    let credential = match &callback.credential {
        CallbackCredential::None => None,
        CallbackCredential::Gss(by) => {
            context = Some(by.clone());
            None
        }
        CallbackCredential::Sys { uid, gid, machine } => Some(
            AuthSys {
                stamp: 0,
                machine_name: machine.to_vec(),
                uid: *uid,
                gid: *gid,
                gids: Vec::new(),
            }
            .to_xdr(),
        ),
    };
    let cred = match &credential {
        None => OpaqueAuth::NONE,
        Some(body) => OpaqueAuth { flavor: Flavor::SYS, body },
    };
    let mut record = Writer::new();
    let procedure = if null { PROC_NULL } else { PROC_COMPOUND };
    let args = args.into_bytes();
    Call { cred, ..Call::new(xid, (callback.program, CALLBACK_VERSION), procedure, &args) }
        .encode(&mut record);
    Effect::Callback {
        id: callback.id,
        to: callback.to,
        xid,
        record: record.into_bytes(),
        context,
        timeout_ms: callback.timeout_ms,
    }
}

fn operation(op: &CallbackOp, handles: &HandleCodec, args: &mut Writer) {
    let handle = |file: &FileKey| handles.seal(&HandleTarget::File(file.export, file.file));
    match op {
        CallbackOp::Null => {}
        CallbackOp::Recall { stateid, file, truncate } => {
            Args::Recall(CbRecallArgs {
                stateid: *stateid,
                truncate: *truncate,
                handle: handle(file),
            })
            .encode(args);
        }
        CallbackOp::RecallAny { keep } => {
            Args::RecallAny(CbRecallAnyArgs {
                objects_to_keep: *keep,
                type_mask: Bitmap::of(&[READ_DELEGATIONS, WRITE_DELEGATIONS]),
            })
            .encode(args);
        }
        CallbackOp::Getattr { file, times } => {
            let mut wanted = Bitmap::of(&[Attr::CHANGE.0, Attr::SIZE.0]);
            if *times {
                wanted = wanted.with(Attr::TIME_DELEG_ACCESS.0).with(Attr::TIME_DELEG_MODIFY.0);
            }
            Args::Getattr(CbGetattrArgs { handle: handle(file), wanted }).encode(args);
        }
        CallbackOp::NotifyLock { file, owner } => {
            // RFC 8881 §20.11.3: not used in 4.1.
            let owner = StateOwner { client: ClientId(0), owner: Bytes(owner) };
            Args::NotifyLock(CbNotifyLockArgs { handle: handle(file), owner }).encode(args);
        }
        CallbackOp::Offload { file, stateid, info } => {
            Args::Offload(CbOffloadArgs { handle: handle(file), stateid: *stateid, info: *info })
                .encode(args);
        }
    }
}

/// RFC 8881 §20.6.1.
const READ_DELEGATIONS: u32 = 0;
const WRITE_DELEGATIONS: u32 = 1;

/// `record`: the whole RPC message.
pub(crate) fn answer(record: &[u8]) -> CallbackAnswer {
    read(record).unwrap_or(CallbackAnswer::Unreachable)
}

fn read(record: &[u8]) -> Option<CallbackAnswer> {
    let reply = Reply::decode(record).ok()?;
    let ReplyBody::Accepted { outcome: Accepted::Success(results), .. } = reply.body else {
        return None;
    };
    let mut answered = (Status::OK, None, Status::OK, None);
    if !results.is_empty() {
        let mut r = Reader::new(results);
        let head = ReplyHead::decode(&mut r).ok()?;
        for _ in 0..head.count.min(2) {
            match Results::decode(&mut r).ok()? {
                Results::Sequence(Ok(ok)) => answered.1 = Some(ok.highest_slot),
                Results::Sequence(Err(status)) => answered.0 = status,
                Results::Getattr(Ok(ok)) => {
                    let attributes = ok.attrs.attributes().ok()?;
                    answered.3 = attributes.size.zip(attributes.change).map(|(size, change)| {
                        HolderAttributes {
                            size,
                            change: change.0,
                            accessed: attributes.time_deleg_access.filter(|time| time.is_valid()),
                            modified: attributes.time_deleg_modify.filter(|time| time.is_valid()),
                        }
                    });
                }
                other => answered.2 = other.status(),
            }
        }
        if head.count == 0 {
            answered.2 = head.status;
        }
    }
    let (sequence, highest_slot, status, attributes) = answered;
    Some(CallbackAnswer::Answered { sequence, highest_slot, status, attributes })
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn garbage_is_unreachable_without_panic(bytes: Vec<u8>) {
            let _ = answer(&bytes);
        }
    }
}
