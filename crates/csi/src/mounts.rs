//! FUSE mounts that the pods of this node share: one process for each tree, and for each export that is
//! mounted without the kernel's client.

use std::collections::HashMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tonic::Status;

use crate::bind::{attach, copy, cover, unmount_all};
use crate::launcher::Launcher;
use crate::locks::Locks;
use crate::mount_spec::{MountSpec, is_of_export};
use crate::pod_certificate;
use crate::records::{Record, Records, read, write_durably};

pub(crate) struct Mounts {
    directory: PathBuf,
    /// Certificates of pods.
    pub(crate) secrets: PathBuf,
    launcher: Launcher,
    pub(crate) records: Arc<Records>,
    locks: Locks,
    idle_max: Duration,
    unused_since: Mutex<HashMap<String, Instant>>,
    /// The last failure of each mount that could not be made again.
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

impl Mounts {
    /// `state` is the driver's directory.
    pub(crate) fn open(
        state: &Path,
        launcher: Launcher,
        records: Arc<Records>,
        idle_max: Duration,
    ) -> io::Result<Self> {
        let directory = state.join("trees");
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        Ok(Self {
            directory,
            secrets: state.join("secrets"),
            launcher,
            records,
            locks: Locks::default(),
            idle_max,
            unused_since: Mutex::default(),
            faults: Mutex::default(),
            counters: Counters::default(),
        })
    }

    /// A record must refer to the mount already, so that it is not unmounted as unused.
    pub(crate) async fn publish(
        &self,
        mount: &MountSpec,
        path: &str,
        target: &Path,
    ) -> Result<(), Status> {
        let key = mount.key();
        let _lock = self.locks.lock(&key).await;
        self.ensure(&key, mount).await?;
        let (point, path, target) = (self.point(&key), path.to_owned(), target.to_owned());
        blocking(move || attach(&copy(&point, &path)?, &target)).await
    }

    /// The process of a tree stays until nothing has used it for a while. That of an export ends with its
    /// last pod.
    pub(crate) async fn unpublish(&self, key: &str, target: &Path) -> Result<(), Status> {
        let _lock = self.locks.lock(key).await;
        let path = target.to_owned();
        blocking(move || unmount_all(&path, true)).await?;
        if is_of_export(key) && self.uses(key).iter().all(|record| record.target == target) {
            self.remove(key).await?;
        }
        Ok(())
    }

    /// The caller holds the lock of `key`.
    async fn ensure(&self, key: &str, mount: &MountSpec) -> Result<(), Status> {
        let (spec, point) = (mount.clone(), self.point(key));
        let directory = self.directory.join(key);
        let is_there = blocking(move || {
            if spec.is_alive(&point) {
                return Ok(true);
            }
            // First: a dead mount is no directory.
            unmount_all(&point, true)?;
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&point)
                .map_err(|error| local(&point, error))?;
            if let MountSpec::Tree(tree) = &spec
                && let Some(policy) = &tree.policy
            {
                fs::write(directory.join(POLICY), policy)
                    .map_err(|error| local(&directory, error))?;
            }
            write_durably(&directory.join(SPEC), &spec)
                .map_err(|error| local(&directory, error))?;
            Ok(false)
        })
        .await?;
        if is_there {
            return Ok(());
        }
        let mounted = match mount {
            MountSpec::Tree(tree) => {
                let mut options = tree.options();
                if tree.policy.is_some() {
                    options.push("--policy".into());
                    options.push(self.directory.join(key).join(POLICY).into());
                }
                self.launcher.mount_tree(key, &options, &tree.name, &self.point(key)).await
            }
            MountSpec::Export(export) => {
                let mut options = export.options.clone();
                options.extend(pod_certificate::options(&self.secrets.join(key)));
                let cache = export.cache.as_deref();
                let point = self.point(key);
                self.launcher.mount_export(key, &options, cache, &export.source, &point).await
            }
        };
        Counters::add(if mounted.is_ok() { &self.counters.mounted } else { &self.counters.failed });
        mounted
    }

    /// Makes dead mounts again, under the same targets, and ends those that no pod uses. A server that does
    /// not answer delays no other mount: `work` has what earlier calls have not finished.
    pub(crate) fn maintain(self: &Arc<Self>, work: &mut HashMap<String, JoinHandle<()>>) {
        work.retain(|_, task| !task.is_finished());
        for key in self.keys() {
            let mounts = self.clone();
            work.entry(key.clone())
                .or_insert_with(|| tokio::spawn(async move { mounts.maintain_one(key).await }));
        }
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
                    tracing::warn!("mount {key}: {why}");
                    faults.insert(key, why);
                }
            }
        }
    }

    /// Mounts of trees by an earlier version of the program continue with the new one, under open files.
    pub(crate) async fn upgrade(&self) {
        if !self.launcher.is_new_program {
            return;
        }
        for key in self.keys().into_iter().filter(|key| !is_of_export(key)) {
            match self.launcher.upgrade(&key, &self.point(&key)).await {
                Ok(()) => tracing::info!("tree {key}: its process was upgraded"),
                Err(status) => tracing::warn!("tree {key}: not upgraded: {}", status.message()),
            }
        }
    }

    async fn heal(&self, key: &str, uses: Vec<Record>) -> Result<(), Status> {
        let _lock = self.locks.lock(key).await;
        self.unused_since.lock().remove(key);
        // The last pod may have ended meanwhile.
        if uses.iter().all(|record| self.records.get(&record.target).as_ref() != Some(record)) {
            return Ok(());
        }
        let spec = self.directory.join(key).join(SPEC);
        if !spec.exists() {
            // The record came first, and the driver was killed: kubelet publishes again.
            return Ok(());
        }
        let mount: MountSpec = read(&spec).map_err(|error| Status::internal(error.to_string()))?;
        let (spec, point) = (mount.clone(), self.point(key));
        let is_alive = blocking(move || Ok(spec.is_alive(&point))).await?;
        if !is_alive {
            tracing::warn!("{}: the mount is dead; it is mounted again", mount.label());
            self.ensure(key, &mount).await?;
        }
        let point = self.point(key);
        let records = self.records.clone();
        let healed = blocking(move || rebind(&point, &uses, &records)).await?;
        if healed > 0 || !is_alive {
            self.counters.healed.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                "{}: mounted again for {healed} pods; their running containers keep the dead mount until they restart, unless mountPropagation is HostToContainer",
                mount.label()
            );
        }
        Ok(())
    }

    async fn remove_if_unused(&self, key: &str) -> Result<(), Status> {
        let idle_max = if is_of_export(key) { EXPORT_IDLE_MAX } else { self.idle_max };
        let since = *self.unused_since.lock().entry(key.to_owned()).or_insert_with(Instant::now);
        if since.elapsed() < idle_max {
            return Ok(());
        }
        let _lock = self.locks.lock(key).await;
        if !self.uses(key).is_empty() {
            return Ok(());
        }
        self.remove(key).await
    }

    /// Ends the mount. The caller holds the lock of `key`.
    async fn remove(&self, key: &str) -> Result<(), Status> {
        let (point, directory) = (self.point(key), self.directory.join(key));
        let secrets = self.secrets.join(key);
        blocking(move || {
            unmount_all(&point, true)?;
            let removed = |path: &Path, done: io::Result<()>| match done {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(local(path, error)),
                _ => Ok(()),
            };
            // Only the empty mount point: nothing in a tree that is mounted.
            removed(&point, fs::remove_dir(&point))?;
            removed(&secrets, fs::remove_dir_all(&secrets))?;
            removed(&directory, fs::remove_dir_all(&directory))
        })
        .await?;
        self.unused_since.lock().remove(key);
        Ok(())
    }

    /// The cause if the mount of this record is known to be broken.
    pub(crate) fn fault(&self, record: &Record) -> Option<String> {
        self.faults.lock().get(record.volume.mount_key()?).cloned()
    }

    /// The mounts of this node, alive or not.
    pub(crate) fn keys(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    fn uses(&self, key: &str) -> Vec<Record> {
        let mut records = self.records.all();
        records.retain(|record| record.volume.mount_key() == Some(key));
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
        if Some(shown) == device || records.get(&record.target).as_ref() != Some(record) {
            continue;
        }
        // The dead mount stays where the new one can't be made: its errors are seen, an empty
        // directory is not.
        match copy(point, record.volume.path_within()).and_then(|copy| cover(&copy, &record.target))
        {
            Ok(()) => healed += 1,
            Err(status) => failure = Some(status),
        }
    }
    failure.map_or(Ok(healed), Err)
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

/// Also the name that earlier releases gave it.
const SPEC: &str = "tree.json";
const POLICY: &str = "policy";

/// A mount that a killed driver has begun ends then.
const EXPORT_IDLE_MAX: Duration = Duration::from_secs(30);
