//! RFC 9110 §8.8.3 and 13.
//!
//! Dates are no conditions: a publisher may change a file and keep its time. `Last-Modified` is for
//! information.

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH, IF_RANGE};

/// Strong; a hash of the content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EntityTag(String);

impl EntityTag {
    /// `context` separates kinds of content.
    pub(crate) fn of(context: &'static str, parts: &[&[u8]]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(context);
        for part in parts {
            hasher.update(&(part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        Self(format!("\"{}\"", data_encoding::BASE64URL_NOPAD.encode(&hasher.finalize().as_bytes()[..18])))
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
    pub(crate) fn evaluate(headers: &HeaderMap, tag: &EntityTag) -> Self {
        if tag.is_in(headers, IF_MATCH, false) == Some(false) {
            return Self::Failed;
        }
        match tag.is_in(headers, IF_NONE_MATCH, true) {
            Some(true) => Self::NotModified,
            _ => Self::Proceed,
        }
    }
}

pub(crate) fn range_applies(headers: &HeaderMap, tag: &EntityTag) -> bool {
    headers.get(IF_RANGE).is_none_or(|value| value.as_bytes().trim_ascii() == tag.0.as_bytes())
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
            assert_eq!(Precondition::evaluate(&headers(name, value), &tag), found, "{value}");
        }
        assert_eq!(Precondition::evaluate(&HeaderMap::new(), &tag), Precondition::Proceed);
    }

    #[test]
    fn range_applies_to_the_same_content_only() {
        let tag = EntityTag::of("a", &[b"x"]);
        assert!(range_applies(&HeaderMap::new(), &tag));
        assert!(range_applies(&headers(IF_RANGE, tag.as_str()), &tag));
        for other in ["\"o\"", "Sat, 29 Oct 1994 19:43:31 GMT", &format!("W/{}", tag.as_str())] {
            assert!(!range_applies(&headers(IF_RANGE, other), &tag), "{other}");
        }
    }
}
