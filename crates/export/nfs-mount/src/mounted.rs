//! Mounting, serving, unmounting.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use tokio::task::JoinHandle;
use vouch_daemon::failure::{Failure, Outcome, Why};
use vouch_tree_mount::MountError;

use crate::connect::{Connected, connect};
use crate::fuse::{Attachment, Device, Wishes, attach, negotiate};
use crate::inode::InodeTable;
use crate::mount::{FLUSH_PERIOD, Mount};
use crate::options::{MountOptions, Security};
use crate::report::NfsMountReport;
use crate::session::Session;

/// A mount that is being served.
pub struct Mounted {
    point: PathBuf,
    device: String,
    mount: Arc<Mount>,
    lease: Duration,
    serving: JoinHandle<io::Result<()>>,
}

/// Connects to the server and mounts its export. Needs a multi-threaded tokio runtime.
pub async fn mount(point: &Path, options: MountOptions) -> Outcome<Mounted> {
    vouch_tree_mount::clear_dead_mount(point).map_err(failed)?;
    let point = vouch_tree_mount::existing_directory(point).map_err(failed)?;
    let Connected { session, root, converter, lease, lock_freed } = connect(&options).await?;
    if !root.1.is_directory() {
        return Err(Failure::input(&options.source, "is not a directory"));
    }
    let attachment = Attachment {
        source: vouch_tree_mount::device_name(&options.source),
        read_only: options.read_only,
        allow_other: options.allow_other,
        default_permissions: options.checks_locally,
        suid: options.suid,
        dev: options.dev,
        exec: options.exec,
    };
    let attached = attach(&point, &attachment)
        .map_err(|error| failed(vouch_tree_mount::mount_error(&point, error)))?;
    let serving = |error| Failure::io(point.display(), error);
    let device = Device::new(attached.0).map_err(serving)?;
    let wishes = Wishes {
        io_len_max: options.io_len_max,
        read_ahead_bytes: options.read_ahead_bytes,
        idmap: options.checks_locally,
        acts_as_root: options.checks_locally && matches!(options.security, Security::Sys),
    };
    if let Err(error) = negotiate(&device, wishes).await {
        let _ = vouch_tree_mount::unmount_point(&point);
        return Err(serving(error));
    }
    let read_ahead = vouch_tree_mount::set_read_ahead(&point, options.read_ahead_bytes);
    if let Err(error) = read_ahead {
        tracing::info!("{}: the kernel's read-ahead remains at 128 KiB: {error}", point.display());
    }
    let number = vouch_tree_mount::mount_device(&point).map_err(failed)?;
    let inodes = InodeTable::new(root.0, &root.1);
    let mount =
        Arc::new(Mount::new(device, session.clone(), inodes, converter, options, lock_freed));
    tokio::spawn(Session::renew_lease(Arc::downgrade(&session), lease));
    tokio::spawn(flush_periodically(Arc::downgrade(&mount)));
    let server = mount.clone();
    let serving = tokio::spawn(async move { server.serve().await });
    Ok(Mounted { point, device: number, mount, lease, serving })
}

fn failed(error: MountError) -> Failure {
    let what = String::new();
    match &error {
        MountError::NoPoint { .. } | MountError::NoMount { .. } => {
            Failure::new(what, Why::NotFound(error.to_string()))
        }
        MountError::Point { .. } | MountError::Denied { .. } => {
            Failure::input(what, error.to_string())
        }
        MountError::Busy { .. } => {
            Failure::io(what, io::Error::new(io::ErrorKind::ResourceBusy, error.to_string()))
        }
        _ => Failure::io(what, io::Error::other(error.to_string())),
    }
}

async fn flush_periodically(mount: std::sync::Weak<Mount>) {
    loop {
        tokio::time::sleep(FLUSH_PERIOD).await;
        let Some(mount) = mount.upgrade() else { return };
        mount.flush_all();
    }
}

impl Mounted {
    pub fn point(&self) -> &Path {
        &self.point
    }

    pub fn report(&self) -> NfsMountReport {
        NfsMountReport {
            mount: self.mount.clone(),
            point: self.point.clone(),
            lease_s: self.lease.as_secs(),
        }
    }

    /// Serves until `stop` or an external unmount, then unmounts. Written data is durable then.
    pub async fn serve_until(mut self, stop: impl Future<Output = ()>) -> Outcome {
        let ended = tokio::select! {
            ended = &mut self.serving => Some(ended),
            () = stop => None,
        };
        let outcome = match ended {
            Some(Ok(Ok(()))) if !self.is_in_table() => Ok(()),
            // An abort leaves the mount in the table.
            Some(Ok(Ok(()))) => Err(self.aborted()),
            Some(Ok(Err(error))) if Errno::from_io_error(&error) == Some(Errno::CONNABORTED) => {
                Err(self.aborted())
            }
            Some(Ok(Err(error))) => Err(Failure::io(self.point.display(), error)),
            Some(Err(error)) => Err(Failure::io(self.point.display(), io::Error::other(error))),
            None => {
                let detached = self.detach();
                // Files in use keep the mount: their data is flushed, and they fail afterwards.
                let _ = tokio::time::timeout(IN_USE_MAX, &mut self.serving).await;
                detached
            }
        };
        if outcome.is_err() {
            let _ = self.detach();
        }
        let finished = tokio::time::timeout(FINISH_MAX, self.mount.flush_and_wait()).await;
        if finished.is_err() {
            tracing::warn!(
                "{}: the server did not take all written data in time",
                self.point.display()
            );
        }
        let _ = tokio::time::timeout(IN_USE_MAX, self.mount.session.client.clone().close()).await;
        outcome
    }

    fn aborted(&self) -> Failure {
        failed(MountError::Aborted { path: self.point.clone() })
    }

    /// Another mount may cover ours, or ours may be gone.
    fn is_in_table(&self) -> bool {
        vouch_tree_mount::mount_device(&self.point).is_ok_and(|device| device == self.device)
    }

    fn detach(&self) -> Outcome {
        match self.is_in_table() {
            true => vouch_tree_mount::unmount_point(&self.point).map_err(failed),
            false => Ok(()),
        }
    }
}

const IN_USE_MAX: Duration = Duration::from_secs(2);
const FINISH_MAX: Duration = Duration::from_secs(60);
