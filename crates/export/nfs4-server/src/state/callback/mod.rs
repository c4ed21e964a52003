pub(in crate::state) mod channel;
pub(in crate::state) mod record;
