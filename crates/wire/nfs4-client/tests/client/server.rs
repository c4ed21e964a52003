//! One session, files of one directory in memory, and configurable faults.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use vouch_nfs4::attr::FileType;
use vouch_nfs4::op::*;
use vouch_nfs4::*;
use vouch_oncrpc::{
    Accepted, AuthStat, Call, Denied, RecordReader, Reply, begin_record, end_record, write_record,
};
use vouch_rpcsec_gss::{Credential, Procedure};
use vouch_xdr::{Reader, Writer};

#[derive(Default, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProtectionReply {
    #[default]
    Granted,
    /// As by NFS-Ganesha.
    Ignored,
    Refused(Status),
}

#[derive(Default)]
pub(crate) struct ServerState {
    pub files: BTreeMap<Vec<u8>, Vec<u8>>,
    pub dropped_replies: u32,
    /// Calls that are executed, and first answered as a copy of a call that is executing.
    pub delayed_replies: u32,
    pub answers_wrong_slot: bool,
    /// Otherwise replies are cached that the client does not want cached.
    pub caches_only_on_request: bool,
    pub replies_per_write: usize,
    pub recall: Option<cb::CbRecallArgs>,
    pub recall_follows_reply: bool,
    /// A recall before and after each reply.
    pub recalls_always: bool,
    /// Replies with an unknown message type.
    pub garbled_replies: u32,
    pub recall_answer: Option<Vec<u8>>,
    pub protection_requests: Vec<bool>,
    pub protection: ProtectionReply,
    pub denials: u32,
    /// For the next BACKCHANNEL_CTL operations, in reverse order; then OK.
    pub offer_statuses: Vec<Status>,
    pub offered_handles: Vec<Vec<u8>>,
    pub refuses_sessions: bool,
    /// Each reply is sent twice.
    pub repeats_replies: bool,
    /// Sessions and client ids.
    pub destroyed: Vec<Op>,
    pub writes: u32,
    /// Number by address of the server.
    pub connections: BTreeMap<SocketAddr, usize>,
    pub destroyed_contexts: Vec<Vec<u8>>,
    slots: Vec<(u32, Vec<u8>)>,
    session: u8,
}

pub(crate) type Shared = Arc<Mutex<ServerState>>;

pub(crate) async fn start() -> (SocketAddr, Shared) {
    let server_state = Shared::default();
    (listen(&server_state).await, server_state)
}

/// Another address of the server.
pub(crate) async fn listen(server_state: &Shared) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shared = server_state.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            *shared.lock().unwrap().connections.entry(address).or_default() += 1;
            tokio::spawn(serve(stream, shared.clone()));
        }
    });
    address
}

async fn serve(mut stream: TcpStream, server_state: Shared) {
    let mut reader = RecordReader::new(4 << 20);
    let mut bytes = vec![0; 65_536];
    let (mut out, mut pending_replies) = (Writer::new(), 0);
    loop {
        let Ok(n @ 1..) = stream.read(&mut bytes).await else { return };
        let mut input = &bytes[..n];
        while let Ok(Some(record)) = reader.next(&mut input) {
            if !answer(&record, &server_state, &mut out) {
                return;
            }
            pending_replies += 1;
        }
        if pending_replies < server_state.lock().unwrap().replies_per_write {
            continue;
        }
        if stream.write_all(out.as_bytes()).await.is_err() {
            return;
        }
        out.truncate(0);
        pending_replies = 0;
    }
}

fn answer(record: &[u8], server_state: &Shared, out: &mut Writer) -> bool {
    let mut server_state = server_state.lock().unwrap();
    if record[4..8] == [0, 0, 0, 1] {
        server_state.recall_answer = Some(record.to_vec());
        return true;
    }
    let call = Call::decode(record).unwrap();
    // RFC 2203 §5.4.
    if call.procedure == 0 {
        let credential = Credential::decode(call.cred.body).unwrap();
        assert_eq!(credential.procedure, Procedure::Destroy);
        server_state.destroyed_contexts.push(credential.handle.to_vec());
        write_record(out, |w| Reply::accepted(call.xid, Accepted::Success(&[])).encode(w));
        return true;
    }
    if server_state.denials > 0 {
        server_state.denials -= 1;
        let denied = Denied::AuthError(AuthStat::RPCSEC_GSS_CTX_PROBLEM);
        write_record(out, |w| Reply::denied(call.xid, denied).encode(w));
        return true;
    }
    let mut body = Writer::new();
    compound(call.args, &mut server_state, &mut body);
    if server_state.delayed_replies > 0 {
        server_state.delayed_replies -= 1;
        body = Writer::new();
        let reply = ReplyWriter::begin(&mut body, b"");
        Results::Sequence(Err(Status::DELAY)).encode(&mut body);
        reply.finish(&mut body, Status::DELAY, 1);
    }
    if server_state.dropped_replies > 0 {
        server_state.dropped_replies -= 1;
        return false;
    }
    let always = server_state.recalls_always;
    let (recalled, after) = (
        if always { server_state.recall } else { server_state.recall.take() },
        server_state.recall_follows_reply,
    );
    if let Some(args) = recalled.as_ref().filter(|_| always || !after) {
        recall(args, &server_state, out);
    }
    let start = begin_record(out);
    Reply::accepted(call.xid, Accepted::Success(body.as_bytes())).encode(out);
    if server_state.garbled_replies > 0 {
        server_state.garbled_replies -= 1;
        out.set_u32(start + 8, 7);
    }
    end_record(out.bytes_mut(), start, 0);
    if server_state.repeats_replies {
        let again = out.as_bytes()[start..].to_vec();
        out.raw(&again);
    }
    if let Some(args) = recalled.as_ref().filter(|_| always || after) {
        recall(args, &server_state, out);
    }
    true
}

fn recall(args: &cb::CbRecallArgs, server_state: &ServerState, out: &mut Writer) {
    let mut body = Writer::new();
    CallbackHead { tag: b"", minor: 1, ident: 0, count: 2 }.encode(&mut body);
    let sequence = cb::CbSequenceArgs {
        session: SessionId([server_state.session; 16]),
        seq: SlotSeq(1),
        slot: SlotId(0),
        highest_slot: SlotId(0),
        cache_this: false,
        referring: List::default(),
    };
    cb::Args::Sequence(sequence).encode(&mut body);
    cb::Args::Recall(*args).encode(&mut body);
    write_record(out, |w| Call::new(77, (0x4000_0000, 1), 1, body.as_bytes()).encode(w));
}

fn compound(args: &[u8], server_state: &mut ServerState, out: &mut Writer) {
    let mut r = Reader::new(args);
    let head = CompoundHead::decode(&mut r).unwrap();
    let reply = ReplyWriter::begin(out, head.tag);
    let (mut status, mut count, mut current, mut slot) = (Status::OK, 0, Vec::new(), None);
    while count < head.count && status.is_ok() {
        count += 1;
        let args = Args::decode(head.minor, &mut r).unwrap();
        let results = match &args {
            Args::Sequence(args)
                if server_state.refuses_sessions
                    || args.session != SessionId([server_state.session; 16]) =>
            {
                Results::Sequence(Err(Status::BADSESSION))
            }
            Args::Sequence(args) => {
                let at = args.slot.0 as usize;
                if server_state.slots[at].0 == args.seq.0 {
                    out.truncate(0);
                    if server_state.caches_only_on_request && !args.cache_this {
                        let reply = ReplyWriter::begin(out, head.tag);
                        Results::Sequence(Ok(sequence_ok(args, args.slot, server_state)))
                            .encode(out);
                        let second = Args::decode(head.minor, &mut r).unwrap();
                        Results::failure(second.op(), Status::RETRY_UNCACHED_REP).encode(out);
                        reply.finish(out, Status::RETRY_UNCACHED_REP, 2);
                        return;
                    }
                    out.raw(&server_state.slots[at].1);
                    return;
                }
                assert_eq!(server_state.slots[at].0.wrapping_add(1), args.seq.0, "slot {at}");
                slot = Some((at, args.seq.0));
                let slot = SlotId(args.slot.0 + u32::from(server_state.answers_wrong_slot));
                Results::Sequence(Ok(sequence_ok(args, slot, server_state)))
            }
            other => operation(other, server_state, &mut current),
        };
        status = results.status();
        results.encode(out);
    }
    reply.finish(out, status, count);
    if let Some((at, seq)) = slot {
        server_state.slots[at] = (seq, out.as_bytes().to_vec());
    }
}

fn sequence_ok(args: &SequenceArgs, slot: SlotId, server_state: &ServerState) -> SequenceOk {
    let highest = SlotId(server_state.slots.len() as u32 - 1);
    SequenceOk {
        session: args.session,
        seq: args.seq,
        slot,
        highest_slot: highest,
        target_highest_slot: highest,
        flags: SequenceFlags(0),
    }
}

fn operation(
    args: &Args<'_>,
    server_state: &mut ServerState,
    current: &mut Vec<u8>,
) -> Results<'static> {
    let change = ChangeInfo::default();
    let stateid = Stateid { seq: StateSeq(1), other: [9; 12] };
    match args {
        Args::ExchangeId(args) => {
            server_state.protection_requests.push(args.state_protect != StateProtect::None);
            let state_protect = match (&args.state_protect, server_state.protection) {
                (StateProtect::None, _) | (_, ProtectionReply::Ignored) => StateProtectReply::None,
                (StateProtect::MachineCred(ops), ProtectionReply::Granted) => {
                    StateProtectReply::MachineCred(*ops)
                }
                (_, ProtectionReply::Refused(status)) => return Results::ExchangeId(Err(status)),
                (StateProtect::Ssv(_), _) => {
                    return Results::ExchangeId(Err(Status::ENCR_ALG_UNSUPP));
                }
            };
            server_state.session += 1;
            let owner = ServerOwner { minor: 0, major: Bytes(b"scripted") };
            let (client, seq, flags) = (
                ClientId(u64::from(server_state.session)),
                CreateSeq(1),
                ExchangeIdFlags(0x1_0000),
            );
            Results::ExchangeId(Ok(ExchangeIdOk {
                client,
                seq,
                flags,
                state_protect,
                server_owner: owner,
                server_scope: Bytes(b""),
                impl_id: None,
            }))
        }
        Args::CreateSession(args) => {
            server_state.refuses_sessions = false;
            server_state.slots = vec![(0, Vec::new()); args.fore.requests_max as usize];
            let (session, seq, flags) =
                (SessionId([server_state.session; 16]), args.seq, args.flags);
            Results::CreateSession(Ok(CreateSessionOk {
                session,
                seq,
                flags,
                fore: args.fore,
                back: args.back,
            }))
        }
        Args::BindConnToSession(_) if server_state.refuses_sessions => {
            Results::BindConnToSession(Err(Status::BADSESSION))
        }
        Args::BindConnToSession(args) => Results::BindConnToSession(Ok(BindConnOk {
            session: args.session,
            dir: ChannelDirServer::Both,
            rdma: false,
        })),
        Args::BackchannelCtl(args) => {
            let [CallbackSec::Gss(offer)] = &args.sec_parms.0[..] else {
                panic!("expected a GSS context")
            };
            server_state.offered_handles.push(offer.from_server.0.to_vec());
            Results::BackchannelCtl(server_state.offer_statuses.pop().map_or(Ok(()), Err))
        }
        Args::ReclaimComplete(_) => Results::ReclaimComplete(Ok(())),
        Args::DestroySession(_) => {
            server_state.destroyed.push(Op::DESTROY_SESSION);
            Results::DestroySession(Ok(()))
        }
        Args::DestroyClientid(_) => {
            server_state.destroyed.push(Op::DESTROY_CLIENTID);
            Results::DestroyClientid(Ok(()))
        }
        Args::Setclientid(_) => Results::Setclientid(Ok(SetclientidOk {
            client: ClientId(40),
            confirm: Verifier([4; 8]),
        })),
        Args::SetclientidConfirm(args) => {
            assert_eq!((args.client, args.confirm), (ClientId(40), Verifier([4; 8])));
            Results::SetclientidConfirm(Ok(()))
        }
        Args::Putrootfh => {
            current.clear();
            Results::Putrootfh(Ok(()))
        }
        Args::Putfh(args) => {
            *current = args.handle.as_bytes().to_vec();
            Results::Putfh(Ok(()))
        }
        Args::Lookup(args) => match server_state.files.contains_key(args.name.0) {
            true => {
                *current = args.name.0.to_vec();
                Results::Lookup(Ok(()))
            }
            false => Results::Lookup(Err(Status::NOENT)),
        },
        Args::Getfh => Results::Getfh(Ok(GetfhOk { handle: Filehandle::new(current).unwrap() })),
        Args::Getattr(args) => {
            let (kind, size) = match server_state.files.get(current) {
                Some(data) => (FileType::Regular, data.len() as u64),
                None => (FileType::Directory, 0),
            };
            let attributes = Attributes {
                file_type: Some(kind),
                size: Some(size),
                mode: Some(0o644),
                ..Attributes::default()
            };
            let mut w = Writer::new();
            GetattrOk::write(&mut w, args.wanted, &attributes);
            Results::decode(&mut Reader::new(w.into_bytes().leak())).unwrap()
        }
        Args::Open(args) => {
            let OpenClaim::Null(name) = args.claim else {
                return Results::Open(Ok(opened(stateid, change, OpenResultFlags(0))));
            };
            if let OpenHow::Create(_) = args.how {
                server_state.files.entry(name.0.to_vec()).or_default();
            }
            *current = name.0.to_vec();
            let flags = if args.owner.client.0 == 40 {
                OpenResultFlags::CONFIRM
            } else {
                OpenResultFlags(0)
            };
            match server_state.files.contains_key(name.0) {
                true => Results::Open(Ok(opened(stateid, change, flags))),
                false => Results::Open(Err(Status::NOENT)),
            }
        }
        Args::OpenConfirm(args) => {
            assert_eq!(args.seq, OwnerSeq(1));
            Results::OpenConfirm(Ok(OpenConfirmOk { stateid }))
        }
        Args::Write(args) => {
            server_state.writes += 1;
            let data = server_state.files.entry(current.clone()).or_default();
            let end = args.offset as usize + args.data.len();
            data.resize(data.len().max(end), 0);
            data[args.offset as usize..end].copy_from_slice(&args.data);
            Results::Write(Ok(WriteOk {
                count: args.data.len() as u32,
                committed: args.stable,
                verifier: Verifier([1; 8]),
            }))
        }
        Args::Read(args) => {
            let data = server_state.files.get(current).cloned().unwrap_or_default().leak();
            let start = data.len().min(args.offset as usize);
            let end = data.len().min(start + args.count as usize);
            Results::Read(Ok(ReadOk { eof: end == data.len(), data: Bytes(&data[start..end]) }))
        }
        Args::Commit(_) => Results::Commit(Ok(CommitOk { verifier: Verifier([1; 8]) })),
        Args::Close(_) => Results::Close(Ok(CloseOk { stateid })),
        Args::Remove(args) => match server_state.files.remove(args.name.0) {
            Some(_) => Results::Remove(Ok(RemoveOk { change })),
            None => Results::Remove(Err(Status::NOENT)),
        },
        Args::Readdir(args) => {
            let mut w = Writer::new();
            let mut list = ReaddirWriter::begin(&mut w, Verifier([2; 8]), 200).unwrap();
            let attributes = Attributes { fileid: Some(5), ..Attributes::default() };
            let rest = server_state
                .files
                .keys()
                .enumerate()
                .skip(args.cookie.0.saturating_sub(2) as usize);
            let all = rest.fold(true, |fits, (at, name)| {
                fits && list.push(
                    &mut w,
                    Cookie(at as u64 + 3),
                    Name(name),
                    args.wanted,
                    &attributes,
                )
            });
            list.finish(&mut w, all);
            Results::decode(&mut Reader::new(w.into_bytes().leak())).unwrap()
        }
        other => Results::failure(other.op(), Status::NOTSUPP),
    }
}

fn opened(stateid: Stateid, change: ChangeInfo, flags: OpenResultFlags) -> OpenOk<'static> {
    OpenOk { stateid, change, flags, attrs_set: Bitmap::EMPTY, delegation: Delegation::None }
}
