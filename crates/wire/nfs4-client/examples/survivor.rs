//! Crash recovery of a server: `survivor ADDRESS DIRECTORY SECONDS [FILE]` writes, commits, closes
//! and renames files for SECONDS seconds and until FILE, if given, exists locally, while the caller
//! kills and restarts the server. At the end all acknowledged files must have their data.

use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use vouch_nfs4::op::{ShareAccess, StableHow};
use vouch_nfs4::{Attributes, ClientId, Filehandle, Status, Verifier};
use vouch_nfs4_client::{Client, Config, Error, Identity, OpenFile, Plain};
use vouch_oncrpc::AuthSys;

type Failure = Box<dyn std::error::Error>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, address, directory, seconds, until @ ..] = &arguments[..] else {
        return Err("usage: survivor ADDRESS DIRECTORY SECONDS [FILE]".into());
    };
    let start = Instant::now();
    let end = start + Duration::from_secs(seconds.parse()?);
    let start_time = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64;
    let identity = Identity {
        reclaim_complete: false,
        ..Identity::new(format!("vouch survivor {start_time}"), Verifier(start_time.to_be_bytes()))
    };
    let me = std::fs::metadata("/proc/self")?;
    let user = Plain::sys(&AuthSys {
        machine_name: b"survivor".to_vec(),
        uid: me.uid(),
        gid: me.gid(),
        ..AuthSys::default()
    });
    let client = Client::connect(Config::new(address.parse()?, 2, identity, user)).await?;
    client.reclaim_complete().await?;
    let mut worker = Worker {
        client,
        open_file: None,
        opened_by: ClientId(0),
        last_reply_at: start,
        interruptions: Vec::new(),
    };
    worker.opened_by = worker.client.id();
    let directory = worker
        .retry(|client| async move { Ok(client.walk(directory.as_bytes()).await?.handle) })
        .await?;
    let mode = Attributes { mode: Some(0o644), ..Attributes::default() };
    let (handle, attributes) = (&directory, &mode);
    let open_file = worker
        .retry(|client| async move {
            client.open(handle, b"held", ShareAccess::BOTH, Some(attributes)).await
        })
        .await?;
    worker.open_file = Some(open_file);

    let mut count = 0;
    while Instant::now() < end
        || until.first().is_some_and(|file| !std::path::Path::new(file).exists())
    {
        worker.write_file(&directory, count).await?;
        count += 1;
    }
    let worked = start.elapsed();
    worker.finish(count).await?;
    for number in 0..count {
        let content = worker.retry(|client| read(client, directory, name(number))).await?;
        if content != text(number) {
            return Err(
                format!("{} was acknowledged, and has different content", name(number)).into()
            );
        }
    }
    worker.client.close().await?;
    let interruptions: Vec<String> =
        worker.interruptions.iter().map(|pause| format!("{:.2} s", pause.as_secs_f64())).collect();
    println!(
        "{count} files of {FILE_LEN} bytes written, committed and renamed in {:.1} s; server unavailable for: {}; the open file is still open; all data was read back",
        worked.as_secs_f64(),
        if interruptions.is_empty() { "no time".into() } else { interruptions.join(", ") },
    );
    Ok(())
}

struct Worker {
    client: Client,
    open_file: Option<OpenFile>,
    opened_by: ClientId,
    last_reply_at: Instant,
    interruptions: Vec<Duration>,
}

impl Worker {
    /// Starts again if the server restarts, so each step may be executed twice.
    async fn write_file(&mut self, directory: &Filehandle, number: u64) -> Result<(), Failure> {
        let content = text(number);
        self.retry(|client| {
            let (directory, content) = (directory, content.clone());
            async move {
                let mode = Attributes { mode: Some(0o644), ..Attributes::default() };
                let file =
                    client.open(directory, b"temporary", ShareAccess::BOTH, Some(&mode)).await?;
                let (written, _, verifier) =
                    client.write(&file, 0, &content, StableHow::Unstable).await?;
                // Another verifier: the server has lost uncommitted data (RFC 8881 §18.3.3).
                if written as usize != content.len() || client.commit(&file).await? != verifier {
                    return Err(Error::Lost);
                }
                client.close_file(file).await?;
                client.rename(directory, b"temporary", directory, name(number).as_bytes()).await
            }
        })
        .await
        .map_err(Failure::from)
    }

    async fn finish(&mut self, count: u64) -> Result<(), Failure> {
        let summary = format!("{count} files\n");
        loop {
            let open_file = self.open_file.clone().ok_or("no file is open")?;
            match self.client.write(&open_file, 0, summary.as_bytes(), StableHow::FileSync).await {
                Ok(_) => break,
                Err(error) => self.prepare_retry(error).await?,
            }
        }
        let open_file = self.open_file.take().ok_or("no file is open")?;
        Ok(self.client.close_file(open_file).await?)
    }

    async fn retry<T, F: Future<Output = Result<T, Error>>>(
        &mut self,
        mut operation: impl FnMut(Client) -> F,
    ) -> Result<T, Error> {
        loop {
            match operation(self.client.clone()).await {
                Ok(value) => {
                    self.last_reply_at = Instant::now();
                    return Ok(value);
                }
                Err(error) => self.prepare_retry(error).await?,
            }
        }
    }

    async fn prepare_retry(&mut self, error: Error) -> Result<(), Error> {
        match error.status() {
            Some(Status::GRACE | Status::DELAY) => {
                tokio::time::sleep(Duration::from_millis(100)).await
            }
            Some(Status::BADSESSION | Status::DEADSESSION | Status::STALE_CLIENTID) => {
                self.recover().await?
            }
            _ if matches!(error, Error::Lost | Error::Io(_)) => self.recover().await?,
            _ => return Err(error),
        }
        Ok(())
    }

    async fn recover(&mut self) -> Result<(), Error> {
        let interrupted_at = self.last_reply_at;
        loop {
            let recovery = async {
                self.client.renew().await?;
                // A restarted server assigns a new client identifier and requires reclaims.
                if self.client.id() == self.opened_by {
                    return Ok(());
                }
                if let Some(open_file) = &mut self.open_file {
                    self.client.reclaim_open(open_file).await?;
                }
                self.opened_by = self.client.id();
                self.client.reclaim_complete().await
            };
            match recovery.await {
                Ok(()) => {
                    self.interruptions.push(interrupted_at.elapsed());
                    self.last_reply_at = Instant::now();
                    break;
                }
                Err(error)
                    if error.status().is_some() || interrupted_at.elapsed() > INTERRUPTION_MAX =>
                {
                    return Err(error);
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
        Ok(())
    }
}

async fn read(client: Client, directory: Filehandle, name: String) -> Result<Vec<u8>, Error> {
    let file = client.open(&directory, name.as_bytes(), ShareAccess::READ, None).await?;
    let (content, _) = client.read(&file, 0, FILE_LEN as u32 + 1).await?;
    client.close_file(file).await?;
    Ok(content)
}

fn name(number: u64) -> String {
    format!("file-{number:06}")
}

fn text(number: u64) -> Vec<u8> {
    format!("{number:08}\n").into_bytes().into_iter().cycle().take(FILE_LEN).collect()
}

const FILE_LEN: usize = 5000;

const INTERRUPTION_MAX: Duration = Duration::from_secs(60);
