//! Creates inclusion proofs.

use std::io;
use std::path::Path;

use super::files::read_removed_seals;
use super::index::{Index, Term};
use super::{Segment, SegmentFile, segments};
use crate::frame::{Frame, Kind, MAGIC, parse};
use crate::merkle;
use crate::proof::{Proof, SEAL_PREFIX_LEN, SEALS_LEN_MAX};
use crate::record::seq_and_time;
use crate::seal::Seal;

/// From the first seal or `since`. `None` without the record, or without a seal over it after
/// `since`. `InvalidInput` if the seals are too long for a proof.
pub fn prove(directory: &Path, seq: u64, since: Option<&Seal>) -> io::Result<Option<Proof>> {
    prove_within(directory, seq, since, SEALS_LEN_MAX)
}

/// With the seal over the record alone, for a verifier that knows this seal from elsewhere.
pub fn prove_under_seal(directory: &Path, seq: u64) -> io::Result<Option<Proof>> {
    let mut seals = SealList { is_last_only: true, ..SealList::default() };
    find_record(directory, seq, &mut seals)
}

pub(super) fn prove_within(
    directory: &Path,
    seq: u64,
    since: Option<&Seal>,
    len_max: usize,
) -> io::Result<Option<Proof>> {
    let first_epoch = since.map_or(0, |since| since.epoch);
    let mut seals = SealList { first_epoch, len_max, ..SealList::default() };
    let proof = find_record(directory, seq, &mut seals)?;
    if proof.is_some() && seals.len > len_max {
        let message = format!(
            "the proof would need {} seals of {} bytes, and the limit is {len_max} bytes: use a later checkpoint that the verifier has stored",
            seals.count, seals.len
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(proof)
}

/// The seals of a proof. Those over the limit are counted and not kept.
#[derive(Default)]
struct SealList {
    first_epoch: u64,
    is_last_only: bool,
    len_max: usize,
    kept: Vec<Seal>,
    count: u64,
    len: usize,
}

impl SealList {
    fn push(&mut self, seal: Seal) {
        if seal.epoch < self.first_epoch {
            return;
        }
        self.count += 1;
        self.len += SEAL_PREFIX_LEN + seal.encoded_len();
        if self.is_last_only || self.len > self.len_max {
            self.kept.clear();
        }
        self.kept.push(seal);
    }
}

fn find_record(directory: &Path, seq: u64, seals: &mut SealList) -> io::Result<Option<Proof>> {
    let removed = read_removed_seals(directory)?;
    each_frame(&removed, 0, |frame| {
        if let Some(seal) = Seal::decode(frame.body) {
            seals.push(seal);
        }
        true
    });
    for file in segments(directory)? {
        let segment = Segment::open(&file)?;
        if let Some(known) = seals_before(&file, &segment, seq) {
            known.into_iter().for_each(|seal| seals.push(seal));
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
                        seals.push(seal);
                    }
                    is_sealed = found.is_some();
                }
            }
            !is_sealed
        });
        if let Some((index, frame)) = found {
            let path = merkle::inclusion_path(&leaves, index).unwrap_or_default();
            let seals = std::mem::take(&mut seals.kept);
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
