//! A tree that is published, served from a replica on loopback and mounted for a run.

mod breakdown; // Where the time of small reads goes.
mod connections; // Connections per second, beside web servers.
mod mounted; // Mounts that are made again for each cold round.
mod primitives; // Signing, verifying and hashing.
mod readers; // Readers of the tree, of its source and of NFS servers.
mod verifying; // The cost of verification, and replays of recorded calls.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::subject::{ChildProcess, PROJECT, WebServer, compile, prepare};
use crate::target::{Sec, Target};
use crate::{Error, StopFlag, workload};

pub use primitives::{HASHED_LENGTHS, subject as primitives};

#[derive(Clone, Copy, Default)]
pub struct Peers<'a> {
    pub targets: &'a [Target],
    pub sec: &'a [Sec],
    pub service: Option<&'a str>,
    pub build: Option<&'a str>,
}

pub struct PublishedTree {
    // Dropped before the directory that they use.
    replica: Replica,
    web: Result<WebServer, String>,
    name: String,
    program: PathBuf,
    directory: tempfile::TempDir,
}

struct Replica {
    child: ChildProcess,
    address: String,
}

impl Drop for PublishedTree {
    fn drop(&mut self) {
        let start = Instant::now();
        while self.directory.path().exists()
            && start.elapsed() < REMOVAL_TIMEOUT
            && std::fs::remove_dir_all(self.directory.path()).is_err()
        {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl PublishedTree {
    /// An interruption takes effect after each step and removes everything.
    pub fn create(
        at: &Path,
        quick: bool,
        project: Option<&Path>,
        stop: &StopFlag,
    ) -> Result<Self, Error> {
        let program = std::env::current_exe().map_err(Error::io("this program"))?;
        let directory = tempfile::Builder::new()
            .prefix("vouch-bench-")
            .tempdir_in(at)
            .map_err(Error::file(at))?;
        let path = |name: &str| directory.path().join(name);
        write_source(&path("src"), quick, project, stop)?;
        let run = |args: &[&str]| {
            let outcome = run(&program, args);
            check(stop).and(outcome)
        };
        let text = |name: &str| path(name).display().to_string();
        let (src, db, keys) = (text("src"), text("db"), text("keys"));
        run(&["keygen", "--out", &keys])?;
        run(&["publish", &src, "--db", &db, "--keys", &keys, "--location", "127.0.0.1:4"])?;
        let replica = Replica::start(&program, &db, &path("replica.log"), stop)?;
        let name = run(&["name", &keys, "--location", &replica.address])?.trim().to_owned();
        std::fs::create_dir(path("web")).map_err(Error::file(at))?;
        let web = WebServer::start(&path("web"), &path("src")).map_err(|error| error.to_string());
        Ok(Self { replica, web, name, program, directory })
    }

    fn options(&self, replica: &str, state: &str) -> Vec<String> {
        let state = self.directory.path().join(state).display().to_string();
        ["--replica", replica, "--only-replicas", "--state", &state].map(str::to_owned).to_vec()
    }

    fn place(&self, name: &str) -> Result<PathBuf, Error> {
        let at = self.directory.path().join(name.replace(' ', "-"));
        std::fs::create_dir_all(&at).map_err(Error::file(&at))?;
        Ok(at)
    }

    fn replica(&self) -> Result<std::net::SocketAddr, Error> {
        self.replica
            .address
            .parse()
            .map_err(|_| Error::Input(format!("{}: not an address", self.replica.address)))
    }
}

impl Replica {
    fn start(program: &Path, db: &str, log: &Path, stop: &StopFlag) -> Result<Self, Error> {
        let mut command = Command::new(program);
        let log = std::fs::File::create(log).map_err(Error::file(log))?;
        command
            .args(["serve", "--db", db, "--listen", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log);
        let mut replica = Self {
            child: ChildProcess::start(&mut command).map_err(Error::io("the replica"))?,
            address: String::new(),
        };
        let mut line = String::new();
        if let Some(out) = replica.child.stdout.take() {
            std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line)
                .map_err(Error::io("the replica"))?;
        }
        check(stop)?;
        let address =
            line.trim().strip_prefix("serving on ").and_then(|rest| rest.split(',').next());
        replica.address = address
            .ok_or_else(|| Error::Refused("the replica: it does not start".into()))?
            .to_owned();
        Ok(replica)
    }
}

fn write_source(
    source: &Path,
    quick: bool,
    project: Option<&Path>,
    stop: &StopFlag,
) -> Result<(), Error> {
    std::fs::create_dir(source).map_err(Error::file(source))?;
    let reads: Vec<_> = workload::tree_reads(quick).into_iter().map(|(_, _, read)| read).collect();
    prepare(source, &reads)?;
    check(stop)?;
    compile::prepare(source, workload::source_count(quick))?;
    if let Some(project) = project {
        let copied = Command::new("cp")
            .arg("-rT")
            .arg(project)
            .arg(source.join(PROJECT))
            .stdin(Stdio::null())
            .output();
        let copied = copied.map_err(Error::io("cp"))?;
        if !copied.status.success() {
            return Err(Error::Input(format!(
                "{}: {}",
                project.display(),
                String::from_utf8_lossy(&copied.stderr).trim()
            )));
        }
        check(stop)?;
    }
    std::fs::create_dir_all(source.join("one/two")).map_err(Error::file(source))?;
    SMALL_FILES
        .iter()
        .try_for_each(|small| std::fs::write(source.join(small), [b's'; SMALL_LEN]))
        .map_err(Error::file(source))
}

fn check(stop: &StopFlag) -> Result<(), Error> {
    if stop.is_set() { Err(Error::Interrupted) } else { Ok(()) }
}

fn run(program: &Path, args: &[&str]) -> Result<String, Error> {
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .map_err(Error::file(program))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Error::Refused(format!(
        "{}: {}",
        args[0],
        said.trim().lines().last().unwrap_or("it failed")
    )))
}

const REMOVAL_TIMEOUT: Duration = Duration::from_secs(30);
const SMALL_FILES: [&str; 2] = ["small", "one/two/small"];
const SMALL_LEN: usize = 1024;
