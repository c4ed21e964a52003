use std::ffi::OsString;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::guest::Network;
use crate::kill_on_drop::KillOnDrop;

pub(crate) struct Server {
    dir: TempDir,
    address: String,
    pub(crate) port: u16,
    server_options: ServerOptions,
    child: KillOnDrop,
}

pub(crate) struct ServerOptions {
    pub(crate) options: String,
    pub(crate) more: Vec<OsString>,
    pub(crate) environment: Vec<(&'static str, OsString)>,
    pub(crate) port: Option<u16>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions { options: "rw,no_root_squash,sec=sys".into(), more: Vec::new(), environment: Vec::new(), port: None }
    }
}

impl Server {
    pub(crate) fn start(network: &Network) -> Server {
        Self::start_with(network, ServerOptions::default())
    }

    pub(crate) fn start_with(network: &Network, server_options: ServerOptions) -> Server {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(dir.path().join("export")).expect("a directory");
        let port = server_options.port.unwrap_or_else(free_port);
        let child = spawn(&dir, port, &server_options);
        let server = Server { dir, address: network.address.clone(), port, server_options, child };
        server.wait();
        server
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("the server runs");
        self.child.wait().expect("the server was killed");
    }

    pub(crate) fn terminate(&mut self) {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("the server runs");
        assert!(self.child.wait().expect("the server ends").success(), "the server does not end well");
    }

    pub(crate) fn restart(&mut self) {
        self.child = spawn(&self.dir, self.port, &self.server_options);
        self.wait();
    }

    pub(crate) fn reload(&self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vouch"));
        let status = command.args(["export", "reload", "--state"]).arg(self.dir.path().join("state")).status();
        assert!(status.expect("the binary starts").success(), "the reload fails");
    }

    pub(crate) fn status(&self) -> serde_json::Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vouch"));
        let out = command.args(["export", "status", "--json", "--state"]).arg(self.dir.path().join("state")).output();
        serde_json::from_slice(&out.expect("the binary starts").stdout).expect("the server's status")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("export").join(name)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path("")).expect("the export");
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
    }

    pub(crate) fn has_acls(&self) -> bool {
        let file = self.path("acls");
        std::fs::write(&file, "").expect("a file");
        let set = Command::new("setfacl").args(["-m", "u:1234:r"]).arg(&file).stderr(Stdio::null()).status();
        std::fs::remove_file(&file).expect("just made");
        set.is_ok_and(|status| status.success())
    }

    pub(crate) fn wait_for(&self, name: &str) {
        let end = Instant::now() + Duration::from_secs(60);
        while !self.path(name).exists() {
            assert!(Instant::now() < end, "{name} did not come");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Until the load in the guest has written to its log again.
    pub(crate) fn wait_for_progress(&self) {
        let len = || std::fs::metadata(self.path("acknowledged")).map_or(0, |metadata| metadata.len());
        let (before, end) = (len(), Instant::now() + Duration::from_secs(120));
        while len() == before {
            assert!(Instant::now() < end, "the client does not go on");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn wait(&self) {
        let end = Instant::now() + Duration::from_secs(30);
        while TcpStream::connect((self.address.as_str(), self.port)).is_err() {
            assert!(Instant::now() < end, "the server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

const LEASE_SECONDS: &str = "5";

fn spawn(dir: &TempDir, port: u16, server_options: &ServerOptions) -> KillOnDrop {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vouch"));
    command.arg("export").arg("--dir").arg(dir.path().join("export")).args(["--pseudo", "/export"]);
    command.args(["--listen", &format!("0.0.0.0:{port}"), "--options", &server_options.options, "--lease", LEASE_SECONDS]);
    command
        .arg("--state")
        .arg(dir.path().join("state"))
        .args(&server_options.more)
        .envs(server_options.environment.iter().map(|(name, value)| (name, value)));
    KillOnDrop(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("the binary starts"))
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback");
    listener.local_addr().expect("bound").port()
}
