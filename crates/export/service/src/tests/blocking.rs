use parking_lot::{Condvar, Mutex};
use vouch_nfs4::attr::FileType;
use vouch_nfs4::op::{Args, CreateArgs, CreateType, GetattrArgs, LookupArgs, StableHow, WriteArgs};
use vouch_nfs4::{Attributes, Bitmap, CompoundHead, Fattr, Name, Stateid, Wire as _};
use vouch_oncrpc::{AuthSys, Flavor};
use vouch_xdr::{Reader, Xdr as _};

use super::*;
use crate::hosts::resolver::{NoAnswer, Resolver};
use crate::identity::{LocalName, NameService, NameServiceDown, UserRecord};

#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<Passing>, Condvar)>);

#[derive(Default)]
struct Passing {
    closed: bool,
    waiting: usize,
    most: usize,
}

impl Gate {
    pub(crate) fn set_closed(&self, closed: bool) {
        self.0.0.lock().closed = closed;
        self.0.1.notify_all();
    }

    pub(crate) fn pass(&self) {
        let mut passing = self.0.0.lock();
        passing.waiting += 1;
        passing.most = passing.most.max(passing.waiting);
        self.0.1.wait_while(&mut passing, |passing| passing.closed);
        passing.waiting -= 1;
    }

    pub(crate) fn waiting(&self) -> (usize, usize) {
        let passing = self.0.0.lock();
        (passing.waiting, passing.most)
    }
}

pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

pub(crate) struct Nobody;

impl Resolver for Nobody {
    fn addresses(&self, _: &str) -> Result<Vec<std::net::IpAddr>, NoAnswer> {
        Ok(Vec::new())
    }
    fn name(&self, _: std::net::IpAddr) -> Result<Option<String>, NoAnswer> {
        Ok(None)
    }
    fn in_netgroup(&self, _: &str, _: &str) -> bool {
        false
    }
}

#[derive(Clone, Default)]
pub(super) struct Slow(pub(super) Gate);

impl NameService for Slow {
    fn user(&self, uid: u32) -> Result<Option<UserRecord>, NameServiceDown> {
        self.0.pass();
        Ok(Some(UserRecord { name: format!("user{uid}"), uid, gid: uid }))
    }
    fn user_by_name(&self, _: &str) -> Result<Option<UserRecord>, NameServiceDown> {
        Ok(None)
    }
    fn group(&self, _: u32) -> Result<Option<String>, NameServiceDown> {
        Ok(None)
    }
    fn group_by_name(&self, _: &str) -> Result<Option<u32>, NameServiceDown> {
        Ok(None)
    }
    fn groups(&self, _: &str, gid: u32) -> Result<Vec<u32>, NameServiceDown> {
        Ok(vec![gid])
    }
    fn local_name(&self, _: &str) -> LocalName {
        LocalName::NoRules
    }
}

impl Resolver for Slow {
    fn addresses(&self, host: &str) -> Result<Vec<std::net::IpAddr>, NoAnswer> {
        let last = host
            .strip_prefix('h')
            .and_then(|rest| rest.strip_suffix(".example.org"))
            .and_then(|last| last.parse().ok());
        Ok(last.map(|last| std::net::IpAddr::from([127, 0, 0, last])).into_iter().collect())
    }
    fn name(&self, address: std::net::IpAddr) -> Result<Option<String>, NoAnswer> {
        self.0.pass();
        let std::net::IpAddr::V4(address) = address else { return Ok(None) };
        Ok(Some(format!("h{}.example.org", address.octets()[3])))
    }
    fn in_netgroup(&self, _: &str, _: &str) -> bool {
        false
    }
}

pub(super) fn start(
    change: impl FnOnce(&mut ExportConfig),
    files: &MemoryFs,
    names: &Slow,
    hosts: &Slow,
) -> Running {
    let seams = SystemHooks {
        names: Arc::new(names.clone()),
        resolver: Arc::new(hosts.clone()),
        ..hooks(files)
    };
    let set = |config: &mut ExportConfig| {
        config.threads = Some(1);
        config.numeric_owners = false;
        config.groups = GroupSource::Client;
        change(config);
    };
    Running::start_in(set, seams)
}

pub(super) fn compound(xid: u32, ops: &[Args<'_>]) -> Vec<u8> {
    compound_of(0, xid, ops)
}

fn compound_of(uid: u32, xid: u32, ops: &[Args<'_>]) -> Vec<u8> {
    compound_of_minor(0, uid, xid, ops)
}

pub(super) fn body(minor: u32, ops: &[Args<'_>]) -> Vec<u8> {
    let mut body = Writer::new();
    CompoundHead { tag: b"", minor, count: ops.len() as u32 }.encode(&mut body);
    ops.iter().for_each(|op| op.encode(&mut body));
    body.into_bytes()
}

pub(super) fn compound_of_minor(minor: u32, uid: u32, xid: u32, ops: &[Args<'_>]) -> Vec<u8> {
    let mut auth = Writer::new();
    AuthSys { stamp: 0, machine_name: b"test".to_vec(), uid, gid: 0, gids: Vec::new() }
        .encode(&mut auth);
    let (body, auth) = (body(minor, ops), auth.into_bytes());
    let cred = OpaqueAuth { flavor: Flavor::SYS, body: &auth };
    record(|w| Call { cred, ..Call::new(xid, (100_003, 4), 1, &body) }.encode(w))
}

pub(super) fn lookup(name: &str) -> Args<'_> {
    Args::Lookup(LookupArgs { name: Name(name.as_bytes()) })
}

fn owner(xid: u32, path: &[&str]) -> Vec<u8> {
    let mut ops = vec![Args::Putrootfh, lookup("data")];
    ops.extend(path.iter().map(|name| lookup(name)));
    ops.push(Args::Getattr(GetattrArgs { wanted: Bitmap::of(&[36]) }));
    compound(xid, &ops)
}

fn attributes_as_user(xid: u32) -> Vec<u8> {
    compound_of(
        1000 + xid,
        xid,
        &[Args::Putrootfh, lookup("data"), Args::Getattr(GetattrArgs { wanted: Bitmap::of(&[1]) })],
    )
}

pub(super) fn make(xid: u32, name: &str) -> Vec<u8> {
    let mut packed = Writer::new();
    Attributes { mode: Some(0o755), ..Attributes::default() }
        .encode(Bitmap::of(&[33]), &mut packed);
    let packed = packed.into_bytes();
    let attrs = Fattr::decode(&mut Reader::new(&packed)).unwrap();
    let create = Args::Create(CreateArgs {
        kind: CreateType::Plain(FileType::Directory),
        name: Name(name.as_bytes()),
        attrs,
    });
    compound(xid, &[Args::Putrootfh, lookup("data"), create])
}

pub(super) fn good(record: &[u8]) -> Option<u32> {
    // RFC 5531 §9: six words of an accepted reply, then the COMPOUND status.
    (record[24..28] == [0; 4]).then(|| xid(record))
}

pub(super) fn answered(socket: &mut TcpStream) -> Option<u32> {
    good(&read_record(socket))
}

pub(super) fn is_silent(server: &Running, socket: &TcpStream) -> bool {
    let mut other = server.connect_from(250);
    for number in 0..20 {
        other.write_all(&call(number, 0)).unwrap();
        assert_eq!(xid(&read_record(&mut other)), number);
    }
    has_nothing(socket)
}

pub(super) fn has_nothing(socket: &TcpStream) -> bool {
    socket.set_nonblocking(true).unwrap();
    let silent =
        socket.peek(&mut [0; 4]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
    socket.set_nonblocking(false).unwrap();
    silent
}

#[test]
fn half_the_replies_leave_early_for_waiting_client() {
    let (files, gate) = (MemoryFs::new(), Gate::default());
    let passed = gate.clone();
    files.set_fault(move |_, _| {
        passed.pass();
        None
    });
    let server = start(|_| (), &files, &Slow::default(), &Slow::default());
    let mut socket = server.connect();
    gate.set_closed(true);
    let calls: Vec<u8> = (0..40).flat_map(|number| call(number, 0)).chain(owner(40, &[])).collect();
    socket.write_all(&calls).unwrap();
    until("the last call does not start", || gate.waiting().0 == 1);
    for number in 0..20 {
        assert_eq!(xid(&read_record(&mut socket)), number);
    }
    gate.set_closed(false);
    for number in 20..=40 {
        assert_eq!(xid(&read_record(&mut socket)), number);
    }
}

#[test]
fn waiting_for_names_leaves_threads_for_disks() {
    let (files, names) = (MemoryFs::new(), Slow::default());
    files.set_slow_sync(true);
    let server =
        start(|config| config.limits.waiting_threads_max = 1, &files, &names, &Slow::default());
    let (mut client, mut other) = (server.connect(), server.connect());
    names.0.set_closed(true);
    (0..3).for_each(|number| client.write_all(&owner(number, &[])).unwrap());
    until("the lookup does not start", || {
        names.0.waiting().0 == 1 && server.status().waiting_calls == 3
    });
    assert_eq!(good(&exchange(&mut other, &make(9, "made"))), Some(9));
    assert!(is_silent(&server, &client));
    until("another number of calls waits", || server.status().waiting_calls == 3);
    names.0.set_closed(false);
    let mut all: Vec<_> = (0..3).map(|_| answered(&mut client).unwrap()).collect();
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2]);
    until("calls still wait", || server.status().waiting_calls == 0);
}

#[test]
fn call_that_needs_names_after_disk_continues_elsewhere() {
    let (files, names) = (MemoryFs::new(), Slow::default());
    let server =
        start(|config| config.limits.waiting_threads_max = 1, &files, &names, &Slow::default());
    let (mut client, mut other) = (server.connect(), server.connect());
    assert_eq!(good(&exchange(&mut other, &make(1, "made"))), Some(1));
    files.set_slow_sync(true);
    names.0.set_closed(true);
    for number in 0..3 {
        files.evict_caches();
        client.write_all(&owner(number, &["made"])).unwrap();
        until("the call does not wait for the lookup", || {
            names.0.waiting().0 == 1 && server.status().waiting_calls == number as usize + 1
        });
    }
    files.evict_caches();
    assert_eq!(good(&exchange(&mut other, &make(9, "more"))), Some(9));
    names.0.set_closed(false);
    let mut all: Vec<_> = (0..3).map(|_| answered(&mut client).unwrap()).collect();
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2]);
}

#[test]
fn address_with_too_many_waiting_calls_is_not_read() {
    let (files, names) = (MemoryFs::new(), Slow::default());
    let server =
        start(|config| config.limits.waiting_calls_max = 40, &files, &names, &Slow::default());
    names.0.set_closed(true);
    let mut greedy: Vec<TcpStream> = (0..60).map(|_| server.connect_from(1)).collect();
    for (number, socket) in greedy.iter_mut().enumerate() {
        socket.write_all(&owner(number as u32, &[])).unwrap();
    }
    until("calls do not fill four fifths", || server.status().waiting_calls == 32);
    let mut same = server.connect_from(1);
    same.write_all(&call(7, 0)).unwrap();
    assert!(is_silent(&server, &same));
    let mut other = server.connect_from(2);
    assert_eq!(xid(&exchange(&mut other, &call(5, 0))), 5);
    other.write_all(&owner(6, &[])).unwrap();
    until("the call of the other client does not wait", || server.status().waiting_calls == 33);
    assert!(server.status().held_back > 0);
    names.0.set_closed(false);
    for (number, socket) in greedy.iter_mut().enumerate() {
        assert_eq!(answered(socket), Some(number as u32));
    }
    assert_eq!((answered(&mut other), xid(&read_record(&mut same))), (Some(6), 7));
    until("calls still wait", || server.status().waiting_calls == 0);
}

fn long(xid: u32, len: usize) -> Vec<u8> {
    let data = vec![7; len];
    let write = WriteArgs {
        stateid: Stateid::ANONYMOUS,
        offset: 0,
        stable: StableHow::Unstable,
        data: vouch_nfs4::Bytes(&data),
    };
    compound(
        xid,
        &[
            Args::Putrootfh,
            lookup("data"),
            Args::Getattr(GetattrArgs { wanted: Bitmap::of(&[36]) }),
            Args::Write(write),
        ],
    )
}

#[test]
fn address_with_too_many_waiting_bytes_is_not_read() {
    let (files, names) = (MemoryFs::new(), Slow::default());
    let server =
        start(|config| config.limits.waiting_len_max = 12 << 20, &files, &names, &Slow::default());
    names.0.set_closed(true);
    let mut greedy: Vec<TcpStream> = (0..24).map(|_| server.connect_from(1)).collect();
    for (number, socket) in greedy.iter_mut().enumerate() {
        let (bytes, mut socket) = (long(number as u32, 512 << 10), socket.try_clone().unwrap());
        thread::spawn(move || socket.write_all(&bytes));
    }
    until("waiting calls do not fill the share", || {
        server.status().waiting_calls >= 6 && server.status().held_back > 0
    });
    let mut other = server.connect_from(2);
    let waiting = server.status().waiting_calls;
    other.write_all(&owner(6, &[])).unwrap();
    until("the call of the other client does not wait", || server.status().waiting_calls > waiting);
    assert!(
        server.status().waiting_calls < 12,
        "each keeps more than a megabyte: {}",
        server.status().waiting_calls
    );
    names.0.set_closed(false);
    for (number, socket) in greedy.iter_mut().enumerate() {
        assert_eq!(xid(&read_record(socket)), number as u32);
    }
    assert_eq!(answered(&mut other), Some(6));
    until("calls still wait", || server.status().waiting_calls == 0);
}

#[test]
fn address_with_busy_threads_leaves_some_for_others() {
    let (files, names) = (MemoryFs::new(), Slow::default());
    let server =
        start(|config| config.groups = GroupSource::Server, &files, &names, &Slow::default());
    names.0.set_closed(true);
    let mut greedy: Vec<TcpStream> = (0..60).map(|_| server.connect_from(1)).collect();
    for (number, socket) in greedy.iter_mut().enumerate() {
        socket.write_all(&attributes_as_user(number as u32)).unwrap();
    }
    until("not all calls wait", || server.status().waiting_calls == 60);
    until("lookups do not fill the share of threads", || names.0.waiting().0 == 25);
    let mut other = server.connect_from(2);
    other.write_all(&attributes_as_user(99)).unwrap();
    until("the lookup of the other client does not start", || names.0.waiting().0 == 26);
    assert!(is_silent(&server, &other));
    assert_eq!(names.0.waiting(), (26, 26));
    names.0.set_closed(false);
    assert_eq!(answered(&mut other), Some(99));
    for (number, socket) in greedy.iter_mut().enumerate() {
        assert_eq!(answered(socket), Some(number as u32));
    }
}

#[test]
fn host_lookups_leave_threads_for_users() {
    let (files, names, hosts) = (MemoryFs::new(), Slow::default(), Slow::default());
    let by_name = |config: &mut ExportConfig| {
        let ExportList::Files(lists) = &config.exports else { panic!("it is of files") };
        std::fs::write(&lists[0], "/data *.example.org(rw,insecure,no_root_squash)\n").unwrap();
    };
    let server = start(by_name, &files, &names, &hosts);
    let mut known = server.connect();
    assert_eq!(xid(&exchange(&mut known, &call(1, 0))), 1);
    hosts.0.set_closed(true);
    let mut unknown: Vec<TcpStream> =
        (0..80).map(|number| server.connect_from(2 + number % 40)).collect();
    for socket in &mut unknown {
        socket.write_all(&owner(3, &[])).unwrap();
    }
    until("host lookups do not fill half of the threads", || {
        hosts.0.waiting().0 == limits::HOST_LOOKUPS_MAX
    });
    assert_eq!(good(&exchange(&mut known, &owner(2, &[]))), Some(2));
    hosts.0.set_closed(false);
    for socket in &mut unknown {
        assert_eq!(answered(socket), Some(3));
    }
    assert_eq!(hosts.0.waiting(), (0, limits::HOST_LOOKUPS_MAX));
}
