use vouch_nfs4::op::{Args, Results};
use vouch_nfs4::{CallbackHead, CompoundHead, ReplyHead, ReplyWriter, Status, cb};
use vouch_oncrpc::{Accepted, Call, Reply};
use vouch_xdr::{Reader, Writer};

pub(crate) fn compound(minor: u32, ops: &[Args<'_>]) -> Vec<u8> {
    let mut w = Writer::new();
    CompoundHead { tag: b"", minor, count: ops.len() as u32 }.encode(&mut w);
    ops.iter().for_each(|op| op.encode(&mut w));
    w.into_bytes()
}

pub(crate) fn results(reply: &[u8]) -> (Status, Vec<Results<'static>>) {
    let reply: &'static [u8] = reply.to_vec().leak();
    let mut r = Reader::new(reply);
    let head = ReplyHead::decode(&mut r).expect("a reply has a head");
    let list: Vec<_> = (0..head.count)
        .map(|_| Results::decode(&mut r).expect("as many results as the head says"))
        .collect();
    r.finish().expect("a reply ends with its last result");
    assert_eq!(
        list.last().map_or(head.status, Results::status),
        head.status,
        "the status is that of the last result"
    );
    (head.status, list)
}

pub(crate) fn callback(record: &[u8]) -> (u32, Option<cb::CbSequenceArgs>, Option<cb::Args<'_>>) {
    let call = Call::decode(record).expect("a callback is a call");
    if call.procedure == vouch_nfs4::PROC_NULL {
        return (call.xid, None, None);
    }
    let mut r = Reader::new(call.args);
    let head = CallbackHead::decode(&mut r).expect("a callback has a head");
    let (mut sequence, mut op) = (None, None);
    for _ in 0..head.count {
        match cb::Args::decode(head.minor, &mut r).expect("a callback can be read") {
            cb::Args::Sequence(args) => sequence = Some(args),
            args => op = Some(args),
        }
    }
    r.finish().expect("a callback ends with its last operation");
    (call.xid, sequence, op)
}

pub(crate) fn callback_reply(
    xid: u32,
    sequence: Option<&cb::CbSequenceArgs>,
    op: Option<&cb::Results<'_>>,
) -> Vec<u8> {
    let mut body = Writer::new();
    if op.is_some() {
        let head = ReplyWriter::begin(&mut body, b"");
        let mut count = 0;
        if let Some(args) = sequence {
            cb::Results::Sequence(Ok(cb::CbSequenceOk {
                session: args.session,
                seq: args.seq,
                slot: args.slot,
                highest_slot: args.highest_slot,
                target_highest_slot: args.highest_slot,
            }))
            .encode(&mut body);
            count += 1;
        }
        if let Some(result) = op {
            result.encode(&mut body);
            count += 1;
        }
        head.finish(&mut body, op.map_or(Status::OK, cb::Results::status), count);
    }
    let mut w = Writer::new();
    Reply::accepted(xid, Accepted::Success(&body.into_bytes())).encode(&mut w);
    w.into_bytes()
}
