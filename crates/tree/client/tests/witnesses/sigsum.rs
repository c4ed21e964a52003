//! The witness of sigsum-go. It knows one log, whose origin is made of the log's key.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use vouch_log::key::{Algorithm, Signer, VerifierKey};
use vouch_testkit::succeed;

use super::Log;

const PROGRAMS: [&str; 2] = [
    "sigsum.org/sigsum-go/cmd/sigsum-witness@v1.0.0",
    "sigsum.org/sigsum-go/cmd/sigsum-key@v1.0.0",
];

struct SigsumWitness {
    dir: tempfile::TempDir,
    address: String,
    key: VerifierKey,
    log: Signer,
    process: Child,
}

impl Drop for SigsumWitness {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The output of the program, without the newline.
fn run(dir: &Path, args: &[&str], input: &str) -> String {
    let mut command = Command::new(dir.join("sigsum-key"));
    let output = vouch_testkit::output_with(command.args(args).current_dir(dir), input);
    assert!(output.status.success(), "sigsum-key {args:?}");
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

fn bytes_of_hex(text: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hex");
    (0..text.len()).step_by(2).map(byte).collect()
}

fn start(dir: &Path, address: &str) -> Child {
    let mut command = Command::new(dir.join("sigsum-witness"));
    command.args(["-k", "witness", "--log-key", "log.pub", "--state-file", "state", address]);
    let mut child = command.current_dir(dir).stderr(Stdio::piped()).spawn().expect("it starts");
    let begun = Instant::now();
    while TcpStream::connect(address).is_err() {
        if let Some(status) = child.try_wait().expect("a child") {
            let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
            panic!("sigsum-witness ends with {status}: {:?}", lines.next());
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "sigsum-witness does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

impl SigsumWitness {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut go = Command::new("go");
        go.envs([("GOTOOLCHAIN", "go1.27.0"), ("GOWORK", "off")]).env("GOBIN", dir.path());
        succeed(go.arg("install").args(PROGRAMS));

        run(dir.path(), &["generate", "-o", "witness"], "");
        let hash = run(dir.path(), &["to-hash", "-k", "witness.pub"], "");
        let public = bytes_of_hex(&run(dir.path(), &["to-hex", "-k", "witness.pub"], ""));
        let name = format!("sigsum.org/v1/witness/{hash}");
        let key = VerifierKey::new(&name, Algorithm::CosignatureEd25519, &public).expect("a key");

        let seed = [42; 32];
        let public = Signer::from_seed("x", Algorithm::Ed25519, &seed).expect("a key");
        let hex = public.verifier().public_bytes().into_iter().map(|byte| format!("{byte:02x}"));
        run(dir.path(), &["from-hex", "-o", "log.pub"], &hex.collect::<String>());
        let hash = run(dir.path(), &["to-hash", "-k", "log.pub"], "");
        let origin = format!("sigsum.org/v1/tree/{hash}");
        let log = Signer::from_seed(&origin, Algorithm::Ed25519, &seed).expect("a key");

        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        drop(listener);
        let process = start(dir.path(), &address);
        Self { dir, address, key, log, process }
    }

    /// The error, if it does not cosign a log of `size` entries.
    fn ask(&self, size: u64) -> Option<String> {
        let key = self.key.to_text();
        let policy = format!("witness w {key} http://{}\nquorum w\n", self.address);
        let found = Log::signed_by(&self.log, size).ask(&policy, 60_000);
        assert_eq!(found.shortfall.is_some(), !found.failures.is_empty());
        found.failures.first().map(|failure| failure.why.clone())
    }

    fn restart(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        self.process = start(self.dir.path(), &self.address);
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }
}

#[test]
#[ignore = "needs Go"]
fn witness_of_sigsum_cosigns_each_head_that_continues_its_log() {
    let mut witness = SigsumWitness::new();
    // A wrong guess of its size, the next entry, a long proof, and the same head again.
    for size in [5, 6, 700, 700] {
        assert_eq!(witness.ask(size), None, "{size} entries");
    }
    witness.restart();
    assert_eq!(witness.ask(701), None);
    let refused = witness.ask(6).expect("an older head");
    assert!(refused.contains("it has cosigned 701 entries, and this log has 6"), "{refused}");
    // A witness that has lost its state begins anew.
    fs::remove_file(witness.state()).expect("its state");
    witness.restart();
    assert_eq!(witness.ask(701), None);
}
