//! RFC 9110 §14. Does no I/O.

use std::ops::Range;

use crate::limits::RANGES_MAX;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestedRanges {
    Whole,
    /// Ranges in the order of the request, none empty, no overlap.
    Parts(Vec<Range<u64>>),
    Unsatisfiable,
}

impl RequestedRanges {
    /// Malformed headers, other units, too many and overlapping ranges give the whole file (RFC
    /// 9110 §14.2). So does an empty file: caches that fetch slices would pass on a 416.
    pub(crate) fn parse(value: &[u8], size: u64) -> Self {
        let Some(specs) =
            std::str::from_utf8(value).ok().and_then(|text| text.trim().strip_prefix("bytes="))
        else {
            return Self::Whole;
        };
        if size == 0 || specs.split(',').count() > RANGES_MAX {
            return Self::Whole;
        }
        let mut parts: Vec<Range<u64>> = Vec::new();
        for spec in specs.split(',').map(str::trim).filter(|spec| !spec.is_empty()) {
            match parse_spec(spec, size) {
                Some(range) if range.is_empty() => {}
                Some(range)
                    if parts
                        .iter()
                        .any(|other| other.start < range.end && range.start < other.end) =>
                {
                    return Self::Whole;
                }
                Some(range) => parts.push(range),
                None => return Self::Whole,
            }
        }
        match parts.len() {
            0 if specs.trim().is_empty() => Self::Whole,
            0 => Self::Unsatisfiable,
            _ => Self::Parts(parts),
        }
    }
}

fn parse_spec(spec: &str, size: u64) -> Option<Range<u64>> {
    let (first, last) = spec.split_once('-')?;
    if first.is_empty() {
        let len = parse_number(last)?.min(size);
        return Some(size - len..size);
    }
    let first = parse_number(first)?;
    let end = if last.is_empty() { size } else { parse_number(last)?.saturating_add(1) };
    if !last.is_empty() && end <= first {
        return None;
    }
    Some(first.min(size)..end.min(size))
}

/// Digits only. Numbers too large count as the largest.
fn parse_number(digits: &str) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::RequestedRanges::{Parts, Unsatisfiable, Whole};
    use super::*;

    fn parse(value: &str) -> RequestedRanges {
        RequestedRanges::parse(value.as_bytes(), 1000)
    }

    #[test]
    fn ranges_are_cut_to_the_file_or_ignored() {
        for (value, range) in [
            ("bytes=0-499", 0..500),
            ("bytes=500-", 500..1000),
            ("bytes=-200", 800..1000),
            ("bytes=-5000", 0..1000),
            ("bytes=900-99999999999999999999999", 900..1000),
            ("bytes=999-999", 999..1000),
        ] {
            assert_eq!(parse(value), Parts(Vec::from([range])), "{value}");
        }
        assert_eq!(parse("bytes=0-0, -1"), Parts(vec![0..1, 999..1000]));
        assert_eq!(parse("bytes=5000-, 1-2, 4-4"), Parts(vec![1..3, 4..5]));
        for value in ["bytes=1000-", "bytes=-0", "bytes=2000-3000"] {
            assert_eq!(parse(value), Unsatisfiable, "{value}");
        }
        assert_eq!(RequestedRanges::parse(b"bytes=0-1048575", 0), Whole);
        let many = format!(
            "bytes={}",
            (0..RANGES_MAX as u64 + 1).map(|n| format!("{n}-{n}")).collect::<Vec<_>>().join(",")
        );
        for value in [
            "",
            "bytes=",
            "bytes=a-b",
            "bytes=5-2",
            "bytes=1",
            "lines=1-2",
            "bytes=--1",
            "bytes=+1-2",
            "bytes=0-9,5-6",
            &many,
        ] {
            assert_eq!(parse(value), Whole, "{value}");
        }
    }

    proptest! {
        #[test]
        fn parts_are_within_the_file_and_apart(value in "bytes=[-,0-9 ]{0,40}", size in 0u64..2000) {
            if let Parts(parts) = RequestedRanges::parse(value.as_bytes(), size) {
                prop_assert!(!parts.is_empty() && parts.iter().all(|range| range.start < range.end && range.end <= size));
                prop_assert!(parts.iter().map(|range| range.end - range.start).sum::<u64>() <= size);
            }
        }
    }
}
