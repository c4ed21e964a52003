//! Exit codes and error lines. The code that raises a failure states its remedy.

use std::fmt;
use std::io;

use vouch_tree_client::ErrorClass;
use vouch_tree_mount::MountError;
use vouch_tree_publish::{Error as PublishError, Fault as PublishFault};

use vouch_daemon::audit_trail::TrailError;
use vouch_daemon::failure::{self, Why, chain};
use vouch_export::{ExportError, LeaseError, SourceError, StateError};
use vouch_replica::ServeError;

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

macro_rules! codes {
    ($($code:ident = $number:literal, $meaning:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Code {
            $($code = $number,)*
        }

        /// Exit status of all commands, for the help and the manual pages.
        pub(crate) const EXIT_STATUS: &[(Code, &str)] = &[$((Code::$code, $meaning)),*];
    };
}

codes! {
    Success = 0, "done";
    Differs = 1, "differences found, or verification failed";
    Usage = 2, "invalid command line";
    BadInput = 3, "bad input or configuration";
    NotFound = 4, "not found: the tree, a path in it, or a database";
    Refused = 5, "refused: signature, expiry, revocation or rollback";
    Unreachable = 6, "no replica reachable in time";
    LocalIo = 7, "input/output error on this machine";
    Busy = 8, "busy: another writer holds the database";
    Incomplete = 9, "incomplete: part of a measurement failed, and the rest was done";
    Unwitnessed = 10, "unwitnessed: cosignatures that a policy demands are missing";
    Interrupted = 130, "interrupted";
}

impl Code {
    pub(crate) fn from_number(number: i32) -> Option<Code> {
        EXIT_STATUS.iter().map(|(code, _)| *code).find(|code| *code as i32 == number)
    }
}

#[derive(Debug)]
pub(crate) struct Failure {
    /// Path, name or option; empty if the cause names it.
    what: String,
    /// Boxed, which keeps results small.
    cause: Box<Cause>,
    cure: Option<String>,
}

/// A reason, or an error of a library with its code.
#[derive(Debug)]
pub(crate) enum Cause {
    Why(Why),
    Error(Code, Box<dyn std::error::Error + Send + Sync>),
}

fn code_of_why(why: &Why) -> Code {
    match why {
        Why::Usage(_) => Code::Usage,
        Why::Input(_) => Code::BadInput,
        Why::NotFound(_) => Code::NotFound,
        Why::Refused(_) => Code::Refused,
        Why::Unreachable(_) => Code::Unreachable,
        Why::Incomplete(_) => Code::Incomplete,
        Why::Io(error) => match error.kind() {
            io::ErrorKind::NotFound => Code::NotFound,
            io::ErrorKind::ResourceBusy => Code::Busy,
            _ => Code::LocalIo,
        },
        Why::Reported(code) => Code::from_number(*code).unwrap_or(Code::LocalIo),
        Why::Interrupted => Code::Interrupted,
    }
}

fn code_of_publish(error: &PublishError) -> Code {
    match error {
        PublishError::Store(error @ vouch_tree_store::Error::Bucket(_)) => code_of_store(error),
        error => match error.fault() {
            PublishFault::Input => Code::BadInput,
            PublishFault::Missing => Code::NotFound,
            PublishFault::Environment => Code::LocalIo,
            PublishFault::Busy => Code::Busy,
            PublishFault::Refused => Code::Refused,
            PublishFault::Unwitnessed => Code::Unwitnessed,
            PublishFault::Stopped => Code::Interrupted,
        },
    }
}

fn code_of_image(error: &vouch_image::Error) -> Code {
    use vouch_image::Error;
    match error {
        Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => Code::NotFound,
        Error::Io { .. } => Code::LocalIo,
        Error::NotFound { .. } => Code::NotFound,
        Error::Digest(_) => Code::Differs,
        Error::Invalid { .. } | Error::Layer { .. } | Error::File { .. } | Error::TooLarge(_) => {
            Code::BadInput
        }
        Error::Registry { .. } if error.is_missing() => Code::NotFound,
        Error::Registry { .. } if error.is_denied() => Code::Refused,
        Error::Registry { .. } => Code::Unreachable,
        Error::Publish(error) => code_of_publish(error),
        Error::Tree(error) => code_of_client(error),
    }
}

fn code_of_mount(error: &MountError) -> Code {
    match error {
        MountError::Point { .. } | MountError::Denied { .. } => Code::BadInput,
        MountError::NoPoint { .. } | MountError::NoMount { .. } => Code::NotFound,
        MountError::Busy { .. } => Code::Busy,
        _ => Code::LocalIo,
    }
}

fn code_of_client(error: &vouch_tree_client::Error) -> Code {
    if let vouch_tree_client::Error::Store(error) = error
        && matches!(
            **error,
            vouch_tree_store::Error::NotFound { .. } | vouch_tree_store::Error::Bucket(_)
        )
    {
        return code_of_store(error);
    }
    match error.class() {
        ErrorClass::NotFound => Code::NotFound,
        ErrorClass::Input => Code::BadInput,
        ErrorClass::Refused | ErrorClass::Expired => Code::Refused,
        ErrorClass::Unwitnessed => Code::Unwitnessed,
        ErrorClass::Unreachable => Code::Unreachable,
        ErrorClass::Damaged => Code::Differs,
        ErrorClass::Local => Code::LocalIo,
        ErrorClass::Busy => Code::Busy,
    }
}

fn code_of_store(error: &vouch_tree_store::Error) -> Code {
    use vouch_tree_store::{BucketErrorKind, Error};
    match error {
        Error::NotFound { .. } => Code::NotFound,
        error if error.is_busy() => Code::Busy,
        Error::Bucket(error) => match error.kind {
            BucketErrorKind::Denied => Code::Refused,
            BucketErrorKind::Unreachable => Code::Unreachable,
            BucketErrorKind::Missing => Code::NotFound,
            BucketErrorKind::Busy | BucketErrorKind::Invalid => Code::BadInput,
        },
        Error::Io { .. } | Error::NoSpace { .. } => Code::LocalIo,
        _ => Code::BadInput,
    }
}

fn code_of_bench(error: &vouch_bench::Error) -> Code {
    use vouch_bench::Error;
    match error {
        Error::Corrupt(_) => Code::Differs,
        Error::Input(_) | Error::NotEmpty(_) => Code::BadInput,
        Error::NotFound(_) => Code::NotFound,
        Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => Code::NotFound,
        Error::Refused(_) | Error::Nfs { .. } => Code::Refused,
        Error::Unreachable(_) => Code::Unreachable,
        Error::Io { .. } | Error::Program(_) => Code::LocalIo,
        Error::Interrupted => Code::Interrupted,
    }
}

fn code_of_serve(error: &ServeError) -> Code {
    match error {
        ServeError::Config(_) | ServeError::SameTree { .. } => Code::BadInput,
        ServeError::Tls(_) => Code::BadInput,
        ServeError::Database(error) => code_of_store(error),
        ServeError::Statements { .. }
        | ServeError::Listen { .. }
        | ServeError::Sandbox(_)
        | ServeError::System { .. }
        | ServeError::ThreadEnded => Code::LocalIo,
    }
}

fn code_of_export(error: &ExportError) -> Code {
    match error {
        ExportError::Sources(
            SourceError::File { source, .. } | SourceError::Open { source, .. },
        ) => code_of_source(source),
        ExportError::NotDenied { .. } => Code::Usage,
        ExportError::PrincipalMap { .. } | ExportError::Kerberos(_) | ExportError::Tls(_) => {
            Code::BadInput
        }
        ExportError::Audit(error) => code_of_trail(error),
        ExportError::Sources(_)
        | ExportError::State(StateError::Exposed(..) | StateError::Malformed(..)) => Code::BadInput,
        ExportError::State(
            StateError::Busy(_) | StateError::OfOneServer(_) | StateError::OfHeads(..),
        )
        | ExportError::Lease(LeaseError::Lost(_)) => Code::Busy,
        ExportError::State(StateError::NotMounted(_)) => Code::NotFound,
        ExportError::Lease(LeaseError::Name(_)) => Code::Usage,
        ExportError::Lease(LeaseError::Uncoherent(_)) => Code::BadInput,
        ExportError::Idmap { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            Code::NotFound
        }
        ExportError::Idmap { .. }
        | ExportError::State(StateError::Io { .. })
        | ExportError::Lease(_)
        | ExportError::Recovery { .. }
        | ExportError::Listen { .. }
        | ExportError::System { .. }
        | ExportError::Halted
        | ExportError::ThreadEnded => Code::LocalIo,
    }
}

fn code_of_jobs(error: &vouch_jobs::Error) -> Code {
    use vouch_jobs::Error;
    match error {
        Error::Kerberos(_) | Error::Configuration(_) | Error::Exposed(_) | Error::Pods(_) => {
            Code::BadInput
        }
        Error::Refused(_) | Error::NoAccount(_) => Code::Refused,
        Error::Unavailable(_) | Error::Connection(_) => Code::Unreachable,
        Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => Code::NotFound,
        Error::Io { .. } | Error::Store { .. } => Code::LocalIo,
        Error::Trail(error) => code_of_trail(error),
    }
}

fn code_of_monitor(error: &vouch_monitor::Error) -> Code {
    use vouch_monitor::Error;
    match error {
        Error::Io { .. } | Error::Log(_) => Code::LocalIo,
        Error::Busy(_) => Code::Busy,
        Error::Damaged { .. } | Error::Expected { .. } => Code::BadInput,
    }
}

fn code_of_trail_log(error: &vouch_audit_pipeline::trail_log::Error) -> Code {
    use vouch_audit_pipeline::trail_log::Error;
    match error {
        Error::Io { error, .. } if error.kind() == io::ErrorKind::NotFound => Code::NotFound,
        Error::Io { .. } | Error::Directory(_) => Code::LocalIo,
        Error::Busy(_) => Code::Busy,
        Error::OtherKey { .. } | Error::NewTrail(_) => Code::BadInput,
        Error::Read { .. } | Error::Broken { .. } => Code::Differs,
    }
}

fn code_of_trail(error: &TrailError) -> Code {
    if error.is_full { Code::LocalIo } else { Code::BadInput }
}

fn code_of_source(error: &io::Error) -> Code {
    let tree = error.get_ref().and_then(|inner| inner.downcast_ref::<vouch_tree_client::Error>());
    match (tree, error.kind()) {
        (Some(error), _) => code_of_client(error),
        (None, io::ErrorKind::NotFound) => Code::NotFound,
        (
            None,
            io::ErrorKind::NotADirectory
            | io::ErrorKind::IsADirectory
            | io::ErrorKind::InvalidInput,
        ) => Code::BadInput,
        (None, _) => Code::LocalIo,
    }
}

impl Failure {
    pub(crate) fn new(what: impl fmt::Display, cause: impl Into<Cause>) -> Failure {
        let failure =
            |cause, cure| Failure { what: what.to_string(), cause: Box::new(cause), cure };
        match cause.into() {
            // One text for all options that name a new file.
            Cause::Why(Why::Io(error)) if error.kind() == io::ErrorKind::AlreadyExists => failure(
                Cause::Why(Why::Input("exists already".into())),
                Some("choose another name, or remove it".into()),
            ),
            cause => failure(cause, None),
        }
    }

    pub(crate) fn code(&self) -> Code {
        match &*self.cause {
            Cause::Why(why) => code_of_why(why),
            Cause::Error(code, _) => *code,
        }
    }

    /// True if the reason has been printed.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(*self.cause, Cause::Why(Why::Reported(_)))
    }

    pub(crate) fn usage(what: impl fmt::Display, why: impl fmt::Display) -> Failure {
        Failure::new(what, Why::Usage(why.to_string()))
    }

    pub(crate) fn input(what: impl fmt::Display, why: impl fmt::Display) -> Failure {
        Failure::new(what, Why::Input(why.to_string()))
    }

    pub(crate) fn not_found(what: impl fmt::Display, why: impl fmt::Display) -> Failure {
        Failure::new(what, Why::NotFound(why.to_string()))
    }

    pub(crate) fn refused(what: impl fmt::Display, why: impl fmt::Display) -> Failure {
        Failure::new(what, Why::Refused(why.to_string()))
    }

    pub(crate) fn incomplete(why: impl fmt::Display) -> Failure {
        Failure::new("", Why::Incomplete(why.to_string()))
    }

    pub(crate) fn interrupted() -> Failure {
        Failure::new("stopped", Why::Interrupted)
    }

    pub(crate) fn silent(code: Code) -> Failure {
        Failure::new("", Why::Reported(code as i32))
    }

    pub(crate) fn reached_by(mut self, way: &str) -> Failure {
        self.what =
            if self.what.is_empty() { way.to_owned() } else { format!("{way} -> {}", self.what) };
        self
    }

    pub(crate) fn cure(mut self, cure: impl fmt::Display) -> Failure {
        self.cure = Some(cure.to_string());
        self
    }

    pub(crate) fn is_full_disk(&self) -> bool {
        let full = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
        };
        matches!(&*self.cause, Cause::Why(Why::Io(error)) if full(error))
    }

    fn is_closed_pipe(&self) -> bool {
        matches!(&*self.cause, Cause::Why(Why::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.what.is_empty() {
            write!(f, "{}: ", self.what)?;
        }
        write!(f, "{}", self.cause)?;
        match &self.cure {
            Some(cure) => write!(f, "; {cure}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Why(why) => why.fmt(f),
            Cause::Error(_, error) => f.write_str(&chain(&**error)),
        }
    }
}

impl From<failure::Failure> for Failure {
    fn from(failure::Failure { what, why, cure }: failure::Failure) -> Failure {
        let why = match why {
            Why::Reported(code) if Code::from_number(code).is_none() => {
                Why::Io(io::Error::other(format!("a process ended with code {code}")))
            }
            why => why,
        };
        Failure { what, cause: Box::new(Cause::Why(why)), cure }
    }
}

impl<E: Into<Cause>> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure { what: String::new(), cause: Box::new(error.into()), cure: None }
    }
}

impl From<Why> for Cause {
    fn from(why: Why) -> Cause {
        Cause::Why(why)
    }
}

impl From<io::Error> for Cause {
    fn from(error: io::Error) -> Cause {
        Cause::Why(Why::Io(error))
    }
}

macro_rules! errors {
    ($($error:ty => $code:expr;)*) => { $(
        impl From<$error> for Cause {
            fn from(error: $error) -> Cause {
                let code: fn(&$error) -> Code = $code;
                Cause::Error(code(&error), Box::new(error))
            }
        }
    )* };
}

errors! {
    vouch_tree::keyfile::Error => |_| Code::BadInput;
    vouch_tree::name::NameError => |_| Code::BadInput;
    vouch_xdr::Error => |_| Code::BadInput;
    vouch_tree_store::Error => code_of_store;
    PublishError => code_of_publish;
    vouch_tree_client::Error => code_of_client;
    vouch_image::Error => code_of_image;
    MountError => code_of_mount;
    ServeError => code_of_serve;
    ExportError => code_of_export;
    TrailError => code_of_trail;
    vouch_jobs::Error => code_of_jobs;
    vouch_bench::Error => code_of_bench;
    vouch_monitor::Error => code_of_monitor;
    vouch_audit_pipeline::trail_log::Error => code_of_trail_log;
}

pub(crate) trait At<T> {
    fn at(self, what: impl fmt::Display) -> Outcome<T>;
}

impl<T, E: Into<Cause>> At<T> for Result<T, E> {
    fn at(self, what: impl fmt::Display) -> Outcome<T> {
        self.map_err(|error| Failure::new(what, error))
    }
}

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
    fn failure_is_one_line_with_place_reason_and_remedy() {
        let failure = Failure::new("/src/a", io::Error::from_raw_os_error(13))
            .cure("run as a user who may read it");
        assert_eq!(failure.to_string(), "/src/a: permission denied; run as a user who may read it");
    }

    #[test]
    fn exit_codes_match_documentation() {
        let code = |cause: Cause| Failure::new("", cause).code() as u8;
        let io = |kind: io::ErrorKind| code(io::Error::from(kind).into());
        assert_eq!(code(Why::Usage(String::new()).into()), 2);
        assert_eq!(code(Why::Input(String::new()).into()), 3);
        assert_eq!(io(io::ErrorKind::NotFound), 4);
        assert_eq!(code(Why::Refused(String::new()).into()), 5);
        assert_eq!(io(io::ErrorKind::PermissionDenied), 7);
        assert_eq!(code(Why::Incomplete(String::new()).into()), 9);
        assert_eq!(code(Why::Interrupted.into()), 130);
    }

    #[test]
    fn troubleshooting_has_a_row_for_each_code() {
        let page = include_str!("../../../../docs/troubleshooting.md");
        let (_, table) = page.split_once("| code | meaning |").expect("the table of exit codes");
        let rows = table.lines().skip(2).take_while(|line| line.starts_with("| "));
        let codes = rows.map(|row| row.split(' ').nth(1).expect("a code").to_owned());
        let all = EXIT_STATUS.iter().map(|(code, _)| (*code as i32).to_string());
        assert_eq!(codes.collect::<Vec<_>>(), all.collect::<Vec<_>>());
    }

    #[test]
    fn export_failures_have_codes_of_their_causes() {
        let code = |source: io::Error| {
            let error = ExportError::Sources(SourceError::Open { what: "x".into(), source });
            Failure::from(error).code() as u8
        };
        assert_eq!(code(io::Error::from_raw_os_error(2)), 4);
        assert_eq!(code(io::Error::from_raw_os_error(20)), 3);
        assert_eq!(code(io::Error::from_raw_os_error(13)), 7);
        let no_database =
            vouch_tree_client::LocalConnector::open(std::path::Path::new("/nonexist"))
                .err()
                .expect("no entry exists");
        assert_eq!(code(io::Error::other(no_database)), 4);
        let refused = vouch_tree_client::Error::NoState;
        assert_eq!(code(io::Error::other(refused)), 7);
    }
}
