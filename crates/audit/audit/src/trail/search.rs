//! Search by index in closed segments and by a scan in the open one. An index can omit results but
//! not add any.

use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use super::index::{Index, Term, build_index, each_record};
use super::{FileHistory, Segment, SegmentFile, segments};
use crate::Record;
use crate::frame::{FrameError, Kind, parse};
use crate::operations::{self, Set};
use crate::record::{Class, RecordError, access};
use crate::rules::Field;

/// Results of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Status 0.
    Success,
    /// Includes refusals and gaps.
    Failure,
    /// This nfsstat4.
    Is(u32),
    /// A failure with this errno, which several nfsstat4 stand for.
    Errno(i32),
}

/// Equivalent spellings of a name; any of them matches.
pub type Alternatives = Vec<Vec<u8>>;

/// An empty or `None` field matches everything; all fields must match.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// Earliest time, nanoseconds since 1970.
    pub from_ns: Option<u64>,
    /// End time (exclusive), nanoseconds since 1970.
    pub until_ns: Option<u64>,
    /// Kerberos principal.
    pub principal: Alternatives,
    /// The user that the operation ran as.
    pub uid: Option<u32>,
    /// The user that rules call auid: the login user, or else the acting user. Not indexed.
    pub auid: Option<u32>,
    /// Also as the new path of a rename or link.
    pub path: Alternatives,
    /// A directory and everything below it. Not indexed.
    pub below: Alternatives,
    /// File id.
    pub file: Vec<u8>,
    /// Path of the export.
    pub export: Alternatives,
    /// Address or name of the client.
    pub client: Alternatives,
    /// Then only records of operations match.
    pub operations: Option<Set>,
    /// What the record is about.
    pub class: Option<Class>,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// Key of the rule.
    pub key: Alternatives,
    /// All records about some files, whatever their names were.
    pub names: Option<FileHistory>,
    /// Path in renames, links and removals.
    pub moved: Vec<u8>,
    /// As in rules. Not indexed.
    pub fields: Vec<Field>,
    /// All of these bits of [`crate::record::access`] were requested. Not indexed.
    pub access: u32,
}

impl Query {
    /// Tests one record, without any index.
    pub fn matches(&self, record: &Record<'_>) -> bool {
        let text = |wanted: &Alternatives, found: &[u8]| {
            wanted.is_empty() || wanted.iter().any(|form| form == found)
        };
        let is_named = |name: &[u8]| name == record.path || name == record.path2;
        self.from_ns.is_none_or(|from| record.time_ns >= from)
            && self.until_ns.is_none_or(|until| record.time_ns < until)
            && text(&self.principal, record.principal)
            && self.uid.is_none_or(|uid| record.uid == Some(uid))
            && self.auid.is_none_or(|auid| record.auid() == Some(auid))
            && (self.file.is_empty() || self.file == record.file)
            && text(&self.export, record.export)
            && (self.key.is_empty()
                || record.key.split(|byte| *byte == 1).any(|key| text(&self.key, key)))
            && (self.path.is_empty() || self.path.iter().any(|path| is_named(path)))
            && self.class.is_none_or(|class| record.class == class)
            && self.operations.is_none_or(|set| {
                record.class == Class::Operation && set & operations::single(record.operation) != 0
            })
            && self.outcome.is_none_or(|outcome| outcome.matches(record))
            && (text(&self.client, record.client)
                || (record.address.is_some()
                    && self.client.iter().any(|client| address_of(client) == record.address)))
            && (self.below.is_empty()
                || self
                    .below
                    .iter()
                    .any(|below| is_below(below, record.path) || is_below(below, record.path2)))
            && (self.moved.is_empty()
                || (is_named(&self.moved) && super::file_history::is_move(record)))
            && self.names.as_ref().is_none_or(|names| names.contains(record))
            && self.fields.iter().all(|field| field.holds(record))
            && access::includes(record.requested.unwrap_or(0), self.access)
    }

    fn terms(&self) -> Vec<Terms> {
        let forms =
            |term, forms: &Alternatives| forms.iter().map(|form| (term, form.clone())).collect();
        let one = |term, bytes: &[u8]| vec![(term, bytes.to_vec())];
        let client = |name: &Vec<u8>| match address_of(name) {
            Some(IpAddr::V4(address)) => (Term::Client, address.octets().to_vec()),
            Some(IpAddr::V6(address)) => (Term::Client, address.octets().to_vec()),
            None => (Term::Client, name.clone()),
        };
        let mut all = vec![
            forms(Term::Principal, &self.principal),
            forms(Term::Path, &self.path),
            forms(Term::Key, &self.key),
            self.client.iter().map(client).collect(),
            self.names.as_ref().map(FileHistory::terms).unwrap_or_default(),
        ];
        for (term, text) in [(Term::File, &self.file), (Term::Moved, &self.moved)] {
            if !text.is_empty() {
                all.push(one(term, text));
            }
        }
        if let Some(uid) = self.uid {
            all.push(one(Term::Uid, &uid.to_le_bytes()));
        }
        if let Some(Outcome::Is(result)) = self.outcome.filter(|outcome| *outcome != Outcome::Is(0))
        {
            all.push(one(Term::Result, &result.to_le_bytes()));
        }
        if let Some(Outcome::Errno(errno)) = self.outcome {
            let of_errno =
                operations::statuses().filter(|status| operations::errno(*status) == errno);
            // Events of hosts have the errno itself.
            let results = of_errno.chain([errno.unsigned_abs()]);
            all.push(results.map(|result| (Term::Result, result.to_le_bytes().to_vec())).collect());
        }
        all.retain(|terms: &Terms| !terms.is_empty());
        all
    }
}

type Terms = Vec<(Term, Vec<u8>)>;

impl Outcome {
    fn matches(self, record: &Record<'_>) -> bool {
        let failed = record.status() != 0 || matches!(record.class, Class::Refusal | Class::Gap);
        match self {
            Outcome::Success => !failed,
            Outcome::Failure => failed,
            Outcome::Is(result) => record.status() == result,
            Outcome::Errno(errno) => record.errno() == errno,
        }
    }
}

fn address_of(text: &[u8]) -> Option<IpAddr> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

pub(super) fn is_below(directory: &[u8], path: &[u8]) -> bool {
    let directory = directory.strip_suffix(b"/").unwrap_or(directory);
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// How segments are searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchMode {
    /// A missing index is built; if that fails, the segment is scanned.
    Index,
    /// Every record is decoded.
    Scan,
}

/// A record that matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Number of the segment.
    pub segment: u64,
    /// Offset in the uncompressed segment.
    pub offset: u64,
    /// The encoded record, not verified.
    pub body: Vec<u8>,
    /// Boot id of the writer, if known.
    pub boot: Option<[u8; 16]>,
}

impl Hit {
    /// `scratch` holds the path if it is stored in two parts.
    pub fn record<'a>(&'a self, scratch: &'a mut Vec<u8>) -> Result<Record<'a>, RecordError> {
        Record::decode(&self.body, scratch)
    }
}

/// The work of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SearchCost {
    /// Segments of the trail.
    pub segments: u64,
    /// Segments scanned.
    pub scanned: u64,
    /// Indexes built.
    pub built: u64,
    /// Records decoded through an index.
    pub decoded: u64,
}

/// Oldest or newest first, until `each` returns false. A scan needs one segment of memory.
pub fn search(
    directory: &Path,
    query: &Query,
    newest_first: bool,
    mode: SearchMode,
    mut each: impl FnMut(&Hit) -> bool,
) -> io::Result<SearchCost> {
    let mut files = segments(directory)?;
    let last = files.last().map(|file| file.number);
    let mut cost = SearchCost { segments: files.len() as u64, ..SearchCost::default() };
    if newest_first {
        files.reverse();
    }
    for file in &files {
        let mut file = file;
        let compressed = SegmentFile::compressed(directory, file.number);
        let mut opened = Segment::open(file);
        if opened.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
            && !file.is_compressed
        {
            file = &compressed;
            opened = Segment::open(file);
        }
        let segment = match opened {
            Ok(segment) => segment,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(at(file, error)),
        };
        let index = match mode {
            SearchMode::Index if Some(file.number) != last => open_index(file, &segment, &mut cost),
            _ => None,
        };
        let mut reported = HashSet::new();
        let answer = match index.map(|index| candidates(&index, query)) {
            Some(Ok(Some(mut candidates))) => {
                if newest_first {
                    candidates.reverse();
                }
                read_candidates(candidates, file.number, &segment, query, &mut cost, |hit| {
                    reported.insert(hit.offset);
                    each(hit)
                })
                .ok()
            }
            _ => None,
        };
        let is_wanted = match answer {
            Some(is_wanted) => is_wanted,
            None => {
                cost.scanned += 1;
                scan(file, &segment, query, newest_first, &mut |hit| {
                    reported.contains(&hit.offset) || each(hit)
                })?
            }
        };
        if !is_wanted {
            break;
        }
    }
    Ok(cost)
}

fn at(file: &SegmentFile, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", file.path.display()))
}

fn open_index(file: &SegmentFile, segment: &Segment, cost: &mut SearchCost) -> Option<Index> {
    if let Some(index) = Index::open(file, segment) {
        return Some(index);
    }
    if let Err(error) = build_index(file) {
        tracing::debug!(segment = file.number, %error, "could not build an index");
        return None;
    }
    cost.built += 1;
    Index::open(file, segment)
}

fn candidates(index: &Index, query: &Query) -> io::Result<Option<Vec<u64>>> {
    let (from, until) = index.times;
    if query.from_ns.is_some_and(|wanted| until < wanted)
        || query.until_ns.is_some_and(|wanted| from >= wanted)
    {
        return Ok(Some(Vec::new()));
    }
    let all = query.terms();
    if all.is_empty() {
        return Ok(None);
    }
    let mut candidates: Option<Vec<u64>> = None;
    for terms in &all {
        if candidates.as_ref().is_some_and(Vec::is_empty) {
            break;
        }
        let mut with = Vec::new();
        for (term, bytes) in terms {
            with.extend(index.postings(*term, bytes)?);
        }
        with.sort_unstable();
        with.dedup();
        candidates = Some(match candidates {
            Some(candidates) => {
                candidates.into_iter().filter(|place| with.binary_search(place).is_ok()).collect()
            }
            None => with,
        });
    }
    Ok(Some(candidates.unwrap_or_default()))
}

fn read_candidates(
    candidates: Vec<u64>,
    number: u64,
    segment: &Segment,
    query: &Query,
    cost: &mut SearchCost,
    mut each: impl FnMut(&Hit) -> bool,
) -> io::Result<bool> {
    let mut scratch = Vec::new();
    for offset in candidates {
        cost.decoded += 1;
        let (kind, body) = segment.frame_at(offset)?;
        let invalid = |_| io::Error::from(io::ErrorKind::InvalidData);
        if kind != Kind::Record {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if query.matches(&Record::decode(&body, &mut scratch).map_err(invalid)?)
            && !each(&Hit { segment: number, offset, body, boot: segment.boot() })
        {
            return Ok(false);
        }
    }
    Ok(true)
}

fn scan(
    file: &SegmentFile,
    segment: &Segment,
    query: &Query,
    newest_first: bool,
    each: &mut impl FnMut(&Hit) -> bool,
) -> io::Result<bool> {
    let uncompressed = segment.load().map_err(|error| at(file, error))?;
    let hit = |offset: u64| {
        let body = parse(&uncompressed[offset as usize..])
            .map(|frame| frame.body.to_vec())
            .unwrap_or_default();
        Hit { segment: file.number, offset, body, boot: segment.boot() }
    };
    let mut candidates = Vec::new();
    let mut is_wanted = true;
    let error = each_record(&uncompressed, &mut Vec::new(), |offset, record| {
        if query.matches(record) {
            if newest_first {
                candidates.push(offset);
            } else {
                is_wanted = each(&hit(offset));
            }
        }
        is_wanted
    });
    if error == Some(FrameError::Malformed) {
        tracing::warn!(
            segment = file.number,
            "the segment contains a malformed frame; run `vouch audit verify` for details"
        );
    }
    Ok(is_wanted && candidates.into_iter().rev().all(|offset| each(&hit(offset))))
}
