//! Logs of ours read by Go's torchwood and Tessera's fsck, and logs of Tessera read by ours. Sizes and
//! entries are seeded: `VOUCH_LOG_SEED`.

use std::path::Path;
use std::process::Command;

use vouch_log::append::Appender;
use vouch_log::checkpoint::{Checkpoint, SignedCheckpoint};
use vouch_log::key::{Algorithm, Signer};
use vouch_log::merkle::{Hash, verify_consistency};
use vouch_log::policy::Policy;
use vouch_log::proof::TlogProof;
use vouch_log::reader::{LogReader, TileSource};
use vouch_testkit::{SplitMix64, succeed};

use crate::{Files, entry};

const NOW: u64 = 1_800_000_000;

struct Directory<'a>(&'a Path);

impl TileSource for Directory<'_> {
    fn read(&self, path: &str, len_max: usize) -> std::io::Result<Vec<u8>> {
        let bytes = std::fs::read(self.0.join(path))?;
        assert!(bytes.len() <= len_max);
        Ok(bytes)
    }
}

/// The files in memory, and those of the directory beside them.
struct Both<'a>(&'a Files, Directory<'a>);

impl TileSource for Both<'_> {
    fn read(&self, path: &str, len_max: usize) -> std::io::Result<Vec<u8>> {
        self.0.read(path, len_max).or_else(|_| self.1.read(path, len_max))
    }
}

/// Builds the peer in `directory` by the go command, which fetches pinned modules.
fn build_peer(directory: &Path) {
    std::fs::write(directory.join("main.go"), include_str!("../go/main.go")).unwrap();
    let modules = [
        "filippo.io/torchwood@v0.10.0",
        "github.com/transparency-dev/tessera@v1.0.4",
        "github.com/transparency-dev/formats@v0.1.1",
    ];
    let go = |arguments: &[&str]| {
        let mut command = Command::new("go");
        // crypto/mldsa came with Go 1.27.
        command.envs([("GOTOOLCHAIN", "go1.27.0"), ("GOFLAGS", "-mod=mod"), ("GOWORK", "off")]);
        succeed(command.current_dir(directory).args(arguments));
    };
    go(&["mod", "init", "peer"]);
    go(&[&["get"][..], &modules].concat());
    go(&["build", "-o", "peer", "."]);
}

fn run_peer(directory: &Path, mode: &str, log: &str, more: &[u64]) -> String {
    let mut command = Command::new(directory.join("peer"));
    command.arg(mode).arg(directory.join(log)).args(more.iter().map(u64::to_string));
    succeed(&mut command)
}

/// As Go prints a list of hashes.
fn proof_line(old: u64, proof: &[Hash]) -> String {
    let hashes: Vec<_> = proof.iter().map(|hash| hash.to_base64()).collect();
    format!("consistency {old} [{}]\n", hashes.join(" "))
}

/// Entries to prove: at the edges of tiles, and seeded ones. The peer reads them from a file.
fn write_indexes(directory: &Path, name: &str, size: u64, random: &mut SplitMix64) -> Vec<u64> {
    let edges = [0, 1, 254, 255, 256, 257, size - 1];
    let mut all: Vec<_> = edges.into_iter().filter(|&index| index < size).collect();
    all.extend((0..6).map(|_| random.roll(size)));
    let text: String = all.iter().map(|index| format!("{index}\n")).collect();
    std::fs::write(directory.join(format!("{name}.indexes")), text).unwrap();
    all
}

/// Writes a log in two steps, with a policy, keys and proofs, and returns what Go should print.
fn write_ours(directory: &Path, name: &str, size: u64, random: &mut SplitMix64) -> String {
    let root = directory.join(name);
    let mut tree = Appender::new();
    for step in [random.roll(size), size] {
        while tree.size() < step {
            tree.push(&entry(tree.size())).unwrap();
        }
        let (size, hash) = (tree.size(), tree.root());
        for file in tree.finish() {
            let path = root.join(file.id.path());
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, file.bytes).unwrap();
        }
        let mut reader = LogReader::open(Directory(&root), size, hash).unwrap();
        tree = Appender::open(&mut reader).unwrap();
    }
    let origin = format!("ours.example/{name}");
    let signer =
        |name: &str, algorithm, seed| Signer::from_seed(name, algorithm, &[seed; 32]).unwrap();
    let log = signer(&origin, Algorithm::Ed25519, 1);
    let signers = [
        signer(&origin, Algorithm::CosignatureMlDsa44, 2),
        signer("w0.example/a", Algorithm::CosignatureEd25519, 3),
        signer("w1.example/b", Algorithm::CosignatureMlDsa44, 4),
    ];
    let mut checkpoint =
        SignedCheckpoint::unsigned(&Checkpoint::new(&origin, size, tree.root())).unwrap();
    for signer in [&log].into_iter().chain(&signers) {
        checkpoint.note_mut().sign(signer, NOW).unwrap();
    }
    let write = |suffix: &str, text: &str| {
        std::fs::write(directory.join(format!("{name}{suffix}")), text).unwrap();
    };
    let key = |signer: &Signer| signer.verifier().to_text();
    write(".key", &key(&log));
    let policy = format!(
        "log {}\nwitness l {}\nwitness a {}\nwitness b {}\ngroup g all l a b\nquorum g\n",
        key(&log),
        key(&signers[0]),
        key(&signers[1]),
        key(&signers[2]),
    );
    write(".policy", &policy);
    write(".checkpoint", &checkpoint.to_text());
    std::fs::write(root.join("checkpoint"), checkpoint.to_text()).unwrap();
    let mut reader = LogReader::open(Directory(&root), size, tree.root()).unwrap();
    let mut expected = String::new();
    for index in write_indexes(directory, name, size, random) {
        let hashes = reader.inclusion_proof(index).unwrap();
        let proof = TlogProof { extra: None, index, hashes, checkpoint: checkpoint.clone() };
        write(&format!(".{index}.tlog-proof"), &proof.to_text());
        expected += &proof_line(index + 1, &reader.consistency_proof(index + 1).unwrap());
    }
    expected
}

#[test]
#[ignore = "needs Go"]
fn logs_of_ours_and_of_go_are_read_by_each_other() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path();
    build_peer(directory);
    let seed = std::env::var("VOUCH_LOG_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or(37);
    let mut random = SplitMix64(seed);
    let seeded: Vec<_> = (0..8).map(|_| 1 + random.roll(3000)).collect();
    for size in [1, 256, 66_000].into_iter().chain(seeded) {
        let name = &format!("log{size}");
        let expected = write_ours(directory, name, size, &mut random);
        let found = run_peer(directory, "check", name, &[]);
        assert_eq!(found, expected, "seed {seed}, {size} entries");
    }

    let old_size = 1 + random.roll(600);
    let size = old_size + 1 + random.roll(900);
    let indexes = write_indexes(directory, "theirs", size, &mut random);
    let printed = run_peer(directory, "make", "theirs", &[old_size, size]);
    let read = |suffix: &str| std::fs::read(directory.join(format!("theirs{suffix}"))).unwrap();
    let policy = Policy::parse(&read(".policy")).unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let checkpoint = SignedCheckpoint::parse(&read(".checkpoint")).unwrap();
    let belief = policy.check(&checkpoint, &[], now).unwrap();
    assert_eq!(belief.cosigned.len(), 2);
    let head = checkpoint.checkpoint();
    assert_eq!(head.size, size, "seed {seed}");
    let log = directory.join("theirs");
    let mut reader = LogReader::open(Directory(&log), head.size, head.root).unwrap();
    for index in 0..head.size {
        if index % 256 == 0 {
            let (first, entries) = reader.bundle(index).unwrap();
            for (number, found) in (first..).zip(entries) {
                assert_eq!(found, entry(number));
            }
        }
    }
    for index in indexes {
        let bytes = read(&format!(".{index}.tlog-proof"));
        let proof = TlogProof::parse(&bytes).unwrap();
        assert_eq!(proof.to_text().as_bytes(), bytes);
        assert_eq!(proof.hashes, reader.inclusion_proof(index).unwrap());
        proof.verify(Hash::leaf(&entry(index)), &policy, &[], now).unwrap();
        proof.verify(Hash::leaf(b"other"), &policy, &[], now).unwrap_err();
    }
    let old = SignedCheckpoint::parse(&read(".old")).unwrap();
    let old = (old.checkpoint().size, old.checkpoint().root);
    let proof = reader.consistency_proof(old.0).unwrap();
    verify_consistency(old, (head.size, head.root), &proof).unwrap();
    assert_eq!((old.0, printed), (old_size, proof_line(old_size, &proof)), "seed {seed}");
    assert_eq!(reader.root_at(old.0).unwrap(), old.1);

    // The next entry of ours continues their log.
    let mut tree = Appender::open(&mut reader).unwrap();
    tree.push(b"ours").unwrap();
    let (size, root) = (tree.size(), tree.root());
    let mut files = Files::default();
    files.store(tree.finish());
    let both = Both(&files, Directory(&log));
    let proof = LogReader::open(both, size, root).unwrap().consistency_proof(head.size).unwrap();
    verify_consistency((head.size, head.root), (size, root), &proof).unwrap();
}
