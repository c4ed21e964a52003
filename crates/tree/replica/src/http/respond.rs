use std::fmt::Write as _;
use std::time::SystemTime;

use super::files::{Body, FileLookup, WebFile};
use super::head::{Method, RequestHead, RequestedRange};
use vouch_tree_cache::CachedRange;

use crate::answer::{Fetch, Replica};
use crate::connection::After;
use crate::counters::Request;
use crate::output::{Output, Span};
use crate::trees::ServedFile;

impl Replica {
    pub(crate) fn respond(
        &self,
        head: &[u8],
        fetch: &mut Fetch<'_>,
        output: &mut Output<ServedFile>,
    ) -> After {
        let Some(request) = RequestHead::parse(head) else {
            return self.refuse("400 Bad Request", "not an HTTP/1 request", false, output);
        };
        if request.has_body || request.method == Method::Other {
            // The unread body ends the connection.
            let status = if request.method == Method::Other {
                "405 Method Not Allowed"
            } else {
                "400 Bad Request"
            };
            return self.refuse(status, "only GET and HEAD, without a body", false, output);
        }
        match self.find(request.path) {
            FileLookup::File(file) => self.send(&request, file, fetch, output),
            FileLookup::Missing => {
                self.counters.request(Request::HttpNotFound);
                let text = "no such file; a database is at /HOSTID/, with manifest, index/, packs/ and log/";
                error("404 Not Found", text, &request, output)
            }
            FileLookup::Failed => {
                self.counters.request(Request::HttpFailed);
                error("500 Internal Server Error", "the file can't be read", &request, output)
            }
        }
    }

    fn send(
        &self,
        request: &RequestHead<'_>,
        file: WebFile,
        fetch: &mut Fetch<'_>,
        output: &mut Output<ServedFile>,
    ) -> After {
        let (len, tag) = (file.len(), &file.tag);
        let cached = format!("ETag: {tag}\r\nCache-Control: {}\r\n", file.cache_control());
        if request.has_current(tag) {
            self.counters.request(Request::HttpNotModified);
            output.push_bytes(head("304 Not Modified", &cached, request.is_persistent).as_bytes());
            return After::of(request.is_persistent);
        }
        if let Body::Manifest(bytes) | Body::Checkpoint(bytes) | Body::Log(bytes) = &file.body {
            // Whole, whatever the range (RFC 9110 §14.2): clients read all of it.
            self.counters.request(Request::HttpOk);
            let fields = format!(
                "Content-Type: {}\r\nContent-Length: {len}\r\n{cached}",
                file.content_type()
            );
            output.push_bytes(head("200 OK", &fields, request.is_persistent).as_bytes());
            if request.method == Method::Get {
                output.push_shared(bytes.clone(), 0);
            }
            return After::of(request.is_persistent);
        }
        let (status, range, extra) = match request.range_of(len, tag) {
            RequestedRange::Whole => ("200 OK", 0..len, String::new()),
            RequestedRange::Part(range) => {
                let extra =
                    format!("Content-Range: bytes {}-{}/{len}\r\n", range.start, range.end - 1);
                ("206 Partial Content", range, extra)
            }
            RequestedRange::Unsatisfiable => {
                self.counters.request(Request::HttpRejected);
                let fields = format!("Content-Range: bytes */{len}\r\nContent-Length: 0\r\n");
                output.push_bytes(
                    head("416 Range Not Satisfiable", &fields, request.is_persistent).as_bytes(),
                );
                return After::of(request.is_persistent);
            }
        };
        let body = match &file.body {
            Body::File(file, _) if request.method == Method::Get => Some(file.clone()),
            Body::Cached(tree, path, _) if request.method == Method::Get => {
                match tree.cache.as_ref().map(|cache| cache.cover(path, &range)) {
                    Some(CachedRange::Ready(file)) => Some(ServedFile(file)),
                    Some(CachedRange::Absent(wanted))
                        if fetch.start(tree, vec![wanted.clone()]) =>
                    {
                        return After::Again;
                    }
                    _ => {
                        self.counters.request(Request::HttpFailed);
                        return error(
                            "504 Gateway Timeout",
                            "no replica has sent the data in time",
                            request,
                            output,
                        );
                    }
                }
            }
            _ => None,
        };
        self.counters.request(Request::HttpOk);
        let body_len = range.end - range.start;
        let fields = format!(
            "Content-Type: application/octet-stream\r\nContent-Length: {body_len}\r\nAccept-Ranges: bytes\r\n{extra}{cached}"
        );
        output.push_bytes(head(status, &fields, request.is_persistent).as_bytes());
        if let Some(file) = body {
            output.push_span(Span { file, offset: range.start, len: body_len });
        }
        After::of(request.is_persistent)
    }

    fn refuse(
        &self,
        status: &str,
        text: &str,
        is_persistent: bool,
        output: &mut Output<ServedFile>,
    ) -> After {
        self.counters.request(Request::HttpRejected);
        let fields = format!("Allow: GET, HEAD\r\n{}", text_fields(text));
        output.push_bytes(format!("{}{text}\n", head(status, &fields, is_persistent)).as_bytes());
        After::of(is_persistent)
    }
}

fn error(
    status: &str,
    text: &str,
    request: &RequestHead<'_>,
    output: &mut Output<ServedFile>,
) -> After {
    let mut response = head(status, &text_fields(text), request.is_persistent);
    if request.method == Method::Get {
        let _ = writeln!(response, "{text}");
    }
    output.push_bytes(response.as_bytes());
    After::of(request.is_persistent)
}

fn text_fields(text: &str) -> String {
    format!(
        "Content-Type: text/plain\r\nContent-Length: {}\r\nCache-Control: no-store\r\n",
        text.len() + 1
    )
}

fn head(status: &str, fields: &str, is_persistent: bool) -> String {
    // RFC 9110 §6.6.1: an origin server with a clock sends the date.
    let date = httpdate::fmt_http_date(SystemTime::now());
    let connection = if is_persistent { "" } else { "Connection: close\r\n" };
    format!("HTTP/1.1 {status}\r\nServer: vouch\r\nDate: {date}\r\n{fields}{connection}\r\n")
}
