//! Tasks that may block. Origins share the threads' time by weight, and one gets at most four times
//! the threads that it leaves free. Check [`Pool::is_crowded`] before starting more work.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::fair_queue::FairQueue;
use crate::limits::{SHARE, WAITING_THREAD_IDLE};
use crate::memory_quota::quota_address;

type Task = Box<dyn FnOnce() + Send>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum TaskOrigin {
    /// Tasks of the server itself are never limited.
    Server,
    Job(IpAddr),
    Address(IpAddr),
}

impl TaskOrigin {
    pub(crate) fn call(address: IpAddr) -> Self {
        TaskOrigin::Address(quota_address(address))
    }

    pub(crate) fn job(address: IpAddr) -> Self {
        TaskOrigin::Job(quota_address(address))
    }
}

pub(crate) struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    name: &'static str,
    threads_max: usize,
    waiting_max: usize,
    state: Mutex<State>,
    crowded: AtomicBool,
    wake_up: Condvar,
    on_room: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct State {
    waiting: FairQueue<TaskOrigin, Task>,
    running_of: HashMap<TaskOrigin, usize>,
    running: usize,
    ended: u64,
    threads: usize,
    idle: usize,
    stopped: bool,
}

impl Pool {
    pub(crate) fn new(
        name: &'static str,
        threads_max: usize,
        waiting_max: usize,
        on_room: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let (state, on_room) = (Mutex::new(State::default()), Box::new(on_room));
        Pool {
            shared: Arc::new(Shared {
                name,
                threads_max: threads_max.max(1),
                waiting_max,
                state,
                crowded: AtomicBool::new(false),
                wake_up: Condvar::new(),
                on_room,
            }),
        }
    }

    pub(crate) fn submit(&self, origin: TaskOrigin, task: impl FnOnce() + Send + 'static) {
        self.submit_weighted(origin, 1, task);
    }

    pub(crate) fn submit_weighted(
        &self,
        origin: TaskOrigin,
        weight: u32,
        task: impl FnOnce() + Send + 'static,
    ) {
        let mut state = self.shared.state.lock();
        if state.stopped {
            return;
        }
        state.waiting.push(origin, weight, Box::new(task));
        if state.waiting.len() >= self.shared.waiting_max {
            self.shared.crowded.store(true, Ordering::Release);
        }
        if !state.may_run(origin, self.shared.threads_max) {
            return;
        }
        if state.idle >= state.waiting.len() {
            drop(state);
            self.shared.wake_up.notify_one();
        } else if state.threads < self.shared.threads_max {
            state.threads += 1;
            drop(state);
            let shared = self.shared.clone();
            if let Err(error) =
                thread::Builder::new().name(self.shared.name.into()).spawn(move || shared.run())
            {
                self.shared.state.lock().threads -= 1;
                tracing::error!(%error, "cannot start a thread for a blocked call");
            }
        } else if state.idle > 0 {
            drop(state);
            self.shared.wake_up.notify_one();
        }
    }

    pub(crate) fn is_crowded(&self, origin: TaskOrigin) -> bool {
        if !self.shared.crowded.load(Ordering::Acquire) {
            return false;
        }
        self.shared.state.lock().waiting.len_of(origin) > self.shared.waiting_max / CROWD_PART
    }

    pub(crate) fn load(&self) -> (usize, usize) {
        let state = self.shared.state.lock();
        (state.waiting.len(), state.threads)
    }

    pub(crate) fn running(&self) -> usize {
        self.shared.state.lock().running
    }

    pub(crate) fn ended(&self) -> u64 {
        self.shared.state.lock().ended
    }

    /// Tasks that run are not interrupted.
    pub(crate) fn stop(&self) {
        let waiting = {
            let mut state = self.shared.state.lock();
            state.stopped = true;
            std::mem::take(&mut state.waiting)
        };
        drop(waiting);
        self.shared.wake_up.notify_all();
    }
}

/// Charged before a task runs, so that an origin does not take all threads at once.
const TASK_COST_MIN: Duration = Duration::from_micros(50);

/// In a crowded pool, an origin with more than this part of the tasks waits.
const CROWD_PART: usize = 16;

impl State {
    fn may_run(&self, origin: TaskOrigin, threads_max: usize) -> bool {
        may_run(&self.running_of, self.running, origin, threads_max)
    }

    fn take(&mut self, threads_max: usize) -> Option<(TaskOrigin, Task)> {
        let (running_of, running) = (&self.running_of, self.running);
        let (origin, task) =
            self.waiting.next(|origin| may_run(running_of, running, origin, threads_max))?;
        self.charge(origin, TASK_COST_MIN);
        *self.running_of.entry(origin).or_default() += 1;
        self.running += 1;
        Some((origin, task))
    }

    fn done(&mut self, origin: TaskOrigin, took: Duration) {
        self.running -= 1;
        self.ended += 1;
        if let Entry::Occupied(mut running) = self.running_of.entry(origin) {
            *running.get_mut() -= 1;
            if *running.get() == 0 {
                running.remove();
            }
        }
        self.charge(origin, took.saturating_sub(TASK_COST_MIN));
    }

    fn charge(&mut self, origin: TaskOrigin, took: Duration) {
        if origin != TaskOrigin::Server {
            self.waiting.charge(origin, took);
        }
    }
}

fn may_run(
    running_of: &HashMap<TaskOrigin, usize>,
    running: usize,
    origin: TaskOrigin,
    threads_max: usize,
) -> bool {
    let own = running_of.get(&origin).copied().unwrap_or(0);
    // Each origin gets one thread even in a small pool.
    origin == TaskOrigin::Server
        || own == 0
        || own < threads_max.saturating_sub(running + 1).saturating_mul(SHARE)
}

impl Shared {
    fn run(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some((origin, task)) = state.take(self.threads_max) {
                let relieved = state.waiting.len() <= self.waiting_max / 2
                    && self.crowded.swap(false, Ordering::AcqRel);
                if state.idle > 0
                    && state.waiting.any(|origin| state.may_run(origin, self.threads_max))
                {
                    self.wake_up.notify_one();
                }
                drop(state);
                if relieved {
                    catch_panic(&*self.on_room);
                }
                let began = Instant::now();
                catch_panic(task);
                let took = began.elapsed();
                state = self.state.lock();
                state.done(origin, took);
                continue;
            }
            if state.stopped {
                break;
            }
            state.idle += 1;
            let timed_out = self.wake_up.wait_for(&mut state, WAITING_THREAD_IDLE).timed_out();
            state.idle -= 1;
            if timed_out && state.waiting.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }
}

fn catch_panic(task: impl FnOnce()) {
    if panic::catch_unwind(AssertUnwindSafe(task)).is_err() {
        tracing::error!("a pool task panicked; this is a bug in vouch");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn jobs_need_few_threads() {
        let pool = Pool::new("test", 3, 10, || ());
        let (done, count) = (Arc::new(AtomicUsize::new(0)), 200);
        let (send, receive) = mpsc::channel();
        for _ in 0..count {
            let (done, send) = (done.clone(), send.clone());
            pool.submit(address(1), move || {
                thread::sleep(Duration::from_micros(100));
                if done.fetch_add(1, Ordering::SeqCst) + 1 == count {
                    send.send(()).unwrap();
                }
            });
        }
        assert!(pool.load().1 <= 3);
        receive.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(!pool.is_crowded(address(1)));
    }

    fn address(last: u8) -> TaskOrigin {
        TaskOrigin::call(IpAddr::from([192, 0, 2, last]))
    }

    #[test]
    fn ipv6_host_is_one_source() {
        for of in [TaskOrigin::call, TaskOrigin::job] {
            let of = |address: &str| of(address.parse().unwrap());
            assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1:2:3"));
            assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
            assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        }
    }

    fn threads_of_endless_tasks(
        threads_max: usize,
        submit: impl Fn(&Pool, u8, Box<dyn FnOnce() + Send>),
    ) -> usize {
        let pool = Pool::new("test", threads_max, 1000, || ());
        let (began, count) = mpsc::channel();
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        for number in 0..100 {
            let (began, gate) = (began.clone(), gate.clone());
            let endless = move || {
                began.send(()).unwrap();
                gate.1.wait_while(&mut gate.0.lock(), |open| !*open);
            };
            submit(&pool, number, Box::new(endless));
        }
        let (send, receive) = mpsc::channel();
        pool.submit(address(200), move || send.send(()).unwrap());
        let served = receive.recv_timeout(Duration::from_secs(60));
        let thread_count = count.try_iter().count();
        *gate.0.lock() = true;
        gate.1.notify_all();
        served.expect("another origin is served despite endless tasks");
        (thread_count..100).for_each(|_| count.recv_timeout(Duration::from_secs(60)).unwrap());
        thread_count
    }

    #[test]
    fn host_with_many_addresses_leaves_threads_for_others() {
        for origin in [TaskOrigin::call, TaskOrigin::job] {
            let from = |number: u8| origin(format!("2001:db8::{number:x}").parse().unwrap());
            assert!(
                threads_of_endless_tasks(32, |pool, number, task| pool.submit(from(number), task))
                    <= 25
            );
        }
    }

    #[test]
    fn endless_jobs_leave_threads_for_others() {
        for (threads_max, most) in [(1, 1), (2, 1), (4, 3), (32, 25)] {
            let pool = Pool::new("test", threads_max, 1000, || ());
            let (began, count) = mpsc::channel();
            let gate = Arc::new((Mutex::new(false), Condvar::new()));
            let endless = |origin| {
                let (began, gate) = (began.clone(), gate.clone());
                pool.submit(origin, move || {
                    began.send(()).unwrap();
                    gate.1.wait_while(&mut gate.0.lock(), |open| !*open);
                });
            };
            (0..100).for_each(|_| endless(address(1)));
            (0..most).for_each(|_| count.recv_timeout(Duration::from_secs(60)).unwrap());
            for last in if threads_max > 1 { 2..51 } else { 2..2 } {
                let (send, receive) = mpsc::channel();
                pool.submit(address(last), move || send.send(()).unwrap());
                receive.recv_timeout(Duration::from_secs(60)).unwrap();
            }
            assert!(
                count.try_recv().is_err(),
                "endless tasks get at most {most} of {threads_max} threads"
            );
            *gate.0.lock() = true;
            gate.1.notify_all();
            (most..100).for_each(|_| count.recv_timeout(Duration::from_secs(60)).unwrap());
        }
    }

    fn service_order(origin: impl Fn(IpAddr) -> TaskOrigin, counts: &[(u8, usize)]) -> Vec<u8> {
        let pool = Pool::new("test", 1, 1000, || ());
        let (go, wait) = mpsc::channel::<()>();
        pool.submit(TaskOrigin::Server, move || wait.recv().unwrap());
        let (send, receive) = mpsc::channel();
        for &(last, count) in counts {
            for _ in 0..count {
                let send = send.clone();
                pool.submit(origin(IpAddr::from([192, 0, 2, last])), move || {
                    send.send(last).unwrap()
                });
            }
        }
        go.send(()).unwrap();
        counts
            .iter()
            .flat_map(|&(_, count)| 0..count)
            .map(|_| receive.recv_timeout(Duration::from_secs(60)).unwrap())
            .collect()
    }

    #[test]
    fn origin_with_many_tasks_goes_behind_others() {
        for origin in [TaskOrigin::call, TaskOrigin::job] {
            let order = service_order(origin, &[(1, 5), (2, 2), (3, 1)]);
            assert_eq!((&order[..3], order.len()), (&[1, 2, 3][..], 8));
        }
    }

    #[test]
    fn panic_keeps_the_thread() {
        let pool = Pool::new("test", 1, 10, || ());
        let (send, receive) = mpsc::channel();
        for _ in 0..3 {
            pool.submit(address(1), || panic!("a panic on purpose"));
            let send = send.clone();
            pool.submit(address(1), move || send.send(()).unwrap());
            receive.recv_timeout(Duration::from_secs(60)).unwrap();
        }
        assert!(pool.load().1 <= 1);
    }

    #[test]
    fn congestion_is_reported_with_its_end() {
        let (relieved, on_room) = mpsc::channel();
        let pool = Pool::new("test", 1, 2, move || relieved.send(()).unwrap());
        let (go, wait) = mpsc::channel::<()>();
        pool.submit(address(2), move || wait.recv().unwrap());
        (0..3).for_each(|_| pool.submit(address(2), || ()));
        assert!(pool.is_crowded(address(2)) && !pool.is_crowded(address(1)));
        go.send(()).unwrap();
        on_room.recv_timeout(Duration::from_secs(20)).unwrap();
    }
}
