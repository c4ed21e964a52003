//! Mounts of trees that the pods of this node share: one process for each tree.

use std::collections::HashMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tonic::Status;

use crate::attributes::TreeMount;
use crate::bind::{attach, copy, unmount_all};
use crate::launcher::Launcher;
use crate::locks::Locks;
use crate::records::{Record, Records, Volume, read, write_durably};

pub(crate) struct Trees {
    directory: PathBuf,
    launcher: Launcher,
    pub(crate) records: Arc<Records>,
    locks: Locks,
    idle_max: Duration,
    unused_since: Mutex<HashMap<String, Instant>>,
    /// The last failure of each tree that could not be mounted again.
    pub(crate) faults: Mutex<HashMap<String, String>>,
    pub(crate) counters: Counters,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) mounted: AtomicU64,
    pub(crate) healed: AtomicU64,
    pub(crate) failed: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl Trees {
    pub(crate) fn open(
        directory: PathBuf,
        launcher: Launcher,
        records: Arc<Records>,
        idle_max: Duration,
    ) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        Ok(Self {
            directory,
            launcher,
            records,
            locks: Locks::default(),
            idle_max,
            unused_since: Mutex::default(),
            faults: Mutex::default(),
            counters: Counters::default(),
        })
    }

    /// A record must refer to the tree already, so that it is not unmounted as unused.
    pub(crate) async fn publish(
        &self,
        tree: &TreeMount,
        path: &str,
        target: &Path,
    ) -> Result<(), Status> {
        let key = tree.key();
        let _lock = self.locks.lock(&key).await;
        self.ensure(&key, tree).await?;
        let (point, path, target) = (self.point(&key), path.to_owned(), target.to_owned());
        blocking(move || attach(&copy(&point, &path)?, &target)).await
    }

    /// The process of the tree stays until nothing has used it for a while.
    pub(crate) async fn unpublish(&self, key: &str, target: &Path) -> Result<(), Status> {
        let _lock = self.locks.lock(key).await;
        let (records, target) = (self.records.clone(), target.to_owned());
        blocking(move || {
            unmount_all(&target, true)?;
            records.remove(&target).map_err(|error| local(&target, error))
        })
        .await
    }

    /// The caller holds the lock of `key`.
    async fn ensure(&self, key: &str, tree: &TreeMount) -> Result<(), Status> {
        let (label, point) = (tree.name.clone(), self.point(key));
        let directory = self.directory.join(key);
        let stored = tree.clone();
        let is_there = blocking(move || {
            if is_alive(&label, &point) {
                return Ok(true);
            }
            // First: a dead mount is no directory.
            unmount_all(&point, true)?;
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&point)
                .map_err(|error| local(&point, error))?;
            if let Some(policy) = &stored.policy {
                fs::write(directory.join(POLICY), policy)
                    .map_err(|error| local(&directory, error))?;
            }
            write_durably(&directory.join(TREE), &stored)
                .map_err(|error| local(&directory, error))?;
            Ok(false)
        })
        .await?;
        if is_there {
            return Ok(());
        }
        let mut options = tree.options();
        if tree.policy.is_some() {
            options.push("--policy".into());
            options.push(self.directory.join(key).join(POLICY).into());
        }
        let mounted = self.launcher.mount(key, &options, &tree.name, &self.point(key)).await;
        Counters::add(if mounted.is_ok() { &self.counters.mounted } else { &self.counters.failed });
        mounted
    }

    /// Mounts dead trees again, under the same targets, and unmounts trees that no pod uses. A tree whose
    /// replicas do not answer delays no other.
    pub(crate) async fn maintain(self: &Arc<Self>) {
        let mut work = tokio::task::JoinSet::new();
        for key in self.keys() {
            let trees = self.clone();
            work.spawn(async move { trees.maintain_one(key).await });
        }
        while work.join_next().await.is_some() {}
    }

    async fn maintain_one(&self, key: String) {
        let uses = self.uses(&key);
        let done = if uses.is_empty() {
            self.remove_if_unused(&key).await
        } else {
            self.heal(&key, uses).await
        };
        let mut faults = self.faults.lock();
        match done {
            Ok(()) => drop(faults.remove(&key)),
            Err(status) => {
                let why = status.message().to_owned();
                if faults.get(&key) != Some(&why) {
                    tracing::warn!("tree {key}: {why}");
                    faults.insert(key, why);
                }
            }
        }
    }

    /// Mounts of an earlier version of the program continue with the new one, under open files.
    pub(crate) async fn upgrade(&self) {
        if !self.launcher.is_new_program {
            return;
        }
        for key in self.keys() {
            match self.launcher.upgrade(&key, &self.point(&key)).await {
                Ok(()) => tracing::info!("tree {key}: its process was upgraded"),
                Err(status) => tracing::warn!("tree {key}: not upgraded: {}", status.message()),
            }
        }
    }

    async fn heal(&self, key: &str, uses: Vec<Record>) -> Result<(), Status> {
        let _lock = self.locks.lock(key).await;
        self.unused_since.lock().remove(key);
        let tree: TreeMount = read(&self.directory.join(key).join(TREE))
            .map_err(|error| Status::internal(error.to_string()))?;
        let (label, point) = (tree.name.clone(), self.point(key));
        let is_alive = blocking(move || Ok(is_alive(&label, &point))).await?;
        if !is_alive {
            tracing::warn!("{}: the mount is dead; it is mounted again", tree.name);
            self.ensure(key, &tree).await?;
        }
        let point = self.point(key);
        let records = self.records.clone();
        let healed = blocking(move || rebind(&point, &uses, &records)).await?;
        if healed > 0 || !is_alive {
            self.counters.healed.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                "{}: mounted again for {healed} pods; their running containers keep the dead mount until they restart, unless mountPropagation is HostToContainer",
                tree.name
            );
        }
        Ok(())
    }

    async fn remove_if_unused(&self, key: &str) -> Result<(), Status> {
        let since = *self.unused_since.lock().entry(key.to_owned()).or_insert_with(Instant::now);
        if since.elapsed() < self.idle_max {
            return Ok(());
        }
        let _lock = self.locks.lock(key).await;
        if !self.uses(key).is_empty() {
            return Ok(());
        }
        let (point, directory) = (self.point(key), self.directory.join(key));
        blocking(move || {
            unmount_all(&point, true)?;
            // Only the empty mount point: nothing in a tree that is mounted.
            match fs::remove_dir(&point) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(local(&point, error));
                }
                _ => {}
            }
            fs::remove_dir_all(&directory).map_err(|error| local(&directory, error))
        })
        .await?;
        self.unused_since.lock().remove(key);
        Ok(())
    }

    /// The cause if the tree of this record is known to be broken.
    pub(crate) fn fault(&self, record: &Record) -> Option<String> {
        match &record.volume {
            Volume::Tree { key, .. } => self.faults.lock().get(key).cloned(),
            Volume::Export { .. } => None,
        }
    }

    /// The trees of this node, mounted or not.
    pub(crate) fn keys(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    fn uses(&self, key: &str) -> Vec<Record> {
        let mut records = self.records.all();
        records.retain(
            |record| matches!(&record.volume, Volume::Tree { key: other, .. } if other == key),
        );
        records
    }

    fn point(&self, key: &str) -> PathBuf {
        self.directory.join(key).join("mount")
    }
}

/// Binds again at each target that shows another mount than the one at `point`. Returns how many.
fn rebind(point: &Path, uses: &[Record], records: &Records) -> Result<usize, Status> {
    let table: HashMap<PathBuf, String> = vouch_tree_mount::mounts()
        .map_err(|error| Status::internal(format!("the mount table: {error}")))?
        .into_iter()
        .map(|(path, mount)| (path, mount.device))
        .collect();
    let device = table.get(point);
    let (mut healed, mut failure) = (0, None);
    for record in uses {
        // A pod that has just begun or ended is not mounted.
        let Some(shown) = table.get(&record.target) else { continue };
        let Volume::Tree { path, .. } = &record.volume else { continue };
        if Some(shown) == device || records.get(&record.target).as_ref() != Some(record) {
            continue;
        }
        // The dead mount stays where the new one can't be made: its errors are seen, an empty
        // directory is not.
        match copy(point, path).and_then(|copy| attach(&copy, &record.target)) {
            Ok(()) => healed += 1,
            Err(status) => failure = Some(status),
        }
    }
    failure.map_or(Ok(healed), Err)
}

fn is_alive(label: &str, point: &Path) -> bool {
    point.exists() && vouch_tree_mount::is_mounted(label, point)
}

fn local(path: &Path, error: io::Error) -> Status {
    Status::internal(format!("{}: {error}", path.display()))
}

pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Status> + Send + 'static,
) -> Result<T, Status> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(Status::internal(error.to_string())))
}

const TREE: &str = "tree.json";
const POLICY: &str = "policy";
