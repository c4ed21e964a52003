//! Dates and durations on the command line, and the wall clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::{Timestamp, civil, tz::TimeZone};

/// Seconds since 1970. An earlier clock counts as 1970, which every freshness check refuses.
pub(crate) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let scale = match unit.trim() {
        "" | "s" => 1,
        "m" | "min" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        "y" => 365 * 86_400,
        _ => return Err("write a number and a unit: 30s, 90m, 24h, 7d, 2w or 1y".into()),
    };
    let seconds = number
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(scale))
        .filter(|&s| s > 0 && s <= DURATION_S_MAX);
    seconds.map(Duration::from_secs).ok_or_else(|| {
        "write a number and a unit: 30s, 90m, 24h, 7d, 2w or 1y (at most 100y)".into()
    })
}

pub(crate) fn parse_duration_or_zero(text: &str) -> Result<Duration, String> {
    if matches!(text, "0" | "0s") { Ok(Duration::ZERO) } else { parse_duration(text) }
}

/// A date (`2027-11-21`, midnight UTC) or time (`2027-11-21T10:00:00Z`), into seconds since 1970.
pub(crate) fn parse_date(text: &str) -> Result<u64, String> {
    u64::try_from(parse_instant(text)?.as_second()).map_err(|_| "lies before 1970".to_owned())
}

pub(crate) fn parse_date_ns(text: &str) -> Result<u64, String> {
    let ns = parse_instant(text)?.as_nanosecond();
    u64::try_from(ns).map_err(|_| {
        if ns < 0 { "lies before 1970" } else { "is too far in the future" }.to_owned()
    })
}

fn parse_instant(text: &str) -> Result<Timestamp, String> {
    if let Ok(instant) = text.parse::<Timestamp>() {
        return Ok(instant);
    }
    let date = text
        .parse::<civil::Date>()
        .map_err(|_| "write a date as 2027-11-21 or a time as 2027-11-21T10:00:00Z".to_owned())?;
    date.to_zoned(TimeZone::UTC).map(|zoned| zoned.timestamp()).map_err(|error| error.to_string())
}

pub(crate) fn utc(seconds: u64) -> String {
    let instant =
        i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    instant.map_or_else(|| format!("@{seconds}"), |instant| instant.to_string())
}

pub(crate) fn minutes(seconds: i64) -> String {
    Timestamp::from_second(seconds).map_or_else(
        |_| format!("@{seconds}"),
        |instant| instant.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d %H:%M").to_string(),
    )
}

/// A longer duration is probably a wrong unit.
const DURATION_S_MAX: u64 = 100 * 365 * 86_400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(parse_duration("24h"), Ok(Duration::from_secs(86_400)));
        assert_eq!(parse_duration("1y"), Ok(Duration::from_secs(31_536_000)));
        assert!(parse_duration("0h").is_err());
        assert!(parse_duration("h").is_err());
        assert!(parse_duration("999999999999999999y").is_err());
    }

    #[test]
    fn dates_are_utc() {
        assert_eq!(parse_date("1970-01-02"), Ok(86_400));
        assert_eq!(parse_date("1970-01-01T00:00:10Z"), Ok(10));
        assert!(parse_date("tomorrow").is_err());
        assert_eq!(utc(86_400), "1970-01-02T00:00:00Z");
        assert_eq!(utc(u64::MAX), "@18446744073709551615");
        assert!(parse_date("1969-12-31").is_err());
        assert_eq!(minutes(-60), "1969-12-31 23:59");
    }
}
