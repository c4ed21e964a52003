//! Kerberos message protection: tokens of RFC 4121 with the enctypes of RFC 3962 (AES with
//! HMAC-SHA1) and RFC 8009 (AES with HMAC-SHA2), in place, one message or many at once.
//!
//! CBC and hashes are serial within a message and independent across messages. So [`seal_many`],
//! [`open_many`], [`mic_many`] and [`verify_many`] process messages of different keys and lengths
//! side by side in the lanes of the CPU's vectors; see [`Kernels`].
//!
//! The caller passes random confounders; the crate reads no clock and does no I/O. Only
//! [`ContextKeys::new`] allocates.
//!
//! Run time depends on lengths and enctype, never on keys or data: no table is indexed by secrets,
//! and checksums are compared in constant time. Keys, hash states and schedules are wiped when
//! dropped, and the stack after key derivation.
//!
//! # Example
//!
//! ```
//! use vouch_krb5_seal::{ContextKeys, Enctype, Role};
//!
//! let key = [7; 32]; // the context key, from a Kerberos library
//! let enctype = Enctype::Aes256CtsHmacSha1_96;
//! let client = ContextKeys::new(enctype, &key, Role::Initiator, false)?;
//! let server = ContextKeys::new(enctype, &key, Role::Acceptor, false)?;
//!
//! // Room for header and trailer around the body: the token is made in place.
//! let mut token = vec![0; client.header_len()];
//! token.extend_from_slice(b"attack at dawn");
//! token.resize(token.len() + client.trailer_len(), 0);
//! let confounder = [3; 16]; // fresh random bytes
//! client.seal(1, confounder, &mut token)?;
//!
//! let body = server.open(&mut token)?;
//! assert_eq!(&token[body], b"attack at dawn");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod aes_key;
mod cts;
mod derive;
mod digest;
mod enctype;
mod hashing;
mod kernels;
mod keys;
mod mic;
mod open;
mod seal;
mod short;
mod stack;
mod token;
mod wipe;

#[cfg(test)]
mod tests;

pub use enctype::{Enctype, UnknownEnctype};
pub use kernels::{ChooseError, Kernels};
pub use keys::{ContextKeys, KeyLengthError, Role};
pub use mic::{MicJob, VerifyJob, mic_many, mic_many_with, verify_many};
pub use open::{OpenJob, Opened, open_many, open_many_with};
pub use seal::{SealJob, seal_many, seal_many_with};
pub use token::{CONFOUNDER_LEN, MicToken, TokenError};
pub use wipe::wipe_stack;
