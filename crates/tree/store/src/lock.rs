use std::fs::{File, OpenOptions, Permissions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;

use crate::bucket::BucketLock;
use crate::disk::NO_FOLLOW;
use crate::layout::Layout;
use crate::{Error, Result};

#[derive(Debug)]
pub(crate) struct WriterLock {
    /// Released before the file.
    bucket: Option<BucketLock>,
    _file: File,
}

impl WriterLock {
    pub(crate) fn is_ours(path: &Path) -> bool {
        let is_file = path
            .symlink_metadata()
            .is_ok_and(|found| found.is_file() && found.len() <= PID_LEN_MAX);
        is_file
            && std::fs::read(path)
                .is_ok_and(|text| text.iter().all(|byte| byte.is_ascii_digit() || *byte == b'\n'))
    }

    pub(crate) fn take(layout: &Layout, wait: Duration) -> Result<Self> {
        let path = layout.lock();
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(MODE)
            .custom_flags(NO_FOLLOW)
            .open(&path)
            .map_err(Error::io("open the lock file", &path))?;
        if file.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o777 != MODE) {
            let _ = file.set_permissions(Permissions::from_mode(MODE));
        }
        let deadline = Instant::now() + wait;
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() >= deadline => {
                    return Err(Error::Busy {
                        path: layout.name().to_owned(),
                        pid: holder(&mut file),
                    });
                }
                Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(RETRY_EVERY),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(Error::io("lock", &path)(errno.into())),
            }
        }
        // Informative: a full disk must not prevent a collection.
        let _ = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        let left = deadline.saturating_duration_since(Instant::now());
        let bucket = layout
            .bucket()
            .map(|bucket| bucket.lock(left))
            .transpose()
            .map_err(Error::io("lock", layout.name()))?;
        Ok(Self { bucket, _file: file })
    }

    pub(crate) fn has_leftovers(&self) -> bool {
        self.bucket.as_ref().is_some_and(|bucket| bucket.has_leftovers)
    }
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(PID_LEN_MAX).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Any process that opens the file can hold the lock.
const MODE: u32 = 0o600;

const RETRY_EVERY: Duration = Duration::from_millis(20);
const PID_LEN_MAX: u64 = 32;
