//! Threads for what may sleep: bounded in number, started as they are needed, ended when they are not. What waits for a thread waits in order.
//! Whoever hands work in asks [`Pool::is_crowded`] first whether more should be begun.

use std::collections::VecDeque;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use parking_lot::{Condvar, Mutex};

use super::limits::WAITING_THREAD_IDLE;

type Task = Box<dyn FnOnce() + Send>;

/// A set of threads.
pub(super) struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    name: &'static str,
    threads_max: usize,
    waiting_max: usize,
    state: Mutex<State>,
    /// Whether so much waits that those who have something here should begin no more: asked for each call, so not behind the lock.
    crowded: AtomicBool,
    news: Condvar,
    /// Called when there is room again after somebody was told that there was none.
    relief: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct State {
    tasks: VecDeque<Task>,
    threads: usize,
    idle: usize,
    stopped: bool,
}

impl Pool {
    /// A pool without a thread yet.
    pub(super) fn new(name: &'static str, threads_max: usize, waiting_max: usize, relief: impl Fn() + Send + Sync + 'static) -> Self {
        let (state, relief) = (Mutex::new(State::default()), Box::new(relief));
        Pool {
            shared: Arc::new(Shared {
                name,
                threads_max: threads_max.max(1),
                waiting_max,
                state,
                crowded: AtomicBool::new(false),
                news: Condvar::new(),
                relief,
            }),
        }
    }

    /// Has this done by some thread, soon.
    pub(super) fn submit(&self, task: impl FnOnce() + Send + 'static) {
        let mut state = self.shared.state.lock();
        if state.stopped {
            return;
        }
        state.tasks.push_back(Box::new(task));
        if state.tasks.len() >= self.shared.waiting_max {
            self.shared.crowded.store(true, Ordering::Release);
        }
        if state.idle >= state.tasks.len() {
            drop(state);
            self.shared.news.notify_one();
        } else if state.threads < self.shared.threads_max {
            state.threads += 1;
            drop(state);
            let shared = self.shared.clone();
            if let Err(error) = thread::Builder::new().name(self.shared.name.into()).spawn(move || shared.run()) {
                // Those that run take it up; without any it waits for the next try.
                self.shared.state.lock().threads -= 1;
                tracing::error!(%error, "no thread for work that has to wait");
            }
        }
    }

    /// Whether so much waits that those who have something here should begin no more.
    pub(super) fn is_crowded(&self) -> bool {
        self.shared.crowded.load(Ordering::Acquire)
    }

    /// Tasks that wait, and threads.
    pub(super) fn load(&self) -> (usize, usize) {
        let state = self.shared.state.lock();
        (state.tasks.len(), state.threads)
    }

    /// Forgets what waits, and lets threads end.
    pub(super) fn stop(&self) {
        let tasks = {
            let mut state = self.shared.state.lock();
            state.stopped = true;
            std::mem::take(&mut state.tasks)
        };
        drop(tasks);
        self.shared.news.notify_all();
    }
}

impl Shared {
    fn run(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(task) = state.tasks.pop_front() {
                let waiting = state.tasks.len();
                let relieved = waiting <= self.waiting_max / 2 && self.crowded.swap(false, Ordering::AcqRel);
                drop(state);
                if relieved {
                    survive(&*self.relief);
                }
                survive(task);
                state = self.state.lock();
                continue;
            }
            if state.stopped {
                break;
            }
            state.idle += 1;
            let late = self.news.wait_for(&mut state, WAITING_THREAD_IDLE).timed_out();
            state.idle -= 1;
            if late && state.tasks.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }
}

/// A task that panics has told so, and takes no thread with it.
fn survive(task: impl FnOnce()) {
    // What it leaves behind is what any thread that panics would have left.
    if panic::catch_unwind(AssertUnwindSafe(task)).is_err() {
        tracing::error!("work that had to wait ended in a panic; this is an error in this program");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn everything_is_done_by_few_threads() {
        let pool = Pool::new("test", 3, 10, || ());
        let (done, count) = (Arc::new(AtomicUsize::new(0)), 200);
        let (send, receive) = mpsc::channel();
        for _ in 0..count {
            let (done, send) = (done.clone(), send.clone());
            pool.submit(move || {
                thread::sleep(Duration::from_micros(100));
                if done.fetch_add(1, Ordering::SeqCst) + 1 == count {
                    send.send(()).unwrap();
                }
            });
        }
        assert!(pool.load().1 <= 3);
        receive.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(!pool.is_crowded());
    }

    #[test]
    fn a_panic_costs_no_thread() {
        let pool = Pool::new("test", 1, 10, || ());
        let (send, receive) = mpsc::channel();
        for _ in 0..3 {
            pool.submit(|| panic!("as the test wants it"));
            let send = send.clone();
            pool.submit(move || send.send(()).unwrap());
            receive.recv_timeout(Duration::from_secs(60)).unwrap();
        }
        assert!(pool.load().1 <= 1);
    }

    #[test]
    fn crowded_says_so_and_says_when_it_is_over() {
        let (relieved, relief) = mpsc::channel();
        let pool = Pool::new("test", 1, 2, move || relieved.send(()).unwrap());
        let (go, wait) = mpsc::channel::<()>();
        pool.submit(move || wait.recv().unwrap());
        (0..3).for_each(|_| pool.submit(|| ()));
        assert!(pool.is_crowded());
        go.send(()).unwrap();
        relief.recv_timeout(Duration::from_secs(20)).unwrap();
    }
}
