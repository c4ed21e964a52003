//! A machine: a disk that a kill or a power cut stops at any step, a database on it, and a replica
//! that serves it.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use vouch_replica::testing::StreamReplica;
use vouch_tree_store::disk::{Disk, DiskFile};

use crate::power_cut::{RecordingDisk, cut};

pub(crate) struct Machine {
    pub(crate) name: &'static str,
    pub(crate) root: PathBuf,
    disk: Mutex<MachineDisk>,
    /// The processes that write run while this is even.
    pub(crate) restarts: watch::Sender<u64>,
    /// Closes all connections, in their order. A watch wakes its receivers in random order.
    pub(crate) cuts: Arc<Notify>,
    pub(crate) link: Mutex<Link>,
    server: Mutex<Option<Arc<StreamReplica>>>,
    /// Copies of the database, made by [`Machine::copy`].
    copies: Mutex<u64>,
}

/// How others reach the machine.
#[derive(Default)]
pub(crate) struct Link {
    pub(crate) is_down: bool,
    pub(crate) is_refusing: bool,
    pub(crate) is_silent: bool,
    pub(crate) is_flaky: bool,
    pub(crate) flips_bits: bool,
    pub(crate) delay_ms_max: u64,
}

impl Machine {
    pub(crate) fn new(name: &'static str, root: PathBuf) -> Self {
        fs::create_dir_all(&root).expect("a directory");
        Self {
            name,
            disk: Mutex::new(MachineDisk::new(RecordingDisk::holding(&root))),
            root,
            restarts: watch::Sender::new(0),
            cuts: Arc::default(),
            link: Mutex::new(Link { delay_ms_max: 5, ..Link::default() }),
            server: Mutex::new(None),
            copies: Mutex::new(0),
        }
    }

    pub(crate) fn db(&self) -> PathBuf {
        self.root.join("db")
    }

    pub(crate) fn disk(&self) -> MachineDisk {
        self.disk.lock().clone()
    }

    /// The running replica. It starts when its database exists.
    pub(crate) fn server(&self) -> Option<Arc<StreamReplica>> {
        let mut server = self.server.lock();
        if server.is_none() {
            *server = StreamReplica::open(&self.db()).ok();
        }
        server.clone()
    }

    /// Ends the replica, or replaces it by one of an older copy.
    pub(crate) fn serve(&self, server: Option<Arc<StreamReplica>>) {
        *self.server.lock() = server;
        self.cuts.notify_waiters();
    }

    /// As it is after `kill -9`.
    pub(crate) fn copy(&self) {
        if self.db().exists() {
            let mut copies = self.copies.lock();
            copy_dir(&self.db(), &self.copy_path(*copies));
            *copies += 1;
        }
    }

    /// One of the copies.
    pub(crate) fn older(&self, draw: u64) -> Option<PathBuf> {
        let copies = *self.copies.lock();
        (copies > 0).then(|| self.copy_path(draw % copies))
    }

    fn copy_path(&self, number: u64) -> PathBuf {
        self.root.with_extension(format!("copy{number}"))
    }

    /// The writing processes are dead until [`Machine::restart`].
    pub(crate) fn kill(&self) {
        self.disk().0.is_dead.store(true, Ordering::SeqCst);
        self.restarts.send_modify(|count| *count |= 1);
    }

    /// After [`Machine::kill`]: nothing that was not synchronised is sure to stay.
    pub(crate) fn lose_power(&self, seed: u64) {
        self.link.lock().is_down = true;
        self.serve(None);
        let steps = self.disk().0.inner.steps();
        let platter = self.root.with_extension("cut");
        fs::create_dir_all(&platter).expect("a directory");
        cut(&steps, seed, &self.root, &platter);
        self.replace_db(&platter.join("db"));
        fs::remove_dir_all(&platter).expect("the directory");
    }

    /// After [`Machine::kill`].
    pub(crate) fn replace_db(&self, by: &Path) {
        self.serve(None);
        if self.db().exists() {
            fs::remove_dir_all(self.db()).expect("the database");
        }
        if by.exists() {
            copy_dir(by, &self.db());
        }
        *self.disk.lock() = MachineDisk::new(RecordingDisk::holding(&self.root));
    }

    pub(crate) fn restart(&self) {
        self.link.lock().is_down = false;
        let recording = self.disk().0.inner.clone();
        *self.disk.lock() = MachineDisk::new(recording);
        self.restarts.send_modify(|count| *count += 1);
    }
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_dir(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).expect("a copy");
        }
    }
}

/// Records every step for a power cut. After its last step, every call fails.
#[derive(Debug, Clone)]
pub(crate) struct MachineDisk(Arc<DiskState>);

#[derive(Debug)]
struct DiskState {
    inner: RecordingDisk,
    /// Steps until the process is killed.
    fuse: Mutex<Option<u64>>,
    is_dead: AtomicBool,
    burnt: Notify,
    /// Synchronised by several threads at once: they count as steps in the order of the files, before
    /// the next step.
    syncs: Mutex<BTreeMap<u64, Arc<dyn DiskFile>>>,
    files: AtomicU64,
}

impl MachineDisk {
    fn new(inner: RecordingDisk) -> Self {
        let (fuse, is_dead, burnt) = (Mutex::default(), false.into(), Notify::new());
        let (syncs, files) = (Mutex::default(), AtomicU64::new(0));
        Self(Arc::new(DiskState { inner, fuse, is_dead, burnt, syncs, files }))
    }

    /// Kills the writing process after so many steps.
    pub(crate) async fn burn(&self, steps: u64) {
        *self.0.fuse.lock() = Some(steps);
        self.0.burnt.notified().await;
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.0.is_dead.load(Ordering::SeqCst)
    }

    fn step(&self) -> io::Result<()> {
        for file in std::mem::take(&mut *self.0.syncs.lock()).into_values() {
            self.burn_one()?;
            file.sync()?;
        }
        self.burn_one()
    }

    fn burn_one(&self) -> io::Result<()> {
        let mut fuse = self.0.fuse.lock();
        if !self.is_dead() {
            match &mut *fuse {
                Some(0) => {
                    self.0.is_dead.store(true, Ordering::SeqCst);
                    self.0.burnt.notify_one();
                }
                Some(steps) => *steps -= 1,
                None => {}
            }
        }
        if self.is_dead() { Err(io::Error::other("the process is killed")) } else { Ok(()) }
    }

    fn file(&self, inner: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        let number = self.0.files.fetch_add(1, Ordering::SeqCst);
        Arc::new(MachineFile { disk: self.clone(), number, inner })
    }
}

impl Disk for MachineDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        self.0.inner.create_dir(path)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.step()?;
        self.0.inner.create(path).map(|file| self.file(file))
    }

    fn reopen(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.step()?;
        self.0.inner.reopen(path).map(|file| self.file(file))
    }

    fn truncate(&self, path: &Path, len: u64) -> io::Result<()> {
        self.step()?;
        self.0.inner.truncate(path, len)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        self.0.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        self.0.inner.remove(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        self.0.inner.sync_dir(path)
    }
}

#[derive(Debug)]
struct MachineFile {
    disk: MachineDisk,
    number: u64,
    inner: Arc<dyn DiskFile>,
}

impl DiskFile for MachineFile {
    fn append(&self, parts: &[&[u8]]) -> io::Result<()> {
        let was_dead = self.disk.is_dead();
        let bytes = parts.concat();
        self.disk.step().inspect_err(|_| {
            // A killed process may have written a part.
            if !was_dead {
                let _ = self.inner.append(&[&bytes[..bytes.len() / 2]]);
            }
        })?;
        self.inner.append(&[&bytes])
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.0.syncs.lock().insert(self.number, Arc::clone(&self.inner));
        Ok(())
    }
}
