use std::ffi::OsString;

use clap::ArgAction;
use clap::parser::ValueSource;

use super::{Row, print};
use crate::config::{self, Config};
use crate::exit::{Failure, Outcome};

pub(super) fn show(
    config: &Config,
    line: &[OsString],
    root: &clap::Command,
    as_json: bool,
) -> Outcome {
    let given = config::first_pass(
        [OsString::from("vouch")].into_iter().chain(line.iter().cloned()).collect(),
        crate::cli::command(),
    );
    let applied = config::apply(&given, config, root);
    let matches =
        root.clone().ignore_errors(true).try_get_matches_from(&applied.arguments).map_err(
            |error| {
                Failure::usage("COMMAND", config::one_line(&error))
                    .cure("give a command with its options")
            },
        )?;
    let (mut command, mut matches) = (root, &matches);
    while let Some((name, below)) = matches.subcommand() {
        let Some(found) = command.find_subcommand(name) else { break };
        (command, matches) = (found, below);
    }
    if std::ptr::eq(command, root) {
        return Err(
            Failure::usage("COMMAND", "no such command").cure("`vouch help` lists the commands")
        );
    }
    let mut rows = Vec::new();
    for arg in command.get_arguments() {
        let id = arg.get_id().as_str();
        if arg.is_hide_set() || matches.try_contains_id(id).is_err() {
            continue;
        }
        let name = config::key(arg)
            .unwrap_or_else(|| arg.get_long().map_or_else(|| id.to_owned(), str::to_owned));
        let values: Vec<_> = matches
            .get_raw(id)
            .into_iter()
            .flatten()
            .map(|value| value.to_string_lossy())
            .collect();
        let value = match arg.get_action() {
            ArgAction::SetTrue => matches.get_flag(id).to_string(),
            _ => values.join(", "),
        };
        let source = match (applied.origins.get(&name), matches.value_source(id)) {
            (Some(origin), _) => origin.to_string(),
            (None, _) if given.is_off(&name) => "command line".to_owned(),
            (None, Some(ValueSource::CommandLine)) => "command line".to_owned(),
            (None, Some(ValueSource::EnvVariable)) => {
                format!("environment {}", arg.get_env().unwrap_or_default().to_string_lossy())
            }
            (None, _) if value.is_empty() => continue,
            (None, _) => "default".to_owned(),
        };
        rows.push(Row { name, value, source });
    }
    print(rows, as_json)
}
