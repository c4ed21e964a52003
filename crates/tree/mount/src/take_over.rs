//! Continues another process's mount, or lets another process continue this one.
//!
//! A supervisor holds the FUSE device, and the journal has the nodes. After a planned change no
//! request is open. After a kill, the kernel sends open requests again (FUSE_NOTIFY_RESEND, Linux
//! 6.9), or they fail at once.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak, mpsc};
use std::time::Duration;

use fuser::SessionACL;
use vouch_tree::FileType;
use vouch_tree_client::{Client, Tree};

use crate::config::{MountOptions, is_root};
use crate::error::MountError;
use crate::filesystem::FuseFilesystem;
use crate::fuse_device::{self, Backing};
use crate::journal::Journal;
use crate::journal::image::MountImage;
use crate::journal::record::{MountRecord, OpenRecord, Record};
use crate::kernel_notices::Notice;
use crate::namespace::{Namespace, NamespaceTrees};
use crate::node_table::Owner as _;
use crate::open_files::BackingFile;
use crate::revision_update;
use crate::session::{MountSource, Mounted, serve};
use crate::state::{MountKind, MountState};
use crate::volume::VolumeRegistry;

/// Empty, for [`MountOptions::journal`](crate::MountOptions::journal).
pub fn create_journal() -> io::Result<File> {
    Journal::create()
}

/// Left by the earlier process of a mount.
#[derive(Debug)]
pub struct Predecessor {
    pub image: MountImage,
    pub device: OwnedFd,
    pub was_killed: bool,
}

/// The other process may serve again instead, until [`TakeOver::begin`].
pub struct TakeOver {
    state: Arc<MountState>,
    notices: mpsc::Receiver<Notice>,
    device: OwnedFd,
    mount: MountRecord,
    was_killed: bool,
    was_updating: bool,
}

/// `options` have the same journal.
pub fn take_over_tree(
    options: MountOptions,
    tree: &Arc<Tree>,
    predecessor: Predecessor,
) -> Result<TakeOver, MountError> {
    let image = &predecessor.image;
    let [record] = &image.volumes.values().collect::<Vec<_>>()[..] else {
        return Err(refused("it does not show exactly one tree"));
    };
    if image.mount.is_namespace {
        return Err(refused("it shows all trees"));
    }
    let shown = tree.kept_revision(&record.signed).map_err(|error| refused(&error.to_string()))?;
    let volumes = VolumeRegistry::with_journal(&options, image.end)?;
    let volume = volumes.restore(record, tree.clone(), shown, image.mount.is_pinned);
    let kind = MountKind::Tree(volume);
    let source = MountSource {
        kind,
        volumes,
        without_xattrs: image.mount.without_xattrs,
        keeps_whole_files: tree.keeps_whole_files(),
    };
    take_over(options, source, predecessor)
}

/// `trees`: the open trees by their names in the namespace. Files of other trees fail with ESTALE.
pub fn take_over_namespace(
    options: MountOptions,
    client: Arc<Client>,
    namespace: NamespaceTrees,
    trees: &HashMap<String, Arc<Tree>>,
    predecessor: Predecessor,
) -> Result<TakeOver, MountError> {
    let image = &predecessor.image;
    if !image.mount.is_namespace {
        return Err(refused("it shows one tree"));
    }
    let keeps_whole_files = client.cache_usage().disk_quota_bytes > 0;
    let volumes = VolumeRegistry::with_journal(&options, image.end)?;
    let namespace = Namespace::new(client, namespace);
    let mut restored = Vec::new();
    for record in image.volumes.values() {
        let Some(tree) = trees.get(&record.label) else { continue };
        match tree.kept_revision(&record.signed) {
            Ok(shown) => {
                let volume = volumes.restore(record, tree.clone(), shown, false);
                namespace.restore(&volume);
                restored.push(volume);
            }
            Err(error) => {
                tracing::warn!(tree = record.label, "its open files fail from now on: {error}")
            }
        }
    }
    let without_xattrs = image.mount.without_xattrs;
    let source = MountSource {
        kind: MountKind::Namespace(Box::new(namespace)),
        volumes,
        without_xattrs,
        keeps_whole_files,
    };
    take_over(options, source, predecessor)
}

fn take_over(
    options: MountOptions,
    source: MountSource,
    predecessor: Predecessor,
) -> Result<TakeOver, MountError> {
    let Predecessor { image, device, was_killed } = predecessor;
    let mount = image.mount.clone();
    if mount.observed != options.observer.is_some() {
        let why = if mount.observed { "it is audited" } else { "it is not audited" };
        return Err(refused(&format!(
            "{why}, and this process has other options; unmount, and mount again"
        )));
    }
    let was_updating = image.volumes.values().any(|volume| volume.is_updating);
    let (state, notices) = source.state(options, None);
    let _ = state.mount_record.set(mount.clone());
    let for_backing_files = device.try_clone().map_err(|error| refused(&error.to_string()))?;
    restore(&state, image, &Arc::new(for_backing_files));
    Ok(TakeOver { state, notices, device, mount, was_killed, was_updating })
}

impl TakeOver {
    /// Serves. Needs a multi-threaded tokio runtime.
    pub fn begin(self) -> Result<Mounted, MountError> {
        let Self { state, notices, device, mount, was_killed, was_updating } = self;
        let mounted = start_session(state.clone(), notices, &device, &mount, was_killed)?;
        if was_updating {
            distrust_kernel_caches(&state);
        }
        for volume in state.volumes.all() {
            if was_updating {
                let directories = state
                    .table
                    .all_of(&volume)
                    .into_iter()
                    .filter(|(_, kind)| *kind == FileType::Directory);
                volume.unfinished.lock().extend(directories.map(|(id, _)| id));
            }
            state.runtime.spawn(revision_update::follow(Arc::downgrade(&state), volume));
        }
        Ok(mounted)
    }
}

fn start_session(
    state: Arc<MountState>,
    notices: mpsc::Receiver<Notice>,
    device: &OwnedFd,
    mount: &MountRecord,
    was_killed: bool,
) -> Result<Mounted, MountError> {
    let mut session_config = state.options.session("");
    session_config.acl =
        if mount.only_user.is_some() { SessionACL::Owner } else { SessionACL::All };
    let acl = session_config.acl;
    let face = FuseFilesystem::new(state.clone());
    let failed = |error: io::Error| refused(&error.to_string());
    let session = fuse_device::resume_session(face, device, mount.kernel, acl, session_config)
        .map_err(failed)?;
    if was_killed && fuse_device::can_resend(mount.kernel) {
        fuse_device::resend_requests(device).map_err(failed)?;
    }
    let serving = serve(session, &state, notices)?;
    let device =
        (!mount.device.is_empty()).then(|| String::from_utf8_lossy(&mount.device).into_owned());
    let path = PathBuf::from(OsString::from_vec(mount.point.clone()));
    Ok(Mounted::new(path, device, state, serving))
}

fn restore(state: &Arc<MountState>, image: MountImage, device: &Arc<OwnedFd>) {
    let volumes: HashMap<u32, _> =
        state.volumes.all().into_iter().map(|volume| (volume.number(), volume)).collect();
    for (number, directory, name) in image.missing {
        if let Some(volume) = volumes.get(&number) {
            volume.restore_missing(directory, &name);
        }
    }
    for (number, directory, name) in image.referenced {
        if let Some(volume) = volumes.get(&number) {
            volume.restore_referenced(directory, name);
        }
    }
    for (number, id, inode) in image.older_directories {
        if let Some(volume) = volumes.get(&number) {
            volume.insert_older_directory(id, inode);
        }
    }
    state.table.restore(image.nodes.into_values(), |number| volumes.get(&number).cloned());
    for OpenRecord { id, count, backing } in image.open_files.into_values() {
        let backing = backing.map(|record| {
            let whole = state
                .volume_of(id)
                .and_then(|volume| volume.tree().resume_whole_file(&record.blob, record.inode));
            let id = Backing::restore(device.clone(), record.id);
            BackingFile { whole: whole.into(), blob: record.blob, inode: record.inode, id }
        });
        state.open_files.restore(id, count, backing);
    }
    if let Some(observed) = &state.observed {
        image.handles.values().for_each(|handle| observed.restore(handle));
    }
}

/// After a kill during an update, the kernel may have outdated data.
fn distrust_kernel_caches(state: &MountState) {
    for volume in state.volumes.all() {
        for (directory, name) in volume.missing_names() {
            state.kernel.send(Notice::Name(directory, name));
        }
        for (id, _) in state.table.all_of(&volume) {
            match (state.table.get(id), state.table.path(id)) {
                (Some(view), Some((directory, name))) if view.is_removed => {
                    state.kernel.send(Notice::Name(directory, name))
                }
                _ => {}
            }
            state.kernel.send(Notice::Content(id));
        }
    }
}

#[derive(Clone)]
pub struct MountHandle {
    state: Arc<MountState>,
    point: PathBuf,
}

impl Mounted {
    pub fn handle(&self) -> MountHandle {
        MountHandle { state: self.state.clone(), point: self.point().to_owned() }
    }

    pub fn device(&self) -> io::Result<OwnedFd> {
        self.state.device.get().ok_or(io::ErrorKind::NotConnected)?.try_clone()
    }
}

impl MountHandle {
    /// Asks replicas for newer revisions, and waits until the mount shows them. Returns each tree's name
    /// and the revision shown.
    pub async fn refresh(&self) -> Result<Vec<(String, u64)>, vouch_tree_client::Error> {
        let mut shown = Vec::new();
        for volume in self.state.volumes.all() {
            volume.tree().refresh().await?;
            let before = volume.shown().order();
            if before < volume.target().order() {
                volume.wait_for_newer(before, self.state.options.deadline).await;
            }
            shown.push((volume.label().to_owned(), volume.shown().number()));
        }
        self.state.kernel.flush().await;
        Ok(shown)
    }

    /// Stops with all requests answered and the journal complete. New requests wait in the kernel
    /// until [`MountHandle::resume`] or the other process. Serves on if requests or an update do
    /// not end within ten seconds.
    pub async fn stop_serving(&self) -> Result<(), MountError> {
        let stopped = self.try_stop().await;
        if stopped.is_err() {
            self.resume();
        }
        stopped
    }

    async fn try_stop(&self) -> Result<(), MountError> {
        let state = &self.state;
        let Some(journal) = &state.journal else { return Err(refused("it has no journal")) };
        let Ok(updating) =
            tokio::time::timeout(STOP_MAX, state.updating.clone().write_owned()).await
        else {
            return Err(refused("its files are being updated to a new revision; try again later"));
        };
        state.gate.close();
        let threads = state.options.thread_count();
        for _ in 0..threads {
            let point = self.point.clone();
            let _ = std::thread::Builder::new()
                .name("vouch-wake".into())
                .spawn(move || drop(rustix::fs::statvfs(&point)));
        }
        let waiting = state.clone();
        let stopped =
            tokio::task::spawn_blocking(move || waiting.gate.wait_until_stopped(threads, STOP_MAX));
        if !stopped.await.unwrap_or(false) {
            return Err(refused("requests wait for replicas; try again later"));
        }
        state.kernel.flush().await;
        if let Some(observed) = &state.observed {
            observed.record_all(journal);
        }
        journal.freeze().map_err(|error| refused(&error.to_string()))?;
        // An update would change the state handed over.
        *state.stopped_updates.lock() = Some(updating);
        Ok(())
    }

    pub fn resume(&self) {
        if let Some(journal) = &self.state.journal {
            journal.thaw();
        }
        self.state.stopped_updates.lock().take();
        self.state.gate.open();
    }
}

impl MountState {
    /// Records the mount itself, and with it all earlier changes.
    pub(crate) fn begin_journal(&self, path: &Path, device: Option<&str>) {
        let Some(journal) = &self.journal else { return };
        let mount = MountRecord {
            point: path.as_os_str().as_bytes().to_vec(),
            device: device.unwrap_or_default().into(),
            kernel: self.kernel_offer.get().copied().unwrap_or_default(),
            without_xattrs: self.without_xattrs,
            passthrough: self.open_files.is_on(),
            observed: self.observed.is_some(),
            is_namespace: matches!(self.kind, MountKind::Namespace(_)),
            is_pinned: self.options.revision.is_some(),
            only_user: (!self.options.allow_other.unwrap_or_else(is_root))
                .then(|| rustix::process::geteuid().as_raw()),
        };
        let snapshot = journal.begin_snapshot();
        journal.append([Record::Mount(mount.clone())]);
        let _ = self.mount_record.set(mount);
        self.record_all(journal);
        journal.finish_snapshot(&snapshot);
    }

    fn record_all(&self, journal: &Journal) {
        for volume in self.volumes.all() {
            volume.record_all(journal);
        }
        self.table.record_all(journal);
        self.open_files.record_all(journal);
        if let Some(observed) = &self.observed {
            observed.record_all(journal);
        }
    }
}

/// When the journal is much longer than the state.
pub(crate) async fn write_snapshots(state: Weak<MountState>) {
    loop {
        tokio::time::sleep(SNAPSHOT_INTERVAL).await;
        let Some(state) = state.upgrade() else { return };
        let Some(journal) = state.journal.clone().filter(|journal| journal.wants_snapshot()) else {
            continue;
        };
        let Ok(_updating) = state.updating.try_write() else { continue };
        let writing = state.clone();
        let written = tokio::task::spawn_blocking(move || {
            let snapshot = journal.begin_snapshot();
            journal.append(writing.mount_record.get().cloned().map(Record::Mount));
            writing.record_all(&journal);
            journal.finish_snapshot(&snapshot);
        });
        let _ = written.await;
    }
}

fn refused(why: &str) -> MountError {
    MountError::TakeOver { why: why.to_owned() }
}

const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(1);

const STOP_MAX: Duration = Duration::from_secs(10);
