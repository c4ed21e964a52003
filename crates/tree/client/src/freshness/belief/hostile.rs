//! Seeded hostile evidence: none is believed, and each refusal names its cause. The keys of a quarter
//! of the cases are pairs of Ed25519 and ML-DSA-44.
//!
//! The test takes a sample; `VOUCH_HOSTILE_CASES=100000` sets another number.

use std::rc::Rc;

use vouch_log::evidence::LogEvidence;
use vouch_log::merkle::{Hash, verify_inclusion};
use vouch_log::policy::Policy;
use vouch_log::reader::LogReader;
use vouch_log::revision::revision_entry;
use vouch_xdr::Xdr as _;

use super::SeenRecord;
use super::tests::{NOW, two_of_three};

mod world;

use world::{Half, Random, World, earlier_revision, log};

const CASES_DEFAULT: u64 = 2000;

/// Cases for keys of any kind, and those for the halves of pairs.
const KINDS: u64 = 12;
const PAIR_KINDS: u64 = 6;

fn case_count() -> u64 {
    let text = std::env::var("VOUCH_HOSTILE_CASES").ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(CASES_DEFAULT)
}

struct Case {
    signed: Vec<u8>,
    evidence: Option<Vec<u8>>,
    /// Each refusal names one of these.
    causes: &'static [&'static str],
}

/// The revision `size` is the newest of the log, and two witnesses have cosigned.
struct Scene<'w> {
    world: &'w World,
    size: u64,
    quorum: [(usize, u64); 2],
}

const OTHER_REVISION: &[&str] = &["not about this revision"];
const TOO_FEW: &[&str] = &["do not suffice"];

impl Scene<'_> {
    fn signed(&self) -> Rc<Vec<u8>> {
        self.world.revision(self.size, None)
    }

    fn honest(&self) -> LogEvidence {
        self.world.evidence(self.size, None, &self.quorum)
    }

    fn cosigned(&self, cosigned: &[(usize, u64)]) -> LogEvidence {
        self.world.evidence(self.size, None, cosigned)
    }

    /// In the form for a place beside the revision, or with all that it needs.
    fn case(
        &self,
        signed: &[u8],
        evidence: &LogEvidence,
        causes: &'static [&'static str],
        random: &mut Random,
    ) -> Case {
        let bytes = match random.below(2) {
            0 => evidence.to_xdr(),
            _ => evidence.to_statement(signed),
        };
        Case { signed: signed.to_vec(), evidence: Some(bytes), causes }
    }

    fn make(&self, kind: u64, random: &mut Random) -> Case {
        match kind {
            0..=3 => self.other_revision(kind, random),
            4 | 5 | 7 => self.bad_cosignatures(kind, random),
            6 | 8 => self.bad_proof(kind, random),
            9 => {
                // A certificate that was replaced: see `record`.
                let signed = self.signed();
                self.case(&signed, &self.honest(), &["has replaced"], random)
            }
            // A mirror drops the proof; the signing certificate demands it.
            10 => Case {
                signed: self.signed().to_vec(),
                evidence: None,
                causes: &["no proof comes with it"],
            },
            11 => self.flipped_bit(random),
            _ => self.broken_pair(kind - KINDS, random),
        }
    }

    fn other_revision(&self, kind: u64, random: &mut Random) -> Case {
        let thief = Some(random.below(9));
        let (world, size) = (self.world, self.size);
        let stolen = world.revision(size, thief);
        match kind {
            // A thief of the signing key has one victim, and an honest proof of another revision.
            0 => self.case(&stolen, &self.honest(), OTHER_REVISION, random),
            // A thief of both keys has a split view, which too few witnesses have seen.
            1 => {
                let few = &self.quorum[..random.below(2) as usize];
                self.case(&stolen, &world.evidence(size, thief, few), TOO_FEW, random)
            }
            // Cosignatures of the honest head on the split view.
            2 => {
                let mut evidence = world.evidence(size, thief, &[]);
                let honest = self.honest().proof.checkpoint;
                for signature in &honest.note().signatures()[world.log_signatures()..] {
                    evidence.proof.checkpoint.note_mut().add(signature.clone()).unwrap();
                }
                self.case(&stolen, &evidence, &["is false"], random)
            }
            // An old checkpoint beside a newer revision.
            _ => {
                let newer = world.revision(size + 1, None);
                self.case(&newer, &self.honest(), OTHER_REVISION, random)
            }
        }
    }

    fn bad_cosignatures(&self, kind: u64, random: &mut Random) -> Case {
        let (signed, quorum) = (self.signed(), self.quorum);
        let later = NOW + 301 + random.below(1 << 40);
        match kind {
            4 => self.case(&signed, &self.cosigned(&quorum[..1]), TOO_FEW, random),
            // Unknown witnesses, and one twice.
            5 => {
                let cosigned = [(3, NOW), (4, NOW), quorum[0], (quorum[0].0, NOW)];
                self.case(&signed, &self.cosigned(&cosigned), TOO_FEW, random)
            }
            _ => {
                let cosigned = [quorum[0], (quorum[1].0, later)];
                self.case(&signed, &self.cosigned(&cosigned), &["in the future"], random)
            }
        }
    }

    fn bad_proof(&self, kind: u64, random: &mut Random) -> Case {
        let (signed, mut evidence) = (self.signed(), self.honest());
        // Another origin.
        if kind == 6 {
            let other = self.world.evidence_of_other(self.size, &self.quorum);
            evidence.proof = other.proof.clone();
            let shown = if random.below(2) == 0 { other } else { evidence };
            return self.case(&signed, &shown, &["has not certified", "another log"], random);
        }
        // A proof with a hash too few or too many, or another index.
        match random.below(3) {
            0 if !evidence.proof.hashes.is_empty() => {
                let at = random.below(evidence.proof.hashes.len() as u64) as usize;
                evidence.proof.hashes.remove(at);
            }
            1 => evidence.proof.index += 1 + random.below(9),
            _ => evidence.proof.hashes.push(Hash::leaf(b"x")),
        }
        self.case(&signed, &evidence, OTHER_REVISION, random)
    }

    /// Anywhere in the evidence, or in the revision. It may change any check.
    fn flipped_bit(&self, random: &mut Random) -> Case {
        let mut case = self.case(&self.signed(), &self.honest(), CAUSES_IN_EVIDENCE, random);
        if random.below(4) == 0 {
            case.causes = CAUSES_IN_REVISION;
            random.flip_bit(&mut case.signed);
        } else {
            random.flip_bit(case.evidence.as_mut().unwrap());
        }
        case
    }

    /// One signature of a pair alone is wrong: of the log, the root key or the signing key.
    fn broken_pair(&self, kind: u64, random: &mut Random) -> Case {
        let (world, signed, mut evidence) = (self.world, self.signed(), self.honest());
        let half = if kind.is_multiple_of(2) { Half::Ed25519 } else { Half::MlDsa44 };
        match kind / 2 {
            0 => {
                world.break_log_signature(&mut evidence, half, random);
                self.case(&signed, &evidence, &["is false", "lacks the signature of"], random)
            }
            // In the evidence, which has a certificate of its own, or in both.
            1 => {
                let mut case = self.case(&signed, &evidence, UNCERTIFIED, random);
                case.evidence = Some(evidence.to_xdr());
                match random.below(2) {
                    0 => world.break_root_signature(&mut case.signed, half, random),
                    _ => {
                        let bytes = case.evidence.as_mut().unwrap();
                        world.break_root_signature(bytes, half, random);
                    }
                }
                case
            }
            _ => {
                let mut case = self.case(&signed, &evidence, UNSIGNED, random);
                world.break_signing_signature(&mut case.signed, half, random);
                case
            }
        }
    }
}

const UNCERTIFIED: &[&str] = &[
    "the signing key's certificate is not signed by the root key of this name",
    "the root key of this tree has not certified the log of its proof",
];
const UNSIGNED: &[&str] = &["the signature of the fsinfo is invalid"];

/// All that one wrong bit of the evidence can cause.
const CAUSES_IN_EVIDENCE: &[&str] = &[
    "its proof cannot be read: XDR boolean has the value",
    "its proof cannot be read: XDR certificate of a signing key of another kind",
    "its proof cannot be read: XDR checkpoint in a log's proof is not valid",
    "its proof cannot be read: XDR ends",
    "its proof cannot be read: XDR evidence of a log is not valid",
    "its proof cannot be read: XDR key of a log certificate is not valid",
    "its proof cannot be read: XDR length",
    "its proof cannot be read: XDR log certificate version has the unknown value",
    "its proof cannot be read: XDR number of a log's entry is not valid",
    "its proof cannot be read: XDR padding is not zero",
    "its proof cannot be read: XDR policy of a log certificate is not valid",
    "its proof cannot be read: XDR string is not valid",
    "bytes follow the end of the XDR",
    "the checkpoint is of another log",
    "the root key of this tree has not certified the log of its proof",
    "not about this revision: entry",
    "not about this revision: the proof has",
    "not about this revision: the proof leads to another root hash",
    "policy is not met: the checkpoint lacks the signature of",
    "policy is not met: the cosignatures of",
    "policy is not met: the signature of",
];

/// All that one wrong bit of the revision can cause.
const CAUSES_IN_REVISION: &[&str] = &[
    "the fsinfo is malformed: XDR certificate of a signing key of another kind",
    "the fsinfo is malformed: XDR ends",
    "the fsinfo is malformed: XDR length",
    "the fsinfo is malformed: XDR padding is not zero",
    "bytes follow the end of the XDR",
    UNCERTIFIED[0],
    UNSIGNED[0],
];

#[test]
fn hostile_evidence_is_never_believed() {
    let worlds = [true, false].map(World::new);
    let mut kinds = [[0_u64; (KINDS + PAIR_KINDS) as usize]; 2];
    for seed in 0..case_count() {
        let mut random = Random::new(seed);
        let is_classic = !seed.is_multiple_of(4);
        let world = &worlds[usize::from(is_classic)];
        let size = 1 + random.below(600);
        let (a, b) = (random.below(3) as usize, random.below(2) as usize);
        let quorum = [(a, NOW - random.below(1000)), ((a + 1 + b) % 3, NOW + random.below(300))];
        let scene = Scene { world, size, quorum };
        let policies = || match seed / 4 % 2 {
            0 => vec![],
            _ => vec![Policy::parse(&two_of_three()).unwrap()],
        };
        let kind = random.below(if is_classic { KINDS } else { KINDS + PAIR_KINDS });
        kinds[usize::from(is_classic)][kind as usize] += 1;
        let Case { signed, evidence, causes } = scene.make(kind, &mut random);
        let mut record = SeenRecord::default();
        if kind == 9 {
            record.log_serial = 3;
        }
        let believed = world.believe(&record, policies(), &signed, evidence.as_deref());
        let why = believed.expect_err(&format!("seed {seed}, kind {kind}"));
        assert!(causes.iter().any(|cause| why.contains(cause)), "seed {seed}, kind {kind}: {why}");
        // The honest evidence is believed, of pairs and of classic keys.
        if seed % 16 < 2 {
            let (signed, honest) = (scene.signed(), scene.honest());
            let record = SeenRecord::default();
            let good = world.believe(&record, policies(), &signed, Some(&honest.to_xdr()));
            assert_eq!(good, Ok(()), "seed {seed}");
        }
    }
    let [pairs, classic] = kinds;
    let has_all = pairs.iter().chain(&classic[..KINDS as usize]).all(|&kind| kind > 0);
    assert!(has_all, "{kinds:?}");
}

#[test]
fn cut_and_wrong_tiles_prove_nothing() {
    for seed in 0..case_count() / 10 {
        let mut random = Random::new(seed);
        let size = 1 + random.below(600);
        let mut tampered = log(size, &earlier_revision(size));
        let index = random.below(size);
        // One file is cut, longer, another one's, or has a wrong bit.
        let names: Vec<_> = tampered.files.0.keys().cloned().collect();
        let name = names[random.below(names.len() as u64) as usize].clone();
        let other = tampered.files.0[&names[random.below(names.len() as u64) as usize]].clone();
        let kind = random.below(4);
        let bytes = tampered.files.0.get_mut(&name).unwrap();
        let at = random.below(bytes.len() as u64) as usize;
        match kind {
            0 => bytes.truncate(at),
            1 => bytes.extend_from_slice(&[0; 32]),
            2 => *bytes = other,
            _ => bytes[at] ^= 1 << random.below(8),
        }
        let entry = revision_entry(&earlier_revision(index + 1));
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
