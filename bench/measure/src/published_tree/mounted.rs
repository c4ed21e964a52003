//! Mounted again for each cold round. The program runs in the foreground, so that its CPU time can
//! be read.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::Error;
use crate::cpu::ServerCpu;
use crate::subject::{ChildProcess, Sshd};

pub(super) struct Mounted {
    command: Vec<String>,
    unmount: Vec<String>,
    cache: Option<PathBuf>,
    at: PathBuf,
    log: PathBuf,
    warm: bool,
    /// Device of the directory without the mount.
    bare: Option<u64>,
    child: Option<ChildProcess>,
    _server: Option<Sshd>,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.unmount().is_err()
            && let Some(child) = &mut self.child
        {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Mounted {
    pub(super) fn tree(
        program: &Path,
        options: Vec<String>,
        name: &str,
        cache: Option<PathBuf>,
        at: &Path,
        warm: bool,
    ) -> Self {
        let program = program.display().to_string();
        let more = cache.as_ref().map_or_else(
            || vec!["--no-cache".to_owned()],
            |cache| vec!["--cache".to_owned(), cache.display().to_string()],
        );
        let place = at.display().to_string();
        let command = [
            vec![program.clone(), "mount".to_owned(), "--no-supervisor".to_owned()],
            options,
            more,
            vec![name.to_owned(), place.clone()],
        ]
        .concat();
        Self::new(command, vec![program, "umount".to_owned(), place], cache, at, warm, None)
    }

    pub(super) fn sshfs(server: Sshd, source: &Path, at: &Path, warm: bool) -> Self {
        let place = at.display().to_string();
        let command = [
            ["sshfs", "-f", "-F", "/dev/null", "-o", "ro", "-o", "BatchMode=yes"]
                .map(str::to_owned)
                .to_vec(),
            server.options(),
            vec![format!("127.0.0.1:{}", source.display()), place.clone()],
        ]
        .concat();
        Self::new(
            command,
            vec!["fusermount3".to_owned(), "-u".to_owned(), place],
            None,
            at,
            warm,
            Some(server),
        )
    }

    fn new(
        command: Vec<String>,
        unmount: Vec<String>,
        cache: Option<PathBuf>,
        at: &Path,
        warm: bool,
        server: Option<Sshd>,
    ) -> Self {
        let log = at.with_extension("log");
        Self {
            command,
            unmount,
            cache,
            at: at.to_owned(),
            log,
            warm,
            bare: None,
            child: None,
            _server: server,
        }
    }

    pub(super) fn renew(&mut self) -> Result<Option<ServerCpu>, Error> {
        if !self.warm || self.child.is_none() {
            self.unmount()?;
            if let Some(cache) = self.cache.as_ref().filter(|cache| cache.exists()) {
                std::fs::remove_dir_all(cache).map_err(Error::file(cache))?;
            }
            self.mount()?;
        }
        Ok(self.child.as_ref().map(|child| ServerCpu::Process(child.id())))
    }

    fn mount(&mut self) -> Result<(), Error> {
        let before = device(&self.at)?;
        self.bare = Some(before);
        let log = std::fs::File::create(&self.log).map_err(Error::file(&self.log))?;
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let program =
            |error: std::io::Error| Error::Program(format!("{}: {error}", self.command[0]));
        let child = self.child.insert(ChildProcess::start(&mut command).map_err(program)?);
        let start = Instant::now();
        // During the mount, a look may fail for a moment.
        while device(&self.at).is_ok_and(|now| now == before)
            || std::fs::read_dir(&self.at).is_err()
        {
            let ended = child.try_wait().map_err(Error::file(&self.at))?.is_some();
            if ended || start.elapsed() > MOUNT_TIMEOUT {
                let said = std::fs::read_to_string(&self.log).unwrap_or_default();
                let _ = child.kill();
                let _ = child.wait();
                self.child = None;
                return Err(Error::Program(
                    said.lines().last().unwrap_or("the mount took too long").to_owned(),
                ));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    fn unmount(&mut self) -> Result<(), Error> {
        let Some(child) = &mut self.child else { return Ok(()) };
        let start = Instant::now();
        while child.try_wait().map_err(Error::file(&self.at))?.is_none() {
            let unmounted = Command::new(&self.unmount[0])
                .args(&self.unmount[1..])
                .stdin(Stdio::null())
                .output();
            let unmounted = unmounted
                .map_err(|error| Error::Program(format!("{}: {error}", self.unmount[0])))?;
            if start.elapsed() > MOUNT_TIMEOUT {
                // Another mount namespace, copied meanwhile, may hold the mount.
                if device(&self.at).ok() == self.bare {
                    let _ = child.kill();
                    let _ = child.wait();
                    break;
                }
                return Err(Error::Program(
                    String::from_utf8_lossy(&unmounted.stderr).trim().to_owned(),
                ));
            }
            for _ in 0..50 {
                if child.try_wait().map_err(Error::file(&self.at))?.is_some() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        self.child = None;
        Ok(())
    }
}

fn device(path: &Path) -> Result<u64, Error> {
    std::fs::metadata(path).map(|metadata| metadata.dev()).map_err(Error::file(path))
}

const MOUNT_TIMEOUT: Duration = Duration::from_secs(30);
