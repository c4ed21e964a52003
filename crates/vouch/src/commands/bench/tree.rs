//! Publishes, serves and mounts a tree for the run, and measures it beside its source directory,
//! sshfs, NFS servers and web servers.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use vouch_bench::cpu::ServerCpu;
use vouch_bench::nfs::{NfsOptions, NfsSubject};
use vouch_bench::subject::{
    ChildProcess, ConnectSubject, DropCaches, PROJECT, ReadSubject, RecordingProxy, ReplaySubject, Request, Sshd, SubjectInfo, WebServer,
    compile, prepare,
};
use vouch_bench::target::{Sec, Target, resolve};
use vouch_bench::workload;
use vouch_bench::{Run, StopFlag, Subject};

use self::mounted::Mounted;
use super::measure::{BenchRequest, Measure, Part};
use crate::cli::Global;
use crate::exit::{At as _, Failure, Outcome};

mod breakdown;
mod mounted;
mod primitives;
mod verifying;

/// Measure reads of a published tree with and without caches, the cost of verification, a compile
/// on the tree, clients that replay the reads of a compile, and connections per second (the SFS
/// read-only paper).
///
/// The run publishes a tree, serves it from a replica on loopback and mounts it. The baselines are
/// the source directory and sshfs of that directory. The compile reads its sources from the mount
/// and writes objects to local disk. To measure the cost of verification, one client repeats the
/// calls that the mount makes for a read and verifies each answer, and another repeats them without
/// verifying. The time of the small reads is broken down into its parts, and signing, verifying and
/// hashing are measured alone. A connection is made by a client without any cache, which reads one small file by a
/// name of one component (small) and of three (one/two/small); a private nginx over HTTP and HTTPS
/// is measured beside it, and each server given with --target http://HOST/small, which stands for
/// /small and /one/two/small there. A server given with --target nfs://HOST/EXPORT reads the same
/// files over a session from user space, one call at a time, without a cache.
#[derive(Debug, clap::Args)]
pub(super) struct Tree {
    /// Directory for the tree.
    #[arg(long, value_name = "DIR", default_value = "/tmp")]
    dir: PathBuf,
    /// Server for comparison: http:// or https:// for connections, nfs:// for reads; may be
    /// repeated.
    #[arg(long, value_name = "URL")]
    target: Vec<Target>,
    /// Flavours of each NFS target: sys, krb5, krb5i, krb5p.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "sys")]
    sec: Vec<Sec>,
    /// Service principal of the NFS servers, if not nfs@HOST.
    #[arg(long, value_name = "SERVICE@HOST")]
    service: Option<String>,
    /// Directory with a project of your own, which becomes part of the tree as `project`.
    #[arg(long, value_name = "DIR", requires = "build")]
    project: Option<PathBuf>,
    /// Shell command that builds the project: it starts in an empty local directory, and $SRC is
    /// the project's directory in the tree.
    #[arg(long, value_name = "COMMAND", requires = "project")]
    build: Option<String>,
    #[command(flatten)]
    measure: Measure,
}

impl Tree {
    pub(super) fn run(self, global: &Global) -> Outcome {
        if self.target.iter().any(|target| matches!(target, Target::Scp(_))) {
            return Err(Failure::usage("--target", "a tree is compared with http://, https:// and nfs://; scp:// is for `transfer`"));
        }
        let (quick, wish) = (self.measure.quick, BenchRequest::new());
        let world = World::make(&self.dir, quick, self.project.as_deref(), wish.stop())?;
        let peers = Peers { targets: &self.target, sec: &self.sec, service: self.service.as_deref(), build: self.build.as_deref() };
        let outcome = self.measure.run(global, &wish, parts(&world, peers, quick));
        drop(world);
        outcome
    }
}

#[derive(Clone, Copy, Default)]
pub(super) struct Peers<'a> {
    targets: &'a [Target],
    sec: &'a [Sec],
    service: Option<&'a str>,
    build: Option<&'a str>,
}

pub(super) fn parts<'a>(world: &'a World, peers: Peers<'a>, quick: bool) -> Vec<Part<'a>> {
    let (reads, replay, connections) =
        (workload::tree(quick, peers.build.is_some()), workload::replay(quick), workload::connections(quick));
    let subjects = move |run: &mut Run, stop: &StopFlag| world.readers(peers, run, stop);
    let replayed = move |run: &mut Run, stop: &StopFlag| world.replayed(quick, run, stop);
    let asked = move |run: &mut Run, stop: &StopFlag| world.asked(peers.targets, run, stop);
    let verified = workload::verification(quick).into_iter().map(move |(read, case)| {
        let subjects = move |_: &mut Run, stop: &StopFlag| world.verifying(read, stop);
        Part::new(subjects, move |bench| bench.run_all(&[case]))
    });
    let (read, whole) = workload::breakdown(quick);
    let broken = Part::new(move |_: &mut Run, stop: &StopFlag| world.breakdown(read, stop), move |bench| bench.run_all(&[whole]));
    let alone = workload::primitives(quick, &primitives::HASHED);
    let primitives = Part::new(|_: &mut Run, _: &StopFlag| Ok(vec![primitives::subject()]), move |bench| bench.run_all(&alone));
    let first = Part::new(subjects, move |bench| bench.run_all(&reads));
    let last = [
        broken,
        primitives,
        Part::new(replayed, move |bench| bench.run_all(&replay)),
        Part::new(asked, move |bench| bench.run_all(&connections)),
    ];
    std::iter::once(first).chain(verified).chain(last).collect()
}

pub(super) struct World {
    // Dropped before the directory that they use.
    replica: Replica,
    /// The source's web server, or the reason for its absence.
    web: Result<WebServer, String>,
    name: String,
    program: PathBuf,
    directory: tempfile::TempDir,
}

struct Replica {
    child: ChildProcess,
    address: String,
}

impl Drop for World {
    fn drop(&mut self) {
        // Ending mounts still write below this directory.
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

impl World {
    /// An interruption takes effect after each step and removes everything.
    pub(super) fn make(at: &Path, quick: bool, project: Option<&Path>, stop: &StopFlag) -> Outcome<Self> {
        let go_on = || if stop.is_set() { Err(Failure::interrupted()) } else { Ok(()) };
        // After Ctrl-C, other programs fail for the same reason.
        let run = |args: &[&str]| {
            let outcome = run(&std::env::current_exe().at("this program")?, args);
            go_on().and(outcome)
        };

        let program = std::env::current_exe().at("this program")?;
        let directory = tempfile::Builder::new().prefix("vouch-bench-").tempdir_in(at).at(at.display())?;
        let path = |name: &str| directory.path().join(name);
        std::fs::create_dir(path("src")).at(at.display())?;
        let reads: Vec<_> = workload::tree_reads(quick).into_iter().map(|(_, _, read)| read).collect();
        prepare(&path("src"), &reads)?;
        go_on()?;
        compile::prepare(&path("src"), workload::source_count(quick))?;
        if let Some(project) = project {
            let copied =
                Command::new("cp").arg("-rT").arg(project).arg(path("src").join(PROJECT)).stdin(Stdio::null()).output().at("cp")?;
            if !copied.status.success() {
                return Err(Failure::input(project.display(), String::from_utf8_lossy(&copied.stderr).trim()));
            }
            go_on()?;
        }
        std::fs::create_dir_all(path("src/one/two")).at(at.display())?;
        for small in NAMES {
            std::fs::write(path("src").join(small), [b's'; SMALL_LEN]).at(at.display())?;
        }
        let text = |name: &str| path(name).display().to_string();
        let (src, db, keys) = (text("src"), text("db"), text("keys"));
        run(&["keygen", "--out", &keys])?;
        run(&["publish", &src, "--db", &db, "--keys", &keys, "--location", "127.0.0.1:4"])?;
        let mut command = Command::new(&program);
        let log = std::fs::File::create(path("replica.log")).at(at.display())?;
        command.args(["serve", "--db", &db, "--listen", "127.0.0.1:0"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut replica = Replica { child: ChildProcess::start(&mut command).at("the replica")?, address: String::new() };
        let mut line = String::new();
        if let Some(out) = replica.child.stdout.take() {
            std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).at("the replica")?;
        }
        go_on()?;
        let address = line.trim().strip_prefix("serving on ").and_then(|rest| rest.split(',').next());
        replica.address = address.ok_or_else(|| Failure::refused("the replica", "it does not start"))?.to_owned();
        let name = run(&["name", &keys, "--location", &replica.address])?.trim().to_owned();
        std::fs::create_dir(path("web")).at(at.display())?;
        let web = WebServer::start(&path("web"), &path("src")).map_err(|error| error.to_string());
        Ok(Self { replica, web, name, program, directory })
    }

    fn options(&self, replica: &str, state: &str) -> Vec<String> {
        let state = self.directory.path().join(state).display().to_string();
        ["--replica", replica, "--only-replicas", "--state", &state].map(str::to_owned).to_vec()
    }

    fn place(&self, name: &str) -> Outcome<PathBuf> {
        let at = self.directory.path().join(name.replace(' ', "-"));
        std::fs::create_dir_all(&at).at(at.display())?;
        Ok(at)
    }

    /// The source directory; the tree with cold, warm and no caches; sshfs cold and warm; NFS
    /// servers.
    fn readers(&self, peers: Peers<'_>, run: &mut Run, stop: &StopFlag) -> Outcome<Vec<Box<dyn Subject>>> {
        let source = self.directory.path().join("src");
        let about = |label: &str, target: String, detail: &str| SubjectInfo {
            label: label.into(),
            target,
            sec: None,
            details: vec![detail.into()],
        };
        let mut subjects: Vec<Box<dyn Subject>> = Vec::new();
        let build = || peers.build.map(str::to_owned);
        let local = about("local directory", source.display().to_string(), "source directory of the tree");
        subjects.push(Box::new(ReadSubject::new(local, source.clone(), Box::new(|| Ok(None)), None, stop).with_build(build())));
        for (label, detail, warm, cached) in [
            ("tree cold", "mounted again for each round, empty disk cache; every byte verified", false, true),
            ("tree warm", "mounted once; caches of the client and of the kernel", true, true),
            ("tree without disk cache", "mounted again for each round, without a disk cache", false, false),
        ] {
            let at = self.place(label)?;
            let cache = cached.then(|| self.directory.path().join(format!("cache-{}", subjects.len())));
            let mut mounted = Mounted::tree(&self.program, self.options(&self.replica.address, "state"), &self.name, cache, &at, warm);
            // Reports a missing FUSE now.
            mounted.renew().map_err(Failure::from)?;
            let forget: DropCaches = Box::new(move || mounted.renew());
            let server = Some(ServerCpu::Process(self.replica.child.id()));
            let reader = ReadSubject::new(about(label, self.name.clone(), detail), at, forget, server, stop);
            subjects.push(Box::new(reader.with_build(build())));
        }
        for (label, detail, warm) in [
            ("sshfs cold", "sshfs of the directory, by an sshd on loopback, mounted again for each round", false),
            ("sshfs warm", "the same, mounted once", true),
        ] {
            let keys = self.place(&format!("{label} keys"))?;
            let at = self.place(label)?;
            let made = Sshd::start(&keys).and_then(|server| {
                let cpu = server.cpu();
                let mut mounted = Mounted::sshfs(server, &source, &at, warm);
                mounted.renew().map(|_| (mounted, cpu))
            });
            match made {
                Err(error) => run.left_out.push(format!("{label}: {error}")),
                Ok((mut mounted, cpu)) => {
                    let forget: DropCaches = Box::new(move || mounted.renew());
                    let about = about(label, format!("sshfs of {}", source.display()), detail);
                    subjects.push(Box::new(ReadSubject::new(about, at, forget, Some(cpu), stop).with_build(build())));
                }
            }
        }
        run.machine.with_version("sshfs", "--version");
        for target in peers.targets {
            let Target::Nfs(target) = target else { continue };
            for &sec in peers.sec {
                let options = NfsOptions {
                    label: format!("{}:{} {sec}", target.host, target.port),
                    target: target.clone(),
                    sec,
                    service: peers.service.map(str::to_owned),
                    tls: None,
                    sessions: 1,
                    connections: 1,
                    slots: NFS_SLOTS,
                    server_cpu: ServerCpu::listening_at(target.address()?),
                    not_empty: false,
                };
                subjects.push(Box::new(NfsSubject::connect(options, stop)?));
            }
        }
        Ok(subjects)
    }

    fn replayed(&self, quick: bool, run: &mut Run, stop: &StopFlag) -> Outcome<Vec<Box<dyn Subject>>> {
        if !compile::is_installed() {
            return Err(Failure::not_found("clients that replay a compile", "a C compiler is not installed (cc)"));
        }
        let replica = self.replica()?;
        let recorder = RecordingProxy::begin(replica)?;
        let at = self.place("recorded")?;
        let options = self.options(&recorder.address().to_string(), "state-recorded");
        let cache = Some(self.directory.path().join("cache-recorded"));
        let mut mounted = Mounted::tree(&self.program, options, &self.name, cache, &at, false);
        mounted.renew()?;
        let right = compile::run(&at, workload::source_count(quick), 2, stop, &mut vouch_bench::Sample::default())?;
        drop(mounted);
        if !right {
            return Err(vouch_bench::Error::Corrupt(self.name.clone()).into());
        }
        run.machine.with_version("cc", "--version");
        let server = Some(ServerCpu::Process(self.replica.child.id()));
        Ok(vec![Box::new(ReplaySubject::new("replica, replayed".into(), replica, recorder.calls(), server, stop))])
    }

    fn replica(&self) -> Outcome<std::net::SocketAddr> {
        self.replica.address.parse().map_err(|_| Failure::input(&self.replica.address, "not an address"))
    }

    fn asked(&self, targets: &[Target], run: &mut Run, stop: &StopFlag) -> Outcome<Vec<Box<dyn Subject>>> {
        let address = self.replica()?;
        let mut records = [Vec::new(), Vec::new()];
        for (at, name) in NAMES.iter().enumerate() {
            let recorder = RecordingProxy::begin(address)?;
            let options = self.options(&recorder.address().to_string(), &format!("state-{at}"));
            let file = format!("{}/{name}", self.name);
            let words: Vec<&str> = options.iter().map(String::as_str).collect();
            let read = self::run(&self.program, &[&["cat", "--no-cache"], &words[..], &[&file]].concat())?;
            if read.len() != SMALL_LEN {
                return Err(vouch_bench::Error::Corrupt(file).into());
            }
            records[at] = recorder.calls();
        }
        let mut subjects: Vec<Box<dyn Subject>> =
            vec![Box::new(ConnectSubject::new("replica".into(), address, Request::Records(records), None, stop))];
        let paths = NAMES.map(|name| format!("/{name}"));
        match &self.web {
            Err(why) => run.left_out.push(format!("private web server: {why}")),
            Ok(web) => {
                run.machine.with_version("nginx", "-v");
                run.machine.with_version("openssl", "version");
                let (http, https) = (Request::Http(paths.clone()), Request::Https(paths));
                subjects.push(Box::new(ConnectSubject::new("nginx HTTP".into(), web.http, http, Some(web.cpu()), stop)));
                subjects.push(Box::new(ConnectSubject::new("nginx HTTPS".into(), web.https, https, Some(web.cpu()), stop)));
            }
        }
        for target in targets {
            let Target::Http { tls, host, port, path } = target else { continue };
            let paths = [path.clone(), format!("/one/two{path}")];
            let (label, asked) = if *tls { ("https", Request::Https(paths)) } else { ("http", Request::Http(paths)) };
            let subject = ConnectSubject::new(format!("{label} {host}:{port}"), resolve(host, *port)?, asked, None, stop);
            subjects.push(Box::new(subject.named(host)));
        }
        Ok(subjects)
    }
}

fn run(program: &Path, args: &[&str]) -> Outcome<String> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output().at(program.display())?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(Failure::refused(args[0], String::from_utf8_lossy(&output.stderr).trim().lines().last().unwrap_or("it failed"))),
    }
}

const PATIENCE: Duration = Duration::from_secs(30);
/// Enough to write the files; they are read one call at a time.
const NFS_SLOTS: usize = 8;
/// The small file, by a name of one component and of three.
const NAMES: [&str; 2] = ["small", "one/two/small"];
const SMALL_LEN: usize = 1024;
