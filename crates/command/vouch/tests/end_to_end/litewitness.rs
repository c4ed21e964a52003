//! litewitness of filippo.io/torchwood, a witness with a database, as a process.

use crate::prelude::*;

const PROGRAM: &str = "filippo.io/torchwood/cmd/litewitness@v0.10.0";
const CONTROL: &str = "filippo.io/torchwood/cmd/witnessctl@v0.10.0";

/// Installs the pinned programs by the go command. There may be no witnessctl: one of its modules is
/// at a host that proxies of Go may refuse.
pub(crate) fn install(site: &TestSite) {
    let install = |program: &str| {
        let mut go = Command::new("go");
        go.envs([("GOTOOLCHAIN", "go1.27.0"), ("GOWORK", "off")]).env("GOBIN", site.path("bin"));
        let output = go.arg("install").arg(program).output().expect("go runs");
        output.status.success().then_some(()).ok_or(output.stderr)
    };
    install(PROGRAM).unwrap_or_else(|error| panic!("{}", String::from_utf8_lossy(&error)));
    if let Err(error) = install(CONTROL) {
        let error = String::from_utf8_lossy(&error);
        assert_contains!(error, "sigsum.org/sigsum-go");
        println!("without witnessctl: {error}");
    }
}

pub(crate) struct Litewitness {
    /// Key and URL, as in a policy.
    pub(crate) line: String,
    name: String,
    address: String,
    fingerprint: String,
    _agent: KillOnDrop,
    process: Option<KillOnDrop>,
}

impl Litewitness {
    /// A witness of the log of the site's tree.
    pub(crate) fn new(site: &TestSite, name: &str) -> Self {
        let file = |suffix: &str| format!("{name}.{suffix}");
        let run = |program: &Path, args: &[&str]| {
            let mut command = Command::new(program);
            command.args(args).current_dir(site.path(""));
            succeed(command.env("SSH_AUTH_SOCK", site.path(file("sock"))))
        };
        run(Path::new("ssh-keygen"), &["-q", "-t", "ed25519", "-N", "", "-f", &file("key")]);
        let mut agent = Command::new("ssh-agent");
        agent.args(["-D", "-a", &file("sock")]).current_dir(site.path("")).stdout(Stdio::null());
        let agent = KillOnDrop(agent.spawn().expect("ssh-agent starts"));
        within(30, "no agent", || site.path(file("sock")).exists());
        run(Path::new("ssh-add"), &["-q", &file("key")]);
        let listed = run(Path::new("ssh-keygen"), &["-l", "-f", &file("key")]);
        let keys = fs::read_to_string(site.path("keys/log.pub")).expect("keygen writes it");
        let log_key = keys.lines().next().expect("a key");
        let origin = log_key.split('+').next().expect("a name");
        let mut witness = Self {
            line: String::new(),
            name: name.to_owned(),
            address: format!("127.0.0.1:{}", free_port()),
            fingerprint: listed.split(' ').nth(1).expect("a fingerprint").to_owned(),
            _agent: agent,
            process: None,
        };
        witness.start(site);
        let control = site.path("bin/witnessctl");
        if control.exists() {
            run(&control, &["add-log", "-db", &file("db"), "-origin", origin]);
            run(&control, &["add-key", "-db", &file("db"), "-origin", origin, "-key", log_key]);
        } else {
            // As witnessctl does. The hash is that of an empty tree.
            let rows = format!(
                "INSERT INTO log VALUES ('{origin}', 0, '47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=');
                 INSERT INTO key VALUES ('{origin}', '{log_key}');"
            );
            run(Path::new("sqlite3"), &["-cmd", ".timeout 10000", &file("db"), &rows]);
        }
        let log = fs::read_to_string(site.path(file("log"))).expect("its log");
        let (_, rest) = log.split_once("vkey=").expect("its key");
        let key = rest.split_whitespace().next().expect("its key");
        witness.line = format!("{key} http://{}", witness.address);
        witness
    }

    /// Does nothing if it runs.
    pub(crate) fn start(&mut self, site: &TestSite) {
        if self.process.is_some() {
            return;
        }
        let Self { name, address, .. } = self;
        let log = fs::File::create(site.path(format!("{name}.log"))).expect("a file");
        let mut witness = Command::new(site.path("bin/litewitness"));
        witness.args(["-name", &format!("{name}.example"), "-db", &format!("{name}.db")]);
        witness.args(["-key", &self.fingerprint, "-ssh-agent", &format!("{name}.sock")]);
        witness.args(["-listen", address]).current_dir(site.path("")).stderr(log);
        self.process = Some(KillOnDrop(witness.spawn().expect("litewitness starts")));
        within(30, "litewitness does not start", || {
            let log = fs::read_to_string(site.path(format!("{name}.log")));
            log.is_ok_and(|log| log.contains("vkey=")) && TcpStream::connect(&*address).is_ok()
        });
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }
}
