//! versitygw. Each part is a process, because the environment configures a bucket.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use vouch_log::append::Appender;
use vouch_log::checkpoint::{Checkpoint, SignedCheckpoint};
use vouch_log::evidence::LogEvidence;
use vouch_log::proof::TlogProof;
use vouch_log::revision::{LogCert, LogSigners, origin};
use vouch_tree::key::{SecretKey, SigningCert};
use vouch_tree::{BlockHandle, HostId};
use vouch_tree_store::{
    Database, FrameSink, FrameSource, NewRevision, Pending, Result, WriteOptions, Writer,
    conformance, open_log,
};

const ROLE: &str = "VOUCH_BUCKET_TEST_ROLE";

#[test]
#[ignore = "needs versitygw"]
fn bucket_conforms() {
    let server = Server::start();
    assert!(server.run("conformance", "a"));
}

#[test]
#[ignore = "needs versitygw"]
fn writer_without_its_lock_cannot_commit_over_another() {
    let server = Server::start();
    assert!(server.run("create", "a"));
    let mut first = server.command("commit-late", "a").spawn().unwrap();
    // Before that, the writer still writes its lock to try the server's conditions.
    wait_for(|| server.dir.path().join("opened").exists());
    std::fs::remove_file(server.dir.path().join("objects/bucket/db/lock")).unwrap();
    assert!(server.run("commit", "b"));
    std::fs::write(server.dir.path().join("go"), "").unwrap();
    assert!(first.wait().unwrap().success(), "the first writer is refused");
    assert!(server.run("has-statement-of-b", "c"));
}

#[test]
#[ignore = "needs versitygw"]
fn leftovers_of_another_machine_are_not_overwritten() {
    let server = Server::start();
    assert!(server.run("create", "a"));
    let mut killed = server.command("upload-and-wait", "a").spawn().unwrap();
    let packs = server.dir.path().join("objects/bucket/db/packs");
    wait_for(|| std::fs::read_dir(&packs).is_ok_and(|entries| entries.count() > 2));
    killed.kill().unwrap();
    killed.wait().unwrap();
    // The lock would expire in two minutes.
    std::fs::write(server.dir.path().join("objects/bucket/db/lock"), "left x 0\n").unwrap();
    let before = lens(&packs);
    assert!(server.run("commit-frames", "b"));
    let after = lens(&packs);
    assert!(
        before.iter().all(|pack| after.contains(pack)) && after.len() > before.len(),
        "{before:?} {after:?}"
    );
}

#[test]
#[ignore = "needs versitygw"]
fn writer_without_its_lock_shows_no_head_of_the_log() {
    let server = Server::start();
    assert!(server.run("create", "a"));
    let mut first = server.command("log-late", "a").spawn().unwrap();
    wait_for(|| server.dir.path().join("opened").exists());
    std::fs::remove_file(server.dir.path().join("objects/bucket/db/lock")).unwrap();
    assert!(server.run("log-of-b", "b"));
    let log = server.dir.path().join("objects/bucket/db/log");
    let files = || {
        ["checkpoint", "tile/0/000.p/1", "tile/entries/000.p/1"]
            .map(|name| std::fs::read(log.join(name)).unwrap())
    };
    let of_b = files();
    std::fs::write(server.dir.path().join("go"), "").unwrap();
    assert!(first.wait().unwrap().success(), "the first writer is refused");
    assert!(files() == of_b, "files of the log are those of b");
}

#[test]
#[ignore = "needs versitygw"]
fn pending_revision_of_a_killed_machine_is_settled_by_another() {
    let server = Server::start();
    assert!(server.run("create", "a"));
    let mut killed = server.command("hold-and-wait", "a").spawn().unwrap();
    wait_for(|| server.dir.path().join("opened").exists());
    killed.kill().unwrap();
    killed.wait().unwrap();
    std::fs::write(server.dir.path().join("objects/bucket/db/lock"), "left x 0\n").unwrap();
    assert!(server.run("settle", "b"));
    assert!(server.run("log-after", "c"));
}

/// As s3rver 3.7.1 and nanio 0.1.7: each `PutObject` succeeds whatever its condition.
#[test]
fn server_that_ignores_conditions_is_refused_before_a_write() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let dir = tempfile::tempdir().unwrap();
    let mut command = command(dir.path(), port, "create-refused", "a");
    let mut child = command.spawn().unwrap();
    let (heads, received) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let head = answer_without_conditions(stream.unwrap());
            heads.send(head).unwrap();
        }
    });
    assert!(child.wait().unwrap().success());
    let writes: Vec<_> = received.try_iter().filter(|head| !head.starts_with("GET ")).collect();
    assert!(writes.iter().all(|head| head.contains(" /bucket/db/lock")), "{writes:?}");
    assert!(
        writes.last().unwrap().starts_with("DELETE "),
        "no lock is left, without DeleteObjects: {writes:?}"
    );
}

fn faults_at(port: u16, dir: &Path) -> String {
    assert!(command(dir, port, "check-fitness", "a").status().unwrap().success());
    std::fs::read_to_string(dir.join("faults")).unwrap()
}

#[test]
#[ignore = "needs versitygw"]
fn race_of_writers_finds_no_fault_in_fit_server() {
    let server = Server::start();
    assert_eq!(faults_at(server.port, server.dir.path()), "");
    let left: Vec<_> = std::fs::read_dir(server.dir.path().join("objects/bucket/db"))
        .into_iter()
        .flatten()
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn race_of_writers_tells_fit_servers_from_unfit_ones() {
    for (conditions, words) in [
        (Conditions::Atomic, &[][..]),
        (Conditions::OneAfterAnother, &["with If-Match, several are told"]),
        (
            Conditions::Ignored,
            &["with If-None-Match: *, several", "although its If-Match is false (in 10 of 10"],
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let store = FakeStore::start(conditions);
        let faults = faults_at(store.port, dir.path());
        assert!(
            words.iter().all(|words| faults.contains(words))
                && faults.is_empty() == words.is_empty(),
            "{conditions:?}: {faults}"
        );
        assert!(store.objects.lock().unwrap().is_empty(), "{conditions:?}");
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Conditions {
    Atomic,
    OneAfterAnother,
    Ignored,
}

/// By name: the entity tag and the content.
type Objects = HashMap<String, (String, Vec<u8>)>;

struct FakeStore {
    port: u16,
    objects: Arc<Mutex<Objects>>,
}

impl FakeStore {
    fn start(conditions: Conditions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let store = Self { port: listener.local_addr().unwrap().port(), objects: Arc::default() };
        let objects = Arc::clone(&store.objects);
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let objects = Arc::clone(&objects);
                std::thread::spawn(move || {
                    answer_with(&objects, conditions, number, stream.unwrap())
                });
            }
        });
        store
    }
}

fn answer_with(
    objects: &Mutex<Objects>,
    conditions: Conditions,
    number: usize,
    mut stream: TcpStream,
) {
    let Request { line, fields, body } = read_request(&stream);
    let mut words = line.split([' ', '?']);
    let (method, key) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let field = |name: &str| fields.iter().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let (mut held, tag) = (objects.lock().unwrap(), format!("\"{number}\""));
    let (status, tag, body) = match method {
        "PUT" => {
            let found = held.get(key).map(|(tag, _)| tag.clone());
            let is_false = (field("if-none-match:").is_some() && found.is_some())
                || field("if-match:").is_some_and(|tag| found.as_deref() != Some(tag));
            if conditions == Conditions::OneAfterAnother && !is_false {
                drop(held);
                std::thread::sleep(Duration::from_millis(20));
                held = objects.lock().unwrap();
            }
            if is_false && conditions != Conditions::Ignored {
                ("412 Precondition Failed", tag, Vec::new())
            } else {
                held.insert(key.to_owned(), (tag.clone(), body));
                ("200 OK", tag, Vec::new())
            }
        }
        "GET" => match held.get(key) {
            Some((tag, bytes)) => ("200 OK", tag.clone(), bytes.clone()),
            None => ("404 Not Found", tag, Vec::new()),
        },
        "DELETE" => {
            held.remove(key);
            ("204 No Content", tag, Vec::new())
        }
        _ => ("501 Not Implemented", tag, Vec::new()),
    };
    let date = "Last-Modified: Sat, 28 Nov 2026 15:00:00 GMT";
    write!(stream, "HTTP/1.1 {status}\r\nETag: {tag}\r\n{date}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len()).unwrap();
    stream.write_all(&body).unwrap();
}

struct Request {
    line: String,
    /// In lower case.
    fields: Vec<String>,
    body: Vec<u8>,
}

fn read_request(stream: &TcpStream) -> Request {
    let mut input = BufReader::new(stream.try_clone().unwrap());
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        input.read_line(&mut line).unwrap();
        if line.trim_end().is_empty() {
            break;
        }
        lines.push(line.trim_end().to_owned());
    }
    let line = if lines.is_empty() { String::new() } else { lines.remove(0) };
    let fields: Vec<_> = lines.iter().map(|line| line.to_ascii_lowercase()).collect();
    let len =
        fields.iter().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; len.unwrap_or(0)];
    input.read_exact(&mut body).unwrap();
    Request { line, fields, body }
}

/// Returns the request line.
fn answer_without_conditions(mut stream: TcpStream) -> String {
    let head = read_request(&stream).line;
    let empty = "<ListBucketResult><Name>bucket</Name><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>";
    let (status, body) = match head.split(' ').next() {
        Some("PUT") => ("200 OK", ""),
        Some("DELETE") => ("204 No Content", ""),
        Some("GET") if head.contains("list-type") => ("200 OK", empty),
        _ => ("404 Not Found", ""),
    };
    let len = body.len();
    write!(stream, "HTTP/1.1 {status}\r\nETag: \"x\"\r\nConnection: close\r\nContent-Length: {len}\r\n\r\n{body}").unwrap();
    head
}

fn lens(packs: &Path) -> Vec<(String, u64)> {
    let entries = std::fs::read_dir(packs).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len()))
        .collect()
}

#[test]
fn child_with_a_bucket() {
    let Some(role) = std::env::var_os(ROLE) else { return };
    vouch_tree_bucket::register();
    let db = Path::new("s3://bucket/db");
    let statement = |text: &str| vec![text.as_bytes().to_vec()];
    let open = || {
        Database::open_write(db, WriteOptions { pack_len: Some(50_000), ..WriteOptions::default() })
    };
    match role.to_str().unwrap() {
        "conformance" => {
            conformance::check(|| Packs::new(WriteOptions::default()));
            conformance::check(|| {
                Packs::new(WriteOptions {
                    pack_len: Some(200_000),
                    fresh_count_max: 3,
                    ..WriteOptions::default()
                })
            });
        }
        "create" => Database::create(db, HostId::from_bytes([1; 32]), conformance::IV).unwrap(),
        "create-refused" => {
            let error = Database::create(db, HostId::from_bytes([1; 32]), conformance::IV)
                .unwrap_err()
                .to_string();
            assert!(error.contains("ignores the condition If-None-Match: *"), "{error}");
        }
        "log-of-b" => {
            let writer = open().unwrap();
            writer.commit_pending(logged(&writer, 1, "b").unwrap()).unwrap();
        }
        "log-late" => {
            let writer = open().unwrap();
            let home = PathBuf::from(std::env::var_os("HOME").unwrap());
            std::fs::write(home.join("opened"), "").unwrap();
            wait_for(|| home.join("go").exists());
            let error = logged(&writer, 1, "a").unwrap_err();
            assert!(error.to_string().contains("taken the lock"), "{error}");
            drop(writer);
            let writer = open().unwrap();
            assert!(writer.evidence().unwrap().is_some() && writer.pending().unwrap().is_none());
        }
        "hold-and-wait" => {
            let writer = open().unwrap();
            writer.hold(&logged(&writer, 1, "a").unwrap()).unwrap();
            let home = PathBuf::from(std::env::var_os("HOME").unwrap());
            std::fs::write(home.join("opened"), "").unwrap();
            std::thread::sleep(Duration::from_secs(60));
        }
        "settle" => {
            let writer = open().unwrap();
            assert!(writer.evidence().unwrap().is_none());
            let pending = writer.pending().unwrap().expect("the machine was killed");
            assert_eq!(pending.revision.signed, b"a");
            writer.commit_pending(pending).unwrap();
            assert!(writer.pending().unwrap().is_none());
        }
        "log-after" => {
            let writer = open().unwrap();
            let second = logged(&writer, 2, "c").unwrap();
            writer.hold(&second).unwrap();
            assert!(writer.pending().unwrap().is_some(), "an old object is replaced");
            writer.commit_pending(second).unwrap();
            let checkpoint = writer.evidence().unwrap().unwrap().proof.checkpoint;
            let mut log = open_log(writer.log_files(), &checkpoint).unwrap();
            assert_eq!(log.bundle(0).unwrap().1, [b"a".to_vec(), b"c".to_vec()]);
        }
        "commit" => open().unwrap().set_statements(statement("b")).unwrap(),
        "commit-late" => {
            let writer = open().unwrap();
            let home = PathBuf::from(std::env::var_os("HOME").unwrap());
            std::fs::write(home.join("opened"), "").unwrap();
            wait_for(|| home.join("go").exists());
            let error = writer.set_statements(statement("a")).unwrap_err();
            assert!(
                error.is_busy() && error.to_string().contains("another writer has committed"),
                "{error}"
            );
        }
        "has-statement-of-b" => {
            assert_eq!(Database::open_read(db).unwrap().statements(), statement("b"))
        }
        "upload-and-wait" => {
            put_some(&open().unwrap(), 0..60);
            std::thread::sleep(Duration::from_secs(60));
        }
        "commit-frames" => {
            let writer = open().unwrap();
            put_some(&writer, 1000..1060);
            writer.checkpoint().unwrap();
            drop(writer);
            let verified = Database::verify(db, None).unwrap();
            assert!(verified.is_sound() && verified.frames == 60, "{verified:?}");
        }
        "check-fitness" => {
            let fitness = vouch_tree_bucket::check_fitness("s3://bucket/db").unwrap();
            std::fs::write(
                PathBuf::from(std::env::var_os("HOME").unwrap()).join("faults"),
                fitness.faults.join("\n"),
            )
            .unwrap();
        }
        role => panic!("no role {role}"),
    }
}

/// Appends an entry to the log, and returns the revision to commit.
fn logged(writer: &Writer, number: u64, entry: &str) -> Result<Pending> {
    let root = SecretKey::from_seed(&[3; 32]);
    let hostid = root.public().hostid();
    let signers = LogSigners::from_seeds(&hostid, &[5; 32], None).unwrap();
    let mut tree = match writer.evidence()? {
        None => Appender::new(),
        Some(before) => {
            let mut log = open_log(writer.log_files(), &before.proof.checkpoint).unwrap();
            Appender::open(&mut log).unwrap()
        }
    };
    tree.push(entry.as_bytes()).unwrap();
    let head = Checkpoint::new(&origin(&hostid), tree.size(), tree.root());
    for file in tree.finish() {
        writer.put_log_file(&file)?;
    }
    let mut checkpoint = SignedCheckpoint::unsigned(&head).unwrap();
    for signer in signers.all() {
        checkpoint.note_mut().sign(signer, 1000).unwrap();
    }
    let hashes =
        open_log(writer.log_files(), &checkpoint).unwrap().inclusion_proof(head.size - 1).unwrap();
    let proof = TlogProof { extra: None, index: head.size - 1, hashes, checkpoint };
    let signing = SigningCert::issue(&root, root.public(), 1, 0, u64::MAX);
    let (cert, _) = LogCert::issue(&root, signing, hostid, signers.keys(), None);
    let (fsinfo, frame) = conformance::frame(vouch_tree::FrameKind::Fsinfo, number, 500);
    writer.put(&fsinfo, &frame)?;
    let revision = NewRevision {
        number,
        start: 1000,
        fsinfo,
        signed: entry.into(),
        tag: None,
        companions: Vec::new(),
        keep: None,
        supersedes: false,
        evidence: Some(Box::new(LogEvidence { cert, proof })),
    };
    Ok(Pending { revision, earlier: None })
}

fn put_some(writer: &Writer, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let (handle, frame) = conformance::frame(vouch_tree::FrameKind::Leaf, seed, 5000);
        writer.put(&handle, &frame).unwrap();
    }
}

struct Packs(Writer);

impl Packs {
    fn new(options: WriteOptions) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let db = PathBuf::from(format!(
            "s3://bucket/conformance/{}",
            COUNT.fetch_add(1, Ordering::Relaxed)
        ));
        Database::create(&db, HostId::from_bytes([1; 32]), conformance::IV).unwrap();
        Self(Database::open_write(&db, options).unwrap())
    }
}

impl FrameSource for Packs {
    fn get(&self, handle: &BlockHandle) -> Result<Option<Vec<u8>>> {
        self.0.checkpoint()?;
        self.0.get(handle)
    }
}

impl FrameSink for Packs {
    fn contains(&self, handle: &BlockHandle) -> Result<bool> {
        self.0.contains(handle)
    }

    fn put(&self, handle: &BlockHandle, frame: &[u8]) -> Result<bool> {
        self.0.put(handle, frame)
    }
}

fn wait_for(condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(60), "no event within a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
}

struct Server {
    process: Child,
    port: u16,
    dir: tempfile::TempDir,
}

impl Server {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("objects/bucket")).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("versitygw");
        command.env("ROOT_ACCESS_KEY", "key").env("ROOT_SECRET_KEY", "secret");
        command
            .args(["--port", &format!("127.0.0.1:{port}"), "--keep-alive", "--quiet", "posix"])
            .arg(dir.path().join("objects"));
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_for(|| TcpStream::connect(("127.0.0.1", port)).is_ok());
        Self { process, port, dir }
    }

    fn command(&self, role: &str, machine: &str) -> Command {
        command(self.dir.path(), self.port, role, machine)
    }

    fn run(&self, role: &str, machine: &str) -> bool {
        self.command(role, machine).status().unwrap().success()
    }
}

fn command(home: &Path, port: u16, role: &str, machine: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "child_with_a_bucket", "--nocapture"])
        .env(ROLE, role)
        .env("HOME", home);
    command
        .env("VOUCH_BUCKET_DIR", home.join(machine))
        .env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}"));
    command
        .env("AWS_ACCESS_KEY_ID", "key")
        .env("AWS_SECRET_ACCESS_KEY", "secret")
        .stdout(Stdio::null());
    command
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
