//! Instants in messages: seconds since 1970 as people read them. Reads no clock.

use std::fmt;

/// Seconds since 1970, shown in UTC: `2027-11-21T10:00:00Z`; beyond the year 9999 as their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Utc(pub u64);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 > SECONDS_MAX {
            return write!(f, "@{}", self.0);
        }
        let (days, second) = (self.0 / DAY, self.0 % DAY);
        let (year, month, day) = date(days);
        write!(f, "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
    }
}

/// How far one instant is from another: `3 days ago`, `in 2 hours`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Away {
    /// The instant, in seconds since 1970.
    pub at: u64,
    /// From where it is looked at, in seconds since 1970.
    pub now: u64,
}

impl fmt::Display for Away {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.at.abs_diff(self.now);
        // Two of a unit are told in it: "1 day" would hide nearly another.
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

/// Year, month and day of the Gregorian calendar, so many days after 1970-01-01. Years are counted from the first of March, so that
/// the leap day is their last; 400 of them have 146,097 days.
const fn date(days: u64) -> (u64, u64, u64) {
    let days = days + DAYS_BEFORE_1970;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // March to January have 153 days each five months.
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + (month <= 2) as u64, month, day)
}

const DAY: u64 = 86_400;

/// From the first of March of the year 0.
const DAYS_BEFORE_1970: u64 = 719_468;

/// The end of the year 9999.
const SECONDS_MAX: u64 = 253_402_300_799;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_what_date_says() {
        // By date -u -d @N +%FT%TZ.
        let known = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_795_315_123, "2026-11-22T02:38:43Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
            (253_402_300_800, "@253402300800"),
            (u64::MAX, "@18446744073709551615"),
        ];
        known.into_iter().for_each(|(seconds, text)| assert_eq!(Utc(seconds).to_string(), text));
    }

    #[test]
    fn each_day_follows_the_one_before() {
        let mut before = date(0);
        for days in 1..300_000 {
            let (year, month, day) = date(days);
            let follows = match before {
                (y, m, d) if day == d + 1 => (year, month) == (y, m) && day <= 31,
                (y, 12, 31) => (year, month, day) == (y + 1, 1, 1),
                (y, m, d) => d >= 28 && (year, month, day) == (y, m + 1, 1),
            };
            assert!(follows, "{before:?}, {:?}", (year, month, day));
            before = (year, month, day);
        }
    }

    #[test]
    fn distances_are_told_in_the_unit_that_fits() {
        let now = 1_800_000_000;
        let told = |at| Away { at, now }.to_string();
        assert_eq!(told(now), "just now");
        assert_eq!(told(now - 1), "1 second ago");
        assert_eq!(told(now - 119), "119 seconds ago");
        assert_eq!(told(now - 120), "2 minutes ago");
        assert_eq!(told(now + 7_200), "in 2 hours");
        assert_eq!(told(now - 3 * DAY - 5), "3 days ago");
        assert_eq!(Away { at: 0, now: u64::MAX }.to_string(), "213503982334601 days ago");
    }
}
