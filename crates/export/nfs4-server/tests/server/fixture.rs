use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes as Buffer;
use vouch_nfs4::op::{self, Args, Op, Results};
use vouch_nfs4::{
    Attributes, ClientId, CompoundHead, CreateSeq, Filehandle, ReplyHead, SessionId, SlotId,
    SlotSeq, StateProtect, StateProtectReply, Stateid, Status,
};
use vouch_nfs4_server::testing::{self, time_at};
use vouch_nfs4_server::{
    ClientAccess, Compound, Config, Connection, Effect, Export, Exports, Flavour, Identity, Limits,
    NoObserver, Now, Observer, Principal, Progress, Recovered, ReplyKind, Request, RunResult,
    Server, Squash, SquashWho, Unanswered,
};
use vouch_vfs::memory::Call;
use vouch_vfs::{Blocking, Caller, Error, FileId, FileSystem as _, Name};
use vouch_xdr::{Reader, Writer};

use crate::ops::{create_session, exchange_id, lookup, mode, open_by_name};
pub(crate) use vouch_nfs4_server::testing::{export, flavour_access, sys_access};
pub(crate) use vouch_vfs::memory::MemoryFs;

pub(crate) struct TestIdentity;

impl Identity for TestIdentity {
    fn caller(
        &self,
        principal: &Principal,
        _: SocketAddr,
        squash: &Squash,
        _: Blocking,
    ) -> Result<Option<Arc<Caller>>, Unanswered> {
        let anonymous = Caller::new(squash.anonymous_uid, squash.anonymous_gid, []);
        Ok(Some(Arc::new(match principal {
            Principal::Gss { name } if &**name == "unanswered@EXAMPLE.ORG" => {
                return Err(Unanswered::Silent);
            }
            Principal::Gss { name } if &**name == "alice@EXAMPLE.ORG" => {
                Caller::new(1000, 1000, [])
            }
            // Machine principals map to the anonymous user; others have no account.
            Principal::Gss { name } if !name.starts_with("nfs/") => return Ok(None),
            Principal::Sys { uid: 0, .. } if squash.who == SquashWho::Root => anonymous,
            Principal::Sys { uid, gid, gids } if squash.who != SquashWho::All => {
                Caller::new(*uid, *gid, gids.iter().copied())
            }
            _ => anonymous,
        })))
    }

    fn user_name(&self, uid: u32, _: Blocking) -> Result<Option<Arc<str>>, Unanswered> {
        Ok((uid == 1000).then(|| "alice".into()))
    }

    fn group_name(&self, gid: u32, blocking: Blocking) -> Result<Option<Arc<str>>, Unanswered> {
        self.user_name(gid, blocking)
    }

    fn uid(&self, name: &str, _: Blocking) -> Result<Option<u32>, Unanswered> {
        if name == "unanswered" {
            Err(Unanswered::Silent)
        } else {
            Ok((name == "alice").then_some(1000))
        }
    }

    fn gid(&self, name: &str, blocking: Blocking) -> Result<Option<u32>, Unanswered> {
        self.uid(name, blocking)
    }
}

pub(crate) struct Fixture {
    pub(crate) server: Server,
    pub(crate) files: Arc<MemoryFs>,
    pub(crate) now_ms: AtomicU64,
    pub(crate) awaits_records: AtomicBool,
    records: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
    pub(crate) next_port: AtomicU32,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let files = Arc::new(MemoryFs::new());
        Self::with_exports(files.clone(), vec![export(7, &["export"], &files, sys_access())])
    }

    pub(crate) fn exporting(path: &[&str], access: ClientAccess) -> Self {
        let files = Arc::new(MemoryFs::new());
        let exports = vec![export(1, path, &files, access)];
        Self::with_exports(files, exports)
    }

    pub(crate) fn with_limits(limits: Limits) -> Self {
        let files = Arc::new(MemoryFs::new());
        let exports = vec![export(7, &["export"], &files, sys_access())];
        let config = testing::config(77, limits);
        Self::start(files, exports, Arc::new(NoObserver), config, BTreeMap::new())
    }

    pub(crate) fn with_exports(files: Arc<MemoryFs>, exports: Vec<Export>) -> Self {
        Self::with_observer(files, exports, Arc::new(NoObserver))
    }

    pub(crate) fn with_observer(
        files: Arc<MemoryFs>,
        exports: Vec<Export>,
        observer: Arc<dyn Observer>,
    ) -> Self {
        let config = testing::config(77, Limits::default());
        Self::start(files, exports, observer, config, BTreeMap::new())
    }

    pub(crate) fn with_addresses(
        addresses: &[&str],
        files: Arc<MemoryFs>,
        exports: Vec<Export>,
    ) -> Self {
        let addresses = addresses.iter().map(|&address| address.to_owned()).collect();
        let config = Config { addresses, ..testing::config(77, Limits::default()) };
        Self::start(files, exports, Arc::new(NoObserver), config, BTreeMap::new())
    }

    fn start(
        files: Arc<MemoryFs>,
        exports: Vec<Export>,
        observer: Arc<dyn Observer>,
        config: Config,
        records: BTreeMap<Vec<u8>, Vec<u8>>,
    ) -> Self {
        let server = Server::new(
            config,
            Exports::new(exports).expect("valid exports"),
            Arc::new(TestIdentity),
            observer,
            Recovered { records: records.clone().into_iter().collect() },
            [9; 32],
            time_at(1_000),
        );
        let (now_ms, awaits_records) = (AtomicU64::new(1_000), AtomicBool::new(false));
        Fixture {
            server,
            files,
            now_ms,
            awaits_records,
            records: Mutex::new(records),
            next_port: AtomicU32::new(700),
        }
    }

    pub(crate) fn restart(self) -> Self {
        let exports = vec![export(7, &["export"], &self.files, sys_access())];
        self.restart_with_exports(exports)
    }

    pub(crate) fn restart_with_exports(self, exports: Vec<Export>) -> Self {
        Self::start(
            self.files,
            exports,
            Arc::new(NoObserver),
            testing::config(78, Limits::default()),
            self.records.into_inner().unwrap(),
        )
    }

    pub(crate) fn connect(&self) -> Arc<Connection> {
        let port = self.next_port.fetch_add(1, Ordering::Relaxed) as u16;
        self.server.connection_opened(SocketAddr::from(([127, 0, 0, 1], port)))
    }

    pub(crate) fn now(&self) -> Now {
        time_at(self.now_ms.load(Ordering::Relaxed))
    }

    pub(crate) fn call(
        &self,
        connection: &Arc<Connection>,
        principal: &Principal,
        body: Vec<u8>,
    ) -> (Vec<u8>, Vec<Effect>) {
        self.call_with_flavour(Flavour::Sys, connection, principal, body)
    }

    pub(crate) fn call_with_flavour(
        &self,
        flavour: Flavour,
        connection: &Arc<Connection>,
        principal: &Principal,
        body: Vec<u8>,
    ) -> (Vec<u8>, Vec<Effect>) {
        self.call_with_effects(flavour, connection, principal, body, |_| ())
    }

    pub(crate) fn begin(
        &self,
        flavour: Flavour,
        connection: &Arc<Connection>,
        principal: &Principal,
        body: Vec<u8>,
    ) -> Compound {
        let request = Request {
            connection: connection.clone(),
            xid: 1,
            principal: principal.clone(),
            flavour,
            enctype: None,
            body: Buffer::from(body),
            reply: vec![0; 28],
            reply_tail_len: 0,
            spans_allowed: false,
        };
        self.server.begin(request, self.now())
    }

    /// The call waits for a disk.
    pub(crate) fn blocks(&self, call: &mut Compound) -> bool {
        matches!(call.run(&self.server, Blocking::Forbidden).progress, Progress::Blocked(_))
    }

    /// How many opens and copies end.
    pub(crate) fn replace_exports(&self, exports: impl IntoIterator<Item = Export>) -> usize {
        self.server.replace_exports(Exports::new(exports).expect("valid exports")).ended
    }

    pub(crate) fn find(&self, name: &str) -> FileId {
        let (root, name) = (self.files.root(), Name::new(name.as_bytes()).expect("a valid name"));
        self.files.lookup(&Caller::root(), &root, name, Blocking::Allowed).expect("the file").0
    }

    /// Of root.
    pub(crate) fn clients<const N: usize>(&self, names: [&str; N]) -> [Client<'_>; N] {
        names.map(|name| Client::new(self, name, 0))
    }

    pub(crate) fn run_to_status(&self, call: &mut Compound, blocking: Blocking) -> Status {
        match call.run(&self.server, blocking).progress {
            Progress::Done(Some(reply)) => results(reply.bytes[28..].to_vec()).0,
            _ => panic!("no reply"),
        }
    }

    pub(crate) fn fail_with_io(&self, which: Call) {
        self.files.set_fault(move |call, _| (call == which).then(bad_block));
    }

    pub(crate) fn advance(&self, ms: u64) -> Vec<Effect> {
        self.now_ms.fetch_add(ms, Ordering::Relaxed);
        self.server.tick(self.now()).effects
    }

    pub(crate) fn call_with_effects(
        &self,
        flavour: Flavour,
        connection: &Arc<Connection>,
        principal: &Principal,
        body: Vec<u8>,
        act: impl Fn(&[Effect]),
    ) -> (Vec<u8>, Vec<Effect>) {
        let mut compound = self.begin(flavour, connection, principal, body);
        let mut effects = Vec::new();
        let mut blocking = Blocking::Forbidden;
        loop {
            let RunResult { effects: new, progress } = compound.run(&self.server, blocking);
            act(&new);
            for effect in &new {
                match effect {
                    Effect::Persist { key, value, .. } => {
                        drop(self.records.lock().unwrap().insert(key.clone(), value.clone()))
                    }
                    Effect::Forget { key, .. } => drop(self.records.lock().unwrap().remove(key)),
                    _ => {}
                }
            }
            let has_callback = new.iter().any(|effect| matches!(effect, Effect::Callback { .. }));
            effects.extend(new);
            match progress {
                Progress::Done(reply) => {
                    let reply = reply.expect("only retries of a call in progress get no reply");
                    self.awaits_records.store(reply.kind != ReplyKind::Plain, Ordering::Relaxed);
                    return (reply.bytes[28..].to_vec(), effects);
                }
                Progress::Blocked(_) => {
                    assert!(
                        blocking == Blocking::Forbidden || has_callback,
                        "with blocking only callbacks block"
                    );
                    blocking = Blocking::Allowed;
                }
            }
        }
    }
}

pub(crate) fn bad_block() -> Error {
    Error::Io(std::io::Error::other("bad block"))
}

pub(crate) fn user(uid: u32) -> Principal {
    Principal::Sys { uid, gid: uid, gids: [].into() }
}

pub(crate) fn compound(minor: u32, ops: &[Args<'_>]) -> Vec<u8> {
    let mut w = Writer::new();
    CompoundHead { tag: b"t", minor, count: ops.len() as u32 }.encode(&mut w);
    ops.iter().for_each(|op| op.encode(&mut w));
    w.into_bytes()
}

pub(crate) fn results(reply: Vec<u8>) -> (Status, Vec<Results<'static>>) {
    let reply: &'static [u8] = reply.leak();
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

pub(crate) struct Client<'w> {
    pub(crate) fixture: &'w Fixture,
    pub(crate) connection: Arc<Connection>,
    pub(crate) principal: Principal,
    pub(crate) flavour: Flavour,
    pub(crate) minor: u32,
    pub(crate) id: ClientId,
    pub(crate) session: SessionId,
    seq: SlotSeq,
}

impl<'w> Client<'w> {
    pub(crate) fn new(fixture: &'w Fixture, name: &str, uid: u32) -> Self {
        Self::with_protection(fixture, name, user(uid), Flavour::Sys, StateProtect::None).0
    }

    pub(crate) fn with_fixture() -> (&'static Fixture, Client<'static>) {
        let fixture: &'static Fixture = Box::leak(Box::new(Fixture::new()));
        (fixture, Client::new(fixture, "one", 0))
    }

    pub(crate) fn alone() -> Client<'static> {
        Self::with_fixture().1
    }

    pub(crate) fn with_file() -> Client<'static> {
        let mut client = Self::alone();
        client.create("f");
        client
    }

    pub(crate) fn rebooted(fixture: &'w Fixture, name: &str, uid: u32) -> Self {
        let mut client = Self::by_user(fixture, fixture.connect(), name, 2, uid);
        client.reclaim_complete();
        client
    }

    pub(crate) fn with_protection(
        fixture: &'w Fixture,
        name: &str,
        principal: Principal,
        flavour: Flavour,
        protect: StateProtect<'_>,
    ) -> (Self, StateProtectReply<'static>) {
        let (mut client, protection) =
            Self::register(fixture, fixture.connect(), name, 1, principal, flavour, protect);
        client.reclaim_complete();
        (client, protection)
    }

    pub(crate) fn after_server_restart(fixture: &'w Fixture, name: &str, uid: u32) -> Self {
        Self::by_user(fixture, fixture.connect(), name, 1, uid)
    }

    pub(crate) fn reclaim_complete(&mut self) {
        let (status, _) =
            self.run(&[Args::ReclaimComplete(op::ReclaimCompleteArgs { one_fs: false })]);
        assert_eq!(status, Status::OK);
    }

    pub(crate) fn over(fixture: &'w Fixture, connection: Arc<Connection>, name: &str) -> Self {
        let mut client = Self::by_user(fixture, connection, name, 1, 0);
        client.reclaim_complete();
        client
    }

    fn by_user(
        fixture: &'w Fixture,
        connection: Arc<Connection>,
        name: &str,
        boot: u8,
        uid: u32,
    ) -> Self {
        let none = StateProtect::None;
        Self::register(fixture, connection, name, boot, user(uid), Flavour::Sys, none).0
    }

    fn register(
        fixture: &'w Fixture,
        connection: Arc<Connection>,
        name: &str,
        boot: u8,
        principal: Principal,
        flavour: Flavour,
        protect: StateProtect<'_>,
    ) -> (Self, StateProtectReply<'static>) {
        let mut client = Client {
            fixture,
            connection,
            principal,
            flavour,
            minor: 2,
            id: ClientId(0),
            session: SessionId([0; 16]),
            seq: SlotSeq(0),
        };
        let (_, list) = client.send(&[exchange_id(name, boot, protect)]);
        let [Results::ExchangeId(Ok(ok))] = &list[..] else { panic!("{list:?}") };
        client.id = ok.client;
        let protection = ok.state_protect.clone();
        let (_, list) = client.send(&[create_session(ok.client, CreateSeq(ok.seq.0))]);
        let [Results::CreateSession(Ok(ok))] = &list[..] else { panic!("{list:?}") };
        client.session = ok.session;
        (client, protection)
    }

    pub(crate) fn call(&self, ops: &[Args<'_>]) -> (Vec<u8>, Vec<Effect>) {
        let body = compound(self.minor, ops);
        self.fixture.call_with_flavour(self.flavour, &self.connection, &self.principal, body)
    }

    pub(crate) fn begin_call(&self, ops: &[Args<'_>]) -> Compound {
        let body = compound(self.minor, ops);
        self.fixture.begin(self.flavour, &self.connection, &self.principal, body)
    }

    pub(crate) fn send(&self, ops: &[Args<'_>]) -> (Status, Vec<Results<'static>>) {
        results(self.call(ops).0)
    }

    pub(crate) fn next_sequence(&mut self, cache_this: bool) -> Args<'static> {
        self.seq = self.seq.next();
        Args::Sequence(op::SequenceArgs {
            session: self.session,
            seq: self.seq,
            slot: SlotId(0),
            highest_slot: SlotId(0),
            cache_this,
        })
    }

    pub(crate) fn begin(&mut self, ops: &[Args<'_>]) -> Compound {
        let all = [&[self.next_sequence(false), Args::Putrootfh, lookup("export")], ops].concat();
        self.begin_call(&all)
    }

    pub(crate) fn run(&mut self, ops: &[Args<'_>]) -> (Status, Vec<Results<'static>>) {
        let mut all = vec![self.next_sequence(false)];
        all.extend_from_slice(ops);
        let (status, mut list) = self.send(&all);
        assert!(matches!(list[0], Results::Sequence(Ok(_))), "{list:?}");
        list.remove(0);
        (status, list)
    }

    pub(crate) fn run_at(
        &mut self,
        path: &[&str],
        ops: &[Args<'_>],
    ) -> (Status, Vec<Results<'static>>) {
        let mut all = vec![Args::Putrootfh];
        all.extend(path.iter().map(|part| lookup(part)));
        let lookups = all.len();
        all.extend_from_slice(ops);
        let (status, mut list) = self.run(&all);
        let skip = lookups.min(list.len());
        (status, list.split_off(skip))
    }

    pub(crate) fn status(&mut self, path: &[&str], ops: &[Args<'_>]) -> Status {
        self.run_at(path, ops).0
    }

    pub(crate) fn filehandle(&mut self, path: &[&str], ops: &[Args<'_>]) -> Filehandle {
        match self.run_at(path, &[ops, &[Args::Getfh]].concat()).1.last() {
            Some(Results::Getfh(Ok(ok))) => ok.handle,
            other => panic!("{path:?}: {other:?}"),
        }
    }

    pub(crate) fn create(&mut self, name: &str) -> Stateid {
        let (status, list) = self.run_at(&["export"], &[open_by_name(name, Some(&mode(0o644)))]);
        assert_eq!(status, Status::OK, "{list:?}");
        match &list[0] {
            Results::Open(Ok(ok)) => ok.stateid,
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn expect_ok((status, list): (Status, Vec<Results<'static>>)) -> Vec<Results<'static>> {
    assert_eq!(status, Status::OK, "{list:?}");
    list
}

pub(crate) fn attributes(result: &Results<'static>) -> Attributes<'static> {
    match result {
        Results::Getattr(Ok(ok)) => ok.attrs.attributes().expect("valid attributes"),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn name_of(op: Op) -> &'static str {
    op.name().unwrap_or("?")
}
