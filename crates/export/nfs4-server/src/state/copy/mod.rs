pub(in crate::state) mod progress;
pub(in crate::state) mod record;
