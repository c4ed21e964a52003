//! Appends revisions to the tree's transparency log.

use std::fmt;

use vouch_log::append::Appender;
use vouch_log::checkpoint::{Checkpoint, SignedCheckpoint};
use vouch_log::evidence::LogEvidence;
use vouch_log::merkle::Hash;
use vouch_log::proof::TlogProof;
use vouch_log::reader::{LogReader, ReadError};
use vouch_log::revision::{LogCert, LogSigners, origin, revision_entry};
use vouch_tree::{BlockHandle, FrameKind, SignedFsinfo};
use vouch_tree_store::{FrameSource as _, LogFiles, Pending, PutCounts, Writer, open_log};
use vouch_xdr::Xdr as _;

use crate::error::Error;

/// The keys of the tree's log, and the root key's certificate for them.
pub struct LogPublisher {
    /// Names the tree's own log.
    pub cert: LogCert,
    /// The secret keys.
    pub signers: LogSigners,
    /// Asks witnesses about each new head. `None`: revisions are visible at once.
    pub cosign: Option<Box<CosignFn>>,
}

/// Asks witnesses, for a bounded time. Called with a head that is durable: if the publisher is
/// killed meanwhile, its next run asks about the same head again.
pub type CosignFn = dyn Fn(&mut PendingLog<'_>) -> CosignOutcome + Send + Sync;

/// The publisher's decision on a revision that witnesses were asked about.
#[derive(Debug)]
pub enum CosignOutcome {
    /// Readers see it, with these cosignatures.
    Publish(SignedCheckpoint),
    /// It stays pending, with the cosignatures so far.
    Hold(SignedCheckpoint),
}

/// A head that witnesses may cosign.
pub struct PendingLog<'a> {
    evidence: &'a LogEvidence,
    signed_fsinfo: &'a [u8],
    files: LogFiles,
}

impl PendingLog<'_> {
    /// The log's certificate, and the checkpoint with the cosignatures so far.
    pub const fn evidence(&self) -> &LogEvidence {
        self.evidence
    }

    /// The newest revision, which the evidence proves.
    pub const fn signed_fsinfo(&self) -> &[u8] {
        self.signed_fsinfo
    }

    /// For a witness that has cosigned the first `old` entries.
    pub fn consistency_proof(&mut self, old: u64) -> Result<Vec<Hash>, ReadError> {
        open_log(self.files.clone(), &self.evidence.proof.checkpoint)?.consistency_proof(old)
    }
}

impl fmt::Debug for LogPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogPublisher").field("cert", &self.cert).finish_non_exhaustive()
    }
}

impl LogPublisher {
    /// Makes the revision visible, after the witnesses if there are any. False: it is held.
    pub(crate) fn commit(
        &self,
        writer: &Writer,
        pending: Pending,
    ) -> Result<(PutCounts, bool), Error> {
        let Some(ask) = &self.cosign else { return Ok((writer.commit_pending(pending)?, true)) };
        let progress = writer.progress();
        writer.hold(&pending)?;
        let is_visible = settle(writer, pending, ask)?;
        Ok((progress, is_visible))
    }

    /// Settles a revision that an earlier run has left.
    pub(crate) fn settle_pending(&self, writer: &Writer) -> Result<(), Error> {
        let Some(pending) = writer.pending()? else { return Ok(()) };
        let number = pending.revision.number;
        let is_visible = match &self.cosign {
            None => {
                writer.commit_pending(pending)?;
                true
            }
            Some(ask) => settle(writer, pending, ask)?,
        };
        if is_visible { Ok(()) } else { Err(Error::Held { revision: number }) }
    }

    /// The certificate must be the root key's of this tree, valid, and about these keys.
    pub(crate) fn check(&self, writer: &Writer, now: u64) -> Result<(), Error> {
        let hostid = writer.hostid();
        let what = if !self.cert.is_certified(&hostid, None) {
            "is not by the root key of this tree"
        } else if *self.cert.log() != hostid {
            "is for another log"
        } else if *self.cert.keys() != self.signers.keys() {
            "is not about the key in log.key"
        } else if !self.cert.is_valid_at(now) {
            "is not valid now"
        } else {
            return self.check_serial(writer);
        };
        Err(Error::Key(format!(
            "the certificate of the log's key {what}; make another with `vouch certify`"
        )))
    }

    fn check_serial(&self, writer: &Writer) -> Result<(), Error> {
        match writer.evidence()? {
            Some(before) if before.cert.serial() > self.cert.serial() => Err(Error::Key(format!(
                "certificate {} has replaced certificate {} of the log's key",
                before.cert.serial(),
                self.cert.serial()
            ))),
            _ => Ok(()),
        }
    }

    /// Stores the files of the log with these revisions, the last of which becomes the head, and
    /// returns the evidence for its commit. Earlier revisions that the log lacks come first: all of
    /// them if the tree has no log yet.
    pub(crate) fn append(
        &self,
        writer: &Writer,
        revisions: &[&[u8]],
        now: u64,
    ) -> Result<LogEvidence, Error> {
        writer.check_log_is_newest()?;
        let mut tree = match writer.evidence()? {
            None => {
                let mut tree = Appender::new();
                push_history(writer, &mut tree, None)?;
                tree
            }
            Some(before) => {
                let mut reader = open_log(writer.log_files(), &before.proof.checkpoint)?;
                let mut tree = Appender::open(&mut reader)?;
                let last = match reader.size() {
                    0 => None,
                    size => reader.leaf_hashes(size - 1)?.first().copied(),
                };
                push_history(writer, &mut tree, last)?;
                tree
            }
        };
        for revision in revisions {
            tree.push(&revision_entry(revision)).map_err(Error::LogFull)?;
        }
        let (size, root) = (tree.size(), tree.root());
        for file in tree.finish() {
            writer.put_log_file(&file)?;
        }
        let checkpoint = self.sign(writer, size, root, now)?;
        // Read back: the head is signed only if its files give it.
        let hashes = LogReader::open(writer.log_files(), size, root)?.inclusion_proof(size - 1)?;
        let proof = TlogProof { extra: None, index: size - 1, hashes, checkpoint };
        Ok(LogEvidence { cert: self.cert.clone(), proof })
    }

    fn sign(
        &self,
        writer: &Writer,
        size: u64,
        root: Hash,
        now: u64,
    ) -> Result<SignedCheckpoint, Error> {
        let head = Checkpoint::new(&origin(&writer.hostid()), size, root);
        let mut checkpoint =
            SignedCheckpoint::unsigned(&head).expect("an origin of ours makes a checkpoint");
        for signer in self.signers.all() {
            checkpoint
                .note_mut()
                .sign(signer, now)
                .map_err(|error| Error::Key(format!("the log's key: {error}")))?;
        }
        Ok(checkpoint)
    }
}

/// The head of a log that [`cosign`] has asked about.
#[derive(Debug, Clone)]
pub struct CosignedHead {
    /// Number of the revision.
    pub revision: u64,
    /// False: readers do not see it yet.
    pub is_visible: bool,
    /// With all cosignatures so far.
    pub evidence: LogEvidence,
}

/// Asks witnesses about the newest revision, or about a pending one, which then may become visible.
/// `None` for a tree without a log.
pub fn cosign(
    writer: &Writer,
    ask: &dyn Fn(&mut PendingLog<'_>) -> CosignOutcome,
) -> Result<Option<CosignedHead>, Error> {
    if let Some(pending) = writer.pending()? {
        let revision = pending.revision.number;
        let is_visible = settle(writer, pending, ask)?;
        let waiting = writer.pending()?.and_then(|pending| pending.revision.evidence);
        let evidence = waiting.map_or_else(|| writer.evidence(), |found| Ok(Some(*found)))?;
        return Ok(evidence.map(|evidence| CosignedHead { revision, is_visible, evidence }));
    }
    let (Some(evidence), Some(head)) = (writer.evidence()?, writer.head()) else {
        return Ok(None);
    };
    let outcome = ask(&mut PendingLog {
        evidence: &evidence,
        signed_fsinfo: &head,
        files: writer.log_files(),
    });
    let (CosignOutcome::Publish(checkpoint) | CosignOutcome::Hold(checkpoint)) = outcome;
    let next = with_checkpoint(&evidence, checkpoint)?;
    if next != evidence {
        writer.set_evidence(&next)?;
    }
    let revision = writer.revisions().last().map_or(0, |newest| newest.number);
    Ok(Some(CosignedHead { revision, is_visible: true, evidence: next }))
}

/// True if it is visible now.
fn settle(
    writer: &Writer,
    mut pending: Pending,
    ask: &dyn Fn(&mut PendingLog<'_>) -> CosignOutcome,
) -> Result<bool, Error> {
    let Some(evidence) = pending.revision.evidence.take() else {
        return Err(Error::Option("a pending revision has no evidence".to_owned()));
    };
    let outcome = ask(&mut PendingLog {
        evidence: &evidence,
        signed_fsinfo: &pending.revision.signed,
        files: writer.log_files(),
    });
    let (checkpoint, is_visible) = match outcome {
        CosignOutcome::Publish(checkpoint) => (checkpoint, true),
        CosignOutcome::Hold(checkpoint) => (checkpoint, false),
    };
    let next = with_checkpoint(&evidence, checkpoint)?;
    let has_more = next != *evidence;
    pending.revision.evidence = Some(Box::new(next));
    if is_visible {
        writer.commit_pending(pending)?;
    } else if has_more {
        writer.hold(&pending)?;
    }
    Ok(is_visible)
}

fn with_checkpoint(
    evidence: &LogEvidence,
    checkpoint: SignedCheckpoint,
) -> Result<LogEvidence, Error> {
    if checkpoint.checkpoint() != evidence.proof.checkpoint.checkpoint() {
        return Err(Error::Option("the cosigned checkpoint is another one".to_owned()));
    }
    let proof = TlogProof { checkpoint, ..evidence.proof.clone() };
    Ok(LogEvidence { cert: evidence.cert.clone(), proof })
}

/// Adds the revisions after the entry `last`, as far as the database has their signed fsinfos.
fn push_history(writer: &Writer, tree: &mut Appender, last: Option<Hash>) -> Result<(), Error> {
    let mut handles: Vec<BlockHandle> = Vec::new();
    let mut next = writer.revisions().last().map(|newest| newest.fsinfo);
    while let Some(handle) = next {
        let Some(signed) = signed_fsinfo(writer, &handle)? else { break };
        if last == Some(Hash::leaf(&revision_entry(&signed))) {
            break;
        }
        let parsed = SignedFsinfo::from_xdr(&signed).map_err(Error::Head)?;
        next = parsed.unverified().map_err(Error::Head)?.previous;
        handles.push(handle);
    }
    for handle in handles.iter().rev() {
        let Some(signed) = signed_fsinfo(writer, handle)? else { continue };
        tree.push(&revision_entry(&signed)).map_err(Error::LogFull)?;
        for file in tree.take_full() {
            writer.put_log_file(&file)?;
        }
    }
    Ok(())
}

fn signed_fsinfo(writer: &Writer, handle: &BlockHandle) -> Result<Option<Vec<u8>>, Error> {
    let Some(stored) = writer.get(handle)? else { return Ok(None) };
    let opened = vouch_tree::frame::open(&writer.iv(), handle, FrameKind::Fsinfo, &stored);
    Ok(opened.ok().map(|payload| payload.to_vec()))
}
