pub(in crate::state) mod calls;
pub(in crate::state) mod file_opens;
pub(in crate::state) mod request;
pub(in crate::state) mod share;
