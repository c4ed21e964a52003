//! One operation at a time for each name.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

#[derive(Default)]
pub(crate) struct Locks(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl Locks {
    pub(crate) async fn lock(&self, name: &str) -> OwnedMutexGuard<()> {
        self.of(name).lock_owned().await
    }

    /// For threads that may wait.
    pub(crate) fn lock_blocking(&self, name: &str) -> OwnedMutexGuard<()> {
        self.of(name).blocking_lock_owned()
    }

    /// In one order for all callers, so that none waits for another in a circle.
    pub(crate) async fn lock_all(&self, mut names: Vec<String>) -> Vec<OwnedMutexGuard<()>> {
        names.sort();
        names.dedup();
        let mut guards = Vec::new();
        for name in names {
            guards.push(self.lock(&name).await);
        }
        guards
    }

    fn of(&self, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.0.lock();
        // Only the table has those that nobody holds or waits for.
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        locks.entry(name.to_owned()).or_default().clone()
    }

    #[cfg(test)]
    pub(crate) fn is_free(&self, name: &str) -> bool {
        self.0.lock().get(name).is_none_or(|lock| lock.try_lock().is_ok())
    }
}
