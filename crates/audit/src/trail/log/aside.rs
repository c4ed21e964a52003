//! Damaged bytes that a crash left behind, quarantined in files for an investigator. The recovery
//! record names these files. Each file is reported once, even if a start is killed in between. This
//! module does not write files.

use std::io;
use std::path::Path;

use super::found::Found;
use crate::record::{Act, Class, Record, TEXT_LEN_MAX, class_of};
use crate::trail::files::TORN;
use crate::trail::{Segment, SegmentFile};

/// A file with quarantined bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aside {
    /// The segment that the bytes come from.
    pub segment: u64,
    /// Name of the file.
    pub name: String,
    /// Length in bytes; 0 if the segment was an empty file.
    pub len: u64,
}

impl Aside {
    fn of(name: String, len: u64) -> Option<Aside> {
        let segment = name.strip_suffix(TORN)?.strip_suffix('.')?.split('.').next()?;
        let segment = segment.parse().ok().filter(|_| segment.len() == DIGITS)?;
        Some(Aside { segment, name, len })
    }
}

/// Lists the quarantine files in a trail's directory.
pub(super) fn list(directory: &Path) -> io::Result<Vec<Aside>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if let Ok(name) = entry.file_name().into_string()
            && let Some(aside) = Aside::of(name, 0)
        {
            found.push(Aside { len: entry.metadata()?.len(), ..aside });
        }
    }
    found.sort_by(|a, b| (a.segment, a.name.len(), &a.name).cmp(&(b.segment, b.name.len(), &b.name)));
    Ok(found)
}

/// Returns the quarantine files that no record names yet. `segment` is the last segment and `found`
/// its content. A closed segment has already reported all files up to and including its own.
pub(super) fn untold(asides: &[Aside], segment: u64, found: &Found, before: Option<&SegmentFile>) -> Vec<Aside> {
    let first = if found.is_closed { segment + 1 } else { segment };
    let mut untold: Vec<_> = asides.iter().filter(|aside| aside.segment >= first && !found.told.contains(&aside.name)).cloned().collect();
    // A file from before the segment was started may be reported at the end of the previous one.
    if untold.iter().any(|aside| aside.segment == segment) {
        let told = told_in(before);
        untold.retain(|aside| !told.contains(&aside.name));
    }
    untold
}

/// Adds a file for a segment, under a name that was never used.
pub(super) fn add(asides: &mut Vec<Aside>, told: &[String], segment: u64, len: u64) -> String {
    let name = (1u64..)
        .map(|number| match number {
            1 => format!("{segment:0DIGITS$}.{TORN}"),
            _ => format!("{segment:0DIGITS$}.{number}.{TORN}"),
        })
        .find(|name| !told.contains(name) && asides.iter().all(|aside| aside.name != *name))
        .expect("there are fewer files than numbers");
    asides.push(Aside { segment, name: name.clone(), len });
    name
}

/// Returns the quarantine file of a segment with exactly these bytes.
pub(super) fn with_bytes(asides: &[Aside], directory: &Path, segment: u64, bytes: &[u8]) -> Option<String> {
    let as_long = asides.iter().filter(|aside| aside.segment == segment && aside.len == bytes.len() as u64);
    as_long.map(|aside| &aside.name).find(|name| std::fs::read(directory.join(name)).is_ok_and(|there| there == bytes)).cloned()
}

/// Formats the details of recovery records. The first detail starts with `first`; further ones
/// follow if the names do not fit. No name is split.
pub(super) fn tell(first: &str, asides: &[Aside]) -> Vec<String> {
    let (mut details, mut left) = (Vec::new(), asides);
    loop {
        let before = if details.is_empty() { first } else { MORE };
        let mut room = TEXT_LEN_MAX.saturating_sub(before.len() + LEN_DIGITS + TELLS.len() + NAMES.len());
        let fits = |aside: &&Aside| {
            let rest = room.checked_sub(aside.name.len() + BETWEEN.len());
            room = rest.unwrap_or(0);
            rest.is_some()
        };
        // A single name always fits into a record.
        let count = left.iter().take_while(fits).count().max(1).min(left.len());
        let (told, rest) = left.split_at(count);
        let names: Vec<_> = told.iter().map(|aside| &*aside.name).collect();
        let len: u64 = told.iter().map(|aside| aside.len).sum();
        details.push(format!("{before}{len}{TELLS}{}{}", if names.is_empty() { "" } else { NAMES }, names.join(BETWEEN)));
        left = rest;
        if left.is_empty() {
            return details;
        }
    }
}

/// Returns the file names in a recovery record, or nothing for another record.
pub(super) fn told(body: &[u8]) -> Vec<String> {
    if class_of(body) != Some(Class::Administrative as u8) {
        return Vec::new();
    }
    let mut scratch = Vec::new();
    let record = Record::decode(body, &mut scratch).ok().filter(|record| record.operation == Act::Recovered as u16);
    let detail = record.map(|record| String::from_utf8_lossy(record.detail).into_owned()).unwrap_or_default();
    let names = detail.split_once(TELLS).and_then(|(_, rest)| rest.strip_prefix(NAMES));
    names.map(|names| names.split(BETWEEN).map(str::to_owned).collect()).unwrap_or_default()
}

/// Returns the file names in a segment's recovery records. `verify` reports a segment that cannot
/// be read.
pub(super) fn told_in(segment: Option<&SegmentFile>) -> Vec<String> {
    let bytes = segment.and_then(|file| Segment::open(file).and_then(|segment| segment.load()).ok());
    bytes.map(|bytes| Found::of(&bytes).told).unwrap_or_default()
}

/// Digits of a segment number in a file name.
const DIGITS: usize = 12;
/// Digits of the largest length.
const LEN_DIGITS: usize = 20;
const MORE: &str = "the trail had no end, as the record before says; ";
const TELLS: &str = " torn bytes put aside";
const NAMES: &str = ": ";
const BETWEEN: &str = ", ";
