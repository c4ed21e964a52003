use std::io;

use vouch_audit::trail::{Disk, DiskFile, Lock};
use vouch_nfs4::op::{self, Args};
use vouch_nfs4::{
    Bitmap, Bytes, ClientId, ClientOwner, Fattr, Name, NetAddr, OwnerSeq, StateOwner, Status,
    Wire as _, cb,
};
use vouch_vfs::memory::Call;
use vouch_vfs::{Blocking, Caller, FileSystem as _};
use vouch_xdr::Reader;

use super::super::blocking::{
    Gate, answered, compound, has_nothing, is_silent, lookup, make, until,
};
use super::*;

struct Gated(Gate);

struct GatedFile(Gate, Box<dyn DiskFile>);

impl Disk for Gated {
    fn create(&self, path: &Path, secret: bool) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(GatedFile(self.0.clone(), SystemDisk.create(path, secret)?)))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(GatedFile(self.0.clone(), SystemDisk.open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        SystemDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        SystemDisk.remove(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        SystemDisk.sync_dir(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Lock> {
        SystemDisk.lock(path)
    }
}

impl DiskFile for GatedFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.1.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.pass();
        self.1.sync()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.1.set_len(len)
    }
}

struct Opened(Gate);

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.set_closed(false);
    }
}

fn start(directory: &Path, files: &MemoryFs, gate: &Gate) -> Running {
    let mut config = config(directory, None, WriterOptions::default());
    config.deny = vec!["/data".into()];
    let list = directory.join("exports");
    std::fs::write(
        &list,
        "/data *(rw,insecure,no_root_squash)\n/other *(rw,insecure,no_root_squash)\n",
    )
    .unwrap();
    let change = |all: &mut ExportConfig| {
        (all.audit, all.exports, all.threads) =
            (Some(config), ExportList::Files(vec![list]), Some(1));
        (all.limits.waiting_threads_max, all.limits.drain_max) = (1, Duration::from_secs(60));
    };
    Running::start_in(change, SystemHooks { disk: Arc::new(Gated(gate.clone())), ..hooks(files) })
}

#[test]
fn replayed_reply_waits_for_its_record() {
    let (directory, files, gate) = (tempfile::tempdir().unwrap(), MemoryFs::new(), Gate::default());
    let server = start(directory.path(), &files, &gate);
    let _opened = Opened(gate.clone());
    let mut client = server.connect();
    gate.set_closed(true);
    client.write_all(&make(7, "d")).unwrap();
    until("the file is not created", || files.file_count() > 1);
    assert!(is_silent(&server, &client), "the reply preceded its record");
    client.write_all(&make(7, "d")).unwrap();
    assert!(is_silent(&server, &client), "a repeated reply preceded its record");
    gate.set_closed(false);
    assert_eq!([answered(&mut client), answered(&mut client)], [Some(7); 2]);
    assert_eq!(files.file_count(), 2);
}

fn first_open(server: &Running, export: &str, id: &[u8]) -> (TcpStream, Vec<u8>) {
    let mut socket = server.connect();
    let location = NetAddr { netid: Bytes(b"tcp"), address: Bytes(b"127.0.0.1.3.3") };
    let callback = op::CallbackClient { program: 0x4000_0000, location };
    let client = ClientOwner { verifier: Verifier([1; 8]), id: Bytes(id) };
    let args = op::SetclientidArgs { client, callback, callback_ident: 1 };
    socket.write_all(&compound(1, &[Args::Setclientid(args)])).unwrap();
    let reply = read_record(&mut socket);
    let word = |at: usize| u64::from_be_bytes(*reply[44 + at..].first_chunk().unwrap());
    let (client, confirm) = (ClientId(word(0)), Verifier(word(8).to_be_bytes()));
    socket
        .write_all(&compound(
            2,
            &[Args::SetclientidConfirm(op::SetclientidConfirmArgs { client, confirm })],
        ))
        .unwrap();
    assert_eq!(answered(&mut socket), Some(2));
    let mut packed = Writer::new();
    Attributes { mode: Some(0o644), ..Attributes::default() }
        .encode(Bitmap::of(&[33]), &mut packed);
    let packed = packed.into_bytes();
    let attrs = Fattr::decode(&mut Reader::new(&packed)).unwrap();
    let open = op::OpenArgs {
        seq: OwnerSeq(0),
        access: ShareAccess::BOTH,
        deny: op::ShareDeny(0),
        owner: StateOwner { client, owner: Bytes(b"owner") },
        how: op::OpenHow::Create(op::CreateHow::Unchecked(attrs)),
        claim: op::OpenClaim::Null(Name(b"f")),
    };
    (socket, compound(3, &[Args::Putrootfh, lookup(export), Args::Open(open)]))
}

#[test]
fn reply_waits_for_recovery_and_audit_record() {
    let (directory, files, gate) = (tempfile::tempdir().unwrap(), MemoryFs::new(), Gate::default());
    let server = start(directory.path(), &files, &gate);
    let _opened = Opened(gate.clone());
    let (mut denied, call) = first_open(&server, "data", b"one");
    let (mut other, later) = first_open(&server, "other", b"two");
    gate.set_closed(true);
    denied.write_all(&call).unwrap();
    until("the file is not created", || files.file_count() > 1);
    other.write_all(&later).unwrap();
    assert_eq!(answered(&mut other), Some(3));
    assert!(has_nothing(&denied), "the reply preceded its record");
    gate.set_closed(false);
    assert_eq!(answered(&mut denied), Some(3));
}

fn assert_answered_before_shutdown(
    server: &Running,
    files: &MemoryFs,
    gate: &Gate,
    (mut held, call): (TcpStream, Vec<u8>),
) {
    let mut idle = server.connect();
    assert_eq!(xid(&exchange(&mut idle, &super::call(1, 0))), 1);
    gate.set_closed(true);
    held.write_all(&call).unwrap();
    until("the file is not created", || files.file_count() > 1);
    assert!(is_silent(server, &held), "the reply preceded its record");
    server.stop.store(true, Ordering::SeqCst);
    assert_eq!(idle.read(&mut [0]).unwrap(), 0);
    gate.set_closed(false);
    assert_eq!(answered(&mut held), Some(3));
}

#[test]
fn reply_waiting_for_audit_record_precedes_shutdown() {
    for first in [false, true] {
        let (directory, files, gate) =
            (tempfile::tempdir().unwrap(), MemoryFs::new(), Gate::default());
        let server = start(directory.path(), &files, &gate);
        let _opened = Opened(gate.clone());
        let call = if first {
            first_open(&server, "data", b"one")
        } else {
            (server.connect(), make(3, "d"))
        };
        assert_answered_before_shutdown(&server, &files, &gate, call);
    }
}

#[test]
fn reply_waiting_for_recovery_record_precedes_shutdown() {
    let (directory, files, gate) = (tempfile::tempdir().unwrap(), MemoryFs::new(), Gate::default());
    let server = start(directory.path(), &files, &Gate::default());
    let _opened = Opened(gate.clone());
    let call = first_open(&server, "other", b"one");
    gate.set_closed(true);
    let stuck = gate.clone();
    server
        .driver
        .upgrade()
        .unwrap()
        .recovery
        .change(Vec::new(), Some(Box::new(move || stuck.pass())));
    assert_answered_before_shutdown(&server, &files, &gate, call);
}

#[test]
fn background_copy_end_waits_for_its_record() {
    let (directory, files, gate, hold) =
        (tempfile::tempdir().unwrap(), MemoryFs::new(), Gate::default(), Gate::default());
    let server = start(directory.path(), &files, &gate);
    let _opened = (Opened(gate.clone()), Opened(hold.clone()));
    let is_called = Arc::new(AtomicBool::new(false));
    block_on(async {
        let root =
            AuthSys { stamp: 0, machine_name: b"test".to_vec(), uid: 0, gid: 0, gids: Vec::new() };
        let mut config = Config::new(
            server.address,
            2,
            Identity::new(b"one", Verifier([1; 8])),
            Plain::sys(&root),
        );
        let called = is_called.clone();
        config.callbacks = Box::new(move |args: &cb::Args<'_>| {
            called.store(true, Ordering::SeqCst);
            cb::Results::failure(args.op(), Status::NOTSUPP)
        });
        let (client, other) =
            (Client::connect(config).await.unwrap(), client_of(&server, "two", 1, 2).await);
        let (data, free) =
            (client.walk(b"/data").await.unwrap(), other.walk(b"/other").await.unwrap());
        let of = |size| Attributes { mode: Some(0o644), size: Some(size), ..Attributes::default() };
        let len = 64 << 20;
        let from =
            client.open(&data.handle, b"from", ShareAccess::BOTH, Some(&of(len))).await.unwrap();
        let to = client.open(&data.handle, b"to", ShareAccess::BOTH, Some(&of(0))).await.unwrap();
        let copying = hold.clone();
        files.set_fault(move |call, _| {
            if call == Call::Region {
                copying.pass();
            }
            None
        });
        hold.set_closed(true);
        let copy = client.copy((&from, 0), (&to, 0), len, false).await.unwrap();
        let status =
            Args::OffloadStatus(op::OffloadStatusArgs { stateid: copy.response.callback.unwrap() });
        let end = async || {
            let reply = client.compound().putfh(&to.handle).op(&status).send().await.unwrap();
            match reply.result_after(&[op::Op::PUTFH]).unwrap() {
                op::Results::OffloadStatus(Ok(ok)) => ok.complete,
                other => panic!("{other:?}"),
            }
        };
        gate.set_closed(true);
        hold.set_closed(false);
        let (caller, name) = (Caller::new(0, 0, []), vouch_vfs::Name::new(b"to").unwrap());
        let size = || files.lookup(&caller, &files.root(), name, Blocking::Allowed).unwrap().1.size;
        until("the copy does not end", || size() == len);
        files.set_slow_sync(true);
        for number in 0..5 {
            other.mkdir(&free.handle, format!("d{number}").as_bytes(), 0o755).await.unwrap();
        }
        assert_eq!(end().await, None, "OFFLOAD_STATUS preceded the record");
        assert!(!is_called.load(Ordering::SeqCst), "the callback preceded the record");
        gate.set_closed(false);
        while !is_called.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
}

#[test]
fn moved_watch_is_saved_before_the_reply() {
    let (directory, files, gate) = (tempfile::tempdir().unwrap(), MemoryFs::new(), Gate::default());
    let config =
        config(directory.path(), Some("-w /data/a/secret -p rwa\n"), WriterOptions::default());
    let hooks = SystemHooks { disk: Arc::new(Gated(gate.clone())), ..hooks(&files) };
    let server = Running::start_in(|all| all.audit = Some(config), hooks);
    let _opened = Opened(gate.clone());
    block_on(async {
        let client = client_of(&server, "one", 1, 2).await;
        let data = client.walk(b"/data").await.unwrap();
        let a = client.mkdir(&data.handle, b"a", 0o755).await.unwrap();
        client.mkdir(&a, b"secret", 0o755).await.unwrap();
        gate.set_closed(true);
        client.rename(&data.handle, b"a", &data.handle, b"b").await.unwrap();
        assert!(
            std::fs::read_to_string(directory.path().join("moved")).unwrap().ends_with("\nend 1\n")
        );
        gate.set_closed(false);
        client.close().await.unwrap();
    });
}
