//! A private sshd on loopback, with keys that nobody else has: for scp and sshfs.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Helper;
use super::helper::Undo;
use crate::Error;
use crate::cpu::ServerCpu;

/// It ends with this value.
pub struct Sshd {
    child: Helper,
    directory: PathBuf,
    port: u16,
    _empty: Option<Empty>,
}

/// The empty directory that sshd of the superuser wants, which a service makes elsewhere: made if there is none, and removed with the last sshd that needs it.
struct Empty {
    _undo: Undo,
}

impl Empty {
    fn make() -> Option<Self> {
        let mut users = users();
        if *users == 0 {
            fs::create_dir(EMPTY).ok()?;
        }
        *users += 1;
        Some(Self { _undo: Undo::at_the_end(remove_empty) })
    }
}

impl Drop for Empty {
    fn drop(&mut self) {
        let mut users = users();
        *users -= 1;
        if *users == 0 {
            remove_empty();
        }
    }
}

fn remove_empty() {
    // What somebody put there meanwhile is his.
    let _ = fs::remove_dir(EMPTY);
}

fn users() -> MutexGuard<'static, usize> {
    USERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many use the directory that was made; none where it was there.
static USERS: Mutex<usize> = Mutex::new(0);

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Sshd {
    /// Starts it, with its keys and its configuration in a directory.
    pub fn start(directory: &Path) -> Result<Self, Error> {
        let program = ["/usr/sbin/sshd", "/usr/local/sbin/sshd", "/sbin/sshd"].into_iter().find(|path| Path::new(path).exists());
        let program =
            program.ok_or_else(|| Error::Program("sshd is not installed (package openssh-server); or name a host: scp://HOST".into()))?;
        for name in ["host", "key"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(directory.join(name))
                .stdin(Stdio::null())
                .status();
            if !made.is_ok_and(|status| status.success()) {
                return Err(Error::Program("ssh-keygen makes no key".into()));
            }
        }
        let mut empty = rustix::process::geteuid().is_root().then(Empty::make).flatten();
        let path = |name: &str| directory.join(name).display().to_string();
        fs::copy(path("key.pub"), path("authorized")).map_err(Error::file(directory))?;
        let host_key = fs::read_to_string(path("host.pub")).map_err(Error::file(directory))?;
        for _ in 0..10 {
            let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).map_err(Error::io("a port of loopback"))?;
            let port = free.port();
            fs::write(path("known"), format!("[127.0.0.1]:{port} {host_key}")).map_err(Error::file(directory))?;
            let config = format!(
                "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n\
                 KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\nSubsystem sftp internal-sftp\nPrintMotd no\nLogLevel ERROR\n",
                path("host"),
                path("authorized"),
            );
            fs::write(path("config"), config).map_err(Error::file(directory))?;
            let log = fs::File::create(directory.join("log")).map_err(Error::file(directory))?;
            let mut command = Command::new(program);
            command.args(["-D", "-e", "-f"]).arg(path("config")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
            let child = Helper::start(&mut command).map_err(|error| Error::Program(format!("sshd: {error}")))?;
            let mut server = Self { child, directory: directory.to_owned(), port, _empty: None };
            let start = Instant::now();
            while start.elapsed() < PATIENCE && server.child.try_wait().is_ok_and(|status| status.is_none()) {
                if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                    server._empty = empty.take();
                    return Ok(server);
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let said = fs::read_to_string(directory.join("log")).unwrap_or_default();
        Err(Error::Program(format!("sshd does not start: {}", said.lines().last().unwrap_or_default())))
    }

    /// What ssh must be told to reach it at 127.0.0.1, and to believe it.
    pub fn options(&self) -> Vec<String> {
        let path = |name: &str| self.directory.join(name).display().to_string();
        let options = [
            "IdentitiesOnly=yes".to_owned(),
            "StrictHostKeyChecking=yes".to_owned(),
            format!("IdentityFile={}", path("key")),
            format!("UserKnownHostsFile={}", path("known")),
            format!("Port={}", self.port),
        ];
        options.into_iter().flat_map(|option| ["-o".to_owned(), option]).collect()
    }

    /// Its CPU time, with what it starts for each connection.
    pub fn cpu(&self) -> ServerCpu {
        ServerCpu::Process(self.child.id())
    }
}

const EMPTY: &str = "/run/sshd";
const PATIENCE: Duration = Duration::from_secs(30);
