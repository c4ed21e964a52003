//! `compare ADDRESS EXPORT DIRECTORY` compares names, content of regular files, and targets of
//! symbolic links. Fails at the first difference.

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
    let [_, address, export, directory] = &arguments[..] else {
        return Err("usage: compare ADDRESS EXPORT DIRECTORY".into());
    };
    let start = Instant::now();
    let start_time = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64;
    let me = std::fs::metadata("/proc/self")?;
    let user = Plain::sys(&AuthSys {
        machine_name: b"compare".to_vec(),
        uid: me.uid(),
        gid: me.gid(),
        ..AuthSys::default()
    });
    let client = Client::connect(Config::new(
        address.parse()?,
        2,
        Identity::new(format!("vouch compare {start_time}"), Verifier(start_time.to_be_bytes())),
        user,
    ))
    .await?;
    let root = client.walk(export.as_bytes()).await?;
    let comparison = Arc::new(Comparison {
        client,
        permits: Semaphore::new(CONCURRENT_FILES_MAX),
        files: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
    });
    let mut tasks = JoinSet::new();
    let mut pending = vec![(root.handle, PathBuf::from(directory))];
    let mut names = 0;
    while let Some((handle, path)) = pending.pop() {
        let entries = comparison.client.list(&handle, usize::MAX).await?;
        let remote_names: BTreeSet<Vec<u8>> =
            entries.iter().map(|entry| entry.name.clone()).collect();
        let local_names = std::fs::read_dir(&path)?
            .map(|entry| Ok(entry?.file_name().into_vec()))
            .collect::<std::io::Result<BTreeSet<_>>>()?;
        if let Some(name) = remote_names.symmetric_difference(&local_names).next() {
            return Err(format!(
                "{}: {} exists only on one side",
                path.display(),
                String::from_utf8_lossy(name)
            )
            .into());
        }
        names += entries.len();
        for entry in entries {
            let local_path = path.join(std::ffi::OsStr::from_bytes(&entry.name));
            match entry.kind {
                Some(FileType::Directory) => {
                    let child = lookup(&comparison.client, &handle, &entry.name).await?;
                    pending.push((child, local_path));
                }
                Some(FileType::Regular) => {
                    let (comparison, handle) = (comparison.clone(), handle);
                    let limit = comparison.clone();
                    let _permit = limit.permits.acquire().await?;
                    tasks.spawn(async move {
                        comparison.compare_file(&handle, &entry.name, local_path).await
                    });
                }
                Some(FileType::Symlink) => {
                    let link = lookup(&comparison.client, &handle, &entry.name).await?;
                    if comparison.client.readlink(&link).await?
                        != std::fs::read_link(&local_path)?.into_os_string().into_vec()
                    {
                        return Err(
                            format!("{}: different link target", local_path.display()).into()
                        );
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
    let (files, bytes) =
        (comparison.files.load(Ordering::Relaxed), comparison.bytes.load(Ordering::Relaxed));
    println!(
        "{names} names and {files} files of {} MiB are equal, {:.1} s",
        bytes >> 20,
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

struct Comparison {
    client: Client,
    permits: Semaphore,
    files: AtomicU64,
    bytes: AtomicU64,
}

impl Comparison {
    async fn compare_file(
        &self,
        directory: &Filehandle,
        name: &[u8],
        path: PathBuf,
    ) -> Result<(), Failure> {
        let _permit = self.permits.acquire().await?;
        let Ok(local) = std::fs::File::open(&path) else { return Ok(()) };
        let file = loop {
            match self.client.open(directory, name, ShareAccess::READ, None).await {
                Err(error) if matches!(error.status(), Some(Status::GRACE | Status::DELAY)) => {
                    tokio::time::sleep(Duration::from_millis(200)).await
                }
                opened => break opened?,
            }
        };
        let mut offset = 0;
        loop {
            let (data, eof) = match self.client.read(&file, offset, READ_LEN).await {
                Err(error) if error.status() == Some(Status::DELAY) => {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    continue;
                }
                data => data?,
            };
            let mut local_data = vec![0; data.len()];
            local
                .read_exact_at(&mut local_data, offset)
                .map_err(|error| format!("{}: {error}", path.display()))?;
            if local_data != data {
                return Err(format!(
                    "{}: content differs in the {} bytes at offset {offset}",
                    path.display(),
                    data.len()
                )
                .into());
            }
            offset += data.len() as u64;
            if eof {
                break;
            }
        }
        if local.metadata()?.size() != offset {
            return Err(format!("{}: different length", path.display()).into());
        }
        self.client.close_file(file).await?;
        self.files.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(offset, Ordering::Relaxed);
        Ok(())
    }
}

async fn lookup(client: &Client, directory: &Filehandle, name: &[u8]) -> Result<Filehandle, Error> {
    let reply = client.compound().putfh(directory).lookup(name).getfh().send().await?;
    match reply.result_after(&[vouch_nfs4::op::Op::PUTFH, vouch_nfs4::op::Op::LOOKUP])? {
        vouch_nfs4::op::Results::Getfh(Ok(got)) => Ok(got.handle),
        _ => Err(Error::Mismatch("expected the result of GETFH")),
    }
}

const CONCURRENT_FILES_MAX: usize = 32;
const READ_LEN: u32 = 512 * 1024;
