//! The ioctl FS_IOC_SHUTDOWN drops all unwritten data of a loop device; the next mount replays the
//! journal. A server without sync calls shows that the method detects losses.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;

use tempfile::TempDir;
use vouch_nfs4::op::{CreateType, SetxattrOption};
use vouch_nfs4::{Filehandle, Stateid, Verifier};
use vouch_nfs4_client::{Config, Identity, Plain};
use vouch_oncrpc::AuthSys;

use crate::prelude::*;

const NAMESPACE_TEST: &str = "VOUCH_ALONE";
const ROUNDS: u64 = 6;
/// Without syncs a loss must appear within this number of power failures.
const ROUNDS_WITHOUT_SYNC_MAX: u64 = 20;
const WORKERS: u64 = 6;
const FILE_LEN: usize = 5000;

#[test]
#[ignore = "needs root and xfsprogs"]
fn acknowledged_changes_on_ext4_survive_a_power_failure() {
    survives_power_failures(
        "power_failure::acknowledged_changes_on_ext4_survive_a_power_failure",
        "ext4",
        &["-q", "-F"],
    );
}

#[test]
#[ignore = "needs root and xfsprogs"]
fn acknowledged_changes_on_xfs_survive_a_power_failure() {
    survives_power_failures(
        "power_failure::acknowledged_changes_on_xfs_survive_a_power_failure",
        "xfs",
        &["-q", "-f"],
    );
}

#[test]
#[ignore = "needs root and xfsprogs"]
fn power_failure_without_syncs_is_detected() {
    let test = "power_failure::power_failure_without_syncs_is_detected";
    if std::env::var_os(NAMESPACE_TEST).is_none_or(|alone| alone != test) {
        return run_in_namespace(test, &["mkfs.ext4", "strace"]);
    }
    let directory = TempDir::new().expect("a temporary directory");
    let disk = Disk::new(directory.path(), "ext4", &["-q", "-F"]);
    let lost = (0..ROUNDS_WITHOUT_SYNC_MAX)
        .find_map(|round| run_round(&disk, directory.path(), round, Syncs::Ignored).err());
    let loss_despite_sync = (0..2).find_map(|round| {
        run_round(&disk, directory.path(), ROUNDS_WITHOUT_SYNC_MAX + round, Syncs::Traced).err()
    });
    disk.unmount();
    assert_eq!(loss_despite_sync, None, "data was lost although all syncs worked");
    println!("lost, as expected: {}", lost.expect("unsynced data is lost in some power failure"));
}

fn survives_power_failures(test: &str, kind: &str, options: &[&str]) {
    if std::env::var_os(NAMESPACE_TEST).is_none_or(|alone| alone != test) {
        return run_in_namespace(test, &[&format!("mkfs.{kind}")]);
    }
    let directory = TempDir::new().expect("a temporary directory");
    let disk = Disk::new(directory.path(), kind, options);
    let mut acknowledged = 0;
    for round in 0..ROUNDS {
        acknowledged += run_round(&disk, directory.path(), round, Syncs::Work)
            .unwrap_or_else(|lost| panic!("{lost}"));
    }
    disk.unmount();
    assert!(acknowledged > ROUNDS * WORKERS, "hardly anything was acknowledged: nothing is shown");
}

fn run_in_namespace(test: &str, needs: &[&str]) {
    require("root, to mount file systems", is_root());
    ["xfs_io"].iter().chain(needs).for_each(|program| require_program(program));
    let mut command = in_own_mounts(&this_test(test));
    let output = command.env(NAMESPACE_TEST, test).output().expect("the command runs");
    let output_text = text_of(&output);
    let lines: Vec<&str> =
        output_text.lines().filter(|line| !line.starts_with("test result")).collect();
    assert!(output.status.success(), "{}", lines.join("\n"));
}

struct Disk {
    kind: String,
    image: PathBuf,
    point: PathBuf,
}

impl Disk {
    fn new(above: &Path, kind: &str, options: &[&str]) -> Disk {
        let image = above.join("image");
        std::fs::File::create(&image)
            .and_then(|file| file.set_len(320 << 20))
            .expect("a sparse file");
        let mkfs = format!("mkfs.{kind}");
        tool(&mkfs, &[options, &[&image.to_string_lossy()]].concat())
            .unwrap_or_else(|why| panic!("{mkfs}: {why}"));
        let disk = Disk { kind: kind.into(), image, point: above.join("disk") };
        std::fs::create_dir(&disk.point).expect("a directory");
        disk.mount().unwrap_or_else(|why| panic!("this kernel does not mount {kind}: {why}"));
        disk
    }

    fn mount(&self) -> Result<(), String> {
        tool(
            "mount",
            &words(&format!(
                "-t {} -o loop {} {}",
                self.kind,
                self.image.to_string_lossy(),
                self.point.to_string_lossy()
            )),
        )
    }

    fn unmount(&self) {
        let done = eventually(Duration::from_secs(60), || {
            tool("umount", &[&self.point.to_string_lossy()]).is_ok()
        });
        assert!(done, "umount fails");
    }

    fn cut(&self) {
        tool("xfs_io", &["-x", "-c", "shutdown", &self.point.to_string_lossy()])
            .expect("xfs_io shuts the file system down");
    }
}

fn tool(program: &str, args: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(args).output().expect("the command runs");
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Syncs {
    Work,
    Traced,
    Ignored,
}

const SYNCS: &str = "fsync,fdatasync,syncfs,sync_file_range,sync";

struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start(disk: &Disk, state: &Path, syncs: Syncs) -> Server {
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .and_then(|socket| socket.local_addr())
            .expect("a free port")
            .port();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let vouch = env!("CARGO_BIN_EXE_vouch");
        let mut command = Command::new(if syncs == Syncs::Work { vouch } else { "strace" });
        if syncs != Syncs::Work {
            command.args(words(&format!("-f -qq -o /dev/null --seccomp-bpf -e trace={SYNCS}")));
            if syncs == Syncs::Ignored {
                command.args(["-e", &format!("inject={SYNCS}:retval=0")]);
            }
            command.arg(vouch);
        }
        command
            .process_group(0)
            .arg("export")
            .arg("--dir")
            .arg(&disk.point)
            .args(words("--options rw,no_root_squash,insecure --lease 5"));
        command.args(["--listen", &address.to_string()]).arg("--state").arg(state);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary starts");
        let server = Server { child, address };
        within(60, "the server does not start", || std::net::TcpStream::connect(address).is_ok());
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.child.wait();
    }
}

fn run_round(disk: &Disk, above: &Path, round: u64, syncs: Syncs) -> Result<u64, String> {
    let server = Server::start(disk, &above.join(format!("state {round}")), syncs);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let address = server.address;
    // While the file system shuts down it may report success for some syncs, so later replies do
    // not count.
    let over = Arc::new(AtomicBool::new(false));
    // A FILE_SYNC write also commits earlier changes.
    let written = if syncs == Syncs::Work { StableHow::FileSync } else { StableHow::Unstable };
    let workers: Vec<_> = (0..WORKERS)
        .map(|number| runtime.spawn(Worker::run(address, round, number, written, over.clone())))
        .collect();
    std::thread::sleep(Duration::from_millis(200 + SplitMix64(round * 7919 + 1).roll(500)));
    over.store(true, Ordering::SeqCst);
    disk.cut();
    drop(server);
    let done: Vec<Worker> = workers
        .into_iter()
        .map(|worker| runtime.block_on(worker).expect("a worker ends by itself"))
        .collect();
    disk.unmount();
    disk.mount().expect("the file system mounts again");
    for worker in &done {
        worker.check(&disk.point)?;
    }
    Ok(done.iter().map(|worker| worker.acknowledged).sum())
}

#[derive(Clone, Debug, PartialEq)]
enum ExpectedState {
    File { content: Option<u32>, mode: u32, mark: Option<u32> },
    Directory,
    Link(String),
}

enum StopReason {
    NoAnswer,
    ServerChanged,
}

impl From<Error> for StopReason {
    fn from(_: Error) -> StopReason {
        StopReason::NoAnswer
    }
}

struct Worker {
    directory: String,
    known: BTreeMap<String, ExpectedState>,
    gone: BTreeSet<String>,
    uncertain: Vec<String>,
    acknowledged: u64,
    random: SplitMix64,
    version: u32,
    written: StableHow,
}

impl Worker {
    async fn run(
        address: SocketAddr,
        round: u64,
        number: u64,
        written: StableHow,
        over: Arc<AtomicBool>,
    ) -> Worker {
        let mut worker = Worker {
            directory: format!("round-{round}-{number}"),
            known: BTreeMap::new(),
            gone: BTreeSet::new(),
            uncertain: Vec::new(),
            acknowledged: 0,
            random: SplitMix64(round * 1000 + number + 1),
            version: 0,
            written,
        };
        let identity = Identity::new(worker.directory.clone(), Verifier((round + 1).to_be_bytes()));
        let config = Config {
            reconnect_timeout: Duration::ZERO,
            ..Config::new(address, 2, identity, Plain::sys(&AuthSys::default()))
        };
        if let Ok(client) = Client::connect(config).await
            && let Err(StopReason::ServerChanged) = worker.work(&client, &over).await
        {
            assert!(
                over.load(Ordering::SeqCst),
                "{}: other writes were lost than those that the cut took",
                worker.directory
            );
        }
        worker
    }

    async fn work(&mut self, client: &Client, over: &AtomicBool) -> Result<(), StopReason> {
        let root = client.walk(b"export").await?.handle;
        let directory = client.mkdir(&root, self.directory.as_bytes(), 0o755).await?;
        loop {
            self.step(client, &directory).await?;
            if over.load(Ordering::SeqCst) {
                return Ok(());
            }
            self.uncertain.clear();
            self.acknowledged += 1;
        }
    }

    async fn step(&mut self, client: &Client, directory: &Filehandle) -> Result<(), StopReason> {
        let name = format!("n{}", self.random.roll(20));
        self.uncertain = vec![name.clone()];
        self.version += 1;
        let version = self.version;
        let mode = 0o600 + self.random.roll(8) as u32;
        let is_file = matches!(self.known.get(&name), Some(ExpectedState::File { .. }));
        match (self.random.roll(10), self.known.get(&name).cloned()) {
            (0..5, None) => {
                let attributes = Attributes { mode: Some(mode), ..Attributes::default() };
                let file = client
                    .open(directory, name.as_bytes(), ShareAccess::BOTH, Some(&attributes))
                    .await?;
                self.note(&name, ExpectedState::File { content: None, mode, mark: None });
                client.close_file(file).await?;
            }
            (5, None) => {
                client.mkdir(directory, name.as_bytes(), 0o700).await?;
                self.note(&name, ExpectedState::Directory);
            }
            (_, None) => {
                let target = format!("target of {version}");
                client
                    .create(
                        directory,
                        name.as_bytes(),
                        CreateType::Symlink(target.as_bytes()),
                        &Attributes::default(),
                    )
                    .await?;
                self.note(&name, ExpectedState::Link(target));
            }
            (0..4, Some(ExpectedState::File { mode, mark, .. })) => {
                let file = client.open(directory, name.as_bytes(), ShareAccess::BOTH, None).await?;
                let how =
                    if version.is_multiple_of(2) { self.written } else { StableHow::Unstable };
                let (_, _, life) = client.write(&file, 0, &content(version), how).await?;
                if how == StableHow::Unstable {
                    // A disk error under unstable writes changes the verifier (RFC 8881 §18.3.3).
                    if client.commit(&file).await? != life {
                        return Err(StopReason::ServerChanged);
                    }
                }
                self.note(&name, ExpectedState::File { content: Some(version), mode, mark });
                client.close_file(file).await?;
            }
            (4, Some(ExpectedState::File { content, mode: _, mark })) => {
                let handle = lookup(client, directory, &name).await?;
                let attributes = Attributes { mode: Some(mode), ..Attributes::default() };
                let reply = client
                    .compound()
                    .putfh(&handle)
                    .setattr(Stateid::default(), &attributes)
                    .send()
                    .await?;
                let mut results = reply.results();
                results.next_ok()?;
                results.next_ok()?;
                self.note(&name, ExpectedState::File { content, mode, mark });
            }
            (5, Some(ExpectedState::File { content, mode, .. })) => {
                let handle = lookup(client, directory, &name).await?;
                client
                    .setxattr(&handle, b"mark", &version.to_be_bytes(), SetxattrOption::Either)
                    .await?;
                self.note(&name, ExpectedState::File { content, mode, mark: Some(version) });
            }
            (6, Some(_)) => {
                client.remove(directory, name.as_bytes()).await?;
                self.forget(&name);
            }
            (_, Some(moved)) => {
                let new = format!("n{}", self.random.roll(20));
                let fits = match self.known.get(&new) {
                    None => true,
                    Some(ExpectedState::File { .. }) => is_file && new != name,
                    Some(_) => false,
                };
                if fits {
                    self.uncertain.push(new.clone());
                    client.rename(directory, name.as_bytes(), directory, new.as_bytes()).await?;
                    self.forget(&name);
                    self.note(&new, moved);
                }
            }
        }
        Ok(())
    }

    fn note(&mut self, name: &str, known: ExpectedState) {
        self.gone.remove(name);
        self.known.insert(name.into(), known);
    }

    fn forget(&mut self, name: &str) {
        self.known.remove(name);
        self.gone.insert(name.into());
    }

    fn check(&self, point: &Path) -> Result<(), String> {
        let (directory, steps) = (point.join(&self.directory), self.acknowledged);
        if steps == 0 && !directory.exists() {
            return Ok(());
        }
        for (name, known) in self.known.iter().filter(|(name, _)| !self.uncertain.contains(name)) {
            let found = self.found(&directory.join(name));
            if found.as_ref() != Some(known) {
                return Err(format!(
                    "{}/{name} after {steps} steps: {found:?} and not {known:?}",
                    self.directory
                ));
            }
        }
        for name in self.gone.iter().filter(|name| !self.uncertain.contains(name)) {
            if directory.join(name).symlink_metadata().is_ok() {
                return Err(format!(
                    "{}/{name} was removed, and is back after {steps} steps",
                    self.directory
                ));
            }
        }
        if let [old, new] = &self.uncertain[..]
            && let Some(known) = self.known.get(old)
        {
            let either = [old, new].map(|name| self.found(&directory.join(name)));
            if either.iter().all(|found| found.as_ref() != Some(known)) {
                return Err(format!(
                    "{}: {old} or {new}: {either:?} and not {known:?}",
                    self.directory
                ));
            }
        }
        Ok(())
    }

    fn found(&self, path: &Path) -> Option<ExpectedState> {
        let metadata = path.symlink_metadata().ok()?;
        if metadata.is_dir() {
            return Some(ExpectedState::Directory);
        }
        if metadata.is_symlink() {
            return Some(ExpectedState::Link(
                std::fs::read_link(path).ok()?.to_string_lossy().into_owned(),
            ));
        }
        let bytes = std::fs::read(path).ok()?;
        let version = (1..=self.version).rev().find(|&version| bytes == content(version));
        let mut mark = [0; 4];
        let marked = rustix::fs::getxattr(path, "user.mark", &mut mark).is_ok_and(|len| len == 4);
        assert_eq!(metadata.uid(), 0);
        let mode = metadata.permissions().mode() & 0o7777;
        Some(ExpectedState::File {
            content: version,
            mode,
            mark: marked.then(|| u32::from_be_bytes(mark)),
        })
    }
}

async fn lookup(client: &Client, directory: &Filehandle, name: &str) -> Result<Filehandle, Error> {
    let reply = client.compound().putfh(directory).lookup(name.as_bytes()).getfh().send().await?;
    match reply.result_after(&[vouch_nfs4::op::Op::PUTFH, vouch_nfs4::op::Op::LOOKUP])? {
        vouch_nfs4::op::Results::Getfh(Ok(got)) => Ok(got.handle),
        _ => Err(Error::Mismatch("not GETFH's result")),
    }
}

fn content(version: u32) -> Vec<u8> {
    format!("{version:07}\n").into_bytes().into_iter().cycle().take(FILE_LEN).collect()
}
