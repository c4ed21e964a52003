//! A first segment that begins with `@` selects a revision and is never a file: `/@12/…`,
//! `/@tag:v1/…`, and `/@/…` for the newest, which also shows files whose names begin with `@`. Does
//! no I/O.

use vouch_tree::FileName;

use crate::limits::TAG_QUERY_LEN_MAX;

/// The revision that an address names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Selector {
    /// `explicit`: written as `/@/`.
    Newest {
        explicit: bool,
    },
    Number(u64),
    Tag(String),
}

/// The path of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Page {
    Path(PathTarget),
    Revisions,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathTarget {
    pub selector: Selector,
    /// Names from the root, without empty ones and `.`.
    pub(crate) names: Vec<Vec<u8>>,
    pub(crate) has_slash: bool,
    /// As a browser counts them for `..`.
    pub(crate) depth: usize,
    /// No empty segments and no `.`.
    pub(crate) is_canonical: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) format: Option<Format>,
    /// A listing starts after this name.
    pub(crate) after: Option<Vec<u8>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Html,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error("the path has a % that is not followed by two hexadecimal digits")]
    Escape,
    #[error("'..' is not allowed in the path")]
    Parent,
    #[error("a name in the path contains '/' or NUL, or is longer than 255 bytes")]
    Name,
    #[error(
        "the first part of the path begins with @ but is neither @N, @tag:NAME nor @revisions; files whose names begin with @ are below /@/"
    )]
    Selector,
    #[error("format is neither json nor html")]
    Format,
}

impl Page {
    pub fn parse(path: &str) -> Result<Self, TargetError> {
        let path = path.strip_prefix('/').unwrap_or(path).as_bytes();
        let mut segments: Vec<&[u8]> = path.split(|&b| b == b'/').collect();
        let last = segments.pop().unwrap_or_default();
        let depth = segments.iter().filter(|segment| **segment != b".").count();
        let is_canonical =
            last != b"." && segments.iter().all(|segment| !segment.is_empty() && *segment != b".");
        segments.push(last);
        let mut selector = Selector::Newest { explicit: false };
        let mut names = Vec::new();
        for (number, segment) in segments.into_iter().enumerate() {
            let name = percent_decode(segment).ok_or(TargetError::Escape)?;
            if number == 0 && name.first() == Some(&b'@') {
                if name == b"@revisions" && path.len() == segment.len() {
                    return Ok(Page::Revisions);
                }
                selector = Selector::parse(&name[1..]).ok_or(TargetError::Selector)?;
                continue;
            }
            if name.is_empty() || name == b"." {
                continue;
            }
            if name == b".." {
                return Err(TargetError::Parent);
            }
            FileName::parse(&name).map_err(|_| TargetError::Name)?;
            names.push(name);
        }
        let has_slash = last.is_empty() || last == b".";
        Ok(Page::Path(PathTarget { selector, names, has_slash, depth, is_canonical }))
    }
}

impl Selector {
    fn parse(text: &[u8]) -> Option<Self> {
        if text.is_empty() {
            return Some(Selector::Newest { explicit: true });
        }
        if let Some(tag) = text.strip_prefix(b"tag:") {
            let tag = std::str::from_utf8(tag)
                .ok()
                .filter(|tag| !tag.is_empty() && tag.len() <= TAG_QUERY_LEN_MAX)?;
            return Some(Selector::Tag(tag.to_owned()));
        }
        let is_number = text.iter().all(u8::is_ascii_digit) && text[0] != b'0';
        let text = std::str::from_utf8(text).ok().filter(|_| is_number)?;
        text.parse().ok().map(Selector::Number)
    }

    pub(crate) const fn is_fixed(&self) -> bool {
        matches!(self, Selector::Number(_))
    }

    pub(crate) fn prefix(&self) -> String {
        match self {
            Selector::Newest { explicit: false } => String::new(),
            Selector::Newest { explicit: true } => "@/".to_owned(),
            Selector::Number(number) => format!("@{number}/"),
            Selector::Tag(tag) => format!("@tag:{}/", encode(tag.as_bytes())),
        }
    }
}

impl PathTarget {
    /// Relative, so that a reverse proxy may add a path of its own.
    pub(crate) fn up(&self) -> String {
        if self.depth == 0 { "./".to_owned() } else { "../".repeat(self.depth) }
    }

    /// URL of the directory with the first `count` names, or of this file's directory URL.
    pub(crate) fn directory(&self, count: usize) -> String {
        self.directory_in(&self.selector, count)
    }

    pub(crate) fn directory_in(&self, selector: &Selector, count: usize) -> String {
        let mut url = self.up() + &self.prefix_for(selector, count);
        for name in &self.names[..count] {
            url.push_str(&encode(name));
            url.push('/');
        }
        url
    }

    fn prefix_for(&self, selector: &Selector, count: usize) -> String {
        match self.names[..count].first() {
            Some(first)
                if first.first() == Some(&b'@')
                    && *selector == (Selector::Newest { explicit: false }) =>
            {
                "@/".to_owned()
            }
            _ => selector.prefix(),
        }
    }

    /// Relative URL of an entry of this directory, whose own URL must end with `/`.
    pub(crate) fn entry(&self, name: &[u8], is_directory: bool) -> String {
        let is_hidden = self.names.is_empty()
            && self.selector == (Selector::Newest { explicit: false })
            && name.first() == Some(&b'@');
        let (above, below) =
            (if is_hidden { "./@/" } else { "./" }, if is_directory { "/" } else { "" });
        format!("{above}{}{below}", encode(name))
    }

    pub fn path(&self) -> Vec<u8> {
        self.names.join(&b'/')
    }
}

impl Query {
    pub(crate) fn parse(query: Option<&str>) -> Result<Self, TargetError> {
        let mut parsed = Self::default();
        for pair in query.unwrap_or_default().split('&') {
            match pair.split_once('=') {
                Some(("format", "json")) => parsed.format = Some(Format::Json),
                Some(("format", "html")) => parsed.format = Some(Format::Html),
                Some(("format", _)) => return Err(TargetError::Format),
                Some(("after", name)) => {
                    let name = percent_decode(name.as_bytes()).ok_or(TargetError::Escape)?;
                    FileName::parse(&name).map_err(|_| TargetError::Name)?;
                    parsed.after = Some(name);
                }
                _ => {}
            }
        }
        Ok(parsed)
    }
}

/// Spares the unreserved bytes (RFC 3986 §2.3).
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(byte.into());
        } else {
            const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
            text.extend([
                '%',
                DIGITS[usize::from(byte >> 4)].into(),
                DIGITS[usize::from(byte & 15)].into(),
            ]);
        }
    }
    text
}

fn percent_decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        if byte == b'%' {
            let (high, low) = (
                char::from(*after.first()?).to_digit(16)?,
                char::from(*after.get(1)?).to_digit(16)?,
            );
            bytes.push((high << 4 | low) as u8);
            rest = &after[2..];
        } else {
            bytes.push(byte);
            rest = after;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(text: &str) -> PathTarget {
        match Page::parse(text).unwrap() {
            Page::Path(target) => target,
            Page::Revisions => panic!("{text} is the list of revisions"),
        }
    }

    #[test]
    fn first_segment_with_at_sign_selects_revision() {
        assert_eq!(path("/@12/a").selector, Selector::Number(12));
        assert_eq!(path("/@tag:v1%2F2/a").selector, Selector::Tag("v1/2".to_owned()));
        assert_eq!(path("/%4012/a").selector, Selector::Number(12));
        assert_eq!(path("/@/@12").names, [b"@12"]);
        assert_eq!(path("/a/@12").names, [&b"a"[..], b"@12"]);
        assert_eq!(Page::parse("/@revisions"), Ok(Page::Revisions));
        for wrong in
            ["/@0/a", "/@012/a", "/@x", "/@tag:/a", "/@99999999999999999999", "/@revisions/a"]
        {
            assert_eq!(Page::parse(wrong), Err(TargetError::Selector), "{wrong}");
        }
    }

    #[test]
    fn parent_segments_and_hidden_slashes_are_refused() {
        for (text, error) in [
            ("/../etc/passwd", TargetError::Parent),
            ("/a/%2e%2E/b", TargetError::Parent),
            ("/a/..", TargetError::Parent),
            ("/@12/../a", TargetError::Parent),
            ("/a%2F..%2Fb", TargetError::Name),
            ("/a%00b", TargetError::Name),
            ("/a%2", TargetError::Escape),
            ("/a%gg", TargetError::Escape),
        ] {
            assert_eq!(Page::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn links_are_relative_and_escaped() {
        let dir = path("/@12/a%20b/c/");
        assert_eq!(dir.directory(1), "../../../@12/a%20b/");
        assert_eq!(dir.entry(b"x:\"<y>", false), "./x%3A%22%3Cy%3E");
        assert_eq!(path("/").entry(b"@12", true), "./@/%4012/");
        assert_eq!(path("/@/").entry(b"@12", true), "./%4012/");
        assert_eq!(path("/a/b").directory(2), "../a/b/");
        assert_eq!(path("/@/@x").directory(1), "../@/%40x/");
    }

    #[test]
    fn dots_and_empty_segments_are_not_canonical() {
        for (text, is_canonical, depth) in [
            ("/a/b/", true, 2),
            ("/", true, 0),
            ("/a//b/", false, 3),
            ("/./a", false, 0),
            ("/a/.", false, 1),
            ("//", false, 1),
        ] {
            let target = path(text);
            assert_eq!((target.is_canonical, target.depth), (is_canonical, depth), "{text}");
        }
    }

    proptest! {
        #[test]
        fn encoded_names_come_back(name in proptest::collection::vec(1u8.., 1..255)) {
            prop_assert_eq!(percent_decode(encode(&name).as_bytes()), Some(name));
        }

        #[test]
        fn parsed_names_are_plain(text in "[/%@.a-f0-9]{0,40}") {
            if let Ok(Page::Path(target)) = Page::parse(&text) {
                for name in target.names {
                    prop_assert!(FileName::parse(&name).is_ok());
                }
            }
        }
    }
}
