//! A Ceph cluster of one machine: a monitor, a manager, an OSD in memory, and an MDS or more. It lives
//! in a directory of its own and on free ports, and ends with the test.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub const PROGRAMS: [&str; 8] =
    ["ceph", "ceph-mon", "ceph-mgr", "ceph-osd", "ceph-mds", "ceph-fuse", "monmaptool", "setpriv"];

pub struct Cluster {
    monitor: Daemon,
    manager: Daemon,
    osd: Daemon,
    mds: BTreeMap<&'static str, Daemon>,
    mds_starts: u32,
    directory: TempDir,
    monitor_address: String,
}

/// Killed at its end.
pub struct Daemon(Child);

/// By ceph-fuse.
pub struct Mounted {
    point: PathBuf,
    client: Daemon,
}

impl Cluster {
    pub fn start() -> Cluster {
        Cluster::start_at("127.0.0.1")
    }

    /// On an address of this machine.
    pub fn start_at(address: &str) -> Cluster {
        let directory = TempDir::new().expect("a directory");
        let at = directory.path();
        let port = TcpListener::bind((address, 0))
            .and_then(|listener| listener.local_addr())
            .expect("a free port")
            .port();
        fs::write(at.join("ceph.conf"), configuration(at, address, port)).expect("a file");
        for part in ["mon", "mgr", "osd", "mds", "run"] {
            fs::create_dir(at.join(part)).expect("a directory");
        }
        let monitors = format!("[v2:{address}:{port}]");
        run(
            at,
            "monmaptool",
            &["--create", "--fsid", CLUSTER_ID, "--addv", "a", &monitors, "monmap"],
        );
        run(at, "ceph-mon", &["-i", "a", "--mkfs", "--monmap", "monmap"]);
        let monitor = Daemon::start(at, "ceph-mon", "a");
        run(at, "ceph", &["osd", "new", OSD_ID]);
        let manager = Daemon::start(at, "ceph-mgr", "a");
        run(at, "ceph-osd", &["-i", "0", "--mkfs", "--osd-uuid", OSD_ID]);
        let osd = Daemon::start(at, "ceph-osd", "0");
        run(at, "ceph", &["osd", "pool", "create", "metadata", "4"]);
        run(at, "ceph", &["osd", "pool", "create", "data", "4"]);
        run(at, "ceph", &["fs", "new", "test", "metadata", "data"]);
        let monitor_address = format!("{address}:{port}");
        let mut cluster = Cluster {
            monitor,
            manager,
            osd,
            mds: BTreeMap::new(),
            mds_starts: 0,
            directory,
            monitor_address,
        };
        cluster.start_mds(FIRST_MDS);
        cluster
    }

    /// `ADDRESS:PORT`, for protocol version 2 without authentication.
    pub fn monitor_address(&self) -> &str {
        &self.monitor_address
    }

    /// A mount, as another machine has it.
    pub fn mount(&self, point: &Path) -> Mounted {
        self.mount_with(point, &[])
    }

    /// With options of ceph-fuse.
    pub fn mount_with(&self, point: &Path, options: &[&str]) -> Mounted {
        fs::create_dir_all(point).expect("a directory");
        let is_mounted = || {
            let line = format!(" {} ", point.display());
            fs::read_to_string("/proc/self/mountinfo")
                .expect("procfs")
                .lines()
                .any(|mount| mount.contains(&line))
        };
        let deadline = Instant::now() + START_MAX;
        loop {
            let mut client = Daemon::of(client(self.directory.path(), point, options));
            // It ends while the MDS is starting.
            while client.is_running() {
                if is_mounted() {
                    return Mounted { point: point.to_owned(), client };
                }
                assert!(Instant::now() < deadline, "ceph-fuse does not mount\n{}", self.logs());
                std::thread::sleep(POLL);
            }
            assert!(Instant::now() < deadline, "ceph-fuse ends\n{}", self.logs());
        }
    }

    pub fn logs(&self) -> String {
        let entries = fs::read_dir(self.directory.path())
            .expect("a directory")
            .flatten()
            .map(|entry| entry.path());
        let logs =
            entries.filter(|path| path.extension().is_some_and(|extension| extension == "out"));
        logs.map(|path| {
            format!("{}:\n{}\n", path.display(), fs::read_to_string(&path).unwrap_or_default())
        })
        .collect()
    }

    pub fn osd(&self) -> &Daemon {
        &self.osd
    }

    pub fn mds(&self) -> &Daemon {
        &self.mds[FIRST_MDS]
    }

    /// Returns when it serves.
    pub fn restart_mds(&mut self) {
        self.start_mds(FIRST_MDS);
        self.wait_for_rank(0, FIRST_MDS);
    }

    /// Kills a running MDS of this name first. The MDS is a standby if no rank is free.
    pub fn start_mds(&mut self, name: &'static str) {
        if self.mds.remove(name).is_some() {
            // Otherwise the monitor would list it as active until the new one has started.
            self.ceph(&["mds", "fail", name]);
        }
        self.mds_starts += 1;
        let mut command = daemon(self.directory.path(), "ceph-mds", name);
        // Clients still connect to the ports of the killed one.
        command.args([
            "--ms_bind_port_min",
            &(PORT_MIN + self.mds_starts % 10 * PORTS_OF_START).to_string(),
        ]);
        self.mds.insert(name, Daemon::of(command));
    }

    pub fn kill_mds(&mut self, name: &str) {
        self.mds.remove(name);
    }

    /// Starts the MDS again if it ends, as systemd does: ceph-mds 16.2.15 may crash if a client connects
    /// before it is ready (`ProtocolV2::handle_auth_request`).
    pub fn wait_for_rank(&mut self, rank: u32, mds: &'static str) {
        let serves = format!("{rank}={mds}=up:active");
        let deadline = Instant::now() + START_MAX;
        while !self.ceph(&["mds", "stat"]).contains(&serves) {
            if self.mds.get_mut(mds).is_some_and(|daemon| !daemon.is_running()) {
                println!("ceph-mds {mds} ended, and starts again");
                self.start_mds(mds);
            }
            assert!(
                Instant::now() < deadline,
                "not {serves}: {}\n{}",
                self.ceph(&["mds", "stat"]),
                self.logs()
            );
            std::thread::sleep(POLL);
        }
    }

    /// The output of ceph(8).
    pub fn ceph(&self, args: &[&str]) -> String {
        run(self.directory.path(), "ceph", args)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.mds.clear();
        [&mut self.osd, &mut self.manager, &mut self.monitor].into_iter().for_each(Daemon::kill);
    }
}

impl Daemon {
    fn start(at: &Path, program: &str, name: &str) -> Daemon {
        Daemon::of(daemon(at, program, name))
    }

    fn of(mut command: Command) -> Daemon {
        Daemon(command.stdin(Stdio::null()).spawn().expect("setpriv(1)"))
    }

    fn is_running(&mut self) -> bool {
        self.0.try_wait().is_ok_and(|ended| ended.is_none())
    }

    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// SIGSTOP, until the guard is dropped.
    #[must_use]
    pub fn pause(&self) -> Paused<'_> {
        assert!(self.signal("STOP"), "the daemon runs");
        Paused(self)
    }

    fn signal(&self, signal: &str) -> bool {
        let status =
            Command::new("kill").args([format!("-{signal}"), self.0.id().to_string()]).status();
        status.is_ok_and(|status| status.success())
    }
}

pub struct Paused<'a>(&'a Daemon);

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        self.0.signal("CONT");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.point).status();
        // In order, or else the MDS waits for it.
        let deadline = Instant::now() + END_MAX;
        while self.client.is_running() && Instant::now() < deadline {
            std::thread::sleep(POLL);
        }
    }
}

fn daemon(at: &Path, program: &str, name: &str) -> Command {
    let mut command = dies_with_test(at, program);
    command.args(["-i", name, "-f"]);
    command
}

fn client(at: &Path, point: &Path, options: &[&str]) -> Command {
    let mut command = dies_with_test(at, "ceph-fuse");
    command.args(["-f", "-n", "client.admin"]).args(options).arg(point);
    command
}

fn dies_with_test(at: &Path, program: &str) -> Command {
    let log = fs::File::options()
        .create(true)
        .append(true)
        .open(at.join(format!("{program}.out")))
        .expect("a file");
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", program, "-c"]).arg(at.join("ceph.conf"));
    command.current_dir(at).stdout(log.try_clone().expect("a descriptor")).stderr(log);
    command
}

fn run(at: &Path, program: &str, args: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(args).current_dir(at).env("CEPH_CONF", at.join("ceph.conf")).stdin(Stdio::null());
    crate::succeed(&mut command)
}

fn configuration(at: &Path, address: &str, port: u16) -> String {
    let at = at.display();
    format!(
        "[global]
fsid = {CLUSTER_ID}
mon host = [v2:{address}:{port}/0]
mon initial members = a
public addr = {address}
cluster addr = {address}
auth cluster required = none
auth service required = none
auth client required = none
run dir = {at}/run
admin socket = {at}/run/$name.$pid.asok
pid file =
log file = {at}/$name.log
mon cluster log file = {at}/cluster.log
crash dir = {at}/run
keyring = {at}/keyring
mon data = {at}/mon
mgr data = {at}/mgr
osd data = {at}/osd
mds data = {at}/mds
mon data avail crit = 0
mon data avail warn = 0
osd objectstore = memstore
memstore device bytes = 1G
mds beacon grace = 600
mds reconnect timeout = 60
osd crush chooseleaf type = 0
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pg autoscale mode = off
mon allow pool size one = true
"
    )
}

const FIRST_MDS: &str = "a";

/// Ceph binds ports from here to 7300.
const PORT_MIN: u32 = 6800;
const PORTS_OF_START: u32 = 45;

const CLUSTER_ID: &str = "5d4d4bd1-8f6b-4a0c-9a40-5c9c6b2f1f55";
const OSD_ID: &str = "0b6e6a0e-51b6-4d0c-9a0e-7f1c39e4b6aa";

const START_MAX: Duration = Duration::from_secs(300);
const END_MAX: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);
