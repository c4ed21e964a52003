//! Logs the seals of audit trails in a transparency log, which witnesses cosign, and finds by it
//! that a trail was cut back or replaced.
//!
//! The log follows the trail: a seal is logged after it is durable, in order and without gaps, so
//! a kill between a seal and its entry only delays the entry. The writer of the trail never waits.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use vouch_audit::seal::{STATEMENT_LEN, Seal};
use vouch_audit::trail::seals_from;
use vouch_log::checkpoint::{Checkpoint, SignedCheckpoint};
use vouch_log::merkle::Hash;
use vouch_log::policy::{Belief, Policy, PolicyShortfall};
use vouch_log::proof::TlogProof;
use vouch_log::reader::ReadError;
use vouch_log::trail::{TrailSigners, parse_seal_entry, parse_trail_origin, seal_entry};
use vouch_log_directory::{Error as DirectoryError, LogDirectory};

/// Default name of a trail's log, in the trail's directory.
pub const LOG_DIRECTORY: &str = "log";

/// Seals that one commit of the log adds at most.
const SEALS_MAX: usize = 4096;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: {error}", .path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{}: another process writes this log of trails", .0.display())]
    Busy(PathBuf),
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error("{}: {error}", .path.display())]
    Read { path: PathBuf, error: ReadError },
    #[error("{}: the log has the origin {found:?}, and the key is of {key}", .path.display())]
    OtherKey { path: PathBuf, found: String, key: String },
    #[error(
        "{}: seal {epoch} does not follow the last one that the log has: run `vouch audit verify`", .path.display()
    )]
    Broken { path: PathBuf, epoch: u64 },
    #[error("{}: the log has seals, and none of this trail: was the trail replaced? --add-trail adds another one", .0.display())]
    NewTrail(PathBuf),
}

type Result<T> = std::result::Result<T, Error>;

/// A log and the trails whose seals it gets.
pub struct TrailLog {
    log: LogDirectory,
    signers: TrailSigners,
    trails: Vec<Trail>,
    /// A log that has begun may get a further trail.
    adds_trails: bool,
    /// Released when the process ends.
    _lock: File,
}

struct Trail {
    directory: PathBuf,
    /// The last seal that the log has.
    last: Option<LoggedSeal>,
}

/// A seal in the log: its signed fields, without signatures. The log's own keys sign it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedSeal([u8; STATEMENT_LEN]);

impl LoggedSeal {
    pub fn of(seal: &Seal) -> Self {
        Self(seal.statement())
    }

    fn parse(entry: &[u8]) -> Option<Self> {
        parse_seal_entry(entry).copied().map(Self)
    }

    /// As the log has it.
    pub fn entry(&self) -> Vec<u8> {
        seal_entry(&self.0)
    }

    pub fn trail(&self) -> [u8; 16] {
        self.field(0)
    }

    pub fn epoch(&self) -> u64 {
        u64::from_le_bytes(self.field(24))
    }

    fn next(&self) -> [u8; 32] {
        self.field(STATEMENT_LEN - 32)
    }

    fn field<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0[at..].first_chunk().copied().expect("the field is within the fields")
    }
}

impl TrailLog {
    /// Reads the log from its end until it has found the last seal of each trail.
    pub fn open(
        path: &Path,
        signers: TrailSigners,
        directories: &[PathBuf],
        adds_trails: bool,
    ) -> Result<Self> {
        let failed = |error| Error::Io { path: path.to_owned(), error };
        std::fs::create_dir_all(path).map_err(failed)?;
        let mut options = File::options();
        let lock = options.write(true).create(true).truncate(false).mode(0o600);
        let lock = lock.open(path.join("lock")).map_err(failed)?;
        match rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(Error::Busy(path.to_owned())),
            Err(error) => return Err(failed(error.into())),
        }
        // As segments and the trail's checkpoint.
        let log = LogDirectory::new(path.to_owned(), 0o640);
        let mut trails: Vec<_> = directories
            .iter()
            .map(|directory| Trail { directory: directory.clone(), last: None })
            .collect();
        if let Some(head) = log.checkpoint()? {
            let found = &head.checkpoint().origin;
            if found != signers.origin() {
                return Err(Error::OtherKey {
                    path: path.to_owned(),
                    found: found.clone(),
                    key: signers.origin().to_owned(),
                });
            }
            for trail in &mut trails {
                let first = seals_of(&trail.directory, 0, 1)?;
                let Some(first) = first.first() else { continue };
                trail.last = newest_seal(&log, &head, Some(first.trail))?;
            }
        }
        Ok(Self { log, signers, trails, adds_trails, _lock: lock })
    }

    /// Logs the durable seals that are not logged yet. Returns their number; the new head is
    /// durable then.
    pub fn append(&mut self, now: u64) -> Result<u64> {
        let mut count = 0;
        loop {
            let mut append = self.log.append()?;
            let begin = append.size();
            let mut lasts = Vec::new();
            for trail in &self.trails {
                let epoch = trail.last.map_or(0, |last| last.epoch() + 1);
                let seals = seals_of(&trail.directory, epoch, SEALS_MAX)?;
                let mut last = trail.last;
                if last.is_none() && !seals.is_empty() && begin > 0 && !self.adds_trails {
                    return Err(Error::NewTrail(trail.directory.clone()));
                }
                for seal in seals {
                    if !follows(&seal, last) {
                        let path = trail.directory.clone();
                        return Err(Error::Broken { path, epoch: seal.epoch });
                    }
                    let logged = LoggedSeal::of(&seal);
                    append.push(&logged.entry())?;
                    last = Some(logged);
                }
                lasts.push(last);
            }
            if append.size() == begin {
                return Ok(count);
            }
            let head = Checkpoint::new(self.signers.origin(), append.size(), append.root());
            let mut head = SignedCheckpoint::unsigned(&head).expect("an origin of ours is valid");
            for signer in self.signers.all() {
                head.note_mut().sign(signer, now).expect("a head of ours can be signed");
            }
            count += append.size() - begin;
            append.commit(&head)?;
            self.trails.iter_mut().zip(lasts).for_each(|(trail, last)| trail.last = last);
        }
    }

    /// The head. `None` before the first seal.
    pub fn head(&self) -> Result<Option<SignedCheckpoint>> {
        Ok(self.log.checkpoint()?)
    }

    /// For a witness that has cosigned the first `old` entries.
    pub fn consistency_proof(&self, head: &SignedCheckpoint, old: u64) -> Result<Vec<Hash>> {
        let proof = self.log.open(head)?.consistency_proof(old);
        proof.map_err(|error| Error::Read { path: self.log.path().to_owned(), error })
    }

    /// Keeps the cosignatures of the head.
    pub fn set_cosigned(&self, head: &SignedCheckpoint) -> Result<()> {
        if self.log.checkpoint()?.as_ref() == Some(head) {
            return Ok(());
        }
        Ok(self.log.write_checkpoint(head)?)
    }

    pub fn signers(&self) -> &TrailSigners {
        &self.signers
    }
}

/// Signed, and by the key that the one before names.
fn follows(seal: &Seal, last: Option<LoggedSeal>) -> bool {
    seal.is_signed()
        && last.is_none_or(|last| {
            seal.trail == last.trail()
                && seal.epoch == last.epoch() + 1
                && seal.public == last.next()
        })
}

fn seals_of(directory: &Path, epoch: u64, count_max: usize) -> Result<Vec<Seal>> {
    seals_from(directory, epoch, count_max)
        .map_err(|error| Error::Io { path: directory.to_owned(), error })
}

/// Of this trail, or of any.
fn newest_seal(
    log: &LogDirectory,
    head: &SignedCheckpoint,
    trail: Option<[u8; 16]>,
) -> Result<Option<LoggedSeal>> {
    let read = |error| Error::Read { path: log.path().to_owned(), error };
    let mut reader = log.open(head)?;
    let mut end = reader.size();
    while end > 0 {
        let (first, entries) = reader.bundle(end - 1).map_err(read)?;
        let mut seals = entries.iter().rev().filter_map(|entry| LoggedSeal::parse(entry));
        if let Some(found) = seals.find(|seal| trail.is_none_or(|trail| seal.trail() == trail)) {
            return Ok(Some(found));
        }
        end = first;
    }
    Ok(None)
}

/// The head of a log that a policy believes.
pub struct WitnessedLog {
    log: LogDirectory,
    head: SignedCheckpoint,
    pub belief: Belief,
}

/// Why a log of trails is not believed.
#[derive(Debug, thiserror::Error)]
pub enum LogFault {
    #[error("the log of the trail is missing")]
    Missing,
    #[error("the policy has no `log` line with a key of the log; add a line of log.pub")]
    NoKey,
    #[error("{0:?} is no origin of a log of trails")]
    Origin(String),
    #[error("{0}")]
    PolicyShortfall(#[from] PolicyShortfall),
    #[error("{0}")]
    Log(#[from] Error),
}

impl From<DirectoryError> for LogFault {
    fn from(error: DirectoryError) -> Self {
        Self::Log(error.into())
    }
}

impl WitnessedLog {
    /// Verifies the head's signatures and the policy's quorum, and the right edge of the log.
    pub fn open(path: &Path, policy: &Policy, now: u64) -> std::result::Result<Self, LogFault> {
        if policy.logs().is_empty() {
            return Err(LogFault::NoKey);
        }
        let log = LogDirectory::new(path.to_owned(), 0o640);
        let head = log.checkpoint()?.ok_or(LogFault::Missing)?;
        let origin = &head.checkpoint().origin;
        if parse_trail_origin(origin).is_none() {
            return Err(LogFault::Origin(origin.clone()));
        }
        let belief = policy.check(&head, &[], now)?;
        log.open(&head)?;
        Ok(Self { log, head, belief })
    }

    /// The head.
    pub const fn head(&self) -> &SignedCheckpoint {
        &self.head
    }

    /// False if a logger has replaced the head meanwhile.
    pub fn is_newest(&self) -> Result<bool> {
        let found = self.log.checkpoint()?;
        Ok(found.is_some_and(|found| found.checkpoint() == self.head.checkpoint()))
    }

    /// The newest seal of this trail; if the log has none of it, the newest of another trail: this
    /// one has then taken its place.
    pub fn newest_seal(&self, trail: Option<[u8; 16]>) -> Result<Option<LoggedSeal>> {
        match newest_seal(&self.log, &self.head, trail)? {
            None if trail.is_some() => newest_seal(&self.log, &self.head, None),
            found => Ok(found),
        }
    }

    /// True if the log has a seal of another trail. Reads the whole log.
    pub fn has_other_trail(&self, trail: [u8; 16]) -> Result<bool> {
        let read = |error| Error::Read { path: self.log.path().to_owned(), error };
        let (mut reader, mut index) = (self.log.open(&self.head)?, 0);
        while index < reader.size() {
            let (first, entries) = reader.bundle(index).map_err(read)?;
            let mut seals = entries.iter().filter_map(|entry| LoggedSeal::parse(entry));
            if seals.any(|seal| seal.trail() != trail) {
                return Ok(true);
            }
            index = first + entries.len() as u64;
        }
        Ok(false)
    }

    /// The proof that the log has this seal. `None` if it is not logged.
    pub fn prove(&self, seal: &Seal) -> Result<Option<TlogProof>> {
        let read = |error| Error::Read { path: self.log.path().to_owned(), error };
        let leaf = Hash::leaf(&LoggedSeal::of(seal).entry());
        let mut reader = self.log.open(&self.head)?;
        let mut end = reader.size();
        while end > 0 {
            let first = (end - 1) / 256 * 256;
            let found = reader.leaf_hashes(first).map_err(read)?.iter().position(|at| *at == leaf);
            if let Some(place) = found {
                let index = first + place as u64;
                let hashes = reader.inclusion_proof(index).map_err(read)?;
                let checkpoint = self.head.clone();
                return Ok(Some(TlogProof { extra: None, index, hashes, checkpoint }));
            }
            end = first;
        }
        Ok(None)
    }
}
