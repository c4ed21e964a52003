//! Counts of a trail by user, file, export, client, operation and failure.

mod html;
mod timeline;

use std::collections::HashMap;
use std::io;
use std::path::Path;

use indicatif::BinaryBytes;
use serde::Serialize;
use vouch_audit::Record;
use vouch_audit::operations::number;
use vouch_audit::record::{Class, access};
use vouch_audit::trail::{Query, SearchMode, search};
use vouch_daemon::printable::printable;
use vouch_daemon::table;

use crate::record_text;
use timeline::Timeline;

pub fn summarize(directory: &Path, query: &Query, top: usize) -> io::Result<Report> {
    let mut counter = Counter::default();
    let mut scratch = Vec::new();
    search(directory, query, false, SearchMode::Index, |hit| {
        if let Ok(record) = hit.record(&mut scratch) {
            counter.count(&record);
        }
        true
    })?;
    Ok(counter.report(top))
}

/// Rows of a growing table; further keys are counted together.
const KEYS_MAX: usize = 1 << 20;
const OTHERS: &str = "(others)";

#[derive(Default)]
struct Counter {
    total: Count,
    span: Option<(u64, u64)>,
    lost: u64,
    timeline: Timeline,
    tables: [HashMap<String, Count>; 6],
    /// That no CLOSE has reported yet: by client, user and file.
    counted: HashMap<Vec<u8>, [u64; 2]>,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Count {
    records: u64,
    failures: u64,
    bytes_read: u64,
    bytes_written: u64,
}

impl Count {
    fn add(&mut self, other: Count) {
        self.records += other.records;
        self.failures += other.failures;
        self.bytes_read = self.bytes_read.saturating_add(other.bytes_read);
        self.bytes_written = self.bytes_written.saturating_add(other.bytes_written);
    }
}

const TABLES: [&str; 6] = ["user", "file", "export", "client", "operation", "failure"];

impl Counter {
    fn count(&mut self, record: &Record<'_>) {
        let failed = record.status() != 0 || matches!(record.class, Class::Refusal | Class::Gap);
        let [bytes_read, bytes_written] = self.moved(record);
        let one = Count { records: 1, failures: u64::from(failed), bytes_read, bytes_written };
        self.total.add(one);
        self.lost += record.gap.unwrap_or(0);
        let (from, until) = self.span.unwrap_or((record.time_ns, record.time_ns));
        self.span = Some((from.min(record.time_ns), until.max(record.time_ns)));
        self.timeline.add(record.time_ns, one);
        let operation = record_text::operation(record);
        let failure = if failed {
            {
                let error = record.errno_name().map_or_else(String::new, |name| format!(" {name}"));
                format!("{operation}{error} by {}", record_text::who(record))
            }
        } else {
            String::new()
        };
        let keys = [
            record_text::who(record),
            printable(record.path),
            printable(record.export),
            record_text::client(record),
            operation,
            failure,
        ];
        for (table, key) in self.tables.iter_mut().zip(keys) {
            if key.is_empty() || key == "-" {
                continue;
            }
            let key = if table.len() >= KEYS_MAX && !table.contains_key(&key) {
                OTHERS.to_owned()
            } else {
                key
            };
            table.entry(key).or_default().add(one);
        }
    }

    /// CLOSE and DELEGRETURN report totals that may include records of single READs and WRITEs.
    fn moved(&mut self, record: &Record<'_>) -> [u64; 2] {
        let moved = [record.read.unwrap_or(0), record.written.unwrap_or(0)];
        if record.class != Class::Operation || record.file.is_empty() {
            return moved;
        }
        let mut key = Vec::with_capacity(64);
        for part in [record.export, record.file, record.client, record.principal] {
            key.extend_from_slice(&(part.len() as u32).to_le_bytes());
            key.extend_from_slice(part);
        }
        key.extend_from_slice(format!("{:?} {:?}", record.address, record.uid).as_bytes());
        let is_sum = [number::CLOSE, number::DELEGRETURN].contains(&record.operation);
        if is_sum {
            let Some(counted) = self.counted.get_mut(&key) else { return moved };
            let mut rest = moved;
            for (rest, counted) in rest.iter_mut().zip(counted.iter_mut()) {
                let again = (*rest).min(*counted);
                (*rest, *counted) = (*rest - again, *counted - again);
            }
            if *counted == [0, 0] {
                self.counted.remove(&key);
            }
            return rest;
        }
        // Operations without an open are in no total.
        let is_unopened =
            record.requested.is_some_and(|requested| requested & access::UNOPENED != 0);
        if moved != [0, 0] && !is_unopened && self.counted.len() < KEYS_MAX {
            let counted = self.counted.entry(key).or_default();
            (counted[0], counted[1]) =
                (counted[0].saturating_add(moved[0]), counted[1].saturating_add(moved[1]));
        }
        moved
    }

    fn report(self, top: usize) -> Report {
        let tables = TABLES.iter().zip(self.tables).map(|(by, table)| {
            let distinct = table.len();
            let mut rows: Vec<Row> =
                table.into_iter().map(|(name, count)| Row { name, count }).collect();
            rows.sort_by(|a, b| {
                b.count.records.cmp(&a.count.records).then_with(|| a.name.cmp(&b.name))
            });
            rows.truncate(top);
            Table { by, distinct, rows }
        });
        let (from, until) = self.span.unwrap_or((0, 0));
        let bars = self
            .timeline
            .bars()
            .into_iter()
            .map(|(from, count)| Bar { from: record_text::time(from), count });
        let timeline = bars.collect();
        Report {
            from: record_text::time(from),
            until: record_text::time(until),
            total: self.total,
            lost: self.lost,
            tables: tables.collect(),
            timeline,
        }
    }
}

/// What a page says about itself.
#[derive(Debug, Default)]
pub struct About {
    /// The machine that made the report.
    pub host: String,
    pub directory: String,
    /// Id of the trail, in hexadecimal.
    pub trail: String,
    pub made_ns: u64,
    pub is_sound: bool,
    /// Result of the verification, for people.
    pub verification: String,
}

#[derive(Serialize)]
pub struct Report {
    from: String,
    until: String,
    #[serde(flatten)]
    total: Count,
    lost: u64,
    tables: Vec<Table>,
    timeline: Vec<Bar>,
}

#[derive(Serialize)]
struct Table {
    by: &'static str,
    distinct: usize,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    name: String,
    #[serde(flatten)]
    count: Count,
}

#[derive(Serialize)]
struct Bar {
    from: String,
    #[serde(flatten)]
    count: Count,
}

impl Report {
    pub fn is_empty(&self) -> bool {
        self.total.records == 0
    }

    /// Empty without records.
    pub fn text(&self) -> String {
        let Count { records, failures, .. } = self.total;
        if self.is_empty() {
            return String::new();
        }
        let mut text = format!(
            "{records} records, {failures} failures, {} lost; {} to {}\n",
            self.lost, self.from, self.until
        );
        for table in self.tables.iter().filter(|table| !table.rows.is_empty()) {
            text.push_str(&format!(
                "\nby {} ({} of {})\n",
                table.by,
                table.rows.len(),
                table.distinct
            ));
            let head =
                ["records", "failures", "read", "written", table.by].map(String::from).to_vec();
            let rows = table.rows.iter().map(|Row { name, count }| {
                let Count { records, failures, bytes_read, bytes_written } = count;
                vec![
                    records.to_string(),
                    failures.to_string(),
                    BinaryBytes(*bytes_read).to_string(),
                    BinaryBytes(*bytes_written).to_string(),
                    name.clone(),
                ]
            });
            let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
            text.push_str(&table::table(&rows, &[0, 1, 2, 3]));
        }
        text
    }

    pub fn html(&self, about: &About) -> String {
        html::page(self, about)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_in_close_totals_count_once() {
        let mut counter = Counter::default();
        let one = |operation, read, written, requested| Record {
            class: Class::Operation,
            operation,
            uid: Some(5),
            export: b"/srv",
            path: b"/srv/a",
            file: &[1],
            read: Some(read),
            written: Some(written),
            requested,
            ..Record::default()
        };
        counter.count(&one(number::READ, 100, 0, Some(access::READ)));
        counter.count(&one(number::WRITE, 0, 30, Some(access::MODIFY)));
        counter.count(&one(number::READ, 7, 0, Some(access::READ | access::UNOPENED)));
        counter.count(&one(number::CLOSE, 100, 30, None));
        assert_eq!((counter.total.bytes_read, counter.total.bytes_written), (107, 30));
        counter.count(&one(number::CLOSE, 5, 6, None));
        counter.count(&one(number::READ, 50, 0, Some(access::READ)));
        counter.count(&one(number::CLOSE, 80, 0, None));
        assert_eq!(
            (counter.total.bytes_read, counter.total.bytes_written, counter.total.records),
            (192, 36, 7)
        );
        assert!(counter.counted.is_empty());
    }
}
