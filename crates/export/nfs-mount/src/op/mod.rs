//! One function for each request of the kernel.

pub(crate) mod attributes;
pub(crate) mod data;
pub(crate) mod listing;
pub(crate) mod lock;
pub(crate) mod names;
pub(crate) mod open;
pub(crate) mod ranges;
pub(crate) mod xattr;
