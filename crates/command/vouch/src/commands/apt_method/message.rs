//! Messages: a line with code and text, lines `Name: value`, an empty line.

use std::fmt;
use std::io::{self, BufRead, Read as _};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    head: String,
    fields: Vec<(String, String)>,
}

impl Message {
    pub(super) fn new(head: &str) -> Self {
        Self { head: head.to_owned(), fields: Vec::new() }
    }

    /// Line breaks in values become spaces.
    pub(super) fn fields(mut self, fields: &[(&str, &str)]) -> Self {
        let line = |text: &str| text.replace(['\n', '\r'], " ");
        self.fields.extend(fields.iter().map(|(name, value)| ((*name).to_owned(), line(value))));
        self
    }

    /// 0 if there is none.
    pub(super) fn code(&self) -> u16 {
        self.head.split(' ').next().and_then(|code| code.parse().ok()).unwrap_or(0)
    }

    /// The first one of this name.
    pub(super) fn field<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        self.all(name).next()
    }

    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let is_named = move |field: &&(String, String)| field.0.eq_ignore_ascii_case(name);
        self.fields.iter().filter(is_named).map(|field| field.1.as_str())
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.head)?;
        self.fields.iter().try_for_each(|(name, value)| writeln!(f, "{name}: {value}"))?;
        writeln!(f)
    }
}

pub(super) struct Reader<R>(R);

impl<R: BufRead> Reader<R> {
    pub(super) const fn new(input: R) -> Self {
        Self(input)
    }

    /// `None` at the end of the input.
    pub(super) fn next(&mut self) -> io::Result<Option<Message>> {
        let mut message: Option<Message> = None;
        let mut bounded = self.0.by_ref().take(MESSAGE_LEN_MAX);
        loop {
            let mut line = Vec::new();
            if bounded.read_until(b'\n', &mut line)? == 0 {
                return match message {
                    Some(_) => Err(io::ErrorKind::UnexpectedEof.into()),
                    None => Ok(None),
                };
            }
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end();
            match (&mut message, line.split_once(": ")) {
                (None, _) if line.is_empty() => {}
                (Some(_), _) if line.is_empty() => return Ok(message),
                (None, _) => message = Some(Message::new(line)),
                (Some(message), Some(field)) => {
                    message.fields.push((field.0.to_owned(), field.1.to_owned()));
                }
                // An empty value.
                (Some(_), None) => {}
            }
        }
    }
}

/// The configuration of apt has some 30 kB.
const MESSAGE_LEN_MAX: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_written() {
        let first =
            Message::new("600 URI Acquire").fields(&[("URI", "vouch://a/b"), ("A", "b: c")]);
        let second = Message::new("400 URI Failure").fields(&[("Message", "two\nlines")]);
        let text = format!("\n{first}\n{second}");
        let mut reader = Reader::new(text.as_bytes());
        let read = reader.next().expect("complete").expect("the first");
        assert_eq!(
            (read.code(), read.field("uri"), read.field("A")),
            (600, Some("vouch://a/b"), Some("b: c"))
        );
        let read = reader.next().expect("complete").expect("the second");
        assert_eq!(read.field("Message"), Some("two lines"));
        assert_eq!(reader.next().expect("the end"), None);
        assert!(Reader::new(&b"600 URI Acquire\nURI: v"[..]).next().is_err());
    }
}
