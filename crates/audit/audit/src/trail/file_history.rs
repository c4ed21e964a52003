//! Renames, links and removals of a file and the directories above it, in order of time, not of
//! durability. Names have time spans, because a free name can be reused.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::path::Path;

use super::index::Term;
use super::search::{self, Query, SearchMode};
use crate::Record;
use crate::operations::number::{CLONE, COPY, CREATE, LINK, LOOKUP, OPEN, REMOVE, RENAME};
use crate::record::Class;

/// A name that a file had for some time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NameSpan {
    /// As recorded.
    pub path: Vec<u8>,
    /// First moment.
    pub from: Moment,
    /// Last moment.
    pub until: Moment,
}

/// The time of a record, and its sequence number to break ties.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// Number in the trail.
    pub seq: u64,
}

impl Moment {
    const FIRST: Moment = Moment { time_ns: 0, seq: 0 };
    const LAST: Moment = Moment { time_ns: u64::MAX, seq: u64::MAX };

    fn of(record: &Record<'_>) -> Moment {
        Moment { time_ns: record.time_ns, seq: record.seq }
    }

    fn next(self) -> Moment {
        Moment { seq: self.seq + 1, ..self }
    }
}

/// All names and ids of some files over time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileHistory {
    /// In the order of discovery.
    pub spans: Vec<NameSpan>,
    /// With their export, if known.
    pub files: Vec<(Vec<u8>, Vec<u8>)>,
}

const SPANS_MAX: usize = 4096;

impl FileHistory {
    /// True if the record is about one of the files.
    pub fn contains(&self, record: &Record<'_>) -> bool {
        let is_file = has_file_id(record)
            && self.files.iter().any(|(export, file)| {
                file == record.file && (export.is_empty() || export == record.export)
            });
        if is_file && !is_move(record) {
            return true;
        }
        let is_named = self.spans.iter().any(|span| {
            (span.from..=span.until).contains(&Moment::of(record))
                && (span.path == record.path || span.path == record.path2)
        });
        let has_second_path = is_move(record) || [COPY, CLONE].contains(&record.operation);
        is_named && (is_file || !has_file_id(record) || has_second_path)
    }

    pub(super) fn terms(&self) -> Vec<(Term, Vec<u8>)> {
        let names: HashSet<&[u8]> = self.spans.iter().map(|span| &span.path[..]).collect();
        let files: HashSet<&[u8]> = self.files.iter().map(|(_, file)| &file[..]).collect();
        let names = names.into_iter().map(|name| (Term::Path, name.to_vec()));
        names.chain(files.into_iter().map(|file| (Term::File, file.to_vec()))).collect()
    }
}

/// A failed look-up or creation has no id; earlier versions recorded the directory's id.
fn has_file_id(record: &Record<'_>) -> bool {
    !record.file.is_empty()
        && (record.result == 0 || ![LOOKUP, OPEN, CREATE].contains(&record.operation))
}

pub(super) fn is_move(record: &Record<'_>) -> bool {
    record.class == Class::Operation && [RENAME, LINK, REMOVE].contains(&record.operation)
}

/// Where the search for a file's names begins.
#[derive(Clone, Copy, Debug)]
pub enum FileSeed<'a> {
    /// Every file that ever had this path.
    Path(&'a [u8]),
    /// A file id.
    File(&'a [u8]),
}

/// Follows renames, links and removals in both directions of time.
pub fn file_history(
    directory: &Path,
    mode: SearchMode,
    seed: FileSeed<'_>,
) -> io::Result<FileHistory> {
    let mut search = HistorySearch {
        directory,
        mode,
        moves: HashMap::new(),
        queue: VecDeque::new(),
        seen: HashSet::new(),
        spans: Vec::new(),
    };
    match seed {
        FileSeed::Path(path) => {
            search.add_span(path, Moment::FIRST, Moment::LAST);
            for change in search.changes(path)? {
                match change.kind {
                    ChangeKind::RenamedTo(name) => {
                        search.enqueue(name, change.at, Direction::Forward)
                    }
                    ChangeKind::RenamedFrom(name) => {
                        search.enqueue(name, change.at, Direction::Backward)
                    }
                    ChangeKind::AlsoNamed(name) => {
                        search.enqueue(name.clone(), change.at, Direction::Forward);
                        search.enqueue(name, change.at, Direction::Backward);
                    }
                    ChangeKind::Removed => {}
                }
            }
            search.follow_all()?;
            let mut names = FileHistory { spans: search.spans, files: Vec::new() };
            names.files = files_of(directory, mode, &names.spans)?;
            Ok(names)
        }
        FileSeed::File(file) => {
            let query = Query { file: file.to_vec(), ..Query::default() };
            let mut spans: HashMap<Vec<u8>, (Moment, Moment)> = HashMap::new();
            each_match(directory, &query, mode, |record| {
                if !is_move(record) && !record.path.is_empty() {
                    let at = Moment::of(record);
                    let span = spans.entry(record.path.to_vec()).or_insert((at, at));
                    *span = (span.0.min(at), span.1.max(at));
                }
            })?;
            let mut spans: Vec<_> = spans.into_iter().collect();
            spans.sort_by_key(|(_, (from, _))| *from);
            for (path, (from, until)) in spans {
                search.add_span(&path, from, until);
                search.enqueue(path.clone(), from, Direction::Backward);
                search.enqueue(path, until, Direction::Forward);
            }
            search.follow_all()?;
            Ok(FileHistory { spans: search.spans, files: vec![(Vec::new(), file.to_vec())] })
        }
    }
}

fn files_of(
    directory: &Path,
    mode: SearchMode,
    spans: &[NameSpan],
) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut files = Vec::new();
    let paths: HashSet<&[u8]> = spans.iter().map(|span| &span.path[..]).collect();
    for path in paths {
        let query = Query { path: vec![path.to_vec()], ..Query::default() };
        each_match(directory, &query, mode, |record| {
            let is_named = spans.iter().any(|span| {
                span.path == record.path && (span.from..=span.until).contains(&Moment::of(record))
            });
            if is_named && has_file_id(record) && !is_move(record) {
                let file = (record.export.to_vec(), record.file.to_vec());
                if !files.contains(&file) {
                    files.push(file);
                }
            }
        })?;
    }
    files.sort();
    Ok(files)
}

fn each_match(
    directory: &Path,
    query: &Query,
    mode: SearchMode,
    mut each: impl FnMut(&Record<'_>),
) -> io::Result<()> {
    let mut scratch = Vec::new();
    search::search(directory, query, false, mode, |hit| {
        if let Ok(record) = hit.record(&mut scratch) {
            each(&record);
        }
        true
    })?;
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Direction {
    Forward,
    Backward,
}

struct NameChange {
    at: Moment,
    kind: ChangeKind,
}

enum ChangeKind {
    RenamedTo(Vec<u8>),
    RenamedFrom(Vec<u8>),
    AlsoNamed(Vec<u8>),
    Removed,
}

#[derive(Clone)]
struct Move {
    at: Moment,
    operation: u16,
    from: Vec<u8>,
    to: Vec<u8>,
}

struct HistorySearch<'a> {
    directory: &'a Path,
    mode: SearchMode,
    moves: HashMap<Vec<u8>, Vec<Move>>,
    queue: VecDeque<(Vec<u8>, Moment, Direction)>,
    seen: HashSet<(Vec<u8>, Moment, Direction)>,
    spans: Vec<NameSpan>,
}

impl HistorySearch<'_> {
    fn enqueue(&mut self, name: Vec<u8>, at: Moment, direction: Direction) {
        if self.seen.len() < SPANS_MAX && self.seen.insert((name.clone(), at, direction)) {
            self.queue.push_back((name, at, direction));
        }
    }

    fn add_span(&mut self, path: &[u8], from: Moment, until: Moment) {
        let span = NameSpan { path: path.to_vec(), from, until };
        if !self.spans.contains(&span) {
            self.spans.push(span);
        }
    }

    fn follow_all(&mut self) -> io::Result<()> {
        while let Some((name, start, direction)) = self.queue.pop_front() {
            let changes = self.changes(&name)?;
            match direction {
                Direction::Forward => {
                    let mut until = Moment::LAST;
                    for change in changes.into_iter().filter(|change| change.at > start) {
                        match change.kind {
                            ChangeKind::AlsoNamed(other) => {
                                self.enqueue(other, change.at, Direction::Forward)
                            }
                            ChangeKind::RenamedTo(other) => {
                                until = change.at;
                                self.enqueue(other, change.at, Direction::Forward);
                                break;
                            }
                            ChangeKind::RenamedFrom(_) | ChangeKind::Removed => {
                                until = change.at;
                                break;
                            }
                        }
                    }
                    self.add_span(&name, start, until);
                }
                Direction::Backward => {
                    let mut from = Moment::FIRST;
                    for change in changes.into_iter().rev().filter(|change| change.at < start) {
                        match change.kind {
                            ChangeKind::AlsoNamed(other) => {
                                self.enqueue(other.clone(), change.at, Direction::Backward);
                                self.enqueue(other, change.at, Direction::Forward);
                            }
                            ChangeKind::RenamedFrom(other) => {
                                from = change.at;
                                self.enqueue(other, change.at, Direction::Backward);
                                break;
                            }
                            // The name belonged to another file before.
                            ChangeKind::RenamedTo(_) | ChangeKind::Removed => {
                                from = change.at.next();
                                break;
                            }
                        }
                    }
                    self.add_span(&name, from, start);
                }
            }
        }
        Ok(())
    }

    fn changes(&mut self, name: &[u8]) -> io::Result<Vec<NameChange>> {
        let mut changes = Vec::new();
        let ends = (1..name.len()).filter(|at| name[*at] == b'/').chain([name.len()]);
        for end in ends.collect::<Vec<_>>() {
            let (part, rest) = name.split_at(end);
            let with_rest = |path: &[u8]| [path, rest].concat();
            let is_whole = rest.is_empty();
            for step in self.moves(part)? {
                let change = match step.operation {
                    RENAME if step.from == step.to => continue,
                    RENAME if step.from == part => ChangeKind::RenamedTo(with_rest(&step.to)),
                    RENAME => ChangeKind::RenamedFrom(with_rest(&step.from)),
                    LINK if is_whole => {
                        ChangeKind::AlsoNamed(if step.from == part { step.to } else { step.from })
                    }
                    REMOVE if is_whole => ChangeKind::Removed,
                    _ => continue,
                };
                changes.push(NameChange { at: step.at, kind: change });
            }
        }
        changes.sort_by_key(|change| change.at);
        Ok(changes)
    }

    fn moves(&mut self, path: &[u8]) -> io::Result<Vec<Move>> {
        if let Some(moves) = self.moves.get(path) {
            return Ok(moves.clone());
        }
        let query = Query { moved: path.to_vec(), ..Query::default() };
        let mut moves = Vec::new();
        each_match(self.directory, &query, self.mode, |record| {
            if record.result == 0 {
                moves.push(Move {
                    at: Moment::of(record),
                    operation: record.operation,
                    from: record.path.to_vec(),
                    to: record.path2.to_vec(),
                });
            }
        })?;
        self.moves.insert(path.to_vec(), moves.clone());
        Ok(moves)
    }
}
