//! The published tree: its database before and after the release, as files of a web server.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use vouch_tree::key::{SecretKey, SigningCert};
use vouch_tree::{Iv, TreeName};
use vouch_tree_publish::{Options, Progress, Signer, publish};
use vouch_tree_store::{Database, WriteOptions};

use crate::Error;

/// Start of the simulation, in seconds since 1970.
pub(crate) const EPOCH: u64 = 1_900_000_000;

/// Clients refresh after a quarter of it.
const DURATION_S: u32 = 3600;

pub(crate) type WebFiles = HashMap<String, Bytes>;

pub type Job = Arc<Vec<String>>;

pub struct Release {
    pub(crate) name: TreeName,
    pub(crate) before: Arc<WebFiles>,
    pub(crate) after: Arc<WebFiles>,
    pub(crate) job: Job,
    pub(crate) job_bytes: u64,
}

/// A database on disk, for a real web server.
pub struct Site {
    pub dir: tempfile::TempDir,
    /// Its host is not reachable.
    pub name: TreeName,
    key: SecretKey,
    cert: SigningCert,
    pack_len_max: u32,
}

impl Site {
    pub fn create(pack_len_max: u32) -> Result<Self, Error> {
        let dir =
            tempfile::tempdir().map_err(|error| Error::Io { path: std::env::temp_dir(), error })?;
        let (root, key) = (SecretKey::from_seed(&[1; 32]), SecretKey::from_seed(&[2; 32]));
        let cert = SigningCert::issue(&root, key.public(), 1, 0, u64::MAX / 2);
        let name = TreeName::new("origin.invalid", root.public().hostid()).map_err(publishing)?;
        let site = Self { dir, name, key, cert, pack_len_max };
        Database::create(&site.database(), *site.name.hostid(), Iv::from_bytes([3; 32]))
            .map_err(publishing)?;
        std::fs::create_dir(site.source())
            .map_err(|error| Error::Io { path: site.source(), error })?;
        Ok(site)
    }

    fn database(&self) -> PathBuf {
        self.dir.path().join("db")
    }

    pub fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    /// `start`: seconds since 1970.
    pub fn publish(&self, source: &Path, start: u64) -> Result<(), Error> {
        let options = WriteOptions { pack_len: Some(self.pack_len_max), ..WriteOptions::default() };
        let writer = Database::open_write(&self.database(), options).map_err(publishing)?;
        // Several threads would fill packs in another order each time.
        let options = Options {
            level: 0,
            threads: 1,
            ..Options::new(source.to_owned(), self.name.clone(), start, DURATION_S)
        };
        let signer = Signer { key: &self.key, cert: self.cert.clone() };
        publish(&writer, &signer, &options, &Progress::default()).map(drop).map_err(publishing)
    }

    /// A synthetic program of `files` files with the lengths of a Python package's. The published
    /// tree is the same each time.
    pub fn add_program(&self, name: &str, files: usize) -> Result<Job, Error> {
        let mut job = Vec::with_capacity(files);
        for number in 0..files {
            let path = format!("{name}/dir{}/file{number}", number / FILES_PER_DIRECTORY);
            write(&self.source().join(&path), &content(name, number))?;
            job.push(path);
        }
        for number in 0..files.div_ceil(FILES_PER_DIRECTORY) {
            set_modified(&self.source().join(format!("{name}/dir{number}")))?;
        }
        set_modified(&self.source().join(name))?;
        set_modified(&self.source())?;
        Ok(Arc::new(job))
    }
}

impl Release {
    /// Ten synthetic programs, then one more, which the job reads.
    pub fn synthetic(files: usize, pack_len_max: u32) -> Result<Self, Error> {
        let site = Site::create(pack_len_max)?;
        for number in 0..10 {
            site.add_program(&format!("old{number}"), files)?;
        }
        site.publish(&site.source(), EPOCH - 10)?;
        let before = read_database(&site.database(), &WebFiles::new())?;
        let job = site.add_program("new", files)?;
        site.publish(&site.source(), EPOCH)?;
        Self::of(&site, &site.source(), before, job)
    }

    /// Releases `source` into an empty tree. The job reads the files of `job`, or all if it is
    /// empty.
    pub fn of_directory(source: &Path, job: Vec<String>, pack_len_max: u32) -> Result<Self, Error> {
        let site = Site::create(pack_len_max)?;
        site.publish(&site.source(), EPOCH - 10)?;
        let before = read_database(&site.database(), &WebFiles::new())?;
        site.publish(source, EPOCH)?;
        let job = if job.is_empty() { files_below(source)? } else { job };
        Self::of(&site, source, before, Arc::new(job))
    }

    fn of(site: &Site, source: &Path, before: WebFiles, job: Job) -> Result<Self, Error> {
        let after = read_database(&site.database(), &before)?;
        let len = |path: &String| {
            let path = source.join(path);
            std::fs::metadata(&path)
                .map(|found| found.len())
                .map_err(|error| Error::Io { path, error })
        };
        let job_bytes = job.iter().map(len).sum::<Result<u64, Error>>()?;
        Ok(Self {
            name: site.name.clone(),
            before: Arc::new(before),
            after: Arc::new(after),
            job,
            job_bytes,
        })
    }
}

fn publishing(error: impl std::fmt::Display) -> Error {
    Error::Publish(error.to_string())
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let dir = path.parent().unwrap_or(path);
    std::fs::create_dir_all(dir)
        .and_then(|()| std::fs::write(path, bytes))
        .map_err(|error| Error::Io { path: path.into(), error })?;
    set_modified(path)
}

/// The handles of metadata depend on times.
fn set_modified(path: &Path) -> Result<(), Error> {
    let time = UNIX_EPOCH + Duration::from_secs(1_600_000_000);
    std::fs::File::open(path)
        .and_then(|file| file.set_modified(time))
        .map_err(|error| Error::Io { path: path.into(), error })
}

/// Incompressible.
fn content(name: &str, number: usize) -> Vec<u8> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(name.as_bytes()).update(&number.to_le_bytes());
    let mut output = hasher.finalize_xof();
    let mut random = [0; 8];
    output.fill(&mut random);
    // From 256 bytes to 1 MiB; each doubling is rarer than the one before.
    let doublings = u64::from_le_bytes(random).trailing_zeros().min(6) * 2;
    let mut bytes = vec![0; (256 << doublings) + usize::from(random[7]) * (1 << doublings)];
    output.fill(&mut bytes);
    bytes
}

fn read_database(dir: &Path, known: &WebFiles) -> Result<WebFiles, Error> {
    let mut files = WebFiles::new();
    for path in files_below(dir)? {
        let is_immutable = path.starts_with("packs/") || path.starts_with("index/");
        let bytes = match known.get(&path).filter(|_| is_immutable) {
            Some(bytes) => bytes.clone(),
            None => Bytes::from(
                std::fs::read(dir.join(&path))
                    .map_err(|error| Error::Io { path: dir.join(&path), error })?,
            ),
        };
        files.insert(path, bytes);
    }
    Ok(files)
}

fn files_below(dir: &Path) -> Result<Vec<String>, Error> {
    let (mut files, mut dirs) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(below) = dirs.pop() {
        let at = dir.join(&below);
        let io = |error| Error::Io { path: at.clone(), error };
        for entry in std::fs::read_dir(&at).map_err(io)? {
            let entry = entry.map_err(io)?;
            let (path, kind) = (below.join(entry.file_name()), entry.file_type().map_err(io)?);
            if kind.is_dir() {
                dirs.push(path);
            } else if kind.is_file() {
                files.extend(path.to_str().map(str::to_owned));
            }
        }
    }
    files.sort();
    Ok(files)
}

const FILES_PER_DIRECTORY: usize = 20;
