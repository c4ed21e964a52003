//! Checks settings against the options that the parser defines. Reads no file.

use std::error::Error as _;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Command};
use vouch_tree::TreeName;

use super::read::Item;
use super::{Config, Origin, POINT, Problem, SITE_HEADINGS, Setting, Table, TreeEntry, Value};

/// `root` is built.
pub fn check(files: Vec<PathBuf>, items: Vec<Item>, root: &Command) -> (Config, Vec<Problem>) {
    let mut config = Config { files, ..Config::default() };
    let mut problems = Vec::new();
    let (of_trees, others): (Vec<_>, Vec<_>) =
        items.into_iter().partition(|item| item.keys[0] == TREE && item.keys.len() > 1);
    for item in others {
        problems.extend(add(&mut config, item, root).err());
    }
    add_trees(&mut config, of_trees, root, &mut problems);
    (config, problems)
}

#[derive(Clone, Copy)]
enum SettingScope<'a> {
    /// At the top level, or directly in the table of a tree.
    Shared,
    Command(&'a Command),
}

fn add(config: &mut Config, item: Item, root: &Command) -> Result<(), Problem> {
    let (option, words) = item.keys.split_last().expect("an item has a key");
    let table = match words {
        [] => {
            let arg = find(option, SettingScope::Shared, root)
                .ok_or_else(|| unknown_at_top(&item, root))?;
            check_value(arg, &item)?;
            &mut config.site
        }
        [one] if one == NAMESPACE => {
            let mount = root.find_subcommand("mount").expect("the command is defined");
            let arg = find(option, SettingScope::Command(mount), root)
                .ok_or_else(|| unknown(&item, SettingScope::Command(mount), root))?;
            check_value(arg, &item)?;
            &mut config.namespace
        }
        words => {
            check_command_option(&item, words, option, root)?;
            config.commands.entry(words.join(" ")).or_default()
        }
    };
    let setting = Setting { value: item.value, origin: item.origin };
    table.insert(option.clone(), setting);
    Ok(())
}

fn add_trees(config: &mut Config, items: Vec<Item>, root: &Command, problems: &mut Vec<Problem>) {
    let (names, options): (Vec<_>, Vec<_>) =
        items.into_iter().partition(|item| item.keys.len() == 3 && item.keys[2] == "name");
    for item in names {
        match tree_name(&item) {
            Ok(name) => {
                let (options, commands) = config
                    .trees
                    .remove(&item.keys[1])
                    .map_or_else(Default::default, |tree| (tree.options, tree.commands));
                config.trees.insert(
                    item.keys[1].clone(),
                    TreeEntry { name, origin: item.origin, options, commands },
                );
            }
            Err(problem) => problems.push(problem),
        }
    }
    let mut nameless: Vec<String> = Vec::new();
    for item in options {
        if let Err(problem) = check_tree_option(&item, root) {
            problems.push(problem);
            continue;
        }
        let short = &item.keys[1];
        let Some(tree) = config.trees.get_mut(short) else {
            if !nameless.contains(short) {
                nameless.push(short.clone());
                problems.push(Problem {
                    place: item.origin.to_string(),
                    what: format!("[tree.{short}] has no valid name"),
                    cure: "add name = \"@HOST,HOSTID\" to it".into(),
                });
            }
            continue;
        };
        let (option, words) = item.keys[2..].split_last().expect("longer than two");
        let table: &mut Table = if words.is_empty() {
            &mut tree.options
        } else {
            tree.commands.entry(words.join(" ")).or_default()
        };
        table.insert(option.clone(), Setting { value: item.value, origin: item.origin });
    }
    for (n, (short, tree)) in config.trees.iter().enumerate() {
        let same = config
            .trees
            .iter()
            .take(n)
            .find(|(_, other)| other.name.hostid() == tree.name.hostid());
        if let Some((other, _)) = same {
            problems.push(Problem {
                place: tree.origin.to_string(),
                what: format!("[tree.{short}] and [tree.{other}] have the same key"),
                cure: "keep one of the two".into(),
            });
        }
    }
}

fn tree_name(item: &Item) -> Result<TreeName, Problem> {
    let short = &item.keys[1];
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+');
    let is_short = short.len() <= SHORT_LEN_MAX
        && short.starts_with(|c: char| c.is_ascii_alphanumeric())
        && short.chars().all(is_plain);
    let problem = |what: String, cure: &str| {
        Err(Problem { place: item.origin.to_string(), what, cure: cure.into() })
    };
    if !is_short || short == AUTO {
        return problem(
            format!("[tree.{short}] is not a short name"),
            "use letters, digits and . _ - +, at most 64, and not `auto`",
        );
    }
    let Value::One(name) = &item.value else {
        return problem(
            format!("the name of [tree.{short}] is not text"),
            "write name = \"@HOST,HOSTID\"",
        );
    };
    name.parse().or_else(|error| {
        problem(
            format!("tree.{short}.name: {name}: {error}"),
            "write name = \"@HOST,HOSTID\", as `vouch name` prints it",
        )
    })
}

fn check_tree_option(item: &Item, root: &Command) -> Result<(), Problem> {
    match &item.keys[2..] {
        [] => Err(Problem {
            place: item.origin.to_string(),
            what: format!("tree.{} is not a table", item.keys[1]),
            cure: format!("write [tree.{}] and name = \"@HOST,HOSTID\"", item.keys[1]),
        }),
        [option] => {
            let arg = find(option, SettingScope::Shared, root).ok_or_else(|| {
                let users = commands_with(option, root);
                let problem = unknown(item, SettingScope::Shared, root);
                match users.first() {
                    Some(command) => Problem {
                        cure: format!("put it into [tree.{}.{command}]", item.keys[1]),
                        ..problem
                    },
                    None => problem,
                }
            })?;
            check_value(arg, item)
        }
        rest => {
            let (option, words) = rest.split_last().expect("two at least");
            check_command_option(item, words, option, root)
        }
    }
}

fn check_command_option(
    item: &Item,
    words: &[String],
    option: &str,
    root: &Command,
) -> Result<(), Problem> {
    let mut command = root;
    for word in words {
        command = command
            .get_subcommands()
            .find(|sub| sub.get_name() == word && !is_without_options(sub.get_name()))
            .ok_or_else(|| {
                let mut known: Vec<&str> = command
                    .get_subcommands()
                    .filter(|sub| !is_without_options(sub.get_name()))
                    .map(Command::get_name)
                    .collect();
                if std::ptr::eq(command, root) {
                    known.extend([TREE, NAMESPACE]);
                }
                Problem {
                    place: item.origin.to_string(),
                    what: format!("there is no table [{}]", words.join(".")),
                    cure: suggestion(word, known.into_iter())
                        .unwrap_or_else(|| "`vouch help` lists the commands".into()),
                }
            })?;
    }
    let place = SettingScope::Command(command);
    let arg = find(option, place, root).ok_or_else(|| unknown(item, place, root))?;
    check_value(arg, item)
}

fn find<'a>(option: &str, place: SettingScope<'a>, root: &'a Command) -> Option<&'a Arg> {
    match place {
        SettingScope::Command(command) => {
            command.get_arguments().find(|arg| key(arg).as_deref() == Some(option))
        }
        SettingScope::Shared => {
            shared(root).into_iter().find(|arg| key(arg).as_deref() == Some(option))
        }
    }
}

/// All options whose meaning is the same in every command that has them.
pub fn shared(root: &Command) -> Vec<&Arg> {
    let mut args: Vec<&Arg> = root.get_arguments().filter(|arg| is_shared(arg)).collect();
    for command in root.get_subcommands() {
        args.extend(shared(command));
    }
    args
}

pub(super) fn is_shared(arg: &Arg) -> bool {
    arg.get_help_heading().is_some_and(|heading| SITE_HEADINGS.contains(&heading))
}

/// That of the command line, or of a positional argument its value name in lower case. `None` if it
/// can't be configured.
pub fn key(arg: &Arg) -> Option<String> {
    if arg.is_hide_set()
        || !matches!(arg.get_action(), ArgAction::Set | ArgAction::Append | ArgAction::SetTrue)
    {
        return None;
    }
    if let Some(long) = arg.get_long() {
        return (long != "config").then(|| long.to_owned());
    }
    let name = arg.get_value_names()?.first()?.as_str();
    (arg.is_positional()
        && name.bytes().all(|b| b.is_ascii_uppercase())
        && name != "NAME"
        && name != "OTHER")
        .then(|| name.to_lowercase())
}

/// Commands that take nothing from the configuration: they must work when it has faults.
pub(super) fn is_without_options(command: &str) -> bool {
    matches!(
        command,
        "config" | "completions" | "man" | "help" | "umount" | "status" | "bugreport" | "version"
    )
}

fn check_value(arg: &Arg, item: &Item) -> Result<(), Problem> {
    let name = item.keys.join(".");
    let problem =
        |what: String, cure: String| Err(Problem { place: item.origin.to_string(), what, cure });
    let takes_value = !matches!(arg.get_action(), ArgAction::SetTrue);
    let takes_list = matches!(arg.get_action(), ArgAction::Append);
    let values = match &item.value {
        Value::Flag(_) if !takes_value => return Ok(()),
        _ if !takes_value => {
            return problem(
                format!("`{name}` is a switch"),
                format!("write {name} = true or false"),
            );
        }
        Value::Flag(_) => {
            return problem(
                format!("`{name}` takes a value"),
                format!("write {name} = \"{}\"", shape(arg)),
            );
        }
        Value::Many(_) if !takes_list => {
            return problem(
                format!("`{name}` takes one value"),
                format!("write {name} = \"{}\"", shape(arg)),
            );
        }
        Value::Many(values) => values.as_slice(),
        Value::One(value) => std::slice::from_ref(value),
    };
    // A command with this option alone runs its parser of values.
    let alone = Arg::new("value").long("value").value_parser(arg.get_value_parser().clone());
    for value in values {
        let command =
            Command::new("check").no_binary_name(true).disable_help_flag(true).arg(alone.clone());
        if let Err(error) = command.try_get_matches_from([format!("--value={value}")]) {
            let why = match (error.source(), error.get(ContextKind::ValidValue)) {
                (Some(source), _) if source.is::<std::num::ParseIntError>() => {
                    "write a whole number".to_owned()
                }
                (Some(source), _) => source.to_string(),
                (None, Some(ContextValue::Strings(valid))) => format!("use {}", valid.join(", ")),
                _ => format!("write {}", shape(arg)),
            };
            return problem(format!("`{name}` can't be {value:?}"), why);
        }
    }
    Ok(())
}

fn shape(arg: &Arg) -> String {
    arg.get_value_names()
        .and_then(|names| names.first())
        .map_or_else(|| "VALUE".to_owned(), |name| name.to_string())
}

fn unknown_at_top(item: &Item, root: &Command) -> Problem {
    let option = &item.keys[0];
    let problem = unknown(item, SettingScope::Shared, root);
    match &commands_with(option, root)[..] {
        [] => problem,
        [one] => Problem {
            cure: format!("it is an option of one command: put it into [{one}]"),
            ..problem
        },
        [.., last] if last.contains('.') => problem,
        several => Problem {
            cure: format!("put it into the table of a command: [{}]", several.join("], [")),
            ..problem
        },
    }
}

fn unknown(item: &Item, place: SettingScope<'_>, root: &Command) -> Problem {
    let option = item.keys.last().expect("an item has a key");
    let (args, help) = match place {
        SettingScope::Shared => (shared(root), "vouch help ls".to_owned()),
        SettingScope::Command(command) => {
            (command.get_arguments().collect(), format!("vouch help {}", command.get_name()))
        }
    };
    let mut known: Vec<String> = args.into_iter().filter_map(key).collect();
    known.sort_unstable();
    known.dedup();
    if matches!(place, SettingScope::Shared) && item.keys.len() == 1 {
        known.extend(
            root.get_subcommands()
                .filter(|sub| !is_without_options(sub.get_name()))
                .map(|sub| sub.get_name().to_owned()),
        );
    }
    Problem {
        place: item.origin.to_string(),
        what: format!("unknown option `{}`", item.keys.join(".")),
        cure: suggestion(option, known.iter().map(String::as_str))
            .unwrap_or_else(|| format!("`{help}` lists the options")),
    }
}

fn commands_with(option: &str, root: &Command) -> Vec<String> {
    let commands = root.get_subcommands().filter(|sub| !is_without_options(sub.get_name()));
    commands
        .filter(|command| find(option, SettingScope::Command(command), root).is_some())
        .map(|command| command.get_name().to_owned())
        .collect()
}

fn suggestion<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    let dashed = word.replace('_', "-").to_lowercase();
    let (near, best) = known
        .map(|name| (strsim::jaro_winkler(&dashed, name), name))
        .max_by(|a, b| a.0.total_cmp(&b.0))?;
    (near > SIMILAR).then(|| format!("did you mean `{best}`?"))
}

/// By parsing a command line with the options of the table.
pub fn check_together(config: &Config, command: fn() -> Command) -> Vec<Problem> {
    let mut root = command();
    root.build();
    let mut lines: Vec<(Origin, Vec<String>)> = Vec::new();
    for (short, tree) in &config.trees {
        lines.push((tree.origin.clone(), ["vouch", "ls", short].map(String::from).to_vec()));
        for (command, table) in &tree.commands {
            let Some(first) = table.values().next() else { continue };
            if command == "mount" {
                let point = (!table.contains_key(POINT)).then_some("/mnt");
                lines.push((
                    first.origin.clone(),
                    ["vouch", "mount", short].into_iter().chain(point).map(String::from).collect(),
                ));
            }
        }
    }
    for command in ["serve", "export", "pull", "publish"] {
        let Some(first) = config.commands.get(command).and_then(|table| table.values().next())
        else {
            continue;
        };
        lines.push((first.origin.clone(), ["vouch", command].map(String::from).to_vec()));
    }
    let mut problems: Vec<Problem> = Vec::new();
    for (origin, line) in lines {
        let given = super::first_pass(line.iter().map(Into::into).collect(), command());
        let applied = super::apply(&given, config, &root);
        if let Err(error) = root.clone().try_get_matches_from(&applied.arguments) {
            // The command line may bring the arguments that these commands need.
            if line.len() == 2 && error.kind() == ErrorKind::MissingRequiredArgument {
                continue;
            }
            let what = format!("`{}` would fail: {}", line.join(" "), one_line(&error));
            if !problems.iter().any(|problem| problem.what == what) {
                problems.push(Problem {
                    place: origin.to_string(),
                    what,
                    cure: "add what is missing, or take out what needs it".into(),
                });
            }
        }
    }
    problems
}

/// The error of the parser without its usage.
pub fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
        .filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" ").trim_start_matches("error: ").to_owned()
}

const TREE: &str = "tree";
const NAMESPACE: &str = "namespace";

pub const AUTO: &str = "auto";

const SHORT_LEN_MAX: usize = 64;

const SIMILAR: f64 = 0.8;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::read;

    fn root() -> Command {
        let quiet = Arg::new("quiet")
            .long("quiet")
            .action(ArgAction::SetTrue)
            .global(true)
            .help_heading(SITE_HEADINGS[0]);
        let point = Arg::new("dir").value_name("DIR");
        let mount = Command::new("mount").args([
            point,
            Arg::new("xattrs").long("xattrs"),
            Arg::new("threads").long("threads"),
        ]);
        let mut root = Command::new("vouch").arg(quiet).subcommand(mount);
        root.build();
        root
    }

    proptest! {
        #[test]
        fn any_text_is_settings_or_problems(text in r#"([a-z\[\]."=\n{},0-9 -]|\[tree\.|name = |"@h,|true|mount){0,60}"#) {
            let (mut items, mut problems) = (Vec::new(), Vec::new());
            read::parse(Path::new("x"), &text, &mut items, &mut problems);
            let (config, more) = check(Vec::new(), items, &root());
            prop_assert!(config.settings().len() + problems.len() + more.len() <= text.len() + 1);
        }
    }
}
