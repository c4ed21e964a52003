//! A record mark begins with 0 or 128, because RPC requests are shorter than 64 KiB; a method of
//! HTTP begins with a letter.

use std::borrow::Cow;

use vouch_oncrpc::RecordReader;

use super::connection::Fault;
use super::http::HeadReader;
use super::limits::REQUEST_LEN_MAX;

#[derive(Debug)]
pub(super) enum RequestReader {
    Unknown,
    Rpc(RecordReader),
    Http(HeadReader),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Incoming<'a> {
    Rpc(Cow<'a, [u8]>),
    Http(Vec<u8>),
}

impl Incoming<'_> {
    pub(super) fn into_owned(self) -> Incoming<'static> {
        match self {
            Self::Rpc(record) => Incoming::Rpc(Cow::Owned(record.into_owned())),
            Self::Http(head) => Incoming::Http(head),
        }
    }

    #[cfg(test)]
    pub(super) fn held_len(&self) -> usize {
        match self {
            Self::Rpc(record) => record.len(),
            Self::Http(head) => head.capacity(),
        }
    }
}

impl RequestReader {
    /// Takes bytes from `input` until a request is complete or `input` is empty.
    pub(super) fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Incoming<'a>>, Fault> {
        if let (Self::Unknown, Some(first)) = (&self, input.first()) {
            *self = match first {
                0 | 0x80 => Self::Rpc(RecordReader::new(REQUEST_LEN_MAX)),
                b'A'..=b'Z' | b'\r' | b'\n' => Self::Http(HeadReader::default()),
                _ => return Err(Fault::BadRequest),
            };
        }
        match self {
            Self::Unknown => Ok(None),
            Self::Rpc(reader) => Ok(reader.next(input)?.map(Incoming::Rpc)),
            Self::Http(reader) => reader
                .next(input)
                .map(|head| head.map(Incoming::Http))
                .map_err(|_| Fault::BadRequest),
        }
    }

    pub(super) const fn at_boundary(&self) -> bool {
        match self {
            Self::Unknown => true,
            Self::Rpc(reader) => reader.at_boundary(),
            Self::Http(reader) => reader.at_boundary(),
        }
    }

    #[cfg(test)]
    pub(super) fn held_len(&self) -> usize {
        match self {
            Self::Unknown => 0,
            Self::Rpc(reader) => reader.held_len(),
            Self::Http(reader) => reader.held_len(),
        }
    }
}
