//! Creates inclusion proofs.

use std::io;
use std::path::Path;

use super::files::read_removed_seals;
use super::index::{Index, Term};
use super::{Segment, SegmentFile, segments};
use crate::frame::{Frame, Kind, MAGIC, parse};
use crate::merkle;
use crate::proof::{Proof, SEALS_MAX};
use crate::record::seq_and_time;
use crate::seal::Seal;

/// From the first seal or `since`. `None` without the record, or without a seal over it after
/// `since`. `InvalidInput` above the limit on seals.
pub fn prove(directory: &Path, seq: u64, since: Option<&Seal>) -> io::Result<Option<Proof>> {
    let proof = build_proof(directory, seq, since)?;
    limit_seals(proof, SEALS_MAX)
}

pub(super) fn limit_seals(proof: Option<Proof>, seals_max: usize) -> io::Result<Option<Proof>> {
    match proof {
        Some(proof) if proof.seals.len() > seals_max => {
            let message = format!(
                "the proof would need {} seals, and the limit is {seals_max}: use a later checkpoint that the verifier has stored",
                proof.seals.len()
            );
            Err(io::Error::new(io::ErrorKind::InvalidInput, message))
        }
        proof => Ok(proof),
    }
}

fn build_proof(directory: &Path, seq: u64, since: Option<&Seal>) -> io::Result<Option<Proof>> {
    let mut seals: Vec<Seal> = Vec::new();
    let mut push = |seal: Seal| {
        if since.is_none_or(|since| seal.epoch >= since.epoch) {
            seals.push(seal);
        }
    };
    let removed = read_removed_seals(directory)?;
    each_frame(&removed, 0, |frame| {
        if let Some(seal) = Seal::decode(frame.body) {
            push(seal);
        }
        true
    });
    for file in segments(directory)? {
        let segment = Segment::open(&file)?;
        if let Some(known) = seals_before(&file, &segment, seq) {
            known.into_iter().for_each(&mut push);
            continue;
        }
        let uncompressed = segment.load()?;
        let mut leaves = Vec::new();
        let mut found: Option<(u64, Vec<u8>)> = None;
        let mut is_sealed = false;
        each_frame(&uncompressed, MAGIC.len(), |frame| {
            match frame.kind {
                Kind::Header | Kind::Record => {
                    if frame.kind == Kind::Record
                        && seq_and_time(frame.body).is_some_and(|(at, _)| at == seq)
                    {
                        found = Some((leaves.len() as u64, frame.hashed.to_vec()));
                    }
                    leaves.push(frame.leaf_hash());
                }
                Kind::Checkpoint | Kind::Close => {
                    if let Some(seal) = Seal::decode(frame.body) {
                        push(seal);
                    }
                    is_sealed = found.is_some();
                }
            }
            !is_sealed
        });
        if let Some((index, frame)) = found {
            let path = merkle::inclusion_path(&leaves, index).unwrap_or_default();
            return Ok(is_sealed
                .then_some(Proof { seals, index, path, frame })
                .filter(|proof| !proof.seals.is_empty()));
        }
    }
    Ok(None)
}

fn seals_before(file: &SegmentFile, segment: &Segment, seq: u64) -> Option<Vec<Seal>> {
    let index = Index::open(file, segment)?;
    let (first, count) = index.span;
    if first.checked_add(count)? > seq {
        return None;
    }
    let offsets = index.postings(Term::Seal, b"").ok().filter(|offsets| !offsets.is_empty())?;
    let seal = |offset: u64| {
        let (kind, body) = segment.frame_at(offset).ok()?;
        Seal::decode(&body).filter(|_| matches!(kind, Kind::Checkpoint | Kind::Close))
    };
    let seals: Vec<Seal> = offsets.into_iter().map(seal).collect::<Option<_>>()?;
    // Consecutive epochs up to the closing seal: the list is complete.
    let is_whole = seals.windows(2).all(|pair| pair[1].epoch == pair[0].epoch + 1)
        && seals.last()?.next_seq == first + count;
    is_whole.then_some(seals)
}

pub(super) fn each_frame(bytes: &[u8], from: usize, mut each: impl FnMut(&Frame<'_>) -> bool) {
    let mut at = from;
    while let Some(Ok(frame)) = bytes.get(at..).map(parse) {
        if !each(&frame) {
            return;
        }
        at += frame.len();
    }
}
