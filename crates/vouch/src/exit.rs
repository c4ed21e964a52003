//! How a run ends: failures with their place and cure, the one function that maps a cause to an exit code, and the one line on
//! standard error. Deliberately lacks any text of its own about what to do: whoever raises a failure knows the cure.

use std::fmt;
use std::io;
use std::process::ExitCode;

use clap::Parser as _;

use crate::cli::Cli;
use crate::{interrupt, logging};

/// Runs the command line of this process.
///
/// Prints at most one line `vouch: <what>: <why>; <cure>` to standard error, and returns the documented exit code.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version go to standard output and are no error. A closed pipe there is nobody's fault.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { Code::Usage as u8 } else { Code::Success as u8 });
        }
    };
    let name = cli.command.name();
    let outcome = logging::start(&cli.global).and_then(|()| {
        interrupt::watch().at("signals")?;
        cli.command.run(&cli.global)
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let code = code_of(&failure.cause);
            if !matches!(failure.cause, Cause::Silent(_)) {
                eprintln!("vouch: {name}: {failure}");
            }
            ExitCode::from(code as u8)
        }
    }
}

/// What a subcommand returns.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// The documented exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    Success = 0,
    Differs = 1,
    Usage = 2,
    BadInput = 3,
    NotFound = 4,
    Refused = 5,
    Unreachable = 6,
    LocalIo = 7,
    Busy = 8,
    Interrupted = 130,
}

/// Why a command failed, where, and what its user may do about it.
#[derive(Debug)]
pub(crate) struct Failure {
    what: String,
    pub(crate) cause: Cause,
    cure: Option<String>,
}

/// Whose fault it was.
#[derive(Debug)]
pub(crate) enum Cause {
    /// The command line is wrong in a way that the parser can't see.
    Usage(String),
    /// A file or value that the user gave is malformed.
    Input(String),
    /// Something named does not exist.
    NotFound(String),
    /// A check of authenticity or freshness said no.
    Refused(String),
    /// The system under us.
    Io(io::Error),
    /// A signal asked us to stop.
    Interrupted,
    /// The command has said all there is to say; only the code matters.
    Silent(Code),
}

/// The exit code of each cause: the only place that knows.
pub(crate) fn code_of(cause: &Cause) -> Code {
    match cause {
        Cause::Usage(_) => Code::Usage,
        Cause::Input(_) => Code::BadInput,
        Cause::NotFound(_) => Code::NotFound,
        Cause::Refused(_) => Code::Refused,
        Cause::Io(error) if error.kind() == io::ErrorKind::NotFound => Code::NotFound,
        Cause::Io(_) => Code::LocalIo,
        Cause::Interrupted => Code::Interrupted,
        Cause::Silent(code) => *code,
    }
}

impl Failure {
    /// A failure of `what` (a path, a name, an option) for a reason.
    pub(crate) fn new(what: impl fmt::Display, cause: impl Into<Cause>) -> Failure {
        Failure { what: what.to_string(), cause: cause.into(), cure: None }
    }

    /// The command line asks for something that makes no sense.
    pub(crate) fn usage(what: impl fmt::Display, why: impl fmt::Display) -> Failure {
        Failure::new(what, Cause::Usage(why.to_string()))
    }

    /// A malformed file or value.
    pub(crate) fn input(what: impl fmt::Display, why: impl fmt::Display) -> Failure {
        Failure::new(what, Cause::Input(why.to_string()))
    }

    /// Something named does not exist.
    pub(crate) fn not_found(what: impl fmt::Display, why: impl fmt::Display) -> Failure {
        Failure::new(what, Cause::NotFound(why.to_string()))
    }

    /// A signal asked us to stop.
    pub(crate) fn interrupted() -> Failure {
        Failure::new("stopped", Cause::Interrupted)
    }

    /// The command has printed its findings; only the code remains.
    pub(crate) fn silent(code: Code) -> Failure {
        Failure::new("", Cause::Silent(code))
    }

    /// Adds what the user may do about it.
    pub(crate) fn cure(mut self, cure: impl fmt::Display) -> Failure {
        self.cure = Some(cure.to_string());
        self
    }

    /// Whether the reader of our standard output has gone, which is its right.
    fn is_closed_pipe(&self) -> bool {
        matches!(&self.cause, Cause::Io(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.cause)?;
        match &self.cure {
            Some(cure) => write!(f, "; {cure}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Usage(why) | Cause::Input(why) | Cause::NotFound(why) | Cause::Refused(why) => f.write_str(why),
            Cause::Io(error) => f.write_str(&plain(error)),
            Cause::Interrupted => f.write_str("interrupted"),
            Cause::Silent(_) => f.write_str("failed"),
        }
    }
}

/// An error and its sources in one line, each said once.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let said = source.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        next = source.source();
    }
    text
}

/// The system's message without its number, in the lower case of a sentence's middle.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let text = match (error.raw_os_error(), text.find(" (os error ")) {
        (Some(_), Some(end)) => &text[..end],
        _ => &text[..],
    };
    match text.chars().next() {
        Some(first) if error.raw_os_error().is_some() => first.to_lowercase().chain(text.chars().skip(1)).collect(),
        _ => text.to_owned(),
    }
}

impl From<io::Error> for Cause {
    fn from(error: io::Error) -> Cause {
        Cause::Io(error)
    }
}

/// Names the place of an error.
pub(crate) trait At<T> {
    fn at(self, what: impl fmt::Display) -> Outcome<T>;
}

impl<T, E: Into<Cause>> At<T> for Result<T, E> {
    fn at(self, what: impl fmt::Display) -> Outcome<T> {
        self.map_err(|error| Failure::new(what, error))
    }
}

/// A closed standard output ends the command quietly and successfully, as with other tools in a pipe.
pub(crate) fn forgive_closed_pipe(outcome: Outcome) -> Outcome {
    match outcome {
        Err(failure) if failure.is_closed_pipe() => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line_with_place_reason_and_cure() {
        let failure = Failure::new("/src/a", io::Error::from_raw_os_error(13)).cure("run as a user who may read it");
        assert_eq!(failure.to_string(), "/src/a: permission denied; run as a user who may read it");
    }

    #[test]
    fn codes_are_the_documented_ones() {
        assert_eq!(code_of(&Cause::Usage(String::new())) as u8, 2);
        assert_eq!(code_of(&Cause::Input(String::new())) as u8, 3);
        assert_eq!(code_of(&Cause::Io(io::ErrorKind::NotFound.into())) as u8, 4);
        assert_eq!(code_of(&Cause::Refused(String::new())) as u8, 5);
        assert_eq!(code_of(&Cause::Io(io::ErrorKind::PermissionDenied.into())) as u8, 7);
        assert_eq!(code_of(&Cause::Interrupted) as u8, 130);
    }
}
