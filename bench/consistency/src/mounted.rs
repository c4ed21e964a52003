//! Histories over mounts of one export, by any NFS client: close-to-open, names, and locks. A thread
//! works on each mount.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use parking_lot::Mutex;
use vouch_bench::Error;

use crate::history::{
    Call, Fault, History, Operation, Outcome, RESTART, STABLE_NAMES, stable_name, volatile_name,
};
use crate::model::{LOCK_BYTES, NAMES};
use crate::rng::Rng;

/// Each thread makes `calls` calls. `restart` runs once meanwhile.
pub fn history(
    mounts: &[PathBuf],
    (seed, calls): (u64, u32),
    restart: Option<&mut dyn FnMut() -> Result<(), Error>>,
) -> Result<History, Error> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as u64);
    let name = format!("vouch-consistency-{:016x}", Rng(now ^ seed).next());
    let failed = |mount: &Path| {
        let what = mount.display().to_string();
        |source| Error::Io { what, source }
    };
    let directory = mounts[0].join(&name);
    make(&directory, mounts.len()).map_err(failed(&mounts[0]))?;
    let (mut rng, start) = (Rng(seed), Instant::now());
    let (sender, ended) = mpsc::channel();
    // Not scoped: a call that never returns must not keep its caller.
    let running: Vec<Arc<Mutex<Running>>> = (0..)
        .zip(mounts)
        .map(|(client, mount)| {
            let rng = Rng(rng.next());
            let mut worker = Worker::new(mount.join(&name), (client, mounts.len()), rng, start);
            let (running, sender) = (worker.running.clone(), sender.clone());
            std::thread::spawn(move || {
                let log = worker.work(calls).map(|()| worker.log);
                let _ = sender.send((usize::from(client), log));
            });
            running
        })
        .collect();
    drop(sender);
    let faults: Vec<Fault> =
        restart.map(|run| run_restart(run, start)).transpose()?.into_iter().collect();
    let (mut operations, mut left) = (Vec::new(), mounts.len());
    while left > 0 {
        match ended.recv_timeout(Duration::from_secs(1)) {
            Ok((client, log)) => {
                running[client].lock().call = "";
                operations.extend(log.map_err(failed(&mounts[client]))?);
                left -= 1;
            }
            Err(mpsc::RecvTimeoutError::Timeout) => report_hung(&running, mounts)?,
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err(Error::Program("a thread of the checker has panicked".into()));
            }
        }
    }
    fs::remove_dir_all(&directory).map_err(failed(&mounts[0]))?;
    if let Some(fault) = faults.first() {
        doubt_repeated(&mut operations, fault);
    }
    (1..).zip(&mut operations).for_each(|(id, operation)| operation.id = id);
    let server = mounts.iter().map(|mount| mount.display().to_string());
    Ok(History {
        seed,
        server: server.collect::<Vec<_>>().join(" "),
        minor: 0,
        sec: String::new(),
        changes_grow: false,
        operations,
        faults,
    })
}

fn make(directory: &Path, writers: usize) -> io::Result<()> {
    fs::create_dir(directory)?;
    let writers = 0..writers as u16;
    let of_writers = writers.clone().map(file_of).chain(writers.map(source_of));
    for name in of_writers.chain([SHARED, LOCKS, RANGES].map(Into::into)) {
        File::create(directory.join(name))?;
    }
    fs::create_dir(directory.join(DIRECTORY))?;
    (0..STABLE_NAMES).try_for_each(|name| {
        File::create(directory.join(DIRECTORY).join(stable_name(name))).map(drop)
    })
}

/// A shell command that kills the server and starts it again.
pub fn restart_by(command: &str) -> Result<(), Error> {
    let status = Command::new("sh").args(["-c", command]).status().map_err(Error::io("sh"))?;
    match status.success() {
        true => Ok(()),
        false => Err(Error::Program(format!("{command}: {status}"))),
    }
}

fn run_restart(run: &mut dyn FnMut() -> Result<(), Error>, start: Instant) -> Result<Fault, Error> {
    std::thread::sleep(RESTART_AFTER);
    let begun = start.elapsed().as_nanos() as u64;
    run()?;
    Ok(Fault { kind: RESTART.into(), start: begun, end: start.elapsed().as_nanos() as u64 })
}

/// A client that has lost its session repeats its calls, and the server may execute both.
fn doubt_repeated(operations: &mut Vec<Operation>, restart: &Fault) {
    let mut repeated = Vec::new();
    for op in operations.iter_mut().filter(|op| op.call.changes_names()) {
        if op.end.is_none_or(|end| end >= restart.start) && op.start <= restart.end {
            (op.end, op.outcome) = (None, Outcome::Unknown);
            repeated.push(op.clone());
        }
    }
    operations.append(&mut repeated);
}

/// The call that a thread is in.
struct Running {
    call: &'static str,
    since: Instant,
}

fn report_hung(running: &[Arc<Mutex<Running>>], mounts: &[PathBuf]) -> Result<(), Error> {
    let hung: Vec<String> = running
        .iter()
        .zip(mounts)
        .filter_map(|(running, mount)| {
            let Running { call, since } = *running.lock();
            (!call.is_empty() && since.elapsed() > HUNG_AFTER)
                .then(|| format!("{}: {call} has not returned for {HUNG_AFTER:?}", mount.display()))
        })
        .collect();
    match hung.is_empty() {
        true => Ok(()),
        false => Err(Error::Program(hung.join("; "))),
    }
}

struct Worker {
    directory: PathBuf,
    client: u16,
    mounts: u16,
    rng: Rng,
    start: Instant,
    running: Arc<Mutex<Running>>,
    log: Vec<Operation>,
    /// Values that were written: each is another one.
    written: u64,
    has_lock: bool,
    /// The time until which each name was certainly there for this client.
    seen: [Option<u64>; NAMES],
    /// Ids of the files that get several names.
    sources: Vec<u64>,
}

impl Worker {
    fn new(directory: PathBuf, (client, mounts): (u16, usize), rng: Rng, start: Instant) -> Self {
        Self {
            directory,
            client,
            mounts: mounts as u16,
            rng,
            start,
            running: Arc::new(Mutex::new(Running { call: "open", since: start })),
            log: Vec::new(),
            written: 0,
            has_lock: false,
            seen: [None; NAMES],
            sources: Vec::new(),
        }
    }

    fn work(&mut self, calls: u32) -> io::Result<()> {
        let [locks, shared, one, other] =
            [LOCKS, SHARED, RANGES, RANGES].map(|name| self.open(name));
        let (locks, shared, ranges) = (locks?, shared?, [one?, other?]);
        let id_of = |writer| Ok(fs::metadata(self.directory.join(source_of(writer)))?.ino());
        self.sources = (0..self.mounts).map(id_of).collect::<io::Result<_>>()?;
        let source = self.directory.join(source_of(self.client));
        let file = self.sources[usize::from(self.client)];
        for _ in 0..calls {
            match self.rng.below(16) {
                0..3 => self.write_and_close()?,
                3..6 => self.open_and_read()?,
                6..8 => self.one_lock(&locks)?,
                8..10 => self.change_under_lock(&shared)?,
                10..14 => self.one_name(&source, file)?,
                _ => self.one_range(&ranges)?,
            }
        }
        (0..2).try_for_each(|file| self.unlock_range(&ranges, file, (0, LOCK_BYTES as u8)))?;
        self.unlock(&locks)
    }

    /// Each file has one writer: what two clients write at once without a lock is not promised.
    fn write_and_close(&mut self) -> io::Result<()> {
        let name = file_of(self.client);
        let (begun, value) = (self.begin("open, write and close of a file"), self.next_value());
        let file = self.open(&name)?;
        file.write_all_at(&value.to_be_bytes(), 0)?;
        drop(file);
        self.record(&name, begun, Call::Write { cell: 0, value, stable: true }, Outcome::Done);
        Ok(())
    }

    fn open_and_read(&mut self) -> io::Result<()> {
        let name = file_of(self.rng.below(self.mounts.into()) as u16);
        let begun = self.begin("open, read and close of a file");
        let outcome = read_value(&File::open(self.directory.join(&name))?)?;
        self.record(&name, begun, Call::Read { cell: 0, cached: false }, outcome);
        Ok(())
    }

    /// Of the whole file, by flock(2). Clients of NFS lock all its bytes.
    fn one_lock(&mut self, file: &File) -> io::Result<()> {
        if std::mem::take(&mut self.has_lock) {
            return self.unlock(file);
        }
        let (begun, write, owner) = (self.begin("flock"), self.rng.percent(50), self.client);
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
        let begun = self.begin("flock to unlock");
        file.unlock()?;
        let call = Call::Unlock { owner: self.client, first: 0, len: LOCK_BYTES as u8 };
        self.record(LOCKS, begun, call, Outcome::Done);
        Ok(())
    }

    /// In a file that stays open: a lock shows what others wrote, and its end shows it to others.
    fn change_under_lock(&mut self, file: &File) -> io::Result<()> {
        self.begin("flock that waits");
        file.lock()?;
        let begun = self.begin("read under a lock");
        let outcome = read_value(file)?;
        self.record(SHARED, begun, Call::Read { cell: 0, cached: false }, outcome);
        let (begun, value) = (self.begin("write under a lock, and its end"), self.next_value());
        file.write_all_at(&value.to_be_bytes(), 0)?;
        file.unlock()?;
        self.record(SHARED, begun, Call::Write { cell: 0, value, stable: true }, Outcome::Done);
        Ok(())
    }

    /// Locks or unlocks some of 8 bytes by one of two open file descriptions.
    fn one_range(&mut self, files: &[File; 2]) -> io::Result<()> {
        let (file, first) = (self.rng.below(2) as usize, self.rng.below(LOCK_BYTES as u64) as u8);
        let len = 1 + self.rng.below(LOCK_BYTES as u64 - u64::from(first)) as u8;
        if self.rng.percent(40) {
            return self.unlock_range(files, file, (first, len));
        }
        let (begun, write) = (self.begin("lock of a range"), self.rng.percent(50));
        let kind = if write { libc::F_WRLCK } else { libc::F_RDLCK };
        let outcome = match set_range(&files[file], kind, (first, len)) {
            Ok(()) => Outcome::Done,
            Err(error) if error.kind() == ErrorKind::WouldBlock => Outcome::Denied,
            Err(error) => return Err(error),
        };
        let owner = self.client * 2 + file as u16;
        let call = Call::Lock { owner, write, first, len, reclaim: false, waits: false };
        self.record(RANGES, begun, call, outcome);
        Ok(())
    }

    fn unlock_range(
        &mut self,
        files: &[File; 2],
        file: usize,
        (first, len): (u8, u8),
    ) -> io::Result<()> {
        let begun = self.begin("unlock of a range");
        set_range(&files[file], libc::F_UNLCK, (first, len))?;
        let call = Call::Unlock { owner: self.client * 2 + file as u16, first, len };
        self.record(RANGES, begun, call, Outcome::Done);
        Ok(())
    }

    /// `source`: a file of this mount, for links.
    fn one_name(&mut self, source: &Path, file: u64) -> io::Result<()> {
        let name = self.rng.below(NAMES as u64) as u8;
        let directory = self.directory.join(DIRECTORY);
        let path = directory.join(volatile_name(name));
        match self.rng.below(10) {
            0..2 => {
                let begun = self.begin("exclusive open");
                let created = File::create_new(&path).and_then(|file| file.metadata());
                self.record_name(begun, Call::Create { name }, created.map(|file| file.ino()))
            }
            2 => {
                let begun = self.begin("link");
                let linked = fs::hard_link(source, &path).map(|()| 0);
                self.record_name(begun, Call::Link { name, file }, linked)
            }
            3..5 => {
                // A name that other clients rename may be an old one in a cache.
                let new = self.directory.join(format!("new-{}", self.client));
                let file = File::create(&new)?.metadata()?.ino();
                let begun = self.begin("rename over a name");
                let renamed = fs::rename(&new, &path).map(|()| 0);
                self.record_name(begun, Call::Replace { name, file }, renamed)
            }
            5 if self.seen[usize::from(name)].is_some() => {
                let begun = self.begin("unlink");
                let removed = fs::remove_file(&path).map(|()| 0);
                self.record_name(begun, Call::Remove { name }, removed)
            }
            5..9 => {
                let begun = self.begin("open of a name");
                let found = File::open(&path).and_then(|file| file.metadata());
                let call = Call::Lookup { name, cached: false };
                self.record_name(begun, call, found.map(|file| file.ino()))
            }
            _ => {
                let begun = self.begin("list of a directory");
                let names: io::Result<Vec<String>> = fs::read_dir(&directory)?
                    .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
                    .collect();
                self.record(DIRECTORY, begun, Call::List, Outcome::Names(names?));
                Ok(())
            }
        }
    }

    /// A client may remember that a name is missing, so a name that it does not find is told only if the
    /// client has seen it before: it has been removed since.
    fn record_name(&mut self, begun: u64, call: Call, done: io::Result<u64>) -> io::Result<()> {
        let (mut start, end) = (begun, self.now());
        let outcome = match done {
            Ok(file) if matches!(call, Call::Create { .. } | Call::Lookup { .. }) => {
                Outcome::Value(file)
            }
            Ok(_) => Outcome::Done,
            Err(error) if error.kind() == ErrorKind::NotFound => match call {
                // Repeated after a restart: the source has been renamed before.
                Call::Replace { .. } => Outcome::Unknown,
                _ => Outcome::NotFound,
            },
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Outcome::Exists,
            // The name changed again and again.
            Err(error) if error.kind() == ErrorKind::StaleNetworkFileHandle => return Ok(()),
            Err(error) => return Err(error),
        };
        let (name, is_there) = match call {
            Call::Create { name }
            | Call::Link { name, .. }
            | Call::Replace { name, .. }
            | Call::Lookup { name, .. } => (name, outcome != Outcome::NotFound),
            Call::Remove { name } => (name, false),
            _ => return Ok(()),
        };
        let seen = std::mem::replace(&mut self.seen[usize::from(name)], is_there.then_some(end));
        match (&call, &outcome) {
            (_, Outcome::NotFound) => {
                let Some(seen) = seen else { return Ok(()) };
                start = seen;
            }
            // An old name opens it too: Linux opens a file that it knows by its filehandle.
            (Call::Lookup { .. }, Outcome::Value(file)) if self.sources.contains(file) => {
                return Ok(());
            }
            _ => {}
        }
        self.record(DIRECTORY, start, call, outcome);
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

    fn begin(&self, call: &'static str) -> u64 {
        *self.running.lock() = Running { call, since: Instant::now() };
        self.now()
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

/// A lock of the open file description (fcntl(2)), without waiting.
fn set_range(file: &File, kind: i32, (first, len): (u8, u8)) -> io::Result<()> {
    let lock = libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: first.into(),
        l_len: len.into(),
        l_pid: 0,
    };
    Ok(fcntl(file, FcntlArg::F_OFD_SETLK(&lock)).map(drop)?)
}

fn file_of(writer: u16) -> String {
    format!("of-{writer}")
}

/// For links.
fn source_of(writer: u16) -> String {
    format!("source-{writer}")
}

const SHARED: &str = "shared";
const LOCKS: &str = "locks";
const RANGES: &str = "ranges";
const DIRECTORY: &str = "names";
const RESTART_AFTER: Duration = Duration::from_millis(300);
/// More than leases and grace periods of servers.
const HUNG_AFTER: Duration = Duration::from_secs(180);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Verdict, check};

    /// A call after all others. Returns its number.
    fn append(history: &mut History, object: &str, call: Call, outcome: Outcome) -> u32 {
        let last = history.operations.iter().max_by_key(|op| op.end).unwrap().clone();
        let id = history.operations.iter().map(|op| op.id).max().unwrap() + 1;
        let (start, end) = (last.end.unwrap() + 1, last.end.map(|end| end + 2));
        let object = object.to_owned();
        history.operations.push(Operation { id, object, start, end, call, outcome, ..last });
        id
    }

    fn is_found(history: &History, object: &str, id: u32) {
        let Verdict::Violated(violation) = check(history) else { panic!("a violation") };
        assert_eq!((violation.object.as_str(), violation.marked), (object, id));
    }

    #[test]
    fn local_directory_is_consistent_and_wrong_replies_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let mounts = vec![directory.path().to_owned(); 3];
        let right = history(&mounts, (7, 400), None).unwrap();
        assert!(matches!(check(&right), Verdict::Right));

        // A cache still has the file before its last writing.
        let mut history = right.clone();
        let read = Call::Read { cell: 0, cached: false };
        let stale = append(&mut history, "of-0", read, Outcome::Value((1 << 32) + 1));
        is_found(&history, "of-0", stale);

        // Two owners lock one byte.
        let mut history = right.clone();
        let [one, other] = [(0, 2), (3, 4)].map(|(owner, first)| {
            let lock =
                Call::Lock { owner, write: true, first, len: 3, reclaim: false, waits: false };
            append(&mut history, RANGES, lock, Outcome::Done)
        });
        assert!(one < other);
        is_found(&history, RANGES, other);

        // A replaced file is found under its name, or the name is not listed.
        let mut history = right;
        history.operations.retain(|op| op.object != DIRECTORY);
        for (name, file) in [(0, 5), (1, 6)] {
            append(&mut history, DIRECTORY, Call::Create { name }, Outcome::Value(file));
        }
        append(&mut history, DIRECTORY, Call::Replace { name: 1, file: 7 }, Outcome::Done);
        let mut unlisted = history.clone();
        let lookup = Call::Lookup { name: 1, cached: false };
        let replaced = append(&mut history, DIRECTORY, lookup, Outcome::Value(6));
        is_found(&history, DIRECTORY, replaced);
        let names = Outcome::Names((0..STABLE_NAMES).map(stable_name).collect());
        append(&mut unlisted, DIRECTORY, Call::List, names);
        assert!(matches!(check(&unlisted), Verdict::Violated(_)));
    }
}
