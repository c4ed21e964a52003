use std::io;

use vouch_tree_store::{BucketError, BucketErrorKind};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) bucket: String,
    pub(crate) prefix: String,
}

impl Address {
    pub(crate) fn parse(text: &str) -> io::Result<Self> {
        let invalid = |why: &str| BucketError {
            kind: BucketErrorKind::Invalid,
            text: format!("{text}: {why}; the address of a database is s3://BUCKET/PREFIX"),
        };
        let (bucket, prefix) = text
            .strip_prefix("s3://")
            .ok_or_else(|| invalid("no address of a bucket"))?
            .split_once('/')
            .unwrap_or_else(|| (&text["s3://".len()..], ""));
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        if !(3..=BUCKET_LEN_MAX).contains(&bucket.len()) || !bucket.bytes().all(is_name) {
            return Err(
                invalid("a bucket's name has 3 to 63 letters, digits, dots and hyphens").into()
            );
        }
        let prefix = prefix.trim_matches('/');
        let is_clean =
            |part: &str| !matches!(part, "" | "." | "..") && !part.chars().any(char::is_control);
        if !prefix.is_empty() && !prefix.split('/').all(is_clean) || prefix.len() > PREFIX_LEN_MAX {
            return Err(invalid(
                "the prefix has an empty part, a part `.` or `..`, or more than 900 bytes",
            )
            .into());
        }
        Ok(Self { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }

    pub(crate) fn key(&self, object: &str) -> String {
        if self.prefix.is_empty() { object.to_owned() } else { format!("{}/{object}", self.prefix) }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "s3://{}", self.bucket)?;
        if self.prefix.is_empty() { Ok(()) } else { write!(f, "/{}", self.prefix) }
    }
}

const BUCKET_LEN_MAX: usize = 63;
const PREFIX_LEN_MAX: usize = 900;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_or_refused() {
        for (text, bucket, prefix) in [
            ("s3://abc", "abc", ""),
            ("s3://abc/", "abc", ""),
            ("s3://a.b-c/x/y", "a.b-c", "x/y"),
            ("s3://abc/x/", "abc", "x"),
        ] {
            assert_eq!(
                Address::parse(text).unwrap(),
                Address { bucket: bucket.into(), prefix: prefix.into() }
            );
        }
        for text in [
            "s3://",
            "s3:///x",
            "s3://ab",
            "s3://a b c/x",
            "s3://abc/x//y",
            "s3://abc/../y",
            "s3://abc/x\ny",
            "http://abc/x",
        ] {
            assert!(Address::parse(text).is_err(), "{text}");
        }
    }
}
