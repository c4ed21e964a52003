//! Ends of jobs that the scheduler could not report, because the broker was away.
//!
//! Each is an empty file in a directory where only the broker, root and the scheduler's group may
//! create files. A file's owner alone proves nothing: whoever may write to the directory may move a
//! file of the scheduler's into it.

use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use crate::limits::SPOOLED_COUNT_MAX;
use crate::names::JobId;
use crate::{Error, io_at};

/// Between the job's number and a number that makes the name unique.
const SEPARATOR: char = '~';
/// The scheduler adds files, and needs no list of them.
const MODE: u32 = 0o730;
const MODE_WITHOUT_GROUP: u32 = 0o700;

/// Notes that a job has ended. The broker reads it when it runs.
///
/// # Errors
/// If the directory is missing: no broker has run on this host.
pub fn add(directory: &Path, job: &JobId) -> Result<(), Error> {
    let unique = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
    let path = directory.join(format!("{job}{SEPARATOR}{unique}-{}", std::process::id()));
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .map_err(io_at(&path))?;
    // A scheduler's host that loses power knows nothing of the end any more.
    file.sync_all().map_err(io_at(&path))
}

/// `group` is the scheduler's. The group and mode of an existing directory stay, unless every user may
/// write there: then its files are removed, because they can be anybody's.
///
/// # Errors
/// If the directory cannot be made, or is another user's.
pub(crate) fn create(directory: &Path, group: Option<u32>) -> Result<(), Error> {
    let at = io_at(directory);
    let is_new = match std::fs::DirBuilder::new().mode(MODE_WITHOUT_GROUP).create(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(at(error)),
        created => created.is_ok(),
    };
    let metadata = std::fs::symlink_metadata(directory).map_err(&at)?;
    let own = rustix::process::geteuid().as_raw();
    if !metadata.is_dir() || ![0, own].contains(&metadata.uid()) {
        let why = format!(
            "it must be a directory of uid {own} or root; remove it, and start the broker again"
        );
        return Err(at(std::io::Error::other(why)));
    }
    let is_open = metadata.mode() & 0o002 != 0;
    if is_new || is_open {
        std::fs::set_permissions(directory, Permissions::from_mode(MODE_WITHOUT_GROUP))
            .map_err(&at)?;
        if group.is_some() && std::os::unix::fs::chown(directory, None, group).is_ok() {
            std::fs::set_permissions(directory, Permissions::from_mode(MODE)).map_err(&at)?;
        } else {
            let path = directory.display();
            tracing::warn!(
                "{path}: only root can note ends of jobs there; run `chgrp GROUP {path} && chmod 730 {path}` with the group of --scheduler (vouch-jobs-broker.service does so at each start: VOUCH_JOBS_SPOOL_GROUP in /etc/vouch/jobs-broker.env)"
            );
        }
    }
    for file in std::fs::read_dir(directory).map_err(&at)?.flatten().take(if is_open {
        usize::MAX
    } else {
        0
    }) {
        tracing::warn!(
            "{}: removed, because every user could write there; run `vouch jobs end --slurm --missed`",
            file.path().display()
        );
        let _ = std::fs::remove_file(file.path());
    }
    Ok(())
}

/// Calls `end` for each job. Removes the files for which it returns true, and those of other users.
pub(crate) fn drain(
    directory: &Path,
    is_scheduler: impl Fn(u32) -> bool,
    end: impl Fn(&JobId) -> bool,
) {
    let files =
        std::fs::read_dir(directory).into_iter().flatten().flatten().take(SPOOLED_COUNT_MAX);
    for path in files.map(|file| file.path()).collect::<Vec<PathBuf>>() {
        // A second name may be another user's link to a file of the scheduler's.
        let is_believed = std::fs::symlink_metadata(&path).is_ok_and(|metadata| {
            metadata.is_file() && metadata.nlink() == 1 && is_scheduler(metadata.uid())
        });
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| name.split_once(SEPARATOR));
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
        let group = Some(nix::unistd::getegid().as_raw());
        create(&directory, group).unwrap();
        create(&directory, group).unwrap();
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

    #[test]
    fn files_of_a_spool_that_was_open_to_all_are_not_believed() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("spool");
        create(&directory, None).unwrap();
        assert_eq!(std::fs::metadata(&directory).unwrap().mode() & 0o7777, MODE_WITHOUT_GROUP);
        std::fs::set_permissions(&directory, Permissions::from_mode(0o1733)).unwrap();
        add(&directory, &JobId::parse("1").unwrap()).unwrap();
        create(&directory, None).unwrap();
        assert_eq!(std::fs::metadata(&directory).unwrap().mode() & 0o7777, MODE_WITHOUT_GROUP);
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
        // A directory of another user's is not used at all.
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(&directory, Some(65534), None).unwrap();
            assert!(create(&directory, None).is_err());
        }
    }
}
