//! The server in process, over the file system in memory: calls as bytes in, replies as bytes out.

mod apart;
mod attributes;
mod data;
mod delegated;
mod durable;
mod ended;
mod flavours;
mod garbage;
mod hostile;
mod hosts;
mod lists;
mod machine;
mod named;
mod namespace;
mod observed;
mod openers;
mod opens;
mod panics;
mod patience;
mod places;
mod refusals;
mod slow;
mod world;
