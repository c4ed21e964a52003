pub(crate) mod arguments;
pub(crate) mod event;
pub(crate) mod interface;
pub(crate) mod name_order;
