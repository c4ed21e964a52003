use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use vouch_daemon::printable::printable;
use vouch_tree_client::FaultObserver;
use vouch_vfs::FileSystem;
use vouch_vfs_posix::{ExportError, IdStore, PosixFs, SnapshotFs};

use super::syntax::{Options, Source};
use super::trees::Trees;
use crate::lease::{GuardedFile, ServingRight};

pub(crate) struct FileSystemOpener {
    state: PathBuf,
    stores: Mutex<HashMap<PathBuf, Weak<IdStore>>>,
    trees: Trees,
    /// Of a shared state directory.
    right: Option<Arc<ServingRight>>,
}

impl FileSystemOpener {
    pub(crate) fn new(
        state: &Path,
        policies: Vec<PathBuf>,
        right: Option<Arc<ServingRight>>,
        fault_observer: Option<Arc<dyn FaultObserver>>,
    ) -> Self {
        FileSystemOpener {
            state: state.to_owned(),
            stores: Mutex::default(),
            trees: Trees::new(state, policies, fault_observer),
            right,
        }
    }

    pub(crate) fn open(
        &self,
        source: &Source,
        options: &Options,
    ) -> io::Result<Arc<dyn FileSystem>> {
        match source {
            Source::Directory(path) => self.directory(Path::new(OsStr::from_bytes(path)), options),
            Source::Tree(_) if options.snapshots().is_some() => Err(io::Error::other(
                "a published tree has revisions instead of snapshots; remove the option snapshots",
            )),
            Source::Tree(what) => Ok(Arc::new(self.trees.open(what)?)),
        }
    }

    fn directory(&self, path: &Path, options: &Options) -> io::Result<Arc<dyn FileSystem>> {
        let plain = vouch_vfs_posix::Options {
            cross_mounts: options.cross_mounts,
            io_mode: options.io_mode.unwrap_or_default(),
            ..vouch_vfs_posix::Options::default()
        };
        let snapshots = options.snapshots();
        match PosixFs::open(path, plain.clone()) {
            // Below a mount point or in a snapshot may be a file system without handles.
            Ok(file_system) if !options.cross_mounts && snapshots.is_none() => {
                self.log_missing_features(path, &file_system);
                return Ok(Arc::new(file_system));
            }
            Ok(_) | Err(ExportError::NeedsIds(_)) => {}
            Err(error) => return Err(plainly(error)),
        }
        let store = self.store(path)?;
        let file_system =
            PosixFs::open(path, vouch_vfs_posix::Options { ids: Some(store), ..plain })
                .map_err(plainly)?;
        self.log_missing_features(path, &file_system);
        match snapshots {
            Some(snapshots) => {
                Ok(Arc::new(SnapshotFs::open(file_system, snapshots).map_err(plainly)?))
            }
            None => Ok(Arc::new(file_system)),
        }
    }

    /// A file system that heads share should have them all.
    fn log_missing_features(&self, path: &Path, file_system: &PosixFs) {
        let export = printable(path.as_os_str().as_bytes());
        for meaning in file_system.missing_features() {
            match &self.right {
                Some(_) => tracing::warn!("the file system of {export} lacks a feature: {meaning}"),
                None => tracing::info!("the file system of {export} lacks a feature: {meaning}"),
            }
        }
    }

    /// An export with new options opens before the old one closes.
    fn store(&self, path: &Path) -> io::Result<Arc<IdStore>> {
        let hash = blake3::hash(path.as_os_str().as_bytes());
        let file = self.state.join(format!("names-{}.redb", &hash.to_hex()[..16]));
        let mut stores = self.stores.lock();
        if let Some(store) = stores.get(&file).and_then(Weak::upgrade) {
            return Ok(store);
        }
        let opened = match &self.right {
            None => IdStore::open(&file),
            Some(right) => IdStore::open_on(&file, GuardedFile::open(&file, right.clone())?),
        };
        let store = Arc::new(
            opened.map_err(|error| io::Error::other(format!("{}: {error}", file.display())))?,
        );
        stores.insert(file, Arc::downgrade(&store));
        Ok(store)
    }

    pub(crate) fn flush(&self) {
        let mut stores = self.stores.lock();
        stores.retain(|_, store| store.strong_count() > 0);
        let open: Vec<Arc<IdStore>> = stores.values().filter_map(Weak::upgrade).collect();
        drop(stores);
        for store in open {
            if let Err(error) = store.flush() {
                tracing::warn!(%error, "a store of file identifiers cannot be written; after a restart some clients will see stale files");
            }
        }
    }
}

fn plainly(error: ExportError) -> io::Error {
    match error {
        ExportError::Open { source, .. } => source,
        other => io::Error::other(other.to_string()),
    }
}
