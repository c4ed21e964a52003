use std::ops::Range;

use crate::limits::HEAD_LEN_MAX;

#[derive(Debug, Default)]
pub(crate) struct HeadReader {
    head: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeadTooLong;

impl HeadReader {
    /// Takes bytes from `input` until a head is complete or `input` is empty.
    pub(crate) fn next(&mut self, input: &mut &[u8]) -> Result<Option<Vec<u8>>, HeadTooLong> {
        if self.head.is_empty() {
            // RFC 9112 §2.2: ignore empty lines before a request line.
            let blank = input.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
            *input = &input[blank..];
        }
        let before = self.head.len();
        self.head.extend_from_slice(&input[..input.len().min(HEAD_LEN_MAX - before)]);
        let searched = before.saturating_sub(END.len() - 1);
        match memchr::memmem::find(&self.head[searched..], END) {
            Some(at) => {
                self.head.truncate(searched + at + END.len());
                *input = &input[self.head.len() - before..];
                Ok(Some(std::mem::take(&mut self.head)))
            }
            None if self.head.len() == HEAD_LEN_MAX => Err(HeadTooLong),
            None => {
                *input = &[];
                Ok(None)
            }
        }
    }

    pub(crate) const fn at_boundary(&self) -> bool {
        self.head.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn held_len(&self) -> usize {
        self.head.capacity()
    }
}

const END: &[u8] = b"\r\n\r\n";

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RequestHead<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) is_persistent: bool,
    pub(crate) has_body: bool,
    pub(crate) range: Option<&'a str>,
    pub(crate) if_range: Option<&'a str>,
    pub(crate) if_none_match: Vec<&'a str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Head,
    Other,
}

impl<'a> RequestHead<'a> {
    /// `None` if it is not HTTP/1.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut request = httparse::Request::new(&mut fields);
        if !request.parse(bytes).ok()?.is_complete() {
            return None;
        }
        let method = match request.method? {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            _ => Method::Other,
        };
        let path = path_of(request.path?)?;
        // RFC 9112 §9.3: persistent by default since HTTP/1.1.
        let is_persistent = request.version? == 1;
        let mut head = Self {
            method,
            path,
            is_persistent,
            has_body: false,
            range: None,
            if_range: None,
            if_none_match: Vec::new(),
        };
        for field in request.headers {
            // No field that matters has other bytes.
            let Ok(value) = std::str::from_utf8(field.value).map(str::trim) else { continue };
            let is = |name: &str| field.name.eq_ignore_ascii_case(name);
            if is("connection") {
                let has_option = |option: &str| {
                    value.split(',').any(|found| found.trim().eq_ignore_ascii_case(option))
                };
                head.is_persistent =
                    !has_option("close") && (head.is_persistent || has_option("keep-alive"));
            } else if is("transfer-encoding") || is("content-length") && value != "0" {
                head.has_body = true;
            } else if is("range") {
                head.range = Some(value);
            } else if is("if-range") {
                head.if_range = Some(value);
            } else if is("if-none-match") {
                head.if_none_match.push(value);
            }
        }
        Some(head)
    }

    /// `If-None-Match` names the tag. RFC 9110 §13.1.2: weak comparison.
    pub(crate) fn has_current(&self, tag: &str) -> bool {
        let names = |list: &str| {
            list.split(',')
                .map(str::trim)
                .any(|found| found == "*" || found.trim_start_matches("W/") == tag)
        };
        self.if_none_match.iter().any(|list| names(list))
    }

    /// Requested, and applicable to this content.
    pub(crate) fn range_of(&self, len: u64, tag: &str) -> RequestedRange {
        // RFC 9110 §13.1.5: strong comparison; a date never matches here.
        let is_of_this = self.if_range.is_none_or(|found| found == tag);
        match self.range {
            Some(range) if is_of_this && self.method == Method::Get => {
                RequestedRange::parse(range, len)
            }
            _ => RequestedRange::Whole,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RequestedRange {
    Whole,
    Part(Range<u64>),
    Unsatisfiable,
}

impl RequestedRange {
    /// Ignores several ranges and other units, as RFC 9110 §14.2 permits.
    fn parse(value: &str, len: u64) -> Self {
        let parsed = || {
            let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
            let number = |text: &str| {
                text.bytes()
                    .all(|byte| byte.is_ascii_digit())
                    .then(|| text.parse::<u64>().ok())
                    .flatten()
            };
            Some(match (first.trim(), last.trim()) {
                ("", last) => {
                    let n = number(last)?.min(len);
                    (len - n, len, n > 0)
                }
                (first, "") => {
                    let first = number(first)?;
                    (first, len, first < len)
                }
                (first, last) => {
                    let (first, last) = (number(first)?, number(last)?);
                    if last < first {
                        return None;
                    }
                    (first, last.saturating_add(1).min(len), first < len)
                }
            })
        };
        match parsed() {
            Some((start, end, true)) => Self::Part(start..end),
            Some((.., false)) => Self::Unsatisfiable,
            None => Self::Whole,
        }
    }
}

/// Takes origin and absolute form (RFC 9112 §3.2).
fn path_of(target: &str) -> Option<&str> {
    let target = target.split(['?', '#']).next()?;
    let path = match target.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => target,
    };
    path.starts_with('/').then_some(path)
}

const FIELDS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(reader: &mut HeadReader, mut input: &[u8]) -> Result<Vec<Vec<u8>>, HeadTooLong> {
        let mut heads = Vec::new();
        while let Some(head) = reader.next(&mut input)? {
            heads.push(head);
        }
        assert!(input.is_empty());
        Ok(heads)
    }

    #[test]
    fn heads_survive_any_reads() {
        let (one, two) = ("GET /a HTTP/1.1\r\nHost: x\r\n\r\n", "HEAD /b HTTP/1.0\r\n\r\n");
        let stream = format!("\r\n{one}{two}\r\n{one}");
        for read_len in 1..stream.len() {
            let mut reader = HeadReader::default();
            let heads: Vec<_> = stream
                .as_bytes()
                .chunks(read_len)
                .flat_map(|read| cut(&mut reader, read).unwrap())
                .collect();
            assert_eq!(heads, [one.as_bytes(), two.as_bytes(), one.as_bytes()]);
            assert!(reader.at_boundary() && reader.held_len() == 0);
        }
    }

    #[test]
    fn endless_head_is_refused_at_the_limit() {
        let mut reader = HeadReader::default();
        let refused = (0..).find(|_| cut(&mut reader, &[b'a'; 1000]).is_err());
        assert_eq!(refused, Some((HEAD_LEN_MAX / 1000) as u64));
        assert!(reader.held_len() <= 2 * HEAD_LEN_MAX);
    }

    #[test]
    fn ranges_follow_rfc_9110() {
        use RequestedRange::{Part, Unsatisfiable, Whole};
        for (value, found) in [
            ("bytes=0-0", Part(0..1)),
            ("bytes=10-99999", Part(10..100)),
            ("bytes=99-", Part(99..100)),
            ("bytes=-1", Part(99..100)),
            ("bytes=-500", Part(0..100)),
            ("bytes=100-", Unsatisfiable),
            ("bytes=100-200", Unsatisfiable),
            ("bytes=-0", Unsatisfiable),
            ("bytes=5-4", Whole),
            ("bytes=0-1,5-6", Whole),
            ("bytes=+1-2", Whole),
            ("bytes=", Whole),
            ("lines=0-1", Whole),
            ("bytes=0-99999999999999999999", Whole),
        ] {
            assert_eq!(RequestedRange::parse(value, 100), found, "{value}");
        }
        assert_eq!(RequestedRange::parse("bytes=0-", 0), Unsatisfiable);
    }

    #[test]
    fn targets_of_proxies_are_understood() {
        for (target, path) in
            [("/a?at=7", "/a"), ("http://host:80/db/a", "/db/a"), ("http://host", "/")]
        {
            assert_eq!(path_of(target), Some(path));
        }
        assert_eq!(path_of("host:443"), None);
    }

    #[test]
    fn conditions_and_connection_options_are_read() {
        let text = "GET / HTTP/1.1\r\nIf-None-Match: W/\"a\", \"b\"\r\nCONNECTION: x, Close\r\nContent-Length: 3\r\n\r\n";
        let head = RequestHead::parse(text.as_bytes()).unwrap();
        assert!(
            head.has_current("\"a\"") && head.has_current("\"b\"") && !head.has_current("\"c\"")
        );
        assert!(!head.is_persistent && head.has_body);
        assert!(!RequestHead::parse(b"GET / HTTP/1.0\r\n\r\n").unwrap().is_persistent);
        assert!(
            RequestHead::parse(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
                .unwrap()
                .is_persistent
        );
        assert_eq!(RequestHead::parse(b"GET /\r\n\r\n"), None);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_parsed_without_panic(bytes: Vec<u8>, value in "[ -~]{0,40}", len: u64) {
            let _ = RequestHead::parse(&bytes);
            if let RequestedRange::Part(range) = RequestedRange::parse(&value, len) {
                proptest::prop_assert!(range.start < range.end && range.end <= len);
            }
        }
    }
}
