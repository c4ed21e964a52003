//! Options that choose the revisions to keep, named as those of `restic forget`.

use std::time::Duration;

use vouch_tree_store::Retention;

use crate::when;

#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct KeepArgs {
    /// Keep the newest N revisions and the tagged ones. A revision that one of the --keep options
    /// keeps stays; without any, all stay.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,
    /// Keep revisions that were signed at most this long before the newest one.
    #[arg(long, value_name = "DURATION", value_parser = when::parse_duration)]
    keep_within: Option<Duration>,
    /// Keep the newest revision of each of the last N days (UTC) that have one.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    keep_daily: Option<u32>,
    /// Keep the newest revision of each of the last N weeks that have one.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    keep_weekly: Option<u32>,
}

impl KeepArgs {
    /// `None`: all stay.
    pub(crate) fn retention(&self) -> Option<Retention> {
        let count = |option: Option<u32>| option.unwrap_or(0) as usize;
        let policy = Retention {
            last: count(self.keep),
            within_s: self.keep_within.map(|within| within.as_secs()),
            daily: count(self.keep_daily),
            weekly: count(self.keep_weekly),
        };
        (!policy.is_empty()).then_some(policy)
    }
}
