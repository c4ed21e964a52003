use std::cell::RefCell;

use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError};
use pyo3::prelude::*;
use vouch_tree_client::Error as ClientError;
use vouch_tree_reader::{Error, ErrorKind, Interrupt, Result};

/// Waits without the interpreter lock. A signal handler that raises ends the wait.
pub(crate) fn blocking<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(Interrupt<'_>) -> Result<T> + Send,
) -> PyResult<T> {
    let (done, raised) = py.detach(|| {
        let raised: RefCell<Option<PyErr>> = RefCell::new(None);
        let done = work(&|| {
            let signal = Python::attach(|py| py.check_signals()).err();
            let is_raised = signal.is_some();
            raised.replace(signal);
            is_raised
        });
        (done, raised.into_inner())
    });
    match (done, raised) {
        (_, Some(raised)) => Err(raised),
        (Ok(done), None) => Ok(done),
        (Err(error), None) => Err(exception(py, &error)),
    }
}

/// As `OSError(errno, message)` of the class for this kind.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let class = match error.kind() {
        ErrorKind::Interrupted => return PyKeyboardInterrupt::new_err(()),
        ErrorKind::Forked => return PyRuntimeError::new_err(error.to_string()),
        ErrorKind::NotFound => "NotFound",
        ErrorKind::NoRevision => "NoRevision",
        ErrorKind::NotADirectory => "NotADirectory",
        ErrorKind::IsADirectory => "IsADirectory",
        ErrorKind::Input => "InvalidInput",
        ErrorKind::Tampered => "Tampered",
        ErrorKind::Rollback => "Rollback",
        ErrorKind::Revoked => "Revoked",
        ErrorKind::Expired => "Expired",
        ErrorKind::Unwitnessed => "Unwitnessed",
        ErrorKind::Unreachable => "Unreachable",
        ErrorKind::Damaged => "Damaged",
        ErrorKind::Local => "LocalError",
    };
    let path = match error {
        Error::Client(ClientError::NotFound { path } | ClientError::NotADirectory { path })
        | Error::IsADirectory { path } => Some(crate::stat::text_of(path)),
        _ => None,
    };
    let made =
        py.import("vouch.errors").and_then(|errors| errors.getattr(class)).and_then(|class| {
            match path {
                Some(path) => {
                    let what = error.to_string();
                    let what = what.rsplit_once(": ").map_or(what.as_str(), |(_, what)| what);
                    class.call1((error.errno(), what, path))
                }
                None => class.call1((error.errno(), error.to_string())),
            }
        });
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}
