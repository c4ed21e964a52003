pub(crate) mod arguments;
pub(crate) mod interface;
pub(crate) mod name_order;
pub(crate) mod notification;
