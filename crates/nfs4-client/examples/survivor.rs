//! Works on while the server is killed and comes back: `survivor ADDRESS DIRECTORY SECONDS [FILE]`.
//! Writes files, commits, closes and renames them, for so many seconds and, if FILE is given, until
//! that exists; keeps one file open all the time. At the end everything that the server
//! acknowledged is read back. Fails if any of it is missing.

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
    let began = Instant::now();
    let end = began + Duration::from_secs(seconds.parse()?);
    let life = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64;
    // That nothing is to be reclaimed is said after it was, and not with each new session.
    let identity = Identity { reclaim_complete: false, ..Identity::new(format!("vouch survivor {life}"), Verifier(life.to_be_bytes())) };
    // The caller's own user and group, as a kernel's client would send them.
    let me = std::fs::metadata("/proc/self")?;
    let user = Plain::sys(&AuthSys { machine_name: b"survivor".to_vec(), uid: me.uid(), gid: me.gid(), ..AuthSys::default() });
    let client = Client::connect(Config::new(address.parse()?, 2, identity, user)).await?;
    client.reclaim_complete().await?;
    let mut worker = Worker { client, held: None, held_by: ClientId(0), answered: began, away: Vec::new() };
    worker.held_by = worker.client.id();
    let directory = worker.through(|client| async move { Ok(client.walk(directory.as_bytes()).await?.handle) }).await?;
    let mode = Attributes { mode: Some(0o644), ..Attributes::default() };
    let (handle, attributes) = (&directory, &mode);
    let held = worker.through(|client| async move { client.open(handle, b"held", ShareAccess::BOTH, Some(attributes)).await }).await?;
    worker.held = Some(held);

    let mut count = 0;
    while Instant::now() < end || until.first().is_some_and(|file| !std::path::Path::new(file).exists()) {
        worker.file(&directory, count).await?;
        count += 1;
    }
    let worked = began.elapsed();
    worker.finish(count).await?;
    for number in 0..count {
        let content = worker.through(|client| read(client, directory, name(number))).await?;
        if content != text(number) {
            return Err(format!("{} was acknowledged, and is not what was written", name(number)).into());
        }
    }
    worker.client.close().await?;
    let away: Vec<String> = worker.away.iter().map(|pause| format!("{:.2} s", pause.as_secs_f64())).collect();
    println!(
        "{count} files of {FILE_LEN} bytes written, committed and renamed in {:.1} s; server away for: {}; the file that was open meanwhile is open still; all read back",
        worked.as_secs_f64(),
        if away.is_empty() { "no time".into() } else { away.join(", ") },
    );
    Ok(())
}

struct Worker {
    client: Client,
    held: Option<OpenFile>,
    /// As whom it was opened or reclaimed.
    held_by: ClientId,
    /// When something was answered last.
    answered: Instant,
    /// How long work stood still, each time that the server was gone.
    away: Vec<Duration>,
}

impl Worker {
    /// One file under a temporary name, written, committed, closed, renamed. Begun anew where the
    /// server dies in the midst of it: each step may be done twice.
    async fn file(&mut self, directory: &Filehandle, number: u64) -> Result<(), Failure> {
        let content = text(number);
        self.through(|client| {
            let (directory, content) = (directory, content.clone());
            async move {
                let mode = Attributes { mode: Some(0o644), ..Attributes::default() };
                let file = client.open(directory, b"temporary", ShareAccess::BOTH, Some(&mode)).await?;
                let (written, _, life) = client.write(&file, 0, &content, StableHow::Unstable).await?;
                // RFC 8881, section 18.3.3: another verifier means that the server lost what was not committed.
                if written as usize != content.len() || client.commit(&file).await? != life {
                    return Err(Error::Lost);
                }
                client.close_file(file).await?;
                client.rename(directory, b"temporary", directory, name(number).as_bytes()).await
            }
        })
        .await
        .map_err(Failure::from)
    }

    /// Writes to the file that was open all the time, by the stateid that it was reclaimed with.
    async fn finish(&mut self, count: u64) -> Result<(), Failure> {
        let said = format!("{count} files\n");
        loop {
            let held = self.held.clone().ok_or("nothing is held")?;
            match self.client.write(&held, 0, said.as_bytes(), StableHow::FileSync).await {
                Ok(_) => break,
                Err(error) => self.again(error).await?,
            }
        }
        let held = self.held.take().ok_or("nothing is held")?;
        Ok(self.client.close_file(held).await?)
    }

    /// Asks until the server answers.
    async fn through<T, F: Future<Output = Result<T, Error>>>(&mut self, mut ask: impl FnMut(Client) -> F) -> Result<T, Error> {
        loop {
            match ask(self.client.clone()).await {
                Ok(got) => {
                    self.answered = Instant::now();
                    return Ok(got);
                }
                Err(error) => self.again(error).await?,
            }
        }
    }

    /// Whether it is worth asking again; then after all that must come before it.
    async fn again(&mut self, error: Error) -> Result<(), Error> {
        match error.status() {
            Some(Status::GRACE | Status::DELAY) => tokio::time::sleep(Duration::from_millis(100)).await,
            Some(Status::BADSESSION | Status::DEADSESSION | Status::STALE_CLIENTID) => self.come_back().await?,
            _ if matches!(error, Error::Lost | Error::Io(_)) => self.come_back().await?,
            _ => return Err(error),
        }
        Ok(())
    }

    /// A new session, and the open file asked back.
    async fn come_back(&mut self) -> Result<(), Error> {
        let gone = self.answered;
        loop {
            let came = async {
                self.client.renew().await?;
                // Only a server that was started again has forgotten us, and wants everything asked back; to
                // another one this is just a new session.
                if self.client.id() == self.held_by {
                    return Ok(());
                }
                if let Some(held) = &mut self.held {
                    self.client.reclaim_open(held).await?;
                }
                self.held_by = self.client.id();
                self.client.reclaim_complete().await
            };
            match came.await {
                Ok(()) => {
                    self.away.push(gone.elapsed());
                    self.answered = Instant::now();
                    break;
                }
                Err(error) if error.status().is_some() || gone.elapsed() > PATIENCE => return Err(error),
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

/// How long a server may be away.
const PATIENCE: Duration = Duration::from_secs(60);
