//! A file, standard error, or for background processes the system's log.

use std::fs::File;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Sends later lines to the system's log: standard error belongs to a command that ends.
pub fn leave_standard_error() {
    let connect = || {
        let socket = UnixDatagram::unbound()?;
        socket.connect(SYSTEM_LOG)?;
        socket.set_nonblocking(true)?;
        io::Result::Ok(socket)
    };
    let _ = SYSTEM.set(connect().ok());
}

/// Sends lines to this file. Called once, before the first line.
pub fn write_to_file(path: &Path) -> io::Result<()> {
    // A daemon may leave its directory later.
    let path = std::path::absolute(path)?;
    let file = File::options().create(true).append(true).open(&path)?;
    let _ = FILE.set(LogFile { path, file: Mutex::new(file) });
    Ok(())
}

/// Opens the log file again by its name, after a rotation. On an error, the old file stays.
pub fn reopen() {
    let Some(log) = FILE.get() else { return };
    match open(&log.path) {
        Ok(file) => *log.file.lock().unwrap_or_else(PoisonError::into_inner) = file,
        Err(error) => {
            tracing::error!("{}: the log file cannot be opened again: {error}", log.path.display())
        }
    }
}

/// False after [`write_to_file`] and [`leave_standard_error`].
pub fn is_standard_error() -> bool {
    FILE.get().is_none() && SYSTEM.get().is_none()
}

/// Where [`reopen`] makes files.
pub(crate) fn directory() -> Option<&'static Path> {
    FILE.get()?.path.parent()
}

/// The directory may belong to another user than the daemon: no link is followed, and no pipe waited
/// for. Only the owner can write the file: threads that act as callers have no umask.
fn open(path: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::CREATE
        | OFlags::APPEND
        | OFlags::WRONLY
        | OFlags::NOFOLLOW
        | OFlags::NONBLOCK
        | OFlags::NOCTTY
        | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::from_raw_mode(0o644))?);
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is no regular file"))
    }
}

/// systemd.exec(5), JOURNAL_STREAM.
pub fn is_journal() -> bool {
    let named = std::env::var("JOURNAL_STREAM").ok();
    let numbers = named
        .as_deref()
        .and_then(|text| text.split_once(':'))
        .and_then(|(dev, inode)| Some((dev.parse().ok()?, inode.parse().ok()?)));
    rustix::fs::fstat(io::stderr()).is_ok_and(|stat| numbers == Some((stat.st_dev, stat.st_ino)))
}

/// To the file of [`write_to_file`], else to standard error, or to the system's log after
/// [`leave_standard_error`].
pub struct LogOutput;

impl io::Write for LogOutput {
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        if let Some(log) = FILE.get() {
            log.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(record)?;
            return Ok(record.len());
        }
        match SYSTEM.get() {
            None => io::stderr().write_all(record)?,
            Some(Some(socket)) => {
                // RFC 3164 §4.1.1 and 4.1.3: facility daemon, severity warning; the receiver adds
                // time and host.
                let mut message = format!("<28>vouch[{}]: ", std::process::id()).into_bytes();
                message.extend_from_slice(record.trim_ascii_end());
                let _ = socket.send(&message);
            }
            Some(None) => {}
        }
        Ok(record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct LogFile {
    path: PathBuf,
    file: Mutex<File>,
}

static FILE: OnceLock<LogFile> = OnceLock::new();
static SYSTEM: OnceLock<Option<UnixDatagram>> = OnceLock::new();

const SYSTEM_LOG: &str = "/dev/log";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reopening_follows_no_link_and_waits_for_no_pipe() {
        let directory = tempfile::tempdir().unwrap();
        let (victim, log) = (directory.path().join("victim"), directory.path().join("log"));
        std::fs::write(&victim, "").unwrap();
        std::os::unix::fs::symlink(&victim, &log).unwrap();
        assert!(open(&log).is_err());
        std::fs::remove_file(&log).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &log,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        assert!(open(&log).is_err());
        std::fs::remove_file(&log).unwrap();
        assert!(open(&log).is_ok());
    }
}
