//! A COMPOUND from its first byte to its reply (RFC 8881 §16.2; RFC 7530 §16.2).

pub(crate) mod context;
pub(crate) mod dispatch;
pub(crate) mod fingerprint;
pub(crate) mod full_disk;
pub(crate) mod lookahead;
pub(crate) mod owner_sequence;
mod panic_guard;
mod precheck;
pub(crate) mod progress;
pub(crate) mod reply_cache;
pub(crate) mod reply_space;
pub(crate) mod run;
pub(crate) mod sequence;
