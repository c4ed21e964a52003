use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use vouch_nfs4::attr::FileType;
use vouch_nfs4::op::{
    Args, CloseOk, CommitOk, CreateOk, CreateSessionOk, Delegation, ExchangeIdFlags, ExchangeIdOk,
    GetattrOk, GetfhOk, OpenClaim, OpenHow, OpenOk, OpenResultFlags, ReadOk, ReaddirWriter,
    RemoveOk, Results, SequenceFlags, SequenceOk, WriteOk,
};
use vouch_nfs4::op::{ExchangeIdArgs, OpenArgs, ReaddirArgs, WriteArgs};
use vouch_nfs4::{
    Attributes, Bitmap, Bytes, ChangeInfo, ClientId, CompoundHead, Cookie, CreateSeq, Filehandle,
    Name, ReplyWriter, ServerOwner, SessionId, SlotId, StateProtectReply, StateSeq, Stateid,
    Status, Verifier,
};
use vouch_oncrpc::{Accepted, Call, RecordReader, Reply, begin_record, end_record};
use vouch_xdr::{Reader, Writer};

#[derive(Default)]
pub(super) struct ServerState {
    pub(super) files: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) directories: BTreeSet<Vec<u8>>,
    pub(super) refuse: VecDeque<Status>,
    pub(super) forgets: bool,
    pub(super) tears: bool,
    pub(super) halves: Vec<(Vec<u8>, usize, Vec<u8>)>,
    pub(super) answers: Option<u32>,
    pub(super) drop_open: Option<u32>,
    pub(super) drop_getattr: Option<u32>,
    pub(super) drop_read: Option<u32>,
    pub(super) asked_on: BTreeSet<SocketAddr>,
    pub(super) silent: bool,
    /// Replies with an unknown message type.
    pub(super) garbled: u32,
    pub(super) sessions: u8,
    pub(super) ended: u8,
    pub(super) open: i64,
    pub(super) owners: BTreeSet<Vec<u8>>,
}

pub(super) type Shared = Arc<Mutex<ServerState>>;

pub(super) fn start() -> (SocketAddr, Shared) {
    let state = Shared::default();
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let (address, shared) = (listener.local_addr().expect("a port"), state.clone());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let state = shared.clone();
            std::thread::spawn(move || drop(serve(stream, &state)));
        }
    });
    (address, state)
}

fn serve(mut stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let (mut reader, mut bytes, peer) =
        (RecordReader::new(4 << 20), vec![0; 256 * 1024], stream.peer_addr()?);
    loop {
        let n = stream.read(&mut bytes)?;
        if n == 0 {
            return Ok(());
        }
        let (mut input, mut out) = (&bytes[..n], Writer::new());
        while let Ok(Some(record)) = reader.next(&mut input) {
            let call = Call::decode(&record).expect("a call");
            let (mut body, mut state) =
                (Writer::new(), shared.lock().unwrap_or_else(PoisonError::into_inner));
            let answered = compound(call.args, &mut state, peer, &mut body) && !state.silent;
            for (path, at, half) in std::mem::take(&mut state.halves) {
                drop(state);
                std::thread::sleep(Duration::from_micros(100));
                state = shared.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(data) = state.files.get_mut(&path) {
                    data[at..at + half.len()].copy_from_slice(&half);
                }
            }
            if answered {
                let start = begin_record(&mut out);
                Reply::accepted(call.xid, Accepted::Success(body.as_bytes())).encode(&mut out);
                if state.garbled > 0 {
                    state.garbled -= 1;
                    out.set_u32(start + 8, 7);
                }
                end_record(out.bytes_mut(), start, 0);
            }
        }
        stream.write_all(out.as_bytes())?;
    }
}

fn compound(args: &[u8], state: &mut ServerState, peer: SocketAddr, out: &mut Writer) -> bool {
    let mut r = Reader::new(args);
    let head = CompoundHead::decode(&mut r).expect("a compound");
    let reply = ReplyWriter::begin(out, head.tag);
    let (mut status, mut count, mut current) = (Status::OK, 0, Vec::new());
    while count < head.count && status.is_ok() {
        count += 1;
        let args = Args::decode(head.minor, &mut r).expect("an operation");
        if let (Args::Getattr(_), Some(answers)) = (&args, &mut state.answers) {
            match answers.checked_sub(1) {
                Some(left) => *answers = left,
                None => return false,
            }
        }
        let to_drop = match args {
            Args::Open(_) => &mut state.drop_open,
            Args::Getattr(_) => &mut state.drop_getattr,
            Args::Read(_) => &mut state.drop_read,
            _ => &mut None,
        };
        if let Some(left) = to_drop {
            *left -= 1;
            if *left == 0 {
                *to_drop = None;
                return false;
            }
        }
        if let Args::Getattr(_) = &args {
            state.asked_on.insert(peer);
        }
        let results = operation(&args, state, &mut current);
        status = results.status();
        results.encode(out);
    }
    reply.finish(out, status, count);
    true
}

fn operation(args: &Args<'_>, state: &mut ServerState, current: &mut Vec<u8>) -> Results<'static> {
    let (change, stateid) = (ChangeInfo::default(), STATEID);
    let below = |name: &Name<'_>| [&current[..], b"/", name.0].concat();
    match args {
        Args::ExchangeId(args) => exchange_id(args, state),
        Args::CreateSession(args) => {
            state.sessions += 1;
            let (session, seq, flags) = (SessionId([state.sessions; 16]), args.seq, args.flags);
            Results::CreateSession(Ok(CreateSessionOk {
                session,
                seq,
                flags,
                fore: args.fore,
                back: args.back,
            }))
        }
        Args::ReclaimComplete(_) => Results::ReclaimComplete(Ok(())),
        Args::Sequence(args) if args.session.0[0] <= state.ended => {
            Results::Sequence(Err(Status::BADSESSION))
        }
        Args::Sequence(args) => {
            let highest = SlotId(63);
            Results::Sequence(Ok(SequenceOk {
                session: args.session,
                seq: args.seq,
                slot: args.slot,
                highest_slot: highest,
                target_highest_slot: highest,
                flags: SequenceFlags(0),
            }))
        }
        Args::Putrootfh => {
            current.clear();
            Results::Putrootfh(Ok(()))
        }
        Args::Putfh(args) => {
            *current = args.handle.as_bytes().to_vec();
            Results::Putfh(Ok(()))
        }
        Args::Getfh => {
            Results::Getfh(Ok(GetfhOk { handle: Filehandle::new(current).expect("a short path") }))
        }
        Args::Lookup(args) => {
            let path = below(&args.name);
            match state.directories.contains(&path) || state.files.contains_key(&path) {
                true => {
                    *current = path;
                    Results::Lookup(Ok(()))
                }
                false => Results::Lookup(Err(Status::NOENT)),
            }
        }
        Args::Getattr(args) => {
            let mut w = Writer::new();
            GetattrOk::write(
                &mut w,
                args.wanted,
                &Attributes { file_type: Some(FileType::Directory), ..Attributes::default() },
            );
            Results::decode(&mut Reader::new(w.into_bytes().leak())).expect("encoded data")
        }
        Args::Create(args) => {
            *current = below(&args.name);
            state.directories.insert(current.clone());
            Results::Create(Ok(CreateOk { change, attrs_set: Bitmap::EMPTY }))
        }
        Args::Open(args) => open(args, state, current),
        Args::Write(args) => write(args, state, current),
        Args::Read(args) => {
            let data = state.files.get(current).cloned().unwrap_or_default().leak();
            let start = data.len().min(args.offset as usize);
            let end = data.len().min(start + args.count as usize);
            Results::Read(Ok(ReadOk { eof: end == data.len(), data: Bytes(&data[start..end]) }))
        }
        Args::Commit(_) => Results::Commit(Ok(CommitOk { verifier: Verifier([1; 8]) })),
        Args::Close(_) => {
            state.open -= 1;
            Results::Close(Ok(CloseOk { stateid }))
        }
        Args::Remove(args) => {
            let path = below(&args.name);
            match state.files.remove(&path).is_some() || state.directories.remove(&path) {
                true => Results::Remove(Ok(RemoveOk { change })),
                false => Results::Remove(Err(Status::NOENT)),
            }
        }
        Args::Readdir(args) => read_directory(args, state, &below(&Name(b""))),
        other => Results::failure(other.op(), Status::NOTSUPP),
    }
}

fn exchange_id(args: &ExchangeIdArgs<'_>, state: &mut ServerState) -> Results<'static> {
    state.owners.insert(args.owner.id.0.to_vec());
    Results::ExchangeId(Ok(ExchangeIdOk {
        client: ClientId(1),
        seq: CreateSeq(1),
        flags: ExchangeIdFlags::USE_NON_PNFS,
        state_protect: StateProtectReply::None,
        server_owner: ServerOwner { minor: 0, major: Bytes(b"in memory") },
        server_scope: Bytes(b""),
        impl_id: None,
    }))
}

fn open(args: &OpenArgs<'_>, state: &mut ServerState, current: &mut Vec<u8>) -> Results<'static> {
    let (change, stateid) = (ChangeInfo::default(), STATEID);
    let OpenClaim::Null(name) = args.claim else {
        return Results::failure(Args::Getfh.op(), Status::NOTSUPP);
    };
    *current = [&current[..], b"/", name.0].concat();
    match args.how {
        OpenHow::Create(_) => drop(state.files.entry(current.clone()).or_default()),
        OpenHow::NoCreate if state.files.contains_key(current) => {}
        OpenHow::NoCreate => return Results::Open(Err(Status::NOENT)),
    }
    state.open += 1;
    let (flags, attrs_set, delegation) = (OpenResultFlags(0), Bitmap::EMPTY, Delegation::None);
    Results::Open(Ok(OpenOk { stateid, change, flags, attrs_set, delegation }))
}

fn write(args: &WriteArgs<'_>, state: &mut ServerState, current: &[u8]) -> Results<'static> {
    if let Some(status) = state.refuse.pop_front() {
        return Results::Write(Err(status));
    }
    if state.forgets {
        return Results::Write(Ok(WriteOk {
            count: args.data.len() as u32,
            committed: args.stable,
            verifier: Verifier([1; 8]),
        }));
    }
    let Some(data) = state.files.get_mut(current) else {
        return Results::Write(Err(Status::STALE));
    };
    let end = args.offset as usize + args.data.len();
    data.resize(data.len().max(end), 0);
    let (first, second) =
        args.data.split_at(if state.tears { args.data.len() / 2 } else { args.data.len() });
    let middle = args.offset as usize + first.len();
    data[args.offset as usize..middle].copy_from_slice(first);
    if !second.is_empty() {
        state.halves.push((current.to_vec(), middle, second.to_vec()));
    }
    Results::Write(Ok(WriteOk {
        count: args.data.len() as u32,
        committed: args.stable,
        verifier: Verifier([1; 8]),
    }))
}

fn read_directory(args: &ReaddirArgs, state: &ServerState, prefix: &[u8]) -> Results<'static> {
    let all = state.directories.iter().map(|path| (path, FileType::Directory));
    let all = all.chain(state.files.keys().map(|path| (path, FileType::Regular)));
    let names = all.filter_map(|(path, kind)| Some((path.strip_prefix(prefix)?, kind)));
    let mut w = Writer::new();
    let mut list = ReaddirWriter::begin(&mut w, Verifier([2; 8]), 60_000).expect("room for some");
    for (cookie, (name, kind)) in (3..).zip(names.filter(|(name, _)| !name.contains(&b'/'))) {
        let attributes = Attributes { file_type: Some(kind), ..Attributes::default() };
        assert!(
            list.push(&mut w, Cookie(cookie), Name(name), args.wanted, &attributes),
            "few files"
        );
    }
    list.finish(&mut w, true);
    Results::decode(&mut Reader::new(w.into_bytes().leak())).expect("encoded data")
}

const STATEID: Stateid = Stateid { seq: StateSeq(1), other: [9; 12] };
