//! Times for people. Never reads the clock.

use std::fmt;

use jiff::Timestamp;

/// Seconds since 1970, shown as `2027-11-21T10:00:00Z`, or as `@SECONDS` after year 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Utc(pub u64);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match i64::try_from(self.0).map(Timestamp::from_second) {
            Ok(Ok(instant)) => write!(f, "{instant}"),
            _ => write!(f, "@{}", self.0),
        }
    }
}

/// Shown as `3 days ago`, `in 2 hours`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelativeTime {
    /// Seconds since 1970.
    pub at: u64,
    /// Seconds since 1970.
    pub now: u64,
}

impl fmt::Display for RelativeTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.at.abs_diff(self.now);
        // A unit starts at two: "1 day" could hide nearly a second day.
        let (count, unit) = match seconds {
            _ if seconds >= 2 * DAY => (seconds / DAY, "days"),
            _ if seconds >= 2 * 3600 => (seconds / 3600, "hours"),
            _ if seconds >= 2 * 60 => (seconds / 60, "minutes"),
            1 => (1, "second"),
            _ => (seconds, "seconds"),
        };
        match self.at {
            at if at == self.now => f.write_str("just now"),
            at if at < self.now => write!(f, "{count} {unit} ago"),
            _ => write!(f, "in {count} {unit}"),
        }
    }
}

const DAY: u64 = 86_400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utc_text_matches_date() {
        let known = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_795_315_123, "2026-11-22T02:38:43Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (253_402_127_999, "9999-12-29T23:59:59Z"),
            (253_402_300_800, "@253402300800"),
            (u64::MAX, "@18446744073709551615"),
        ];
        known.into_iter().for_each(|(seconds, text)| assert_eq!(Utc(seconds).to_string(), text));
    }

    #[test]
    fn relative_time_uses_a_fitting_unit() {
        let now = 1_800_000_000;
        let shown = |at| RelativeTime { at, now }.to_string();
        assert_eq!(shown(now), "just now");
        assert_eq!(shown(now - 1), "1 second ago");
        assert_eq!(shown(now - 119), "119 seconds ago");
        assert_eq!(shown(now - 120), "2 minutes ago");
        assert_eq!(shown(now + 7_200), "in 2 hours");
        assert_eq!(shown(now - 3 * DAY - 5), "3 days ago");
        assert_eq!(RelativeTime { at: 0, now: u64::MAX }.to_string(), "213503982334601 days ago");
    }
}
