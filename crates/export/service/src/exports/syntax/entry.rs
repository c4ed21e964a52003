use std::fmt;

use super::client::MachineName;
use super::options::Options;

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    Directory(Vec<u8>),
    Tree(Vec<u8>),
}

impl Source {
    /// Removes empty path components. An error has the fault, and the text to write instead.
    pub fn parse(text: &[u8]) -> Result<Source, (String, &'static str)> {
        match text.strip_prefix(b"tree:") {
            Some(b"") => {
                Err(("tree: names no tree".into(), "write tree:/srv/db or tree:@host,HOSTID"))
            }
            Some(tree) => Ok(Source::Tree(tree.to_vec())),
            None if text.starts_with(b"/") && !text.contains(&0) => {
                Ok(Source::Directory(tidy(text)))
            }
            None => Err((
                format!("{} is not an absolute path", String::from_utf8_lossy(text)),
                "begin it with / or with tree:",
            )),
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) source: Source,
    pub(crate) line: usize,
    pub(crate) clients: Vec<Client>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Client {
    pub(crate) machine: MachineName,
    pub(crate) options: Options,
    pub(crate) at: At,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) file: usize,
    pub(crate) line: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LineError {
    pub(crate) line: usize,
    what: String,
    cure: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Warning {
    pub(crate) line: usize,
    pub(crate) text: String,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Parsed {
    pub(crate) entries: Vec<Entry>,
    pub(crate) warnings: Vec<Warning>,
}

impl LineError {
    pub(super) fn new(line: usize, what: impl Into<String>, cure: impl Into<String>) -> Self {
        LineError { line, what: what.into(), cure: cure.into() }
    }

    pub(crate) fn without_line(&self) -> String {
        format!("{}; {}", self.what, self.cure)
    }
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.without_line())
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}

fn tidy(path: &[u8]) -> Vec<u8> {
    let mut tidy = Vec::with_capacity(path.len());
    for part in path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".") {
        tidy.push(b'/');
        tidy.extend_from_slice(part);
    }
    if tidy.is_empty() { b"/".to_vec() } else { tidy }
}
