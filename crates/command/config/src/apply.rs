//! A setting becomes an argument `--option=value`, which the parser checks. An option that is given
//! already, or conflicts with a given one, is left out.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::check::{is_shared, is_without_options, key};
use super::read::Choice;
use super::{Config, Origin, Setting, Table, Value};

pub struct ParsedArguments {
    arguments: Vec<OsString>,
    /// Switches that are turned off: `--no-cache=false`.
    off: Vec<String>,
    /// `None` for help, the version, and lines without a command.
    matches: Option<ArgMatches>,
}

pub struct Applied {
    pub arguments: Vec<OsString>,
    pub origins: HashMap<String, Origin>,
}

impl Applied {
    /// Names the files of the options in a parser error.
    pub fn notes_on(&self, error: &clap::Error) -> Vec<String> {
        let text = error.to_string();
        let named = self.origins.iter().filter(|(option, _)| text.contains(&format!("--{option}")));
        named.map(|(option, origin)| format!("--{option} is from {origin}")).collect()
    }
}

/// Parses a command line without judging it, and takes out switches with a value.
pub fn first_pass(arguments: Vec<OsString>, command: Command) -> ParsedArguments {
    let mut command = command.ignore_errors(true);
    command.build();
    let switches = switches(&command);
    let (mut kept, mut off, mut is_after) = (Vec::new(), Vec::new(), false);
    for argument in &arguments {
        is_after |= argument == "--";
        let text = argument
            .to_str()
            .filter(|_| !is_after)
            .and_then(|text| text.strip_prefix("--")?.split_once('='));
        match text {
            Some((switch, "true")) if switches.iter().any(|known| known == switch) => {
                kept.push(format!("--{switch}").into())
            }
            Some((switch, "false")) if switches.iter().any(|known| known == switch) => {
                off.push(switch.to_owned())
            }
            _ => kept.push(argument.clone()),
        }
    }
    let matches = command
        .try_get_matches_from(&kept)
        .ok()
        .filter(|matches| matches.subcommand_name().is_some());
    match matches.as_ref().and_then(ArgMatches::subcommand_name) {
        // A command line in the arguments of `vouch config show` stays as it is.
        Some(name) if is_without_options(name) => {
            ParsedArguments { arguments, off: Vec::new(), matches }
        }
        _ => ParsedArguments { arguments: kept, off, matches },
    }
}

fn switches(command: &Command) -> Vec<String> {
    let own = command
        .get_arguments()
        .filter(|arg| matches!(arg.get_action(), ArgAction::SetTrue) && !arg.is_hide_set());
    let mut all: Vec<String> = own.filter_map(|arg| arg.get_long().map(str::to_owned)).collect();
    all.extend(command.get_subcommands().flat_map(switches));
    all
}

impl ParsedArguments {
    pub fn is_off(&self, switch: &str) -> bool {
        self.off.iter().any(|off| off == switch)
    }

    /// `None` for a command that takes nothing from files.
    pub fn choice(&self) -> Option<Choice> {
        let name = self.matches.as_ref()?.subcommand_name()?;
        (!is_without_options(name)).then(|| self.files())
    }

    fn files(&self) -> Choice {
        let given =
            self.matches.as_ref().and_then(|matches| matches.get_one::<PathBuf>("config").cloned());
        given
            .filter(|path| !path.as_os_str().is_empty())
            .map_or(Choice::System, Choice::ParsedArguments)
    }
}

pub fn apply(given: &ParsedArguments, config: &Config, root: &Command) -> Applied {
    let mut applied = Applied { arguments: given.arguments.clone(), origins: HashMap::new() };
    let Some((leaf, matches, words)) = subcommand(given, root) else { return applied };
    let command = words.join(" ");
    let mut taken: Vec<&Arg> = leaf.get_arguments().filter(|arg| is_given(matches, arg)).collect();
    let mut switched_off: Vec<&Arg> = leaf
        .get_arguments()
        .filter(|arg| arg.get_long().is_some_and(|long| given.is_off(long)))
        .collect();
    let mut added: Vec<OsString> = Vec::new();
    let target = Target::of(&command, leaf, matches, config);
    if is_mount_by_point(&command, leaf, matches, config) {
        taken.extend(leaf.get_positionals());
        if matches!(target, Target::Namespace)
            && !taken.iter().any(|arg| arg.get_long() == Some("auto"))
        {
            added.push("--auto".into());
        }
    }
    let mut use_table = |table: &Table, fits: &dyn Fn(&Arg) -> bool| {
        for (option, setting) in table {
            let Some(arg) = leaf
                .get_arguments()
                .find(|arg| key(arg).as_deref() == Some(option))
                .filter(|arg| fits(arg))
            else {
                continue;
            };
            let is_taken =
                taken.iter().chain(&switched_off).any(|other| other.get_id() == arg.get_id());
            if is_taken
                || taken.iter().any(|other| conflict(leaf, arg, other))
                || lacks_earlier(leaf, arg, &taken)
            {
                continue;
            }
            applied.origins.insert(option.clone(), setting.origin.clone());
            match tokens(arg, setting) {
                Some(tokens) => {
                    added.extend(tokens);
                    taken.push(arg);
                }
                None => switched_off.push(arg),
            }
        }
    };
    match &target {
        Target::Tree(short) => {
            let tree = &config.trees[short];
            if let Some(table) = tree.commands.get(&command) {
                use_table(table, &|_| true);
            }
            use_table(&tree.options, &is_shared);
        }
        Target::Namespace => use_table(&config.namespace, &|_| true),
        Target::None => {}
    }
    for (depth, _) in words.iter().enumerate().rev() {
        let Some(table) = config.commands.get(&words[..=depth].join(" ")) else { continue };
        // Of a command above, only the options that its subcommands share. A service's log file is the
        // service's: its subcommands may run as users who cannot write there.
        let above = words[..=depth]
            .iter()
            .fold(root, |command, word| command.find_subcommand(word).unwrap_or(command));
        let is_shared_file =
            |arg: &Arg| arg.get_long() != Some("log-file") || above.is_subcommand_required_set();
        use_table(table, &|arg| {
            depth + 1 == words.len() || arg.is_global_set() && is_shared_file(arg)
        });
    }
    use_table(&config.site, &is_shared);
    let end = applied
        .arguments
        .iter()
        .position(|argument| argument == "--")
        .unwrap_or(applied.arguments.len());
    applied.arguments.splice(end..end, added);
    applied
}

/// The subcommand that is called, its matches, and its words. None if it takes no settings.
fn subcommand<'c>(
    given: &'c ParsedArguments,
    root: &'c Command,
) -> Option<(&'c Command, &'c ArgMatches, Vec<&'c str>)> {
    let mut matches = given.matches.as_ref()?;
    let (mut leaf, mut words) = (root, Vec::new());
    while let Some((name, below)) = matches.subcommand() {
        let Some(found) = leaf.find_subcommand(name) else { break };
        (leaf, matches) = (found, below);
        words.push(name);
    }
    (!words.first().is_none_or(|first| is_without_options(first))).then_some((leaf, matches, words))
}

fn is_given(matches: &ArgMatches, arg: &Arg) -> bool {
    let id = arg.get_id().as_str();
    matches.try_contains_id(id).is_ok()
        && matches!(
            matches.value_source(id),
            Some(ValueSource::CommandLine | ValueSource::EnvVariable)
        )
}

fn conflict(command: &Command, a: &Arg, b: &Arg) -> bool {
    let lists = |one: &Arg, other: &Arg| {
        command.get_arg_conflicts_with(one).iter().any(|arg| arg.get_id() == other.get_id())
    };
    a.get_id() != b.get_id() && (lists(a, b) || lists(b, a))
}

fn tokens(arg: &Arg, setting: &Setting) -> Option<Vec<OsString>> {
    let values: Vec<&String> = match &setting.value {
        Value::Flag(false) => return None,
        Value::Flag(true) => return Some(vec![format!("--{}", arg.get_long()?).into()]),
        Value::One(value) => vec![value],
        Value::Many(values) => values.iter().collect(),
    };
    let token = |value: &String| match arg.get_long() {
        Some(long) => OsString::from(format!("--{long}={value}")),
        None => OsString::from(value),
    };
    Some(values.into_iter().map(token).collect())
}

enum Target {
    Tree(String),
    Namespace,
    None,
}

impl Target {
    fn of(command: &str, leaf: &Command, matches: &ArgMatches, config: &Config) -> Target {
        if command == "mount" && matches.try_get_one::<bool>("auto").ok().flatten() == Some(&true) {
            return Target::Namespace;
        }
        let mut found: Option<String> = None;
        for arg in leaf.get_arguments().filter(|arg| names_tree(arg)) {
            for value in
                matches.try_get_raw(arg.get_id().as_str()).ok().flatten().into_iter().flatten()
            {
                if command == "mount" && config.namespace_is_at(Path::new(value)) {
                    return Target::Namespace;
                }
                let mounted = (command == "mount")
                    .then(|| config.mounted_at(Path::new(value)))
                    .flatten()
                    .map(|(short, _)| short);
                let short = mounted.or_else(|| short_name(value, config));
                match (short, &found) {
                    (Some(short), None) => found = Some(short.to_owned()),
                    (Some(short), Some(first)) if short == first => {}
                    _ => return Target::None,
                }
            }
        }
        found.map_or(Target::None, Target::Tree)
    }
}

fn is_mount_by_point(command: &str, leaf: &Command, matches: &ArgMatches, config: &Config) -> bool {
    let mut given = leaf.get_positionals().flat_map(|arg| {
        matches.try_get_raw(arg.get_id().as_str()).ok().flatten().into_iter().flatten()
    });
    command == "mount"
        && given.next().is_some_and(|first| {
            first.as_bytes().starts_with(b"/")
                || config.mounted_at(Path::new(first)).is_some()
                || config.namespace_is_at(Path::new(first))
        })
}

/// A positional argument would take the place of an earlier one.
fn lacks_earlier(leaf: &Command, arg: &Arg, taken: &[&Arg]) -> bool {
    let is_taken = |earlier: &Arg| taken.iter().any(|other| other.get_id() == earlier.get_id());
    arg.is_positional()
        && leaf
            .get_positionals()
            .any(|earlier| earlier.get_index() < arg.get_index() && !is_taken(earlier))
}

fn names_tree(arg: &Arg) -> bool {
    let names = arg.get_value_names().unwrap_or_default();
    let first = names.first().map_or("", |name| name.as_str());
    (arg.is_positional() && (first.starts_with("NAME") || first == "OTHER"))
        || arg.get_long() == Some("tree")
}

fn short_name<'a>(argument: &OsStr, config: &'a Config) -> Option<&'a str> {
    let bytes = argument.as_bytes();
    let name = std::str::from_utf8(bytes.split(|b| *b == b'/').next()?).ok()?;
    if name.starts_with('@') {
        return config.by_name(&name.parse().ok()?).map(|(short, _)| short);
    }
    config.trees.get_key_value(name).map(|(short, _)| &**short)
}
