//! Two heads in network namespaces, with one state directory and one address.

use std::ffi::OsString;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use vouch_testkit::words;

use super::worker::Service;
use crate::export_files::ExportFiles;
use crate::guest::Network;
use vouch_testkit::free_port;
use vouch_testkit::kill_on_drop::KillOnDrop;

pub(super) struct Pair {
    pub(super) files: ExportFiles,
    pub(super) service: Arc<Service>,
    set_up: SetUp,
    namespaces: [String; 2],
    bridge: String,
    heads: [Option<KillOnDrop>; 2],
    announcements: Vec<KillOnDrop>,
    pub(super) active: Active,
}

#[derive(Clone, Copy)]
pub(super) struct Active {
    head: usize,
    pub(super) epoch: u64,
}

/// What both heads have in common.
pub(super) struct SetUp {
    /// Options of `vouch export`.
    pub(super) options: Vec<OsString>,
    /// As in exports(5), in order of preference.
    pub(super) flavours: &'static str,
    pub(super) environment: Vec<(&'static str, OsString)>,
    /// With the program `fence` beside the export.
    pub(super) fences: bool,
}

impl SetUp {
    pub(super) fn new(options: &[&str]) -> SetUp {
        SetUp {
            options: options.iter().map(OsString::from).collect(),
            flavours: "sys",
            environment: Vec::new(),
            fences: false,
        }
    }
}

const NAMES: [&str; 2] = ["a", "b"];

impl Pair {
    pub(super) fn start(network: &Network) -> Pair {
        Self::start_with(
            network,
            ExportFiles::create(),
            SetUp::new(&["--state-lease", "2s", "--lease", "20"]),
        )
    }

    pub(super) fn start_with(network: &Network, files: ExportFiles, set_up: SetUp) -> Pair {
        let number = network.index();
        let namespaces = NAMES.map(|name| format!("vouch-guest{number}-{name}"));
        let (address, bridge) = (format!("10.77.{number}.100"), format!("vouchbr{number}"));
        ip(&format!("link add {bridge} type bridge"));
        ip(&format!("link set vouchtap{number} master {bridge}"));
        ip(&format!("link set {bridge} up"));
        for (head, namespace) in namespaces.iter().enumerate() {
            ip(&format!("netns add {namespace}"));
            ip(&format!(
                "link add eth0 netns {namespace} type veth peer name vouchh{number}{}",
                NAMES[head]
            ));
            ip(&format!("link set vouchh{number}{} master {bridge} up", NAMES[head]));
            ip(&format!("-n {namespace} addr add 10.77.{number}.{}/24 dev eth0", 11 + head));
            ip(&format!("-n {namespace} link set eth0 up"));
        }
        let active = Active { head: 0, epoch: 0 };
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(files.root().join("state"))
            .expect("a directory");
        let service = format!("{address}:{}", free_port()).parse().expect("an address");
        let service = Arc::new(Service { address: service, epoch: AtomicU64::new(0) });
        let mut pair = Pair {
            files,
            service,
            set_up,
            namespaces,
            bridge,
            heads: [None, None],
            announcements: Vec::new(),
            active,
        };
        pair.heads = [0, 1].map(|head| Some(pair.spawn(head)));
        pair.wait_for_next_epoch();
        pair
    }

    pub(super) fn address(&self) -> String {
        self.service.address.ip().to_string()
    }

    pub(super) fn port(&self) -> u16 {
        self.service.address.port()
    }

    /// A guest with a network of its own can reach the pair, with an address of the pair's network.
    pub(super) fn join(&self, network: &Network) {
        ip(&format!("link set {} master {}", network.device(), self.bridge));
    }

    /// This machine can be a client, with this address.
    pub(super) fn join_this_machine(&self, network: &Network) {
        ip(&format!("addr del {}/24 dev {}", network.address, network.device()));
        ip(&format!("addr add {}/24 dev {}", network.address, self.bridge));
    }

    /// Dead heads ignore connections, by the example of the package. Needs nft(8). Without nft_socket
    /// in the kernel, dead heads refuse connections.
    pub(super) fn load_packet_filter(&self) {
        let load = |namespace: &str, name: &str, rules: &str| {
            let file = self.files.root().join(name);
            std::fs::write(&file, rules).expect("a file");
            try_ip(&format!("netns exec {namespace} nft -f {}", file.display()))
        };
        let [namespace, _] = &self.namespaces;
        if !load(
            namespace,
            "probe.conf",
            "table inet probe { chain probe { socket transparent 0; }; }",
        ) {
            return println!("failover: without a packet filter: this kernel lacks nft_socket");
        }
        let example =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../packaging/failover/nftables.conf");
        let rules = std::fs::read_to_string(example)
            .expect("an example")
            .replace("dport 2049 ", &format!("dport {} ", self.port()));
        assert!(rules.contains(&format!("dport {} ", self.port())), "the example has another port");
        self.namespaces.iter().for_each(|namespace| {
            assert!(load(namespace, "nftables.conf", &rules), "the example does not load")
        });
    }

    fn spawn(&self, head: usize) -> KillOnDrop {
        let path = |name: &str| self.files.root().join(name);
        let mut command = Command::new("ip");
        command
            .args(words(&format!(
                "netns exec {} {} export --dir",
                self.namespaces[head],
                env!("CARGO_BIN_EXE_vouch")
            )))
            .arg(path("export"));
        command.args(words(&format!(
            "--pseudo /export --options rw,insecure,no_root_squash,sec={}",
            self.set_up.flavours
        )));
        command.args(["--listen", &self.service.address.to_string(), "--state"]).arg(path("state"));
        command.args(["--shared-state", "--head", NAMES[head]]).args(&self.set_up.options);
        command.envs(self.set_up.environment.iter().map(|(name, value)| (name, value)));
        if self.set_up.fences {
            command.args([
                "--fence-required",
                "--fence",
                &format!("/bin/sh {}", path("fence").display()),
            ]);
        }
        let child =
            KillOnDrop(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("ip(8)"));
        std::fs::write(path(&format!("pid-{}", NAMES[head])), child.id().to_string())
            .expect("a file");
        child
    }

    /// Sends the signal to the active head. It starts again as a standby: at once, or after the
    /// next head has fenced it. The address moves to the next head. Returns the time of the fault,
    /// and the time from which the next head was reachable.
    pub(super) fn fail_over(&mut self, signal: &str) -> (Instant, Instant) {
        self.follow();
        let failed = self.active.head;
        let mut child = self.heads[failed].take().expect("it was started");
        let at = Instant::now();
        let killed =
            Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status();
        assert!(killed.is_ok_and(|status| status.success()), "the head runs");
        child.wait().expect("the head ends");
        if self.set_up.fences {
            let serves = self.wait_for_next_epoch();
            self.heads[failed] = Some(self.spawn(failed));
            return (at, serves);
        }
        self.heads[failed] = Some(self.spawn(failed));
        (at, self.wait_for_next_epoch())
    }

    /// A head that could not renew its lease in time, as on a busy machine, has ended by itself.
    /// This moves the address to the active head, and starts ended heads again.
    pub(super) fn follow(&mut self) {
        if self.record().is_some_and(|now| now.epoch > self.active.epoch) {
            self.wait_for_next_epoch();
        }
        for head in 0..NAMES.len() {
            if self.heads[head]
                .as_mut()
                .is_none_or(|child| child.try_wait().expect("a child").is_some())
            {
                self.heads[head] = Some(self.spawn(head));
            }
        }
    }

    /// Both heads end in order.
    pub(super) fn shut_down(&mut self) {
        for child in self.heads.iter_mut().filter_map(Option::take) {
            let mut child = child;
            let pid = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM)
                .expect("the head runs");
            child.wait().expect("the head ends");
        }
    }

    fn wait_for_next_epoch(&mut self) -> Instant {
        let end = Instant::now() + Duration::from_secs(120);
        let next = loop {
            match self.record() {
                Some(active) if active.epoch > self.active.epoch => break active,
                _ => assert!(Instant::now() < end, "no head takes over"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        self.announcements.clear();
        let [old, new] = [1 - next.head, next.head].map(|head| &self.namespaces[head]);
        // The address is not there before the first takeover.
        try_ip(&format!("-n {old} addr del {}/24 dev eth0", self.address()));
        // It is there if the same head serves again.
        try_ip(&format!("-n {new} addr add {}/24 dev eth0", self.address()));
        // This machine may have joined.
        try_ip(&format!("neigh flush dev {}", self.bridge));
        self.service.epoch.store(next.epoch, Ordering::SeqCst);
        let serves = Instant::now();
        // The guest keeps the old head's link-layer address for a minute unless the new head
        // announces its own. keepalived too announces it several times, as one may be lost.
        self.announcements = ["-U", "-A"]
            .map(|kind| {
                let mut command = Command::new("ip");
                command.args(words(&format!(
                    "netns exec {new} busybox arping {kind} -c 4 -w 5 -I eth0 {}",
                    self.address()
                )));
                KillOnDrop(
                    command
                        .stdin(Stdio::null())
                        .stdout(Stdio::null())
                        .stderr(Stdio::null())
                        .spawn()
                        .expect("ip(8)"),
                )
            })
            .into();
        self.active = next;
        serves
    }

    /// What the lease says.
    fn record(&self) -> Option<Active> {
        let entries = std::fs::read_dir(self.files.root().join("state/lease")).ok()?;
        let number = |name: &std::ffi::OsStr| name.to_str()?.strip_prefix("epoch-")?.parse().ok();
        let epoch: u64 = entries.filter_map(|entry| number(&entry.ok()?.file_name())).max()?;
        let record =
            std::fs::read_to_string(self.files.root().join(format!("state/lease/epoch-{epoch}")))
                .ok()?;
        let head = NAMES.iter().position(|name| record.contains(&format!("\nhead {name}\n")))?;
        record.contains("\ntenure active\n").then_some(Active { head, epoch })
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.heads = [None, None];
        self.announcements.clear();
        let number = self.bridge.trim_start_matches("vouchbr");
        for (namespace, name) in self.namespaces.iter().zip(NAMES) {
            // The kernel removes the devices of a namespace some time after the namespace.
            try_ip(&format!("link del vouchh{number}{name}"));
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
