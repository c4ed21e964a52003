//! RFC 9110 §8.8.3 and 13.
//!
//! A publisher may change a file and keep its time. So the date of a file is derived from its time
//! and its content, and conditions compare it for equality.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::HeaderMap;
use hyper::header::{
    HeaderName, HeaderValue, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
};
use vouch_tree::{Blob, Content, Inode, Timestamp};
use vouch_xdr::Xdr as _;

/// The file's time, less up to a day by a hash of the content: other content has another date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentDate(SystemTime);

impl ContentDate {
    /// RFC 9110 §8.8.2.1: a time in the future is not sent.
    pub(crate) fn of(time: Timestamp, tag: &EntityTag, now: SystemTime) -> Option<Self> {
        let s = u64::try_from(time.s).ok()?;
        let hash = blake3::hash(tag.0.as_bytes())
            .as_bytes()
            .first_chunk()
            .copied()
            .map_or(0, u64::from_le_bytes);
        let at = UNIX_EPOCH.checked_add(Duration::from_secs(s.saturating_sub(hash % DAY_S)))?;
        (UNIX_EPOCH.checked_add(Duration::from_secs(s))? <= now).then_some(Self(at))
    }

    /// For protocols that compare dates as HTTP does, such as that of apt's methods.
    pub fn of_file(inode: &Inode, now: SystemTime) -> Option<SystemTime> {
        let Content::Regular { blob, .. } = &inode.content else { return None };
        Self::of(inode.mtime, &EntityTag::of_file(blob), now).map(|date| date.0)
    }

    pub(crate) fn header(self) -> HeaderValue {
        HeaderValue::from_str(&httpdate::fmt_http_date(self.0)).expect("a date is a header value")
    }

    fn is_in(self, value: &HeaderValue) -> bool {
        value.to_str().is_ok_and(|text| {
            httpdate::parse_http_date(text.trim()).is_ok_and(|date| date == self.0)
        })
    }
}

const DAY_S: u64 = 86_400;

/// Strong; a hash of the content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EntityTag(String);

impl EntityTag {
    pub(crate) fn of_file(blob: &Blob) -> Self {
        Self::of("vouch gateway 2026 file", &[&blob.to_xdr()])
    }

    /// `context` separates kinds of content.
    pub(crate) fn of(context: &'static str, parts: &[&[u8]]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(context);
        for part in parts {
            hasher.update(&(part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        Self(format!(
            "\"{}\"",
            data_encoding::BASE64URL_NOPAD.encode(&hasher.finalize().as_bytes()[..18])
        ))
    }

    pub(crate) fn header(&self) -> HeaderValue {
        HeaderValue::from_str(&self.0).expect("base64 in quotes is a header value")
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// `is_weak`: permits `W/`.
    fn is_in(&self, headers: &HeaderMap, name: HeaderName, is_weak: bool) -> Option<bool> {
        let mut values = headers.get_all(name).iter().peekable();
        values.peek()?;
        Some(values.any(|value| {
            value.as_bytes().split(|&b| b == b',').any(|tag| {
                let tag = tag.trim_ascii();
                let tag = if is_weak { tag.strip_prefix(b"W/").unwrap_or(tag) } else { tag };
                tag == b"*" || tag == self.0.as_bytes()
            })
        }))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Precondition {
    Proceed,
    /// 304.
    NotModified,
    /// 412.
    Failed,
}

impl Precondition {
    /// RFC 9110 §13.2.2.
    pub(crate) fn evaluate(
        headers: &HeaderMap,
        tag: &EntityTag,
        date: Option<ContentDate>,
    ) -> Self {
        if tag.is_in(headers, IF_MATCH, false) == Some(false) {
            return Self::Failed;
        }
        match tag.is_in(headers, IF_NONE_MATCH, true) {
            Some(true) => Self::NotModified,
            Some(false) => Self::Proceed,
            None => match (headers.get(IF_MODIFIED_SINCE), date) {
                (Some(since), Some(date)) if date.is_in(since) => Self::NotModified,
                _ => Self::Proceed,
            },
        }
    }
}

pub(crate) fn range_applies(
    headers: &HeaderMap,
    tag: &EntityTag,
    date: Option<ContentDate>,
) -> bool {
    headers.get(IF_RANGE).is_none_or(|value| {
        value.as_bytes().trim_ascii() == tag.0.as_bytes()
            || date.is_some_and(|date| date.is_in(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn tags_differ_by_content_and_context() {
        let tag = EntityTag::of("a", &[b"x", b"y"]);
        assert_eq!(tag, EntityTag::of("a", &[b"x", b"y"]));
        assert_ne!(tag, EntityTag::of("a", &[b"xy", b""]));
        assert_ne!(tag, EntityTag::of("b", &[b"x", b"y"]));
    }

    #[test]
    fn conditions_compare_tags() {
        let tag = EntityTag::of("a", &[b"x"]);
        let (known, weak) = (tag.as_str().to_owned(), format!("W/{}", tag.as_str()));
        for (name, value, found) in [
            (IF_NONE_MATCH, &known[..], Precondition::NotModified),
            (IF_NONE_MATCH, &format!("\"o\", {weak}"), Precondition::NotModified),
            (IF_NONE_MATCH, "*", Precondition::NotModified),
            (IF_NONE_MATCH, "\"o\"", Precondition::Proceed),
            (IF_MATCH, "\"o\"", Precondition::Failed),
            // RFC 9110 §13.1.1: If-Match compares strongly.
            (IF_MATCH, &weak, Precondition::Failed),
            (IF_MATCH, "*", Precondition::Proceed),
        ] {
            assert_eq!(Precondition::evaluate(&headers(name, value), &tag, None), found, "{value}");
        }
        assert_eq!(Precondition::evaluate(&HeaderMap::new(), &tag, None), Precondition::Proceed);
    }

    #[test]
    fn date_changes_with_the_content_and_is_compared_for_equality() {
        let (time, now) = (
            Timestamp { s: 1_700_000_000, ns: 0 },
            UNIX_EPOCH + Duration::from_secs(1_800_000_000),
        );
        let tag = EntityTag::of("a", &[b"x"]);
        let date = ContentDate::of(time, &tag, now);
        let text = date.unwrap().header().to_str().unwrap().to_owned();
        assert_ne!(date, ContentDate::of(time, &EntityTag::of("a", &[b"y"]), now));
        assert_eq!(
            ContentDate::of(time, &tag, UNIX_EPOCH + Duration::from_secs(1_600_000_000)),
            None,
            "in the future"
        );
        let since = headers(IF_MODIFIED_SINCE, &text);
        assert_eq!(Precondition::evaluate(&since, &tag, date), Precondition::NotModified);
        assert!(range_applies(&headers(IF_RANGE, &text), &tag, date));
        // Later than the file's time, as a clock that is wrong or another content gives it.
        let later = "Tue, 01 Dec 2026 00:00:00 GMT";
        assert_eq!(
            Precondition::evaluate(&headers(IF_MODIFIED_SINCE, later), &tag, date),
            Precondition::Proceed
        );
        assert!(!range_applies(&headers(IF_RANGE, later), &tag, date));
        // RFC 9110 §13.1.3: a tag decides alone.
        let both = HeaderMap::from_iter([
            (IF_NONE_MATCH, HeaderValue::from_static("\"o\"")),
            (IF_MODIFIED_SINCE, since[IF_MODIFIED_SINCE].clone()),
        ]);
        assert_eq!(Precondition::evaluate(&both, &tag, date), Precondition::Proceed);
    }

    #[test]
    fn range_applies_to_the_same_content_only() {
        let tag = EntityTag::of("a", &[b"x"]);
        assert!(range_applies(&HeaderMap::new(), &tag, None));
        assert!(range_applies(&headers(IF_RANGE, tag.as_str()), &tag, None));
        for other in ["\"o\"", "Sat, 29 Oct 1994 19:43:31 GMT", &format!("W/{}", tag.as_str())] {
            assert!(!range_applies(&headers(IF_RANGE, other), &tag, None), "{other}");
        }
    }
}
