pub(crate) mod cache;
pub(crate) mod lookup_queue;
pub(crate) mod refresh;
pub(crate) mod resolver;

pub(crate) use cache::Hosts;
