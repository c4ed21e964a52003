//! Threads for each remote file system, so that one that stalls delays no other. Listings of
//! snapshots have a few of their own, and one source has one of these.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use vouch_vfs::SystemId;

use crate::limits::WAITING_MAX;
use crate::thread_pool::Pool;

pub(crate) struct RemotePools {
    threads_max: usize,
    /// One for each exported file system; a pool without work has no threads.
    pools: Mutex<HashMap<SystemId, RemotePool>>,
}

struct RemotePool {
    pool: Arc<Pool>,
    /// Tasks that had ended at `since_ms`, when the last of them was seen to end.
    ended: u64,
    since_ms: u64,
    is_stalled: bool,
}

impl RemotePools {
    pub(super) fn new(threads_max: usize) -> Self {
        RemotePools { threads_max, pools: Mutex::default() }
    }

    pub(super) fn of(&self, system: SystemId) -> Arc<Pool> {
        // The quotas for waiting calls limit the queues, so nobody needs to hear of room in them.
        let threads_max = match system.is_of_covered_directory() {
            true => LISTING_THREADS_MAX.min(self.threads_max),
            false => self.threads_max,
        };
        let make = || RemotePool {
            pool: Arc::new(Pool::new("remote", threads_max, WAITING_MAX, || ())),
            ended: 0,
            since_ms: 0,
            is_stalled: false,
        };
        self.pools.lock().entry(system).or_insert_with(make).pool.clone()
    }

    pub(crate) fn threads(&self) -> usize {
        self.pools.lock().values().map(|remote| remote.pool.load().1).sum()
    }

    pub(crate) fn running(&self) -> usize {
        self.pools.lock().values().map(|remote| remote.pool.running()).sum()
    }

    pub(crate) fn stop(&self) {
        self.pools.lock().values().for_each(|remote| remote.pool.stop());
    }

    /// Logs when no call to a file system has ended for a while, and when one ends again.
    pub(crate) fn check_stalls(&self, now_ms: u64) {
        for (system, remote) in self.pools.lock().iter_mut() {
            let (running, ended) = (remote.pool.running(), remote.pool.ended());
            let of = match system.device() {
                Some((major, minor)) => format!("the file system of device {major}:{minor}"),
                None => "a list of snapshots".to_owned(),
            };
            if running == 0 || ended != remote.ended {
                if remote.is_stalled {
                    tracing::info!("calls to {of} end again");
                }
                (remote.ended, remote.since_ms, remote.is_stalled) = (ended, now_ms, false);
            } else if !remote.is_stalled && now_ms.saturating_sub(remote.since_ms) >= STALL_MS {
                remote.is_stalled = true;
                tracing::warn!(
                    "no call to {of} has ended for {} s, {running} wait",
                    STALL_MS / 1000
                );
            }
        }
    }

    pub(crate) fn stalled(&self) -> usize {
        self.pools.lock().values().filter(|remote| remote.is_stalled).count()
    }
}

const STALL_MS: u64 = 10_000;

/// A second source goes on while the first waits. More would only share the same processors.
const LISTING_THREADS_MAX: usize = 2;

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::thread_pool::TaskOrigin;

    #[test]
    fn source_of_many_listings_has_one_of_their_threads() {
        let pools = RemotePools::new(32);
        let pool = pools.of(SystemId::of_device(8, 1).of_covered_directory());
        let (began, begun) = mpsc::channel();
        let ends = [1, 2].map(|_| mpsc::channel::<()>());
        let [first, second] = ends.map(|(end, ended)| (end, Arc::new(Mutex::new(ended))));
        for source in [1, 1, 1, 2] {
            let ended = if source == 1 { &first.1 } else { &second.1 };
            let (began, ended) = (began.clone(), ended.clone());
            pool.submit(TaskOrigin::call([192, 0, 2, source].into()), move || {
                began.send(source).unwrap();
                let _ = ended.lock().recv();
            });
        }
        let next = || begun.recv_timeout(Duration::from_secs(60)).unwrap();
        let mut running = [next(), next()];
        running.sort_unstable();
        assert_eq!(running, [1, 2], "one of each source");
        first.0.send(()).unwrap();
        assert_eq!((next(), pool.running()), (1, 2));
        drop((first.0, second.0));
    }

    #[test]
    fn file_system_is_stalled_while_its_calls_run_and_none_ends() {
        let pools = RemotePools::new(4);
        let pool = pools.of(SystemId::of_device(0, 57));
        let (began, begun) = mpsc::channel();
        let (end, ends) = mpsc::channel::<()>();
        pool.submit(TaskOrigin::Server, move || {
            began.send(()).unwrap();
            let _ = ends.recv();
        });
        begun.recv_timeout(Duration::from_secs(60)).unwrap();
        for (now_ms, expected) in [(0, 0), (STALL_MS - 1, 0), (STALL_MS, 1), (2 * STALL_MS, 1)] {
            pools.check_stalls(now_ms);
            assert_eq!(pools.stalled(), expected, "after {now_ms} ms");
        }
        drop(end);
        while pool.running() > 0 {
            std::thread::yield_now();
        }
        pools.check_stalls(3 * STALL_MS);
        assert_eq!(pools.stalled(), 0);
    }
}
