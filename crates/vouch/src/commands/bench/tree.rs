//! `vouch bench tree`: a tree is published, served and mounted for the run, and read beside the directory that it was made from; its replica is
//! asked for connections beside web servers.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use vouch_bench::cpu::ServerCpu;
use vouch_bench::plan;
use vouch_bench::subject::{About, Asked, ConnectSubject, Forget, ReadingSubject, prepare};
use vouch_bench::target::{Target, resolve};
use vouch_bench::{Error, Run, Stop, Subject};
use vouch_oncrpc::{Call, OpaqueAuth, begin_record, end_record};
use vouch_tree::TreeName;
use vouch_tree::protocol::{GetFsinfoArgs, PROGRAM, Procedure, VERSION};
use vouch_xdr::{Writer, Xdr as _};

use super::measure::{Measure, Part};
use crate::cli::Global;
use crate::exit::{At as _, Failure, Outcome};

/// Small and large reads of a published tree, with caches and without; connections a second beside HTTP and HTTPS (the SFS read-only paper).
///
/// A tree is published, served by a replica on loopback and mounted, all for the run. With --target http://… or https://… its replica is compared with web servers, of which a page in their root and the same
/// below one/two/three are asked: http://HOST/small asks /small and /one/two/three/small.
#[derive(Debug, clap::Args)]
pub(super) struct Tree {
    /// Where the tree is made.
    #[arg(long, value_name = "DIR", default_value = "/tmp")]
    dir: PathBuf,
    /// A web server to compare connections with: http:// or https://; may be repeated.
    #[arg(long, value_name = "URL")]
    target: Vec<Target>,
    #[command(flatten)]
    measure: Measure,
}

impl Tree {
    /// Measures.
    pub(super) fn run(self, global: &Global) -> Outcome {
        let quick = self.measure.quick;
        let world = World::make(&self.dir, quick)?;
        let (reads, connections) = (plan::tree(quick), plan::connections(quick));
        let subjects = |run: &mut Run, stop: &Stop| {
            run.left_out.push("reads without verification: there is no such client".into());
            world.readers(stop)
        };
        let asked = |_: &mut Run, stop: &Stop| world.asked(&self.target, stop);
        let parts = vec![
            Part { subjects: Box::new(subjects), work: Box::new(move |bench| bench.all(&reads)) },
            Part { subjects: Box::new(asked), work: Box::new(move |bench| bench.all(&connections)) },
        ];
        let outcome = self.measure.run(global, parts);
        drop(world);
        outcome
    }
}

/// A published tree and its replica, which end with it.
struct World {
    // Before the directory, in which it works.
    replica: Replica,
    name: String,
    program: PathBuf,
    directory: tempfile::TempDir,
}

struct Replica {
    child: Child,
    address: String,
}

impl Drop for World {
    fn drop(&mut self) {
        // Mounts that are ending write their last lines below it.
        let start = Instant::now();
        while self.directory.path().exists() && start.elapsed() < PATIENCE && std::fs::remove_dir_all(self.directory.path()).is_err() {
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

/// A mount that can be had anew.
struct Mounted {
    program: PathBuf,
    args: Vec<String>,
    cache: PathBuf,
    at: PathBuf,
    /// Whether anything may be known from before.
    warm: bool,
    mounted: bool,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = self.unmount();
    }
}

impl World {
    fn make(at: &Path, quick: bool) -> Outcome<Self> {
        let program = std::env::current_exe().at("this program")?;
        let directory = tempfile::Builder::new().prefix("vouch-bench-").tempdir_in(at).at(at.display())?;
        let path = |name: &str| directory.path().join(name);
        std::fs::create_dir(path("src")).at(at.display())?;
        let reads: Vec<_> = plan::tree_reads(quick).into_iter().map(|(_, _, read)| read).collect();
        prepare(&path("src"), &reads)?;
        let text = |name: &str| path(name).display().to_string();
        let (src, db, keys) = (text("src"), text("db"), text("keys"));
        run(&program, &["keygen", "--out", &keys])?;
        run(&program, &["publish", &src, "--db", &db, "--keys", &keys, "--location", "127.0.0.1:4"])?;
        let mut command = Command::new(&program);
        let log = std::fs::File::create(path("replica.log")).at(at.display())?;
        command.args(["serve", "--db", &db, "--listen", "127.0.0.1:0"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut replica = Replica { child: command.spawn().at("the replica")?, address: String::new() };
        let mut line = String::new();
        if let Some(out) = replica.child.stdout.take() {
            std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).at("the replica")?;
        }
        let address = line.trim().strip_prefix("serving on ").and_then(|rest| rest.split(',').next());
        replica.address = address.ok_or_else(|| Failure::refused("the replica", "it does not start"))?.to_owned();
        let name = run(&program, &["name", &keys, "--location", &replica.address])?.trim().to_owned();
        Ok(Self { replica, name, program, directory })
    }

    /// The directory itself, and the tree with caches cold, warm, and without any.
    fn readers(&self, stop: &Stop) -> Outcome<Vec<Box<dyn Subject>>> {
        let source = self.directory.path().join("src");
        let about =
            |label: &str, detail: &str| About { label: label.into(), target: self.name.clone(), sec: None, details: vec![detail.into()] };
        let mut subjects: Vec<Box<dyn Subject>> = Vec::new();
        let local = About { target: source.display().to_string(), ..about("local directory", "what the tree was made from") };
        subjects.push(Box::new(ReadingSubject::new(local, source, Box::new(|| Ok(())), None, stop)));
        for (label, detail, warm, more) in [
            ("tree cold", "mounted anew for each round, empty disk cache; every byte verified", false, None),
            ("tree warm", "mounted once; caches of the client and of the kernel", true, None),
            ("tree without disk cache", "mounted anew for each round, without a disk cache", false, Some("--no-cache")),
        ] {
            let at = self.directory.path().join(label.replace(' ', "-"));
            std::fs::create_dir(&at).at(at.display())?;
            let cache = self.directory.path().join(format!("cache-{}", subjects.len()));
            let state = self.directory.path().join("state").display().to_string();
            let mut args: Vec<String> = ["mount", "--background", "--replica", &self.replica.address, "--only-replicas", "--state", &state]
                .map(str::to_owned)
                .into();
            args.extend(["--log-file".into(), self.directory.path().join("mount.log").display().to_string()]);
            match more {
                Some(option) => args.push(option.into()),
                None => args.extend(["--cache".into(), cache.display().to_string()]),
            }
            args.extend([self.name.clone(), at.display().to_string()]);
            let mut mounted = Mounted { program: self.program.clone(), args, cache, at: at.clone(), warm, mounted: false };
            // A machine without FUSE is told so now.
            mounted.renew().map_err(Failure::from)?;
            let forget: Forget = Box::new(move || mounted.renew());
            let server = Some(ServerCpu::Process(self.replica.child.id()));
            subjects.push(Box::new(ReadingSubject::new(about(label, detail), at, forget, server, stop)));
        }
        Ok(subjects)
    }

    /// The replica and the web servers.
    fn asked(&self, targets: &[Target], stop: &Stop) -> Outcome<Vec<Box<dyn Subject>>> {
        let name: TreeName = self.name.parse()?;
        let args = GetFsinfoArgs { hostid: *name.hostid(), companions: true }.to_xdr();
        let mut w = Writer::new();
        let start = begin_record(&mut w);
        let (cred, verf) = (OpaqueAuth::NONE, OpaqueAuth::NONE);
        Call { xid: 1, program: PROGRAM, version: VERSION, procedure: Procedure::GetFsinfo as u32, cred, verf, args: &args }.encode(&mut w);
        let mut record = w.into_bytes();
        end_record(&mut record, start, 0);
        let address = self.replica.address.parse().map_err(|_| Failure::input(&self.replica.address, "not an address"))?;
        let mut subjects: Vec<Box<dyn Subject>> =
            vec![Box::new(ConnectSubject::new("replica".into(), address, Asked::Record(record), None, stop))];
        for target in targets {
            let Target::Http { tls, host, port, path } = target else {
                return Err(Failure::usage("--target", "connections are compared with http:// and https://"));
            };
            let paths = [path.clone(), format!("/one/two/three{path}")];
            let (label, asked) = if *tls { ("https", Asked::Https(paths)) } else { ("http", Asked::Http(paths)) };
            subjects.push(Box::new(ConnectSubject::new(format!("{label} {host}:{port}"), resolve(host, *port)?, asked, None, stop)));
        }
        Ok(subjects)
    }
}

impl Mounted {
    /// Mounts; anew, and with nothing known, unless it may be warm.
    fn renew(&mut self) -> Result<(), Error> {
        if self.warm && self.mounted {
            return Ok(());
        }
        self.unmount()?;
        if self.cache.exists() {
            std::fs::remove_dir_all(&self.cache).map_err(Error::file(&self.cache))?;
        }
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        run(&self.program, &args).map_err(|failure| Error::Program(failure.to_string()))?;
        self.mounted = true;
        Ok(())
    }

    fn unmount(&mut self) -> Result<(), Error> {
        let start = Instant::now();
        while self.mounted {
            match run(&self.program, &["umount", &self.at.display().to_string()]) {
                Ok(_) => self.mounted = false,
                Err(failure) if start.elapsed() > PATIENCE => return Err(Error::Program(failure.to_string())),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
        Ok(())
    }
}

/// Runs this program with other words; what it prints.
fn run(program: &Path, args: &[&str]) -> Outcome<String> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output().at(program.display())?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(Failure::refused(args[0], String::from_utf8_lossy(&output.stderr).trim().lines().last().unwrap_or("it failed"))),
    }
}

const PATIENCE: Duration = Duration::from_secs(30);
