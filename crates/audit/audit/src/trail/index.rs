//! Offsets of a closed segment's records by user, path and so on (docs/formats/audit.md).
//! Untrusted: readers check each record.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::{Segment, SegmentFile};
use crate::Record;
use crate::frame::{Frame, FrameError, Kind, MAGIC, parse};
use crate::operations::number::{LINK, REMOVE, RENAME};
use crate::record::Class;

pub(crate) const INDEX_EXTENSION: &str = "index";
const INDEX_MAGIC: &[u8; 8] = b"VOUCHIX2";
const HEAD_LEN: usize = 64;
const TERM_LEN: usize = 24;
const CANCEL_STEPS: u32 = 4096;
const LINEAR_LOOKUP_LEN: u64 = 128;

/// Fields by which records are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Term {
    /// Kerberos principal.
    Principal = 1,
    /// 4 bytes.
    Uid = 2,
    /// Also the new path of a rename or link.
    Path = 3,
    /// File id.
    File = 4,
    /// Address (4 or 16 bytes) or name.
    Client = 5,
    /// A rule's key.
    Key = 6,
    /// Old or new path of a rename, link or removal.
    Moved = 7,
    /// Other than 0, 4 bytes.
    Result = 8,
    /// The segment's seals, without a value.
    Seal = 9,
}

pub(super) fn terms(record: &Record<'_>, mut each: impl FnMut(Term, &[u8])) {
    let mut text = |term, bytes: &[u8]| {
        if !bytes.is_empty() {
            each(term, bytes);
        }
    };
    text(Term::Principal, record.principal);
    text(Term::Path, record.path);
    if record.path2 != record.path {
        text(Term::Path, record.path2);
    }
    if record.class == Class::Operation && [RENAME, LINK, REMOVE].contains(&record.operation) {
        text(Term::Moved, record.path);
        if record.path2 != record.path {
            text(Term::Moved, record.path2);
        }
    }
    text(Term::File, record.file);
    text(Term::Client, record.client);
    record.key.split(|byte| *byte == 1).for_each(|key| text(Term::Key, key));
    match record.address {
        Some(IpAddr::V4(address)) => text(Term::Client, &address.octets()),
        Some(IpAddr::V6(address)) => text(Term::Client, &address.octets()),
        None => {}
    }
    if let Some(uid) = record.uid {
        text(Term::Uid, &uid.to_le_bytes());
    }
    if record.status() != 0 {
        text(Term::Result, &record.status().to_le_bytes());
    }
}

fn hash(term: Term, bytes: &[u8]) -> u64 {
    let hash: [u8; 32] =
        Sha256::new().chain_update([term as u8]).chain_update(bytes).finalize().into();
    u64::from_le_bytes(*hash.first_chunk().expect("a hash has 32 bytes"))
}

/// The index file of one closed segment.
#[derive(Debug)]
pub struct Index {
    file: File,
    /// Times of the earliest and the latest record.
    pub times: (u64, u64),
    /// Sequence number of the first record, and the number of records.
    pub span: (u64, u64),
    terms: u64,
    len: u64,
}

impl Index {
    /// `None` if the index is missing or belongs to another segment.
    pub fn open(file: &SegmentFile, segment: &Segment) -> Option<Index> {
        let file_of_index = File::open(index_path(file)).ok()?;
        let len = file_of_index.metadata().ok()?.len();
        let mut head = [0; HEAD_LEN];
        file_of_index.read_exact_at(&mut head, 0).ok()?;
        let mut r = crate::frame::FieldReader(head.strip_prefix(INDEX_MAGIC)?);
        let [number, uncompressed_len, first, count, from, until, terms] =
            [0; 7].map(|_: u64| r.u64());
        let matches = number == file.number
            && uncompressed_len == segment.uncompressed_len()
            && terms
                .checked_mul(TERM_LEN as u64)
                .and_then(|table| table.checked_add(HEAD_LEN as u64))
                .is_some_and(|end| end <= len);
        matches.then_some(Index {
            file: file_of_index,
            times: (from, until),
            span: (first, count),
            terms,
            len,
        })
    }

    /// Offsets of the records with this term, ascending. O(log n) reads.
    pub fn postings(&self, term: Term, bytes: &[u8]) -> io::Result<Vec<u64>> {
        let wanted = hash(term, bytes);
        let (mut low, mut high) = (0, self.terms);
        while high - low > LINEAR_LOOKUP_LEN {
            let middle = low + (high - low) / 2;
            if self.table(middle, 1)?[0].0 <= wanted { low = middle } else { high = middle }
        }
        let entries = self.table(low, high - low + u64::from(high < self.terms))?;
        let Some(at) = entries.iter().position(|(hash, _, _)| *hash == wanted) else {
            return Ok(Vec::new());
        };
        let (_, start, count) = entries[at];
        let end = entries.get(at + 1).map_or(self.len, |(_, next, _)| *next);
        let len =
            end.checked_sub(start).filter(|_| end <= self.len).ok_or(io::ErrorKind::InvalidData)?;
        let mut bytes = vec![0; len as usize];
        self.file.read_exact_at(&mut bytes, start)?;
        decode_postings(&bytes, count).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn table(&self, first: u64, count: u64) -> io::Result<Vec<(u64, u64, u64)>> {
        let mut bytes = vec![0; count as usize * TERM_LEN];
        self.file.read_exact_at(&mut bytes, HEAD_LEN as u64 + first * TERM_LEN as u64)?;
        Ok(bytes
            .chunks_exact(TERM_LEN)
            .map(|entry| {
                let mut r = crate::frame::FieldReader(entry);
                (r.u64(), r.u64(), r.u64())
            })
            .collect())
    }
}

fn decode_postings(bytes: &[u8], count: u64) -> Option<Vec<u64>> {
    let (mut out, mut at, mut number, mut shift) = (Vec::new(), 0u64, 0u64, 0u32);
    for byte in bytes {
        number |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 != 0 {
            shift += 7;
            continue;
        }
        at = at.checked_add(number)?;
        out.push(at);
        (number, shift) = (0, 0);
    }
    (out.len() as u64 == count).then_some(out)
}

fn push_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub(super) fn remove_index(file: &SegmentFile) {
    if let Err(error) = fs::remove_file(index_path(file))
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::debug!(segment = file.number, %error, "could not remove the index of a removed segment");
    }
}

fn index_path(file: &SegmentFile) -> PathBuf {
    file.path.with_file_name(format!("{:012}.{INDEX_EXTENSION}", file.number))
}

#[derive(Default)]
struct Postings {
    last: u64,
    count: u64,
    bytes: Vec<u8>,
}

pub(super) fn is_indexed(file: &SegmentFile) -> io::Result<bool> {
    Ok(Index::open(file, &Segment::open(file)?).is_some())
}

/// Needs about twice the segment's length of memory.
pub(crate) fn build_index(file: &SegmentFile) -> io::Result<()> {
    build_index_while(file, &|| true)
}

pub(super) fn build_index_while(
    file: &SegmentFile,
    is_wanted: &dyn Fn() -> bool,
) -> io::Result<()> {
    let mut steps = 0u32;
    let mut is_running = || {
        steps = steps.wrapping_add(1);
        !steps.is_multiple_of(CANCEL_STEPS) || is_wanted()
    };
    let uncompressed = Segment::open(file)?.load()?;
    let mut table: HashMap<(Term, Vec<u8>), Postings, foldhash::fast::RandomState> =
        HashMap::default();
    let (mut first, mut count, mut from, mut until) = (0, 0u64, u64::MAX, 0);
    let mut scratch = Vec::new();
    let mut key = (Term::Path, Vec::new());
    let mut add = |term: Term, bytes: &[u8], at: u64| {
        key.0 = term;
        key.1.clear();
        key.1.extend_from_slice(bytes);
        let postings = match table.get_mut(&key) {
            Some(postings) => postings,
            None => table.entry(key.clone()).or_default(),
        };
        push_varint(&mut postings.bytes, at - postings.last);
        postings.last = at;
        postings.count += 1;
    };
    let mut is_cut = false;
    each_frame(&uncompressed, |at, frame| {
        if !is_running() {
            is_cut = true;
            return false;
        }
        if matches!(frame.kind, Kind::Checkpoint | Kind::Close) {
            add(Term::Seal, b"", at);
        }
        let Some(record) = (frame.kind == Kind::Record)
            .then(|| Record::decode(frame.body, &mut scratch).ok())
            .flatten()
        else {
            return true;
        };
        if count == 0 {
            first = record.seq;
        }
        count += 1;
        from = from.min(record.time_ns);
        until = until.max(record.time_ns);
        terms(&record, |term, bytes| add(term, bytes, at));
        true
    });
    let hashed = table.into_iter().map_while(|((term, bytes), postings)| {
        is_running().then(|| (hash(term, &bytes), postings))
    });
    let mut sorted: Vec<(u64, Postings)> = hashed.collect();
    if is_cut || !is_wanted() {
        return Err(io::ErrorKind::Interrupted.into());
    }
    sorted.sort_unstable_by_key(|(hash, _)| *hash);
    merge_collisions(&mut sorted);
    let head =
        [file.number, uncompressed.len() as u64, first, count, from, until, sorted.len() as u64];
    write(&index_path(file), &encode(head, &sorted))
}

fn encode(head: [u64; 7], sorted: &[(u64, Postings)]) -> Vec<u8> {
    let mut out = INDEX_MAGIC.to_vec();
    for number in head {
        out.extend_from_slice(&number.to_le_bytes());
    }
    let mut at = (HEAD_LEN + sorted.len() * TERM_LEN) as u64;
    for (hash, postings) in sorted {
        for number in [*hash, at, postings.count] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        at += postings.bytes.len() as u64;
    }
    sorted.iter().for_each(|(_, postings)| out.extend_from_slice(&postings.bytes));
    out
}

fn merge_collisions(sorted: &mut Vec<(u64, Postings)>) {
    for at in (1..sorted.len()).rev() {
        if sorted[at].0 == sorted[at - 1].0 {
            let (_, second) = sorted.remove(at);
            let first = &mut sorted[at - 1].1;
            let mut all = decode_postings(&first.bytes, first.count).unwrap_or_default();
            all.extend(decode_postings(&second.bytes, second.count).unwrap_or_default());
            all.sort_unstable();
            all.dedup();
            *first = Postings { last: 0, count: all.len() as u64, bytes: Vec::new() };
            for at in all {
                push_varint(&mut first.bytes, at - first.last);
                first.last = at;
            }
        }
    }
}

/// Atomic, because readers may be active.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let new = PathBuf::from(name);
    let written =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o640).open(&new).and_then(
            |mut file| {
                file.write_all(bytes)?;
                fs::rename(&new, path)
            },
        );
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

/// Ends when `each` returns false, or at the first malformed frame. Skips undecodable records.
pub(super) fn each_record(
    uncompressed: &[u8],
    scratch: &mut Vec<u8>,
    mut each: impl FnMut(u64, &Record<'_>) -> bool,
) -> Option<FrameError> {
    each_frame(uncompressed, |at, frame| {
        let record = if frame.kind == Kind::Record {
            Record::decode(frame.body, scratch).ok()
        } else {
            None
        };
        record.is_none_or(|record| each(at, &record))
    })
}

fn each_frame(
    uncompressed: &[u8],
    mut each: impl FnMut(u64, &Frame<'_>) -> bool,
) -> Option<FrameError> {
    let mut at = MAGIC.len();
    while at < uncompressed.len() {
        let frame = match parse(&uncompressed[at..]) {
            Ok(frame) => frame,
            Err(error) => return Some(error),
        };
        if !each(at as u64, &frame) {
            return None;
        }
        at += frame.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_with_equal_hash_share_postings() {
        let of = |offsets: &[u64]| {
            let mut postings = Postings::default();
            for at in offsets {
                push_varint(&mut postings.bytes, at - postings.last);
                (postings.last, postings.count) = (*at, postings.count + 1);
            }
            postings
        };
        let mut sorted = vec![(1, of(&[8, 300])), (1, of(&[8, 40, 500_000])), (2, of(&[9]))];
        merge_collisions(&mut sorted);
        let all: Vec<_> = sorted
            .iter()
            .map(|(hash, p)| (*hash, decode_postings(&p.bytes, p.count).unwrap()))
            .collect();
        assert_eq!(all, [(1, vec![8, 40, 300, 500_000]), (2, vec![9])]);
    }
}
