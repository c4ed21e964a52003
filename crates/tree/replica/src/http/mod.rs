//! Database files as on a static web server (RFC 9110, 9112). Only GET and HEAD.

mod files;
pub(crate) mod head;
mod respond;

pub(super) use head::HeadReader;
