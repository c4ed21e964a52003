use std::ffi::OsString;
use std::net::{TcpListener, TcpStream};
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::export_files::ExportFiles;
use crate::guest::Network;
use vouch_testkit::kill_on_drop::KillOnDrop;
use vouch_testkit::{free_port, within};

pub(crate) struct Server {
    files: ExportFiles,
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
    /// Its socket outlives the server, as systemd's socket units have it.
    pub(crate) listener: Option<TcpListener>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        let options = "rw,no_root_squash,sec=sys".into();
        ServerOptions {
            options,
            more: Vec::new(),
            environment: Vec::new(),
            port: None,
            listener: None,
        }
    }
}

impl Server {
    pub(crate) fn start(network: &Network) -> Server {
        Self::start_with(network, ServerOptions::default())
    }

    pub(crate) fn start_with(network: &Network, server_options: ServerOptions) -> Server {
        let files = ExportFiles::create();
        let held = server_options
            .listener
            .as_ref()
            .map(|listener| listener.local_addr().expect("bound").port());
        let port = held.or(server_options.port).unwrap_or_else(free_port);
        let child = spawn(files.root(), port, &server_options);
        let server =
            Server { files, address: network.address.clone(), port, server_options, child };
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
        assert!(
            self.child.wait().expect("the server ends").success(),
            "the server does not end well"
        );
    }

    pub(crate) fn restart(&mut self) {
        self.child = spawn(self.files.root(), self.port, &self.server_options);
        self.wait();
    }

    pub(crate) fn reload(&self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vouch"));
        let status = command
            .args(["export", "reload", "--state"])
            .arg(self.files.root().join("state"))
            .status();
        assert!(status.expect("the binary starts").success(), "the reload fails");
    }

    pub(crate) fn status(&self) -> serde_json::Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vouch"));
        let out = command
            .args(["export", "status", "--json", "--state"])
            .arg(self.files.root().join("state"))
            .output();
        serde_json::from_slice(&out.expect("the binary starts").stdout)
            .expect("the server's status")
    }

    pub(crate) fn has_acls(&self) -> bool {
        let file = self.path("acls");
        std::fs::write(&file, "").expect("a file");
        let set = Command::new("setfacl")
            .args(["-m", "u:1234:r"])
            .arg(&file)
            .stderr(Stdio::null())
            .status();
        std::fs::remove_file(&file).expect("just made");
        set.is_ok_and(|status| status.success())
    }

    fn wait(&self) {
        within(30, "the server does not listen", || {
            TcpStream::connect((self.address.as_str(), self.port)).is_ok()
        });
    }
}

impl Deref for Server {
    type Target = ExportFiles;

    fn deref(&self) -> &ExportFiles {
        &self.files
    }
}

const LEASE_SECONDS: &str = "5";

fn spawn(dir: &Path, port: u16, server_options: &ServerOptions) -> KillOnDrop {
    let mut command = Command::new("sh");
    match &server_options.listener {
        // sd_listen_fds(3).
        Some(listener) => {
            command.args([
                "-c",
                r#"exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec "$@""#,
                "sh",
            ]);
            command.stdin(OwnedFd::from(listener.try_clone().expect("a descriptor")));
        }
        None => {
            command.args(["-c", r#"exec "$@""#, "sh"]).stdin(Stdio::null());
        }
    }
    command
        .arg(env!("CARGO_BIN_EXE_vouch"))
        .arg("export")
        .arg("--dir")
        .arg(dir.join("export"))
        .args(["--pseudo", "/export"]);
    if server_options.listener.is_none() {
        command.args(["--listen", &format!("0.0.0.0:{port}")]);
    }
    command.args(["--options", &server_options.options, "--lease", LEASE_SECONDS]);
    command
        .arg("--state")
        .arg(dir.join("state"))
        .args(&server_options.more)
        .envs(server_options.environment.iter().map(|(name, value)| (name, value)));
    KillOnDrop(command.stdout(Stdio::null()).spawn().expect("the binary starts"))
}
