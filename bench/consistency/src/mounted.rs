//! Histories over mounts of one export, by any NFS client: close-to-open, and locks. A thread works on each
//! mount. Names are not checked: clients keep them for a time.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use vouch_bench::Error;

use crate::history::{Call, Fault, History, Operation, Outcome, RESTART};
use crate::model::LOCK_BYTES;
use crate::rng::Rng;

/// Each thread makes `calls` calls. `restart` is run once meanwhile.
pub fn history(
    mounts: &[PathBuf],
    (seed, calls): (u64, u32),
    restart: Option<&str>,
) -> Result<History, Error> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as u64);
    let name = format!("vouch-consistency-{:016x}", Rng(now ^ seed).next());
    let directories: Vec<PathBuf> = mounts.iter().map(|mount| mount.join(&name)).collect();
    let failed = |source| Error::Io { what: mounts[0].display().to_string(), source };
    make(&directories[0], mounts.len()).map_err(failed)?;
    let (mut rng, start) = (Rng(seed), Instant::now());
    let (operations, faults) = std::thread::scope(|scope| {
        let threads: Vec<_> = directories
            .iter()
            .enumerate()
            .map(|(number, directory)| {
                let client = number as u16;
                let rng = Rng(rng.next());
                let mut worker = Worker {
                    directory,
                    client,
                    rng,
                    start,
                    log: Vec::new(),
                    written: 0,
                    has_lock: false,
                };
                let others = mounts.len() as u64;
                scope.spawn(move || worker.work(calls, others).map(|()| worker.log))
            })
            .collect();
        let faults = restart.map(|command| run_restart(command, start));
        let logs = threads.into_iter().zip(mounts).map(|(thread, mount)| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                .map_err(|source| Error::Io { what: mount.display().to_string(), source })
        });
        let logs: Result<Vec<_>, Error> = logs.collect();
        Ok((logs?.concat(), faults.transpose()?))
    })?;
    fs::remove_dir_all(&directories[0]).map_err(failed)?;
    let mut operations: Vec<Operation> = operations;
    (1..).zip(&mut operations).for_each(|(id, operation)| operation.id = id);
    let server = mounts.iter().map(|mount| mount.display().to_string());
    Ok(History {
        seed,
        server: server.collect::<Vec<_>>().join(" "),
        minor: 0,
        sec: String::new(),
        changes_grow: false,
        operations,
        faults: faults.into_iter().collect(),
    })
}

fn make(directory: &Path, writers: usize) -> io::Result<()> {
    fs::create_dir(directory)?;
    for name in (0..writers as u64).map(file_of).chain([SHARED.into(), LOCKS.into()]) {
        File::create(directory.join(name))?;
    }
    Ok(())
}

fn run_restart(command: &str, start: Instant) -> Result<Fault, Error> {
    std::thread::sleep(RESTART_AFTER);
    let begun = start.elapsed().as_nanos() as u64;
    let status = Command::new("sh").args(["-c", command]).status().map_err(Error::io("sh"))?;
    if !status.success() {
        return Err(Error::Program(format!("{command}: {status}")));
    }
    Ok(Fault { kind: RESTART.into(), start: begun, end: start.elapsed().as_nanos() as u64 })
}

struct Worker<'a> {
    directory: &'a Path,
    client: u16,
    rng: Rng,
    start: Instant,
    log: Vec<Operation>,
    /// Values that were written: each is another one.
    written: u64,
    has_lock: bool,
}

impl Worker<'_> {
    fn work(&mut self, calls: u32, writers: u64) -> io::Result<()> {
        let locks = self.open(LOCKS)?;
        let shared = self.open(SHARED)?;
        for _ in 0..calls {
            match self.rng.below(10) {
                0..3 => self.write_and_close()?,
                3..6 => self.open_and_read(writers)?,
                6..8 => self.one_lock(&locks)?,
                _ => self.change_under_lock(&shared)?,
            }
        }
        self.unlock(&locks)
    }

    /// Each file has one writer: what two clients write at once without a lock is not promised.
    fn write_and_close(&mut self) -> io::Result<()> {
        let name = file_of(self.client.into());
        let (begun, value) = (self.now(), self.next_value());
        let file = self.open(&name)?;
        file.write_all_at(&value.to_be_bytes(), 0)?;
        drop(file);
        self.record(&name, begun, Call::Write { cell: 0, value, stable: true }, Outcome::Done);
        Ok(())
    }

    fn open_and_read(&mut self, writers: u64) -> io::Result<()> {
        let name = file_of(self.rng.below(writers));
        let begun = self.now();
        let outcome = read_value(&File::open(self.directory.join(&name))?)?;
        self.record(&name, begun, Call::Read { cell: 0, cached: false }, outcome);
        Ok(())
    }

    /// Of the whole file, by flock(2). Clients of NFS lock all its bytes.
    fn one_lock(&mut self, file: &File) -> io::Result<()> {
        if std::mem::take(&mut self.has_lock) {
            return self.unlock(file);
        }
        let (begun, write, owner) = (self.now(), self.rng.percent(50), self.client);
        let outcome = match if write { file.try_lock() } else { file.try_lock_shared() } {
            Ok(()) => Outcome::Done,
            Err(TryLockError::WouldBlock) => Outcome::Denied,
            Err(TryLockError::Error(error)) => return Err(error),
        };
        self.has_lock = outcome == Outcome::Done;
        let len = LOCK_BYTES as u8;
        let call = Call::Lock { owner, write, first: 0, len, reclaim: false, waits: false };
        self.record(LOCKS, begun, call, outcome);
        Ok(())
    }

    fn unlock(&mut self, file: &File) -> io::Result<()> {
        let begun = self.now();
        file.unlock()?;
        let call = Call::Unlock { owner: self.client, first: 0, len: LOCK_BYTES as u8 };
        self.record(LOCKS, begun, call, Outcome::Done);
        Ok(())
    }

    /// In a file that stays open: a lock shows what others wrote, and its end shows it to others.
    fn change_under_lock(&mut self, file: &File) -> io::Result<()> {
        file.lock()?;
        let begun = self.now();
        let outcome = read_value(file)?;
        self.record(SHARED, begun, Call::Read { cell: 0, cached: false }, outcome);
        let (begun, value) = (self.now(), self.next_value());
        file.write_all_at(&value.to_be_bytes(), 0)?;
        file.unlock()?;
        self.record(SHARED, begun, Call::Write { cell: 0, value, stable: true }, Outcome::Done);
        Ok(())
    }

    fn open(&self, name: &str) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open(self.directory.join(name))
    }

    fn next_value(&mut self) -> u64 {
        self.written += 1;
        (u64::from(self.client) + 1) << 32 | self.written
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn record(&mut self, object: &str, start: u64, call: Call, outcome: Outcome) {
        self.log.push(Operation {
            id: 0,
            client: self.client,
            object: object.to_owned(),
            start,
            end: Some(self.now()),
            call,
            outcome,
            change: None,
            verifier: None,
        });
    }
}

fn read_value(file: &File) -> io::Result<Outcome> {
    let mut bytes = [0; 8];
    match file.read_at(&mut bytes, 0)? {
        0 => Ok(Outcome::Absent),
        8 => Ok(Outcome::Value(u64::from_be_bytes(bytes))),
        len => Err(io::Error::other(format!("{len} bytes of a value of 8"))),
    }
}

fn file_of(writer: u64) -> String {
    format!("of-{writer}")
}

const SHARED: &str = "shared";
const LOCKS: &str = "locks";
const RESTART_AFTER: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Verdict, check};

    #[test]
    fn local_directory_is_consistent_and_a_stale_read_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let mounts = vec![directory.path().to_owned(); 3];
        let mut history = history(&mounts, (7, 200), None).unwrap();
        assert!(matches!(check(&history), Verdict::Right));
        let operations = &mut history.operations;
        let writes = operations.iter().filter(|op| op.object == "of-0" && !op.is_observer());
        let last = writes.max_by_key(|op| op.start).unwrap().clone();
        // One client's cache still has the file before its last writing.
        let id = operations.len() as u32 + 1;
        let (start, end) = (last.end.unwrap() + 1, last.end.map(|end| end + 2));
        let call = Call::Read { cell: 0, cached: false };
        let stale = Outcome::Value((1 << 32) + 1);
        operations.push(Operation { id, client: 1, start, end, call, outcome: stale, ..last });
        let Verdict::Violated(violation) = check(&history) else { panic!("a violation") };
        assert_eq!((violation.object.as_str(), violation.marked), ("of-0", id));
    }
}
