//! One line per operation and tree every few seconds.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use fuser::Errno;
use parking_lot::Mutex;

use crate::error::OpError;

#[derive(Default)]
pub(crate) struct ErrorLog {
    recent: Mutex<HashMap<(&'static str, String), Recent>>,
}

struct Recent {
    at: Instant,
    suppressed: u64,
}

impl ErrorLog {
    pub(crate) fn log_limited(
        &self,
        operation: &'static str,
        tree: &str,
        error: &OpError,
    ) -> Errno {
        if error.is_logged() {
            self.log(operation, tree, error);
        }
        error.errno()
    }

    fn log(&self, operation: &'static str, tree: &str, error: &OpError) {
        let now = Instant::now();
        let mut recent = self.recent.lock();
        if recent.len() > KINDS_MAX {
            recent.retain(|_, r| now.duration_since(r.at) < INTERVAL);
        }
        let mut suppressed = 0;
        if let Some(last) = recent.get_mut(&(operation, tree.to_owned())) {
            if now.duration_since(last.at) < INTERVAL {
                last.suppressed += 1;
                return;
            }
            suppressed = last.suppressed;
        }
        recent.insert((operation, tree.to_owned()), Recent { at: now, suppressed: 0 });
        drop(recent);
        tracing::warn!(operation, tree, suppressed, "{error}");
    }
}

const INTERVAL: Duration = Duration::from_secs(5);

const KINDS_MAX: usize = 4096;
