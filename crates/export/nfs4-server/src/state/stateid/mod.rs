pub(in crate::state) mod entry;
pub(in crate::state) mod lookup;
