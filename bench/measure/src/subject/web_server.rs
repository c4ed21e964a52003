//! nginx on loopback, with HTTP and HTTPS.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::ChildProcess;
use crate::Error;
use crate::cpu::ServerCpu;

pub(crate) struct WebServer {
    child: ChildProcess,
    pub(crate) http: SocketAddr,
    pub(crate) https: SocketAddr,
}

impl Drop for WebServer {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

impl WebServer {
    /// Serves `root`. Configuration and certificate are in `directory`.
    pub(crate) fn start(directory: &Path, root: &Path) -> Result<Self, Error> {
        let program = ["/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/bin/nginx"]
            .into_iter()
            .find(|path| Path::new(path).exists());
        let program = program.ok_or_else(|| Error::Program("nginx is not installed".into()))?;
        let path = |name: &str| directory.join(name).display().to_string();
        let made = Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=localhost",
            ])
            .args(["-keyout", &path("key.pem"), "-out", &path("certificate.pem")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if !made.is_ok_and(|status| status.success()) {
            return Err(Error::Program("openssl made no certificate".into()));
        }
        for _ in 0..10 {
            let (http, https) = (free()?, free()?);
            let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
            let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
                .map(|kind| format!("  {kind}_temp_path {};\n", path(kind)))
                .concat();
            let config = format!(
                "daemon off; worker_processes auto; {user}\npid {};\nerror_log {} error;\nevents {{ worker_connections 4096; }}\nhttp {{\n  access_log off;\n\
                 {temporary}  server {{ listen {http} backlog=4096; root {root}; }}\n  server {{\n    listen {https} ssl backlog=4096; root {root};\n    \
                 ssl_certificate {}; ssl_certificate_key {};\n    ssl_protocols TLSv1.3; ssl_session_cache off; ssl_session_tickets off;\n  }}\n}}\n",
                path("pid"),
                path("log"),
                path("certificate.pem"),
                path("key.pem"),
                root = root.display(),
            );
            let file = directory.join("config");
            fs::write(&file, config).map_err(Error::file(&file))?;
            let mut command = Command::new(program);
            command.args(["-e", &path("log"), "-p"]).arg(directory).arg("-c").arg(&file);
            let child = ChildProcess::start(
                command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()),
            );
            let mut server = Self {
                child: child.map_err(|error| Error::Program(format!("nginx: {error}")))?,
                http,
                https,
            };
            let start = Instant::now();
            while start.elapsed() < START_TIMEOUT
                && server.child.try_wait().is_ok_and(|status| status.is_none())
            {
                if [http, https].iter().all(|address| TcpStream::connect(address).is_ok()) {
                    return Ok(server);
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let log = fs::read_to_string(directory.join("log")).unwrap_or_default();
        Err(Error::Program(format!(
            "nginx did not start: {}",
            log.lines().last().unwrap_or_default()
        )))
    }

    pub(crate) fn cpu(&self) -> ServerCpu {
        ServerCpu::Process(self.child.id())
    }
}

fn free() -> Result<SocketAddr, Error> {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|socket| socket.local_addr())
        .map_err(Error::io("port on loopback"))
}

const START_TIMEOUT: Duration = Duration::from_secs(30);
