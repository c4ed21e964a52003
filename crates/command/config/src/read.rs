//! Finds and reads the files. Knows no option.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Origin, Problem, Value, trust};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// /etc/vouch/vouch.toml and /etc/vouch/conf.d, if they exist.
    System,
    /// This file, or `vouch.toml` and `conf.d` in this directory. It must exist.
    ParsedArguments(PathBuf),
}

#[derive(Debug)]
pub struct Item {
    pub keys: Vec<String>,
    pub value: Value,
    pub origin: Origin,
}

pub fn read(choice: &Choice) -> (Vec<PathBuf>, Vec<Item>, Vec<Problem>) {
    let (mut items, mut problems) = (Vec::new(), Vec::new());
    let (files, mut read) = (find(choice, &mut problems), Vec::new());
    for (path, must_exist) in files {
        match read_file(&path) {
            Ok(Some(text)) => {
                parse(&path, &text, &mut items, &mut problems);
                read.push(path);
            }
            Ok(None) if must_exist => problems.push(Problem {
                place: path.display().to_string(),
                what: "no such file".into(),
                cure: "check --config and VOUCH_CONFIG".into(),
            }),
            Ok(None) => {}
            Err(problem) => problems.push(problem),
        }
    }
    (read, items, problems)
}

/// In the order of reading. True: the file must exist.
fn find(choice: &Choice, problems: &mut Vec<Problem>) -> Vec<(PathBuf, bool)> {
    let directory = match choice {
        Choice::System => Path::new(SYSTEM),
        Choice::ParsedArguments(path) if path.is_dir() => path,
        Choice::ParsedArguments(path) => return vec![(path.clone(), true)],
    };
    let mut files = vec![(directory.join("vouch.toml"), false)];
    let parts = directory.join("conf.d");
    let listed = match std::fs::read_dir(&parts) {
        Ok(listed) => listed,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return files,
        Err(error) => {
            problems.push(unreadable(&parts, &error));
            return files;
        }
    };
    // Users who may add files to the directory may change any setting.
    problems.extend(trust::check_directory(&parts).err());
    let names = listed.filter_map(Result::ok).map(|entry| entry.path());
    let is_part = |path: &PathBuf| {
        path.extension().is_some_and(|ending| ending == "toml")
            && !path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
    };
    let mut parts: Vec<_> = names.filter(is_part).take(FILES_MAX + 1).collect();
    if parts.len() > FILES_MAX {
        problems.push(Problem {
            place: directory.join("conf.d").display().to_string(),
            what: format!("has more than {FILES_MAX} files"),
            cure: "join some of them".into(),
        });
        return files;
    }
    parts.sort();
    files.extend(parts.into_iter().map(|path| (path, false)));
    files
}

fn read_file(path: &Path) -> Result<Option<String>, Problem> {
    if path == Path::new("/dev/null") {
        return Ok(Some(String::new()));
    }
    let problem = |what: String, cure: &str| Problem {
        place: path.display().to_string(),
        what,
        cure: cure.into(),
    };
    // A FIFO must not block the command.
    let opened = rustix::fs::open(
        path,
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    );
    let file = match opened {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(unreadable(path, &error.into())),
    };
    let metadata = file.metadata().map_err(|error| unreadable(path, &error))?;
    if !metadata.is_file() {
        return Err(problem("is not a regular file".into(), "give a TOML file"));
    }
    trust::check_file(path, &metadata)?;
    let mut bytes = Vec::new();
    file.take(LEN_MAX + 1).read_to_end(&mut bytes).map_err(|error| unreadable(path, &error))?;
    if bytes.len() as u64 > LEN_MAX {
        return Err(problem(
            format!("is longer than {} KiB", LEN_MAX >> 10),
            "divide it into files in conf.d",
        ));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(error) => {
            let line = line_of(error.as_bytes(), error.utf8_error().valid_up_to());
            let place = format!("{}:{line}", path.display());
            Err(Problem {
                place,
                what: "is not UTF-8".into(),
                cure: "save the file as UTF-8".into(),
            })
        }
    }
}

fn unreadable(path: &Path, error: &io::Error) -> Problem {
    Problem {
        place: path.display().to_string(),
        what: format!("can't be read: {error}"),
        cure: format!(
            "run `chmod a+rX {}`, or set VOUCH_CONFIG=/dev/null to do without it",
            path.display()
        ),
    }
}

/// Bounded by the length of the text; the parser limits the depth of tables.
pub(crate) fn parse(path: &Path, text: &str, items: &mut Vec<Item>, problems: &mut Vec<Problem>) {
    let file: Arc<Path> = path.into();
    match DeTable::parse(text) {
        Ok(table) => take_apart(
            table.get_ref(),
            &mut Vec::new(),
            &|at| Origin { file: file.clone(), line: line_of(text.as_bytes(), at) },
            items,
            problems,
        ),
        Err(error) => {
            let line = line_of(text.as_bytes(), error.span().map_or(0, |span| span.start));
            let place = format!("{}:{line}", file.display());
            let what = error.message().lines().collect::<Vec<_>>().join(", ");
            problems.push(Problem {
                place,
                what,
                cure: "write it as TOML: option = \"value\"".into(),
            });
        }
    }
}

fn take_apart(
    table: &DeTable<'_>,
    above: &mut Vec<String>,
    origin: &dyn Fn(usize) -> Origin,
    items: &mut Vec<Item>,
    problems: &mut Vec<Problem>,
) {
    for (key, value) in table {
        let origin_here = origin(key.span().start);
        above.push(key.get_ref().to_string());
        match value.get_ref() {
            DeValue::Table(inner) => take_apart(inner, above, origin, items, problems),
            other => match plain(other) {
                Some(value) => items.push(Item { keys: above.clone(), value, origin: origin_here }),
                None => problems.push(Problem {
                    place: origin_here.to_string(),
                    what: format!(
                        "`{}` has a list that holds more than plain values",
                        above.join(".")
                    ),
                    cure: "write a list of strings: [\"a\", \"b\"]".into(),
                }),
            },
        }
        above.pop();
    }
}

fn plain(value: &DeValue<'_>) -> Option<Value> {
    let text = |value: &DeValue<'_>| match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(if number.radix() == 10 {
            number.as_str().to_owned()
        } else {
            i64::from_str_radix(number.as_str(), number.radix()).ok()?.to_string()
        }),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Datetime(time) => Some(time.to_string()),
        DeValue::Boolean(on) => Some(on.to_string()),
        DeValue::Array(_) | DeValue::Table(_) => None,
    };
    match value {
        DeValue::Boolean(on) => Some(Value::Flag(*on)),
        DeValue::Array(values) => values
            .iter()
            .map(Spanned::get_ref)
            .map(text)
            .collect::<Option<Vec<_>>>()
            .map(Value::Many),
        other => text(other).map(Value::One),
    }
}

fn line_of(text: &[u8], at: usize) -> usize {
    1 + text[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count()
}

const SYSTEM: &str = "/etc/vouch";

const LEN_MAX: u64 = 4 << 20;

const FILES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_taken_apart_with_lines() {
        let (mut items, mut problems) = (Vec::new(), Vec::new());
        parse(
            Path::new("x"),
            "a = 1\n[t.u]\nb = [\"x\", 2]\n\nc.d = true\n",
            &mut items,
            &mut problems,
        );
        assert!(problems.is_empty(), "{problems:?}");
        let seen: Vec<_> = items
            .iter()
            .map(|item| (item.keys.join("."), item.value.to_string(), item.origin.line))
            .collect();
        let expected = [("a", "1", 1), ("t.u.b", "x, 2", 3), ("t.u.c.d", "true", 5)];
        assert_eq!(
            seen,
            expected.map(|(key, value, line)| (key.to_owned(), value.to_owned(), line))
        );
    }

    #[test]
    fn faults_name_their_line() {
        for (text, line) in [
            ("a = 1\nb = \n", 2),
            ("a = 1\na = 2\n", 2),
            ("\n\nx = [[1]]\n", 3),
            ("a = [{b = 1}]", 1),
        ] {
            let (mut items, mut problems) = (Vec::new(), Vec::new());
            parse(Path::new("x"), text, &mut items, &mut problems);
            assert_eq!(
                problems.first().map(|problem| problem.place.clone()),
                Some(format!("x:{line}")),
                "{text}"
            );
        }
    }

    #[test]
    fn deep_nesting_is_refused() {
        let text = format!("a = {}1{}", "[".repeat(100_000), "]".repeat(100_000));
        let (mut items, mut problems) = (Vec::new(), Vec::new());
        parse(Path::new("x"), &text, &mut items, &mut problems);
        assert!(!problems.is_empty());
    }
}
