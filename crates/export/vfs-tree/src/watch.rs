//! Watches of directories. Only a new revision changes them.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use vouch_vfs::{ChangeListener, DirectoryWatch};

#[derive(Default)]
pub(crate) struct Watches {
    listeners: Mutex<(u64, HashMap<u64, ChangeListener>)>,
}

struct Watch {
    watches: Arc<Watches>,
    number: u64,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.watches.listeners.lock().1.remove(&self.number);
    }
}

impl Watches {
    pub(crate) fn add(self: &Arc<Self>, changed: ChangeListener) -> DirectoryWatch {
        let mut listeners = self.listeners.lock();
        listeners.0 += 1;
        let number = listeners.0;
        listeners.1.insert(number, changed);
        Box::new(Watch { watches: self.clone(), number })
    }

    pub(crate) fn report(&self) {
        self.listeners.lock().1.values().for_each(|changed| changed());
    }
}
