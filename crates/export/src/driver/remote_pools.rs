//! Threads for each remote file system, so that one that stalls delays no other.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use vouch_vfs::SystemId;

use crate::limits::WAITING_MAX;
use crate::thread_pool::Pool;

pub(crate) struct RemotePools {
    threads_max: usize,
    /// One for each exported file system; a pool without work has no threads.
    pools: Mutex<HashMap<SystemId, Arc<Pool>>>,
}

impl RemotePools {
    pub(super) fn new(threads_max: usize) -> Self {
        RemotePools { threads_max, pools: Mutex::default() }
    }

    pub(super) fn of(&self, system: SystemId) -> Arc<Pool> {
        // The quotas for waiting calls limit the queues, so nobody needs to hear of room in them.
        let make = || Arc::new(Pool::new("remote", self.threads_max, WAITING_MAX, || ()));
        self.pools.lock().entry(system).or_insert_with(make).clone()
    }

    pub(crate) fn threads(&self) -> usize {
        self.pools.lock().values().map(|pool| pool.load().1).sum()
    }

    pub(crate) fn running(&self) -> usize {
        self.pools.lock().values().map(|pool| pool.running()).sum()
    }

    pub(crate) fn stop(&self) {
        self.pools.lock().values().for_each(|pool| pool.stop());
    }
}
