use std::fmt;
use std::io;

use vouch_daemon::failure::{Failure, chain};

/// Nothing since the last position counts as sent.
#[derive(Debug)]
pub(super) struct DeliveryError {
    why: String,
    cure: Option<&'static str>,
    pub(super) is_refusal: bool,
    /// No close_notify: the other side crashed, or never sends one.
    pub(super) is_plain_end: bool,
}

impl DeliveryError {
    pub(super) fn new(why: impl fmt::Display) -> DeliveryError {
        DeliveryError { why: why.to_string(), cure: None, is_refusal: false, is_plain_end: false }
    }

    pub(super) fn refusal(why: impl fmt::Display, cure: &'static str) -> DeliveryError {
        DeliveryError { cure: Some(cure), is_refusal: true, ..DeliveryError::new(why) }
    }

    pub(super) fn plain_end() -> DeliveryError {
        let why = "the connection ended without the collector's close_notify, so an attacker may have cut it";
        let cure = Some(
            "use a collector that answers close_notify, or --tls-plain-end if you trust the network",
        );
        DeliveryError { cure, is_plain_end: true, ..DeliveryError::new(why) }
    }

    pub(super) fn into_failure(self, to: impl fmt::Display) -> Failure {
        let failure = Failure::refused(to, self.why);
        match self.cure {
            Some(cure) => failure.cure(cure),
            None => failure,
        }
    }
}

impl fmt::Display for DeliveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)?;
        self.cure.map_or(Ok(()), |cure| write!(f, "; cure: {cure}"))
    }
}

impl From<io::Error> for DeliveryError {
    fn from(error: io::Error) -> DeliveryError {
        DeliveryError::new(chain(&error))
    }
}
