use std::fs::DirBuilder;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::PathBuf;
use vouch_testkit::words;

use vouch_audit::Record;
use vouch_audit::keys::Ratchet;
use vouch_audit::record::Class;
use vouch_audit::trail::{KEY_FILE, SystemDisk, create_key, records};

use crate::prelude::*;
use vouch_testkit::kill_on_drop::KillOnDrop;

pub(crate) struct Export {
    child: KillOnDrop,
    pub(crate) address: SocketAddr,
    metrics: SocketAddr,
    directory: tempfile::TempDir,
    options: ServerOptions,
}

#[derive(Clone, Copy)]
pub(crate) struct ServerOptions {
    pub(crate) conf: &'static str,
    pub(crate) keytab: &'static str,
    pub(crate) lease: &'static str,
    pub(crate) ip: Ipv4Addr,
    /// Demands TLS, with a certificate for localhost.
    pub(crate) tls: bool,
    /// Name of the head. Heads share the state directory.
    pub(crate) head: Option<&'static str>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            conf: "krb5",
            keytab: "service",
            lease: "2",
            ip: Ipv4Addr::LOCALHOST,
            tls: false,
            head: None,
        }
    }
}

impl Export {
    pub(crate) fn start(kdc: &Kdc) -> Self {
        Self::start_with(kdc, ServerOptions::default())
    }

    pub(crate) fn start_with(kdc: &Kdc, options: ServerOptions) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(directory.path().join("data")).expect("a directory");
        std::fs::create_dir(directory.path().join("trail")).expect("a directory");
        create_key(
            &SystemDisk,
            &directory.path().join("trail").join(KEY_FILE),
            &Ratchet::new([1; 16], &[2; 32]),
        )
        .expect("a key");
        let sockets = [options.ip, Ipv4Addr::LOCALHOST]
            .map(|ip| TcpListener::bind((ip, 0)).expect("a free port"));
        let [address, metrics] = sockets.map(|socket| socket.local_addr().expect("bound"));
        let mut export = Export {
            child: KillOnDrop(Command::new("true").spawn().expect("true(1)")),
            address,
            metrics,
            directory,
            options,
        };
        export.run(kdc);
        export
    }

    /// Kills the server and starts it again.
    pub(crate) fn run(&mut self, kdc: &Kdc) {
        self.kill();
        self.child = self.spawn(kdc);
        self.wait();
    }

    /// Kills the head that serves when the next one waits for its lease. The next one has an address
    /// of its own.
    pub(crate) fn fail_over_to(&mut self, kdc: &Kdc, head: &'static str) {
        self.options.head = Some(head);
        let sockets = [self.address, self.metrics]
            .map(|old| TcpListener::bind((old.ip(), 0)).expect("a free port"));
        [self.address, self.metrics] = sockets.map(|socket| socket.local_addr().expect("bound"));
        let standby = self.spawn(kdc);
        self.wait_for_standby(head);
        self.kill();
        self.child = standby;
        self.wait();
    }

    fn wait_for_standby(&self, head: &str) {
        let status = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_vouch"));
            command
                .args(["export", "status", "--head", head, "--state"])
                .arg(self.directory.path().join("state"));
            String::from_utf8_lossy(&command.output().expect("the binary starts").stdout)
                .into_owned()
        };
        let is_standby = || status().contains(&format!("head {head}: standby; "));
        let waits = eventually(Duration::from_secs(60), is_standby);
        assert!(waits, "{}\n{}", status(), self.log());
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn spawn(&self, kdc: &Kdc) -> KillOnDrop {
        let path = |name: &str| self.directory.path().join(name);
        std::fs::write(path("idmapd.conf"), format!("[General]\nLocal-Realms = {REALM}\n"))
            .expect("a file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_vouch"));
        command
            .envs(kdc.environment(self.options.conf))
            .arg("export")
            .arg("--dir")
            .arg(path("data"));
        if self.options.tls {
            let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])
                .expect("a certificate");
            std::fs::write(self.certificate(), made.cert.pem()).expect("a file");
            std::fs::write(path("tls.key"), made.signing_key.serialize_pem()).expect("a file");
            std::fs::set_permissions(path("tls.key"), std::fs::Permissions::from_mode(0o600))
                .expect("an own file");
            command.arg("--tls-cert").arg(self.certificate()).arg("--tls-key").arg(path("tls.key"));
        }
        let xprtsec = if self.options.tls { ",xprtsec=tls" } else { "" };
        command.args(words(&format!("--options rw,insecure,no_root_squash,sec=krb5:krb5i:krb5p{xprtsec} --lease {} --listen {} --metrics {}", self.options.lease, self.address, self.metrics)));
        command
            .arg("--state")
            .arg(path("state"))
            .arg("--keytab")
            .arg(kdc.path("keytabs").join(self.options.keytab))
            .arg("--idmap")
            .arg(path("idmapd.conf"))
            .args(["--audit-sync", "none", "--audit"])
            .arg(path("trail"))
            .env("VOUCH_RUNTIME_DIR", path("runtime"));
        if let Some(head) = self.options.head {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(path("state"))
                .expect("a directory");
            command.args(["--shared-state", "--head", head]);
        }
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(path("log"))
            .expect("a file");
        KillOnDrop(command.stdout(Stdio::null()).stderr(log).spawn().expect("the binary starts"))
    }

    fn wait(&self) {
        let end = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(self.address).is_err() {
            assert!(Instant::now() < end, "the export does not start: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    pub(crate) fn reload(&self) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vouch"));
        command.args(["export", "reload", "--state"]).arg(self.directory.path().join("state"));
        let out = command.output().expect("the binary starts");
        assert!(out.status.success(), "{}", text_of(&out));
        text_of(&out)
    }

    /// What `vouch check` says of the export.
    pub(crate) fn check(&self) -> String {
        let path = |name: &str| self.directory.path().join(name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_vouch"));
        command
            .arg("check")
            .arg(path("state"))
            .env("HOME", self.directory.path())
            .env("VOUCH_RUNTIME_DIR", path("runtime"));
        text_of(&command.output().expect("the binary starts"))
    }

    pub(crate) fn metric(&self, name: &str) -> f64 {
        let mut stream = TcpStream::connect(self.metrics).expect("its metrics");
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("the metrics port accepts data");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        value.unwrap_or_else(|| panic!("no {name}: {text}"))
    }

    pub(crate) fn memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))
            .expect("the process exists");
        let kib = status.lines().find_map(|line| {
            line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<usize>().ok()
        });
        kib.expect("a figure") << 10
    }

    pub(crate) fn wait_for_log(&self, parts: &[&str]) -> String {
        let line = || {
            let log = self.log();
            let mut lines = log.lines();
            lines.find(|line| parts.iter().all(|part| line.contains(part))).map(str::to_owned)
        };
        let is_there = eventually(Duration::from_secs(60), || line().is_some());
        assert!(is_there, "no line with {parts:?}: {}", self.log());
        line().expect("a log keeps its lines")
    }

    pub(crate) fn wait_for_record(&self, why: Refusal, parts: &[&str]) -> (String, Option<u32>) {
        let (mut found, mut all) = (None, Vec::new());
        let is_found = eventually(Duration::from_secs(60), || {
            all.clear();
            self.for_each_record(|record| {
                if record.class != Class::Refusal {
                    return;
                }
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let detail = text(record.detail);
                assert_eq!(record.address, Some(self.address.ip()), "{detail}");
                if record.operation == why as u16 && parts.iter().all(|part| detail.contains(part))
                {
                    found = Some((text(record.principal), record.enctype));
                }
                all.push((Refusal::from_number(record.operation), detail));
            });
            found.is_some()
        });
        assert!(is_found, "no refusal {why:?} with {parts:?}: {all:?}");
        found.expect("it is found")
    }

    fn for_each_record(&self, each: impl FnMut(&Record<'_>)) {
        records(&self.trail(), 1, each).expect("the trail");
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.directory.path().join("tls.pem")
    }

    /// Principal and transport of each record with a principal.
    pub(crate) fn callers(&self) -> Vec<(String, String)> {
        let mut callers = Vec::new();
        self.for_each_record(|record| {
            if !record.principal.is_empty() {
                let principal = String::from_utf8_lossy(record.principal).into_owned();
                callers.push((principal, record.xprtsec().unwrap_or_default().to_owned()));
            }
        });
        callers
    }

    pub(crate) fn clients(&self) -> Vec<IpAddr> {
        let mut clients = Vec::new();
        self.for_each_record(|record| {
            if !record.principal.is_empty() {
                clients.extend(record.address);
            }
        });
        clients
    }

    pub(crate) fn trail(&self) -> PathBuf {
        self.directory.path().join("trail")
    }

    pub(crate) fn data(&self, name: &str) -> PathBuf {
        self.directory.path().join("data").join(name)
    }
}
