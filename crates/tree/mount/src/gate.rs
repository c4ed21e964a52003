//! Stops the threads that read requests, between an answer and the next read. Own requests (statfs)
//! wake waiting threads.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

#[derive(Default)]
pub(crate) struct Gate {
    is_closed: AtomicBool,
    stopped: Mutex<usize>,
    changed: Condvar,
    in_flight: AtomicUsize,
}

impl Gate {
    /// Called after each request. Blocks while the gate is closed.
    pub(crate) fn pass(&self) {
        if !self.is_closed.load(Ordering::Acquire) {
            return;
        }
        let mut stopped = self.stopped.lock();
        *stopped += 1;
        self.changed.notify_all();
        while self.is_closed.load(Ordering::Acquire) {
            self.changed.wait(&mut stopped);
        }
        *stopped -= 1;
    }

    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    pub(crate) fn open(&self) {
        let _stopped = self.stopped.lock();
        self.is_closed.store(false, Ordering::Release);
        self.changed.notify_all();
    }

    /// False after `wait_max`.
    pub(crate) fn wait_until_stopped(&self, threads: usize, wait_max: Duration) -> bool {
        let until = Instant::now() + wait_max;
        let mut stopped = self.stopped.lock();
        while *stopped < threads || self.in_flight.load(Ordering::Acquire) > 0 {
            // The end of a request in flight is not signalled.
            let step = if *stopped < threads { FAR } else { POLL };
            let limit = until.min(Instant::now() + step);
            self.changed.wait_until(&mut stopped, limit);
            if Instant::now() >= until {
                return false;
            }
        }
        true
    }

    pub(crate) fn enter(&self) {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn leave(&self) {
        self.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

const POLL: Duration = Duration::from_millis(1);
const FAR: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn closed_gate_stops_each_thread_once() {
        let gate = Arc::new(Gate::default());
        gate.pass();
        gate.close();
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let gate = gate.clone();
                std::thread::spawn(move || gate.pass())
            })
            .collect();
        assert!(gate.wait_until_stopped(3, Duration::from_secs(5)));
        assert!(!gate.wait_until_stopped(4, Duration::from_millis(5)));
        gate.enter();
        assert!(!gate.wait_until_stopped(3, Duration::from_millis(5)));
        gate.leave();
        assert!(gate.wait_until_stopped(3, Duration::from_secs(5)));
        gate.open();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(!gate.wait_until_stopped(1, Duration::from_millis(5)));
    }
}
