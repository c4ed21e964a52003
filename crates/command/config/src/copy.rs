//! The trees of a configuration as text, for a process that must not depend on the files again.

use std::fmt::Write as _;
use std::path::Path;

use clap::Command;

use super::read::parse;
use super::{Config, Table, Value, check};

impl Config {
    /// TOML with the names and options of all trees. The other settings are in the command line.
    pub fn trees_text(&self) -> String {
        let mut text = String::new();
        for (short, tree) in &self.trees {
            let _ = writeln!(
                text,
                "[tree.{}]\nname = {}",
                quoted(short),
                quoted(tree.name.to_string())
            );
            add_table(&mut text, &tree.options);
            for (command, table) in &tree.commands {
                let words: Vec<String> = command.split(' ').map(quoted).collect();
                let _ = writeln!(text, "[tree.{}.{}]", quoted(short), words.join("."));
                add_table(&mut text, table);
            }
        }
        text
    }

    /// Leaves out what this program does not know: another version may have written the text.
    pub(super) fn from_trees_text(text: &str, root: &Command) -> Config {
        let (mut items, mut problems) = (Vec::new(), Vec::new());
        parse(
            Path::new("the mount's own copy of the configuration"),
            text,
            &mut items,
            &mut problems,
        );
        check(Vec::new(), items, root).0
    }
}

fn add_table(text: &mut String, table: &Table) {
    for (option, setting) in table {
        let value = match &setting.value {
            Value::Flag(on) => on.to_string(),
            Value::One(value) => quoted(value),
            Value::Many(values) => {
                format!("[{}]", values.iter().map(quoted).collect::<Vec<_>>().join(", "))
            }
        };
        let _ = writeln!(text, "{} = {value}", quoted(option));
    }
}

/// A basic string of TOML.
fn quoted(text: impl AsRef<str>) -> String {
    let mut quoted = String::from("\"");
    for c in text.as_ref().chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use clap::{Arg, ArgAction};

    use super::*;

    #[test]
    fn copy_has_all_settings_of_trees() {
        let reading = |arg: Arg| arg.help_heading("Reading options");
        let replica = reading(Arg::new("replica").long("replica").action(ArgAction::Append));
        let only =
            reading(Arg::new("only-replicas").long("only-replicas").action(ArgAction::SetTrue));
        let mount = Command::new("mount").args([Arg::new("dir").value_name("DIR"), replica, only]);
        let mut root = Command::new("vouch").subcommand(mount);
        root.build();
        let name = format!("@h,{}", "a".repeat(52));
        let text = format!(
            "[tree.\"gcc-1.2\"]\nname = '{name}'\nreplica = [\"a\", 'b\"\\c']\nonly-replicas = true\n[tree.\"gcc-1.2\".mount]\ndir = \"/m\\u0001\\t\"\n"
        );
        let (mut items, mut problems) = (Vec::new(), Vec::new());
        parse(Path::new("x"), &text, &mut items, &mut problems);
        let (config, more) = check(Vec::new(), items, &root);
        assert!(
            problems.is_empty() && more.is_empty() && config.settings().len() == 4,
            "{problems:?} {more:?}"
        );
        let values = |config: &Config| {
            config
                .settings()
                .into_iter()
                .map(|(key, setting)| (key, setting.value))
                .collect::<Vec<_>>()
        };
        assert_eq!(values(&Config::from_trees_text(&config.trees_text(), &root)), values(&config));
    }
}
