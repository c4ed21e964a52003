//! The whole server: the input is a script of calls by several peers, of faults around the server,
//! and of time. RPC records are fuzzer bytes, or operations that the target builds with file
//! handles, stateids and client ids of the server.
#![no_main]

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes as Buffer;
use libfuzzer_sys::fuzz_target;
use vouch_nfs4::op::{self, Args, Results};
use vouch_nfs4::{
    Bytes, CallbackSec, ClientId, ClientOwner, CompoundHead, List, Name, ReplyHead, SessionId,
    SlotId, SlotSeq, StateProtect, Stateid, Verifier,
};
use vouch_nfs4_server::testing::{self, time_at};
use vouch_nfs4_server::{
    CallbackId, Connection, Effect, Flavour, JobProgress, Limits, Now, Principal, Progress,
    Recovered, Request, RunResult, Server, Unreachable,
};
use vouch_oncrpc::{AuthSys, Call, RecordReader};
use vouch_vfs::Blocking;
use vouch_vfs::memory::MemoryFs;
use vouch_xdr::{Reader, Writer, Xdr as _};

const PEERS: usize = 3;
const HEAD_LEN: usize = 28;

#[derive(Clone, Copy, Default)]
struct Given {
    client: ClientId,
    session: SessionId,
    seq: SlotSeq,
    create_seq: vouch_nfs4::CreateSeq,
    confirm: Verifier,
    stateid: Stateid,
}

struct FuzzedServer {
    server: Server,
    files: Arc<MemoryFs>,
    now_ms: u64,
    boot: u64,
    records: Vec<(Vec<u8>, Vec<u8>)>,
    callbacks: Vec<CallbackId>,
    peers: Vec<(Arc<Connection>, RecordReader, Given)>,
    calls: u32,
}

fn start(files: &Arc<MemoryFs>, boot: u64, now: Now, records: Vec<(Vec<u8>, Vec<u8>)>) -> Server {
    let limits = Limits {
        clients_max: 6,
        sessions_per_client_max: 3,
        opens_per_client_max: 8,
        locks_per_client_max: 8,
        ..Limits::default()
    };
    testing::server(files, boot, limits, Recovered { records }, now)
}

impl FuzzedServer {
    fn new() -> Self {
        let files = Arc::new(MemoryFs::new());
        files.set_capacity(1 << 20);
        let server = start(&files, 7, time_at(1_000), Vec::new());
        let peers = (0..PEERS as u16)
            .map(|peer| {
                (
                    server.connection_opened(address(peer)),
                    RecordReader::new(1 << 16),
                    Given::default(),
                )
            })
            .collect();
        FuzzedServer {
            server,
            files,
            now_ms: 1_000,
            boot: 7,
            records: Vec::new(),
            callbacks: Vec::new(),
            peers,
            calls: 0,
        }
    }

    fn now(&self) -> Now {
        time_at(self.now_ms)
    }

    /// As from the peer's socket.
    fn receive(&mut self, peer: usize, bytes: &[u8]) {
        let mut records = Vec::new();
        let mut rest = bytes;
        let (_, reader, _) = &mut self.peers[peer];
        loop {
            match reader.next(&mut rest) {
                Ok(Some(record)) => records.push(record.to_vec()),
                Ok(None) => break,
                Err(_) => {
                    *reader = RecordReader::new(1 << 16);
                    break;
                }
            }
        }
        for record in records {
            let Ok(call) = Call::decode(&record) else { continue };
            let mut r = Reader::new(call.cred.body);
            let principal = match AuthSys::decode(&mut r) {
                Ok(AuthSys { uid, gid, gids, .. }) => {
                    Principal::Sys { uid, gid, gids: gids.into() }
                }
                Err(_) => Principal::None,
            };
            self.call(peer, call.xid, principal, call.args.to_vec());
        }
    }

    fn call(&mut self, peer: usize, xid: u32, principal: Principal, body: Vec<u8>) {
        let flavour = if principal == Principal::None { Flavour::None } else { Flavour::Sys };
        let request = Request {
            connection: self.peers[peer].0.clone(),
            xid,
            principal,
            flavour,
            enctype: None,
            body: Buffer::from(body),
            reply: vec![0; HEAD_LEN],
            reply_tail_len: 0,
            spans_allowed: true,
        };
        let mut compound = self.server.begin(request, self.now());
        let mut blocking = Blocking::Forbidden;
        let reply = loop {
            let RunResult { effects, progress } = compound.run(&self.server, blocking);
            self.carry(effects);
            match progress {
                Progress::Done(reply) => break reply,
                Progress::Blocked(_) => {
                    assert_eq!(blocking, Blocking::Forbidden, "with blocking nothing blocks");
                    blocking = Blocking::Allowed;
                }
            }
        };
        if let Some(reply) = reply {
            self.note(peer, &reply.bytes[HEAD_LEN..]);
        }
    }

    /// Decodes a reply, which must succeed, and keeps the values for the peer.
    fn note(&mut self, peer: usize, reply: &[u8]) {
        let mut r = Reader::new(reply);
        let head = ReplyHead::decode(&mut r).expect("a reply has a head");
        let given = &mut self.peers[peer].2;
        for _ in 0..head.count {
            match Results::decode(&mut r).expect("a reply has the announced number of results") {
                Results::ExchangeId(Ok(ok)) => {
                    (given.client, given.create_seq) = (ok.client, ok.seq)
                }
                Results::CreateSession(Ok(ok)) => {
                    (given.session, given.seq) = (ok.session, SlotSeq(0))
                }
                Results::Setclientid(Ok(ok)) => {
                    (given.client, given.confirm) = (ok.client, ok.confirm)
                }
                Results::Sequence(Ok(ok)) => given.seq = ok.seq,
                Results::Open(Ok(ok)) => given.stateid = ok.stateid,
                Results::OpenConfirm(Ok(ok)) => given.stateid = ok.stateid,
                Results::Lock(Ok(ok)) => given.stateid = ok.stateid,
                _ => {}
            }
        }
        r.finish().expect("a reply ends with its last result");
    }

    fn carry(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Callback { id, .. } => self.callbacks.push(id),
                Effect::Persist { key, value, .. } => {
                    self.records.retain(|(other, _)| *other != key);
                    self.records.push((key, value));
                }
                Effect::Forget { key, .. } => self.records.retain(|(other, _)| *other != key),
                Effect::GraceEnded
                | Effect::AddressMismatch { .. }
                | Effect::NameConflict { .. }
                | Effect::ClientEnded { .. }
                | Effect::RecallOverdue { .. }
                | Effect::Disconnect(_) => {}
                Effect::Background(mut job) => {
                    while !matches!(job.step(&self.server, self.now()), JobProgress::Done(_)) {}
                }
            }
        }
    }

    /// Replaces placeholders by the peer's values.
    fn built(&mut self, peer: usize, kind: u8, bytes: &[u8]) {
        let given = self.peers[peer].2;
        let name = [b'n', kind >> 4];
        let attrs = op::ChannelAttrs {
            header_pad_size: 0,
            request_len_max: 1 << 16,
            response_len_max: 1 << 16,
            response_cached_len_max: 4096,
            operations_max: 32,
            requests_max: 4,
            rdma_ird: None,
        };
        let owner = ClientOwner { verifier: Verifier([kind >> 6; 8]), id: Bytes(&name) };
        let (minor, head): (u32, Vec<Args<'_>>) = match kind % 8 {
            0 => {
                let flags = op::ExchangeIdFlags(0);
                (
                    1,
                    vec![Args::ExchangeId(op::ExchangeIdArgs {
                        owner,
                        flags,
                        state_protect: StateProtect::None,
                        impl_id: None,
                    })],
                )
            }
            1 => {
                let args = op::CreateSessionArgs {
                    client: given.client,
                    seq: given.create_seq,
                    flags: op::CreateSessionFlags::CONN_BACK_CHAN,
                    fore: attrs,
                    back: attrs,
                    callback_program: 1,
                    sec_parms: List(vec![CallbackSec::None]),
                };
                (1, vec![Args::CreateSession(args)])
            }
            2 => {
                let location =
                    vouch_nfs4::NetAddr { netid: Bytes(b"tcp"), address: Bytes(b"127.0.0.1.8.1") };
                let callback = op::CallbackClient { program: 1, location };
                (
                    0,
                    vec![Args::Setclientid(op::SetclientidArgs {
                        client: owner,
                        callback,
                        callback_ident: 1,
                    })],
                )
            }
            3 => (
                0,
                vec![Args::SetclientidConfirm(op::SetclientidConfirmArgs {
                    client: given.client,
                    confirm: given.confirm,
                })],
            ),
            4 => (0, vec![Args::Putrootfh, Args::Lookup(op::LookupArgs { name: Name(b"export") })]),
            _ => {
                let args = op::SequenceArgs {
                    session: given.session,
                    seq: given.seq.next(),
                    slot: SlotId(0),
                    highest_slot: SlotId(0),
                    cache_this: kind & 0x40 != 0,
                };
                let mut ops = vec![Args::Sequence(args)];
                if kind % 8 != 5 {
                    ops.extend([
                        Args::Putrootfh,
                        Args::Lookup(op::LookupArgs { name: Name(b"export") }),
                    ]);
                }
                (1 + u32::from(kind % 8 == 7), ops)
            }
        };
        let mut tail = bytes.to_vec();
        // 16 bytes of 0xfe become the peer's stateid, 8 bytes its client id.
        for (mark, own) in [
            (&[0xfe; 16][..], &state_bytes(&given.stateid)[..]),
            (&[0xfe; 8][..], &given.client.0.to_be_bytes()[..]),
        ] {
            while let Some(found) = tail.windows(mark.len()).position(|window| window == mark) {
                tail[found..found + mark.len()].copy_from_slice(own);
            }
        }
        let mut w = Writer::new();
        let count = head.len() as u32 + u32::from(!tail.is_empty()) * 8;
        CompoundHead { tag: b"", minor, count }.encode(&mut w);
        head.iter().for_each(|op| op.encode(&mut w));
        w.bytes_mut().extend_from_slice(&tail);
        self.calls += 1;
        let principal = Principal::Sys { uid: 0, gid: 0, gids: [].into() };
        self.call(peer, self.calls, principal, w.into_bytes());
    }

    fn restart(&mut self) {
        self.boot += 1;
        self.callbacks.clear();
        self.server = start(&self.files, self.boot, self.now(), std::mem::take(&mut self.records));
        for (peer, (connection, _, _)) in self.peers.iter_mut().enumerate() {
            *connection = self.server.connection_opened(address(peer as u16));
        }
    }
}

fn address(peer: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 700 + peer))
}

fn state_bytes(stateid: &Stateid) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&stateid.seq.0.to_be_bytes());
    bytes[4..].copy_from_slice(&stateid.other);
    bytes
}

fuzz_target!(|input: &[u8]| {
    let mut fuzzed = FuzzedServer::new();
    let mut rest = input;
    // Action, argument, and length of the step's bytes.
    while let [action, argument, len, tail @ ..] = rest {
        let (bytes, after) = tail.split_at((usize::from(*len) * 2).min(tail.len()));
        rest = after;
        let peer = usize::from(action >> 4) % PEERS;
        match action & 15 {
            0..=8 => fuzzed.built(peer, *argument, bytes),
            9 => fuzzed.receive(peer, bytes),
            10 => {
                fuzzed.now_ms += u64::from(*argument) * 100;
                let tick = fuzzed.server.tick(fuzzed.now());
                fuzzed.carry(tick.effects);
            }
            11 => {
                for id in std::mem::take(&mut fuzzed.callbacks) {
                    let answer = match argument % 4 {
                        1 => Err(Unreachable::Peer),
                        3 => Err(Unreachable::Context),
                        _ => Ok(bytes),
                    };
                    let effects = fuzzed.server.callback_reply(id, answer, fuzzed.now());
                    fuzzed.carry(effects);
                }
            }
            12 => {
                let effects = fuzzed.server.connection_closed(&fuzzed.peers[peer].0, fuzzed.now());
                fuzzed.carry(effects);
                fuzzed.peers[peer].0 = fuzzed.server.connection_opened(address(peer as u16));
            }
            13 => fuzzed.files.set_random_blocking(u64::from(*argument)),
            14 => fuzzed.files.evict_caches(),
            _ => fuzzed.restart(),
        }
        let (totals, _) = fuzzed.server.totals(fuzzed.now());
        assert!(totals.clients <= 6 && totals.sessions <= 18 && totals.opens <= 48);
    }
    // All peers are silent until their leases expire; no state may be left.
    for _ in 0..4 {
        fuzzed.now_ms += 26 * 3600 * 1000;
        let tick = fuzzed.server.tick(fuzzed.now());
        fuzzed.carry(tick.effects);
        for id in std::mem::take(&mut fuzzed.callbacks) {
            let effects = fuzzed.server.callback_reply(id, Err(Unreachable::Peer), fuzzed.now());
            fuzzed.carry(effects);
        }
    }
    let (totals, _) = fuzzed.server.totals(fuzzed.now());
    assert_eq!(
        (totals.clients, totals.sessions, totals.opens, totals.locks, totals.delegations),
        (0, 0, 0, 0, 0)
    );
    assert_eq!(fuzzed.files.open_count(), 0);
});
