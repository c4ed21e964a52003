//! What an observer of the server sees: metrics and the audit trail hang there.

pub(crate) mod arguments;
pub(crate) mod interface;
pub(crate) mod name_order;
pub(crate) mod notification;
