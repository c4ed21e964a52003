use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;

use crate::prelude::*;
use crate::upgrade::{replacements, report};

struct Manager {
    socket: UnixDatagram,
    listener: TcpListener,
    service: KillOnDrop,
    address: std::net::SocketAddr,
}

impl Manager {
    fn start(site: &TestSite, arguments: &[&str]) -> Manager {
        let socket = UnixDatagram::bind(site.path("notify")).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let service = start_on(&listener, site, arguments);
        Manager { socket, listener, service, address }
    }

    fn next_notification(&self) -> String {
        let mut bytes = [0; 4096];
        let len = self.socket.recv(&mut bytes).expect("a notification arrives in time");
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    }

    fn expect_clean_exit(&mut self) {
        signal("TERM", self.service.id());
        assert_eq!(self.next_notification(), "STOPPING=1");
        assert!(self.service.wait().expect("the child ends").success());
    }

    /// As `systemctl restart`.
    fn restart(&mut self, site: &TestSite, arguments: &[&str]) {
        self.expect_clean_exit();
        self.service = start_on(&self.listener, site, arguments);
        assert!(self.next_notification().starts_with("READY=1"));
    }

    fn expect_connection(&self) {
        assert!(eventually(Duration::from_secs(30), || std::net::TcpStream::connect(self.address)
            .is_ok()));
    }
}

fn start_on(listener: &TcpListener, site: &TestSite, arguments: &[&str]) -> KillOnDrop {
    // sd_listen_fds(3): the sockets are descriptors from 3 on, and LISTEN_PID is the service's
    // process id.
    let script = r#"exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec "$@""#;
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_vouch")]).args(arguments);
    command
        .current_dir(site.path(""))
        .env("NOTIFY_SOCKET", site.path("notify"))
        .env("HOME", site.path(""))
        .env_remove("VOUCH_LOG");
    let listener = OwnedFd::from(listener.try_clone().expect("a descriptor"));
    KillOnDrop(command.stdin(Stdio::from(listener)).stdout(Stdio::null()).spawn().expect("a shell"))
}

#[test]
fn export_notifies_readiness_reload_and_stop_on_activated_sockets() {
    let site = TestSite::with_directories(&["data"]);
    site.write("exports", format!("{} *(rw,insecure)\n", site.path("data").display()));
    let mut manager =
        Manager::start(&site, &["export", "--exports", "exports", "--state", "state"]);
    assert_eq!(manager.next_notification(), "READY=1\nSTATUS=1 exports");
    manager.expect_connection();
    site.write("exports", "not a list");
    for status in ["the old list stays in force", "exports reloaded"] {
        signal("HUP", manager.service.id());
        let reloading = manager.next_notification();
        let at = reloading
            .strip_prefix("RELOADING=1\nMONOTONIC_USEC=")
            .expect("first it says that it reloads");
        assert!(at.parse::<u64>().is_ok_and(|at| at > 0), "{reloading}");
        let ready = manager.next_notification();
        assert!(ready.starts_with("READY=1\nSTATUS=") && ready.contains(status), "{ready}");
        site.write("exports", format!("{} *(ro,insecure)\n", site.path("data").display()));
    }
    let unit =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../../packaging/systemd/vouch-export.service");
    let unit = std::fs::read_to_string(unit).expect("packaging/ is in the repository");
    let reload = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecReload=/usr/bin/vouch "))
        .expect("an ExecReload line");
    site.run_ok(&format!("{reload} --state state"));
    assert!(
        manager.next_notification().starts_with("RELOADING=1")
            && manager.next_notification().contains("exports reloaded")
    );
    manager.expect_clean_exit();
}

#[test]
fn replica_notifies_readiness_and_stop_on_activated_sockets() {
    let site = TestSite::published();
    let mut manager = Manager::start(&site, &["serve", "--db", "db"]);
    assert_eq!(
        manager.next_notification(),
        format!("READY=1\nSTATUS=serving on {}", manager.address)
    );
    let replica = manager.address.to_string();
    for _ in 0..8 {
        assert_eq!(
            site.run_ok(&format!(
                "cat --only-replicas --replica {replica} --no-cache {}",
                site.name("/hello")
            )),
            "hello world\n"
        );
    }
    manager.expect_clean_exit();
}

#[test]
fn restarted_replica_fails_no_read() {
    let site = TestSite::published();
    let serve = ["serve", "--db", "db"];
    let mut manager = Manager::start(&site, &serve);
    assert!(manager.next_notification().starts_with("READY=1"));
    let replica = manager.address.to_string();
    let numbers = fs::read_to_string(site.path("src/dir/numbers")).expect("published");
    let done = AtomicU64::new(0);
    let mut reads = Vec::new();
    std::thread::scope(|scope| {
        let restarter = scope.spawn(|| {
            for _ in 0..replacements() {
                let before = done.load(Ordering::SeqCst);
                manager.restart(&site, &serve);
                assert!(eventually(Duration::from_secs(60), || done.load(Ordering::SeqCst)
                    > before + 1));
            }
        });
        while !restarter.is_finished() {
            let began = Instant::now();
            let read = site.run_ok(&format!(
                "cat --only-replicas --replica {replica} --no-cache {}",
                site.name("/dir/numbers")
            ));
            assert!(read == numbers, "other bytes");
            reads.push(began.elapsed());
            done.fetch_add(1, Ordering::SeqCst);
        }
        restarter.join().expect("no panic");
    });
    report("reads during restarts of a replica", reads);
    manager.expect_clean_exit();
}
