pub(in crate::state) mod create_session;
pub(in crate::state) mod record;
pub(in crate::state) mod sequence;
pub(in crate::state) mod slots;
