//! This machine's clock, compared with its release date, with signatures and with servers' clocks.

use std::fs;
use std::path::Path;

use vouch_tree::time_text::{RelativeTime, Utc};
use vouch_tree::verify::CLOCK_SKEW_S_MAX;

use crate::finding::{Fault, Finding};
use crate::now_s;

/// Whether the clock is plausible by itself.
pub(crate) fn check() -> Finding {
    let now_s = now_s();
    if now_s < RELEASED {
        return off(format_args!("says {}, which is before this program was made", Utc(now_s)));
    }
    if has_time_service() {
        return Finding::ok("clock", format_args!("{}, and a time service runs", Utc(now_s)));
    }
    Finding::note(Fault::ClockUnsynchronised, "clock", format_args!("says {}; no time service runs that would correct it", Utc(now_s)))
        .cure("if it is wrong, trees look expired or not yet valid: run chrony, systemd-timesyncd or ntpd")
}

/// A revision is signed in the future of this clock.
pub(crate) fn behind(signed: u64, now: u64) -> Finding {
    off(format_args!(
        "this machine's clock is behind: it says {}, but a revision was signed on {} ({})",
        Utc(now),
        Utc(signed),
        RelativeTime { at: signed, now }
    ))
}

/// Two clocks at one moment, in seconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TwoClocks {
    pub(crate) here: u64,
    /// Of the server of the replica. Nobody has verified it.
    pub(crate) there: u64,
}

impl TwoClocks {
    /// If the tree has expired here, but not there.
    ///
    /// A time service is believed more than a replica, which may lie or run without one.
    pub(crate) fn ahead(
        self,
        replica: &str,
        expires: u64,
        has_time_service: bool,
    ) -> Option<Finding> {
        let Self { here, there } = self;
        let is_ahead = here > there + CLOCK_SKEW_S_MAX && here >= expires && there < expires;
        (is_ahead && !has_time_service).then(|| {
            off(format_args!(
                "this machine's clock is ahead: it says {}, but the clock of {replica} says {} ({}), when the newest revision is still valid",
                Utc(here),
                Utc(there),
                RelativeTime { at: there, now: here }
            ))
        })
    }

    /// The clocks differ, which hurts nobody yet.
    pub(crate) fn difference(self, replica: &str) -> Option<Finding> {
        let Self { here, there } = self;
        (here.abs_diff(there) > CLOCK_SKEW_S_MAX).then(|| {
            let direction = if here > there { "ahead of" } else { "behind" };
            Finding::note(
                Fault::ClocksDiffer,
                replica,
                format_args!("this machine's clock says {}, and is {direction} the replica's, which says {}", Utc(here), Utc(there)),
            )
            .cure("set the clock that is wrong: trees look expired too early by a clock that is ahead, and too late by one that is behind")
        })
    }
}

fn off(what: impl std::fmt::Display) -> Finding {
    Finding::problem(Fault::ClockOff, "clock", what)
        .cure("set the clock: run chrony, systemd-timesyncd or ntpd; `date -u` must be within 5 minutes of the true time")
}

/// Whether a time service runs. The kernel's own state (adjtimex(2)) has no safe wrapper.
pub(crate) fn has_time_service() -> bool {
    let runs = |entry: fs::DirEntry| {
        fs::read_to_string(entry.path().join("comm"))
            .is_ok_and(|name| TIME_SERVICES.contains(&name.trim_end()))
    };
    Path::new("/run/systemd/timesync/synchronized").exists()
        || fs::read_dir("/proc").into_iter().flatten().flatten().any(runs)
}

const TIME_SERVICES: [&str; 5] = ["chronyd", "ntpd", "systemd-timesyn", "ptp4l", "phc2sys"];

/// 2026-11-01: no clock was right and earlier.
const RELEASED: u64 = 1_793_491_200;

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: u64 = 1_800_000_000;
    const HOUR: u64 = 3600;

    #[test]
    fn clock_is_ahead_if_a_tree_has_expired_only_by_it() {
        let clocks = |here, there| TwoClocks { here, there };
        let expires = NOON + HOUR;
        let found = clocks(NOON + 2 * HOUR, NOON)
            .ahead("mirror.example", expires, false)
            .expect("a problem");
        let json = serde_json::to_value(&found).expect("JSON");
        assert_eq!((&json["verdict"], &json["fault"]), (&"problem".into(), &"clock-off".into()));
        assert!(
            json["what"]
                .as_str()
                .is_some_and(|what| what.contains("is ahead") && what.contains("2 hours ago")),
            "{json}"
        );
        // Expired by both clocks, by none, or by a difference that clients tolerate.
        assert!(clocks(NOON + 3 * HOUR, NOON + 2 * HOUR).ahead("m", expires, false).is_none());
        assert!(clocks(NOON, NOON - HOUR).ahead("m", expires, false).is_none());
        assert!(clocks(expires, expires - CLOCK_SKEW_S_MAX).ahead("m", expires, false).is_none());
        // The replica's clock is behind, and this machine's is kept right.
        assert!(clocks(NOON + 2 * HOUR, NOON).ahead("m", expires, true).is_none());
    }

    #[test]
    fn differing_clocks_are_noted_with_their_direction() {
        let what = |here, there| {
            let found = TwoClocks { here, there }.difference("m")?;
            Some(serde_json::to_value(found).expect("JSON")["what"].to_string())
        };
        assert!(
            what(NOON + HOUR, NOON).is_some_and(|what| what.contains("is ahead of the replica's"))
        );
        assert!(
            what(NOON, NOON + HOUR).is_some_and(|what| what.contains("is behind the replica's"))
        );
        assert_eq!(what(NOON + CLOCK_SKEW_S_MAX, NOON), None);
    }
}
