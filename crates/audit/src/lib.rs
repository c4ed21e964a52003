//! Audit: what was done, by whom, from where, with which result, and evidence that nobody has
//! edited the answer.
//!
//! Sans-IO: [`record`] (one record and its bytes), [`rules`] (which are kept), [`frame`],
//! [`chain`], [`merkle`], [`seal`], [`keys`] and [`proof`] (their evidence), [`text`] and
//! [`json`] (what others read), [`syslog`] (how it is sent), [`host`] (what the kernel's own audit
//! says). Files, threads and the clock are [`trail`]'s alone. The format is drawn in
//! docs/formats/audit.md. Knows nothing of NFS but the numbers of its operations.

pub mod chain;
pub mod frame;
pub mod host;
pub mod json;
pub mod keys;
pub mod merkle;
pub mod operations;
pub mod proof;
pub mod record;
pub mod rules;
pub mod seal;
pub mod syslog;
pub mod text;
pub mod trail;

pub use record::{Class, Flavour, Record};
