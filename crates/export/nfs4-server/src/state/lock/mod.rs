pub(in crate::state) mod calls;
pub(in crate::state) mod file_locks;
pub(in crate::state) mod interval_tree;
pub(in crate::state) mod range;
pub(in crate::state) mod request;
pub(in crate::state) mod wait_queue;
pub(in crate::state) mod waiter;
