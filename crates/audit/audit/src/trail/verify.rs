//! The only trust anchor is the trail's first public key, stored elsewhere. Each seal authenticates
//! everything before it and the next key.

mod report;
mod resync;
mod trust;

use std::collections::VecDeque;
use std::io;
use std::path::Path;

use super::Segment;
use super::files::{SegmentFile, read_removed_seals, segments};
use crate::chain::Chain;
use crate::frame::{self, Frame, FrameError, Header, Kind, MAGIC};
use crate::merkle::Frontier;
use crate::record::{Act, seq_and_time};
use crate::seal::Seal;
pub use report::{Fault, FaultKind, Report};
use resync::{find_seal, seal_follows};
pub use trust::Trust;
use trust::{KnownEnds, administrative, recorded_removal};

/// `each_segment` gets the number of segments done and their total. Fails only if the directory
/// cannot be read.
pub fn verify(
    directory: &Path,
    trust: &Trust,
    mut each_segment: impl FnMut(u64, u64),
) -> io::Result<Report> {
    // Read first, because an active writer may add seals meanwhile.
    let ends = KnownEnds::of(directory, trust);
    let mut verifier = Verifier {
        trust,
        ends,
        report: Report { public: trust.public, ..Report::default() },
        key: trust.public.map(|public| (0, public)),
        chain: None,
        next_seq: None,
        found_checkpoints: vec![false; trust.checkpoints.len()],
        unsealed: 0,
        segment: 0,
        removed: 0,
        recorded_removal: 0,
    };
    let mut files = VecDeque::from(segments(directory)?);
    verifier.verify_removed_seals(
        &read_removed_seals(directory)?,
        files.front().map(|first| first.number),
    );
    let (mut done, mut missing_segment) = (0, None);
    while let Some(file) = files.pop_front() {
        each_segment(done, done + 1 + files.len() as u64);
        done += 1;
        if verifier.verify_file(&file, files.is_empty(), missing_segment == Some(file.number))
            == Presence::Missing
        {
            missing_segment = Some(file.number);
            let seen = verifier.segment;
            files = segments(directory)?.into_iter().filter(|file| file.number > seen).collect();
            verifier.verify_removed_seals(
                &read_removed_seals(directory)?,
                files.front().map(|first| first.number),
            );
        }
    }
    verifier.verify_end();
    Ok(verifier.report)
}

struct Verifier<'t> {
    trust: &'t Trust,
    ends: KnownEnds,
    report: Report,
    key: Option<(u64, [u8; 32])>,
    chain: Option<Chain>,
    next_seq: Option<u64>,
    found_checkpoints: Vec<bool>,
    unsealed: u64,
    segment: u64,
    removed: u64,
    recorded_removal: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Present,
    Missing,
}

struct SegmentState {
    tree: Option<Frontier>,
    trail: [u8; 16],
    is_closed: bool,
    unsealed_start: (u64, u64),
}

impl Verifier<'_> {
    fn fault(&mut self, kind: FaultKind, offset: usize, seq: u64, description: impl Into<String>) {
        self.report.faults.push(Fault {
            kind,
            segment: self.segment,
            offset: offset as u64,
            seq,
            description: description.into(),
        });
    }

    fn verify_removed_seals(&mut self, bytes: &[u8], first: Option<u64>) {
        let seen = self.segment;
        let mut at = 0;
        let mut is_closed = true;
        while at < bytes.len() {
            let parsed = frame::parse(&bytes[at..])
                .ok()
                .and_then(|frame| Some((frame, Seal::decode(frame.body)?)));
            let Some((frame, seal)) = parsed else {
                if first.is_none_or(|first| first > self.segment + 1) || !is_closed {
                    self.fault(
                        FaultKind::Unreadable,
                        at,
                        0,
                        "the file with the seals of removed segments is damaged",
                    );
                }
                return;
            };
            if first.is_some_and(|first| seal.segment >= first) {
                break;
            }
            if seal.segment <= seen {
                at += frame.len();
                continue;
            }
            if seal.segment != self.segment + u64::from(is_closed) {
                let seq = self.next_seq.unwrap_or(1);
                self.fault(
                    FaultKind::Removed,
                    at,
                    seq,
                    format!(
                        "the seals of removed segments before segment {} are missing",
                        seal.segment
                    ),
                );
            }
            is_closed = frame.kind == Kind::Close;
            self.segment = seal.segment;
            self.verify_signature(&seal, at);
            self.chain = Some(Chain(seal.chain).extend(&frame.leaf_hash()));
            self.next_seq = Some(seal.next_seq);
            at += frame.len();
        }
        if self.segment > seen {
            self.removed = self.segment;
        }
        if !is_closed {
            let seq = self.next_seq.unwrap_or(1);
            self.fault(
                FaultKind::Removed,
                at,
                seq,
                format!("the last seal of removed segment {} is missing", self.segment),
            );
        }
    }

    fn verify_file(&mut self, file: &SegmentFile, is_last: bool, must_exist: bool) -> Presence {
        let opened = Segment::open_listed(file);
        if !must_exist
            && opened.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        {
            return Presence::Missing;
        }
        let expected = self.segment + 1;
        self.segment = file.number;
        let seq = self.next_seq.unwrap_or(1);
        if file.number != expected {
            let missing = if file.number == expected + 1 {
                format!("segment {expected} is")
            } else {
                format!("segments {expected} to {} are", file.number - 1)
            };
            self.fault(FaultKind::Removed, 0, seq, format!("{missing} missing"));
            (self.chain, self.next_seq, self.key) = (None, None, None);
        }
        self.report.segments += 1;
        let bytes = match opened.and_then(|segment| segment.load()) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.fault(FaultKind::Unreadable, 0, seq, error.to_string());
                (self.chain, self.next_seq, self.key) = (None, None, None);
                return Presence::Present;
            }
        };
        self.verify_segment(&bytes, is_last && !file.is_compressed);
        Presence::Present
    }

    fn verify_segment(&mut self, bytes: &[u8], is_last: bool) {
        let mut state = SegmentState {
            tree: Some(Frontier::default()),
            trail: [0; 16],
            is_closed: false,
            unsealed_start: (0, 0),
        };
        let mut at = MAGIC.len();
        if !bytes.starts_with(&MAGIC) {
            if is_last && MAGIC.starts_with(bytes) {
                return self
                    .report
                    .notes
                    .push(format!("segment {} is being created", self.segment));
            }
            self.fault(
                FaultKind::Altered,
                0,
                self.next_seq.unwrap_or(1),
                "the segment does not start with the magic bytes",
            );
            at = at.min(bytes.len());
        }
        let mut is_first = true;
        while at < bytes.len() {
            let seq = self.next_seq.unwrap_or(0);
            if state.is_closed {
                self.fault(
                    FaultKind::Inserted,
                    at,
                    seq,
                    format!("{} bytes follow the closing seal", bytes.len() - at),
                );
                return;
            }
            let frame = match frame::parse(&bytes[at..]) {
                Ok(frame) if (frame.kind == Kind::Header) == is_first => frame,
                Err(FrameError::Truncated) if is_last && !seal_follows(bytes, at, &state.trail) => {
                    self.report.notes.push(format!(
                        "the last frame, at byte {at} of segment {}, is incomplete",
                        self.segment
                    ));
                    break;
                }
                _ => {
                    if self.chain.is_some() || is_first {
                        self.fault(FaultKind::Altered, at, seq, "a malformed frame");
                    }
                    self.lose_chain(&mut state);
                    match find_seal(bytes, at + 1, &state.trail) {
                        Some(next) => at = next,
                        None => break,
                    }
                    is_first = false;
                    continue;
                }
            };
            let was_intact = self.chain.is_some() || is_first;
            self.verify_frame(&frame, &bytes[at + frame.len()..], at, &mut state);
            is_first = false;
            at += frame.len();
            if was_intact && self.chain.is_none() && !state.is_closed {
                // The altered bytes may include the frame's length: resume at the next seal.
                at = find_seal(bytes, at - frame.len() + 1, &state.trail).unwrap_or(bytes.len());
            }
        }
        if !state.is_closed && !is_last {
            if self.chain.is_some() {
                let seq = self.next_seq.unwrap_or(0);
                self.fault(FaultKind::Cut, at, seq, "the segment ends without its closing seal");
            }
            (self.chain, self.next_seq, self.key) = (None, None, None);
        }
    }

    fn lose_chain(&mut self, state: &mut SegmentState) {
        self.chain = None;
        state.tree = None;
    }

    fn verify_frame(
        &mut self,
        frame: &Frame<'_>,
        rest: &[u8],
        at: usize,
        state: &mut SegmentState,
    ) {
        if frame.kind == Kind::Header {
            return self.verify_header(frame, at, state);
        }
        let leaf = frame.leaf_hash();
        if let Some(chain) = self.chain {
            let next = chain.extend(&leaf);
            if next.tag() == frame.tag {
                self.chain = Some(next);
            } else if let Some((kind, description)) = self.diagnose(chain, frame, rest) {
                let seq = self.next_seq.unwrap_or(0);
                self.fault(kind, at, seq, description);
                if kind == FaultKind::Inserted {
                    return;
                }
                self.lose_chain(state);
            }
        }
        match frame.kind {
            Kind::Record => {
                if let Some(tree) = &mut state.tree {
                    tree.push(leaf);
                }
                self.verify_record(frame, at);
            }
            Kind::Checkpoint | Kind::Close => {
                state.is_closed = frame.kind == Kind::Close;
                match Seal::decode(frame.body) {
                    Some(seal) => self.verify_seal(&seal, frame, at, state),
                    None if self.chain.is_some() => self.fault(
                        FaultKind::Forged,
                        at,
                        self.next_seq.unwrap_or(0),
                        "a seal has the wrong length",
                    ),
                    None => {}
                }
                state.unsealed_start = (self.next_seq.unwrap_or(0), (at + frame.len()) as u64);
            }
            Kind::Header => {}
        }
    }

    fn diagnose(
        &self,
        chain: Chain,
        frame: &Frame<'_>,
        rest: &[u8],
    ) -> Option<(FaultKind, String)> {
        let follower = frame::parse(rest).ok();
        let follows = |chain: Chain, next: &Frame<'_>| {
            Some(chain.extend(&next.leaf_hash())).filter(|chain| chain.tag() == next.tag)
        };
        if let Some(next) = &follower
            && let Some(after) = follows(chain, next)
            && frame::parse(&rest[next.len()..])
                .ok()
                .is_none_or(|third| follows(after, &third).is_some())
        {
            return Some((
                FaultKind::Inserted,
                "this frame is not part of the chain: the next frame continues from the previous one".into(),
            ));
        }
        let expected_seq = self.next_seq.unwrap_or(0);
        if frame.kind != Kind::Record {
            return Some(match Seal::decode(frame.body).filter(Seal::is_signed) {
                Some(seal) if seal.next_seq > expected_seq => {
                    (FaultKind::Removed, format!("records {expected_seq} to {} are missing", seal.next_seq - 1))
                }
                Some(_) => (
                    FaultKind::Rewritten,
                    "the frames before this seal are not those that were sealed, and the chain was recomputed".into(),
                ),
                None => (FaultKind::Altered, "the seal was altered".into()),
            });
        }
        let seq_of = |frame: &Frame<'_>| {
            (frame.kind == Kind::Record)
                .then(|| seq_and_time(frame.body))
                .flatten()
                .map(|(seq, _)| seq)
        };
        let seq = seq_of(frame)?;
        Some(if seq == expected_seq {
            (FaultKind::Altered, "the record does not match the chain".into())
        } else if follower.as_ref().and_then(seq_of).is_some_and(|next| next < seq) {
            (FaultKind::Reordered, format!("record {seq} is in the place of record {expected_seq}"))
        } else if seq > expected_seq && seq - expected_seq < SEQ_JUMP_MAX {
            (FaultKind::Removed, format!("records {expected_seq} to {} are missing", seq - 1))
        } else if seq < expected_seq {
            (FaultKind::Reordered, format!("record {seq} is in the place of record {expected_seq}"))
        } else {
            (FaultKind::Altered, "the record's sequence number was altered".into())
        })
    }

    fn verify_header(&mut self, frame: &Frame<'_>, at: usize, state: &mut SegmentState) {
        let seq = self.next_seq.unwrap_or(1);
        let Some(header) = Header::decode(frame.body) else {
            self.fault(FaultKind::Altered, at, seq, "the header cannot be decoded");
            return self.lose_chain(state);
        };
        state.trail = header.trail;
        let chain = Chain(header.previous).extend(&frame.leaf_hash());
        let first = self.segment == 1;
        let mut wrong = Vec::new();
        let mut check = |right: bool, description: &'static str| {
            if !right {
                wrong.push(description);
            }
        };
        check(chain.tag() == frame.tag, "the header was altered");
        check(header.segment == self.segment, "the header belongs to another segment");
        check(
            *self.report.trail.get_or_insert(header.trail) == header.trail,
            "the header belongs to another trail",
        );
        check(
            !first
                || (header.previous == Chain::START.0
                    && header.first_seq == 1
                    && header.epoch == 0),
            "the header is not that of a first segment",
        );
        check(
            self.chain.is_none_or(|chain| chain.0 == header.previous),
            "the chain does not continue from the previous segment",
        );
        check(
            self.next_seq.is_none_or(|next| next == header.first_seq),
            "the sequence numbers do not continue from the previous segment",
        );
        // Usually the wrong public key was given: that is the first thing to know.
        let is_other_start =
            first && self.trust.public.is_some_and(|public| public != header.public);
        check(!is_other_start, OTHER_START);
        check(
            is_other_start || self.key.is_none_or(|key| key == (header.epoch, header.public)),
            "the header names another key than the previous seal",
        );
        if wrong.is_empty() {
            if self.report.public.is_none() {
                self.report.public = Some(header.public);
                self.report.notes.push(
                    "no public key was given, so the first key in the trail itself is trusted"
                        .into(),
                );
            }
            self.key = Some((header.epoch, header.public));
            (self.chain, self.next_seq) = (Some(chain), Some(header.first_seq));
            state.unsealed_start = (header.first_seq, at as u64);
            if let Some(tree) = &mut state.tree {
                tree.push(frame.leaf_hash());
            }
        } else {
            let kind =
                if wrong == [OTHER_START] { FaultKind::OtherKey } else { FaultKind::Altered };
            self.fault(kind, at, seq, wrong.join("; "));
            self.lose_chain(state);
        }
    }

    fn verify_record(&mut self, frame: &Frame<'_>, at: usize) {
        self.report.records += 1;
        self.unsealed += 1;
        let Some((seq, time)) = seq_and_time(frame.body) else {
            if self.chain.is_some() {
                self.fault(
                    FaultKind::Altered,
                    at,
                    self.next_seq.unwrap_or(0),
                    "a record is too short",
                );
            }
            return;
        };
        if self.chain.is_none() {
            return;
        }
        if let Some(expected_seq) = self.next_seq.filter(|expected_seq| *expected_seq != seq) {
            self.fault(
                FaultKind::Rewritten,
                at,
                expected_seq,
                format!("record {seq} is in the place of record {expected_seq}, and the chain was recomputed"),
            );
        }
        match administrative(frame.body) {
            Some((act, detail)) if act == Act::Recovered as u16 => {
                self.report.notes.push(format!(
                    "segment {}, record {seq}: the trail was continued after a crash: {detail:?}",
                    self.segment
                ));
            }
            Some((act, detail)) if act == Act::Pruned as u16 => {
                self.recorded_removal =
                    self.recorded_removal.max(recorded_removal(&detail).unwrap_or(0));
            }
            _ => {}
        }
        self.next_seq = Some(seq.wrapping_add(1));
        let (first, _) = self.report.span.unwrap_or((seq, seq));
        self.report.span = Some((first, seq));
        // Records are in order of durability, not of time.
        let (first, last) = self.report.times.unwrap_or((time, time));
        self.report.times = Some((first.min(time), last.max(time)));
    }

    fn verify_seal(&mut self, seal: &Seal, frame: &Frame<'_>, at: usize, state: &mut SegmentState) {
        let sound = self.verify_signature(seal, at);
        if sound && self.chain.is_some() {
            // The chain is intact, so the seal's statements must hold.
            let before = self.chain_before(seal, frame);
            let tree = state.tree.as_ref();
            if !before
                || tree.is_some_and(|tree| tree.count() != seal.leaves || tree.root() != seal.root)
                || self.next_seq != Some(seal.next_seq)
            {
                let (seq, unsealed_start) = state.unsealed_start;
                let description = format!(
                    "records {seq} to {} are not those that were sealed, and the chain was recomputed",
                    seal.next_seq.saturating_sub(1)
                );
                self.fault(FaultKind::Rewritten, unsealed_start as usize, seq, description);
                state.tree = None;
            }
        }
        if sound {
            self.unsealed = 0;
            self.chain = Some(Chain(seal.chain).extend(&frame.leaf_hash()));
            self.next_seq = Some(seal.next_seq);
        }
    }

    fn chain_before(&self, seal: &Seal, frame: &Frame<'_>) -> bool {
        self.chain == Some(Chain(seal.chain).extend(&frame.leaf_hash()))
    }

    fn verify_signature(&mut self, seal: &Seal, at: usize) -> bool {
        let seq = self.next_seq.unwrap_or(0);
        if !seal.is_signed() {
            if self.chain.is_some() || self.report.faults.is_empty() {
                self.fault(FaultKind::Forged, at, seq, "the seal's signature is invalid");
            }
            return false;
        }
        let trail = *self.report.trail.get_or_insert(seal.trail);
        if let Some((epoch, public)) = self.key
            && (seal.epoch != epoch || seal.public != public || seal.trail != trail)
        {
            let is_other_start =
                seal.epoch == 0 && self.trust.public.is_some_and(|public| public != seal.public);
            if seal.epoch > epoch && seal.trail == trail {
                self.fault(
                    FaultKind::Removed,
                    at,
                    seq,
                    format!("seals {epoch} to {} are missing", seal.epoch - 1),
                );
            } else if !is_other_start {
                let kind = if seal.epoch > epoch { FaultKind::Removed } else { FaultKind::Forged };
                self.fault(
                    kind,
                    at,
                    seq,
                    "the seal is signed by another key than the previous seal names",
                );
            } else if self.report.faults.iter().all(|fault| fault.kind != FaultKind::OtherKey) {
                // The header of the first segment may have said it.
                self.fault(FaultKind::OtherKey, at, seq, OTHER_START);
            }
        }
        self.key = Some((seal.epoch + 1, seal.next));
        for (index, checkpoint) in self.trust.checkpoints.iter().enumerate() {
            if checkpoint.epoch == seal.epoch && checkpoint == seal {
                self.found_checkpoints[index] = true;
            }
        }
        self.ends.observe_seal(seal);
        self.report.last = Some(seal.clone());
        true
    }
}

const OTHER_START: &str = "the trail begins with another key than the given one: the public key belongs to another trail, or this trail was put in its place";
const SEQ_JUMP_MAX: u64 = 1 << 32;
