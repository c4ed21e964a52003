//! Damaged bytes after a crash, kept in files for an investigator. Recovery records name each file
//! once.

use std::io;
use std::path::Path;

use super::segment_scan::SegmentScan;
use crate::record::{Act, Class, Record, TEXT_LEN_MAX, class_of};
use crate::trail::files::TORN_EXTENSION;
use crate::trail::{Segment, SegmentFile};

/// Damaged bytes, moved aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantineFile {
    /// Where they were.
    pub segment: u64,
    /// Of the file in the trail's directory.
    pub name: String,
    /// Bytes; 0 if the segment was an empty file.
    pub len: u64,
}

impl QuarantineFile {
    fn of(name: String, len: u64) -> Option<QuarantineFile> {
        let segment = name.strip_suffix(TORN_EXTENSION)?.strip_suffix('.')?.split('.').next()?;
        let segment = segment.parse().ok().filter(|_| segment.len() == DIGITS)?;
        Some(QuarantineFile { segment, name, len })
    }
}

pub(super) fn list(directory: &Path) -> io::Result<Vec<QuarantineFile>> {
    let mut scan = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if let Ok(name) = entry.file_name().into_string()
            && let Some(quarantined) = QuarantineFile::of(name, 0)
        {
            scan.push(QuarantineFile { len: entry.metadata()?.len(), ..quarantined });
        }
    }
    scan.sort_by(|a, b| {
        (a.segment, a.name.len(), &a.name).cmp(&(b.segment, b.name.len(), &b.name))
    });
    Ok(scan)
}

/// Files that no recovery record names yet.
pub(super) fn unreported(
    quarantined_files: &[QuarantineFile],
    segment: u64,
    scan: &SegmentScan,
    previous: Option<&SegmentFile>,
) -> Vec<QuarantineFile> {
    let first = if scan.is_closed { segment + 1 } else { segment };
    let mut unreported: Vec<_> = quarantined_files
        .iter()
        .filter(|quarantined| {
            quarantined.segment >= first && !scan.reported_names.contains(&quarantined.name)
        })
        .cloned()
        .collect();
    if unreported.iter().any(|quarantined| quarantined.segment == segment) {
        let reported_names = names_in_segment(previous);
        unreported.retain(|quarantined| !reported_names.contains(&quarantined.name));
    }
    unreported
}

/// The name was never used before.
pub(super) fn add_file(
    quarantined_files: &mut Vec<QuarantineFile>,
    reported_names: &[String],
    segment: u64,
    len: u64,
) -> String {
    let name = (1u64..)
        .map(|number| match number {
            1 => format!("{segment:0DIGITS$}.{TORN_EXTENSION}"),
            _ => format!("{segment:0DIGITS$}.{number}.{TORN_EXTENSION}"),
        })
        .find(|name| {
            !reported_names.contains(name)
                && quarantined_files.iter().all(|quarantined| quarantined.name != *name)
        })
        .expect("a free number exists");
    quarantined_files.push(QuarantineFile { segment, name: name.clone(), len });
    name
}

pub(super) fn find_with_bytes(
    quarantined_files: &[QuarantineFile],
    directory: &Path,
    segment: u64,
    bytes: &[u8],
) -> Option<String> {
    let candidates = quarantined_files.iter().filter(|quarantined| {
        quarantined.segment == segment && quarantined.len == bytes.len() as u64
    });
    candidates
        .map(|quarantined| &quarantined.name)
        .find(|name| std::fs::read(directory.join(name)).is_ok_and(|content| content == bytes))
        .cloned()
}

pub(super) fn recovery_details(first: &str, quarantined_files: &[QuarantineFile]) -> Vec<String> {
    let (mut details, mut remaining) = (Vec::new(), quarantined_files);
    loop {
        let prefix = if details.is_empty() { first } else { CONTINUED };
        let mut room = TEXT_LEN_MAX
            .saturating_sub(prefix.len() + LEN_DIGITS + QUARANTINED.len() + NAMES_START.len());
        let fits = |quarantined: &&QuarantineFile| {
            let rest = room.checked_sub(quarantined.name.len() + SEPARATOR.len());
            room = rest.unwrap_or(0);
            rest.is_some()
        };
        let count = remaining.iter().take_while(fits).count().max(1).min(remaining.len());
        let (reported_names, rest) = remaining.split_at(count);
        let names: Vec<_> = reported_names.iter().map(|quarantined| &*quarantined.name).collect();
        let len: u64 = reported_names.iter().map(|quarantined| quarantined.len).sum();
        details.push(format!(
            "{prefix}{len}{QUARANTINED}{}{}",
            if names.is_empty() { "" } else { NAMES_START },
            names.join(SEPARATOR)
        ));
        remaining = rest;
        if remaining.is_empty() {
            return details;
        }
    }
}

pub(super) fn reported_names(body: &[u8]) -> Vec<String> {
    if class_of(body) != Some(Class::Administrative as u8) {
        return Vec::new();
    }
    let mut scratch = Vec::new();
    let record = Record::decode(body, &mut scratch)
        .ok()
        .filter(|record| record.operation == Act::Recovered as u16);
    let detail = record
        .map(|record| String::from_utf8_lossy(record.detail).into_owned())
        .unwrap_or_default();
    let names = detail.split_once(QUARANTINED).and_then(|(_, rest)| rest.strip_prefix(NAMES_START));
    names.map(|names| names.split(SEPARATOR).map(str::to_owned).collect()).unwrap_or_default()
}

pub(super) fn names_in_segment(segment: Option<&SegmentFile>) -> Vec<String> {
    let bytes =
        segment.and_then(|file| Segment::open(file).and_then(|segment| segment.load()).ok());
    bytes.map(|bytes| SegmentScan::of(&bytes).reported_names).unwrap_or_default()
}

const DIGITS: usize = 12;
const LEN_DIGITS: usize = 20;
const CONTINUED: &str = "the trail had no end, as the record before says; ";
const QUARANTINED: &str = " torn bytes put aside";
const NAMES_START: &str = ": ";
const SEPARATOR: &str = ", ";
