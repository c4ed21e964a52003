//! Transparency logs as C2SP specifies them, with all that a log, its witnesses and its readers
//! exchange.
//!
//! - A [`note::SignedNote`] is a text with signatures of several [`key`]s; a
//!   [`checkpoint::SignedCheckpoint`] is one about a log's size and root hash.
//! - [`append::Appender`] turns entries into the files of a log; [`reader::LogReader`] reads them
//!   from any [`reader::TileSource`], verified, and makes proofs. [`merkle`] verifies proofs.
//! - A [`policy::Policy`] says whose cosignatures make a checkpoint credible; [`witness`] has the
//!   messages that ask for them; a [`proof::TlogProof`] carries all of it to a reader offline.
//! - [`revision`] says what the log of a published tree holds, and who certifies its keys; [`trail`]
//!   says it of a log of audit trails.
//!
//! This crate does no I/O, reads no clock and draws no randomness. `docs/formats/log.md` lists the
//! versions of the specifications and the choices that they leave open.
//!
//! # Example
//!
//! A log of one entry, cosigned by one witness, proven to a reader:
//!
//! ```
//! use vouch_log::append::Appender;
//! use vouch_log::checkpoint::{Checkpoint, SignedCheckpoint};
//! use vouch_log::key::{Algorithm, Signer};
//! use vouch_log::merkle::Hash;
//! use vouch_log::policy::Policy;
//! use vouch_log::proof::TlogProof;
//!
//! let log = Signer::from_seed("example.com/log", Algorithm::Ed25519, &[1; 32])?;
//! let witness = Signer::from_seed("w.example", Algorithm::CosignatureEd25519, &[2; 32])?;
//! let (log_key, witness_key) = (log.verifier().to_text(), witness.verifier().to_text());
//! let policy = format!("log {log_key}\nwitness w {witness_key}\nquorum w\n");
//! let policy = Policy::parse(policy.as_bytes())?;
//!
//! let mut tree = Appender::new();
//! tree.push(b"entry")?;
//! let head = Checkpoint::new("example.com/log", tree.size(), tree.root());
//! let mut checkpoint = SignedCheckpoint::unsigned(&head)?;
//! let now = 1_800_000_000;
//! checkpoint.note_mut().sign(&log, now)?;
//! let proof = TlogProof { extra: None, index: 0, hashes: vec![], checkpoint: checkpoint.clone() };
//! assert!(proof.verify(Hash::leaf(b"entry"), &policy, &[], now).is_err(), "no witness yet");
//!
//! checkpoint.note_mut().sign(&witness, now)?;
//! let proof = TlogProof { checkpoint, ..proof };
//! let proof = TlogProof::parse(proof.to_text().as_bytes())?;
//! let belief = proof.verify(Hash::leaf(b"entry"), &policy, &[], now + 60)?;
//! assert_eq!(belief.quorum_time, Some(now));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod append;
mod base64;
pub mod checkpoint;
pub mod evidence;
pub mod key;
pub mod merkle;
pub mod note;
pub mod policy;
pub mod proof;
pub mod reader;
pub mod revision;
pub mod tile;
pub mod trail;
pub mod witness;
