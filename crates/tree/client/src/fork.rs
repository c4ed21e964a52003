//! Evidence that the keys of a tree have signed two statements that contradict each other: two
//! revisions with one number, or two histories of a log. A directory that a third party checks
//! offline, with the HOSTID alone.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use vouch_log::evidence::{EVIDENCE_LEN_MAX, LogEvidence};
use vouch_log::merkle::{Hash, verify_consistency};
use vouch_log::reader::{LogReader, ReadError, TileSource};
use vouch_log::revision::origin;
use vouch_tree::fsinfo::SIGNED_LEN_MAX;
use vouch_tree::{HostId, SignedFsinfo};
use vouch_xdr::Xdr as _;

/// Two heads of different sizes are no contradiction without this file.
pub const CONSISTENCY_FILE: &str = "consistency";

/// A root hash and at most 64 hashes of a proof, as lines of base64.
const CONSISTENCY_LEN_MAX: usize = 4096;

/// One of the two sides. Nothing in it is verified.
#[derive(Debug, Clone, Default)]
pub struct ForkSide {
    /// XDR of a signed fsinfo; may be empty.
    pub signed: Vec<u8>,
    /// The log's certificate and its signed head.
    pub evidence: Option<LogEvidence>,
}

/// Both sides. Nothing in it is verified.
#[derive(Debug, Clone, Default)]
pub struct Fork {
    /// Seen first.
    pub ours: ForkSide,
    /// Contradicts the first.
    pub theirs: ForkSide,
    /// Content of [`CONSISTENCY_FILE`], or empty.
    pub consistency: Vec<u8>,
}

/// A contradiction that the signatures prove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contradiction {
    /// Two revisions of one number, signed under one certificate.
    Revisions {
        /// Number of both.
        revision: u64,
        /// Serial number of the certificate.
        cert_serial: u64,
        /// When each was signed, seconds since 1970, as each says.
        starts: [u64; 2],
    },
    /// Two heads of one size.
    Heads {
        /// Entries of both.
        size: u64,
        /// Root hashes.
        roots: [Hash; 2],
    },
    /// The longer log does not continue the shorter one.
    Histories {
        /// Entries of both.
        sizes: [u64; 2],
        /// Root hash of the shorter log, and that of as many entries of the longer one.
        roots: [Hash; 2],
    },
}

/// The file that lets heads of different sizes contradict each other. `longer` has more than `size`
/// entries.
pub fn consistency_file<S: TileSource>(
    longer: &mut LogReader<S>,
    size: u64,
) -> Result<Vec<u8>, ReadError> {
    let (root, proof) = (longer.root_at(size)?, longer.consistency_proof(size)?);
    let lines = std::iter::once(root).chain(proof).map(|hash| hash.to_base64() + "\n");
    Ok(lines.collect::<String>().into_bytes())
}

impl Fork {
    /// All contradictions that signatures of keys of `hostid` prove, whatever the time is.
    pub fn contradictions(&self, hostid: &HostId) -> Vec<Contradiction> {
        [self.of_revisions(hostid), self.of_heads(hostid)].into_iter().flatten().collect()
    }

    fn of_revisions(&self, hostid: &HostId) -> Option<Contradiction> {
        let signed = |side: &ForkSide| SignedFsinfo::from_xdr(&side.signed).ok();
        let (ours, theirs) = (signed(&self.ours)?, signed(&self.theirs)?);
        let (a, b) = (ours.unverified().ok()?, theirs.unverified().ok()?);
        let cert_serial = ours.cert().serial;
        let is_one = (cert_serial, a.revision) == (theirs.cert().serial, b.revision);
        let revision = a.revision;
        let found = Contradiction::Revisions { revision, cert_serial, starts: [a.start, b.start] };
        // Signatures last: most revisions have numbers of their own.
        let are_signed = || [ours, theirs].iter().all(|signed| signed.open(hostid).is_ok());
        (is_one && a != b && are_signed()).then_some(found)
    }

    fn of_heads(&self, hostid: &HostId) -> Option<Contradiction> {
        let (ours, theirs) = (self.ours.evidence.as_ref()?, self.theirs.evidence.as_ref()?);
        let head = |evidence: &LogEvidence| evidence.proof.checkpoint.checkpoint().clone();
        let (a, b) = (head(ours), head(theirs));
        if a.origin != b.origin || (a.size, a.root) == (b.size, b.root) {
            return None;
        }
        let are_signed =
            || [ours, theirs].iter().all(|evidence| check_log_head(evidence, hostid).is_ok());
        if a.size == b.size {
            let found = Contradiction::Heads { size: a.size, roots: [a.root, b.root] };
            return are_signed().then_some(found);
        }
        let (short, long) = if a.size < b.size { (a, b) } else { (b, a) };
        let text = std::str::from_utf8(&self.consistency).ok()?;
        let hashes: Option<Vec<_>> = text.lines().map(Hash::from_base64).collect();
        let hashes = hashes?;
        let (root, proof) = hashes.split_first()?;
        verify_consistency((short.size, *root), (long.size, long.root), proof).ok()?;
        (*root != short.root && are_signed()).then_some(Contradiction::Histories {
            sizes: [short.size, long.size],
            roots: [short.root, *root],
        })
    }

    /// Writes the files. Evidence that is there already and proves a contradiction stays.
    pub fn save(&self, dir: &Path, hostid: &HostId) -> io::Result<()> {
        if Self::read(dir).is_ok_and(|there| !there.contradictions(hostid).is_empty()) {
            return Ok(());
        }
        fs::create_dir_all(dir)?;
        let write = |name: &str, bytes: &[u8]| {
            if bytes.is_empty() {
                return Ok(());
            }
            let mut file = File::create(dir.join(name))?;
            file.write_all(bytes)?;
            file.sync_all()
        };
        for (name, side) in [("ours", &self.ours), ("theirs", &self.theirs)] {
            write(&format!("{name}.fsinfo"), &side.signed)?;
            if let Some(evidence) = &side.evidence {
                let text = evidence.proof.checkpoint.to_text();
                write(&format!("{name}.checkpoint"), text.as_bytes())?;
                write(&format!("{name}.evidence"), &evidence.to_xdr())?;
            }
        }
        write(CONSISTENCY_FILE, &self.consistency)?;
        File::open(dir)?.sync_all()
    }

    /// Reads the files that are there.
    pub fn read(dir: &Path) -> io::Result<Self> {
        let side = |name: &str| {
            let evidence = read(dir, &format!("{name}.evidence"), EVIDENCE_LEN_MAX)?;
            Ok::<_, io::Error>(ForkSide {
                signed: read(dir, &format!("{name}.fsinfo"), SIGNED_LEN_MAX)?,
                evidence: LogEvidence::from_xdr(&evidence).ok(),
            })
        };
        let consistency = read(dir, CONSISTENCY_FILE, CONSISTENCY_LEN_MAX)?;
        Ok(Self { ours: side("ours")?, theirs: side("theirs")?, consistency })
    }
}

/// The root key has certified the log, and all of the log's keys have signed its head.
pub fn check_log_head(evidence: &LogEvidence, hostid: &HostId) -> Result<(), &'static str> {
    let (cert, proof) = (&evidence.cert, &evidence.proof);
    let keys = cert.keys().all();
    let keys: Vec<_> = keys.iter().collect();
    let is_signed = proof.checkpoint.note().verify(&keys).is_ok_and(|found| {
        keys.iter().all(|key| found.iter().any(|found| std::ptr::eq(*key, found.key)))
    });
    let is_of_log = proof.checkpoint.checkpoint().origin == origin(cert.log());
    if !cert.is_certified(hostid, None) || !is_of_log {
        Err("the root key has not certified the log")
    } else if !is_signed {
        Err("the log's keys have not signed its head")
    } else {
        Ok(())
    }
}

/// Empty if the file is not there.
fn read(dir: &Path, name: &str, len_max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match File::open(dir.join(name)) {
        Ok(file) => file.take(len_max as u64 + 1).read_to_end(&mut bytes)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    Ok(bytes)
}
