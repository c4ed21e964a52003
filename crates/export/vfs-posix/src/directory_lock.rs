//! One call at a time that makes, moves or removes a name of a directory: a call first looks at the
//! file by its name, or afterwards at the one that it has made, and must not find another file
//! there. Other processes are not excluded.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use parking_lot::{Condvar, Mutex};
use vouch_vfs::{FileId, Home, SystemId};

/// The same through every export.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Directory {
    system: SystemId,
    id: FileId,
}

/// Directories of one shard share nothing but the table: a file system that stalls delays no other.
struct Shard {
    locked: Mutex<Option<HashSet<Directory>>>,
    unlocked: Condvar,
}

static SHARDS: [Shard; 64] =
    [const { Shard { locked: Mutex::new(None), unlocked: Condvar::new() } }; 64];

impl Directory {
    fn new(id: &FileId, home: Home) -> Self {
        let own = FileId::new(&id.as_bytes()[home.own_from..]).expect("a part is shorter");
        Directory { system: home.system, id: own }
    }

    fn shard(&self) -> &'static Shard {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        &SHARDS[hasher.finish() as usize % SHARDS.len()]
    }
}

pub(crate) struct DirectoryLock(Directory);

/// Waits for other calls.
pub(crate) fn lock(id: &FileId, home: Home) -> DirectoryLock {
    DirectoryLock::wait(Directory::new(id, home))
}

/// Both, in one order for all calls; one lock if they are the same.
pub(crate) fn lock_both(
    from: (&FileId, Home),
    to: (&FileId, Home),
) -> (DirectoryLock, Option<DirectoryLock>) {
    let (from, to) = (Directory::new(from.0, from.1), Directory::new(to.0, to.1));
    let first = DirectoryLock::wait(from.min(to));
    (first, (from != to).then(|| DirectoryLock::wait(from.max(to))))
}

impl DirectoryLock {
    fn wait(directory: Directory) -> Self {
        let shard = directory.shard();
        let mut locked = shard.locked.lock();
        while !locked.get_or_insert_default().insert(directory) {
            shard.unlocked.wait(&mut locked);
        }
        DirectoryLock(directory)
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        let shard = self.0.shard();
        if let Some(locked) = &mut *shard.locked.lock() {
            locked.remove(&self.0);
        }
        shard.unlocked.notify_all();
    }
}
