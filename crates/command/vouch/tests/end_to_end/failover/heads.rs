//! Two heads with one state directory. A thread moves the address to the active one, as keepalived
//! does, and restarts heads that have ended.

use std::os::unix::process::ExitStatusExt as _;

use super::network::{ADDRESS, Network};
use super::worker::Service;
use crate::prelude::*;

pub(super) const PORT: u16 = 20490;
pub(super) const NAMES: [&str; 2] = ["a", "b"];

pub(super) struct Heads {
    site: Arc<TestSite>,
    network: Network,
    options: Vec<String>,
    /// Else keepalived does.
    moves_address: bool,
    running: Mutex<[Option<KillOnDrop>; 2]>,
    pub(super) service: Arc<Service>,
    stop: AtomicBool,
}

/// What happens to the active head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Kill,
    /// SIGSTOP, and SIGCONT after the takeover.
    Stop,
    /// SIGTERM.
    Shutdown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Active {
    pub(super) head: usize,
    pub(super) epoch: u64,
}

impl Heads {
    pub(super) fn start(
        site: Arc<TestSite>,
        network: Network,
        options: Vec<String>,
        moves_address: bool,
    ) -> Arc<Heads> {
        let address = format!("{ADDRESS}:{PORT}").parse().expect("an address");
        let service = Arc::new(Service { address, epoch: AtomicU64::new(0) });
        let (running, stop) = (Mutex::default(), AtomicBool::new(false));
        Arc::new(Heads { site, network, options, moves_address, running, service, stop })
    }

    /// Until [`Self::stop`].
    pub(super) fn keep_running(&self) {
        while !self.stop.load(Ordering::SeqCst) {
            for head in 0..2 {
                self.restart_ended(head);
            }
            if let Some(active) = self.active()
                && active.epoch != self.service.epoch.load(Ordering::SeqCst)
            {
                if self.moves_address {
                    self.network.move_address(active.head);
                }
                self.service.epoch.store(active.epoch, Ordering::SeqCst);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    fn restart_ended(&self, head: usize) {
        let mut running = self.running.lock();
        if self.stop.load(Ordering::SeqCst) {
            return;
        }
        if running[head].as_mut().is_some_and(|child| child.try_wait().expect("a child").is_none())
        {
            return;
        }
        let name = NAMES[head];
        let listen = format!("{ADDRESS}:{PORT}");
        let fixed = words(
            "export --dir data --options rw,insecure,no_root_squash --state shared --shared-state",
        );
        let fixed = [&fixed[..], &["--head", name, "--listen", &listen, "--lease", "60"]].concat();
        let mut vouch = self.site.command(fixed);
        vouch.args(&self.options);
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.network.heads[head]])
            .arg(vouch.get_program())
            .args(vouch.get_args());
        command
            .envs(vouch.get_envs().filter_map(|(name, value)| Some((name, value?))))
            .current_dir(self.site.path(""));
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.site.path(format!("log-{name}")))
            .expect("a log");
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("ip(8)");
        fs::write(self.site.path(format!("pid-{name}")), child.id().to_string()).expect("a file");
        running[head] = Some(KillOnDrop(child));
    }

    /// What the lease says.
    pub(super) fn active(&self) -> Option<Active> {
        let entries = fs::read_dir(self.site.path("shared/lease")).ok()?;
        let number = |name: &std::ffi::OsStr| name.to_str()?.strip_prefix("epoch-")?.parse().ok();
        let epoch: u64 = entries.filter_map(|entry| number(&entry.ok()?.file_name())).max()?;
        let record =
            fs::read_to_string(self.site.path(format!("shared/lease/epoch-{epoch}"))).ok()?;
        let head = NAMES.iter().position(|name| record.contains(&format!("\nhead {name}\n")))?;
        record.contains("\ntenure active\n").then_some(Active { head, epoch })
    }

    /// Returns the time of the fault.
    pub(super) fn disturb(&self, active: Active, fault: Fault) -> Instant {
        let mut running = self.running.lock();
        let child = running[active.head].as_mut().expect("it runs");
        let at = Instant::now();
        let name = match fault {
            Fault::Kill => "KILL",
            Fault::Stop => "STOP",
            Fault::Shutdown => "TERM",
        };
        signal(name, child.id());
        at
    }

    /// A stopped head must not run on: the kernel has ended it with its lease, or it was fenced.
    pub(super) fn continue_stopped(&self, stopped: u32) {
        signal("CONT", stopped);
        within(120, "a head runs on after its lease", || {
            !Path::new(&format!("/proc/{stopped}/exe")).exists()
        });
    }

    pub(super) fn pid(&self, head: usize) -> u32 {
        self.running.lock()[head].as_ref().expect("it runs").id()
    }

    pub(super) fn logs(&self) -> String {
        NAMES
            .map(|name| {
                format!(
                    "head {name}:\n{}",
                    fs::read_to_string(self.site.path(format!("log-{name}"))).unwrap_or_default()
                )
            })
            .concat()
    }

    /// After a failed test, too.
    pub(super) fn kill(&self) {
        self.stop();
        *self.running.lock() = [None, None];
    }

    /// Both heads end in order.
    pub(super) fn shut_down(&self) {
        let mut running = self.running.lock();
        for child in running.iter_mut().flatten() {
            signal("TERM", child.id());
            within(120, "a head does not end", || child.try_wait().expect("a child").is_some());
            let status = child.wait().expect("a child");
            assert!(status.success() || status.signal() == Some(15), "{status}");
        }
    }
}
