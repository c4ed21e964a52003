//! What state costs a READ: SEQUENCE, the check of its stateid and the end of its compound, with
//! one client and with ten thousand; and an OPEN with its CLOSE.
//!
//! `cargo run --release -p vouch-nfs4-server --example state-cost`

use std::sync::Arc;
use std::time::Instant;

use vouch_nfs4::op::{
    ChannelAttrs, CreateSessionArgs, CreateSessionFlags, ExchangeIdArgs, ExchangeIdFlags, SequenceArgs, ShareAccess, ShareDeny,
};
use vouch_nfs4::{Bytes, ClientOwner, List, SessionId, SlotId, SlotSeq, StateProtect, Stateid, Verifier};
use vouch_nfs4_server::state::*;
use vouch_nfs4_server::{ConnectionId, ExportId, Flavour, Limits, Principal};
use vouch_vfs::{FileId, Home, SystemId};

struct Peer {
    client: ClientKey,
    session: SessionId,
    connection: ConnectionId,
    seq: SlotSeq,
    file: FileKey,
    open: Stateid,
}

fn main() {
    for clients in [1, 10_000] {
        let mut state = state();
        let mut peers: Vec<Peer> = (0..clients).map(|number| peer(&mut state, number)).collect();
        let turns = 4_000_000u64;
        let begun = Instant::now();
        for turn in 0..turns {
            // A stride that is no neighbour of the last.
            let peer = &mut peers[(turn.wrapping_mul(7919) % clients) as usize];
            read(&mut state, peer, turn / 1000);
        }
        println!("sequence + check + finish, {clients} clients: {:.0} ns", begun.elapsed().as_nanos() as f64 / turns as f64);
    }
    let mut state = state();
    let peer = peer(&mut state, 0);
    let turns = 1_000_000u32;
    let begun = Instant::now();
    for turn in 0..turns {
        let file = file(u64::from(turn % 10_000) + 10);
        let opened = open(&mut state, peer.client, file);
        state.close(Some(peer.client), &opened, &file, 1).expect("it has just been opened");
        state.take_effects();
    }
    println!("open + close: {:.0} ns", begun.elapsed().as_nanos() as f64 / f64::from(turns));
}

fn state() -> State<Arc<()>> {
    let limits = Limits::default();
    let config = StateConfig { lease_ms: 90_000, grace_ms: 90_000, boot: 1, delegations: DelegationPolicy::OnReuse, limits };
    State::new(config, &[], [1; 32], 0)
}

fn read(state: &mut State<Arc<()>>, peer: &mut Peer, now: u64) {
    peer.seq = peer.seq.next();
    let args = SequenceArgs { session: peer.session, seq: peer.seq, slot: SlotId(0), highest_slot: SlotId(0), cache_this: false };
    let call = SequenceCall {
        args: &args,
        connection: peer.connection,
        address: [127, 0, 0, 1].into(),
        request_len: 200,
        operations: 3,
        fingerprint: now,
    };
    let Ok(Sequenced::New(turn)) = state.sequence(&call, now) else { panic!("it is new") };
    let grant = state.io(Some(turn.client), &peer.open, &peer.file, Io::Read, now).expect("it is open");
    std::hint::black_box(grant);
    state.finish(&turn, None, now);
}

fn file(number: u64) -> FileKey {
    let mut id = [0; 24];
    id[..8].copy_from_slice(&number.to_be_bytes());
    FileKey::new(ExportId(1), FileId::new(&id).expect("it is short"), Home { system: SystemId::of_device(0, 1), own_from: 0 })
}

fn open(state: &mut State<Arc<()>>, client: ClientKey, file: FileKey) -> Stateid {
    let share = Share::new(ShareAccess::READ, ShareDeny(0)).expect("it exists");
    let call = OpenCall {
        client,
        owner: b"open id:0000000000000000",
        file,
        share,
        claim: Claim::New,
        want: Want::No,
        extra: Extra::default(),
        truncate: false,
        terms: Terms { flavour: Flavour::Sys, reserved_port: true },
        opener: None,
    };
    state.open(&call, Arc::new(()), share, 1).expect("nothing speaks against it").stateid
}

fn peer(state: &mut State<Arc<()>>, number: u64) -> Peer {
    let principal = Principal::Sys { uid: 0, gid: 0, gids: Arc::from([]) };
    let credential = Credential { principal: &principal, flavour: Flavour::Sys, address: [127, 0, 0, 1].into() };
    let name = number.to_be_bytes();
    let args = ExchangeIdArgs {
        owner: ClientOwner { verifier: Verifier([1; 8]), id: Bytes(&name) },
        flags: ExchangeIdFlags(0),
        state_protect: StateProtect::None,
        impl_id: None,
    };
    let introduced = state.exchange_id(&args, credential, 0).expect("there is room");
    let channel = ChannelAttrs {
        header_pad_size: 0,
        request_len_max: 1 << 20,
        response_len_max: 1 << 20,
        response_cached_len_max: 4096,
        operations_max: 16,
        requests_max: 64,
        rdma_ird: None,
    };
    let connection = ConnectionId(number + 1);
    let args = CreateSessionArgs {
        client: introduced.client,
        seq: introduced.seq,
        flags: CreateSessionFlags::CONN_BACK_CHAN,
        fore: channel,
        back: channel,
        callback_program: 1,
        sec_parms: List(vec![]),
    };
    let session = state.create_session(&args, connection, credential, 0).expect("there is room").session;
    let args = SequenceArgs { session, seq: SlotSeq(1), slot: SlotId(0), highest_slot: SlotId(0), cache_this: false };
    let call = SequenceCall { args: &args, connection, address: credential.address, request_len: 200, operations: 2, fingerprint: 0 };
    let Ok(Sequenced::New(turn)) = state.sequence(&call, 0) else { panic!("it is new") };
    state.reclaim_complete(turn.client, false).expect("it is the first");
    state.finish(&turn, None, 0);
    let file = file(number);
    let open = open(state, turn.client, file);
    state.take_effects();
    Peer { client: turn.client, session, connection, seq: SlotSeq(1), file, open }
}
