//! Tamper-evident audit trails: append records, search them, verify them, and prove single records.
//!
//! A trail is a directory of segments. Each segment is a sequence of frames that form a SHA-256
//! hash chain and a Merkle tree. An Ed25519 key signs seals over both and is replaced after each
//! seal, so a stolen key cannot rewrite earlier records. Verification finds records that were
//! altered, removed, inserted, reordered or cut off. docs/formats/audit.md describes the format.
//!
//! # Example
//!
//! This example writes a trail with one record and verifies it:
//!
//! ```
//! use std::sync::Arc;
//!
//! use vouch_audit::Record;
//! use vouch_audit::keys::Ratchet;
//! use vouch_audit::operations::number::OPEN;
//! use vouch_audit::trail::{KEY_FILE, Log, Options, SystemDisk, Trust, create_key, verify};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let temporary = tempfile::tempdir()?;
//! # let directory = temporary.path();
//! // Use a secure random generator for both arguments.
//! let key = Ratchet::new([1; 16], &[2; 32]);
//! let public = key.public();
//! create_key(&SystemDisk, &directory.join(KEY_FILE), &key)?;
//!
//! let time_ns = 1_700_000_000_000_000_000;
//! let (mut log, _) = Log::open(Arc::new(SystemDisk), directory, Options::default(), time_ns)?;
//! let record = Record { time_ns, operation: OPEN, path: b"/srv/plan", ..Record::default() };
//! log.append_record(&record);
//! log.close(time_ns)?;
//!
//! // The auditor keeps the public key outside the machine.
//! let trust = Trust { public: Some(public), ..Trust::default() };
//! let report = verify(directory, &trust, |_, _| {})?;
//! assert!(report.faults.is_empty());
//! assert_eq!(report.records, 1);
//! # Ok(())
//! # }
//! ```
//!
//! # Modules
//!
//! - [`trail`]: trails on disk. [`trail::Trail`] writes from many threads, [`trail::Log`] from one.
//!   [`trail::entries`] and [`trail::search`] read, [`trail::verify`] verifies, and
//!   [`trail::Follower`] follows a growing trail. Only this module does I/O.
//! - [`record`]: the record and its encoding. [`operations`]: names and numbers of operations.
//! - [`rules`]: audit rules in auditctl's syntax, which select the operations to record.
//! - [`frame`], [`chain`], [`seal`], [`keys`], [`proof`]: the parts of the file format.
//! - [`text`], [`json`], [`syslog`]: output formats. [`host`]: input from the kernel's audit log.

pub mod chain;
pub mod frame;
pub mod host;
pub mod json;
pub mod keys;
mod merkle;
pub mod operations;
pub mod proof;
pub mod record;
pub mod rules;
pub mod seal;
pub mod syslog;
pub mod text;
pub mod trail;

pub use record::{Class, Flavour, Record};
