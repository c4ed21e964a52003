use std::ops::Range;
use std::sync::Arc;

use vouch_krb5_seal::{ContextKeys, Enctype, Role};
use vouch_oncrpc::{Accepted, Call, Denied, Reply, ReplyBody};
use vouch_xdr::Writer;

use crate::*;

pub(super) const PROGRAM: u32 = 100_003;
const KEY: [u8; 32] = [7; 32];

fn keys(enctype: Enctype, role: Role) -> Arc<ContextKeys> {
    Arc::new(
        ContextKeys::new(enctype, &KEY[..enctype.key_len()], role, true)
            .expect("a key of the right length"),
    )
}

pub(super) struct TestAcceptor {
    pub(super) enctype: Enctype,
    pub(super) rounds: u8,
}

impl Acceptor for TestAcceptor {
    type Partial = u8;

    fn accept(&self, partial: Option<u8>, token: &[u8]) -> Accept<u8> {
        let round = partial.unwrap_or(0);
        if token == b"liar" {
            return Accept::Failed {
                major: 9 << 16,
                minor: 42,
                token: b"no".to_vec(),
                reason: "a liar".into(),
                principal: String::new(),
                enctype: None,
            };
        }
        if round < self.rounds {
            return Accept::Continue { partial: round + 1, token: vec![round] };
        }
        let context = EstablishedContext {
            keys: keys(self.enctype, Role::Acceptor),
            principal: "alice@TEST".into(),
            service: "nfs/host@TEST".into(),
            lifetime_s: 3600,
            token_seq: 1 << 40,
        };
        Accept::Established { context, token: b"welcome".to_vec() }
    }
}

pub(super) struct TestInitiator {
    pub(super) enctype: Enctype,
    pub(super) first: &'static [u8],
}

impl Initiator for TestInitiator {
    type Error = std::io::Error;

    fn step(&mut self, token: Option<&[u8]>) -> Result<InitStep, std::io::Error> {
        match token {
            None => Ok(InitStep::Continue { token: self.first.to_vec() }),
            Some(b"welcome") => {
                let keys = keys(self.enctype, Role::Initiator);
                Ok(InitStep::Established {
                    context: EstablishedClient { keys, lifetime_s: 3600, token_seq: 1 << 41 },
                    token: None,
                })
            }
            Some(other) => Ok(InitStep::Continue { token: other.to_vec() }),
        }
    }
}

pub(super) struct Fixture {
    pub(super) contexts: Contexts<u8>,
    pub(super) acceptor: TestAcceptor,
    pub(super) now_ms: u64,
    next_handle: u8,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Record(Vec<u8>),
    Closed,
}

impl Answer {
    pub(super) fn into_record(self) -> Vec<u8> {
        match self {
            Answer::Record(record) => record,
            Answer::Closed => panic!("closed"),
        }
    }
}

impl Fixture {
    pub(super) fn new(enctype: Enctype) -> Self {
        let contexts = Contexts::new(ContextLimits::default());
        Self {
            contexts,
            acceptor: TestAcceptor { enctype, rounds: 0 },
            now_ms: 1000,
            next_handle: 0,
        }
    }

    pub(super) fn connect(&mut self, service: Service) -> ClientContext {
        let initiator = TestInitiator { enctype: self.acceptor.enctype, first: b"hello" };
        let mut initiation = Initiation::begin(initiator, service).unwrap();
        for xid in 1.. {
            let mut w = Writer::new();
            initiation.call(xid, PROGRAM, 4, &mut w);
            let reply = self.serve(w.into_bytes()).into_record();
            match initiation.reply(xid, &reply).unwrap() {
                Initiated::Again(again) => initiation = again,
                Initiated::Done(context) => return context,
            }
        }
        unreachable!("an exchange ends")
    }

    pub(super) fn serve(&mut self, record: Vec<u8>) -> Answer {
        self.serve_many(vec![record]).remove(0)
    }

    pub(super) fn serve_many(&mut self, records: Vec<Vec<u8>>) -> Vec<Answer> {
        let mut answers: Vec<Option<Answer>> = Vec::new();
        let mut calls: Vec<(usize, Vec<u8>, GssCall)> = Vec::new();
        for (at, record) in records.into_iter().enumerate() {
            answers.push(None);
            let call = match Call::decode(&record) {
                Ok(call) => call,
                Err(error) => {
                    answers[at] = Some(
                        error
                            .reply()
                            .map_or(Answer::Closed, |reply| Answer::Record(encode(&reply))),
                    );
                    continue;
                }
            };
            let xid = call.xid;
            let now = self.now_ms;
            match classify(&record, &call, |handle| self.contexts.find(handle, now)) {
                CallClass::Call(call) => calls.push((at, record, call)),
                CallClass::Init(init) => answers[at] = Some(Answer::Record(self.init(&init))),
                CallClass::Garbage => {
                    answers[at] =
                        Some(Answer::Record(encode(&Reply::accepted(xid, Accepted::GarbageArgs))))
                }
                CallClass::Refused(stat) => answers[at] = Some(denied(xid, stat)),
            }
        }
        let mut checks: Vec<Check<'_>> =
            calls.iter_mut().map(|(_, record, call)| Check::new(record, call)).collect();
        check_many(&mut checks, self.now_ms);
        let verdicts: Vec<Verdict> = checks.into_iter().map(|check| check.verdict).collect();
        let mut replies = Vec::new();
        for ((at, record, call), verdict) in calls.iter().zip(verdicts) {
            match verdict {
                Verdict::Genuine(args) => {
                    if call.is_destroy() {
                        self.contexts.remove(call.context().handle());
                    }
                    replies.push((*at, reply(call, Accepted::Success(&[]), &record[args])));
                }
                Verdict::Garbage => replies.push((*at, reply(call, Accepted::GarbageArgs, &[]))),
                Verdict::Refused(stat) => answers[*at] = Some(denied(call.xid(), stat)),
                Verdict::Dropped => answers[*at] = Some(Answer::Closed),
            }
        }
        let mut wraps: Vec<Wrap<'_>> =
            replies.iter_mut().map(|(_, (bytes, envelope))| Wrap::new(bytes, envelope)).collect();
        wrap_many(&mut wraps, &mut |bytes| {
            bytes.fill(3);
            true
        });
        assert!(wraps.iter().all(|wrap| wrap.done));
        drop(wraps);
        for (at, (bytes, _)) in replies {
            answers[at] = Some(Answer::Record(bytes));
        }
        answers
            .into_iter()
            .map(|answer| answer.expect("every record is answered or closes"))
            .collect()
    }

    fn init(&mut self, init: &InitCall) -> Vec<u8> {
        let mut w = Writer::new();
        match init.partial(&mut self.contexts, self.now_ms) {
            Ok(partial) => {
                let accept = self.acceptor.accept(partial, &init.token);
                self.next_handle += 1;
                let outcome = self.contexts.store(
                    accept,
                    ContextHandle([self.next_handle; HANDLE_LEN]),
                    self.now_ms,
                );
                init.reply(outcome, &mut w);
            }
            Err(stat) => init.refuse(stat, &mut w),
        }
        w.into_bytes()
    }
}

fn reply(call: &GssCall, outcome: Accepted<'_>, results: &[u8]) -> (Vec<u8>, Envelope) {
    let mut w = Writer::new();
    let envelope = Envelope::begin(call, outcome, &mut w);
    w.raw(results);
    (w.into_bytes(), envelope)
}

fn encode(reply: &Reply<'_>) -> Vec<u8> {
    let mut w = Writer::new();
    reply.encode(&mut w);
    w.into_bytes()
}

fn denied(xid: u32, stat: vouch_oncrpc::AuthStat) -> Answer {
    Answer::Record(encode(&Reply::denied(xid, Denied::AuthError(stat))))
}

pub(super) fn call(client: &mut ClientContext, xid: u32, args: &[u8]) -> (Vec<u8>, GssSeq) {
    let mut w = head(xid, 1);
    let seq = client.begin(&mut w, 0).unwrap();
    let body_start = w.len();
    w.raw(args);
    client.end(seq, &mut w, 0, body_start, [9; 16]).unwrap();
    (w.into_bytes(), seq)
}

pub(super) fn laid_out(client: &mut ClientContext, xid: u32, args: &[u8]) -> (Vec<u8>, GssSeq) {
    let mut w = head(xid, 1);
    let seq = client.begin(&mut w, 0).unwrap();
    let body_start = w.len();
    w.raw(args);
    client.lay_out(seq, &mut w, body_start);
    (w.into_bytes(), seq)
}

pub(super) fn counted(bytes: &mut [u8]) -> bool {
    bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8);
    true
}

pub(super) fn to_open(record: &mut [u8], seq: GssSeq) -> ReplyOpen<'_> {
    let (verifier, body_at) = match Reply::decode(record).expect("a reply").body {
        ReplyBody::Accepted { verf, outcome: Accepted::Success(body) } => {
            (20..20 + verf.body.len(), record.len() - body.len())
        }
        other => panic!("{other:?}"),
    };
    ReplyOpen::new(record, seq, Some(verifier), body_at)
}

pub(super) fn destroy(client: &mut ClientContext, xid: u32) -> Vec<u8> {
    let mut w = head(xid, 0);
    client.destroy(&mut w, 0).unwrap();
    w.into_bytes()
}

pub(super) fn head(xid: u32, procedure: u32) -> Writer {
    let mut w = Writer::new();
    [xid, 0, 2, PROGRAM, 4, procedure].into_iter().for_each(|word| w.u32(word));
    w
}

pub(super) fn open(client: &ClientContext, seq: GssSeq, record: &[u8]) -> Result<Vec<u8>, String> {
    let reply = Reply::decode(record).map_err(|error| error.to_string())?;
    match reply.body {
        ReplyBody::Accepted { verf, outcome } => {
            client.verify(seq, verf).map_err(|error| error.to_string())?;
            match outcome {
                Accepted::Success(body) => {
                    let mut scratch = Vec::new();
                    client
                        .open(seq, body, &mut scratch)
                        .map(<[u8]>::to_vec)
                        .map_err(|error| error.to_string())
                }
                other => Err(format!("{other:?}")),
            }
        }
        ReplyBody::Denied(denied) => Err(format!("{denied:?}")),
    }
}

pub(super) fn refusal(answer: &Answer) -> String {
    let Answer::Record(record) = answer else { return "closed".into() };
    match Reply::decode(record).expect("a reply").body {
        ReplyBody::Accepted { outcome: Accepted::Success(_), .. } => "success".into(),
        ReplyBody::Accepted { outcome, .. } => format!("{outcome:?}"),
        ReplyBody::Denied(Denied::AuthError(stat)) => format!("denied {}", stat.0),
        ReplyBody::Denied(other) => format!("{other:?}"),
    }
}

pub(super) fn for_each_protection(mut each: impl FnMut(Enctype, Service)) {
    for enctype in Enctype::ALL {
        for service in [Service::None, Service::Integrity, Service::Privacy] {
            each(enctype, service);
        }
    }
}

pub(super) fn with_every_protection(
    mut each: impl FnMut(Fixture, ClientContext, Enctype, Service),
) {
    for_each_protection(|enctype, service| {
        let mut fixture = Fixture::new(enctype);
        let client = fixture.connect(service);
        each(fixture, client, enctype, service);
    });
}

pub(super) fn layout(record: &[u8]) -> (Range<usize>, Range<usize>, Range<usize>) {
    let call = Call::decode(record).expect("a call");
    let header = 32 + call.cred.body.len();
    let verifier = header + 8..header + 8 + call.verf.body.len();
    (0..header, verifier, record.len() - call.args.len()..record.len())
}
