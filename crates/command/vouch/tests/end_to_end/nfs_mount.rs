//! `vouch nfs-mount` with our own server.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::net::Shutdown;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::fs::{FallocateFlags, FlockOperation, XattrFlags};
use vouch_testkit::certificates::{Authority, Holder};

use crate::prelude::*;

struct Server {
    site: TestSite,
    address: SocketAddr,
    export: Option<Export>,
    more: &'static [&'static str],
}

impl Server {
    fn start(site: TestSite, more: &'static [&'static str]) -> Self {
        std::fs::create_dir_all(site.path("shared")).expect("a directory");
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let mut server = Server { site, address, export: None, more };
        server.restart();
        server
    }

    fn restart(&mut self) {
        self.export = None;
        let listen = self.address.to_string();
        let args = "export --dir shared --state exporting --lease 5 --options";
        let options = ["rw,insecure,no_root_squash", "--listen", &listen];
        let args = [&words(args)[..], &options, self.more].concat();
        self.export = Some(Export::spawn(&mut self.site.command(args), self.address));
    }

    fn mount(&self, point: &str, more: &[&str]) -> Mount {
        let port = self.address.port().to_string();
        let args = [&["--port", &port, "localhost:/export"], more].concat();
        Mount::with("nfs-mount", &self.site, point, &args)
    }

    fn data(&self, name: &str) -> PathBuf {
        self.site.path("shared").join(name)
    }
}

fn content(len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

fn exercise(server: &Server, mount: &Mount) {
    let data = content(5_000_001);
    std::fs::write(mount.path("file"), &data).expect("written");
    assert!(std::fs::read(server.data("file")).expect("the server's") == data);
    assert!(std::fs::read(mount.path("file")).expect("read back") == data);

    std::fs::create_dir(mount.path("dir")).expect("a directory");
    for number in 0..300 {
        std::fs::write(mount.path(format!("dir/{number}")), number.to_string()).expect("written");
    }
    let mut names: Vec<u32> = std::fs::read_dir(mount.path("dir"))
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name().to_str().unwrap().parse().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(names, Vec::from_iter(0..300));

    std::fs::rename(mount.path("dir/0"), mount.path("renamed")).expect("renamed");
    assert_eq!(std::fs::read(mount.path("renamed")).expect("the file"), b"0");
    std::fs::hard_link(mount.path("renamed"), mount.path("linked")).expect("linked");
    assert_eq!(std::fs::metadata(mount.path("linked")).expect("the file").nlink(), 2);
    symlink("linked", mount.path("symbolic")).expect("linked");
    assert_eq!(std::fs::read(mount.path("symbolic")).expect("the file"), b"0");
    std::fs::remove_file(mount.path("renamed")).expect("removed");
    assert!(!server.data("renamed").exists());
    let mode = std::fs::Permissions::from_mode(0o640);
    std::fs::set_permissions(mount.path("linked"), mode).expect("changed");
    assert_eq!(std::fs::metadata(server.data("linked")).expect("it").mode() & 0o7777, 0o640);
}

#[test]
#[ignore = "needs root and FUSE"]
fn files_written_through_mount_are_those_of_the_server() {
    let server = Server::start(TestSite::new(), &[]);
    let mount = server.mount("mnt", &[]);
    exercise(&server, &mount);

    let path = mount.path("file");
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("a file");
    file.write_all_at(b"in the middle", 1_000_000).expect("written");
    let mut part = [0; 13];
    file.read_exact_at(&mut part, 1_000_000).expect("read");
    assert_eq!(&part, b"in the middle");
    file.set_len(1_000_005).expect("truncated");
    assert_eq!(std::fs::metadata(&path).expect("it").len(), 1_000_005);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 0, 65_536).expect("a hole");
    file.read_exact_at(&mut part, 100).expect("read");
    assert_eq!(part, [0; 13]);
    rustix::fs::fsetxattr(&file, "user.colour", b"red", XattrFlags::empty()).expect("set");
    let mut value = [0; 8];
    assert_eq!(rustix::fs::fgetxattr(&file, "user.colour", &mut value), Ok(3));
    drop(file);
    // An unlinked file stays readable through its descriptor.
    let mut open = File::open(&path).expect("a file");
    std::fs::remove_file(&path).expect("removed");
    open.seek(SeekFrom::Start(1_000_000)).expect("a position");
    open.read_exact(&mut part[..5]).expect("read");
    assert_eq!(&part[..5], b"in th");
    drop(open);
    assert_eq!(mount.terminate(), Some(0));
    assert_eq!(std::fs::read_dir(server.site.path("mnt")).expect("the bare one").count(), 0);
}

#[test]
#[ignore = "needs root and FUSE"]
fn files_pass_over_tls() {
    let site = TestSite::new();
    let authority = Authority::new(&site.path(""), "ca");
    authority.issue("server", Holder::on_loopback());
    let tls = &["--tls-cert", "server.pem", "--tls-key", "server.key"];
    let server = Server::start(site, tls);
    let mount = server.mount("mnt", &["--tls-ca", "ca.pem", "--tls-name", "127.0.0.1"]);
    exercise(&server, &mount);
    assert_eq!(mount.terminate(), Some(0));
}

#[test]
#[ignore = "needs root and FUSE"]
fn open_after_close_of_another_mount_sees_its_data() {
    let server = Server::start(TestSite::new(), &[]);
    let (one, other) = (server.mount("one", &[]), server.mount("other", &[]));
    std::fs::write(one.path("file"), "first").expect("written");
    for round in 0..50 {
        let (writer, reader) = if round % 2 == 0 { (&one, &other) } else { (&other, &one) };
        // The reader has pages and attributes of the round before.
        std::fs::read(reader.path("file")).expect("read");
        let text = format!("{round} ").repeat(1 + round * 100);
        match round % 3 {
            0 => std::fs::write(writer.path("file"), &text).expect("written"),
            // Another file takes the name.
            _ => {
                std::fs::write(writer.path("new"), &text).expect("written");
                std::fs::rename(writer.path("new"), writer.path("file")).expect("renamed");
            }
        }
        assert_eq!(std::fs::read_to_string(reader.path("file")).expect("read"), text, "{round}");
    }
}

#[test]
#[ignore = "needs root and FUSE"]
fn locks_exclude_other_mounts_and_a_signal_ends_the_wait() {
    let server = Server::start(TestSite::new(), &[]);
    let (one, other) = (server.mount("one", &[]), server.mount("other", &[]));
    let held = File::create(one.path("file")).expect("a file");
    let second = OpenOptions::new().write(true).open(other.path("file")).expect("it");
    let lock = |file: &File, operation| rustix::fs::fcntl_lock(file, operation);
    lock(&held, FlockOperation::NonBlockingLockExclusive).expect("locked");
    assert_eq!(
        lock(&second, FlockOperation::NonBlockingLockExclusive),
        Err(rustix::io::Errno::AGAIN)
    );
    // flock(1) waits for the whole file.
    let wait = || {
        let mut command = Command::new("flock");
        command.arg(other.path("file")).args(["-c", "exit 7"]);
        command.spawn().expect("flock(1)")
    };
    let mut killed = wait();
    std::thread::sleep(Duration::from_millis(300));
    assert!(matches!(killed.try_wait(), Ok(None)), "it waits");
    signal("TERM", killed.id());
    assert!(eventually(Duration::from_secs(5), || matches!(killed.try_wait(), Ok(Some(_)))));
    let mut granted = wait();
    std::thread::sleep(Duration::from_millis(300));
    assert!(matches!(granted.try_wait(), Ok(None)), "it waits");
    lock(&held, FlockOperation::Unlock).expect("unlocked");
    assert_eq!(granted.wait().expect("it ends").code(), Some(7));
    // The server reserves the range for the killed waiter for a moment.
    let is_free = |file: &File| lock(file, FlockOperation::NonBlockingLockExclusive).is_ok();
    within(20, "free again", || is_free(&second));
    drop(second);
    within(20, "free after close", || is_free(&held));
}

#[test]
#[ignore = "needs root and FUSE"]
fn killed_server_loses_neither_data_nor_locks() {
    let mut server = Server::start(TestSite::new(), &[]);
    let (mount, other) = (server.mount("mnt", &[]), server.mount("other", &[]));
    let locked = File::create(mount.path("locked")).expect("a file");
    let lock = |file: &File| rustix::fs::fcntl_lock(file, FlockOperation::NonBlockingLockExclusive);
    lock(&locked).expect("locked");
    let path = mount.path("file");
    let writer = std::thread::spawn(move || {
        let mut file = File::create(path).expect("a file");
        for part in content(64 << 20).chunks(10_000) {
            file.write_all(part).expect("written");
        }
        file.sync_all().expect("durable");
    });
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(150));
        server.restart();
    }
    writer.join().expect("all written");
    assert!(std::fs::read(server.data("file")).expect("the file") == content(64 << 20));
    let second = OpenOptions::new().write(true).open(other.path("locked")).expect("it");
    assert_eq!(lock(&second), Err(rustix::io::Errno::AGAIN), "the lock is reclaimed");
    (&locked).write_all(b"still open").expect("written");
    locked.sync_all().expect("durable");
    drop(locked);
    lock(&second).expect("free after close");
}

/// Carries one connection after the other to `server`. Loses the reply to the first OPEN of `name`, with its
/// connection, and tells so; the next connection waits until the test says.
fn lose_reply(server: SocketAddr, name: &'static str) -> (u16, Receiver<()>, Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let ((lost, is_lost), (resume, resumed)) = (channel(), channel());
    let has = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|w| w == text.as_bytes());
    std::thread::spawn(move || {
        let (opens, mut was_lost) = (AtomicBool::new(false), false);
        for client in listener.incoming() {
            let (client, server) = (client.expect("a connection"), TcpStream::connect(server));
            let server = server.expect("the server listens");
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    carry(&client, &server, |bytes| {
                        // The name of an open owner begins so.
                        opens.fetch_or(has(bytes, name) && has(bytes, "open "), Ordering::Relaxed);
                        true
                    });
                });
                carry(&server, &client, |_| was_lost || !opens.load(Ordering::Relaxed));
            });
            if opens.load(Ordering::Relaxed) && !std::mem::replace(&mut was_lost, true) {
                lost.send(()).expect("the test waits");
                resumed.recv().expect("the test goes on");
            }
        }
    });
    (port, is_lost, resume)
}

/// Until `passes` is false or an end closes.
fn carry(mut from: &TcpStream, mut to: &TcpStream, passes: impl Fn(&[u8]) -> bool) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(n @ 1..) = from.read(&mut bytes)
        && passes(&bytes[..n])
        && to.write_all(&bytes[..n]).is_ok()
    {}
    for stream in [from, to] {
        let _ = stream.shutdown(Shutdown::Both);
    }
}

#[test]
#[ignore = "needs root and FUSE"]
fn exclusive_create_finds_its_own_file_after_a_restart() {
    let mut server = Server::start(TestSite::new(), &[]);
    let (port, is_lost, resume) = lose_reply(server.address, "exclusive");
    let args = ["--port", &port.to_string(), "localhost:/export"];
    let mount = Mount::with("nfs-mount", &server.site, "mnt", &args);
    let path = mount.path("exclusive");
    let creator = std::thread::spawn(move || File::create_new(path).map(drop));
    is_lost.recv_timeout(Duration::from_secs(60)).expect("an OPEN");
    assert!(server.data("exclusive").exists(), "the server has made it");
    server.restart();
    resume.send(()).expect("the relay waits");
    creator.join().expect("it ends").expect("its own file");
    let again = File::create_new(mount.path("exclusive")).map(drop).expect_err("it is there");
    assert_eq!(again.kind(), std::io::ErrorKind::AlreadyExists);
}

#[test]
#[ignore = "needs root and FUSE"]
fn waiting_process_dies_while_the_server_is_away_and_a_soft_mount_fails() {
    let mut server = Server::start(TestSite::new(), &[]);
    std::fs::write(server.data("file"), "text").expect("written");
    let (hard, soft) = (server.mount("hard", &[]), server.mount("soft", &["--soft", "1s"]));
    server.export = None;
    let error = std::fs::read(soft.path("file")).expect_err("no server");
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::TIMEDOUT.raw_os_error()));
    let mut waiting = Command::new("cat").arg(hard.path("file")).spawn().expect("cat(1)");
    std::thread::sleep(Duration::from_millis(500));
    assert!(matches!(waiting.try_wait(), Ok(None)), "it waits");
    signal("TERM", waiting.id());
    assert!(eventually(Duration::from_secs(5), || matches!(waiting.try_wait(), Ok(Some(_)))));
    server.restart();
    assert_eq!(std::fs::read(hard.path("file")).expect("it answers again"), b"text");
}

#[test]
#[ignore = "needs root, FUSE, python3 and Linux 6.12"]
fn idmapped_mount_writes_as_the_mapped_user() {
    require_program("python3");
    let server = Server::start(TestSite::new(), &[]);
    let mount = server.mount("mnt", &["--idmap"]);
    let owned = server.data("owned");
    std::fs::create_dir(&owned).expect("a directory");
    std::os::unix::fs::chown(&owned, Some(1000), Some(1000)).expect("changed");
    // A write removes the bit, also one by the owner.
    let set_user_id = owned.join("set-user-id");
    std::fs::write(&set_user_id, "x").expect("a file");
    std::os::unix::fs::chown(&set_user_id, Some(1000), Some(1000)).expect("changed");
    std::fs::set_permissions(&set_user_id, std::fs::Permissions::from_mode(0o4777)).expect("set");
    let mapped = server.site.path("mapped");
    std::fs::create_dir(&mapped).expect("a directory");
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/end_to_end/idmapped_mount.py");
    let mut command = Command::new("python3");
    command.arg(tool).arg(mount.path("")).arg(&mapped).args(["1000", "4000"]);
    assert!(command.status().expect("python3 starts").success());
    // Others than the owner may not enter the site's directory.
    let mut user = Command::new("setpriv");
    user.args(["--reuid=5000", "--regid=5000", "--clear-groups", "sh", "-c"]);
    user.args(["echo text > file && mkdir directory && ! mkdir ../other && echo y >> set-user-id"]);
    assert!(user.current_dir(mapped.join("owned")).status().expect("setpriv(1)").success());
    for name in ["file", "directory"] {
        assert_eq!(std::fs::metadata(owned.join(name)).expect("it").uid(), 1000, "{name}");
        assert_eq!(std::fs::metadata(mapped.join("owned").join(name)).expect("it").uid(), 5000);
    }
    let mode = std::fs::metadata(&set_user_id).expect("it").permissions().mode() & 0o7777;
    assert_eq!(mode, 0o777, "after a write");
    server.site.run_tool("umount", &["mapped"]);
}

#[test]
#[ignore = "needs root and FUSE"]
fn status_and_metrics_show_the_mount_and_none_of_its_binds_as_dead() {
    let server = Server::start(TestSite::new(), &[]);
    let (site, page) = (&server.site, SocketAddr::from(([127, 0, 0, 1], free_port())));
    let status = || {
        let mut command = site.command("status --json");
        let output = command.env("VOUCH_RUNTIME_DIR", site.path("run")).output().expect("runs");
        serde_json::from_slice::<Value>(&output.stdout).expect("JSON")
    };
    std::fs::create_dir(site.path("mnt")).expect("a directory");
    let port = server.address.port().to_string();
    let mut command = site.command(["nfs-mount", "--background", "--port", &port]);
    command.args(["--metrics", &page.to_string(), "localhost:/export", "mnt"]);
    let mounted = command.env("VOUCH_RUNTIME_DIR", site.path("run")).status().expect("it starts");
    assert!(mounted.success());
    std::fs::create_dir(site.path("bound")).expect("a directory");
    site.run_tool("mount", &["--bind", "mnt", "bound"]);
    std::fs::write(site.path("mnt/file"), "text").expect("written");
    let open = File::open(site.path("bound/file")).expect("a file");
    let machine = status();
    let mount = machine["daemons"].as_array().expect("a list").iter();
    let detail = &mount.clone().find(|daemon| daemon["kind"] == "nfs_mount").expect("it")["detail"];
    let point = site.path("mnt").display().to_string();
    assert_eq!(
        (&detail["source"], &detail["point"]),
        (&"localhost:/export".into(), &point.clone().into())
    );
    assert_eq!((&detail["open_files"], &detail["unwritten_bytes"]), (&1.into(), &0.into()));
    let silent = machine["mounts_without_status"].as_array().expect("a list");
    let own = site.path("").display().to_string();
    assert!(!silent.iter().any(|path| path.as_str().is_some_and(|path| path.starts_with(&own))));
    let mut stream = TcpStream::connect(page).expect("the page");
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("a request");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    let open_files = format!("vouch_nfs_mount_open_files{{mount=\"{point}\"}} 1");
    assert_contains!(text, &*open_files, "vouch_nfs_mount_requests_total");
    drop(open);
    site.run_tool("umount", &["bound"]);
    site.run_ok("umount mnt");
}

#[test]
#[ignore = "needs root and FUSE"]
fn link_works_after_another_file_of_an_old_name_is_removed() {
    let server = Server::start(TestSite::new(), &[]);
    let mount = server.mount("mnt", &words("--acregmin 0s --acregmax 0s"));
    std::fs::create_dir(mount.path("dir")).expect("a directory");
    std::fs::write(mount.path("dir/file"), "text").expect("written");
    let links = || std::fs::metadata(mount.path("dir/file")).expect("the file").nlink();
    std::fs::hard_link(mount.path("dir/file"), mount.path("dir/other")).expect("linked");
    std::fs::remove_file(server.data("dir/other")).expect("removed");
    std::fs::write(server.data("dir/other"), "of another").expect("written");
    // The kernel learns that the file has one name, and may count the next removal from it.
    assert_eq!(links(), 1);
    std::fs::remove_file(mount.path("dir/other")).expect("removed");
    std::fs::hard_link(mount.path("dir/file"), mount.path("dir/third")).expect("linked");
    assert_eq!(links(), 2);
}

/// `vouch bench consistency` over three mounts. It is a process of its own: a child inherits the open files of
/// a mount, and closes them before it becomes another program, which waits for the server. So the process with
/// the files must not start the server.
fn check_histories(server: &mut Server, more: &str, restarts: u64) {
    let _mounts = ["one", "other", "third"].map(|point| server.mount(point, &[]));
    let [begin, end] = ["begin", "end"].map(|name| server.site.path(name));
    let args = format!("bench consistency --mount one --mount other --mount third {more}");
    let mut command = server.site.command(words(&args));
    if restarts > 0 {
        command.args(["--restart", "touch begin; until [ -e end ]; do sleep 0.05; done"]);
    }
    let checker = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    if restarts > 0 {
        within(60, "the history begins", || begin.exists());
        // The second one comes in the middle of the recovery.
        (0..restarts).for_each(|number| {
            std::thread::sleep(Duration::from_millis(400 * number));
            server.restart();
        });
        std::fs::write(&end, "").expect("a file");
    }
    let output = checker.wait_with_output().expect("it ends");
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    assert_contains!(out, " 0 undecided, no violation");
    [begin, end].iter().filter(|_| restarts > 0).for_each(|path| {
        std::fs::remove_file(path).expect("removed");
    });
}

#[test]
#[ignore = "needs root and FUSE"]
fn consistency_holds_between_mounts() {
    let mut server = Server::start(TestSite::new(), &[]);
    check_histories(&mut server, "--calls 80 --histories 20", 0);
}

#[test]
#[ignore = "needs root and FUSE"]
fn consistency_holds_over_restarts() {
    let mut server = Server::start(TestSite::new(), &[]);
    check_histories(&mut server, "--calls 500 --histories 1", 1);
    check_histories(&mut server, "--calls 500 --histories 1 --seed 2", 2);
}
