//! What crashes have left that is no frame, put aside for an investigator. The record that tells of
//! a crash names the files, so that each is told once, whenever a start that puts one aside is
//! killed. Writes nothing itself.

use std::io;
use std::path::Path;

use super::found::Found;
use crate::record::{Act, Class, Record, TEXT_LEN_MAX, class_of};
use crate::trail::files::TORN;
use crate::trail::{Segment, SegmentFile};

/// A file with what was put aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aside {
    /// The segment that it was cut from, or that is all that there was of it.
    pub segment: u64,
    /// Its name.
    pub name: String,
    /// Bytes, 0 where nothing of a segment but its name was there.
    pub len: u64,
}

impl Aside {
    fn of(name: String, len: u64) -> Option<Aside> {
        let segment = name.strip_suffix(TORN)?.strip_suffix('.')?.split('.').next()?;
        let segment = segment.parse().ok().filter(|_| segment.len() == DIGITS)?;
        Some(Aside { segment, name, len })
    }
}

/// Those in a trail's directory.
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

/// Those that no record tells of, where the trail goes on behind this segment, which holds what was
/// found. One that is closed has told of all that was put aside until it was begun, and of it.
pub(super) fn untold(asides: &[Aside], segment: u64, found: &Found, before: Option<&SegmentFile>) -> Vec<Aside> {
    let first = if found.is_closed { segment + 1 } else { segment };
    let mut untold: Vec<_> = asides.iter().filter(|aside| aside.segment >= first && !found.told.contains(&aside.name)).cloned().collect();
    // What was put aside before the segment was begun may be told at the end of the one before.
    if untold.iter().any(|aside| aside.segment == segment) {
        let told = told_in(before);
        untold.retain(|aside| !told.contains(&aside.name));
    }
    untold
}

/// Adds a file to those of a segment, under a name that none has or had.
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

/// The one of a segment that holds these bytes.
pub(super) fn with_bytes(asides: &[Aside], directory: &Path, segment: u64, bytes: &[u8]) -> Option<String> {
    let as_long = asides.iter().filter(|aside| aside.segment == segment && aside.len == bytes.len() as u64);
    as_long.map(|aside| &aside.name).find(|name| std::fs::read(directory.join(name)).is_ok_and(|there| there == bytes)).cloned()
}

/// As records of a crash tell it: one, which begins with what else it tells, and as many more as
/// the names need. None names a part of one.
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
        // No name of a file is as long as a record.
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

/// What the record of a crash names; nothing of another record.
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

/// What the records in a segment name. One that can't be read is for `verify` to complain of.
pub(super) fn told_in(segment: Option<&SegmentFile>) -> Vec<String> {
    let bytes = segment.and_then(|file| Segment::open(file).and_then(|segment| segment.load()).ok());
    bytes.map(|bytes| Found::of(&bytes).told).unwrap_or_default()
}

/// Digits of a segment's number.
const DIGITS: usize = 12;
/// Of the longest number of bytes.
const LEN_DIGITS: usize = 20;
const MORE: &str = "the trail had no end, as the record before says; ";
const TELLS: &str = " torn bytes put aside";
const NAMES: &str = ": ";
const BETWEEN: &str = ", ";
