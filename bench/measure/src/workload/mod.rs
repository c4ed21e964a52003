pub mod audit;
mod concurrency;
mod iops;
mod mpi;
mod seal;
mod transfer;
mod tree;

pub use concurrency::{Concurrency, concurrency};
pub(crate) use concurrency::{Level, added_latency, deltas};
pub use iops::{Iops, iops};
pub use mpi::Mpi;
pub use seal::{Seal, seal};
pub use transfer::{Transfer, transfer};
pub use tree::{breakdown, connections, primitives, replay, tree, verification};
pub(crate) use tree::{source_count, tree_reads};
