//! Changes of directories by other processes, seen by fanotify(7). The kernel says which process has
//! made a change, so this process's own changes are left out. One group of marks and one thread
//! serve all file systems of the process.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs;
use vouch_vfs::{ChangeListener, Error, Result};

use crate::errno::OrError;
use crate::ffi::{self, KernelHandle};
use crate::identity;
use crate::mount::Mount;
use crate::node::Node;

/// Many watches may show the same directory: clients' delegations, exports of one file system.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Directory {
    fsid: u64,
    kind: i32,
    handle: Box<[u8]>,
}

struct Marked {
    /// To remove the mark: the inode may have left the cache of nodes.
    mount: Arc<Mount>,
    listeners: HashMap<u64, ChangeListener>,
}

#[derive(Default)]
struct Marks {
    directories: HashMap<Directory, Marked>,
    next_listener: u64,
    /// Have lost their last listener, perhaps for a short time only.
    idle: Vec<Directory>,
}

struct Watcher {
    group: OwnedFd,
    marks: Mutex<Marks>,
}

struct Watch {
    watcher: &'static Watcher,
    directory: Directory,
    listener: u64,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut marks = self.watcher.marks.lock();
        let Some(marked) = marks.directories.get_mut(&self.directory) else { return };
        marked.listeners.remove(&self.listener);
        if marked.listeners.is_empty() {
            let idle = self.directory.clone();
            marks.idle.push(idle);
        }
    }
}

/// `NotSupported` where changes by others may be unseen: on other machines, or below an overlay.
pub(crate) fn watch(
    node: &Node,
    changed: ChangeListener,
) -> Result<Box<dyn std::any::Any + Send + Sync>> {
    if node.mount.is_remote || node.mount.stacked || !node.mount.handles {
        return Err(Error::NotSupported);
    }
    let watcher = Watcher::of_process().ok_or(Error::NotSupported)?;
    let (handle, _) = ffi::name_to_handle(node.as_fd(), c"").or_error()?;
    let fsid = fs::fstatvfs(node).or_error()?.f_fsid;
    let directory = Directory { fsid, kind: handle.kind, handle: handle.bytes().into() };
    let listener = {
        let mut marks = watcher.marks.lock();
        marks.next_listener += 1;
        let listener = marks.next_listener;
        let new = || Marked { mount: node.mount.clone(), listeners: HashMap::new() };
        let marked = marks.directories.entry(directory.clone()).or_insert_with(new);
        marked.listeners.insert(listener, changed);
        listener
    };
    // Dropped after a failure. Under no lock: the kernel may read a disk.
    let watch = Watch { watcher, directory, listener };
    let _as_root = identity::assume_root()?;
    ffi::mark_directory(watcher.group.as_fd(), node.as_fd(), true)
        .map_err(|_| Error::NotSupported)?;
    Ok(Box::new(watch))
}

impl Watcher {
    /// `None` if the kernel or a container forbids it.
    fn of_process() -> Option<&'static Watcher> {
        static WATCHER: OnceLock<Option<Watcher>> = OnceLock::new();
        static STARTED: OnceLock<bool> = OnceLock::new();
        let new = || Some(Watcher { group: ffi::new_mark_group().ok()?, marks: Mutex::default() });
        let watcher = WATCHER.get_or_init(new).as_ref()?;
        let start = || {
            let thread = std::thread::Builder::new().name("directory-watch".into());
            thread.spawn(move || watcher.run()).is_ok()
        };
        STARTED.get_or_init(start).then_some(watcher)
    }

    fn run(&self) {
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let mut buffer = vec![0; EVENTS_LEN];
        let mut unmarked = Instant::now();
        loop {
            let mut ready = [PollFd::new(&self.group, PollFlags::IN)];
            let timeout = Timespec { tv_sec: UNMARK_INTERVAL.as_secs().cast_signed(), tv_nsec: 0 };
            let _ = poll(&mut ready, Some(&timeout));
            if let Ok(len) = rustix::io::read(&self.group, &mut buffer) {
                self.report(&buffer[..len], own);
            }
            if unmarked.elapsed() >= UNMARK_INTERVAL {
                self.unmark_idle();
                unmarked = Instant::now();
            }
        }
    }

    fn report(&self, events: &[u8], own: i32) {
        let marks = self.marks.lock();
        let call = |marked: &Marked| marked.listeners.values().for_each(|changed| changed());
        for event in Events(events) {
            match event {
                Event::Overflow => marks.directories.values().for_each(call),
                Event::Changed { by, .. } if by == own => {}
                Event::Changed { directory, .. } => {
                    marks.directories.get(&directory).into_iter().for_each(call);
                }
            }
        }
    }

    /// A mark costs little while its directory is idle, and its client may soon ask again.
    fn unmark_idle(&self) {
        let idle = std::mem::take(&mut self.marks.lock().idle);
        for directory in idle {
            // Under the lock, so that no watch of the same directory begins meanwhile.
            let mut marks = self.marks.lock();
            let is_idle = |marked: &Marked| marked.listeners.is_empty();
            if !marks.directories.get(&directory).is_some_and(is_idle) {
                continue;
            }
            let Some(marked) = marks.directories.remove(&directory) else { continue };
            // A removed directory has lost its mark.
            if let Some(handle) = KernelHandle::new(directory.kind, &directory.handle)
                && let Ok(_as_root) = identity::assume_root()
                && let Ok(fd) = ffi::open_by_handle(marked.mount.fd.as_fd(), &handle)
            {
                let _ = ffi::mark_directory(self.group.as_fd(), fd.as_fd(), false);
            }
        }
    }
}

enum Event {
    Overflow,
    Changed { directory: Directory, by: i32 },
}

/// `struct fanotify_event_metadata`, each with a `struct fanotify_event_info_fid`.
struct Events<'b>(&'b [u8]);

impl Iterator for Events<'_> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        loop {
            let len = word(self.0, 0)? as usize;
            let event = self.0.get(..len).filter(|_| len >= METADATA_LEN)?;
            self.0 = &self.0[len..];
            let mask = u64::from_ne_bytes(event.get(8..16)?.try_into().ok()?);
            if mask & libc::FAN_Q_OVERFLOW != 0 {
                return Some(Event::Overflow);
            }
            let by = word(event, 20)?.cast_signed();
            if let Some(directory) = directory_of(&event[METADATA_LEN..]) {
                return Some(Event::Changed { directory, by });
            }
        }
    }
}

/// Header of 4 bytes, `fsid` of two words, length and type of the handle, and the handle.
fn directory_of(info: &[u8]) -> Option<Directory> {
    let fsid = u64::from(word(info, 4)?) | u64::from(word(info, 8)?) << 32;
    let (len, kind) = (word(info, 12)? as usize, word(info, 16)?.cast_signed());
    Some(Directory { fsid, kind, handle: info.get(20..20 + len)?.into() })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

const METADATA_LEN: usize = 24;
const EVENTS_LEN: usize = 64 * 1024;
const UNMARK_INTERVAL: Duration = Duration::from_secs(1);
