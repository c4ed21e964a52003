//! Verifies a trail: finds records that were altered, removed, inserted, reordered or cut off after
//! they were sealed.
//!
//! The only trust anchor is the trail's first public key, which the auditor has stored elsewhere.
//! Each seal authenticates everything before it and the next key. Verification holds one segment in
//! memory.

mod find;
mod report;
mod told;

use std::collections::VecDeque;
use std::io;
use std::path::Path;

use super::files::{SegmentFile, segments};
use super::{Segment, segments_removed};
use crate::chain::Chain;
use crate::frame::{self, Frame, FrameError, Header, Kind, MAGIC};
use crate::merkle::Frontier;
use crate::record::{Act, seq_and_time};
use crate::seal::Seal;
use find::{find_seal, seal_follows};
pub use report::{Fault, FaultKind, Report};
pub use told::Trust;
use told::{Ends, administrative, told_removed};

/// Verifies the trail in a directory. `each_segment` receives the progress: the segments done and
/// their total. Fails only if the directory cannot be read.
pub fn verify(directory: &Path, trust: &Trust, mut each_segment: impl FnMut(u64, u64)) -> io::Result<Report> {
    // Read before the segments, because an active writer may add seals in the meantime.
    let ends = Ends::of(directory, trust);
    let mut at = Verifier {
        trust,
        ends,
        report: Report { public: trust.public, ..Report::default() },
        key: trust.public.map(|public| (0, public)),
        chain: None,
        next_seq: None,
        met: vec![false; trust.checkpoints.len()],
        unsealed: 0,
        segment: 0,
        removed: 0,
        told_removed: 0,
    };
    let mut files = VecDeque::from(segments(directory)?);
    at.removed(&segments_removed(directory)?, files.front().map(|first| first.number));
    let (mut done, mut gone) = (0, None);
    while let Some(file) = files.pop_front() {
        each_segment(done, done + 1 + files.len() as u64);
        done += 1;
        if at.file(directory, &file, files.is_empty(), gone == Some(file.number)) == Met::Gone {
            // Retention removed this segment, and possibly others. Continue with their seals, and
            // expect a retention record.
            gone = Some(file.number);
            let seen = at.segment;
            files = segments(directory)?.into_iter().filter(|file| file.number > seen).collect();
            at.removed(&segments_removed(directory)?, files.front().map(|first| first.number));
        }
    }
    at.end();
    Ok(at.report)
}

struct Verifier<'t> {
    trust: &'t Trust,
    ends: Ends,
    report: Report,
    /// Epoch and public key of the next seal, if known.
    key: Option<(u64, [u8; 32])>,
    /// The chain value, if intact so far.
    chain: Option<Chain>,
    next_seq: Option<u64>,
    met: Vec<bool>,
    unsealed: u64,
    segment: u64,
    /// The last segment of which only seals are left, and the last one that a retention record
    /// names.
    removed: u64,
    told_removed: u64,
}

/// Whether a segment exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Met {
    There,
    Gone,
}

/// State within a segment.
struct Walk {
    tree: Option<Frontier>,
    trail: [u8; 16],
    is_closed: bool,
    /// First record and its offset after the last seal.
    since: (u64, u64),
}

impl Verifier<'_> {
    fn fault(&mut self, kind: FaultKind, offset: usize, seq: u64, what: impl Into<String>) {
        self.report.faults.push(Fault { kind, segment: self.segment, offset: offset as u64, seq, what: what.into() });
    }

    /// Verifies the seals of removed segments up to `first`. Segments that still exist, because a
    /// removal was interrupted, are verified like all others.
    fn removed(&mut self, bytes: &[u8], first: Option<u64>) {
        let seen = self.segment;
        let mut at = 0;
        let mut is_closed = true;
        while at < bytes.len() {
            let parsed = frame::parse(&bytes[at..]).ok().and_then(|frame| Some((frame, Seal::decode(frame.body)?)));
            let Some((frame, seal)) = parsed else {
                // An interrupted removal may have left an incomplete frame; its segment then still
                // exists.
                if first.is_none_or(|first| first > self.segment + 1) || !is_closed {
                    self.fault(FaultKind::Unreadable, at, 0, "the file of removed segments' seals is damaged");
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
                    format!("among the seals of removed segments, those before segment {} are missing", seal.segment),
                );
            }
            is_closed = frame.kind == Kind::Close;
            self.segment = seal.segment;
            self.seal_itself(&seal, at);
            self.chain = Some(Chain(seal.chain).then(&frame.leaf()));
            self.next_seq = Some(seal.next_seq);
            at += frame.len();
        }
        if self.segment > seen {
            self.removed = self.segment;
        }
        if !is_closed {
            let seq = self.next_seq.unwrap_or(1);
            self.fault(FaultKind::Removed, at, seq, format!("the last seal of removed segment {} is missing", self.segment));
        }
    }

    /// Verifies a segment, unless it is gone. If `must_be` is set, a missing segment is a fault.
    fn file(&mut self, directory: &Path, file: &SegmentFile, is_last: bool, must_be: bool) -> Met {
        let packed = SegmentFile::packed(directory, file.number);
        let opened = match Segment::open(file) {
            // The segment was compressed in between. The compressed file exists before the original
            // is removed.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !file.packed => Segment::open(&packed),
            other => other,
        };
        if !must_be && opened.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Met::Gone;
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
                return Met::There;
            }
        };
        self.bytes(&bytes, is_last && !file.packed);
        Met::There
    }

    fn bytes(&mut self, bytes: &[u8], is_last: bool) {
        let mut walk = Walk { tree: Some(Frontier::default()), trail: [0; 16], is_closed: false, since: (0, 0) };
        let mut at = MAGIC.len();
        if !bytes.starts_with(&MAGIC) {
            if is_last && MAGIC.starts_with(bytes) {
                return self.report.notes.push(format!("segment {} is being made", self.segment));
            }
            self.fault(FaultKind::Altered, 0, self.next_seq.unwrap_or(1), "the segment does not begin as segments do");
            at = at.min(bytes.len());
        }
        let mut is_first = true;
        while at < bytes.len() {
            let seq = self.next_seq.unwrap_or(0);
            if walk.is_closed {
                self.fault(FaultKind::Inserted, at, seq, format!("{} bytes follow the segment's end", bytes.len() - at));
                return;
            }
            let frame = match frame::parse(&bytes[at..]) {
                Ok(frame) if (frame.kind == Kind::Header) == is_first => frame,
                Err(FrameError::Cut) if is_last && !seal_follows(bytes, at, &walk.trail) => {
                    self.report.notes.push(format!("the last frame, at byte {at} of segment {}, is not whole yet", self.segment));
                    break;
                }
                _ => {
                    if self.chain.is_some() || is_first {
                        self.fault(FaultKind::Altered, at, seq, "there is no frame where one must be");
                    }
                    self.lose(&mut walk);
                    match find_seal(bytes, at + 1, &walk.trail) {
                        Some(next) => at = next,
                        None => break,
                    }
                    is_first = false;
                    continue;
                }
            };
            let was_sure = self.chain.is_some() || is_first;
            self.frame(&frame, &bytes[at + frame.len()..], at, &mut walk);
            is_first = false;
            at += frame.len();
            if was_sure && self.chain.is_none() && !walk.is_closed {
                // The altered bytes may include a frame's length, so parsing resumes at the next
                // seal.
                at = find_seal(bytes, at - frame.len() + 1, &walk.trail).unwrap_or(bytes.len());
            }
        }
        if !walk.is_closed && !is_last {
            if self.chain.is_some() {
                let seq = self.next_seq.unwrap_or(0);
                self.fault(FaultKind::Cut, at, seq, "the segment ends without its closing seal");
            }
            (self.chain, self.next_seq, self.key) = (None, None, None);
        }
    }

    fn lose(&mut self, walk: &mut Walk) {
        self.chain = None;
        walk.tree = None;
    }

    fn frame(&mut self, frame: &Frame<'_>, rest: &[u8], at: usize, walk: &mut Walk) {
        if frame.kind == Kind::Header {
            return self.header(frame, at, walk);
        }
        let leaf = frame.leaf();
        if let Some(chain) = self.chain {
            let next = chain.then(&leaf);
            if next.tag() == frame.tag {
                self.chain = Some(next);
            } else if let Some((kind, what)) = self.diagnose(chain, frame, rest) {
                let seq = self.next_seq.unwrap_or(0);
                self.fault(kind, at, seq, what);
                if kind == FaultKind::Inserted {
                    return;
                }
                self.lose(walk);
            }
        }
        match frame.kind {
            Kind::Record => {
                if let Some(tree) = &mut walk.tree {
                    tree.push(leaf);
                }
                self.record(frame, at);
            }
            Kind::Checkpoint | Kind::Close => {
                walk.is_closed = frame.kind == Kind::Close;
                match Seal::decode(frame.body) {
                    Some(seal) => self.seal(&seal, frame, at, walk),
                    None if self.chain.is_some() => {
                        self.fault(FaultKind::Forged, at, self.next_seq.unwrap_or(0), "a seal of another length")
                    }
                    None => {}
                }
                walk.since = (self.next_seq.unwrap_or(0), (at + frame.len()) as u64);
            }
            Kind::Header => {}
        }
    }

    /// Determines how the chain was broken at this frame.
    fn diagnose(&self, chain: Chain, frame: &Frame<'_>, rest: &[u8]) -> Option<(FaultKind, String)> {
        let follower = frame::parse(rest).ok();
        let follows = |chain: Chain, next: &Frame<'_>| Some(chain.then(&next.leaf())).filter(|chain| chain.tag() == next.tag);
        if let Some(next) = &follower
            && let Some(after) = follows(chain, next)
            && frame::parse(&rest[next.len()..]).ok().is_none_or(|third| follows(after, &third).is_some())
        {
            return Some((FaultKind::Inserted, "this frame was never chained; the next one follows the one before".into()));
        }
        let wanted = self.next_seq.unwrap_or(0);
        if frame.kind != Kind::Record {
            // A validly signed seal states what it covers.
            return Some(match Seal::decode(frame.body).filter(Seal::is_signed) {
                Some(seal) if seal.next_seq > wanted => {
                    (FaultKind::Removed, format!("records {wanted} to {} are missing", seal.next_seq - 1))
                }
                Some(_) => {
                    (FaultKind::Rewritten, "what stands before this seal is not what was sealed, and the chain was computed anew".into())
                }
                None => (FaultKind::Altered, "the seal was altered".into()),
            });
        }
        let seq_of = |frame: &Frame<'_>| (frame.kind == Kind::Record).then(|| seq_and_time(frame.body)).flatten().map(|(seq, _)| seq);
        let seq = seq_of(frame)?;
        Some(if seq == wanted {
            (FaultKind::Altered, "the record is not the one that was chained here".into())
        } else if follower.as_ref().and_then(seq_of).is_some_and(|next| next < seq) {
            (FaultKind::Reordered, format!("record {seq} stands where {wanted} belongs"))
        } else if seq > wanted && seq - wanted < PLAUSIBLE {
            (FaultKind::Removed, format!("records {wanted} to {} are missing", seq - 1))
        } else if seq < wanted {
            (FaultKind::Reordered, format!("record {seq} stands where {wanted} belongs"))
        } else {
            (FaultKind::Altered, "the record's number was altered".into())
        })
    }

    fn header(&mut self, frame: &Frame<'_>, at: usize, walk: &mut Walk) {
        let seq = self.next_seq.unwrap_or(1);
        let Some(header) = Header::decode(frame.body) else {
            self.fault(FaultKind::Altered, at, seq, "the header can't be read");
            return self.lose(walk);
        };
        walk.trail = header.trail;
        let chain = Chain(header.previous).then(&frame.leaf());
        let first = self.segment == 1;
        let mut wrong = Vec::new();
        let mut check = |right: bool, what: &'static str| {
            if !right {
                wrong.push(what);
            }
        };
        check(chain.tag() == frame.tag, "the header was altered");
        check(header.segment == self.segment, "it is another segment's");
        check(*self.report.trail.get_or_insert(header.trail) == header.trail, "it belongs to another trail");
        check(
            !first || (header.previous == Chain::START.0 && header.first_seq == 1 && header.epoch == 0),
            "it is not a trail's first segment",
        );
        check(self.chain.is_none_or(|chain| chain.0 == header.previous), "it does not follow the segment before");
        check(self.next_seq.is_none_or(|next| next == header.first_seq), "its records do not follow those before");
        check(self.key.is_none_or(|key| key == (header.epoch, header.public)), "it names another key than the seal before");
        if wrong.is_empty() {
            if self.report.public.is_none() {
                self.report.public = Some(header.public);
                self.report.notes.push("no public key was given: the trail's own word is taken for its first key".into());
            }
            self.key = Some((header.epoch, header.public));
            (self.chain, self.next_seq) = (Some(chain), Some(header.first_seq));
            walk.since = (header.first_seq, at as u64);
            if let Some(tree) = &mut walk.tree {
                tree.push(frame.leaf());
            }
        } else {
            self.fault(FaultKind::Altered, at, seq, wrong.join("; "));
            self.lose(walk);
        }
    }

    fn record(&mut self, frame: &Frame<'_>, at: usize) {
        self.report.records += 1;
        self.unsealed += 1;
        let Some((seq, time)) = seq_and_time(frame.body) else {
            if self.chain.is_some() {
                self.fault(FaultKind::Altered, at, self.next_seq.unwrap_or(0), "a record too short");
            }
            return;
        };
        if self.chain.is_none() {
            return;
        }
        if let Some(wanted) = self.next_seq.filter(|wanted| *wanted != seq) {
            self.fault(
                FaultKind::Rewritten,
                at,
                wanted,
                format!("record {seq} stands where {wanted} belongs, and the chain was computed anew"),
            );
        }
        match administrative(frame.body) {
            Some((act, detail)) if act == Act::Recovered as u16 => {
                self.report
                    .notes
                    .push(format!("segment {}, record {seq}: the trail was taken up again after a crash: {detail:?}", self.segment));
            }
            Some((act, detail)) if act == Act::Pruned as u16 => {
                self.told_removed = self.told_removed.max(told_removed(&detail).unwrap_or(0));
            }
            _ => {}
        }
        self.next_seq = Some(seq.wrapping_add(1));
        let (first, _) = self.report.span.unwrap_or((seq, seq));
        self.report.span = Some((first, seq));
        // Records are ordered by durability, so their times may be out of order.
        let (first, last) = self.report.times.unwrap_or((time, time));
        self.report.times = Some((first.min(time), last.max(time)));
    }

    fn seal(&mut self, seal: &Seal, frame: &Frame<'_>, at: usize, walk: &mut Walk) {
        let sound = self.seal_itself(seal, at);
        if sound && self.chain.is_some() {
            // The chain is intact up to here, so the seal's statements about it must hold.
            let before = self.chain_before(seal, frame);
            let tree = walk.tree.as_ref();
            if !before
                || tree.is_some_and(|tree| tree.count() != seal.leaves || tree.root() != seal.root)
                || self.next_seq != Some(seal.next_seq)
            {
                let (seq, since) = walk.since;
                let what = format!(
                    "records {seq} to {} are not those that were sealed, and the chain was computed anew",
                    seal.next_seq.saturating_sub(1)
                );
                self.fault(FaultKind::Rewritten, since as usize, seq, what);
                walk.tree = None;
            }
        }
        if sound {
            self.unsealed = 0;
            self.chain = Some(Chain(seal.chain).then(&frame.leaf()));
            self.next_seq = Some(seal.next_seq);
        }
    }

    /// Returns whether this frame follows the chain value in the seal.
    fn chain_before(&self, seal: &Seal, frame: &Frame<'_>) -> bool {
        self.chain == Some(Chain(seal.chain).then(&frame.leaf()))
    }

    /// Verifies the seal's signature and key.
    fn seal_itself(&mut self, seal: &Seal, at: usize) -> bool {
        let seq = self.next_seq.unwrap_or(0);
        if !seal.is_signed() {
            if self.chain.is_some() || self.report.faults.is_empty() {
                self.fault(FaultKind::Forged, at, seq, "the seal's signature is wrong");
            }
            return false;
        }
        let trail = *self.report.trail.get_or_insert(seal.trail);
        if let Some((epoch, public)) = self.key
            && (seal.epoch != epoch || seal.public != public || seal.trail != trail)
        {
            let what = match seal.epoch > epoch && seal.trail == trail {
                true => format!("seals {epoch} to {} are missing", seal.epoch - 1),
                false => "the seal is by another key than the one before named".into(),
            };
            self.fault(if seal.epoch > epoch { FaultKind::Removed } else { FaultKind::Forged }, at, seq, what);
        }
        self.key = Some((seal.epoch + 1, seal.next));
        for (index, checkpoint) in self.trust.checkpoints.iter().enumerate() {
            if checkpoint.epoch == seal.epoch && checkpoint == seal {
                self.met[index] = true;
            }
        }
        self.ends.meet(seal);
        self.report.last = Some(seal.clone());
        true
    }
}

/// A sequence number this far ahead was never assigned, so it was altered.
const PLAUSIBLE: u64 = 1 << 32;
