//! Message protection of Kerberos: the tokens of RFC 4121 with the enctypes of RFC 3962 (AES with
//! HMAC-SHA1) and RFC 8009 (AES with HMAC-SHA2), in place, one message or many at once.
//!
//! CBC and the hashes are serial within a message and independent across messages, so
//! [`seal_many`], [`open_many`], [`mic_many`] and [`verify_many`] run messages of different keys
//! and lengths side by side in the lanes of the CPU's vectors; see [`Kernels`].
//!
//! Owns keys, token layout and kernels (the only home of SIMD). Knows nothing of RPC, contexts,
//! sequence windows or sockets; reads no clock and no randomness: confounders are handed in.
//! Nothing here allocates but [`ContextKeys::new`].
//!
//! Times depend on lengths and on the enctype, never on keys or data: no table is indexed by
//! either, checksums are compared in constant time. Keys, hash states and schedules are wiped when
//! dropped, and the stack after keys were made.

mod cts;
mod derive;
mod digest;
mod enctype;
mod hashing;
pub mod kernels;
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
pub use kernels::Kernels;
pub use keys::{ContextKeys, KeyLengthError, Role};
pub use mic::{MicJob, VerifyJob, mic_many, mic_many_with, verify_many, verify_many_with};
pub use open::{OpenJob, Opened, open_many, open_many_with};
pub use seal::{SealJob, seal_many, seal_many_with};
pub use token::{CONFOUNDER_LEN, MIC_LEN_MAX, MicToken, TOKEN_HEADER_LEN, TokenError};
pub use wipe::wipe_stack;
