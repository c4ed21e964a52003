//! Files of the work directory, whose syncs upload them.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use parking_lot::Mutex;
use vouch_tree_store::disk::{Disk, DiskFile, SystemDisk};
use vouch_tree_store::{LOG_CHECKPOINT, LOG_DIR, PENDING};

use crate::database::Session;
use crate::objects::WHOLE_LEN_MAX;
use crate::runtime::{self, Task};

#[derive(Debug)]
pub(crate) struct BucketDisk {
    pub(crate) session: Arc<Session>,
}

impl BucketDisk {
    fn file(&self, path: &Path, local: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        let object = self.session.object_of(path);
        Arc::new(UploadedFile {
            session: self.session.clone(),
            path: path.to_owned(),
            object,
            local,
            upload: Mutex::default(),
        })
    }
}

impl Disk for BucketDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        SystemDisk.create_dir(path)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.file(path, SystemDisk.create(path)?))
    }

    fn reopen(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.file(path, SystemDisk.reopen(path)?))
    }

    fn truncate(&self, path: &Path, len: u64) -> io::Result<()> {
        SystemDisk.truncate(path, len)
    }

    /// The manifest, which is the commit, the log's checkpoint, and a pending revision.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let below = to.strip_prefix(&self.session.work_dir).unwrap_or(to);
        if below == Path::new(LOG_CHECKPOINT) {
            self.session.replace_checkpoint(fs::read(from)?.into())?;
            return SystemDisk.remove(from);
        }
        if below == Path::new(PENDING) {
            self.session.put_pending(fs::read(from)?.into())?;
            return SystemDisk.remove(from);
        }
        self.session.replace_manifest(fs::read(from)?.into(), || SystemDisk.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        SystemDisk.remove(path)
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
struct UploadedFile {
    session: Arc<Session>,
    path: PathBuf,
    /// `None` for files that stay local.
    object: Option<String>,
    local: Arc<dyn DiskFile>,
    upload: Mutex<Upload>,
}

#[derive(Debug, Default)]
enum Upload {
    #[default]
    NotStarted,
    Running(Task<()>),
    Done,
}

impl DiskFile for UploadedFile {
    fn append(&self, parts: &[&[u8]]) -> io::Result<()> {
        self.local.append(parts)
    }

    fn start_sync(&self) {
        let mut upload = self.upload.lock();
        if let (Upload::NotStarted, Some(object)) = (&*upload, &self.object) {
            *upload = Upload::Running(start(&self.session, self.path.clone(), object.clone()));
        }
    }

    fn sync(&self) -> io::Result<()> {
        if self.object.is_none() {
            return Ok(());
        }
        self.start_sync();
        let mut upload = self.upload.lock();
        if let Upload::Running(task) = &*upload {
            task.wait()?;
            *upload = Upload::Done;
        }
        Ok(())
    }
}

fn start(session: &Arc<Session>, path: PathBuf, object: String) -> Task<()> {
    let session = session.clone();
    session.has_unnamed.store(true, Ordering::Relaxed);
    runtime::spawn(async move {
        let _permit = session.uploads.acquire().await.map_err(io::Error::other)?;
        session.check_lock()?;
        let len = File::open(&path)?.metadata()?.len();
        if len > WHOLE_LEN_MAX {
            return session.objects.create_in_parts(&object, path).await;
        }
        let bytes = Bytes::from(tokio::fs::read(&path).await?);
        if object.starts_with(LOG_DIR) {
            return session.put_log_file(&object, bytes).await;
        }
        session.objects.create(&object, bytes).await
    })
}
