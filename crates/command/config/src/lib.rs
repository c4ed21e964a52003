//! Options of the command line, and short names of trees, from TOML files. The options are those of
//! the parser. Precedence: command line, environment, table of the tree, table of the command, top
//! level.

#![allow(missing_docs, reason = "an internal crate documents what a name does not say")]

mod apply; // Completes a command line by the settings.
mod check; // Settings against the options of the parser.
mod copy; // The trees as text, for processes that do not read the files.
mod read;
mod trust;

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use vouch_tree::TreeName;
use vouch_tree_client::TreeOptions;

pub use apply::{Applied, apply, first_pass};
pub use check::{AUTO, check, check_together, key, one_line, shared};
pub use read::{Choice, read};

#[derive(Debug, Default)]
pub struct Config {
    /// In the order of reading. A later file overrides an earlier one.
    pub files: Vec<PathBuf>,
    site: Table,
    /// Options by the words of a command: `mount`, `audit send`.
    commands: BTreeMap<String, Table>,
    namespace: Table,
    pub trees: BTreeMap<String, TreeEntry>,
}

#[derive(Debug)]
pub struct TreeEntry {
    pub name: TreeName,
    pub origin: Origin,
    options: Table,
    commands: BTreeMap<String, Table>,
}

type Table = BTreeMap<String, Setting>;

#[derive(Clone, Debug)]
pub struct Setting {
    pub value: Value,
    pub origin: Origin,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Flag(bool),
    One(String),
    Many(Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub file: Arc<Path>,
    pub line: usize,
}

/// A fault in the configuration: place, cause and remedy.
#[derive(Debug)]
pub struct Problem {
    pub place: String,
    pub what: String,
    pub cure: String,
}

impl Config {
    pub fn tree(&self, short: &str) -> Option<&TreeEntry> {
        self.trees.get(short)
    }

    /// The short name and the table of a tree.
    pub fn by_name(&self, name: &TreeName) -> Option<(&str, &TreeEntry)> {
        self.trees
            .iter()
            .find(|(_, tree)| tree.name.hostid() == name.hostid())
            .map(|(short, tree)| (&**short, tree))
    }

    /// `point` is as on a command line. A short name is no path.
    pub fn mounted_at(&self, point: &Path) -> Option<(&str, &TreeEntry)> {
        let point = self.absolute(point)?;
        let is_at = |tree: &TreeEntry| matches!(tree.commands.get("mount").and_then(|table| table.get(POINT)), Some(Setting { value: Value::One(dir), .. }) if Path::new(dir) == point);
        self.trees.iter().find(|(_, tree)| is_at(tree)).map(|(short, tree)| (&**short, tree))
    }

    fn absolute(&self, point: &Path) -> Option<PathBuf> {
        let is_short_name = point.to_str().is_some_and(|text| self.trees.contains_key(text));
        if is_short_name { None } else { std::path::absolute(point).ok() }
    }

    fn namespace_is_at(&self, point: &Path) -> bool {
        let Some(point) = self.absolute(point) else { return false };
        matches!(self.namespace.get(POINT), Some(Setting { value: Value::One(dir), .. }) if Path::new(dir) == point)
    }

    pub fn settings(&self) -> Vec<(String, Setting)> {
        let mut all = Vec::new();
        let mut add = |prefix: &str, table: &Table| {
            all.extend(
                table
                    .iter()
                    .map(|(option, setting)| (format!("{prefix}{option}"), setting.clone())),
            );
        };
        add("", &self.site);
        for (command, table) in &self.commands {
            add(&format!("{}.", command.replace(' ', ".")), table);
        }
        add("namespace.", &self.namespace);
        for (short, tree) in &self.trees {
            let name =
                Setting { value: Value::One(tree.name.to_string()), origin: tree.origin.clone() };
            add(&format!("tree.{short}."), &Table::from([("name".to_owned(), name)]));
            add(&format!("tree.{short}."), &tree.options);
            for (command, table) in &tree.commands {
                add(&format!("tree.{short}.{}.", command.replace(' ', ".")), table);
            }
        }
        all
    }
}

impl TreeEntry {
    /// Options of opening this tree, where one process reads several trees.
    pub fn tree_options(&self) -> Option<TreeOptions> {
        let is_set = |option: &str| {
            matches!(self.options.get(option), Some(Setting { value: Value::Flag(true), .. }))
        };
        let replicas = match self.options.get("replica").map(|setting| &setting.value) {
            Some(Value::One(replica)) => vec![replica.clone()],
            Some(Value::Many(replicas)) => replicas.clone(),
            _ => Vec::new(),
        };
        let options = TreeOptions {
            only_replicas: is_set("only-replicas") && !replicas.is_empty(),
            replicas,
            refuse_forwarding: is_set("refuse-forwarding"),
        };
        (options.refuse_forwarding || !options.replicas.is_empty()).then_some(options)
    }
}

/// Completes the command line of this process by the configuration, and keeps both. With `copy`,
/// the text of [`Config::trees_text`], the command line is complete, and no file is read.
pub fn complete(
    arguments: Vec<OsString>,
    command: fn() -> clap::Command,
    copy: Option<&str>,
) -> Result<Applied, Vec<Problem>> {
    let mut root = command();
    root.build();
    if let Some(copy) = copy {
        let _ = LOADED.set(Config::from_trees_text(copy, &root));
        let _ = ARGUMENTS.set(arguments.clone());
        return Ok(Applied { arguments, origins: HashMap::new() });
    }
    let given = first_pass(arguments, command());
    let mut config = Config::default();
    if let Some(choice) = given.choice() {
        let (files, items, mut problems) = read(&choice);
        let (checked, more) = check(files, items, &root);
        problems.extend(more);
        if !problems.is_empty() {
            return Err(problems);
        }
        config = checked;
    }
    let applied = apply(&given, &config, &root);
    let _ = LOADED.set(config);
    let _ = ARGUMENTS.set(applied.arguments.clone());
    Ok(applied)
}

/// Empty before it is set.
pub fn loaded() -> &'static Config {
    static EMPTY: OnceLock<Config> = OnceLock::new();
    LOADED.get().unwrap_or_else(|| EMPTY.get_or_init(Config::default))
}

pub fn arguments() -> Vec<OsString> {
    ARGUMENTS.get().cloned().unwrap_or_else(|| std::env::args_os().collect())
}

static LOADED: OnceLock<Config> = OnceLock::new();
static ARGUMENTS: OnceLock<Vec<OsString>> = OnceLock::new();

const POINT: &str = "dir";

/// Their meaning is the same everywhere, so they may stand at the top level.
const SITE_HEADINGS: [&str; 2] = ["Common options", "Reading options"];

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.place, self.what, self.cure)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Flag(on) => write!(f, "{on}"),
            Value::One(text) => f.write_str(text),
            Value::Many(texts) => f.write_str(&texts.join(", ")),
        }
    }
}
