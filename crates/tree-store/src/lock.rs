//! The lock of a database's one writer. The system lets go of it when the process ends, however it ends.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;

use crate::layout::Layout;
use crate::{Error, Result};

/// Held while it lives.
#[derive(Debug)]
pub(crate) struct WriterLock {
    _file: File,
}

impl WriterLock {
    /// Takes the lock, trying for `wait`.
    pub(crate) fn take(layout: &Layout, wait: Duration) -> Result<Self> {
        let path = layout.lock();
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(Error::io("open the lock file", &path))?;
        let deadline = Instant::now() + wait;
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() >= deadline => {
                    return Err(Error::Busy { path: layout.root().to_owned(), pid: holder(&mut file) });
                }
                Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(RETRY_EVERY),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(Error::io("lock", &path)(errno.into())),
            }
        }
        // Only a courtesy to whoever meets the lock: a full disk must not keep a collection from making room.
        let _ = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Self { _file: file })
    }
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(PID_LEN_MAX).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

const RETRY_EVERY: Duration = Duration::from_millis(20);
const PID_LEN_MAX: u64 = 32;
