//! A gateway: one published tree as web pages and files, for browsers, `curl`, `wget` and `apt`.
//!
//! The gateway is a client of the tree and verifies every byte. Its own clients verify nothing:
//! they trust the gateway and their connection to it.
//!
//! | file | subject |
//! |---|---|
//! | `server` | connections and their limits; `stall`, `address_quota`, `tls` |
//! | `respond` | from a request to its response |
//! | `target`, `range`, `conditions` | parts of a request; no I/O |
//! | `file`, `body` | file content, streamed |
//! | `listing`, `html`, `json` | directories for people and programs |
//! | `revisions` | older revisions by number and tag |
//! | `problem` | errors and their status codes |

#![allow(missing_docs, reason = "an internal crate documents what a name does not say")]

mod address_quota;
mod body;
mod conditions;
mod content_type;
mod file;
#[doc(hidden)]
pub mod fuzzing;
mod html;
mod json;
mod limits;
mod listing;
mod problem;
mod range;
mod report;
mod respond;
mod revisions;
mod server;
mod stall;
mod target;
mod tls;

pub use conditions::ContentDate;
pub use limits::Limits;
pub use report::{GatewayStatus, Report};
pub use server::{Gateway, GatewayOptions};
pub use target::{Page, PathTarget, Selector, TargetError};
pub use tls::{TlsError, TlsFiles};
