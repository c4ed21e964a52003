//! Ends of jobs that the scheduler could not report, because the broker was away.
//!
//! Each is an empty file in a directory where every user may create files. The broker owns the
//! directory, and believes the files of the scheduler's users.

use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::limits::SPOOLED_COUNT_MAX;
use crate::names::JobId;
use crate::{Error, io_at};

/// Between the job's number and a number that makes the name unique.
const SEPARATOR: char = '~';
/// Users may add files, and can neither list nor remove those of others.
const MODE: u32 = 0o1733;

/// Notes that a job has ended. The broker reads it when it runs.
///
/// # Errors
/// If the directory is missing: no broker has run on this host.
pub fn add(directory: &Path, job: &JobId) -> Result<(), Error> {
    let unique = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
    let path = directory.join(format!("{job}{SEPARATOR}{unique}-{}", std::process::id()));
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(io_at(&path))?;
    // A scheduler's host that loses power knows nothing of the end any more.
    file.sync_all().map_err(io_at(&path))
}

pub(crate) fn create(directory: &Path) -> Result<(), Error> {
    match std::fs::create_dir(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(io_at(directory)(error)),
        Err(_) => std::fs::read_dir(directory).map(drop).map_err(io_at(directory)),
        Ok(()) => std::fs::set_permissions(directory, Permissions::from_mode(MODE)).map_err(io_at(directory)),
    }
}

/// Calls `end` for each job. Removes the files for which it returns true, and those of other users.
pub(crate) fn drain(directory: &Path, is_scheduler: impl Fn(u32) -> bool, end: impl Fn(&JobId) -> bool) {
    let files = std::fs::read_dir(directory).into_iter().flatten().flatten().take(SPOOLED_COUNT_MAX);
    for path in files.map(|file| file.path()).collect::<Vec<PathBuf>>() {
        // A second name may be another user's link to a file of the scheduler's.
        let is_believed = std::fs::symlink_metadata(&path)
            .is_ok_and(|metadata| metadata.is_file() && metadata.nlink() == 1 && is_scheduler(metadata.uid()));
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.split_once(SEPARATOR));
        let job = name.and_then(|(job, _)| JobId::parse(job).ok()).filter(|_| is_believed);
        if job.is_none_or(|job| end(&job)) {
            let _ = std::fs::remove_file(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn only_ends_of_the_scheduler_are_believed_and_kept_until_done() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("spool");
        create(&directory).unwrap();
        create(&directory).unwrap();
        assert_eq!(std::fs::metadata(&directory).unwrap().mode() & 0o7777, MODE);
        let job = JobId::parse("12[7].server").unwrap();
        let count = || std::fs::read_dir(&directory).unwrap().count();
        let ended = RefCell::new(Vec::new());
        let end = |is_done: bool| {
            let ended = &ended;
            move |job: &JobId| {
                ended.borrow_mut().push(job.clone());
                is_done
            }
        };
        add(&directory, &job).unwrap();
        drain(&directory, |_| false, end(true));
        assert_eq!((ended.borrow().len(), count()), (0, 0));
        add(&directory, &job).unwrap();
        drain(&directory, |_| true, end(false));
        assert_eq!(count(), 1);
        std::fs::write(directory.join("no job"), "").unwrap();
        std::os::unix::fs::symlink("/", directory.join("2~1")).unwrap();
        std::fs::write(parent.path().join("file"), "").unwrap();
        std::fs::hard_link(parent.path().join("file"), directory.join("3~1")).unwrap();
        drain(&directory, |_| true, end(true));
        assert_eq!((&ended.borrow()[..], count()), (&[job.clone(), job][..], 0));
    }
}
