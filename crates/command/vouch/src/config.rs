//! The configuration of this command line; `vouch_config` reads and applies it.

use std::ffi::OsString;

use crate::cli;
use crate::exit::{Failure, Outcome};

pub(crate) use vouch_config::{
    AUTO, Applied, Choice, Config, Problem, apply, arguments, check, check_together, first_pass,
    key, loaded, one_line, read,
};

/// Completes the command line of this process by the configuration, and keeps both.
pub(crate) fn complete(arguments: Vec<OsString>) -> Outcome<Applied> {
    let copy = vouch_mount_service::configuration_copy(&arguments);
    vouch_config::complete(arguments, cli::command, copy.as_deref())
        .map_err(|problems| first_of(&problems))
}

pub(crate) fn first_of(problems: &[Problem]) -> Failure {
    let (first, others) = problems.split_first().expect("called with a fault");
    let more = match others.len() {
        0 => String::new(),
        n => format!(" ({n} more: `vouch config check`)"),
    };
    Failure::input(&first.place, &first.what).cure(format!("{}{more}", first.cure))
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command};

    use super::*;

    fn root() -> Command {
        let mut root = cli::command();
        root.build();
        root
    }

    /// No option of a command may hide the table of a subcommand.
    fn assert_unambiguous(command: &Command) {
        let options: Vec<String> = command.get_arguments().filter_map(key).collect();
        for sub in command.get_subcommands() {
            let name = sub.get_name();
            assert!(
                !options.iter().any(|option| option == name),
                "`{}` has the option and the subcommand {name}",
                command.get_name()
            );
            assert_unambiguous(sub);
        }
        assert!(
            !vouch_config::shared(command)
                .into_iter()
                .filter_map(key)
                .any(|option| option == "name")
        );
    }

    #[test]
    fn options_and_tables_have_different_names() {
        let root = root();
        assert_unambiguous(&root);
        assert!(root.get_subcommands().all(|sub| !["tree", "namespace"].contains(&sub.get_name())));
    }

    #[test]
    fn every_option_of_a_mount_is_configurable() {
        let root = root();
        let mount = root.find_subcommand("mount").expect("defined");
        let left_out = |arg: &&Arg| {
            key(arg).is_none()
                && !matches!(
                    arg.get_id().as_str(),
                    "help" | "version" | "detached" | "helper" | "role" | "config" | "first"
                )
        };
        assert_eq!(mount.get_arguments().filter(left_out).count(), 0);
        let file = tempfile::NamedTempFile::with_suffix(".toml").expect("a file");
        std::fs::write(file.path(), "[mount]\nxattrs = \"off\"\nthreads = 3\n").expect("written");
        let (files, items, mut problems) = read(&Choice::ParsedArguments(file.path().to_owned()));
        let (config, more) = check(files, items, &root);
        problems.extend(more);
        assert!(problems.is_empty() && config.settings().len() == 2, "{problems:?}");
    }
}
