//! The command lines and settings in README.md, docs/ and packaging/ are valid.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::cli;
use crate::config::{self, Choice, Config, Problem};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn files(directory: &str, extensions: &[&str]) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(repository().join(directory)).expect("a directory of the repository");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .filter(|path| {
            path.extension()
                .is_some_and(|found| extensions.iter().any(|extension| found == *extension))
        })
        .collect()
}

fn pages() -> Vec<(PathBuf, String)> {
    let paths = files("docs", &["md"]).into_iter().chain([repository().join("README.md")]);
    paths.map(|path| (path.clone(), fs::read_to_string(path).expect("UTF-8"))).collect()
}

fn code(page: &str) -> impl Iterator<Item = &str> {
    page.lines().map(|line| line.strip_prefix("    ").unwrap_or_default())
}

/// A line that ends with a backslash continues.
fn command_lines(page: &str) -> Vec<String> {
    let (mut lines, mut is_open) = (Vec::<String>::new(), false);
    for line in code(page) {
        let prompt = ["$ ", "# ", "client# "].iter().find_map(|prompt| line.strip_prefix(prompt));
        if let (true, Some(last)) = (is_open, lines.last_mut()) {
            last.push_str(line);
        } else if let Some(command) = prompt {
            lines.push(command.to_owned());
        } else {
            continue;
        }
        let last = lines.last_mut().expect("just pushed");
        is_open = last.ends_with('\\');
        if is_open {
            last.pop();
        }
    }
    lines
}

/// As far as examples need a shell.
fn simple_commands(line: &str) -> Vec<Vec<String>> {
    let (mut commands, mut words, mut word, mut quote) =
        (Vec::new(), Vec::new(), None::<String>, None);
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(open), close) if open == close => quote = None,
            (Some(_), inner) => word.get_or_insert_default().push(inner),
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, '$') if characters.peek() == Some(&'(') => (),
            (None, ' ' | '&' | '|' | ';' | '>' | '<' | '(' | ')') => {
                words.extend(word.take());
                if character != ' ' {
                    commands.push(std::mem::take(&mut words));
                }
            }
            (None, other) => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    commands.push(words);
    commands
}

#[test]
fn command_lines_in_documents_are_accepted() {
    let mut count = 0;
    let mut root = cli::command();
    root.build();
    for (path, page) in pages() {
        // The settings that the page shows, one file of them at a time, or none.
        let configurations: Vec<Config> = settings(code(&page))
            .iter()
            .map(|file| read(file).0)
            .chain([Config::default()])
            .collect();
        for line in command_lines(&page) {
            for words in simple_commands(&line)
                .into_iter()
                .filter(|words| words.first().is_some_and(|word| word == "vouch"))
            {
                let words: Vec<OsString> =
                    words.iter().filter(|word| *word != "…").map(OsString::from).collect();
                let parse = |configuration: &Config| {
                    let given = config::first_pass(words.clone(), cli::command());
                    let parsed = cli::command().try_get_matches_from(
                        config::apply(&given, configuration, &root).arguments,
                    );
                    // Help is an error of the parser too.
                    parsed.err().filter(clap::Error::use_stderr)
                };
                let errors: Vec<clap::Error> = configurations.iter().map_while(parse).collect();
                assert!(
                    errors.len() < configurations.len(),
                    "{}: {line}\n{}",
                    path.display(),
                    errors[errors.len() - 1]
                );
                count += 1;
            }
        }
    }
    assert!(count > 100, "only {count} command lines were found");
}

fn is_table(line: &str) -> bool {
    let name = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    name.is_some_and(|name| {
        name.starts_with(|first: char| first.is_ascii_lowercase())
            && !name.contains(['"', ',', ' '])
    })
}

fn is_setting(line: &str) -> bool {
    let key = line.split_once(" = ").map(|(key, _)| key);
    key.is_some_and(|key| {
        key.starts_with(|first: char| first.is_ascii_lowercase()) && !key.contains([' ', '.'])
    })
}

/// Each run is a file of its own. Files of other programs have no table of ours, and no line before
/// them that names a file of ours.
fn settings<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut files = vec![(false, String::new())];
    for line in lines.map(str::trim_end) {
        let (is_named, last) = files.last_mut().expect("never empty");
        if is_table(line) || is_setting(line) || line.is_empty() && !last.is_empty() {
            last.push_str(line);
            last.push('\n');
        } else if last.is_empty() {
            *is_named = line.contains("/etc/vouch/conf.d/");
        } else {
            files.push((line.contains("/etc/vouch/conf.d/"), String::new()));
        }
    }
    let is_ours = |(is_named, file): &(bool, String)| {
        !file.is_empty()
            && (*is_named || file.lines().any(is_table))
            && !["[authenticate", "[overrides]"].iter().any(|table| file.contains(table))
    };
    files.into_iter().filter(is_ours).map(|(_, file)| file).collect()
}

fn read(file: &str) -> (Config, Vec<Problem>) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("vouch.toml");
    fs::write(&path, file.replace("HOSTID", &"a".repeat(52))).expect("a file");
    let mut root = cli::command();
    root.build();
    let (names, items, mut problems) = config::read(&Choice::ParsedArguments(path));
    let (config, more) = config::check(names, items, &root);
    problems.extend(more);
    if problems.is_empty() {
        problems = config::check_together(&config, cli::command);
    }
    (config, problems)
}

#[test]
fn settings_in_documents_are_accepted() {
    let mut found = Vec::new();
    for (path, page) in pages() {
        found.extend(settings(code(&page)).into_iter().map(|file| (path.clone(), file)));
    }
    for path in files("packaging/systemd", &["service", "timer"]) {
        let unit = fs::read_to_string(&path).expect("UTF-8");
        let comments = unit
            .lines()
            .map(|line| line.strip_prefix("#   ").unwrap_or(if line == "#" { "" } else { "end" }));
        found.extend(settings(comments).into_iter().map(|file| (path.clone(), file)));
    }
    // One file, whose settings are comments.
    let path = repository().join("packaging/config/vouch.toml");
    let example = fs::read_to_string(&path).expect("UTF-8");
    let lines = example.lines().map(|line| line.strip_prefix('#').unwrap_or(line));
    found.push((
        path,
        lines
            .filter(|line| is_table(line) || is_setting(line))
            .map(|line| format!("{line}\n"))
            .collect(),
    ));
    assert!(found.len() > 25, "only {} files were found", found.len());
    for (path, text) in found {
        let problems: Vec<String> = read(&text).1.iter().map(ToString::to_string).collect();
        assert!(problems.is_empty(), "{}: {problems:?} in\n{text}", path.display());
    }
}
