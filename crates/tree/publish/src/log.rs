//! Appends revisions to the tree's transparency log.

use std::fmt;

use vouch_log::append::Appender;
use vouch_log::checkpoint::{Checkpoint, SignedCheckpoint};
use vouch_log::evidence::LogEvidence;
use vouch_log::merkle::Hash;
use vouch_log::proof::TlogProof;
use vouch_log::reader::LogReader;
use vouch_log::revision::{LogCert, LogSigners, origin, revision_entry};
use vouch_tree::{BlockHandle, FrameKind, SignedFsinfo};
use vouch_tree_store::{FrameSource as _, Writer, open_log};
use vouch_xdr::Xdr as _;

use crate::error::Error;

/// The keys of the tree's log, and the root key's certificate for them.
pub struct LogPublisher {
    /// Names the tree's own log.
    pub cert: LogCert,
    /// The secret keys.
    pub signers: LogSigners,
}

impl fmt::Debug for LogPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogPublisher").field("cert", &self.cert).finish_non_exhaustive()
    }
}

impl LogPublisher {
    /// The certificate must be the root key's of this tree, valid, and about these keys.
    pub(crate) fn check(&self, writer: &Writer, now: u64) -> Result<(), Error> {
        let hostid = writer.hostid();
        let what = if !self.cert.is_signed_by(&hostid) {
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
