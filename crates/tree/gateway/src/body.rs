//! One leaf or one directory page at a time, as fast as the connection takes it.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use vouch_tree::{Inode, LEAF_LEN_MAX};
use vouch_tree_client::{Error, FileReader, Listing, Position, Tree};

use crate::json::{self, FileRecord};

pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

#[derive(Debug, Clone)]
pub(crate) enum Piece {
    Text(Bytes),
    Range(Range<u64>),
}

impl Piece {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Piece::Text(text) => text.len() as u64,
            Piece::Range(range) => range.end - range.start,
        }
    }
}

pub(crate) struct FileBody {
    reader: FileReader,
    pieces: VecDeque<Piece>,
    /// Read before the head of the response is sent.
    first: Option<Bytes>,
}

impl FileBody {
    /// Reads the first bytes, so that an error has a status code.
    pub(crate) async fn begin(reader: FileReader, pieces: VecDeque<Piece>) -> Result<Self, Error> {
        let mut body = Self { reader, pieces, first: None };
        body.first = body.next().await?;
        Ok(body)
    }

    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        match self.pieces.front_mut() {
            None => Ok(None),
            Some(Piece::Text(text)) => {
                let text = std::mem::take(text);
                self.pieces.pop_front();
                Ok(Some(text))
            }
            Some(Piece::Range(range)) => {
                // Reads end with a leaf: they share the cached leaf.
                let len = (LEAF - range.start % LEAF).min(range.end - range.start);
                let bytes = self.reader.read(range.start, len as usize).await?;
                if bytes.len() as u64 != len {
                    return Err(Error::Damaged {
                        what: format!(
                            "a file ends at {} before its size",
                            range.start + bytes.len() as u64
                        ),
                    });
                }
                range.start += len;
                if range.is_empty() {
                    self.pieces.pop_front();
                }
                Ok(Some(bytes))
            }
        }
    }

    pub(crate) fn into_body(self) -> Body {
        let chunks = stream::unfold(Some(self), |body| async {
            let mut body = body?;
            match body.next().await {
                Ok(bytes) => bytes.map(|bytes| (Ok(Frame::data(bytes)), Some(body))),
                Err(error) => Some((Err(cut(&error)), None)),
            }
        });
        StreamBody::new(chunks).boxed_unsync()
    }
}

pub(crate) struct JsonListing {
    pub(crate) tree: Arc<Tree>,
    pub(crate) directory: Inode,
    pub(crate) head: String,
    pub(crate) first: Listing,
}

impl JsonListing {
    pub(crate) fn into_body(self) -> Body {
        let Self { tree, directory, head, first } = self;
        let state = (tree, directory, Some(first), 0, Some(head));
        let chunks = stream::unfold(Some(state), |state| async {
            let (tree, directory, listing, number, head) = state?;
            let page = match listing {
                Some(page) => page,
                None => match tree.list(&directory, Position::Number(number)).await {
                    Ok(page) => page,
                    Err(error) => return Some((Err(cut(&error)), None)),
                },
            };
            let is_first = head.is_some();
            let mut text = head.unwrap_or_default();
            for (index, entry) in page.entries().iter().enumerate() {
                text.push_str(if is_first && index == 0 { "\n" } else { ",\n" });
                text.push_str(&json::text(&FileRecord::new(entry.name.as_bytes(), &entry.inode)));
            }
            let is_end = page.last || page.entries().is_empty();
            if is_end {
                text.push_str("\n]}\n");
            }
            let next = page.number + page.entries().len() as u64;
            Some((
                Ok(Frame::data(Bytes::from(text))),
                (!is_end).then_some((tree, directory, None, next, None)),
            ))
        });
        StreamBody::new(chunks).boxed_unsync()
    }
}

/// The client sees a short body, never a wrong one.
fn cut(error: &Error) -> io::Error {
    io::Error::other(format!("response cut off: {error}"))
}

const LEAF: u64 = LEAF_LEN_MAX as u64;
