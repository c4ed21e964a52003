//! Guests: a network, a kernel that `script/guest/run` boots in it, and a script of `work/`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::server::Server;
use vouch_testkit::{peers_root, peers_suite, require};

pub(crate) struct Network {
    index: u32,
    pub(crate) address: String,
    _lock: File,
}

impl Network {
    pub(crate) fn new() -> Network {
        require("root, to make a network device", rustix::process::geteuid().is_root());
        for (what, needs) in [
            ("linux.uml", "user-mode-linux"),
            ("mount.nfs", "nfs-common"),
            ("busybox", "busybox-static"),
        ] {
            require(&format!("the package {needs}"), has_program(what));
        }
        let (index, lock) = free_index();
        let out = Command::new(runner())
            .args(["up", &index.to_string()])
            .output()
            .expect("the guest's script");
        let errors = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "no network for a guest: {errors}");
        let address = String::from_utf8_lossy(&out.stdout).trim().to_owned();
        Network { index, address, _lock: lock }
    }

    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    pub(crate) fn guest_name(&self) -> String {
        format!("client{}.vouch.test", self.index)
    }

    /// Gives this machine a second address in the network.
    pub(crate) fn add_address(&self) -> String {
        let address = format!("10.77.{}.3", self.index);
        let status = Command::new("ip")
            .args(["addr", "add", &format!("{address}/24"), "dev", &self.device()])
            .status();
        assert!(status.expect("ip").success(), "a second address");
        address
    }

    pub(crate) fn device(&self) -> String {
        format!("vouchtap{}", self.index)
    }

    /// Drops all packets, by removing this machine's address. (If its device were down, the guest
    /// would see the link go down.)
    pub(crate) fn disconnect(&self) {
        self.change_address("del");
    }

    pub(crate) fn reconnect(&self) {
        self.change_address("add");
    }

    fn change_address(&self, change: &str) {
        let address = format!("{}/24", self.address);
        let status =
            Command::new("ip").args(["addr", change, &address, "dev", &self.device()]).status();
        assert!(status.expect("ip").success(), "address {change}");
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = Command::new(runner()).args(["down", &self.index.to_string()]).status();
    }
}

pub(crate) struct Guest {
    command: Command,
}

impl Guest {
    pub(crate) fn new(network: &Network, server: &Server) -> Guest {
        Self::with_port(network, server.port)
    }

    pub(crate) fn with_port(network: &Network, port: u16) -> Guest {
        let mut command = Command::new(runner());
        command.args(["-i", &network.index.to_string(), "-n", &network.guest_name()]);
        command.args(["-e", &format!("PORT={port}")]);
        Guest { command }
    }

    pub(crate) fn newer_kernel(mut self) -> Guest {
        self.command.arg("-k");
        self
    }

    /// A system with tlshd: that of the suite that VOUCH_PEERS_SUITE names, or Linux 6.12.
    pub(crate) fn newer_system(mut self) -> Guest {
        let root = peers_root("guest");
        let tlshd = format!("{root}/usr/sbin/tlshd");
        require(
            "linux-6.12-guest or newest-guest of script/install-needs",
            Path::new(&tlshd).exists(),
        );
        if peers_suite().is_some() {
            self.command.args(["-r", &root]);
            return self;
        }
        self.newer_kernel()
    }

    /// Host names of the guest and of this machine.
    pub(crate) fn names(mut self, guest: &str, server: &str) -> Guest {
        self.command.args(["-n", guest, "-H", server]);
        self
    }

    pub(crate) fn file(mut self, path: &Path) -> Guest {
        self.command.arg("-f").arg(path);
        self
    }

    /// An argument of the kernel.
    pub(crate) fn argument(mut self, argument: &str) -> Guest {
        self.command.args(["-a", argument]);
        self
    }

    /// The file is the disk /dev/ubda.
    pub(crate) fn disk(self, file: &Path) -> Guest {
        self.argument(&format!("ubd0={}", file.display()))
    }

    pub(crate) fn limit(mut self, seconds: u32) -> Guest {
        self.command.args(["-t", &seconds.to_string()]);
        self
    }

    pub(crate) fn set(mut self, name: &str, value: &str) -> Guest {
        self.command.args(["-e", &format!("{name}={value}")]);
        self
    }

    pub(crate) fn run(self, script: &str) -> String {
        self.start(script).ok()
    }

    pub(crate) fn start(mut self, script: &str) -> RunningGuest {
        let child = self
            .command
            .arg(work(script))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        RunningGuest { child: Some(child.expect("the guest's script")) }
    }
}

pub(crate) struct RunningGuest {
    /// None after its end.
    child: Option<Child>,
}

impl RunningGuest {
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| child.try_wait().expect("a child").is_some())
    }

    /// The guest must succeed. Returns its output.
    pub(crate) fn ok(mut self) -> String {
        let child = self.child.take().expect("it has not ended");
        let out = child.wait_with_output().expect("the guest's script was started");
        let output_text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(
            out.status.success(),
            "{}: {output_text}{}",
            out.status,
            String::from_utf8_lossy(&out.stderr)
        );
        output_text
    }
}

impl Drop for RunningGuest {
    /// The script ends its guest when it is told to terminate.
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = rustix::process::kill_process(
                rustix::process::Pid::from_child(&child),
                rustix::process::Signal::TERM,
            );
            let _ = child.wait();
        }
    }
}

pub(crate) fn has_program(name: &str) -> bool {
    Command::new("sh")
        .args(["-c", &format!("command -v {name}")])
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn free_index() -> (u32, File) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..1000 {
        let index = 10 + NEXT.fetch_add(1, Ordering::Relaxed) % 80;
        let path = Path::new("/run").join(format!("vouch-guest-network-{index}.lock"));
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
            .expect("a lock file");
        if file.try_lock().is_ok() {
            return (index, file);
        }
    }
    panic!("80 networks are in use");
}

fn runner() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../script/guest/run")
}

pub(crate) fn work(script: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernel_client/work").join(script)
}
