//! `list_and_read ADDRESS DIRECTORY [FILE]`, for example `list_and_read 192.0.2.1:2049 /export`:
//! lists a directory or writes a file to standard output.

use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use vouch_nfs4::attr::FileType;
use vouch_nfs4::op::ShareAccess;
use vouch_nfs4::{Filehandle, Status, Verifier};
use vouch_nfs4_client::{Client, Config, Error, Identity, Plain};
use vouch_oncrpc::AuthSys;

const ENTRIES_MAX: usize = 1_000_000;
const READ_LEN: u32 = 512 * 1024;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, address, directory, file @ ..] = &arguments[..] else {
        return Err("usage: list_and_read ADDRESS DIRECTORY [FILE]".into());
    };
    // The server discards an instance's state when the next one has another verifier.
    let start_time = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64;
    let identity =
        Identity::new(format!("list_and_read {start_time}"), Verifier(start_time.to_be_bytes()));
    let process = std::fs::metadata("/proc/self")?;
    let user =
        Plain::sys(&AuthSys { uid: process.uid(), gid: process.gid(), ..AuthSys::default() });
    let client = Client::connect(Config::new(address.parse()?, 2, identity, user)).await?;

    let directory = client.walk(directory.as_bytes()).await?.handle;
    match file.first() {
        Some(name) => write_file(&client, &directory, name.as_bytes()).await?,
        None => list(&client, &directory).await?,
    }
    client.close().await?;
    Ok(())
}

async fn list(client: &Client, directory: &Filehandle) -> Result<(), Error> {
    for entry in client.list(directory, ENTRIES_MAX).await? {
        let suffix = match entry.kind {
            Some(FileType::Directory) => "/",
            Some(FileType::Symlink) => "@",
            _ => "",
        };
        println!("{}{suffix}", String::from_utf8_lossy(&entry.name));
    }
    Ok(())
}

async fn write_file(client: &Client, directory: &Filehandle, name: &[u8]) -> Result<(), Error> {
    let file = loop {
        match client.open(directory, name, ShareAccess::READ, None).await {
            Err(error) if matches!(error.status(), Some(Status::GRACE | Status::DELAY)) => {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            opened => break opened?,
        }
    };
    let (mut offset, mut is_complete) = (0, false);
    while !is_complete {
        let data;
        (data, is_complete) = client.read(&file, offset, READ_LEN).await?;
        std::io::stdout().write_all(&data)?;
        offset += data.len() as u64;
    }
    client.close_file(file).await
}
