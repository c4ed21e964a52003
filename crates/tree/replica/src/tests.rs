use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use vouch_oncrpc::{
    Accepted, AuthStat, Call, Denied, Flavor, OpaqueAuth, RecordReader, Reply, ReplyBody,
    record_mark,
};
use vouch_testkit::within;
use vouch_tree::key::{SecretKey, SigningCert};
use vouch_tree::protocol::{
    FsinfoOffer, GetDataArgs, GetDataResult, GetFsinfoArgs, GetFsinfoResult, HANDLES_MAX, PROGRAM,
    VERSION,
};
use vouch_tree::{
    BlockHandle, Content, Counts, FrameKind, Fsinfo, HostId, Inode, SignedFsinfo, frame,
};
use vouch_tree_store::conformance::{self, IV};
use vouch_tree_store::{Database, FrameSink as _, NewRevision, WriteOptions, Writer};
use vouch_xdr::Xdr as _;

use super::*;

mod damage;
mod http;
mod statements;

fn hostid(seed: u8) -> HostId {
    SecretKey::from_seed(&[seed; 32]).public().hostid()
}

struct TestTree {
    dir: tempfile::TempDir,
    seed: u8,
    frames: Vec<(BlockHandle, Vec<u8>)>,
}

impl TestTree {
    fn new(seed: u8) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Database::create(&dir.path().join("db"), hostid(seed), IV).unwrap();
        let lens = [11, 18, 100, 1000, 16_000, 16_384, 70_000, 131_074];
        let frames = (0..80)
            .map(|i| conformance::frame(FrameKind::Leaf, i, lens[i as usize % lens.len()]))
            .collect();
        let made = Self { dir, seed, frames };
        let writer = made.writer();
        made.frames.iter().for_each(|(handle, bytes)| assert!(writer.put(handle, bytes).unwrap()));
        writer.checkpoint().unwrap();
        made
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("db")
    }

    fn writer(&self) -> Writer {
        Database::open_write(&self.path(), WriteOptions::default()).unwrap()
    }

    fn commit(&self, revision: u64, duration_s: u32) -> Vec<u8> {
        let writer = self.writer();
        let (root, key) = (SecretKey::from_seed(&[self.seed; 32]), SecretKey::from_seed(&[99; 32]));
        let previous = writer.revisions().last().map(|r| r.fsinfo);
        let content = Content::Directory { entries: 0, subdirs: 0, opaque: false, top: None };
        let root_inode = Inode::new(0o755, content);
        let fsinfo = Fsinfo {
            hostid: hostid(self.seed),
            revision,
            start: 0,
            duration_s,
            iv: IV,
            root: root_inode,
            previous,
            counts: Counts::default(),
            tag: String::new(),
        };
        let signed = SignedFsinfo::sign(
            &fsinfo,
            &key,
            SigningCert::issue(&root, key.public(), 1, 0, u64::MAX),
        )
        .to_xdr();
        let stored = frame::build(FrameKind::Fsinfo, &signed, 0);
        let handle = IV.handle_of(&stored);
        writer.put(&handle, &stored).unwrap();
        let companions = vec![self.frames[3].0];
        let (start, tag, keep, supersedes) = (0, None, None, false);
        let new = NewRevision {
            number: revision,
            start,
            fsinfo: handle,
            signed: signed.clone(),
            tag,
            companions,
            keep,
            supersedes,
            evidence: None,
        };
        writer.commit(new).unwrap();
        signed
    }
}

struct Running {
    address: SocketAddr,
    page: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
}

fn config(databases: Vec<PathBuf>) -> ServeConfig {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let limits = Limits::default();
    let sandbox = vouch_daemon::sandbox::SandboxMode::BestEffort;
    ServeConfig {
        is_tls_only: false,
        databases,
        listen: vec![any],
        passed: vec![],
        tls: None,
        metrics: Some(any),
        threads: Some(2),
        limits,
        scrub_rate: 1 << 30,
        statements: None,
        cache: None,
        sandbox,
        runtime_directory: None,
    }
}

fn start(config: ServeConfig) -> Running {
    let stop = Arc::new(AtomicBool::new(false));
    let (tell, told) = std::sync::mpsc::channel();
    let stopping = stop.clone();
    // The sandbox binds the thread that opens the server: use another one.
    let thread = std::thread::spawn(move || {
        let server = Server::open(config)?;
        tell.send((server.addresses()[0], server.page_address().unwrap())).unwrap();
        server.run(|| stopping.load(Ordering::Acquire))
    });
    let (address, page) = told.recv().expect("the server opens");
    Running { address, page, stop, thread: Some(thread) }
}

fn serve(made: &TestTree) -> Running {
    start(config(vec![made.path()]))
}

fn served() -> (TestTree, Running, Client) {
    let made = TestTree::new(1);
    let server = serve(&made);
    let client = server.connect();
    (made, server, client)
}

impl Running {
    fn stop(&mut self) -> Result<(), ServeError> {
        self.stop.store(true, Ordering::Release);
        self.thread.take().map_or(Ok(()), |thread| thread.join().unwrap())
    }

    fn connect(&self) -> Client {
        let socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Client { socket, reader: RecordReader::new(16 << 20), input: Vec::new() }
    }

    fn http(&self, path: &str) -> (u16, String) {
        let mut socket = TcpStream::connect(self.page).unwrap();
        write!(socket, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        socket.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    fn metric(&self, sample: &str) -> u64 {
        let (_, page) = self.http("/metrics");
        let line = page.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{sample} is not in {page}")).parse().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

struct Client {
    socket: TcpStream,
    reader: RecordReader,
    input: Vec<u8>,
}

fn call_to<'a>(program: u32, version: u32, procedure: u32, args: &'a [u8]) -> Call<'a> {
    Call::new(7, (program, version), procedure, args)
}

fn record(call: &Call<'_>) -> Vec<u8> {
    vouch_oncrpc::record(|w| call.encode(w))
}

impl Client {
    fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        loop {
            let mut input = &self.input[..];
            let record = self.reader.next(&mut input).unwrap().map(|record| record.into_owned());
            let left = input.len();
            self.input.drain(..self.input.len() - left);
            if record.is_some() {
                return record;
            }
            let mut read = vec![0; 65_536];
            match self.socket.read(&mut read) {
                Ok(0) => return None,
                Ok(n) => self.input.extend_from_slice(&read[..n]),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn ask(&mut self, call: &Call<'_>) -> Vec<u8> {
        self.send(&record(call));
        self.receive().expect("an answer")
    }

    fn results(&mut self, procedure: u32, args: &[u8]) -> Vec<u8> {
        let reply = self.ask(&call_to(PROGRAM, VERSION, procedure, args));
        match Reply::decode(&reply).unwrap().body {
            ReplyBody::Accepted { outcome: Accepted::Success(results), .. } => results.to_vec(),
            other => panic!("{other:?}"),
        }
    }

    fn fsinfo(&mut self, hostid: HostId, companions: bool) -> Option<FsinfoOffer> {
        match GetFsinfoResult::from_xdr(
            &self.results(1, &GetFsinfoArgs { hostid, companions }.to_xdr()),
        )
        .unwrap()
        {
            GetFsinfoResult::Ok(offer) => Some(offer),
            GetFsinfoResult::NoTree => None,
        }
    }

    fn data(&mut self, hostid: HostId, handles: Vec<BlockHandle>) -> Vec<Option<Vec<u8>>> {
        let results = self.results(2, &GetDataArgs { hostid, handles }.to_xdr());
        GetDataResult::from_xdr(&results)
            .unwrap()
            .frames
            .into_iter()
            .map(|frame| frame.map(<[u8]>::to_vec))
            .collect()
    }
}

#[test]
fn stored_frames_arrive_and_missing_ones_are_reported() {
    let (made, _server, mut client) = served();
    let missing = BlockHandle::from_bytes([5; 32]);
    let mut handles: Vec<_> =
        made.frames[..HANDLES_MAX - 1].iter().map(|(handle, _)| *handle).collect();
    handles.insert(10, missing);
    let mut expected: Vec<_> =
        made.frames[..HANDLES_MAX - 1].iter().map(|(_, bytes)| Some(bytes.clone())).collect();
    expected.insert(10, None);
    assert!(client.data(hostid(1), handles.clone()) == expected);
    handles.reverse();
    expected.reverse();
    assert!(client.data(hostid(1), handles) == expected);
    assert!(client.data(hostid(2), vec![made.frames[0].0]) == [None]);
    assert!(client.data(hostid(1), vec![]).is_empty());
}

#[test]
fn pipelined_requests_are_answered_to_slow_reader() {
    let (made, _server, mut client) = served();
    let mut stream = Vec::new();
    for xid in 0..400 {
        let handle = made.frames[xid as usize % made.frames.len()].0;
        let args = GetDataArgs { hostid: hostid(1), handles: vec![handle; 3] }.to_xdr();
        stream.extend_from_slice(&record(&Call { xid, ..call_to(PROGRAM, VERSION, 2, &args) }));
    }
    client.send(&stream);
    std::thread::sleep(Duration::from_millis(200));
    for xid in 0..400 {
        let reply = client.receive().unwrap();
        let reply = Reply::decode(&reply).unwrap();
        assert_eq!(reply.xid, xid);
        let ReplyBody::Accepted { outcome: Accepted::Success(results), .. } = reply.body else {
            panic!("{reply:?}")
        };
        let frames = GetDataResult::from_xdr(results).unwrap().frames;
        assert!(frames == [Some(&made.frames[xid as usize % made.frames.len()].1[..]); 3]);
    }
}

#[test]
fn half_closed_client_gets_its_answers() {
    let (made, _server, mut client) = served();
    let args = GetDataArgs {
        hostid: hostid(1),
        handles: made.frames[..40].iter().map(|(handle, _)| *handle).collect(),
    }
    .to_xdr();
    client.send(&record(&call_to(PROGRAM, VERSION, 2, &args)));
    client.socket.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(client.receive().is_some());
    assert!(client.receive().is_none());
}

#[test]
fn committed_revision_is_offered_without_restart() {
    let (made, server, mut client) = served();
    assert_eq!(client.fsinfo(hostid(1), true), None);
    for revision in 1..3 {
        let signed = made.commit(revision, u32::MAX);
        // Without waiting for the periodic look at the database.
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(client.fsinfo(hostid(1), false).map(|offer| offer.signed_fsinfo), Some(signed));
        let offer = client.fsinfo(hostid(1), true).unwrap();
        assert_eq!(offer.companions, [made.frames[3].1.clone()]);
        assert_eq!(
            server.metric(&format!("vouch_tree_revision{{tree=\"{}\"}}", hostid(1))),
            revision
        );
    }
}

#[test]
fn broken_tree_leaves_others_alone_and_late_one_is_served() {
    let (one, two) = (TestTree::new(1), TestTree::new(2));
    one.commit(1, u32::MAX);
    let signed = two.commit(1, u32::MAX);
    let hidden = two.path().join("hidden");
    std::fs::rename(two.path().join("manifest"), &hidden).unwrap();
    let server = start(config(vec![one.path(), two.path()]));
    let mut client = server.connect();
    assert!(client.fsinfo(hostid(1), false).is_some());
    std::fs::rename(&hidden, two.path().join("manifest")).unwrap();
    within(60, "the second database", || {
        client.data(hostid(2), vec![two.frames[0].0])[0].is_some()
    });
    std::fs::remove_file(one.path().join("manifest")).unwrap();
    within(60, "the broken database is told", || server.http("/health").1.contains("broken"));
    assert_eq!(server.http("/health").0, 503);
    assert_eq!(client.fsinfo(hostid(2), false).unwrap().signed_fsinfo, signed);
    assert!(client.data(hostid(2), vec![two.frames[0].0])[0].is_some());
    assert!(client.data(hostid(1), vec![one.frames[0].0])[0].is_some());
}

#[test]
fn start_needs_readable_databases_of_different_trees() {
    let without_database = config(vec![PathBuf::from("/nonexistent/db")]);
    assert!(matches!(Server::open(without_database), Err(ServeError::Database(_))));
    let (one, again) = (TestTree::new(1), TestTree::new(1));
    assert!(matches!(
        Server::open(config(vec![one.path(), again.path()])),
        Err(ServeError::SameTree { .. })
    ));
}

#[test]
fn rpc_refusals_follow_the_rfc() {
    // RFC 5531 §9.
    let (_made, server, mut client) = served();
    let mut outcome = |call: Call<'_>| {
        let reply = client.ask(&call);
        match Reply::decode(&reply).unwrap().body {
            ReplyBody::Accepted { outcome: Accepted::Success(results), .. } => {
                format!("Success({})", results.len())
            }
            ReplyBody::Accepted { outcome, .. } => format!("{outcome:?}"),
            ReplyBody::Denied(denied) => format!("{denied:?}"),
        }
    };
    assert_eq!(outcome(call_to(PROGRAM, VERSION, 0, &[])), "Success(0)");
    assert_eq!(outcome(call_to(100_000, 2, 0, &[])), format!("{:?}", Accepted::ProgUnavail));
    assert_eq!(
        outcome(call_to(PROGRAM, 9, 0, &[])),
        format!("{:?}", Accepted::ProgMismatch { low: 1, high: 1 })
    );
    assert_eq!(outcome(call_to(PROGRAM, VERSION, 4, &[])), format!("{:?}", Accepted::ProcUnavail));
    for procedure in 0..4 {
        assert_eq!(
            outcome(call_to(PROGRAM, VERSION, procedure, &[0; 12])),
            format!("{:?}", Accepted::GarbageArgs)
        );
    }
    let too_many = GetDataArgs {
        hostid: hostid(1),
        handles: vec![BlockHandle::from_bytes([1; 32]); HANDLES_MAX + 1],
    }
    .to_xdr();
    assert_eq!(
        outcome(call_to(PROGRAM, VERSION, 2, &too_many)),
        format!("{:?}", Accepted::GarbageArgs)
    );
    let gss = OpaqueAuth { flavor: Flavor::RPCSEC_GSS, body: &[0; 20] };
    let denied = Denied::AuthError(AuthStat::REJECTED_CRED);
    assert_eq!(
        outcome(Call { cred: gss, ..call_to(PROGRAM, VERSION, 0, &[]) }),
        format!("{denied:?}")
    );
    assert_eq!(server.metric("vouch_requests_total{procedure=\"other\",result=\"rejected\"}"), 9);
}

#[test]
fn garbage_closes_only_its_own_connection() {
    let made = TestTree::new(1);
    let server = serve(&made);
    let mut good = server.connect();
    let oversized = record_mark(5000);
    let reply_not_call = [&record_mark(8)[..], &[0, 0, 0, 7, 0, 0, 0, 1]].concat();
    for garbage in [
        &b"\x16\x03\x01 no TLS here"[..],
        &oversized,
        &reply_not_call,
        &[0xff; 100],
        &record_mark(0),
    ] {
        let mut bad = server.connect();
        bad.send(garbage);
        assert_eq!(bad.receive(), None);
    }
    assert!(good.data(hostid(1), vec![made.frames[0].0])[0].is_some());
    within(60, "the count", || {
        server.metric("vouch_connections_closed_total{reason=\"bad_request\"}") == 5
    });
}

#[test]
fn connections_over_limit_wait_for_a_free_slot() {
    let made = TestTree::new(1);
    let mut config = config(vec![made.path()]);
    config.limits.connections_max = 3;
    let server = start(config);
    let mut clients: Vec<_> = (0..3).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| assert!(client.fsinfo(hostid(1), false).is_none()));
    assert_eq!(server.connect().receive(), None);
    assert!(server.metric("vouch_connections_refused_total") >= 1);
    clients.pop();
    within(60, "room again", || server.metric("vouch_connections") == 2);
    assert!(server.connect().fsinfo(hostid(1), false).is_none());
}

#[test]
fn idle_and_stalled_peers_are_closed() {
    let made = TestTree::new(1);
    let mut config = config(vec![made.path()]);
    config.limits.idle_max = Duration::from_secs(1);
    config.limits.stall_max = Duration::from_secs(1);
    let server = start(config);
    let (idle, mut half, mut stalled) = (server.connect(), server.connect(), server.connect());
    half.send(&record_mark(100));
    let handles: Vec<_> = made
        .frames
        .iter()
        .filter(|(_, bytes)| bytes.len() > 100_000)
        .map(|(handle, _)| *handle)
        .collect();
    let args = GetDataArgs { hostid: hostid(1), handles: [&handles[..]; 6].concat() }.to_xdr();
    stalled.send(&record(&call_to(PROGRAM, VERSION, 2, &args)).repeat(4));
    for reason in ["idle", "slow_request", "slow_reader"] {
        within(60, reason, || {
            server.metric(&format!("vouch_connections_closed_total{{reason=\"{reason}\"}}")) == 1
        });
    }
    drop((idle, half, stalled));
}

#[test]
fn stop_sends_pending_answers_and_closes() {
    let made = TestTree::new(1);
    let mut server = serve(&made);
    let mut idle = server.connect();
    assert!(idle.fsinfo(hostid(1), false).is_none());
    let mut busy = server.connect();
    let handles: Vec<_> = made
        .frames
        .iter()
        .filter(|(_, bytes)| bytes.len() > 100_000)
        .map(|(handle, _)| *handle)
        .collect();
    let args = GetDataArgs { hostid: hostid(1), handles: [&handles[..]; 6].concat() }.to_xdr();
    busy.send(&record(&call_to(PROGRAM, VERSION, 2, &args)));
    within(60, "the request", || {
        server.metric("vouch_requests_total{procedure=\"getdata\",result=\"ok\"}") == 1
    });
    server.stop.store(true, Ordering::Release);
    assert_eq!(idle.receive(), None);
    assert!(busy.receive().is_some_and(|reply| reply.len() > 7 << 20));
    assert_eq!(busy.receive(), None);
    server.stop().unwrap();
}

#[test]
fn health_distinguishes_fresh_and_expired_and_nothing_is_written() {
    let made = TestTree::new(1);
    made.commit(1, u32::MAX);
    let before = listing(&made.path());
    let server = serve(&made);
    let (status, body) = server.http("/health");
    assert_eq!(status, 200);
    let health: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&health["healthy"], &health["trees"][0]["state"]), (&true.into(), &"fresh".into()));
    assert_eq!(
        (&health["trees"][0]["revision"], &health["trees"][0]["expires"]),
        (&1.into(), &u32::MAX.into())
    );
    assert!(server.connect().fsinfo(hostid(1), true).is_some());
    assert_eq!(listing(&made.path()), before, "the server writes nothing to the database");
    made.commit(2, 10);
    within(60, "the expiry", || server.http("/health").0 == 503);
    assert!(server.connect().fsinfo(hostid(1), false).is_some());
    assert_eq!(server.http("/nothing").0, 404);
}

fn listing(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let metadata = entry.metadata().unwrap();
        if metadata.is_dir() {
            found.extend(listing(&entry.path()));
        } else {
            found.push((entry.path(), std::fs::read(entry.path()).unwrap()));
        }
    }
    found.sort();
    found
}
