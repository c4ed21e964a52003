//! Why a collector did not take records, and what may be done about it.

use std::fmt;
use std::io;

use crate::exit::{Failure, chain};

/// Why nothing counts that was sent since the last position.
#[derive(Debug)]
pub(super) struct Trouble {
    why: String,
    cure: Option<&'static str>,
    /// One side does not believe the other: waiting mends nothing.
    pub(super) is_refusal: bool,
    /// The other side ended without the word that makes what was sent count: it has died, or it
    /// never says it.
    pub(super) is_plain_end: bool,
}

impl Trouble {
    pub(super) fn new(why: impl fmt::Display) -> Trouble {
        Trouble { why: why.to_string(), cure: None, is_refusal: false, is_plain_end: false }
    }

    /// One side does not believe the other.
    pub(super) fn refusal(why: impl fmt::Display, cure: &'static str) -> Trouble {
        Trouble { cure: Some(cure), is_refusal: true, ..Trouble::new(why) }
    }

    /// TLS was not ended by the other side.
    pub(super) fn plain_end() -> Trouble {
        let why = "the connection ended without the collector's close_notify, so anybody may have cut it";
        let cure = Some("a collector that answers close_notify, or --tls-plain-end if you trust the wire");
        Trouble { cure, is_plain_end: true, ..Trouble::new(why) }
    }

    /// As the end of a run.
    pub(super) fn into_failure(self, to: impl fmt::Display) -> Failure {
        let failure = Failure::refused(to, self.why);
        match self.cure {
            Some(cure) => failure.cure(cure),
            None => failure,
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)?;
        self.cure.map_or(Ok(()), |cure| write!(f, "; cure: {cure}"))
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        Trouble::new(chain(&error))
    }
}
