//! Stateids, and the state that they name.

pub(in crate::state) mod entry;
pub(in crate::state) mod lookup;
