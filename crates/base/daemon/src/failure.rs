//! What failed, why, and the cure.

use std::{fmt, io};

/// A failure of a command or a service. `vouch` turns it into an exit code.
#[derive(Debug)]
pub struct Failure {
    pub what: String,
    pub why: Why,
    pub cure: Option<String>,
}

#[derive(Debug)]
pub enum Why {
    Usage(String),
    Input(String),
    NotFound(String),
    /// A check of authenticity or freshness failed.
    Refused(String),
    Unreachable(String),
    /// Partial failure: the rest was done.
    Incomplete(String),
    Io(io::Error),
    /// Another process has printed the reason and ended with this exit code.
    Reported(i32),
    Interrupted,
}

pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    pub fn new(what: impl fmt::Display, why: Why) -> Failure {
        Failure { what: what.to_string(), why, cure: None }
    }

    pub fn usage(what: impl fmt::Display, why: impl fmt::Display) -> Failure {
        Failure::new(what, Why::Usage(why.to_string()))
    }

    pub fn input(what: impl fmt::Display, why: impl fmt::Display) -> Failure {
        Failure::new(what, Why::Input(why.to_string()))
    }

    pub fn refused(what: impl fmt::Display, why: impl fmt::Display) -> Failure {
        Failure::new(what, Why::Refused(why.to_string()))
    }

    pub fn io(what: impl fmt::Display, error: io::Error) -> Failure {
        Failure::new(what, Why::Io(error))
    }

    pub fn interrupted() -> Failure {
        Failure::new("stopped", Why::Interrupted)
    }

    pub fn cure(mut self, cure: impl fmt::Display) -> Failure {
        self.cure = Some(cure.to_string());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.what.is_empty() {
            write!(f, "{}: ", self.what)?;
        }
        write!(f, "{}", self.why)?;
        self.cure.as_ref().map_or(Ok(()), |cure| write!(f, "; {cure}"))
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Usage(why)
            | Why::Input(why)
            | Why::NotFound(why)
            | Why::Refused(why)
            | Why::Unreachable(why)
            | Why::Incomplete(why) => f.write_str(why),
            Why::Io(error) => f.write_str(&system_message(error)),
            Why::Reported(_) => f.write_str("failed"),
            Why::Interrupted => f.write_str("interrupted"),
        }
    }
}

/// Adds what failed to an error of the system.
pub trait At<T> {
    fn at(self, what: impl fmt::Display) -> Outcome<T>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, what: impl fmt::Display) -> Outcome<T> {
        self.map_err(|error| Failure::io(what, error))
    }
}

/// An error and its sources in one line, without repetitions and errno numbers.
pub fn chain(error: &dyn std::error::Error) -> String {
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
    while let Some(start) = text.find(NUMBER) {
        let Some(len) = text[start..].find(')') else { break };
        text.replace_range(start..=start + len, "");
    }
    text
}

const NUMBER: &str = " (os error ";

/// A system message without its number, in lower case.
pub fn system_message(error: &io::Error) -> String {
    let text = error.to_string();
    let text = match (error.raw_os_error(), text.find(NUMBER)) {
        (Some(_), Some(end)) => &text[..end],
        _ => &text[..],
    };
    match text.chars().next() {
        Some(first) if error.raw_os_error().is_some() => {
            first.to_lowercase().chain(text.chars().skip(1)).collect()
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_chain_has_no_repetitions_or_numbers() {
        #[derive(Debug, thiserror::Error)]
        #[error("opening x: {0}")]
        struct Outer(#[source] io::Error);
        assert_eq!(
            chain(&Outer(io::Error::from_raw_os_error(111))),
            "opening x: Connection refused"
        );
    }
}
