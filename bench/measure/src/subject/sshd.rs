//! On loopback with its own keys, for scp and sshfs.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::ChildProcess;
use crate::Error;
use crate::cpu::ServerCpu;

pub(crate) struct Sshd {
    child: ChildProcess,
    directory: PathBuf,
    port: u16,
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Sshd {
    pub(crate) fn start(directory: &Path) -> Result<Self, Error> {
        let program = ["/usr/sbin/sshd", "/usr/local/sbin/sshd", "/sbin/sshd"]
            .into_iter()
            .find(|path| Path::new(path).exists());
        let program = program.ok_or_else(|| {
            Error::Program(
                "sshd is not installed (package openssh-server); or name a host: scp://HOST".into(),
            )
        })?;
        for name in ["host", "key"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(directory.join(name))
                .stdin(Stdio::null())
                .status();
            if !made.is_ok_and(|status| status.success()) {
                return Err(Error::Program("ssh-keygen made no key".into()));
            }
        }
        if rustix::process::geteuid().is_root() {
            make_empty();
        }
        let path = |name: &str| directory.join(name).display().to_string();
        fs::copy(path("key.pub"), path("authorized")).map_err(Error::file(directory))?;
        let host_key = fs::read_to_string(path("host.pub")).map_err(Error::file(directory))?;
        for _ in 0..10 {
            let free = TcpListener::bind("127.0.0.1:0")
                .and_then(|socket| socket.local_addr())
                .map_err(Error::io("port on loopback"))?;
            let port = free.port();
            fs::write(path("known"), format!("[127.0.0.1]:{port} {host_key}"))
                .map_err(Error::file(directory))?;
            let config = format!(
                "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n\
                 KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\nSubsystem sftp internal-sftp\nPrintMotd no\nLogLevel ERROR\n",
                path("host"),
                path("authorized"),
            );
            fs::write(path("config"), config).map_err(Error::file(directory))?;
            let log = fs::File::create(directory.join("log")).map_err(Error::file(directory))?;
            let mut command = Command::new(program);
            command
                .args(["-D", "-e", "-f"])
                .arg(path("config"))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log);
            let child = ChildProcess::start(&mut command)
                .map_err(|error| Error::Program(format!("sshd: {error}")))?;
            let mut server = Self { child, directory: directory.to_owned(), port };
            let start = Instant::now();
            while start.elapsed() < START_TIMEOUT
                && server.child.try_wait().is_ok_and(|status| status.is_none())
            {
                if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                    return Ok(server);
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let log = fs::read_to_string(directory.join("log")).unwrap_or_default();
        Err(Error::Program(format!(
            "sshd did not start: {}",
            log.lines().last().unwrap_or_default()
        )))
    }

    pub(crate) fn options(&self) -> Vec<String> {
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

    pub(crate) fn cpu(&self) -> ServerCpu {
        ServerCpu::Process(self.child.id())
    }
}

fn make_empty() {
    // sshd refuses a directory that others may write to, and reports a missing one.
    let _ = fs::DirBuilder::new().mode(0o755).create(EMPTY);
}

const EMPTY: &str = "/run/sshd";
const START_TIMEOUT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "needs root and openssh-server"]
    fn privilege_separation_directory_stays() {
        let directory = tempfile::tempdir().expect("a directory");
        drop(Sshd::start(directory.path()).expect("the package openssh-server"));
        assert!(Path::new(EMPTY).is_dir());
    }
}
