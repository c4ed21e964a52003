pub(crate) mod blocked_call;
mod callbacks;
mod effects;
mod group_commit;
mod remote_pools;
mod run_blocked;
pub(crate) mod state;
mod tls;

pub(crate) use blocked_call::RunningCall;
pub(crate) use state::{Driver, DriverParts};
