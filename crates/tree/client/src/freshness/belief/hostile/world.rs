//! A publisher with classic keys or pairs, its log and its witnesses. Logs and signatures are kept:
//! the cases differ in their use.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use vouch_log::append::Appender;
use vouch_log::checkpoint::{Checkpoint, SignedCheckpoint};
use vouch_log::evidence::LogEvidence;
use vouch_log::key::Signer;
use vouch_log::merkle::Hash;
use vouch_log::note::SignedNote;
use vouch_log::policy::Policy;
use vouch_log::proof::TlogProof;
use vouch_log::reader::{LogReader, TileSource};
use vouch_log::revision::{CertPolicy, LogCert, LogSigners, origin, revision_entry};
use vouch_tree::key::{Purpose, SecretKey, SigningCert};
use vouch_tree::verify::{NewestSeen, verify_fsinfo};
use vouch_tree::{BlockHandle, Content, Counts, Fsinfo, HostId, Inode, Iv, SignedFsinfo};
use vouch_xdr::{Writer, Xdr as _};

use super::super::tests::{NOW, two_of_three, witness};
use super::super::{BeliefRules, Offered, SeenRecord};

/// Serial number of the certificates.
const SERIAL: u64 = 2;

const ED25519_LEN: usize = 64;
const PAIR_LEN: usize = ED25519_LEN + 2420;

pub(super) struct Random(ChaCha8Rng);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.0.next_u64() % n
    }

    pub(super) fn flip_bit(&mut self, bytes: &mut [u8]) {
        let at = self.below(bytes.len() as u64 * 8) as usize;
        bytes[at / 8] ^= 1 << (at % 8);
    }
}

#[derive(Default)]
pub(super) struct Files(pub(super) BTreeMap<String, Vec<u8>>);

impl TileSource for &Files {
    fn read(&self, path: &str, _: usize) -> std::io::Result<Vec<u8>> {
        self.0.get(path).cloned().ok_or_else(|| std::io::ErrorKind::NotFound.into())
    }
}

pub(super) struct Log {
    pub(super) files: Files,
    pub(super) size: u64,
    pub(super) root: Hash,
}

/// Short, as the proof of the last entry has hashes of the others.
pub(super) fn earlier_revision(number: u64) -> Vec<u8> {
    format!("signed fsinfo {number}").into_bytes()
}

/// The last revision may be of a thief.
pub(super) fn log(size: u64, last: &[u8]) -> Log {
    let mut tree = Appender::new();
    for number in 1..size {
        tree.push(&revision_entry(&earlier_revision(number))).unwrap();
    }
    tree.push(&revision_entry(last)).unwrap();
    let (size, root) = (tree.size(), tree.root());
    let mut files = Files::default();
    for file in tree.finish() {
        files.0.insert(file.id.path(), file.bytes);
    }
    Log { files, size, root }
}

/// Who signs a revision: its publisher, or a numbered thief of the signing key.
pub(super) type Thief = Option<u64>;

/// By the number of the revision.
type Kept<T> = RefCell<HashMap<(u64, Thief), Rc<T>>>;

/// One of the two algorithms of a pair.
#[derive(Clone, Copy)]
pub(super) enum Half {
    Ed25519,
    MlDsa44,
}

/// The keys of a tree and of its log.
struct Owner {
    root: SecretKey,
    signing: SecretKey,
    signing_cert: SigningCert,
    signers: LogSigners,
    log_cert: LogCert,
    proofs: Kept<TlogProof>,
}

impl Owner {
    fn new(seed: u8, is_pair: bool) -> Self {
        let key = |seed| match is_pair {
            true => SecretKey::from_seeds(&[seed; 32], &[seed + 100; 32]),
            false => SecretKey::from_seed(&[seed; 32]),
        };
        let (root, signing) = (key(seed), key(seed + 1));
        let hostid = root.public().hostid();
        let lattice_seed = is_pair.then_some([seed + 102; 32]);
        let signers =
            LogSigners::from_seeds(&hostid, &[seed + 2; 32], lattice_seed.as_ref()).unwrap();
        let cert = SigningCert::issue(&root, signing.public(), SERIAL, 0, u64::MAX);
        let demand = CertPolicy::parse(&two_of_three()).unwrap();
        let (log_cert, signing_cert) =
            LogCert::issue(&root, cert.witnessed(&root), hostid, signers.keys(), Some(demand));
        Self { root, signing, signing_cert, signers, log_cert, proofs: RefCell::default() }
    }

    /// Without witnesses. `last`: the revision `size`.
    fn proof(&self, size: u64, thief: Thief, last: &[u8]) -> TlogProof {
        let mut proofs = self.proofs.borrow_mut();
        let proof = proofs.entry((size, thief)).or_insert_with(|| {
            let log = log(size, last);
            let head = Checkpoint::new(&origin(self.log_cert.log()), log.size, log.root);
            let mut checkpoint = SignedCheckpoint::unsigned(&head).unwrap();
            let sign = |signer| checkpoint.note_mut().sign(signer, NOW).unwrap();
            self.signers.all().for_each(sign);
            let mut reader = LogReader::open(&log.files, log.size, log.root).unwrap();
            let hashes = reader.inclusion_proof(size - 1).unwrap();
            Rc::new(TlogProof { extra: None, index: size - 1, hashes, checkpoint })
        });
        TlogProof::clone(proof)
    }
}

pub(super) struct World {
    owner: Owner,
    other: Owner,
    forger: SecretKey,
    pub(super) hostid: HostId,
    witnesses: Vec<Signer>,
    revisions: Kept<Vec<u8>>,
}

impl World {
    pub(super) fn new(is_pair: bool) -> Self {
        let owner = Owner::new(7, is_pair);
        Self {
            hostid: owner.root.public().hostid(),
            owner,
            other: Owner::new(17, is_pair),
            forger: SecretKey::from_seeds(&[27; 32], &[127; 32]),
            witnesses: (1..=5).map(witness).collect(),
            revisions: RefCell::default(),
        }
    }

    /// Signed by the signing key, which the thief has too.
    pub(super) fn revision(&self, number: u64, thief: Thief) -> Rc<Vec<u8>> {
        let mut revisions = self.revisions.borrow_mut();
        let signed = revisions.entry((number, thief)).or_insert_with(|| {
            let content = Content::Directory { entries: 0, subdirs: 0, opaque: false, top: None };
            let fsinfo = Fsinfo {
                hostid: self.hostid,
                revision: number,
                start: NOW,
                duration_s: 86_400,
                iv: Iv::from_bytes([5; 32]),
                root: Inode::new(0o755, content),
                previous: (number > 1).then(|| BlockHandle::from_bytes([8; 32])),
                counts: Counts::default(),
                tag: thief.map_or_else(String::new, |thief| format!("of a thief {thief}")),
            };
            let Owner { signing, signing_cert, .. } = &self.owner;
            Rc::new(SignedFsinfo::sign(&fsinfo, signing, signing_cert.clone()).to_xdr())
        });
        signed.clone()
    }

    /// `cosigned`: witnesses and their times.
    pub(super) fn evidence(
        &self,
        size: u64,
        thief: Thief,
        cosigned: &[(usize, u64)],
    ) -> LogEvidence {
        self.evidence_of(&self.owner, size, thief, cosigned)
    }

    /// The log of another root key has the same revision.
    pub(super) fn evidence_of_other(&self, size: u64, cosigned: &[(usize, u64)]) -> LogEvidence {
        self.evidence_of(&self.other, size, None, cosigned)
    }

    fn evidence_of(
        &self,
        owner: &Owner,
        size: u64,
        thief: Thief,
        cosigned: &[(usize, u64)],
    ) -> LogEvidence {
        let mut proof = owner.proof(size, thief, &self.revision(size, thief));
        for (number, time) in cosigned {
            proof.checkpoint.note_mut().sign(&self.witnesses[*number], *time).unwrap();
        }
        LogEvidence { cert: owner.log_cert.clone(), proof }
    }

    /// Signatures of the log stand before those of witnesses.
    pub(super) fn log_signatures(&self) -> usize {
        self.owner.signers.all().count()
    }

    /// One signature of the log's pair is wrong or missing.
    pub(super) fn break_log_signature(
        &self,
        evidence: &mut LogEvidence,
        half: Half,
        random: &mut Random,
    ) {
        let note = evidence.proof.checkpoint.note();
        let (text, mut signatures) = (note.text().to_owned(), note.signatures().to_vec());
        let number = half as usize;
        if random.below(3) == 0 {
            signatures.remove(number);
        } else {
            random.flip_bit(&mut signatures[number].bytes);
        }
        let note = SignedNote::from_parts(text, signatures).unwrap();
        evidence.proof.checkpoint = SignedCheckpoint::from_note(note).unwrap();
    }

    /// In the revision, or in evidence that brings the certificate along.
    pub(super) fn break_root_signature(&self, bytes: &mut [u8], half: Half, random: &mut Random) {
        let cert = self.owner.signing_cert.to_xdr();
        let at = bytes.windows(cert.len()).position(|found| found == cert).unwrap();
        let end = cert.len() - PAIR_LEN;
        let signature = &mut bytes[at + end..at + cert.len()];
        self.break_pair(signature, Purpose::Certificate, &cert[..end], half, random);
    }

    pub(super) fn break_signing_signature(
        &self,
        signed: &mut [u8],
        half: Half,
        random: &mut Random,
    ) {
        let parsed = SignedFsinfo::from_xdr(signed).unwrap();
        let body = parsed.unverified().unwrap().to_xdr();
        let at = signed.len() - PAIR_LEN;
        self.break_pair(&mut signed[at..], Purpose::Fsinfo, &body, half, random);
    }

    /// A bit is wrong, or a forger has broken the other algorithm alone.
    fn break_pair(
        &self,
        signature: &mut [u8],
        purpose: Purpose,
        body: &[u8],
        half: Half,
        random: &mut Random,
    ) {
        let range = match half {
            Half::Ed25519 => 0..ED25519_LEN,
            Half::MlDsa44 => ED25519_LEN..PAIR_LEN,
        };
        if random.below(2) == 0 {
            return random.flip_bit(&mut signature[range]);
        }
        let mut forged = Writer::new();
        self.forger.sign(purpose, body).encode(&mut forged);
        signature[range.clone()].copy_from_slice(&forged.into_bytes()[range]);
    }

    /// As a reader that meets the tree. The error is the cause that it names.
    pub(super) fn believe(
        &self,
        record: &SeenRecord,
        policies: Vec<Policy>,
        signed: &[u8],
        evidence: Option<&[u8]>,
    ) -> Result<(), String> {
        let verified = verify_fsinfo(&self.hostid, signed, NOW, &NewestSeen::default(), [])
            .map_err(|refusal| refusal.to_string())?;
        let demand = verified.cert.is_witnessed.then_some(verified.seen.cert_serial);
        let offered = Offered::with_cert(signed, Some(verified.cert), evidence);
        BeliefRules { hostid: self.hostid, policies }.judge(record, &offered, demand, NOW).map(drop)
    }
}
