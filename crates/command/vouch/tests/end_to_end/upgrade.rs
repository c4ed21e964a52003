//! The process of a mount is replaced, or killed, under load. VOUCH_TEST_REPLACEMENTS sets how
//! often.

use std::fs::File;
use std::io::BufRead as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use rustix::fs::{Advice, fadvise};

use crate::prelude::*;

#[test]
#[ignore = "needs FUSE"]
fn replaced_mount_serves_compiler_program_and_open_files() {
    let Mounted { site, mount, replica: _replica } = Mounted::with_tree(&[], &[], programs);
    let supervisor_sees = |mount: &Mount| mount.worker().expect("a worker");
    let work = Workload::start(&site, &mount);
    let mut pauses = Vec::new();
    for round in 0..replacements() {
        let before = supervisor_sees(&mount);
        let answer = site.run_ok(["upgrade", "mnt"]);
        let pause_ms = answer
            .split("waited ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok())
            .expect("a pause");
        pauses.push(Duration::from_secs_f64(pause_ms / 1000.0));
        assert!(
            eventually(WAIT_MAX, || mount.worker().is_some_and(|now| now != before)),
            "round {round}: the same worker"
        );
        work.wait_for_progress(round);
    }
    work.end();
    report("replacements of the mount's process", pauses);
    assert_eq!(mount.terminate(), Some(0));
    assert_eq!(fs::read_dir(site.path("mnt")).expect("the bare mount point").count(), 0);
}

#[test]
#[ignore = "needs FUSE"]
fn killed_mount_is_taken_up_under_open_files() {
    let Mounted { site, mount, replica: _replica } = Mounted::with_tree(&[], &[], programs);
    let work = Workload::start(&site, &mount);
    let mut pauses = Vec::new();
    for round in 0..replacements() {
        let before = mount.worker().expect("a worker");
        let killed = Instant::now();
        signal("KILL", before);
        rustix::fs::statvfs(mount.path("")).expect("an answer");
        pauses.push(killed.elapsed());
        assert!(
            eventually(WAIT_MAX, || mount.worker().is_some_and(|now| now != before)),
            "round {round}: no other worker"
        );
        work.wait_for_progress(round);
    }
    work.end();
    report("kills of the mount's process", pauses);
    assert_eq!(mount.terminate(), Some(0));
}

#[test]
#[ignore = "needs FUSE"]
fn new_revision_reaches_files_after_a_replacement() {
    let Mounted { site, mount, replica: _replica } =
        Mounted::with_tree(&["--refresh", "1s"], &[], |site| {
            programs(site);
            site.write("src/doomed", "doomed\n");
        });
    let held = File::open(mount.path("large")).expect("published");
    let inode = held.metadata().expect("metadata").ino();
    assert!(fs::metadata(mount.path("later")).is_err(), "the kernel caches a missing name");
    assert_eq!(fs::read_to_string(mount.path("doomed")).expect("published"), "doomed\n");
    site.run_ok(["upgrade", "mnt"]);
    signal("KILL", mount.worker().expect("a worker"));
    site.write("src/later", "later\n");
    fs::remove_file(site.path("src/doomed")).expect("the file exists");
    site.write("src/large", large(7));
    site.publish();
    assert!(eventually(WAIT_MAX, || fs::read_to_string(mount.path("later"))
        .is_ok_and(|text| text == "later\n")));
    assert!(eventually(WAIT_MAX, || fs::metadata(mount.path("doomed")).is_err()));
    assert!(
        eventually(WAIT_MAX, || fs::read(mount.path("large")).is_ok_and(|bytes| bytes == large(7)))
    );
    assert_eq!(held.metadata().expect("metadata").ino(), inode);
    let mut tail = vec![0; 4096];
    held.read_exact_at(&mut tail, 1 << 20).expect("still readable");
    assert!(eventually(WAIT_MAX, || held.read_exact_at(&mut tail, 1 << 20).is_ok()
        && tail == large(7)[1 << 20..][..4096]));
}

#[test]
#[ignore = "needs FUSE"]
fn killed_mount_is_taken_up_despite_faulty_configuration() {
    let mut site = TestSite::published();
    site.write("etc/vouch.toml", format!("[tree.tools]\nname = \"{}\"\n", site.name("")));
    site.environment.push(("VOUCH_CONFIG", site.path("etc").to_string_lossy().into_owned()));
    let _replica = site.serve();
    let mount = Mount::new(&site, "mnt", &["tools"]);
    site.write("etc/conf.d/other.toml", "[serve]\nlisetn = 1\n");
    let before = mount.worker().expect("a worker");
    signal("KILL", before);
    assert_eq!(fs::read_to_string(mount.path("hello")).expect("served again"), "hello world\n");
    assert_ne!(mount.worker().expect("another worker"), before);
    // An upgrade reads the files, and its refusal has the reason.
    assert!(site.run_err(7, ["--config", "/dev/null", "upgrade", "mnt"]).contains("lisetn"));
    assert_eq!(fs::read_to_string(mount.path("link")).expect("served on").lines().count(), 50_000);
}

pub(crate) fn replacements() -> usize {
    std::env::var("VOUCH_TEST_REPLACEMENTS").ok().and_then(|count| count.parse().ok()).unwrap_or(3)
}

pub(crate) fn report(what: &str, mut pauses: Vec<Duration>) {
    pauses.sort_unstable();
    let at = |share: usize| pauses[(pauses.len() - 1) * share / 100];
    println!(
        "{} {what}: pause p50 {:?}, p99 {:?}, most {:?}",
        pauses.len(),
        at(50),
        at(99),
        at(100)
    );
}

fn large(seed: u8) -> Vec<u8> {
    (0..3u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8 ^ seed).collect()
}

fn programs(site: &TestSite) {
    site.small_tree();
    site.write("src/large", large(0));
    let mut all = String::new();
    for n in 0..60 {
        site.write(
            &format!("src/include/h{n}.h"),
            format!("static inline int f{n}(int x) {{ return x * {n} + 1; }}\n"),
        );
        all.push_str(&format!("#include \"h{n}.h\"\n"));
    }
    site.write("src/code.c", format!("{all}int all(int x) {{ return f0(x) + f59(x); }}\n"));
    let table: Vec<String> =
        (0..200_000u32).map(|n| n.wrapping_mul(2_654_435_761).to_string()).collect();
    let source = format!(
        "#include <stdio.h>\n#include <unistd.h>\nstatic const unsigned t[] = {{{}}};\nint main(int c, char **v) {{\n\
         for (unsigned long round = 0; ; round++) {{\n\
         for (unsigned n = 0; n < sizeof t / sizeof *t; n++) if (t[n] != n * 2654435761u) return 9;\n\
         if (c > 1) return 0;\nif (printf(\"%lu\\n\", round) < 0 || fflush(stdout)) return 0;\nusleep(20000);\n}}\n}}\n",
        table.join(",")
    );
    site.write("program.c", source);
    fs::create_dir_all(site.path("src/bin")).expect("a directory");
    site.run_tool("cc", &["-O1", "-o", "src/bin/program", "program.c"]);
}

struct Workload {
    ended: Arc<AtomicBool>,
    failures: Arc<Mutex<Vec<String>>>,
    rounds: Vec<Arc<AtomicU64>>,
    threads: Vec<JoinHandle<()>>,
    program: Child,
}

impl Workload {
    fn start(site: &TestSite, mount: &Mount) -> Self {
        let mut program = Command::new(mount.path("bin/program"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("a program of the tree");
        let lines = BufReader::new(program.stdout.take().expect("piped")).lines();
        let mut work = Self {
            ended: Arc::default(),
            failures: Arc::default(),
            rounds: Vec::new(),
            threads: Vec::new(),
            program,
        };
        work.rounds.push(Arc::default());
        let ticks = work.rounds[0].clone();
        work.threads.push(std::thread::spawn(move || {
            for _ in lines {
                ticks.fetch_add(1, Ordering::SeqCst);
            }
        }));
        let (source, point) = (site.path("src"), mount.path(""));
        let numbers = Arc::new(fs::read(source.join("dir/numbers")).expect("the source"));
        let large = Arc::new(large(0));
        for (name, content) in [("dir/numbers", numbers), ("large", large)] {
            let held = File::open(point.join(name)).expect("published");
            let inode = held.metadata().expect("metadata").ino();
            let path = point.join(name);
            let mut random = 88_172_645_463_325_252u64;
            work.repeat(name, move || {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let len = 1 + (random >> 20) as usize % 20_000;
                let offset = random as usize % (content.len() - len);
                fadvise(&held, 0, None, Advice::DontNeed).map_err(|error| error.to_string())?;
                let mut bytes = vec![0; len];
                held.read_exact_at(&mut bytes, offset as u64)
                    .map_err(|error| format!("read at {offset}: {error}"))?;
                if bytes != content[offset..offset + len] {
                    return Err(format!("wrong bytes at {offset}"));
                }
                let again = File::open(&path)
                    .and_then(|file| file.metadata())
                    .map_err(|error| format!("open: {error}"))?;
                if again.ino() != inode { Err("another inode number".into()) } else { Ok(()) }
            });
        }
        let (compared, at) = (source, point.clone());
        work.repeat("listing", move || {
            let names = |dir: &Path| -> Result<Vec<_>, String> {
                let entries = fs::read_dir(dir).map_err(|error| format!("readdir: {error}"))?;
                let names: Result<Vec<_>, _> =
                    entries.map(|entry| entry.map(|entry| entry.file_name())).collect();
                let mut names = names.map_err(|error| format!("readdir: {error}"))?;
                names.sort_unstable();
                Ok(names)
            };
            if fs::metadata(at.join("no-such-file")).is_ok() {
                return Err("a file that does not exist".into());
            }
            if names(&compared.join("include"))? == names(&at.join("include"))? {
                Ok(())
            } else {
                Err("another listing".into())
            }
        });
        let (out, at) = (site.path("out"), point.clone());
        fs::create_dir_all(&out).expect("a directory");
        work.repeat("compiler", move || compile(&at, &out));
        work.repeat("program", move || {
            match Command::new(point.join("bin/program")).arg("once").status() {
                Ok(status) if status.success() => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
        work
    }

    fn repeat(
        &mut self,
        name: &str,
        mut step: impl FnMut() -> Result<(), String> + Send + 'static,
    ) {
        let (ended, failures, name, round) = (
            self.ended.clone(),
            self.failures.clone(),
            name.to_owned(),
            Arc::new(AtomicU64::new(0)),
        );
        self.rounds.push(round.clone());
        self.threads.push(std::thread::spawn(move || {
            while !ended.load(Ordering::SeqCst) {
                if let Err(why) = step() {
                    failures.lock().push(format!("{name}: {why}"));
                    return;
                }
                round.fetch_add(1, Ordering::SeqCst);
            }
        }));
    }

    fn wait_for_progress(&self, round: usize) {
        let before: Vec<u64> =
            self.rounds.iter().map(|round| round.load(Ordering::SeqCst)).collect();
        let moved = || {
            self.rounds
                .iter()
                .zip(&before)
                .all(|(now, before)| now.load(Ordering::SeqCst) > *before)
        };
        let went_on = eventually(WAIT_MAX, || moved() || !self.failures.lock().is_empty());
        assert_eq!(*self.failures.lock(), Vec::<String>::new(), "round {round}");
        assert!(went_on, "round {round}: a user of the mount hangs: {before:?}");
    }

    fn end(mut self) {
        self.ended.store(true, Ordering::SeqCst);
        assert_eq!(
            self.program.try_wait().expect("a child"),
            None,
            "the running program has ended"
        );
        self.program.kill().expect("it runs");
        let _ = self.program.wait();
        self.threads.drain(..).for_each(|thread| thread.join().expect("no panic"));
        assert_eq!(*self.failures.lock(), Vec::<String>::new());
        println!("rounds of program, two readers, listing, compiler, start: {:?}", self.rounds);
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

fn compile(point: &Path, out: &Path) -> Result<(), String> {
    let object: PathBuf = out.join("code.o");
    let mut command = Command::new("cc");
    command
        .arg("-I")
        .arg(point.join("include"))
        .arg("-c")
        .arg(point.join("code.c"))
        .arg("-o")
        .arg(&object);
    let output = command.output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(())
}

const WAIT_MAX: Duration = Duration::from_secs(60);
