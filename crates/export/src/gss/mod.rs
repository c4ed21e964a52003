//! RPCSEC_GSS (RFC 2203) in the server: contexts, verification of calls, sealing of replies.

mod callback;
mod contexts;
mod random;
mod seal;
#[cfg(test)]
pub(crate) mod tests;
mod verify;

pub(crate) use callback::Answered;
pub(crate) use contexts::{Gss, Recent};
pub(crate) use seal::seal_all;
#[cfg(test)]
pub(crate) use verify::look;
pub(crate) use verify::{Looked, Protected, check, find, is_laborious, look_alone};
