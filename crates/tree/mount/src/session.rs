//! Mounting, serving, unmounting.

use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;

use fuser::Session;
use parking_lot::Mutex;
use rustix::io::Errno;
use tokio::sync::oneshot;
use vouch_tree::inode_number::{InodeNumber as NodeId, InodeNumbering};
use vouch_tree_client::{Client, Tree};

use crate::attributes::without_inline;
use crate::config::{MountConfig, MountOptions, Passthrough, XattrMode, is_root};
use crate::error::MountError;
use crate::error_log::ErrorLog;
use crate::filesystem::FuseFilesystem;
use crate::gate::Gate;
use crate::kernel_notices::{self, KernelNotices, Notice};
use crate::late_reads::LateReads;
use crate::namespace::{Namespace, NamespaceTrees};
use crate::node_table::NodeTable;
use crate::observer::TreeEvent;
use crate::open_files::OpenFiles;
use crate::request::ObserverState;
use crate::state::{MountKind, MountState};
use crate::status::{MountMonitor, MountStatus, RequestCounts};
use crate::volume::{Volume, VolumeRegistry};
use crate::{fuse_device, mount_point, revision_update, take_over};

pub struct Mounted {
    point: PathBuf,
    device: Option<String>,
    pub(crate) state: Arc<MountState>,
    ended: oneshot::Receiver<io::Result<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Needs a multi-threaded tokio runtime, and starts threads of its own.
pub async fn mount_tree(config: MountConfig, tree: Arc<Tree>) -> Result<Mounted, MountError> {
    let pinned = config.options.revision.clone();
    let fsinfo = pinned.clone().unwrap_or_else(|| tree.newest()).fsinfo.clone();
    let without_xattrs = match config.options.xattrs {
        XattrMode::Auto => fsinfo.counts.with_xattrs == 0,
        XattrMode::On => false,
        XattrMode::Off => true,
    };
    let label = tree.name().to_string();
    let numbering = InodeNumbering::of_tree(&fsinfo.hostid);
    let volumes = VolumeRegistry::new(&config.options)?;
    let volume = volumes.add(tree.clone(), numbering, NodeId::ROOT, label.clone(), pinned);
    let root = without_inline(volume.shown().root());
    let keeps_whole_files = tree.keeps_whole_files();
    let source = MountSource {
        kind: MountKind::Tree(volume.clone()),
        volumes,
        without_xattrs,
        keeps_whole_files,
    };
    let point = config.point;
    let state = source.state(config.options, Some((Some(volume.clone()), root)));
    let mounted = mount(point, state, &label).await?;
    mounted.state.observe_event(&TreeEvent::Shown {
        tree: &label,
        revision: volume.shown().number(),
        before: None,
    });
    tokio::spawn(revision_update::follow(Arc::downgrade(&mounted.state), volume));
    Ok(mounted)
}

/// `@HOST[:PORT],HOSTID` appears when it is looked up. Short names are symbolic links.
pub async fn mount_namespace(
    config: MountConfig,
    client: Arc<Client>,
    trees: NamespaceTrees,
) -> Result<Mounted, MountError> {
    let without_xattrs = config.options.xattrs == XattrMode::Off;
    let keeps_whole_files = client.cache_usage().disk_quota_bytes > 0;
    let kind = MountKind::Namespace(Box::new(Namespace::new(client, trees)));
    let volumes = VolumeRegistry::new(&config.options)?;
    let source = MountSource { kind, volumes, without_xattrs, keeps_whole_files };
    let point = config.point;
    let state = source.state(config.options, Some((None, Namespace::root())));
    mount(point, state, "auto").await
}

pub(crate) struct MountSource {
    pub(crate) kind: MountKind,
    pub(crate) volumes: VolumeRegistry,
    pub(crate) without_xattrs: bool,
    pub(crate) keeps_whole_files: bool,
}

impl MountSource {
    pub(crate) fn state(
        self,
        mut options: MountOptions,
        root: Option<(Option<Arc<Volume>>, vouch_tree::Inode)>,
    ) -> (Arc<MountState>, mpsc::Receiver<Notice>) {
        if let Some(limit) =
            mount_point::request_timeout().filter(|limit| *limit <= options.deadline)
        {
            // A failed read is better than the end of the mount.
            options.deadline = limit * 3 / 4;
            tracing::warn!(
                "the kernel ends a mount whose request takes {limit:?} (fs.fuse.max_request_timeout), so requests fail after {:?}; raise the limit, or lower --timeout",
                options.deadline
            );
        }
        let MountSource { kind, volumes, without_xattrs, keeps_whole_files } = self;
        let (kernel, notices) = KernelNotices::channel();
        let journal = volumes.journal();
        // Without whole files, open requests would cost time and gain nothing.
        let wants_passthrough =
            options.passthrough != Passthrough::Never && keeps_whole_files && is_root();
        let state = Arc::new(MountState {
            table: NodeTable::new(journal.clone()),
            kernel,
            runtime: tokio::runtime::Handle::current(),
            error_log: ErrorLog::default(),
            kind,
            without_xattrs,
            wants_passthrough,
            open_files: OpenFiles::new(journal.clone()),
            observed: options
                .observer
                .clone()
                .map(|observer| ObserverState::new(observer, journal.clone())),
            journal,
            request_counts: RequestCounts::default(),
            late_reads: LateReads::default(),
            options,
            volumes,
            gate: Gate::default(),
            updating: Arc::default(),
            stopped_updates: Mutex::default(),
            mount_record: OnceLock::new(),
            device: OnceLock::new(),
            kernel_offer: OnceLock::new(),
        });
        if let Some((volume, root)) = root {
            state.table.insert_root(volume, Arc::new(root));
        }
        (state, notices)
    }
}

async fn mount(
    point: PathBuf,
    state: (Arc<MountState>, mpsc::Receiver<Notice>),
    source: &str,
) -> Result<Mounted, MountError> {
    let (state, notices) = state;
    let label = source.to_owned();
    let mounting = state.clone();
    let starting = tokio::task::spawn_blocking(move || {
        mount_point::clear_dead_mount(&point)?;
        let path = mount_point::existing_directory(&point)?;
        let session =
            new_session(&path, &label, &mounting).map_err(|source| mount_error(&path, source))?;
        let serving =
            serve(session, &mounting, notices).inspect_err(|_| drop(mount_point::detach(&path)))?;
        if let Err(error) = mount_point::set_read_ahead(&path, mounting.options.read_ahead_bytes) {
            tracing::info!(
                "{}: the kernel's read-ahead remains at 128 KiB: {error}",
                path.display()
            );
        }
        let device = mount_point::device_at(&path);
        mounting.begin_journal(&path, device.as_deref());
        Ok(Mounted::new(path, device, mounting, serving))
    });
    let failed = |error: tokio::task::JoinError| MountError::Io {
        doing: "mounting",
        path: PathBuf::new(),
        source: error.into(),
    };
    starting.await.map_err(failed)?
}

fn new_session(
    path: &Path,
    label: &str,
    state: &Arc<MountState>,
) -> io::Result<Session<FuseFilesystem>> {
    let (face, config) = (FuseFilesystem::new(state.clone()), state.options.session(label));
    match mount_point::attach(path, label, &state.options)? {
        Some(device) => Session::from_fd(face, device, config.acl, config)
            .inspect_err(|_| drop(mount_point::detach(path))),
        None => Session::new(face, path, &config),
    }
}

pub(crate) type Serving = (oneshot::Receiver<io::Result<()>>, JoinHandle<()>);

pub(crate) fn serve(
    session: Session<FuseFilesystem>,
    state: &Arc<MountState>,
    notices: mpsc::Receiver<Notice>,
) -> Result<Serving, MountError> {
    let failed =
        |doing| move |source| MountError::Io { doing, path: PathBuf::from("/dev/fuse"), source };
    let device = Arc::new(session.as_fd().try_clone_to_owned().map_err(failed("duplicating"))?);
    if state.journal.is_some()
        && !state.kernel_offer.get().is_some_and(|kernel| fuse_device::can_resend(*kernel))
    {
        // A kill then fails the requests that this process has read.
        let clone = fuse_device::clone_device(&device).map_err(failed("cloning"))?;
        fuse_device::replace_descriptor(session.as_fd(), &clone).map_err(failed("cloning"))?;
    }
    let _ = state.device.set(device);
    kernel_notices::run(session.notifier(), notices).map_err(failed("starting a thread for"))?;
    let (end, ended) = oneshot::channel();
    let serve = move || {
        let _ = end.send(session.run());
    };
    let thread = std::thread::Builder::new()
        .name("vouch-fuse".into())
        .spawn(serve)
        .map_err(failed("starting a thread for"))?;
    Ok((ended, thread))
}

impl Mounted {
    pub(crate) fn new(
        point: PathBuf,
        device: Option<String>,
        state: Arc<MountState>,
        serving: Serving,
    ) -> Self {
        let (ended, thread) = serving;
        if state.journal.is_some() {
            tokio::spawn(take_over::write_snapshots(Arc::downgrade(&state)));
        }
        Self { point, device, state, ended, thread: Some(thread) }
    }

    pub fn device_number(&self) -> Option<&str> {
        self.device.as_deref()
    }

    pub fn point(&self) -> &Path {
        &self.point
    }

    pub fn status(&self) -> MountStatus {
        self.state.status(&self.point)
    }

    pub fn monitor(&self) -> MountMonitor {
        MountMonitor { point: self.point.clone(), state: self.state.clone() }
    }

    /// Serves until `stop` or an external unmount, then unmounts.
    pub async fn serve_until(mut self, stop: impl Future<Output = ()>) -> Result<(), MountError> {
        let ended = tokio::select! {
            ended = &mut self.ended => Some(ended),
            () = stop => None,
        };
        let state = self.state.clone();
        let outcome = match ended {
            // The kernel reports an unmount and an abort of the connection alike, but leaves the
            // mount in the table only after an abort.
            Some(Ok(Ok(())) | Err(_)) if !self.is_in_table() => {
                self.thread.take();
                Ok(())
            }
            Some(Ok(Err(source)))
                if source.raw_os_error() != Some(Errno::CONNABORTED.raw_os_error()) =>
            {
                self.detach_once()?;
                Err(MountError::Io { doing: "serving", path: self.point.clone(), source })
            }
            Some(_) => {
                self.detach_once()?;
                Err(MountError::Aborted { path: self.point.clone() })
            }
            None => self.unmount().await,
        };
        state.end_all_open_files();
        outcome
    }

    /// Open files fail when the process ends.
    pub async fn unmount(mut self) -> Result<(), MountError> {
        self.detach_once()?;
        // Open files keep the session, so do not wait for them.
        let _ = tokio::time::timeout(GRACE, &mut self.ended).await;
        Ok(())
    }

    fn is_in_table(&self) -> bool {
        mount_point::device_at(&self.point) == self.device
    }

    fn detach_once(&mut self) -> Result<(), MountError> {
        // Another mount may cover ours, or ours may be gone.
        let is_there = self.thread.take().is_some() && self.is_in_table();
        if is_there { mount_point::detach(&self.point) } else { Ok(()) }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = self.detach_once() {
            tracing::warn!("{error}");
        }
    }
}

/// The cause of a refused mount, and its cure.
pub fn mount_error(path: &Path, source: io::Error) -> MountError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::NotFound if Path::new("/dev/fuse").exists() => MountError::NoFusermount,
        io::ErrorKind::NotFound => MountError::NoFuse { source },
        // fusermount3 opens the device with the caller's rights.
        io::ErrorKind::PermissionDenied if !is_device_open_to_us() => MountError::NoFuse { source },
        io::ErrorKind::PermissionDenied => MountError::Denied {
            path,
            why: format!(
                "{source}; an ordinary user must own the directory, and needs user_allow_other in /etc/fuse.conf to allow other users"
            ),
        },
        _ => MountError::Io { doing: "mounting", path, source },
    }
}

fn is_device_open_to_us() -> bool {
    std::fs::File::options().read(true).write(true).open("/dev/fuse").is_ok()
}

const GRACE: std::time::Duration = std::time::Duration::from_secs(2);
