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
pub(crate) use verify::verify;
pub(crate) use verify::{
    Protected, ProtectedRecord, find_protected, has_long_call, verify_all, verify_one,
};
