pub(in crate::state) mod expiry;
pub(in crate::state) mod timers;
