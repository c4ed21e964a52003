//! A directory, a tree's keys and database, and replicas that end with it.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use vouch_nfs4::Verifier;
use vouch_nfs4_client::{Client, Config, Error, Identity, Plain};
use vouch_oncrpc::AuthSys;

pub(crate) use vouch_testkit::kill_on_drop::KillOnDrop;
pub(crate) use vouch_testkit::{eventually, free_port, within};
use vouch_testkit::{succeed, text_of};

/// Arguments of a command: a list, or a line of words without blanks.
pub(crate) trait Args {
    fn list(self) -> Vec<OsString>;
}

impl Args for &str {
    fn list(self) -> Vec<OsString> {
        self.split_whitespace().map(OsString::from).collect()
    }
}

impl Args for &String {
    fn list(self) -> Vec<OsString> {
        self.as_str().list()
    }
}

macro_rules! lists {
    ($($list:ty $(, const $len:ident)?;)*) => { $(
        impl<S: AsRef<OsStr> $(, const $len: usize)?> Args for $list {
            fn list(self) -> Vec<OsString> {
                self.iter().map(|arg| arg.as_ref().to_owned()).collect()
            }
        }
    )* };
}

lists! { [S; N], const N; &[S; N], const N; &[S]; Vec<S>; &Vec<S>; }

pub(crate) struct TestSite {
    dir: TempDir,
    pub(crate) port: u16,
    pub(crate) environment: Vec<(&'static str, String)>,
}

impl TestSite {
    pub(crate) fn new() -> TestSite {
        let site = TestSite {
            dir: tempfile::tempdir().expect("a temporary directory"),
            port: free_port(),
            environment: Vec::new(),
        };
        site.run_ok(["keygen", "--out", "keys"]);
        site
    }

    pub(crate) fn with_directories(names: &[&str]) -> TestSite {
        let site = TestSite::new();
        names.iter().for_each(|name| std::fs::create_dir(site.path(name)).expect("a directory"));
        site
    }

    /// Of heads, which do not create it.
    pub(crate) fn state_directory(&self, name: &str) {
        std::fs::DirBuilder::new().mode(0o700).create(self.path(name)).expect("a directory");
    }

    pub(crate) fn published() -> TestSite {
        let site = TestSite::new();
        site.small_tree();
        site.publish();
        site
    }

    pub(crate) fn served() -> (TestSite, Replica) {
        let site = TestSite::published();
        let replica = site.serve();
        (site, replica)
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a name within the site"))
            .expect("directories");
        std::fs::write(path, content).expect("a file");
    }

    /// Old modification times, so that the next publication takes files as unchanged.
    pub(crate) fn small_tree(&self) {
        self.write("src/hello", "hello world\n");
        self.write("src/dir/numbers", (0..50_000u32).map(|n| format!("{n}\n")).collect::<String>());
        self.write("src/dir/empty", "");
        std::os::unix::fs::symlink("dir/numbers", self.path("src/link")).expect("a link");
        for name in ["src/hello", "src/dir/numbers", "src/dir/empty"] {
            let file = std::fs::File::options()
                .write(true)
                .open(self.path(name))
                .expect("the file just written");
            file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000))
                .expect("its own time");
        }
    }

    pub(crate) fn publish(&self) -> serde_json::Value {
        self.publish_with(&[])
    }

    pub(crate) fn publish_with(&self, more: &[&str]) -> serde_json::Value {
        let line = self.publication();
        let args: Vec<&str> =
            line.split(' ').chain(["--json"]).chain(more.iter().copied()).collect();
        serde_json::from_str(&self.run_ok(args)).expect("JSON")
    }

    /// The command line that publishes the tree.
    pub(crate) fn publication(&self) -> String {
        format!("publish src --db db --keys keys --location {}", self.location())
    }

    pub(crate) fn location(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn name(&self, path: &str) -> String {
        let name = self.run_ok(&format!("name keys --location {}", self.location()));
        format!("{}{path}", name.trim())
    }

    pub(crate) fn serve(&self) -> Replica {
        self.serve_db("db", self.port)
    }

    pub(crate) fn serve_db(&self, db: &str, port: u16) -> Replica {
        self.serve_with(db, port, &[])
    }

    pub(crate) fn serve_with(&self, db: &str, port: u16, more: &[&str]) -> Replica {
        let listen = format!("127.0.0.1:{port}");
        Replica::start(
            self.command(
                [&["serve", "--db", db, "--listen", &listen, "--metrics", "127.0.0.1:0"], more]
                    .concat(),
            ),
        )
    }

    pub(crate) fn json(&self, file: &str) -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(self.path(file)).expect("a file")).expect("JSON")
    }

    pub(crate) fn count(&self, directory: &str) -> usize {
        std::fs::read_dir(self.path(directory)).expect("a directory").count()
    }

    pub(crate) fn command(&self, args: impl Args) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vouch"));
        command.args(args.list()).current_dir(self.dir.path()).stdin(Stdio::null());
        command.env_remove("VOUCH_LOG").env_remove("VOUCH_PASSPHRASE_FILE");
        command
            .env("HOME", self.dir.path())
            .env("VOUCH_STATE", self.path("state"))
            .env("VOUCH_CACHE", self.path("cache"));
        command.env("VOUCH_CONFIG", "/dev/null");
        command.envs(self.environment.iter().map(|(name, value)| (*name, value)));
        command
    }

    pub(crate) fn run(&self, args: impl Args) -> Output {
        self.command(args).output().expect("the binary starts")
    }

    pub(crate) fn run_tool(&self, tool: &str, args: &[&str]) {
        succeed(Command::new(tool).args(args).current_dir(self.dir.path()));
    }

    pub(crate) fn seen_revision(&self) -> u64 {
        let files = std::fs::read_dir(self.path("state"))
            .into_iter()
            .flatten()
            .map(|entry| entry.expect("a directory").path());
        let record = files.into_iter().find(|path| path.extension().is_none());
        record.map_or(0, |path| {
            let bytes = std::fs::read(path).expect("a record");
            u64::from_be_bytes(bytes[12..20].try_into().expect("eight bytes"))
        })
    }

    pub(crate) fn run_ok(&self, args: impl Args) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{:?}: {}", output.status, text_of(&output));
        String::from_utf8(output.stdout).expect("text")
    }

    /// Fails with this exit code and one line, which is returned.
    pub(crate) fn run_err(&self, code: i32, args: impl Args) -> String {
        let output = self.run(args);
        let output_text = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(code), "{output_text}");
        let lines: Vec<_> =
            output_text.lines().filter(|line| line.starts_with("vouch: ")).collect();
        assert_eq!(lines.len(), 1, "not one line: {output_text}");
        lines[0].to_owned()
    }

    /// Fails with this exit code and one line, which has all the parts.
    pub(crate) fn expect_err(&self, code: i32, args: impl Args, parts: &[&str]) {
        let line = self.run_err(code, args);
        parts.iter().for_each(|part| assert!(line.contains(part), "{part:?} is missing: {line}"));
    }

    pub(crate) fn script(&self, name: &str, args: impl Args) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../script").join(name);
        Command::new(script)
            .args(args.list())
            .current_dir(self.dir.path())
            .output()
            .expect("script/ is in the repository")
    }

    pub(crate) fn assert_same(&self, a: &str, b: &str, more: &[&str]) {
        let output = self.script("compare-trees", [&[a, b], more].concat());
        let output_text = [output.stdout, output.stderr].concat();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output_text[..output_text.len().min(4000)])
        );
    }
}

pub(crate) fn start_listener(command: &mut Command) -> (KillOnDrop, String, String) {
    let (child, line) = start(command);
    assert!(line.starts_with("serving on "), "{line:?}");
    let address =
        line["serving on ".len()..].split([',', '\n']).next().expect("an address").to_owned();
    let page = line
        .split("http://")
        .nth(1)
        .and_then(|rest| rest.split('/').next())
        .unwrap_or_default()
        .to_owned();
    (child, address, page)
}

pub(crate) fn start(command: &mut Command) -> (KillOnDrop, String) {
    let mut child = KillOnDrop(command.stdout(Stdio::piped()).spawn().expect("the binary starts"));
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped"))
        .read_line(&mut line)
        .expect("a line of UTF-8");
    (child, line)
}

pub(crate) struct Export {
    pub(crate) child: KillOnDrop,
    pub(crate) address: SocketAddr,
}

impl Export {
    pub(crate) fn start(site: &TestSite, args: &[&str]) -> Export {
        Export::start_with_lease(site, "5", args)
    }

    pub(crate) fn start_with_lease(site: &TestSite, seconds: &str, args: &[&str]) -> Export {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let listen = address.to_string();
        let fixed = ["export", "--state", "exporting", "--lease", seconds, "--listen", &listen];
        Export::spawn(&mut site.command([&fixed, args].concat()), address)
    }

    pub(crate) fn spawn(command: &mut Command, address: SocketAddr) -> Export {
        let child = KillOnDrop(command.stdout(Stdio::null()).spawn().expect("the binary starts"));
        let started =
            eventually(Duration::from_secs(60), || std::net::TcpStream::connect(address).is_ok());
        assert!(started, "the export does not start");
        Export { child, address }
    }

    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        self.child.try_wait().expect("a child").and_then(|status| status.code())
    }

    pub(crate) fn terminate(&mut self) {
        signal("TERM", self.child.id());
        assert!(
            eventually(Duration::from_secs(120), || self.exit_code() == Some(0)),
            "the export does not exit with 0"
        );
    }
}

pub(crate) async fn connect(
    address: SocketAddr,
    minor: u32,
    name: &str,
    uid: u32,
) -> Result<Client, Error> {
    let user = AuthSys { uid, gid: uid, ..AuthSys::default() };
    let identity = Identity::new(name.as_bytes().to_vec(), Verifier([7; 8]));
    Client::connect(Config::new(address, minor, identity, Plain::sys(&user))).await
}

pub(crate) struct Replica {
    child: KillOnDrop,
    pub(crate) address: String,
    pub(crate) page: String,
}

impl Replica {
    pub(crate) fn start(mut command: Command) -> Replica {
        let (child, address, page) = start_listener(&mut command);
        Replica { child, address, page }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address
            .rsplit(':')
            .next()
            .and_then(|port| port.parse().ok())
            .expect("an address with a port")
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) struct Mounted {
    pub(crate) mount: Mount,
    pub(crate) replica: Replica,
    pub(crate) site: TestSite,
}

impl Mounted {
    pub(crate) fn new(mount_args: &[&str]) -> Mounted {
        Mounted::with_tree(mount_args, &[], TestSite::small_tree)
    }

    pub(crate) fn with_tree(
        mount_args: &[&str],
        publish_args: &[&str],
        make: impl FnOnce(&TestSite),
    ) -> Mounted {
        let site = TestSite::new();
        make(&site);
        site.publish_with(publish_args);
        let replica = site.serve();
        let mount = Mount::new(&site, "mnt", &[mount_args, &[&site.name("")]].concat());
        Mounted { mount, replica, site }
    }
}

pub(crate) struct Mount {
    child: Child,
    point: PathBuf,
}

impl Mount {
    pub(crate) fn new(site: &TestSite, point: &str, args: &[&str]) -> Mount {
        Mount::with("mount", site, point, args)
    }

    pub(crate) fn with(command: &str, site: &TestSite, point: &str, args: &[&str]) -> Mount {
        let point = site.path(point);
        let made = std::fs::create_dir_all(&point);
        assert!(
            made.as_ref()
                .err()
                .is_none_or(|error| error.kind() == std::io::ErrorKind::AlreadyExists),
            "{made:?}"
        );
        let mut command = site.command([&[command], args].concat());
        // A process group of its own, so that Ctrl-C reaches only the test.
        let mut child = command
            .arg(&point)
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("the binary starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        assert!(line.starts_with("mounted on "), "mount printed {line:?}");
        Mount { child, point }
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.point.join(name)
    }

    pub(crate) fn terminate(mut self) -> Option<i32> {
        signal("TERM", self.child.id());
        self.child.wait().expect("a child").code()
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(name, self.child.id());
    }

    pub(crate) fn worker(&self) -> Option<u32> {
        let pid = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        children.split_whitespace().next_back()?.parse().ok()
    }

    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        self.child.try_wait().expect("a child").and_then(|status| status.code())
    }

    pub(crate) fn kill(mut self) {
        let worker = self.worker();
        self.child.kill().expect("the process runs");
        self.child.wait().expect("a child");
        // The last thread releases the worker's file locks.
        let runs = |pid: u32| {
            let is_zombie = |stat: String| stat.contains(") Z ");
            std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !is_zombie(stat))
                || std::fs::read_dir(format!("/proc/{pid}/task"))
                    .is_ok_and(|threads| threads.count() > 1)
        };
        assert!(
            eventually(Duration::from_secs(10), || worker.is_none_or(|pid| !runs(pid))),
            "the worker outlives its supervisor"
        );
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let ended = matches!(self.child.try_wait(), Ok(Some(_)));
        if !ended {
            signal("TERM", self.child.id());
            if !eventually(Duration::from_secs(10), || matches!(self.child.try_wait(), Ok(Some(_))))
            {
                let _ = self.child.kill();
                let _ = self.child.wait();
                let _ = Command::new("fusermount3").args(["-u", "-z"]).arg(&self.point).status();
            }
        }
    }
}

pub(crate) fn signal(name: &str, pid: u32) {
    let _ = Command::new("kill").arg(format!("-{name}")).arg(pid.to_string()).status();
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
