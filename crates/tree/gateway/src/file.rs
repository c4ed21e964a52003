//! Whole, one range or several.

use std::collections::VecDeque;
use std::time::SystemTime;

use bytes::Bytes;
use hyper::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY, HeaderValue,
    LAST_MODIFIED, RANGE,
};
use hyper::{Response, StatusCode};
use vouch_tree::Blob;
use vouch_xdr::Xdr as _;

use crate::body::{Body, FileBody, Piece, full};
use crate::conditions::{ContentDate, EntityTag, Precondition, range_applies};
use crate::content_type;
use crate::json::{self, FileAnswer, FileRecord};
use crate::limits::SNIFF_LEN;
use crate::problem::Problem;
use crate::range::RequestedRanges;
use crate::respond::{
    ResolvedTarget, Responder, TreeRequest, precondition_failed, problem_response, status_only,
    with_type,
};
use crate::target::Format;

impl Responder {
    pub(crate) async fn file(
        &self,
        request: &TreeRequest<'_>,
        found: &ResolvedTarget,
        blob: &Blob,
    ) -> Result<Response<Body>, Problem> {
        // A blob is its content or a hash of it.
        let tag = EntityTag::of_file(blob);
        let date = ContentDate::of(found.inode.mtime, &tag, SystemTime::now());
        let kind = self.content_type(found, blob).await?;
        if request.query.format == Some(Format::Json) {
            return Ok(self.file_record(request, found, blob, &tag, kind));
        }
        let mut response = match Precondition::evaluate(request.headers, &tag, date) {
            Precondition::Failed => return Err(precondition_failed()),
            Precondition::NotModified => status_only(StatusCode::NOT_MODIFIED),
            Precondition::Proceed => {
                let ranges = match request.headers.get(RANGE) {
                    Some(value) if range_applies(request.headers, &tag, date) => {
                        RequestedRanges::parse(value.as_bytes(), blob.size)
                    }
                    _ => RequestedRanges::Whole,
                };
                self.content(request, blob, &tag, &kind, ranges).await?
            }
        };
        let headers = response.headers_mut();
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        if let Some(date) = date {
            headers.insert(LAST_MODIFIED, date.header());
        }
        let policy =
            if self.allows_scripts { None } else { Some(HeaderValue::from_static(FILE_POLICY)) };
        self.add_common(&mut response, &found.revision, &request.target.selector, &tag);
        match policy {
            Some(policy) => response.headers_mut().insert(CONTENT_SECURITY_POLICY, policy),
            None => response.headers_mut().remove(CONTENT_SECURITY_POLICY),
        };
        Ok(response)
    }

    async fn content(
        &self,
        request: &TreeRequest<'_>,
        blob: &Blob,
        tag: &EntityTag,
        kind: &str,
        ranges: RequestedRanges,
    ) -> Result<Response<Body>, Problem> {
        let (status, mut kind) = match ranges {
            RequestedRanges::Whole => (StatusCode::OK, kind.to_owned()),
            RequestedRanges::Parts(_) => (StatusCode::PARTIAL_CONTENT, kind.to_owned()),
            RequestedRanges::Unsatisfiable => {
                let problem = Problem::new(
                    StatusCode::RANGE_NOT_SATISFIABLE,
                    format!("the file has {} bytes", blob.size),
                );
                let mut response =
                    problem_response(&problem, request.headers, request.target.depth);
                response
                    .headers_mut()
                    .insert(CONTENT_RANGE, header(&format!("bytes */{}", blob.size)));
                return Ok(response);
            }
        };
        let mut content_range = None;
        let pieces: VecDeque<Piece> = match ranges {
            RequestedRanges::Parts(parts) if parts.len() > 1 => {
                // A file cannot contain its own hash.
                let boundary = format!("vouch-{}", tag.as_str().trim_matches('"'));
                let pieces = multipart(&parts, blob.size, &kind, &boundary);
                kind = format!("multipart/byteranges; boundary={boundary}");
                pieces
            }
            RequestedRanges::Parts(parts) => {
                content_range = parts
                    .first()
                    .map(|range| format!("bytes {}-{}/{}", range.start, range.end - 1, blob.size));
                parts.into_iter().map(Piece::Range).collect()
            }
            _ if blob.size == 0 => VecDeque::new(),
            _ => VecDeque::from([Piece::Range(0..blob.size)]),
        };
        let len: u64 = pieces.iter().map(Piece::len).sum();
        let body = if request.is_head {
            full("")
        } else {
            let begun = FileBody::begin(self.tree.open_file(blob.clone()), pieces).await;
            begun.map_err(|error| Problem::of(&error))?.into_body()
        };
        let mut response = with_type(body, &kind);
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_LENGTH, len.into());
        if let Some(text) = content_range {
            response.headers_mut().insert(CONTENT_RANGE, header(&text));
        }
        Ok(response)
    }

    async fn content_type(&self, found: &ResolvedTarget, blob: &Blob) -> Result<String, Problem> {
        let name = found.path.rsplit(|&b| b == b'/').next().unwrap_or_default();
        if let Some(kind) = content_type::by_name(name) {
            return Ok(kind);
        }
        let start =
            self.tree.read(blob, 0, SNIFF_LEN).await.map_err(|error| Problem::of(&error))?;
        Ok(content_type::by_content(&start).to_owned())
    }

    fn file_record(
        &self,
        request: &TreeRequest<'_>,
        found: &ResolvedTarget,
        blob: &Blob,
        tag: &EntityTag,
        content_type: String,
    ) -> Response<Body> {
        let name = found.path.rsplit(|&b| b == b'/').next().unwrap_or_default();
        let answer = FileAnswer {
            place: self.place(found),
            file: FileRecord::new(name, &found.inode),
            etag: tag.as_str(),
            content_type,
        };
        let text = json::text(&answer) + "\n";
        let own =
            EntityTag::of("vouch gateway 2026 file record", &[text.as_bytes(), &blob.to_xdr()]);
        let mut response = match Precondition::evaluate(request.headers, &own, None) {
            Precondition::NotModified => status_only(StatusCode::NOT_MODIFIED),
            _ => with_type(full(text), "application/json"),
        };
        self.add_common(&mut response, &found.revision, &request.target.selector, &own);
        response
    }
}

fn multipart(
    parts: &[std::ops::Range<u64>],
    size: u64,
    kind: &str,
    boundary: &str,
) -> VecDeque<Piece> {
    let mut pieces = VecDeque::new();
    for (number, range) in parts.iter().enumerate() {
        let before = if number == 0 { "" } else { "\r\n" };
        let last = range.end - 1;
        let text = format!(
            "{before}--{boundary}\r\nContent-Type: {kind}\r\nContent-Range: bytes {}-{last}/{size}\r\n\r\n",
            range.start
        );
        pieces.push_back(Piece::Text(Bytes::from(text)));
        pieces.push_back(Piece::Range(range.clone()));
    }
    pieces.push_back(Piece::Text(Bytes::from(format!("\r\n--{boundary}--\r\n"))));
    pieces
}

fn header(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("digits and ASCII words are a header value")
}

/// Pages of the tree run no scripts, send no forms, and have an origin of their own.
const FILE_POLICY: &str = "sandbox allow-downloads allow-popups; default-src 'self' data: 'unsafe-inline'; script-src 'none'; form-action 'none'";
