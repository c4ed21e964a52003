//! A private sshd on loopback, with keys that nobody else has: for scp and sshfs.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

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

/// The empty directory that sshd of the superuser wants, which a service makes elsewhere: made if there is none, and removed again when no sshd of this or
/// another run needs it. Runs have a lock on it meanwhile.
struct Empty {
    _undo: Undo,
}

struct Used {
    /// By so many of this run.
    count: usize,
    held: Option<fs::File>,
    made: bool,
}

impl Empty {
    fn begin() -> Self {
        let mut used = used();
        // Another run may be removing it: then it is made again.
        for _ in 0..TURNS {
            if used.count > 0 || used.held.is_some() {
                break;
            }
            let made = fs::create_dir(EMPTY).is_ok();
            // Without it sshd says what it lacks.
            let Ok(held) = fs::File::open(EMPTY) else { break };
            let is_there = flock(&held, FlockOperation::LockShared).is_ok()
                && held.metadata().and_then(|held| Ok(held.ino() == fs::metadata(EMPTY)?.ino())).unwrap_or(false);
            (used.made, used.held) = (made, is_there.then_some(held));
        }
        used.count += 1;
        drop(used);
        Self { _undo: Undo::at_the_end(|| give_back(&mut self::used())) }
    }
}

impl Drop for Empty {
    fn drop(&mut self) {
        let mut used = used();
        used.count -= 1;
        if used.count == 0 {
            give_back(&mut used);
        }
    }
}

fn give_back(used: &mut Used) {
    used.held = None;
    if std::mem::take(&mut used.made)
        && let Ok(there) = fs::File::open(EMPTY)
        && flock(&there, FlockOperation::NonBlockingLockExclusive).is_ok()
    {
        // What somebody put there meanwhile is his.
        let _ = fs::remove_dir(EMPTY);
    }
}

fn used() -> MutexGuard<'static, Used> {
    USED.lock().unwrap_or_else(PoisonError::into_inner)
}

static USED: Mutex<Used> = Mutex::new(Used { count: 0, held: None, made: false });

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
        let mut empty = rustix::process::geteuid().is_root().then(Empty::begin);
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

/// How often it is made again.
const TURNS: usize = 8;
const EMPTY: &str = "/run/sshd";
const PATIENCE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_that_sshd_wants_is_gone_after_the_last_that_needs_it_unless_it_was_there() {
        if !rustix::process::geteuid().is_root() {
            return println!("skipped: only the superuser makes it");
        }
        let was_there = Path::new(EMPTY).exists();
        let (one, two) = (Empty::begin(), Empty::begin());
        assert!(Path::new(EMPTY).is_dir());
        drop(one);
        assert!(Path::new(EMPTY).is_dir(), "another needs it");
        drop(two);
        // Other runs may need it at this moment.
        assert!(Path::new(EMPTY).exists() || !was_there, "it was there before");
        let used = used();
        assert_eq!((used.count, used.held.is_none(), used.made), (0, true, false));
    }
}
