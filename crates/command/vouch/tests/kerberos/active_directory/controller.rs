//! Controllers: Samba, each with an address and directories of its own.

use std::path::{Path, PathBuf};
use vouch_testkit::words;

use super::domain::{PASSWORD, inside_own, make_root};
use crate::prelude::*;
use vouch_testkit::kill_on_drop::KillOnDrop;

const PORTS: [u16; 3] = [88, 389, 445];

pub(super) struct Controller {
    process: Option<KillOnDrop>,
    files: PathBuf,
    name: &'static str,
    address: Ipv4Addr,
}

pub(super) struct Naming {
    pub(super) realm: &'static str,
    pub(super) domain: &'static str,
    pub(super) host: &'static str,
}

impl Controller {
    /// `name` is that of its directories below `files`.
    pub(super) fn new(files: &Path, name: &'static str, address: Ipv4Addr) -> Controller {
        make_root(files, name);
        Controller { process: None, files: files.to_owned(), name, address }
    }

    pub(super) fn command(&self, program: &str) -> Command {
        inside_own(&self.files, self.name, program)
    }

    /// Makes a domain of its own.
    pub(super) fn provision(&self, Naming { realm, domain, host }: Naming) {
        let mut provision = self.command("samba-tool");
        provision.args(words(&format!("domain provision --realm {realm} --domain {domain} --adminpass {PASSWORD} --server-role dc")));
        provision.args(words(&format!(
            "--dns-backend NONE --host-name {host} --host-ip {}",
            self.address
        )));
        succeed(provision.args(self.address_options()));
    }

    pub(super) fn address_options(&self) -> [String; 4] {
        let interfaces = format!("interfaces={}/32", self.address);
        ["--option".into(), interfaces, "--option".into(), "bind interfaces only=yes".into()]
    }

    pub(super) fn start(&mut self) {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.log_path())
            .expect("a file");
        let mut samba = self.command("/usr/sbin/samba");
        samba
            .args(["-i", "--debug-stdout", "-d", "0"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file"))
            .stderr(log);
        self.process = Some(KillOnDrop(samba.spawn().expect("unshare(1)")));
        for port in PORTS {
            within(120, "the controller does not start", || {
                TcpStream::connect((self.address, port)).is_ok()
            });
        }
    }

    pub(super) fn stop(&mut self) {
        if let Some(samba) = self.process.take() {
            rustix::process::kill_process(
                rustix::process::Pid::from_child(&samba),
                rustix::process::Signal::TERM,
            )
            .expect("our child");
        }
        for port in PORTS {
            within(120, "the controller does not stop", || {
                TcpStream::connect((self.address, port)).is_err()
            });
        }
    }

    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        self.files.join(format!("{}.log", self.name))
    }
}
