//! Seeded hostile evidence: none is believed, and each refusal names its cause.
//!
//! The test takes a sample; `VOUCH_HOSTILE_CASES=100000` sets another number.

use std::collections::BTreeMap;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use vouch_log::append::Appender;
use vouch_log::checkpoint::{Checkpoint, SignedCheckpoint};
use vouch_log::evidence::LogEvidence;
use vouch_log::key::Signer;
use vouch_log::merkle::{Hash, verify_inclusion};
use vouch_log::policy::Policy;
use vouch_log::proof::TlogProof;
use vouch_log::reader::{LogReader, TileSource};
use vouch_log::revision::{CertPolicy, LogCert, LogSigners, origin, revision_entry};
use vouch_tree::HostId;
use vouch_tree::key::{SecretKey, SigningCert};
use vouch_xdr::Xdr as _;

use super::tests::{NOW, two_of_three, witness};
use super::{BeliefRules, Offered, SeenRecord};

const CASES_DEFAULT: u64 = 2000;

#[derive(Default)]
struct Files(BTreeMap<String, Vec<u8>>);

impl TileSource for &Files {
    fn read(&self, path: &str, _: usize) -> std::io::Result<Vec<u8>> {
        self.0.get(path).cloned().ok_or_else(|| std::io::ErrorKind::NotFound.into())
    }
}

/// A log of revisions, with what makes evidence.
struct Log {
    files: Files,
    size: u64,
    root: Hash,
}

fn revision(number: u64) -> Vec<u8> {
    format!("signed fsinfo {number}").into_bytes()
}

/// The last revision may be of a thief.
fn log(size: u64, last: &[u8]) -> Log {
    let mut tree = Appender::new();
    for number in 1..size {
        tree.push(&revision_entry(&revision(number))).unwrap();
    }
    tree.push(&revision_entry(last)).unwrap();
    let (size, root) = (tree.size(), tree.root());
    let mut files = Files::default();
    for file in tree.finish() {
        files.0.insert(file.id.path(), file.bytes);
    }
    Log { files, size, root }
}

struct World {
    root: SecretKey,
    other_root: SecretKey,
    demand: CertPolicy,
    witnesses: Vec<Signer>,
}

impl World {
    fn evidence(
        &self,
        log: &Log,
        root: &SecretKey,
        serial: u64,
        cosigned: &[(usize, u64)],
    ) -> LogEvidence {
        let hostid = root.public().hostid();
        let signers = LogSigners::from_seeds(&hostid, &[8; 32], None).unwrap();
        let demand = Some(self.demand.clone());
        let signing = SigningCert::issue(root, root.public(), serial, 0, u64::MAX);
        let (cert, _) = LogCert::issue(root, signing, hostid, signers.keys(), demand);
        let head = Checkpoint::new(&origin(&hostid), log.size, log.root);
        let mut checkpoint = SignedCheckpoint::unsigned(&head).unwrap();
        signers.all().for_each(|signer| checkpoint.note_mut().sign(signer, NOW).unwrap());
        for (number, time) in cosigned {
            checkpoint.note_mut().sign(&self.witnesses[*number], *time).unwrap();
        }
        let mut reader = LogReader::open(&log.files, log.size, log.root).unwrap();
        let hashes = reader.inclusion_proof(log.size - 1).unwrap();
        let proof = TlogProof { extra: None, index: log.size - 1, hashes, checkpoint };
        LogEvidence { cert, proof }
    }
}

#[test]
fn hostile_evidence_is_never_believed() {
    let count = std::env::var("VOUCH_HOSTILE_CASES").ok().and_then(|text| text.parse().ok());
    let world = World {
        root: SecretKey::from_seed(&[7; 32]),
        other_root: SecretKey::from_seed(&[6; 32]),
        demand: CertPolicy::parse(&two_of_three()).unwrap(),
        witnesses: (1..=5).map(witness).collect(),
    };
    let hostid: HostId = world.root.public().hostid();
    let mut kinds = [0_u64; 12];
    for seed in 0..count.unwrap_or(CASES_DEFAULT) {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut below = |n: u64| random.next_u64() % n;
        let size = 1 + below(600);
        let (signed, newer) = (revision(size), revision(size + 1));
        let thief = format!("of a thief {}", below(9)).into_bytes();
        let (a, b) = (below(3) as usize, below(2) as usize);
        let quorum = [(a, NOW - below(1000)), ((a + 1 + b) % 3, NOW + below(300))];
        let honest = || log(size, &signed);
        let policies = match below(2) {
            0 => vec![],
            _ => vec![Policy::parse(&two_of_three()).unwrap()],
        };
        let rules = BeliefRules { hostid, policies };
        let mut record = SeenRecord::default();
        let kind = below(12);
        kinds[kind as usize] += 1;
        let (shown, evidence, causes): (&[u8], Option<Vec<u8>>, &[&str]) = match kind {
            // A thief of the signing key has one victim, and an honest proof of another revision.
            0 => (
                &thief,
                Some(world.evidence(&honest(), &world.root, 2, &quorum).to_xdr()),
                &["not about this revision"],
            ),
            // A thief of both keys has a split view, which too few witnesses have seen.
            1 => {
                let split = log(size, &thief);
                let few = &quorum[..below(2) as usize];
                (
                    &thief,
                    Some(world.evidence(&split, &world.root, 2, few).to_xdr()),
                    &["do not suffice"],
                )
            }
            // Cosignatures of the honest head on the split view.
            2 => {
                let mut evidence = world.evidence(&log(size, &thief), &world.root, 2, &[]);
                let cosigned = world.evidence(&honest(), &world.root, 2, &quorum).proof.checkpoint;
                for signature in &cosigned.note().signatures()[1..] {
                    evidence.proof.checkpoint.note_mut().add(signature.clone()).unwrap();
                }
                (&thief, Some(evidence.to_xdr()), &["is false"])
            }
            // An old checkpoint beside a newer revision.
            3 => {
                let old = world.evidence(&honest(), &world.root, 2, &quorum);
                (&newer, Some(old.to_xdr()), &["not about this revision"])
            }
            4 => (
                &signed,
                Some(world.evidence(&honest(), &world.root, 2, &quorum[..1]).to_xdr()),
                &["do not suffice"],
            ),
            // Unknown witnesses, and one twice.
            5 => {
                let cosigned = [(3, NOW), (4, NOW), quorum[0], (quorum[0].0, NOW)];
                (
                    &signed,
                    Some(world.evidence(&honest(), &world.root, 2, &cosigned).to_xdr()),
                    &["do not suffice"],
                )
            }
            // Another origin.
            6 => {
                let other = world.evidence(&honest(), &world.other_root, 2, &quorum);
                let mut mixed = world.evidence(&honest(), &world.root, 2, &[]);
                mixed.proof = other.proof.clone();
                let evidence = if below(2) == 0 { other } else { mixed };
                (&signed, Some(evidence.to_xdr()), &["has not certified", "another log"])
            }
            7 => {
                let cosigned = [quorum[0], (quorum[1].0, NOW + 301 + below(1 << 40))];
                (
                    &signed,
                    Some(world.evidence(&honest(), &world.root, 2, &cosigned).to_xdr()),
                    &["in the future"],
                )
            }
            // A proof with a hash too few or too many, or another index.
            8 => {
                let mut evidence = world.evidence(&honest(), &world.root, 2, &quorum);
                match below(3) {
                    0 if !evidence.proof.hashes.is_empty() => {
                        let at = below(evidence.proof.hashes.len() as u64) as usize;
                        evidence.proof.hashes.remove(at);
                    }
                    1 => evidence.proof.index += 1 + below(9),
                    _ => evidence.proof.hashes.push(Hash::leaf(b"x")),
                }
                (&signed, Some(evidence.to_xdr()), &["not about this revision"])
            }
            // A certificate that was replaced.
            9 => {
                record.log_serial = 3;
                (
                    &signed,
                    Some(world.evidence(&honest(), &world.root, 2, &quorum).to_xdr()),
                    &["has replaced"],
                )
            }
            // A mirror drops the proof; the signing certificate demands it.
            10 => (&signed, None, &["no proof comes with it"]),
            // A flipped bit anywhere. It may change any check.
            _ => {
                let mut bytes = world.evidence(&honest(), &world.root, 2, &quorum).to_xdr();
                let at = below(bytes.len() as u64 * 8) as usize;
                bytes[at / 8] ^= 1 << (at % 8);
                (&signed, Some(bytes), &[""])
            }
        };
        let judged = rules.judge(&record, &Offered::read(shown, evidence.as_deref()), Some(2), NOW);
        let why = judged.expect_err(&format!("seed {seed}, kind {kind}"));
        assert!(
            !why.is_empty() && causes.iter().any(|cause| why.contains(cause)),
            "seed {seed}, kind {kind}: {why}"
        );
        // The honest evidence is believed.
        if seed % 16 == 0 {
            let good = world.evidence(&honest(), &world.root, 2, &quorum).to_xdr();
            let judged = rules.judge(
                &SeenRecord::default(),
                &Offered::read(&signed, Some(&good)),
                Some(2),
                NOW,
            );
            assert!(judged.is_ok(), "seed {seed}: {judged:?}");
        }
    }
    assert!(kinds.iter().all(|&kind| kind > 0), "{kinds:?}");
}

#[test]
fn cut_and_wrong_tiles_prove_nothing() {
    let count = std::env::var("VOUCH_HOSTILE_CASES").ok().and_then(|text| text.parse().ok());
    for seed in 0..count.unwrap_or(CASES_DEFAULT) / 10 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut below = |n: u64| random.next_u64() % n;
        let size = 1 + below(600);
        let mut tampered = log(size, &revision(size));
        let index = below(size);
        // One file is cut, longer, another one's, or has a wrong bit.
        let names: Vec<_> = tampered.files.0.keys().cloned().collect();
        let name = names[below(names.len() as u64) as usize].clone();
        let other = tampered.files.0[&names[below(names.len() as u64) as usize]].clone();
        let kind = below(4);
        let bytes = tampered.files.0.get_mut(&name).unwrap();
        let at = below(bytes.len() as u64) as usize;
        match kind {
            0 => bytes.truncate(at),
            1 => bytes.extend_from_slice(&[0; 32]),
            2 => *bytes = other,
            _ => bytes[at] ^= 1 << below(8),
        }
        let entry = revision_entry(&revision(index + 1));
        let read = LogReader::open(&tampered.files, size, tampered.root).and_then(|mut reader| {
            let hashes = reader.inclusion_proof(index)?;
            verify_inclusion(Hash::leaf(&entry), index, size, &hashes, tampered.root).unwrap();
            reader.entry(index)
        });
        match read {
            Ok(found) => assert_eq!(found, entry, "seed {seed}"),
            Err(error) => assert!(error.to_string().contains("of the log"), "seed {seed}: {error}"),
        }
    }
}
