//! exports(5): the text of the file becomes a list of exports, comments on what is not taken, and
//! faults. Pure: reads no file and asks no name service.

mod client;
mod duplicate;
mod lex;
mod options;

use std::fmt;

pub(crate) use client::{Who, fits, in_network};
pub(crate) use duplicate::duplicates;
use options::Objection;
pub(crate) use options::{Fsid, Options};

/// What a line shows to clients.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// A directory of this machine.
    Directory(Vec<u8>),
    /// A published tree: `tree:` and a database's path or a self-certifying name. What is behind
    /// the colon.
    Tree(Vec<u8>),
}

impl Source {
    /// A directory or a tree as a line of exports(5) begins, tidied; else what is wrong, and what
    /// helps.
    ///
    /// # Errors
    /// What is wrong, and what to write instead.
    pub fn parse(text: &[u8]) -> Result<Source, (String, &'static str)> {
        match text.strip_prefix(b"tree:") {
            Some(b"") => Err(("tree: names no tree".into(), "write tree:/srv/db or tree:@host,HOSTID")),
            Some(tree) => Ok(Source::Tree(tree.to_vec())),
            None if text.starts_with(b"/") && !text.contains(&0) => Ok(Source::Directory(tidy(text))),
            None => Err((format!("{} is not an absolute path", String::from_utf8_lossy(text)), "begin it with / or with tree:")),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Directory(path) => f.write_str(&String::from_utf8_lossy(path)),
            Source::Tree(tree) => write!(f, "tree:{}", String::from_utf8_lossy(tree)),
        }
    }
}

/// One path and those who may mount it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) source: Source,
    /// The line that named it first.
    pub(crate) line: usize,
    pub(crate) clients: Vec<Client>,
}

/// One client specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Client {
    pub(crate) who: Who,
    pub(crate) options: Options,
    pub(crate) at: At,
}

/// Where a client is named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct At {
    /// Which of the files, where there are several.
    pub(crate) file: usize,
    pub(crate) line: usize,
}

/// Something that keeps a file from being served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) line: usize,
    what: String,
    cure: String,
}

/// Something that is served otherwise than the file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Comment {
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// A file that can be served.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Parsed {
    pub(crate) entries: Vec<Entry>,
    pub(crate) comments: Vec<Comment>,
}

impl Fault {
    fn new(line: usize, what: impl Into<String>, cure: impl Into<String>) -> Self {
        Fault { line, what: what.into(), cure: cure.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}; {}", self.line, self.what, self.cure)
    }
}

impl fmt::Display for Comment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}

/// Reads a file. All faults are told, not the first alone.
pub(crate) fn parse(text: &[u8]) -> Result<Parsed, Vec<Fault>> {
    let mut faults = Vec::new();
    let mut parsed = Parsed::default();
    for line in lex::lines(text, &mut faults) {
        read_line(&line, &mut parsed, &mut faults);
    }
    if faults.is_empty() { Ok(parsed) } else { Err(faults) }
}

/// Reads a list of options alone, for the command line.
pub(crate) fn parse_options(list: &str) -> Result<(Options, Vec<Comment>), Vec<Fault>> {
    let (mut options, mut objections) = (Options::default(), Vec::new());
    options.take(list, &mut objections);
    objections.extend(options.differences());
    let (mut comments, mut faults) = (Vec::new(), Vec::new());
    sort_out(1, objections, &mut comments, &mut faults);
    if faults.is_empty() { Ok((options, comments)) } else { Err(faults) }
}

fn read_line(line: &lex::Line, parsed: &mut Parsed, faults: &mut Vec<Fault>) {
    let source = match Source::parse(&line.path) {
        Ok(source) => source,
        Err((what, cure)) => {
            faults.push(Fault::new(line.number, what, cure));
            return;
        }
    };
    let mut defaults = Options::default();
    let mut clients: Vec<Client> = Vec::new();
    for word in &line.words {
        let mut objections = Vec::new();
        // exports(5): a dash and options are the defaults of what follows on the line.
        if let Some(list) = word.strip_prefix('-').filter(|_| !word.contains('(')) {
            defaults = Options::default();
            defaults.take(list, &mut objections);
            sort_out(line.number, objections, &mut parsed.comments, faults);
            continue;
        }
        let (name, list) = match word.split_once('(') {
            None => (word.as_str(), ""),
            Some((name, rest)) => match rest.strip_suffix(')') {
                Some(list) if !list.contains(['(', ')']) => (name, list),
                _ => {
                    faults.push(Fault::new(
                        line.number,
                        format!("{word}: parentheses do not match"),
                        "write client(option,option) without spaces",
                    ));
                    continue;
                }
            },
        };
        let name = if name.is_empty() {
            // What exportfs warns of too: a space before the parenthesis gives the world what was meant for one
            // host.
            parsed.comments.push(Comment {
                line: line.number,
                text: format!("({list}) has no client before it and is for everybody; write *({list}) if that is meant"),
            });
            "*"
        } else {
            name
        };
        match Who::parse(name) {
            Ok((who, flavour)) => {
                let mut options = defaults.clone();
                if let Some(flavour) = flavour {
                    options.set_flavour(flavour);
                }
                options.take(list, &mut objections);
                objections.extend(options.differences());
                if clients.iter().any(|client| client.who == who && client.options.same_flavours(&options)) {
                    faults.push(Fault::new(line.number, format!("{name} is named twice"), "keep one of them"));
                }
                clients.push(Client { who, options, at: At { file: 0, line: line.number } });
            }
            Err((what, cure)) => faults.push(Fault::new(line.number, what, cure)),
        }
        sort_out(line.number, objections, &mut parsed.comments, faults);
    }
    if line.words.iter().all(|word| word.starts_with('-')) {
        parsed
            .comments
            .push(Comment { line: line.number, text: "no client is named, so it is for everybody; write * if that is meant".into() });
        clients.push(Client { who: Who::Everyone, options: defaults, at: At { file: 0, line: line.number } });
    }
    match parsed.entries.iter_mut().find(|entry| entry.source == source) {
        Some(entry) => entry.clients.extend(clients),
        None => parsed.entries.push(Entry { source, line: line.number, clients }),
    }
}

fn sort_out(line: usize, objections: Vec<Objection>, comments: &mut Vec<Comment>, faults: &mut Vec<Fault>) {
    for objection in objections {
        match objection {
            Objection::Comment(text) => comments.push(Comment { line, text }),
            Objection::Fault(what, cure) => faults.push(Fault::new(line, what, cure)),
        }
    }
}

/// The path without empty and `.` components. `..` stays: what it means is the system's to say.
fn tidy(path: &[u8]) -> Vec<u8> {
    let mut tidy = Vec::with_capacity(path.len());
    for part in path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".") {
        tidy.push(b'/');
        tidy.extend_from_slice(part);
    }
    if tidy.is_empty() { b"/".to_vec() } else { tidy }
}

#[cfg(test)]
mod tests;
