//! Linux closes the connection without an answer if rpc.svcgssd does not answer the kernel for 5
//! seconds (7.3.4).

use std::io::ErrorKind;
use std::time::Duration;

use vouch_nfs4_client::GssError;

use crate::Error;

/// Each attempt needs a token of its own: the server refuses a token that it has seen.
pub(super) fn retry_if_closed<T, E: std::fmt::Display>(
    what: &str,
    pause: Duration,
    mut attempt: impl FnMut() -> Result<Result<T, GssError<E>>, Error>,
) -> Result<T, Error> {
    for attempts_left in (0..ATTEMPTS).rev() {
        match attempt()? {
            Ok(context) => return Ok(context),
            Err(GssError::Io(error)) if is_closed(error.kind()) && attempts_left > 0 => {
                std::thread::sleep(pause);
            }
            Err(GssError::Io(error)) if is_closed(error.kind()) => {
                return Err(Error::Unreachable(format!(
                    "{what}: the server closed the connection {ATTEMPTS} times instead of \
                     accepting a Kerberos ticket; check rpc.svcgssd or gssproxy on the server"
                )));
            }
            Err(GssError::Io(error)) => {
                return Err(Error::Unreachable(format!("{what}: {error}")));
            }
            Err(error) => return Err(Error::Refused(format!("{what}: {error}"))),
        }
    }
    unreachable!("the last attempt returns")
}

fn is_closed(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

const ATTEMPTS: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn closed() -> GssError<&'static str> {
        GssError::Io(ErrorKind::UnexpectedEof.into())
    }

    #[test]
    fn creates_context_again_after_closed_connection() {
        let mut calls = 0;
        let outcome = retry_if_closed("nfs://s/a", Duration::ZERO, || {
            calls += 1;
            Ok(if calls < 3 { Err(closed()) } else { Ok(calls) })
        });
        assert_eq!(outcome.unwrap(), 3);
    }

    #[test]
    fn names_svcgssd_after_last_attempt() {
        let mut calls = 0;
        let outcome = retry_if_closed("nfs://s/a", Duration::ZERO, || {
            calls += 1;
            Ok(Err::<(), _>(closed()))
        });
        let error = outcome.unwrap_err().to_string();
        assert!(calls == ATTEMPTS && error.contains("rpc.svcgssd"), "{calls}: {error}");
    }

    #[test]
    fn does_not_repeat_refusal() {
        let mut calls = 0;
        let outcome = retry_if_closed("nfs://s/a", Duration::ZERO, || {
            calls += 1;
            Ok(Err::<(), GssError<&str>>(GssError::Io(ErrorKind::ConnectionRefused.into())))
        });
        assert!(outcome.is_err() && calls == 1);
    }
}
