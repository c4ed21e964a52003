//! Two heads in network namespaces, with one state directory and one address: a mounted client whose
//! server fails.

use std::os::unix::fs::DirBuilderExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::VERSIONS;
use crate::export_files::ExportFiles;
use crate::guest::{Guest, Network};
use crate::kill_on_drop::KillOnDrop;
use crate::server::free_port;

/// VOUCH_TEST_FAILOVERS: number of takeovers. Every fourth head stops in order, the others are killed.
/// Every third takeover begins before the client has recovered from the one before.
#[test]
fn takeover_keeps_opens_locks_and_acknowledged_data() {
    let count = std::env::var("VOUCH_TEST_FAILOVERS").map_or(2, |count| count.parse::<u64>().expect("a number of takeovers"));
    for version in VERSIONS {
        let Some(network) = Network::new() else { return };
        let mut pair = Pair::start(&network);
        let limit = 600 + 60 * u32::try_from(count).expect("a small number");
        let guest = Guest::with_port(&network, pair.port).set("VERSION", version).set("SERVER", &pair.address);
        let guest = guest.set("SECONDS_OF_LOAD", "1").limit(limit).start("survivor.sh");
        pair.files.wait_for("begun");
        for takeover in 0..count {
            std::thread::sleep(Duration::from_millis(300 + takeover * 200 % 1_000));
            pair.fail_over(if takeover % 4 == 3 { "TERM" } else { "KILL" });
            if takeover % 3 != 2 {
                pair.files.wait_for_progress();
            }
        }
        std::fs::write(pair.files.path("enough"), "").expect("a file");
        println!("{version}, {count} takeovers: {}", guest.ok());
        let names = pair.files.names();
        assert!(names.iter().all(|name| !name.starts_with(".nfs")), "{version}: a silly name was left: {names:?}");
    }
}

struct Pair {
    files: ExportFiles,
    address: String,
    port: u16,
    namespaces: [String; 2],
    bridge: String,
    heads: [Option<KillOnDrop>; 2],
    active: Active,
}

#[derive(Clone, Copy)]
struct Active {
    head: usize,
    epoch: u64,
}

const NAMES: [&str; 2] = ["a", "b"];

impl Pair {
    fn start(network: &Network) -> Pair {
        let number = network.index();
        let namespaces = NAMES.map(|name| format!("vouch-guest{number}-{name}"));
        let (address, bridge) = (format!("10.77.{number}.100"), format!("vouchbr{number}"));
        ip(&format!("link add {bridge} type bridge"));
        ip(&format!("link set vouchtap{number} master {bridge}"));
        ip(&format!("link set {bridge} up"));
        for (head, namespace) in namespaces.iter().enumerate() {
            ip(&format!("netns add {namespace}"));
            ip(&format!("link add eth0 netns {namespace} type veth peer name vouchh{number}{}", NAMES[head]));
            ip(&format!("link set vouchh{number}{} master {bridge} up", NAMES[head]));
            ip(&format!("-n {namespace} addr add 10.77.{number}.{}/24 dev eth0", 11 + head));
            ip(&format!("-n {namespace} link set eth0 up"));
        }
        let active = Active { head: 0, epoch: 0 };
        let files = ExportFiles::create();
        std::fs::DirBuilder::new().mode(0o700).create(files.root().join("state")).expect("a directory");
        let mut pair = Pair { files, address, port: free_port(), namespaces, bridge, heads: [None, None], active };
        pair.heads = [0, 1].map(|head| Some(pair.spawn(head)));
        pair.wait_for_next_epoch();
        pair
    }

    fn spawn(&self, head: usize) -> KillOnDrop {
        let path = |name: &str| self.files.root().join(name);
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespaces[head], env!("CARGO_BIN_EXE_vouch"), "export", "--dir"]).arg(path("export"));
        command.args(["--pseudo", "/export", "--options", "rw,no_root_squash,sec=sys", "--lease", "20"]);
        command.args(["--listen", &format!("{}:{}", self.address, self.port), "--state"]).arg(path("state"));
        command.args(["--shared-state", "--head", NAMES[head], "--state-lease", "2s"]);
        KillOnDrop(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("ip(8)"))
    }

    /// The head that fails starts again at once, as a standby. The address moves to the next one.
    fn fail_over(&mut self, signal: &str) {
        let failed = self.active.head;
        let mut child = self.heads[failed].take().expect("it was started");
        let killed = Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status();
        assert!(killed.is_ok_and(|status| status.success()), "the head runs");
        child.wait().expect("the head ends");
        self.heads[failed] = Some(self.spawn(failed));
        self.wait_for_next_epoch();
    }

    fn wait_for_next_epoch(&mut self) {
        let end = Instant::now() + Duration::from_secs(120);
        let next = loop {
            match self.record() {
                Some(active) if active.epoch > self.active.epoch => break active,
                _ => assert!(Instant::now() < end, "no head takes over"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let [old, new] = [1 - next.head, next.head].map(|head| &self.namespaces[head]);
        // The address is not there before the first takeover.
        try_ip(&format!("-n {old} addr del {}/24 dev eth0", self.address));
        // It is there if the same head serves again.
        try_ip(&format!("-n {new} addr add {}/24 dev eth0", self.address));
        // The guest keeps the old head's link-layer address for a minute unless the new head announces
        // its own, as keepalived does.
        for kind in ["-U", "-A"] {
            try_ip(&format!("netns exec {new} busybox arping {kind} -c 2 -w 2 -I eth0 {}", self.address));
        }
        self.active = next;
    }

    /// What the lease says.
    fn record(&self) -> Option<Active> {
        let entries = std::fs::read_dir(self.files.root().join("state/lease")).ok()?;
        let number = |name: &std::ffi::OsStr| name.to_str()?.strip_prefix("epoch-")?.parse().ok();
        let epoch: u64 = entries.filter_map(|entry| number(&entry.ok()?.file_name())).max()?;
        let record = std::fs::read_to_string(self.files.root().join(format!("state/lease/epoch-{epoch}"))).ok()?;
        let head = NAMES.iter().position(|name| record.contains(&format!("\nhead {name}\n")))?;
        record.contains("\ntenure active\n").then_some(Active { head, epoch })
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.heads = [None, None];
        for namespace in &self.namespaces {
            try_ip(&format!("netns del {namespace}"));
        }
        try_ip(&format!("link del {}", self.bridge));
    }
}

fn ip(arguments: &str) {
    assert!(try_ip(arguments), "ip {arguments}");
}

fn try_ip(arguments: &str) -> bool {
    let mut command = Command::new("ip");
    command.args(arguments.split(' ')).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
