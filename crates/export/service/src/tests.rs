use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use vouch_daemon::status_client;
use vouch_oncrpc::{Call, OpaqueAuth, record};
use vouch_xdr::Writer;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::driver::Driver;
use crate::identity::{AccountRules, Accounts, Idmap};
use crate::monitoring::operation_metrics::Metrics;
use crate::system_hooks::SystemHooks;
use crate::*;
use vouch_vfs::memory::MemoryFs;

mod audit;
pub(super) mod blocking;
mod client_faults;
mod contexts;
mod lease_end;
mod load;
mod lost_access;
mod management;
mod qos;
mod remote;
mod remote_management;

pub(super) fn engine() -> vouch_nfs4_server::Server {
    let config = vouch_nfs4_server::Config {
        lease_ms: 10_000,
        grace_ms: 0,
        minor_versions: 0..=2,
        delegations: true,
        domain: "example.org".into(),
        numeric_owners: true,
        server_owner: vec![1],
        server_scope: vec![1],
        addresses: Vec::new(),
        boot: 1,
        filehandle_key: [2; 32],
        implementation: None,
        limits: vouch_nfs4_server::Limits::default(),
    };
    let (idmap, map) = (Idmap::default(), identity::PrincipalMap::default());
    let rules =
        AccountRules { idmap, groups: GroupSource::Client, map, unknown: UnknownPrincipal::Refuse };
    let names = Arc::new(Accounts::new(identity::System, rules, IdentityLives::default()));
    let recovered = vouch_nfs4_server::Recovered::default();
    vouch_nfs4_server::Server::new(
        config,
        vouch_nfs4_server::Exports::default(),
        names,
        Arc::new(Metrics::new()),
        recovered,
        [3; 32],
        clock::now(),
    )
}

fn hooks(files: &MemoryFs) -> SystemHooks {
    let files = files.clone();
    SystemHooks::system(Box::new(move |_, _| Ok(Arc::new(files.clone()))))
}

struct Running {
    address: SocketAddr,
    driver: std::sync::Weak<Driver>,
    state: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), ExportError>>>,
    _directory: tempfile::TempDir,
}

impl Running {
    fn start(change: impl FnOnce(&mut ExportConfig)) -> Self {
        Self::start_with(change, MemoryFs::new())
    }

    fn start_with(change: impl FnOnce(&mut ExportConfig), files: MemoryFs) -> Self {
        Self::start_in(change, hooks(&files))
    }

    fn start_in(change: impl FnOnce(&mut ExportConfig), seams: SystemHooks) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let list = directory.path().join("exports");
        std::fs::write(&list, "/data *(rw,insecure,no_root_squash)\n").unwrap();
        let mut config = ExportConfig {
            exports: ExportList::Files(vec![list]),
            policies: Vec::new(),
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            passed: Vec::new(),
            trunk: Vec::new(),
            metrics: None,
            state: directory.path().join("state"),
            filehandle_key: None,
            lease: Duration::from_secs(5),
            threads: Some(2),
            minor_versions: 0..=2,
            delegations: true,
            domain: None,
            idmap: None,
            numeric_owners: true,
            groups: GroupSource::Client,
            identity_lives: IdentityLives {
                wait: Duration::from_secs(600),
                ..IdentityLives::default()
            },
            principal_map: None,
            unknown_principals: UnknownPrincipal::Refuse,
            keytab: None,
            tls: None,
            management: None,
            balancers: Vec::new(),
            resolve_every: Duration::from_secs(1),
            limits: Limits::default(),
            audit: None,
            runtime_directory: None,
            shared: None,
        };
        change(&mut config);
        let state = config.state.clone();
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, wait) = std::sync::mpsc::channel();
        let stop_requested = stop.clone();
        let thread = thread::spawn(move || {
            let shared = config.shared.clone();
            let lease = shared.map(|shared| wait_for_lease(&config, &shared, |_| ()).unwrap());
            let server = Server::open_with(config, seams, lease).unwrap();
            ready.send((server.addresses()[0], Arc::downgrade(&server.driver))).unwrap();
            server.run(|| stop_requested.load(Ordering::SeqCst))
        });
        let (address, driver) = wait.recv().unwrap();
        Running { address, driver, state, stop, thread: Some(thread), _directory: directory }
    }

    fn connect(&self) -> TcpStream {
        self.connect_from(1)
    }

    fn connect_from(&self, host: u8) -> TcpStream {
        use socket2::{Domain, Socket, Type};
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, host], 0)).into()).unwrap();
        socket.connect(&self.address.into()).unwrap();
        let socket = TcpStream::from(socket);
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        socket
    }

    fn stop(&mut self) -> Result<(), ExportError> {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().map_or(Ok(()), |thread| thread.join().unwrap())
    }

    fn status(&self) -> Status {
        let status = status_client::ask(&state_directory::control_path(&self.state, None)).unwrap();
        serde_json::from_value(status.detail).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !thread::panicking() {
                ended.unwrap().unwrap();
            }
        }
    }
}

fn call(xid: u32, procedure: u32) -> Vec<u8> {
    let args = [0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0];
    let args = if procedure == 0 { &[][..] } else { &args[..] };
    record(|w| Call::new(xid, (100_003, 4), procedure, args).encode(w))
}

fn read_record(socket: &mut TcpStream) -> Vec<u8> {
    vouch_testkit::read_record(socket).unwrap()
}

fn exchange(socket: &mut TcpStream, record: &[u8]) -> Vec<u8> {
    socket.write_all(record).unwrap();
    read_record(socket)
}

fn xid(record: &[u8]) -> u32 {
    u32::from_be_bytes(*record.first_chunk().unwrap())
}

#[test]
fn calls_are_answered_in_order_across_any_fragments() {
    let server = Running::start(|_| ());
    let calls: Vec<u8> = (0..3000).flat_map(|i| call(i, i % 2)).collect();
    for piece_len in [7, 1000, 1_000_000] {
        let mut socket = server.connect();
        let mut writer = socket.try_clone().unwrap();
        let calls = calls.clone();
        let sender = thread::spawn(move || {
            calls.chunks(piece_len).for_each(|piece| writer.write_all(piece).unwrap())
        });
        for i in 0..3000 {
            assert_eq!(xid(&read_record(&mut socket)), i);
        }
        sender.join().unwrap();
    }
}

#[test]
fn sender_of_garbage_is_disconnected_alone() {
    let server = Running::start(|_| ());
    let mut good = server.connect();
    for garbage in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0x80, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 9],
        &[0x80, 0, 0, 0],
        &[0xff; 64],
    ] {
        let mut socket = server.connect();
        socket.write_all(garbage).unwrap();
        assert_eq!(socket.read(&mut [0; 16]).unwrap_or(0), 0, "{garbage:?}");
    }
    assert_eq!(xid(&exchange(&mut good, &call(5, 0))), 5);
}

#[test]
fn client_that_never_reads_is_not_read_and_blocks_nobody() {
    let server = Running::start(|_| ());
    let mut greedy = server.connect();
    greedy.set_nonblocking(true).unwrap();
    let calls: Vec<u8> = (0..1000).flat_map(|i| call(i, 1)).collect();
    let (mut sent, mut full) = (0usize, 0);
    while full < 40 {
        match greedy.write(&calls[sent % calls.len()..]) {
            Ok(n) => (sent, full) = (sent + n, 0),
            Err(_) => {
                thread::sleep(Duration::from_millis(10));
                full += 1;
            }
        }
        assert!(sent < 64 << 20, "{sent}");
    }
    let mut other = server.connect();
    assert_eq!(xid(&exchange(&mut other, &call(5, 1))), 5);
    greedy.set_nonblocking(false).unwrap();
    let whole = sent / calls.len() * 1000;
    for i in 0..whole {
        assert_eq!(xid(&read_record(&mut greedy)) as usize, i % 1000);
    }
}

#[test]
fn slow_sender_of_a_record_is_disconnected() {
    let server = Running::start(|config| config.limits.stall_max = Duration::from_secs(1));
    let mut slow = server.connect();
    let mut idle = server.connect();
    slow.write_all(&call(1, 0)[..10]).unwrap();
    let began = std::time::Instant::now();
    assert_eq!(slow.read(&mut [0; 16]).unwrap_or(0), 0);
    assert!(began.elapsed() < Duration::from_secs(10));
    assert_eq!(xid(&exchange(&mut idle, &call(2, 0))), 2);
}

#[test]
fn one_address_cannot_use_all_connections() {
    let server = Running::start(|config| config.limits.connections_per_address_max = 3);
    let mut sockets: Vec<_> = (0..3).map(|_| server.connect()).collect();
    for socket in &mut sockets {
        socket.write_all(&call(1, 0)).unwrap();
        read_record(socket);
    }
    let mut refused = server.connect();
    assert_eq!(refused.read(&mut [0; 16]).unwrap_or(0), 0);
    sockets.pop();
    let found = (0..200).any(|_| {
        thread::sleep(Duration::from_millis(10));
        let mut socket = server.connect();
        socket.write_all(&call(1, 0)).is_ok() && socket.read(&mut [0; 16]).unwrap_or(0) > 0
    });
    assert!(found);
}

#[test]
fn idle_connections_cost_little_memory() {
    let server = Running::start(|_| ());
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap()
    };
    let mut first = server.connect();
    first.write_all(&call(1, 1)).unwrap();
    read_record(&mut first);
    let before = resident();
    let count = 2000;
    let mut sockets: Vec<_> = (0..count).map(|_| server.connect()).collect();
    for socket in &mut sockets {
        socket.write_all(&call(9, 1)).unwrap();
    }
    for socket in &mut sockets {
        assert_eq!(xid(&read_record(socket)), 9);
    }
    let each = resident().saturating_sub(before) * 1024 / count;
    assert!(each < 8192, "{each} bytes a connection");
}

#[test]
fn control_socket_answers_status_and_reload() {
    let server = Running::start(|_| ());
    let path = state_directory::control_path(&server.state, None);
    let status = || server.status();
    assert_eq!(status().exports[0].pseudo_path, "/data");
    let list = server.state.parent().unwrap().join("exports");
    std::fs::write(&list, "/data *(rw)\n/more *(ro,no_wdelay)\n").unwrap();
    assert_eq!(status_client::reload(&path).unwrap().len(), 1);
    assert_eq!(status().exports.len(), 2);
    std::fs::write(&list, "/data *(rw,wrong)\n").unwrap();
    let why = status_client::reload(&path).unwrap_err().to_string();
    assert!(why.contains("line 1") && why.contains("stays in force"), "{why}");
    assert_eq!(status().exports.len(), 2);
}
