//! Options of commands that issue a certificate.

use std::time::Duration;

use crate::exit::{Failure, Outcome};
use crate::when;

#[derive(Debug, clap::Args)]
pub(crate) struct ValidityArgs {
    /// Validity of the signing key.
    #[arg(long, value_name = "DURATION", default_value = "1y", value_parser = when::parse_duration, conflicts_with = "until")]
    valid_for: Duration,
    /// End of the signing key's validity: 2027-11-21 or 2027-11-21T10:00:00Z.
    #[arg(long, value_name = "DATE", value_parser = when::parse_date)]
    until: Option<u64>,
}

impl ValidityArgs {
    /// In seconds since 1970.
    pub(crate) fn not_after(&self, now_s: u64) -> Outcome<u64> {
        match self.until {
            Some(until) if until <= now_s => Err(Failure::usage(
                format_args!("--until {}", when::utc(until)),
                "has passed already",
            )),
            Some(until) => Ok(until),
            None => Ok(now_s.saturating_add(self.valid_for.as_secs())),
        }
    }
}
