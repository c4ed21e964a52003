//! HTTP/1.1 on the port of the replica: the files of the databases, as a static web server has them
//! (RFC 9110, 9112). Only GET and HEAD; requests have no body.

mod files; // The file that a path names.
mod head; // Request heads: cutting them out of the stream, decoding.
mod respond; // Responses: status, header fields, body.

pub(super) use head::HeadReader;
