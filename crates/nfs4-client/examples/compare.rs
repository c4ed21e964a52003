//! Compares an export with a local directory, names and bytes: `compare ADDRESS EXPORT DIRECTORY`.
//! Regular files, directories and symbolic links; of what this user can't read here only the name.
//! Fails at the first difference.

use std::collections::BTreeSet;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use vouch_nfs4::attr::FileType;
use vouch_nfs4::op::ShareAccess;
use vouch_nfs4::{Filehandle, Status, Verifier};
use vouch_nfs4_client::{Client, Config, Error, Identity, Plain};
use vouch_oncrpc::AuthSys;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, address, export, directory] = &arguments[..] else { return Err("usage: compare ADDRESS EXPORT DIRECTORY".into()) };
    let began = Instant::now();
    let life = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64;
    let me = std::fs::metadata("/proc/self")?;
    let user = Plain::sys(&AuthSys { machine_name: b"compare".to_vec(), uid: me.uid(), gid: me.gid(), ..AuthSys::default() });
    let client = Client::connect(Config::new(
        address.parse()?,
        2,
        Identity::new(format!("vouch compare {life}"), Verifier(life.to_be_bytes())),
        user,
    ))
    .await?;
    let root = client.walk(export.as_bytes()).await?;
    let work = Arc::new(Work { client, turns: Semaphore::new(TURNS), files: AtomicU64::new(0), bytes: AtomicU64::new(0) });
    let mut tasks = JoinSet::new();
    let mut left = vec![(root.handle, PathBuf::from(directory))];
    let mut names = 0;
    while let Some((handle, path)) = left.pop() {
        let entries = work.client.list(&handle, usize::MAX).await?;
        let there: BTreeSet<Vec<u8>> = entries.iter().map(|entry| entry.name.clone()).collect();
        let here = std::fs::read_dir(&path)?.map(|entry| Ok(entry?.file_name().into_vec())).collect::<std::io::Result<BTreeSet<_>>>()?;
        if let Some(odd) = there.symmetric_difference(&here).next() {
            return Err(format!("{}: {} is on one side only", path.display(), String::from_utf8_lossy(odd)).into());
        }
        names += entries.len();
        for entry in entries {
            let below = path.join(std::ffi::OsStr::from_bytes(&entry.name));
            match entry.kind {
                Some(FileType::Directory) => {
                    let found = found(&work.client, &handle, &entry.name).await?;
                    left.push((found, below));
                }
                Some(FileType::Regular) => {
                    let (work, handle) = (work.clone(), handle);
                    let turn = work.clone();
                    // Not more tasks than take turns: a tree has millions of files.
                    let _turn = turn.turns.acquire().await?;
                    tasks.spawn(async move { work.regular(&handle, &entry.name, below).await });
                }
                Some(FileType::Symlink) => {
                    let link = found(&work.client, &handle, &entry.name).await?;
                    if work.client.readlink(&link).await? != std::fs::read_link(&below)?.into_os_string().into_vec() {
                        return Err(format!("{}: another target", below.display()).into());
                    }
                }
                _ => {}
            }
            while let Some(done) = tasks.try_join_next() {
                done??;
            }
        }
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    let (files, bytes) = (work.files.load(Ordering::Relaxed), work.bytes.load(Ordering::Relaxed));
    println!("{names} names and {files} files of {} MiB are the same, {:.1} s", bytes >> 20, began.elapsed().as_secs_f64());
    Ok(())
}

struct Work {
    client: Client,
    turns: Semaphore,
    files: AtomicU64,
    bytes: AtomicU64,
}

impl Work {
    async fn regular(&self, directory: &Filehandle, name: &[u8], path: PathBuf) -> Result<(), Failure> {
        let _turn = self.turns.acquire().await?;
        let Ok(local) = std::fs::File::open(&path) else { return Ok(()) };
        let file = loop {
            match self.client.open(directory, name, ShareAccess::READ, None).await {
                // A server that has just been started lets nobody open for a while; a tree's bytes may have to come first.
                Err(error) if matches!(error.status(), Some(Status::GRACE | Status::DELAY)) => {
                    tokio::time::sleep(Duration::from_millis(200)).await
                }
                opened => break opened?,
            }
        };
        let mut at = 0;
        loop {
            let (piece, eof) = match self.client.read(&file, at, PIECE).await {
                Err(error) if error.status() == Some(Status::DELAY) => {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    continue;
                }
                piece => piece?,
            };
            let mut own = vec![0; piece.len()];
            local.read_exact_at(&mut own, at).map_err(|error| format!("{}: {error}", path.display()))?;
            if own != piece {
                return Err(format!("{}: differs within {} bytes at {at}", path.display(), piece.len()).into());
            }
            at += piece.len() as u64;
            if eof {
                break;
            }
        }
        if local.metadata()?.size() != at {
            return Err(format!("{}: another length", path.display()).into());
        }
        self.client.close_file(file).await?;
        self.files.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(at, Ordering::Relaxed);
        Ok(())
    }
}

async fn found(client: &Client, directory: &Filehandle, name: &[u8]) -> Result<Filehandle, Error> {
    let reply = client.compound().putfh(directory).lookup(name).getfh().send().await?;
    let mut results = reply.results();
    results.skip(&[vouch_nfs4::op::Op::PUTFH, vouch_nfs4::op::Op::LOOKUP])?;
    match results.next_ok()? {
        vouch_nfs4::op::Results::Getfh(Ok(got)) => Ok(got.handle),
        _ => Err(Error::Mismatch("not GETFH's result")),
    }
}

/// Files compared at once.
const TURNS: usize = 32;
/// Bytes of a READ.
const PIECE: u32 = 512 * 1024;
