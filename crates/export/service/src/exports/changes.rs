//! Changes that administrators make to the exports of a running server, on top of its lists.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use vouch_daemon::printable::printable;

use super::effective::ListedEntries;
use super::source_error::SourceError;
use super::syntax::{self, LineError, Source};

/// Where an export comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// A file of exports, or `--dir`.
    List,
    /// A change that is kept over restarts.
    Kept,
    /// A change that ends with the server.
    Temporary,
}

/// Each is a line in the syntax of exports(5). `None` hides an export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    kept: BTreeMap<Source, String>,
    temporary: BTreeMap<Source, Option<String>>,
}

impl Changes {
    /// A missing file holds no changes.
    pub(crate) fn read(path: &Path) -> Result<Self, SourceError> {
        let failed = |source| SourceError::File { path: path.to_owned(), source };
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(failed(error)),
        };
        let mut changes = Self::default();
        for (number, line) in (1..).zip(text.lines()) {
            if line.starts_with('#') || line.is_empty() {
                continue;
            }
            let source = source_of(line).map_err(|fault| {
                SourceError::Lines(format!("{}: line {number}: {fault}", path.display()))
            })?;
            changes.kept.insert(source, line.to_owned());
        }
        Ok(changes)
    }

    /// Durable when it returns; a failure leaves the old file.
    pub(crate) fn keep(&self, path: &Path) -> io::Result<()> {
        let directory = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        writeln!(file, "# Written by vouch export add, set and remove: changes are lost.")?;
        self.kept.values().try_for_each(|line| writeln!(file, "{line}"))?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        File::open(directory)?.sync_all()
    }

    pub(crate) fn has_same_kept(&self, other: &Self) -> bool {
        self.kept == other.kept
    }

    /// `line`: of this source.
    pub(crate) fn set(&mut self, source: Source, line: String, is_kept: bool) {
        if is_kept {
            self.temporary.remove(&source);
            self.kept.insert(source, line);
        } else {
            self.temporary.insert(source, Some(line));
        }
    }

    /// Hides an export until the server ends. One that is only temporary is forgotten.
    pub(crate) fn hide(&mut self, source: Source, is_listed: bool) {
        if is_listed || self.kept.contains_key(&source) {
            self.temporary.insert(source, None);
        } else {
            self.temporary.remove(&source);
        }
    }

    /// False if no kept change has this source.
    pub(crate) fn forget(&mut self, source: &Source) -> bool {
        self.temporary.remove(source);
        self.kept.remove(source).is_some()
    }

    pub(crate) fn discard_temporary(&mut self) {
        self.temporary.clear();
    }

    /// Of an export in force.
    pub(crate) fn origin(&self, source: &Source) -> Origin {
        match (self.temporary.get(source), self.kept.get(source)) {
            (Some(_), _) => Origin::Temporary,
            (None, Some(_)) => Origin::Kept,
            (None, None) => Origin::List,
        }
    }

    pub(crate) fn hidden(&self) -> impl Iterator<Item = &Source> {
        self.temporary.iter().filter(|(_, line)| line.is_none()).map(|(source, _)| source)
    }

    /// A change replaces all lines of the lists with its path.
    pub(super) fn apply(
        &self,
        entries: &mut ListedEntries,
        warnings: &mut Vec<String>,
    ) -> Result<(), SourceError> {
        let kept = self.kept.iter().filter(|(source, _)| !self.temporary.contains_key(source));
        let lines = kept.map(|(source, line)| (source, Some(line)));
        for (source, line) in
            lines.chain(self.temporary.iter().map(|(source, line)| (source, line.as_ref())))
        {
            entries.retain(|(entry, _)| entry.source != *source);
            let Some(line) = line else { continue };
            let parsed = syntax::parse(line.as_bytes()).map_err(|errors| {
                let faults: Vec<String> = errors.iter().map(LineError::without_line).collect();
                SourceError::Lines(format!(
                    "{}: {}",
                    printable(source.to_string().as_bytes()),
                    faults.join(" | ")
                ))
            })?;
            warnings.extend(parsed.warnings.into_iter().map(|warning| warning.text));
            entries.extend(parsed.entries.into_iter().map(|entry| (entry, None)));
        }
        Ok(())
    }
}

/// One line of exports(5).
pub(crate) fn line(source: &Source, clients: &[String]) -> String {
    let path = match source {
        Source::Directory(path) => path.clone(),
        Source::Tree(tree) => [b"tree:", &tree[..]].concat(),
    };
    [&[word(&path)], clients].concat().join(" ")
}

/// A path as a word of exports(5), whatever its bytes.
#[must_use]
pub fn path_word(path: &Path) -> String {
    word(path.as_os_str().as_bytes())
}

fn word(bytes: &[u8]) -> String {
    let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b'#');
    let shown = |&byte: &u8| match byte {
        byte if plain(byte) => char::from(byte).to_string(),
        byte => format!("\\{byte:03o}"),
    };
    bytes.iter().map(shown).collect()
}

/// Of a line with one export and its clients.
pub(crate) fn source_of(line: &str) -> Result<Source, String> {
    let parsed = syntax::parse(line.as_bytes()).map_err(|errors| {
        errors.iter().map(LineError::without_line).collect::<Vec<_>>().join(" | ")
    })?;
    match <[_; 1]>::try_from(parsed.entries) {
        Ok([entry]) => Ok(entry.source),
        Err(entries) => Err(format!("{} exports on one line; write one", entries.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(path: &str) -> Source {
        Source::Directory(path.as_bytes().to_vec())
    }

    fn sources(changes: &Changes, listed: &[&str]) -> Vec<(String, Origin)> {
        let text: String = listed.iter().map(|path| format!("{path} *(ro)\n")).collect();
        let parsed = syntax::parse(text.as_bytes()).unwrap();
        let mut entries: ListedEntries =
            parsed.entries.into_iter().map(|entry| (entry, None)).collect();
        changes.apply(&mut entries, &mut Vec::new()).unwrap();
        let shown = |(entry, _): &(syntax::Entry, _)| {
            (entry.source.to_string(), changes.origin(&entry.source))
        };
        entries.iter().map(shown).collect()
    }

    #[test]
    fn kept_changes_come_back_and_temporary_ones_do_not() {
        let file = tempfile::tempdir().unwrap();
        let path = file.path().join("exports");
        assert_eq!(Changes::read(&path).unwrap(), Changes::default());
        let mut changes = Changes::default();
        for (name, is_kept) in [("/a", true), ("/b", false), ("/odd \"#\\n\u{e9}", true)] {
            let source = directory(name);
            let line = line(&source, &["*(rw)".to_owned()]);
            assert_eq!(source_of(&line).as_ref(), Ok(&source));
            changes.set(source, line, is_kept);
        }
        changes.hide(directory("/listed"), true);
        changes.hide(directory("/b"), false);
        changes.keep(&path).unwrap();
        let all = sources(&changes, &["/listed", "/a"]);
        let odd = "/odd \"#\\n\u{e9}".to_owned();
        assert_eq!(all, [("/a".to_owned(), Origin::Kept), (odd.clone(), Origin::Kept)]);
        let again = Changes::read(&path).unwrap();
        let all = sources(&again, &["/listed"]);
        let listed = ("/listed".to_owned(), Origin::List);
        assert_eq!(all, [listed, ("/a".to_owned(), Origin::Kept), (odd, Origin::Kept)]);
    }

    #[test]
    fn temporary_change_stands_over_a_kept_one_until_it_is_discarded() {
        let mut changes = Changes::default();
        changes.set(directory("/a"), "/a *(rw)".to_owned(), true);
        changes.hide(directory("/a"), false);
        assert_eq!(sources(&changes, &[]), []);
        assert_eq!(changes.hidden().count(), 1);
        changes.discard_temporary();
        assert_eq!(sources(&changes, &[]), [("/a".to_owned(), Origin::Kept)]);
        assert!(changes.forget(&directory("/a")) && !changes.forget(&directory("/a")));
    }
}
