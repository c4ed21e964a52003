//! The command line, completed by the configuration; the subcommand; the exit code.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use vouch_mount_service::report_failure;

use crate::cli::{Cli, Command};
use crate::exit::{At as _, Cause, Code, Failure, code_of};
use crate::mount_helper::Request;
use crate::{config, interrupt, logging, mount_helper};

/// Prints at most one line `vouch: <what>: <why>; <remedy>`, and returns the documented exit code.
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
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

fn run(arguments: Vec<OsString>) -> Code {
    let cli = match parse(arguments.clone()) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    vouch_tree_bucket::register();
    let name = cli.command.name();
    let outcome = logging::start(&cli.global).and_then(|()| {
        interrupt::survive_file_size_limit().at("signals")?;
        // A replica starts this thread inside its sandbox, which does not cover running threads.
        // Mounts and exports handle SIGHUP themselves.
        if !matches!(cli.command, Command::Serve(_) | Command::Gateway(_) | Command::Export(_) | Command::Mount(_)) {
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

fn report(name: &str, failure: &Failure) -> Code {
    if !matches!(*failure.cause, Cause::Silent(_)) {
        // A cause may quote the several lines of a parser or of another program.
        let text = failure.to_string();
        let line = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
        let _ = writeln!(io::stderr(), "vouch: {name}: {line}");
    }
    code_of(&failure.cause)
}
