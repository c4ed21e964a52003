//! The command line, completed by the configuration; the subcommand; the exit code.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use vouch_daemon::log_output;
use vouch_mount_service::report_failure;

use crate::cli::{Cli, Command};
use crate::exit::{At as _, Code, Failure};
use crate::mount_helper::Request;
use crate::{config, interrupt, logging, mount_helper, when};

/// Prints at most one line `vouch: <what>: <why>; <remedy>`, and returns the documented exit code.
pub fn main() -> ExitCode {
    let arguments = with_joined_values(std::env::args_os().collect());
    if !arguments.first().is_some_and(|program| mount_helper::is_helper(program)) {
        return ExitCode::from(run(arguments) as u8);
    }
    let code = match mount_helper::translate(&arguments[1..]) {
        Ok(Request::Mount(request)) => {
            let code = run(request.line.clone());
            if code == Code::Success {
                request.keep_netdev();
            }
            code
        }
        Ok(Request::Fake) => Code::Success,
        Err(failure) => report("mount", &failure),
    };
    ExitCode::from(mount_helper::exit_code(code))
}

/// Joins the value of an option to it where the value is optional: `--passthrough never NAME` is as good
/// as `--passthrough=never NAME`, and `--passthrough NAME` has no value.
fn with_joined_values(arguments: Vec<OsString>) -> Vec<OsString> {
    type IsValue = fn(&str) -> bool;
    const OPTIONAL: [(&str, &str, IsValue); 2] = [
        ("mount", "--passthrough", |value| ["auto", "always", "never"].contains(&value)),
        ("status", "--watch", |value| when::parse_duration(value).is_ok()),
    ];
    let mut joined: Vec<OsString> = Vec::with_capacity(arguments.len());
    for argument in arguments {
        let is_value = |(command, option, is_value): &(&str, &str, IsValue)| {
            joined.last().is_some_and(|last| last == option)
                && joined.iter().any(|earlier| earlier == command)
                && argument.to_str().is_some_and(is_value)
        };
        if OPTIONAL.iter().any(is_value) {
            let option = joined.last_mut().expect("an option is there");
            option.push("=");
            option.push(argument);
        } else {
            joined.push(argument);
        }
    }
    joined
}

fn run(arguments: Vec<OsString>) -> Code {
    let cli = match parse(arguments.clone()) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    vouch_tree_bucket::register();
    let name = cli.command.name();
    // Not only once a daemon serves: SIGHUP during its start would end it as if it were meant.
    if is_daemon(&cli.command)
        && let Err(error) = interrupt::become_daemon()
    {
        return report(&name, &Failure::new("signals", error));
    }
    let outcome = logging::start(&cli.global).and_then(|()| {
        interrupt::survive_file_size_limit().at("signals")?;
        // A replica starts this thread inside its sandbox, which does not cover running threads.
        // Mounts and exports handle SIGHUP themselves.
        if !matches!(
            cli.command,
            Command::Serve(_) | Command::Gateway(_) | Command::Export(_) | Command::Mount(_)
        ) {
            interrupt::watch().at("signals")?;
        }
        cli.command.run(&cli.global)
    });
    match outcome {
        Ok(()) => Code::Success,
        Err(failure) => {
            report_failure(&arguments, &failure);
            report(&name, &failure)
        }
    }
}

fn parse(arguments: Vec<OsString>) -> Result<Cli, Code> {
    let applied = config::complete(arguments.clone()).map_err(|failure| {
        report_failure(&arguments, &failure);
        report("config", &failure)
    })?;
    Cli::try_parse_from(&applied.arguments).map_err(|error| {
        report_failure(&arguments, &config::one_line(&error));
        let _ = error.print();
        for note in applied.notes_on(&error) {
            let _ = writeln!(io::stderr(), "note: {note}");
        }
        if error.use_stderr() { Code::Usage } else { Code::Success }
    })
}

fn is_daemon(command: &Command) -> bool {
    match command {
        Command::Serve(_) | Command::Gateway(_) => true,
        Command::Export(args) => args.is_daemon(),
        Command::Mount(args) => args.is_daemon(),
        Command::NfsMount(args) => args.is_daemon(),
        Command::Pull(args) => args.is_daemon(),
        Command::Monitor(args) => args.is_daemon(),
        Command::Jobs(args) => args.is_daemon(),
        Command::Audit(args) => args.is_daemon(),
        _ => false,
    }
}

fn report(name: &str, failure: &Failure) -> Code {
    if !failure.is_silent() {
        // A cause may quote the several lines of a parser or of another program.
        let text = failure.to_string();
        let line = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect::<Vec<_>>()
            .join(" ");
        // One write: the processes of a mount share this output.
        let _ = io::stderr().write_all(format!("vouch: {name}: {line}\n").as_bytes());
        // Standard error of a daemon may lead nowhere.
        if !log_output::is_standard_error() {
            tracing::error!("{name}: {line}");
        }
    }
    failure.code()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn optional_value_may_stand_apart_and_before_arguments() {
        for (line, joined) in [
            (
                "vouch mount --passthrough never @h,id /mnt",
                "vouch mount --passthrough=never @h,id /mnt",
            ),
            ("vouch mount --passthrough @h,id /mnt", "vouch mount --passthrough @h,id /mnt"),
            ("vouch status --watch 5s", "vouch status --watch=5s"),
            ("vouch status --watch --json", "vouch status --watch --json"),
            ("vouch pull --watch 5s --db db", "vouch pull --watch 5s --db db"),
        ] {
            let found = with_joined_values(line.split(' ').map(OsString::from).collect());
            assert_eq!(found, joined.split(' ').map(OsString::from).collect::<Vec<_>>());
            assert!(Cli::try_parse_from(&found).is_ok(), "{line}");
        }
    }

    /// Another option with an optional value needs a row in the table.
    #[test]
    fn every_optional_value_may_stand_apart() {
        fn optional(command: &clap::Command, found: &mut Vec<String>) {
            for arg in command.get_arguments().filter(|arg| {
                arg.get_long().is_some() && arg.get_num_args().is_some_and(|n| n.min_values() == 0)
            }) {
                if arg.get_action().takes_values() {
                    found.push(format!(
                        "{} --{}",
                        command.get_name(),
                        arg.get_long().unwrap_or_default()
                    ));
                }
            }
            command.get_subcommands().for_each(|sub| optional(sub, found));
        }
        let mut found = Vec::new();
        let mut root = crate::cli::command();
        root.build();
        optional(&root, &mut found);
        assert_eq!(found, ["mount --passthrough", "status --watch"]);
    }
}
