//! History of a file's names: follows renames, links and removals of the file and of the
//! directories above it, from a path or a file id. Each name has a time span, because a free name
//! can be reused for another file. A change is recorded once it is durable, with the time of the
//! change. So sequence numbers may be out of order, and times count.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::path::Path;

use super::index::Term;
use super::search::{Query, Reading, search};
use crate::Record;
use crate::operations::number::{CLONE, COPY, CREATE, LINK, LOOKUP, OPEN, REMOVE, RENAME};
use crate::record::Class;

/// A name of a file, and the time during which it was valid.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// The path.
    pub path: Vec<u8>,
    /// First moment of validity.
    pub from: Moment,
    /// Last moment of validity.
    pub until: Moment,
}

/// A point in time: the time of a record, and its sequence number to break ties.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// Sequence number.
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

/// All names and ids of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Names, in the order of discovery.
    pub spans: Vec<Span>,
    /// File ids with their export, if known.
    pub files: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Limit on the number of names that are followed.
const SPANS_MAX: usize = 4096;

impl Names {
    /// Returns whether a record concerns the file.
    pub fn holds(&self, record: &Record<'_>) -> bool {
        let is_file = has_own_file(record)
            && self.files.iter().any(|(export, file)| file == record.file && (export.is_empty() || export == record.export));
        if is_file && !is_move(record) {
            return true;
        }
        let is_named = self
            .spans
            .iter()
            .any(|span| (span.from..=span.until).contains(&Moment::of(record)) && (span.path == record.path || span.path == record.path2));
        // A copy is recorded with the source's id and both names.
        let has_two = is_move(record) || [COPY, CLONE].contains(&record.operation);
        is_named && (is_file || !has_own_file(record) || has_two)
    }

    pub(super) fn terms(&self) -> Vec<(Term, Vec<u8>)> {
        let names: HashSet<&[u8]> = self.spans.iter().map(|span| &span.path[..]).collect();
        let files: HashSet<&[u8]> = self.files.iter().map(|(_, file)| &file[..]).collect();
        let names = names.into_iter().map(|name| (Term::Path, name.to_vec()));
        names.chain(files.into_iter().map(|file| (Term::File, file.to_vec()))).collect()
    }
}

/// Returns whether the record's file id belongs to the named file. A failed lookup or creation has
/// no id; trails of earlier versions then hold the directory's id.
fn has_own_file(record: &Record<'_>) -> bool {
    !record.file.is_empty() && (record.result == 0 || ![LOOKUP, OPEN, CREATE].contains(&record.operation))
}

/// Returns whether the record is a rename, link or removal.
pub(super) fn is_move(record: &Record<'_>) -> bool {
    record.class == Class::Operation && [RENAME, LINK, REMOVE].contains(&record.operation)
}

/// How a file is given.
#[derive(Clone, Copy, Debug)]
pub enum Seed<'a> {
    /// Every file that ever had this path.
    Path(&'a [u8]),
    /// The file with this id.
    File(&'a [u8]),
}

/// Finds all names and ids of a file.
pub fn names_of(directory: &Path, reading: Reading, seed: Seed<'_>) -> io::Result<Names> {
    let mut walk = Walk { directory, reading, moves: HashMap::new(), due: VecDeque::new(), seen: HashSet::new(), spans: Vec::new() };
    match seed {
        Seed::Path(path) => {
            walk.span(path, Moment::FIRST, Moment::LAST);
            for step in walk.steps(path)? {
                match step.what {
                    What::Becomes(name) => walk.push(name, step.at, Way::On),
                    What::Was(name) => walk.push(name, step.at, Way::Back),
                    What::Also(name) => {
                        walk.push(name.clone(), step.at, Way::On);
                        walk.push(name, step.at, Way::Back);
                    }
                    What::Ends => {}
                }
            }
            walk.run()?;
            let mut names = Names { spans: walk.spans, files: Vec::new() };
            names.files = files_of(directory, reading, &names.spans)?;
            Ok(names)
        }
        Seed::File(file) => {
            let query = Query { file: file.to_vec(), ..Query::default() };
            let mut spans: HashMap<Vec<u8>, (Moment, Moment)> = HashMap::new();
            each(directory, &query, reading, |record| {
                if !is_move(record) && !record.path.is_empty() {
                    let at = Moment::of(record);
                    let span = spans.entry(record.path.to_vec()).or_insert((at, at));
                    *span = (span.0.min(at), span.1.max(at));
                }
            })?;
            let mut spans: Vec<_> = spans.into_iter().collect();
            spans.sort_by_key(|(_, (from, _))| *from);
            for (path, (from, until)) in spans {
                walk.span(&path, from, until);
                walk.push(path.clone(), from, Way::Back);
                walk.push(path, until, Way::On);
            }
            walk.run()?;
            Ok(Names { spans: walk.spans, files: vec![(Vec::new(), file.to_vec())] })
        }
    }
}

/// Finds the ids of all files that had these names.
fn files_of(directory: &Path, reading: Reading, spans: &[Span]) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut files = Vec::new();
    let paths: HashSet<&[u8]> = spans.iter().map(|span| &span.path[..]).collect();
    for path in paths {
        let query = Query { path: vec![path.to_vec()], ..Query::default() };
        each(directory, &query, reading, |record| {
            let is_named = spans.iter().any(|span| span.path == record.path && (span.from..=span.until).contains(&Moment::of(record)));
            if is_named && has_own_file(record) && !is_move(record) {
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

fn each(directory: &Path, query: &Query, reading: Reading, mut each: impl FnMut(&Record<'_>)) -> io::Result<()> {
    let mut scratch = Vec::new();
    search(directory, query, false, reading, |hit| {
        if let Ok(record) = hit.record(&mut scratch) {
            each(&record);
        }
        true
    })?;
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Way {
    On,
    Back,
}

/// A change in the meaning of a name.
struct Step {
    at: Moment,
    what: What,
}

enum What {
    /// The file is renamed to this path.
    Becomes(Vec<u8>),
    /// The file had this path before.
    Was(Vec<u8>),
    /// The file also has this path.
    Also(Vec<u8>),
    /// The file loses the name.
    Ends,
}

/// A successful rename, link or removal.
#[derive(Clone)]
struct Move {
    at: Moment,
    operation: u16,
    from: Vec<u8>,
    to: Vec<u8>,
}

struct Walk<'a> {
    directory: &'a Path,
    reading: Reading,
    moves: HashMap<Vec<u8>, Vec<Move>>,
    due: VecDeque<(Vec<u8>, Moment, Way)>,
    seen: HashSet<(Vec<u8>, Moment, Way)>,
    spans: Vec<Span>,
}

impl Walk<'_> {
    fn push(&mut self, name: Vec<u8>, at: Moment, way: Way) {
        if self.seen.len() < SPANS_MAX && self.seen.insert((name.clone(), at, way)) {
            self.due.push_back((name, at, way));
        }
    }

    fn span(&mut self, path: &[u8], from: Moment, until: Moment) {
        let span = Span { path: path.to_vec(), from, until };
        if !self.spans.contains(&span) {
            self.spans.push(span);
        }
    }

    fn run(&mut self) -> io::Result<()> {
        while let Some((name, start, way)) = self.due.pop_front() {
            let steps = self.steps(&name)?;
            match way {
                Way::On => {
                    let mut until = Moment::LAST;
                    for step in steps.into_iter().filter(|step| step.at > start) {
                        match step.what {
                            What::Also(other) => self.push(other, step.at, Way::On),
                            What::Becomes(other) => {
                                until = step.at;
                                self.push(other, step.at, Way::On);
                                break;
                            }
                            // Another file took the name.
                            What::Was(_) | What::Ends => {
                                until = step.at;
                                break;
                            }
                        }
                    }
                    self.span(&name, start, until);
                }
                Way::Back => {
                    let mut from = Moment::FIRST;
                    for step in steps.into_iter().rev().filter(|step| step.at < start) {
                        match step.what {
                            What::Also(other) => {
                                self.push(other.clone(), step.at, Way::Back);
                                self.push(other, step.at, Way::On);
                            }
                            What::Was(other) => {
                                from = step.at;
                                self.push(other, step.at, Way::Back);
                                break;
                            }
                            // The name belonged to another file before.
                            What::Becomes(_) | What::Ends => {
                                from = step.at.next();
                                break;
                            }
                        }
                    }
                    self.span(&name, from, start);
                }
            }
        }
        Ok(())
    }

    /// Returns all changes to a name in order, including renames of the directories in it.
    fn steps(&mut self, name: &[u8]) -> io::Result<Vec<Step>> {
        let mut steps = Vec::new();
        let ends = (1..name.len()).filter(|at| name[*at] == b'/').chain([name.len()]);
        for end in ends.collect::<Vec<_>>() {
            let (part, rest) = name.split_at(end);
            let with_rest = |path: &[u8]| [path, rest].concat();
            let is_whole = rest.is_empty();
            for one in self.moves(part)? {
                let what = match one.operation {
                    RENAME if one.from == one.to => continue,
                    RENAME if one.from == part => What::Becomes(with_rest(&one.to)),
                    RENAME => What::Was(with_rest(&one.from)),
                    LINK if is_whole => What::Also(if one.from == part { one.to } else { one.from }),
                    REMOVE if is_whole => What::Ends,
                    _ => continue,
                };
                steps.push(Step { at: one.at, what });
            }
        }
        steps.sort_by_key(|step| step.at);
        Ok(steps)
    }

    fn moves(&mut self, path: &[u8]) -> io::Result<Vec<Move>> {
        if let Some(moves) = self.moves.get(path) {
            return Ok(moves.clone());
        }
        let query = Query { moved: path.to_vec(), ..Query::default() };
        let mut moves = Vec::new();
        each(self.directory, &query, self.reading, |record| {
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
