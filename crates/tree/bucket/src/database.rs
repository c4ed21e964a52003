//! Local copies of manifest and index, commit, garbage.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::Error;
use parking_lot::Mutex;
use rustix::fs::FlockOperation;
use tokio::sync::Semaphore;
use vouch_tree_store::disk::Disk;
use vouch_tree_store::{
    BucketDatabase, BucketError, BucketErrorKind, BucketLock, Garbage, LOG_CHECKPOINT, PENDING,
    RemoteView,
};

use crate::address::Address;
use crate::cache::PackCache;
use crate::config::Config;
use crate::disk::BucketDisk;
use crate::download::{beside, download};
use crate::objects::{Expected, GARBAGE, LOCK, MANIFEST, Objects};
use crate::{lock, runtime};

/// `address`: `s3://BUCKET/PREFIX`. The environment configures it. Databases of one address share
/// their state.
pub fn open(address: &str) -> io::Result<Arc<dyn BucketDatabase>> {
    static OPEN: Mutex<Option<HashMap<String, Arc<S3Database>>>> = Mutex::new(None);
    runtime::start()?;
    let parsed = Address::parse(address)?;
    let mut open = OPEN.lock();
    let open = open.get_or_insert_default();
    if let Some(database) = open.get(&parsed.to_string()) {
        return Ok(database.clone());
    }
    let database = Arc::new(S3Database::new(&parsed)?);
    open.insert(parsed.to_string(), database.clone());
    Ok(database)
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) objects: Arc<Objects>,
    pub(crate) work_dir: PathBuf,
    /// Name of the work directory. The holder of its file lock may take over its bucket lock.
    pub(crate) id: String,
    known: Mutex<Known>,
    /// The bucket may have objects that no manifest names.
    pub(crate) has_unnamed: AtomicBool,
    pub(crate) is_lock_lost: AtomicBool,
    pub(crate) uploads: Semaphore,
}

/// The bucket's manifest as last seen. Another process may have written a newer local copy.
#[derive(Debug, Default)]
struct Known {
    manifest: Option<KnownManifest>,
    read_at: Option<Instant>,
}

#[derive(Debug, Clone)]
struct KnownManifest {
    tag: String,
    generation: u64,
    hash: blake3::Hash,
}

#[derive(Debug)]
struct S3Database {
    session: Arc<Session>,
    cache: PackCache,
}

impl S3Database {
    fn new(address: &Address) -> io::Result<Self> {
        vouch_tls::install_provider();
        let config = Config::from_environment(address)?;
        let work_dir = config.work_dir;
        let local = |source: io::Error| {
            io::Error::new(source.kind(), format!("{}: {source}", work_dir.display()))
        };
        for dir in ["index", "packs", "cache"] {
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(work_dir.join(dir))
                .map_err(local)?;
        }
        let id = work_dir_id(&work_dir).map_err(local)?;
        let objects = Arc::new(Objects {
            store: config.store,
            single_deletes: config.single_deletes,
            address: address.clone(),
            endpoint: config.endpoint,
        });
        let cache = PackCache::new(work_dir.join("cache"), config.cache_len_max);
        let known = Mutex::new(Known { manifest: read_tag(&work_dir), read_at: None });
        let session = Session {
            objects,
            work_dir,
            id,
            known,
            has_unnamed: AtomicBool::new(false),
            is_lock_lost: AtomicBool::new(false),
            uploads: Semaphore::new(UPLOADS_MAX),
        };
        Ok(Self { session: Arc::new(session), cache })
    }
}

fn work_dir_id(work_dir: &Path) -> io::Result<String> {
    let path = work_dir.join("id");
    if let Ok(text) = fs::read_to_string(&path)
        && text.len() == ID_LEN * 2
    {
        return Ok(text);
    }
    let mut bytes = [0; ID_LEN];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    let next = beside(&path);
    fs::write(&next, data_encoding::HEXLOWER.encode(&bytes))?;
    fs::rename(&next, &path)?;
    fs::read_to_string(path)
}

impl BucketDatabase for S3Database {
    fn work_dir(&self) -> &Path {
        &self.session.work_dir
    }

    fn disk(&self) -> Arc<dyn Disk> {
        Arc::new(BucketDisk { session: self.session.clone() })
    }

    fn refresh(&self, age_max: Duration) -> io::Result<bool> {
        let session = self.session.clone();
        runtime::run_blocking(move || session.refresh(age_max))
    }

    fn foreign_object(&self) -> io::Result<Option<String>> {
        let objects = self.session.objects.clone();
        let top = runtime::run(async move { objects.top().await })?;
        Ok(top.into_iter().filter(|name| ![LOCK, GARBAGE, MANIFEST].contains(&name.as_str())).min())
    }

    fn lock(&self, wait: Duration) -> io::Result<BucketLock> {
        lock::take(&self.session, wait)
    }

    fn local_pack(&self, name: &str, is_fresh: bool) -> io::Result<PathBuf> {
        self.cache.get(&self.session.objects, name, is_fresh)
    }

    fn read_object(&self, object: &str, len_max: u64) -> io::Result<Option<Vec<u8>>> {
        let (objects, name) = (self.session.objects.clone(), object.to_owned());
        match runtime::run(async move { objects.get(&name, None, len_max).await }) {
            Ok(found) => Ok(found.map(|found| found.bytes.to_vec())),
            Err(error) if lock::is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn is_cached(&self, name: &str) -> bool {
        self.cache.path(name).exists()
    }

    fn list(&self, dir: &str, after: &str) -> io::Result<Vec<(String, u64)>> {
        let (objects, dir, after) =
            (self.session.objects.clone(), dir.to_owned(), after.to_owned());
        runtime::run(async move { objects.list(&dir, &after).await })
    }

    fn note_committed(&self, pack: &Path) -> io::Result<()> {
        self.cache.take(pack)
    }

    fn record_garbage(&self, named: &HashSet<String>, now_s: u64) -> io::Result<Garbage> {
        let (objects, named) = (self.session.objects.clone(), named.clone());
        runtime::run(async move { record_garbage(&objects, &named, now_s).await })
    }

    fn delete(&self, objects: &[String]) -> io::Result<()> {
        let (shared, objects) = (self.session.objects.clone(), objects.to_vec());
        runtime::run(async move { shared.delete(objects).await })
    }
}

async fn record_garbage(
    objects: &Objects,
    named: &HashSet<String>,
    now_s: u64,
) -> io::Result<Garbage> {
    let mut present = Vec::new();
    for dir in ["packs", "index"] {
        present.extend(
            objects.list(dir, "").await?.into_iter().map(|(name, _)| format!("{dir}/{name}")),
        );
    }
    let before = match objects.get(GARBAGE, None, GARBAGE_LEN_MAX).await {
        Ok(found) => found.map_or_else(Garbage::default, |found| Garbage::parse(&found.bytes)),
        Err(error) if lock::is_missing(&error) => Garbage::default(),
        Err(error) => return Err(error),
    };
    let next = before.next(present.into_iter().filter(|name| !named.contains(name)), now_s);
    if next != before {
        let put = objects.put(GARBAGE, next.to_bytes().into(), Expected::Anything).await;
        put.map_err(|error| objects.failed(GARBAGE, &error))?;
    }
    Ok(next)
}

impl Session {
    pub(crate) fn object_of(&self, path: &Path) -> Option<String> {
        let below = path.strip_prefix(&self.work_dir).ok()?.to_str()?;
        let is_object = ["packs/", "index/", "log/tile/"].iter().any(|dir| below.starts_with(dir))
            && !below.contains("/.");
        is_object.then(|| below.to_owned())
    }

    fn refresh(&self, age_max: Duration) -> io::Result<bool> {
        let mut known = self.known.lock();
        if known.read_at.is_some_and(|at| at.elapsed() < age_max) {
            return Ok(known.manifest.is_some());
        }
        let _alone = self.lock_copies()?;
        // Another process may have changed the copy.
        if let Some(manifest) = &known.manifest
            && fs::read(self.work_dir.join(MANIFEST))
                .map_or(true, |bytes| blake3::hash(&bytes) != manifest.hash)
        {
            known.manifest = read_tag(&self.work_dir);
        }
        let (objects, tag) =
            (self.objects.clone(), known.manifest.as_ref().map(|manifest| manifest.tag.clone()));
        match runtime::run(async move { objects.get(MANIFEST, tag, MANIFEST_LEN_MAX).await }) {
            Ok(None) => {}
            Ok(Some(found)) => {
                known.manifest =
                    Some(self.copy(&found.bytes, found.tag, known.manifest.as_ref())?)
            }
            Err(error) if lock::is_missing(&error) => {
                self.forget_copies();
                known.manifest = None;
            }
            Err(error) => return Err(error),
        }
        known.read_at = Some(Instant::now());
        Ok(known.manifest.is_some())
    }

    /// The index first, then the manifest that names it.
    fn copy(
        &self,
        bytes: &Bytes,
        tag: String,
        before: Option<&KnownManifest>,
    ) -> io::Result<KnownManifest> {
        let at = |error: vouch_tree_store::Error| {
            self.objects.invalid(MANIFEST, format_args!("{error}"))
        };
        let view = RemoteView::parse(bytes).map_err(at)?;
        let path = self.work_dir.join(MANIFEST);
        let copied = fs::read(&path).ok().and_then(|bytes| RemoteView::parse(&bytes).ok());
        // A recreated or restored database uses its numbers again.
        let is_later = copied.is_some_and(|copied| {
            copied.iv() == view.iv() && copied.generation() <= view.generation()
        });
        if !is_later {
            self.forget_copies();
        }
        let (objects, index) = (self.objects.clone(), self.work_dir.clone());
        let missing: Vec<_> = view
            .segments()
            .into_iter()
            .filter(|segment| {
                fs::metadata(index.join(&segment.path))
                    .map_or(true, |found| found.len() != segment.len)
            })
            .collect();
        runtime::run(async move {
            let downloads = missing.into_iter().map(|segment| {
                let (objects, to) = (objects.clone(), index.join(&segment.path));
                async move { download(&objects, &segment.path, &to, Some(segment.len)).await }
            });
            futures_util::stream::iter(downloads)
                .buffer_unordered(DOWNLOADS_MAX)
                .try_collect::<Vec<()>>()
                .await
        })?;
        let next = beside(&path);
        fs::write(&next, bytes)?;
        fs::rename(&next, &path)?;
        self.remove_old_segments(&view);
        let known = KnownManifest { tag, generation: view.generation(), hash: blake3::hash(bytes) };
        self.write_tag(&known);
        tracing::debug!(database = %self.objects.address, generation = view.generation(), before = ?before.map(|before| before.generation), "read");
        Ok(known)
    }

    /// Only copies that the manifest has replaced.
    fn remove_old_segments(&self, view: &RemoteView) {
        let named: HashSet<String> =
            view.segments().into_iter().map(|segment| segment.path).collect();
        for entry in fs::read_dir(self.work_dir.join("index")).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let number = name
                .strip_suffix(".segment")
                .and_then(|number| u32::from_str_radix(number, 16).ok());
            // Higher numbers belong to a writer of this machine, which removes them itself.
            if number.is_some_and(|number| number < view.next_segment())
                && !named.contains(&format!("index/{name}"))
            {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    fn forget_copies(&self) {
        let _ = fs::remove_file(self.work_dir.join(MANIFEST));
        for dir in ["index", "cache"] {
            for entry in fs::read_dir(self.work_dir.join(dir)).into_iter().flatten().flatten() {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// The manifest must still be the expected one. Then replaces the local copy.
    pub(crate) fn replace_manifest(
        &self,
        bytes: Bytes,
        replace_copy: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        self.check_lock()?;
        let invalid = |error: vouch_tree_store::Error| {
            self.objects.invalid(MANIFEST, format_args!("{error}"))
        };
        let generation = RemoteView::parse(&bytes).map_err(invalid)?.generation();
        let mut known = self.known.lock();
        let expected = match &known.manifest {
            None if generation == 1 => Expected::Nothing,
            Some(before) if before.generation + 1 == generation => {
                Expected::Tag(before.tag.clone())
            }
            _ => return Err(self.overtaken().into()),
        };
        let (objects, content) = (self.objects.clone(), bytes.clone());
        let put = runtime::run(async move { Ok(put_manifest(&objects, content, expected).await) })?;
        let tag = match put {
            Ok(tag) => tag,
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {
                return Err(self.overtaken().into());
            }
            Err(error) => return Err(self.objects.failed(MANIFEST, &error).into()),
        };
        let _alone = self.lock_copies()?;
        replace_copy()?;
        let new = KnownManifest { tag, generation, hash: blake3::hash(&bytes) };
        self.write_tag(&new);
        *known = Known { manifest: Some(new), read_at: Some(Instant::now()) };
        self.has_unnamed.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// A follower of the manifest: the next writer mends it.
    pub(crate) fn replace_checkpoint(&self, bytes: Bytes) -> io::Result<()> {
        self.check_lock()?;
        let objects = self.objects.clone();
        runtime::run(async move {
            let put = objects.put(LOG_CHECKPOINT, bytes, Expected::Anything).await;
            put.map(drop).map_err(|error| objects.failed(LOG_CHECKPOINT, &error).into())
        })
    }

    /// A killed writer may have left another file of this name, which no manifest names. A writer
    /// that has lost the lock replaces nothing: it reads the tag before it asks for the lock.
    pub(crate) async fn put_log_file(&self, object: &str, bytes: Bytes) -> io::Result<()> {
        let Err(error) = self.objects.create(object, bytes.clone()).await else { return Ok(()) };
        let Ok(Some(left)) = self.objects.get(object, None, LOG_FILE_LEN_MAX).await else {
            return Err(error);
        };
        self.confirm_lock().await?;
        let put = self.objects.put(object, bytes, Expected::Tag(left.tag)).await;
        put.map(drop).map_err(|error| self.objects.failed(object, &error).into())
    }

    /// Nobody has seen it if this fails: another writer took the lock before it could find it.
    pub(crate) fn put_pending(self: &Arc<Self>, bytes: Bytes) -> io::Result<()> {
        let session = self.clone();
        runtime::run(async move {
            session.put_log_file(PENDING, bytes).await?;
            session.confirm_lock().await
        })
    }

    fn overtaken(&self) -> BucketError {
        let text = format!(
            "{}: another writer has committed since this command began; its revision stays in force and nothing of this one is visible; run the command again",
            self.objects.address
        );
        BucketError { kind: BucketErrorKind::Busy, text }
    }

    fn lock_copies(&self) -> io::Result<File> {
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.work_dir.join("copies.lock"))?;
        rustix::io::retry_on_intr(|| rustix::fs::flock(&file, FlockOperation::LockExclusive))?;
        Ok(file)
    }

    /// Without the tag, the next process reads the manifest again.
    fn write_tag(&self, known: &KnownManifest) {
        let path = self.work_dir.join("manifest.tag");
        let next = beside(&path);
        let text = format!("{} {} {}", known.hash.to_hex(), known.generation, known.tag);
        let _ = fs::write(&next, text).and_then(|()| fs::rename(&next, &path));
    }
}

/// After an unclear failure, the bucket's content decides.
async fn put_manifest(
    objects: &Objects,
    bytes: Bytes,
    expected: Expected,
) -> Result<String, Error> {
    let error = match objects.put(MANIFEST, bytes.clone(), expected).await {
        Ok(tag) => return Ok(tag),
        Err(error) => error,
    };
    match objects.get(MANIFEST, None, MANIFEST_LEN_MAX).await {
        Ok(Some(found)) if found.bytes == bytes => Ok(found.tag),
        _ => Err(error),
    }
}

fn read_tag(work_dir: &Path) -> Option<KnownManifest> {
    let text = fs::read_to_string(work_dir.join("manifest.tag")).ok()?;
    let mut words = text.splitn(3, ' ');
    let hash = blake3::Hash::from_hex(words.next()?).ok()?;
    let generation = words.next()?.parse().ok()?;
    let tag = words.next()?.to_owned();
    let bytes = fs::read(work_dir.join(MANIFEST)).ok()?;
    (blake3::hash(&bytes) == hash).then_some(KnownManifest { tag, generation, hash })
}

const ID_LEN: usize = 16;
/// Packs of 32 MiB, read into memory: 256 MiB.
const UPLOADS_MAX: usize = 8;
const DOWNLOADS_MAX: usize = 4;
/// Enough for four million packs and revisions.
const MANIFEST_LEN_MAX: u64 = 128 << 20;
const GARBAGE_LEN_MAX: u64 = 64 << 20;
/// A bundle of 256 entries of 64 KiB.
const LOG_FILE_LEN_MAX: u64 = 17 << 20;
