use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use vouch_gss_mit::Partial;
use vouch_krb5_seal::{ContextKeys, Enctype, Role};
use vouch_oncrpc::{Accepted, Call, Reply as RpcReply, ReplyBody, begin_record};
use vouch_rpcsec_gss::*;
use vouch_xdr::Writer;

use super::contexts::*;
use super::*;
use crate::clock;
use crate::limits::SEND_SOON_COUNT;
use crate::memory_quota::{Quotas, ReceiveCharge};
use crate::transport::connection::Connection;
use crate::transport::connection::Side;
use crate::transport::inbox::{Inbox, Message};
use crate::transport::output::Outgoing;
use crate::transport::receive::{Buffers, Input, Read, Record, Records, Verification};
use crate::worker::WAKE;
use crate::worker::scratch::WorkerScratch;

const KEY: [u8; 32] = [5; 32];

fn keys(role: Role) -> Arc<ContextKeys> {
    Arc::new(ContextKeys::new(Enctype::Aes256CtsHmacSha1_96, &KEY, role, true).unwrap())
}

pub(crate) struct TrustingAcceptor;

impl Acceptor for TrustingAcceptor {
    type Partial = Partial;

    fn accept(&self, _: Option<Partial>, _: &[u8]) -> Accept<Partial> {
        let (principal, service) = ("alice@TEST".into(), "nfs/host@TEST".into());
        let context = EstablishedContext {
            keys: keys(Role::Acceptor),
            principal,
            service,
            lifetime_s: 3600,
            token_seq: 0,
        };
        Accept::Established { context, token: b"welcome".to_vec() }
    }
}

pub(crate) struct Claimer;

impl Initiator for Claimer {
    type Error = std::io::Error;

    fn step(&mut self, token: Option<&[u8]>) -> std::io::Result<InitStep> {
        Ok(match token {
            None => InitStep::Continue { token: b"hello".to_vec() },
            Some(_) => InitStep::Established {
                context: EstablishedClient {
                    keys: keys(Role::Initiator),
                    lifetime_s: 3600,
                    token_seq: 0,
                },
                token: None,
            },
        })
    }
}

pub(crate) fn context(service: Service) -> (Arc<Gss>, ClientContext) {
    let gss = Arc::new(Gss::by(Arc::new(TrustingAcceptor), || ()));
    let initiation = Initiation::begin(Claimer, service).unwrap();
    let mut w = Writer::new();
    initiation.call(1, 100_003, 4, &mut w);
    let record = w.into_bytes();
    let call = Call::decode(&record).unwrap();
    let CallClass::Init(init) = classify(&record, &call, |_| None) else { panic!("a new context") };
    let mut w = Writer::new();
    let kept = gss.contexts.lock().store(
        TrustingAcceptor.accept(None, b""),
        ContextHandle([9; HANDLE_LEN]),
        clock::boot_ms(),
    );
    init.reply(kept, &mut w);
    let Initiated::Done(context) = initiation.reply(1, w.as_bytes()).unwrap() else {
        panic!("one exchange")
    };
    (gss, context)
}

pub(crate) fn call(
    client: &mut ClientContext,
    xid: u32,
    args: &[u8],
    fragment_len: usize,
) -> Vec<u8> {
    let mut w = Writer::new();
    [xid, 0, 2, 100_003, 4, 1].into_iter().for_each(|word| w.u32(word));
    let seq = client.begin(&mut w, 0).unwrap();
    let body_start = w.len();
    w.raw(args);
    client.end(seq, &mut w, 0, body_start, [3; 16]).unwrap();
    let mut stream = Vec::new();
    let pieces: Vec<&[u8]> = w.as_bytes().chunks(fragment_len).collect();
    for (at, piece) in pieces.iter().enumerate() {
        let last = if at + 1 == pieces.len() { 0x8000_0000 } else { 0 };
        stream.extend_from_slice(&(last | piece.len() as u32).to_be_bytes());
        stream.extend_from_slice(piece);
    }
    stream
}

fn receive(gss: &Arc<Gss>, stream: &[u8], piece_len: usize, stop: usize) -> Vec<Vec<u8>> {
    const MAX: usize = 300_000;
    let (here, mut there) = UnixStream::pair().unwrap();
    let charge = ReceiveCharge::new(Quotas::with_calls_max(1, || ()).of([127, 0, 0, 1].into()));
    let (mut input, mut buffers, mut recent, mut all) =
        (Input::new(charge), Buffers::new(MAX), Recent::default(), Vec::new());
    let mut take = |record: Record, recent: &mut Recent| {
        let (bytes, protected) = match record.verification {
            Verification::Done(protected) => (record.bytes, protected),
            Verification::Pending => {
                let mut own = bytes::BytesMut::from(record.bytes);
                let protected = verify_one(&mut own, Some(gss), recent, clock::boot_ms());
                (own.freeze(), protected)
            }
        };
        match protected {
            Some(Protected::Call(_, Verdict::Genuine(args))) => all.push(bytes[args].to_vec()),
            None => all.push(bytes.to_vec()),
            Some(_) => panic!("every call is genuine"),
        }
    };
    for piece in stream.chunks(piece_len) {
        there.write_all(piece).unwrap();
        loop {
            let (mut batch, more) =
                match input.read(&here, &mut buffers, None, piece_len / 2 + 1).unwrap() {
                    Read::Some { mut fresh, more, .. } => {
                        let records = fresh.records;
                        let looked = verify(
                            fresh.bytes_mut(),
                            records,
                            Some(gss),
                            &mut recent,
                            clock::boot_ms(),
                        );
                        (fresh.into_batch(looked), more)
                    }
                    Read::Empty => break,
                    Read::NoData { .. } | Read::Closed => {
                        unreachable!("the other end is open, and there is no TLS")
                    }
                };
            loop {
                let mut taken = 0;
                while taken < stop {
                    let Some(record) = input.next(&mut batch, MAX).unwrap() else { break };
                    take(record, &mut recent);
                    taken += 1;
                }
                input.put_back(batch, &mut buffers);
                if taken < stop {
                    break;
                }
                let Some(again) = input.resume() else { break };
                batch = again;
            }
            if !more {
                break;
            }
        }
    }
    all
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
    #[test]
    fn calls_are_opened_once_across_any_fragments_and_pauses(
        lengths in proptest::collection::vec((0usize..2000, 0u8..8), 1..20),
        piece_len in 1usize..6000,
        stop in 1usize..5,
        service in 0u8..3,
    ) {
        let service = [Service::None, Service::Integrity, Service::Privacy][usize::from(service)];
        let (gss, mut client) = context(service);
        let (mut stream, mut expected) = (Vec::new(), Vec::new());
        for (xid, (words, kind)) in lengths.into_iter().enumerate() {
            let args = vec![xid as u8; 4 * words];
            match kind {
                0 => {
                    stream.extend(vouch_oncrpc::record(|w| w.raw(&args)));
                }
                1 => stream.extend(call(&mut client, xid as u32, &args, 100)),
                _ => stream.extend(call(&mut client, xid as u32, &args, usize::MAX)),
            }
            expected.push(args);
        }
        proptest::prop_assert_eq!(receive(&gss, &stream, piece_len, stop), expected);
        proptest::prop_assert_eq!(gss.counts.dropped.get(), 0);
    }
}

#[test]
fn calls_of_a_page_are_verified_in_batches() {
    use crate::limits::batch_len_min;
    for service in [Service::None, Service::Integrity, Service::Privacy] {
        let (gss, mut client) = context(service);
        for (args_len, wide, narrow) in
            [(2000, false, false), (4096, true, false), (65_536, true, true)]
        {
            let stream = call(&mut client, 1, &vec![1; args_len], usize::MAX);
            let found = find_protected(
                &stream,
                Records::Marked { inside: false },
                Some(&gss),
                &mut Recent::default(),
                clock::boot_ms(),
            );
            let laborious = [16, 4].map(|lanes| has_long_call(&found, batch_len_min(lanes)));
            assert_eq!(
                laborious,
                [wide, narrow].map(|long| long && service != Service::None),
                "{service:?} {args_len}"
            );
        }
    }
}

fn reply(gss: &Arc<Gss>, client: &mut ClientContext, results: &[u8]) -> (Outgoing, GssSeq) {
    let mut w = Writer::new();
    [7, 0, 2, 100_003, 4, 1].into_iter().for_each(|word| w.u32(word));
    let seq = client.begin(&mut w, 0).unwrap();
    let record = w.into_bytes();
    let decoded = Call::decode(&record).unwrap();
    let class = classify(&record, &decoded, |handle| {
        gss.find(&mut Recent::default(), handle, clock::boot_ms())
    });
    let CallClass::Call(call) = class else { panic!("a call") };
    let mut w = Writer::new();
    begin_record(&mut w);
    let envelope = Envelope::begin(&call, Accepted::Success(&[]), &mut w);
    w.raw(results);
    (Outgoing::reply(w.into_bytes(), Vec::new(), Some(envelope)), seq)
}

#[test]
fn replies_of_many_contexts_are_sealed_in_one_batch() {
    let mut contexts: Vec<_> = (0..60)
        .map(|at| context([Service::None, Service::Integrity, Service::Privacy][at % 3]))
        .collect();
    let results: Vec<Vec<u8>> = (0..60).map(|at| vec![at as u8; 4 * at * at]).collect();
    let mut replies: Vec<_> = contexts
        .iter_mut()
        .zip(&results)
        .map(|((gss, client), results)| reply(gss, client, results))
        .collect();
    assert!(replies.iter().all(|(outgoing, _)| !outgoing.is_ready()));
    seal_all(replies.iter_mut().map(|(outgoing, _)| outgoing));
    for (((outgoing, seq), (_, client)), results) in replies.iter().zip(&contexts).zip(&results) {
        assert!(outgoing.is_ready());
        let bytes = outgoing.memory();
        assert_eq!(bytes[..4], (0x8000_0000 | (bytes.len() as u32 - 4)).to_be_bytes());
        let ReplyBody::Accepted { verf, outcome: Accepted::Success(body) } =
            RpcReply::decode(&bytes[4..]).unwrap().body
        else {
            panic!("a success")
        };
        client.verify(*seq, verf).unwrap();
        assert_eq!(client.open(*seq, body, &mut Vec::new()).unwrap(), results);
    }
}

fn kept(message: Message) -> (Arc<Connection>, Outgoing) {
    match message {
        Message::ReplyDurable(connection, outgoing) => (connection, outgoing),
        _ => panic!("a reply"),
    }
}

fn connection() -> (Arc<Connection>, Arc<Inbox>, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let there = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (here, peer) = listener.accept().unwrap();
    let poll = mio::Poll::new().unwrap();
    let inbox = Arc::new(Inbox::new(poll.registry(), WAKE).unwrap());
    let shares = Quotas::with_calls_max(1, || ()).of(peer.ip());
    let engine = crate::tests::engine().connection_opened(peer);
    (
        Arc::new(Connection::new(here, Side::Client, engine, inbox.clone(), 0, shares, None)),
        inbox,
        there,
    )
}

#[test]
fn sealed_replies_leave_early_only_for_waiting_client() {
    let (connection, _, mut there) = connection();
    let (gss, mut client) = context(Service::Privacy);
    let mut replies = (0..2 * SEND_SOON_COUNT).map(|_| reply(&gss, &mut client, &[7; 64]).0);
    let mut scratch = WorkerScratch::new(1 << 20);
    replies
        .by_ref()
        .take(SEND_SOON_COUNT - 1)
        .for_each(|reply| scratch.push_for(&connection, reply));
    assert!(!scratch.is_worth_sending());
    replies.by_ref().take(1).for_each(|reply| scratch.push_for(&connection, reply));
    assert!(scratch.is_worth_sending());
    scratch.send_if_awaited(&connection);
    let soon = connection.sent_len();
    assert!(soon > 0);
    there.write_all(b"another call").unwrap();
    while connection.has_no_input() {
        std::thread::yield_now();
    }
    replies.for_each(|reply| scratch.push_for(&connection, reply));
    scratch.send_if_awaited(&connection);
    assert_eq!(connection.sent_len(), soon);
    scratch.seal();
    assert_eq!(connection.sent_len(), 2 * soon);
}

#[test]
fn delayed_replies_are_sealed_by_the_worker() {
    let (connection, inbox, mut there) = connection();
    let (gss, mut client) = context(Service::Privacy);
    let replies: Vec<_> = (0..5).map(|at| reply(&gss, &mut client, &[at; 64])).collect();
    let numbers: Vec<GssSeq> = replies.iter().map(|(_, seq)| *seq).collect();
    let keeping = connection.clone();
    std::thread::spawn(move || {
        replies.into_iter().for_each(|(outgoing, _)| keeping.send_durable(outgoing))
    })
    .join()
    .unwrap();
    assert!(connection.sent_len() == 0 && !connection.is_quiet());
    let left: Vec<_> = inbox.take().into_iter().map(kept).collect();
    assert!(left.len() == 5 && left.iter().all(|(_, outgoing)| !outgoing.is_ready()));
    connection.send_durable(Outgoing::bytes(b"plain...".to_vec()));
    assert!(connection.sent_len() == 8 && inbox.take().is_empty());
    std::io::Read::read_exact(&mut there, &mut [0; 8]).unwrap();
    let mut scratch = WorkerScratch::new(1 << 20);
    left.into_iter().for_each(|(connection, outgoing)| scratch.push_durable(&connection, outgoing));
    assert_eq!(connection.sent_len(), 8);
    scratch.seal();
    assert!(connection.is_quiet());
    let mut reader = vouch_oncrpc::RecordReader::new(1 << 20);
    let mut bytes = vec![0; (connection.sent_len() - 8) as usize];
    std::io::Read::read_exact(&mut there, &mut bytes).unwrap();
    let mut input = &bytes[..];
    for (at, seq) in numbers.into_iter().enumerate() {
        let record = reader.next(&mut input).unwrap().unwrap().into_owned();
        let ReplyBody::Accepted { verf, outcome: Accepted::Success(body) } =
            RpcReply::decode(&record).unwrap().body
        else {
            panic!("a success")
        };
        client.verify(seq, verf).unwrap();
        assert_eq!(client.open(seq, body, &mut Vec::new()).unwrap(), [at as u8; 64]);
    }
}

#[test]
fn failed_seal_is_empty_and_never_ready() {
    let (gss, mut client) = context(Service::Privacy);
    let (mut outgoing, _) = reply(&gss, &mut client, b"secret results..");
    outgoing.unsealed().unwrap().finish(false);
    assert!(!outgoing.is_ready() && outgoing.memory().is_empty());
    seal_all([&mut outgoing]);
    assert!(!outgoing.is_ready());
}

#[test]
fn connection_remembers_contexts_until_they_end() {
    let (gss, client) = context(Service::None);
    let mut recent = Recent::default();
    let handle = client.handle();
    let found = gss.find(&mut recent, handle, clock::boot_ms()).unwrap();
    assert_eq!(recent.0.len(), 1);
    gss.destroy(&found);
    assert!(gss.find(&mut recent, handle, clock::boot_ms()).is_none());
    assert!(recent.0.is_empty());
}

fn callback(xid: u32) -> Vec<u8> {
    let mut args = Writer::new();
    vouch_nfs4::CallbackHead { tag: b"", minor: 1, ident: 0, count: 0 }.encode(&mut args);
    let mut w = Writer::new();
    Call::new(xid, (0x4000_0000, 1), 1, args.as_bytes()).encode(&mut w);
    w.into_bytes()
}

#[test]
fn callbacks_are_accepted_only_from_context_owner() {
    use vouch_nfs4::CallbackSec;
    use vouch_nfs4_client::{BackChannel, GssProtection, NoCallbacks};
    use vouch_nfs4_server::{
        CallbackContext, CallbackContexts as _, CallbackId, Flavour, Principal,
    };
    use vouch_oncrpc::{AuthStat, Denied};
    for service in [Service::None, Service::Integrity, Service::Privacy] {
        let (gss, client) = context(service);
        let who = |name: &str| Principal::Gss { name: name.into() };
        assert!(gss.is_usable(client.handle(), &who("alice@TEST")));
        let life = gss.life(client.handle());
        // The coarse clock is up to a tick behind.
        assert!((1..=3_600_010).contains(&life.left_ms()) && gss.life(b"none").left_ms() == 0);
        assert!(
            !gss.is_usable(client.handle(), &who("mallory@TEST"))
                && !gss.is_usable(b"none", &who("alice@TEST"))
        );
        let (handle, protection) = (client.handle().to_vec(), GssProtection::new(client));
        let security = protection.callback_security(service).unwrap();
        let CallbackSec::Gss(offer) = security.offer() else { panic!("a context") };
        let flavour = match service {
            Service::None => Flavour::Krb5,
            Service::Integrity => Flavour::Krb5i,
            Service::Privacy => Flavour::Krb5p,
        };
        let by = CallbackContext {
            flavour,
            from_server: offer.from_server.0.into(),
            from_client: offer.from_client.0.into(),
        };
        assert_eq!(*by.from_server, handle[..]);
        let mut channel = BackChannel::new(0x4000_0000, 1, 1);
        channel.set_security(Some(security));
        let mut answered = |record: &[u8]| {
            let mut w = Writer::new();
            channel.answer(record, &mut NoCallbacks, &mut w);
            w.into_bytes().get(4..).map(<[u8]>::to_vec)
        };
        let denied = |answer: Option<Vec<u8>>, stat| {
            assert_eq!(
                RpcReply::decode(&answer.expect("an answer")).unwrap().body,
                ReplyBody::Denied(Denied::AuthError(stat)),
                "{service:?}"
            );
        };
        denied(answered(&callback(77)), AuthStat::TOO_WEAK);
        let sent = gss
            .protect_callback(CallbackId(5), &callback(77), &by)
            .expect("there is a context")[4..]
            .to_vec();
        let mut altered = sent.clone();
        altered[23] ^= 1;
        denied(answered(&altered), AuthStat::RPCSEC_GSS_CRED_PROBLEM);
        for number in (0..3000).map(|at| 0x7fff_ffff - at) {
            let mut ahead = sent.clone();
            ahead[40..44].copy_from_slice(&u32::to_be_bytes(number));
            denied(answered(&ahead), AuthStat::RPCSEC_GSS_CRED_PROBLEM);
        }
        let answer = answered(&sent).expect("an answer");
        assert_eq!(answered(&sent), None, "a repeated callback gets no answer");
        let mut plain = Writer::new();
        RpcReply::accepted(77, Accepted::Success(b"recalled")).encode(&mut plain);
        assert!(matches!(
            gss.open_callback_answer(CallbackId(5), plain.as_bytes()),
            Answered::Forged
        ));
        let mut forged = answer.clone();
        forged[40] ^= 1;
        assert!(matches!(gss.open_callback_answer(CallbackId(5), &forged), Answered::Forged));
        let Answered::Genuine(opened) = gss.open_callback_answer(CallbackId(5), &answer) else {
            panic!("{service:?}: it is the client's")
        };
        let ReplyBody::Accepted { outcome: Accepted::Success(results), .. } =
            RpcReply::decode(&opened).unwrap().body
        else {
            panic!("a success")
        };
        assert_eq!(results, [0; 12]);
        assert!(matches!(gss.open_callback_answer(CallbackId(5), &answer), Answered::Plain));
        gss.destroy(&gss.find(&mut Recent::default(), &handle, clock::boot_ms()).unwrap());
        assert!(gss.protect_callback(CallbackId(6), &callback(78), &by).is_none());
        assert_eq!((life.left_ms(), gss.life(&handle).left_ms()), (0, 0));
    }
}

fn introduced(
    named: bool,
    first: vouch_nfs4::Status,
) -> (Vec<bool>, Result<bool, vouch_nfs4_client::Error>) {
    use vouch_nfs4::op::{
        Args, ChannelAttrs, CreateSessionFlags, CreateSessionOk, ExchangeIdFlags, ExchangeIdOk,
        Results,
    };
    use vouch_nfs4::{
        Bytes, CallbackSec, ClientId, CreateSeq, ReplyWriter, ServerOwner, SessionId,
        StateProtectReply, Status, Verifier,
    };
    use vouch_nfs4_client::{Core, GssProtection, Handshake, Identity, Plain};
    let (_gss, client) = context(Service::Privacy);
    let callback_security = GssProtection::new(client).callback_security(Service::Privacy).ok();
    let identity = Identity {
        callback_security,
        reclaim_complete: false,
        ..Identity::new(b"client".to_vec(), Verifier([1; 8]))
    };
    let channel = ChannelAttrs {
        header_pad_size: 0,
        request_len_max: 1 << 16,
        response_len_max: 1 << 16,
        response_cached_len_max: 1 << 12,
        operations_max: 8,
        requests_max: 4,
        rdma_ird: None,
    };
    let (mut core, mut handshake) = (
        Core::new(1, Box::new(Plain::none()), 7),
        Handshake::new(1).callback_security_optional(!named),
    );
    let mut offers = Vec::new();
    while let Some((kind, args)) = handshake.request(&identity) {
        let results = match &args {
            Args::ExchangeId(_) => Results::ExchangeId(Ok(ExchangeIdOk {
                client: ClientId(5),
                seq: CreateSeq(1 + offers.len() as u32),
                flags: ExchangeIdFlags::USE_NON_PNFS,
                state_protect: StateProtectReply::None,
                server_owner: ServerOwner { minor: 0, major: Bytes(b"server") },
                server_scope: Bytes(b"server"),
                impl_id: None,
            })),
            Args::CreateSession(args) => {
                assert_eq!(args.seq, CreateSeq(1 + offers.len() as u32), "as the last answer said");
                offers.push(matches!(args.sec_parms.0[..], [CallbackSec::Gss(_)]));
                let flags = CreateSessionFlags::CONN_BACK_CHAN;
                let made = CreateSessionOk {
                    session: SessionId([3; 16]),
                    seq: args.seq,
                    flags,
                    fore: channel,
                    back: channel,
                };
                Results::CreateSession(if offers.len() == 1 && first != Status::OK {
                    Err(first)
                } else {
                    Ok(made)
                })
            }
            other => panic!("{other:?}"),
        };
        let mut w = Writer::new();
        let mut call = core.begin(0, kind, &mut w).unwrap().unwrap();
        call.op(&mut w, &args);
        core.end(call, &mut w).unwrap();
        let xid = u32::from_be_bytes(w.as_bytes()[4..8].try_into().unwrap());
        let mut body = Writer::new();
        let reply = ReplyWriter::begin(&mut body, b"");
        results.encode(&mut body);
        reply.finish(&mut body, results.status(), 1);
        let mut record = Writer::new();
        RpcReply::accepted(xid, Accepted::Success(body.as_bytes())).encode(&mut record);
        let mut scratch = Vec::new();
        let completion = core.reply(record.as_bytes(), &mut scratch).unwrap().unwrap();
        if let Err(error) = handshake.accept(&identity, completion.outcome.unwrap(), &mut core) {
            return (offers, Err(error));
        }
    }
    (offers, Ok(handshake.is_callback_security_refused()))
}

#[test]
fn callback_proof_is_optional_where_server_refuses_it() {
    // RFC 8881 §18.36.3.
    use vouch_nfs4::Status;
    for named in [false, true] {
        assert!(matches!(introduced(named, Status::OK), (offers, Ok(false)) if offers == [true]));
    }
    for status in [Status::ENCR_ALG_UNSUPP, Status::INVAL, Status::SERVERFAULT] {
        assert!(matches!(introduced(false, status), (offers, Ok(true)) if offers == [true, false]));
        assert!(
            matches!(introduced(true, status), (offers, Err(_)) if offers == [true]),
            "the look-up was requested"
        );
    }
    assert!(matches!(introduced(false, Status::DELAY), (offers, Err(_)) if offers == [true]));
}
