pub(in crate::state) mod admission;
pub(in crate::state) mod grace;
pub(in crate::state) mod record;
