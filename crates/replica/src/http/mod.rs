//! HTTP/1.1 on the port of the replica: database files as on a static web server (RFC 9110, 9112).
//! Only GET and HEAD; requests have no body.

mod files;
mod head;
mod respond;

pub(super) use head::HeadReader;
