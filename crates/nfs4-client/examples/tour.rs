//! One of everything against any server: `tour ADDRESS DIRECTORY [MINOR]`. Says what the server
//! refuses, and ends with an error if what it grants is not so.

use std::time::Duration;

use vouch_nfs4::op::*;
use vouch_nfs4::*;
use vouch_nfs4_client::{Client, Config, Error, Identity, Plain};
use vouch_oncrpc::AuthSys;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, address, directory, minor @ ..] = &arguments[..] else { return Err("usage: tour ADDRESS DIRECTORY [MINOR]".into()) };
    let minor: u32 = minor.first().map_or(Ok(2), |minor| minor.parse())?;
    let life = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_nanos() as u64;
    let identity = Identity::new(&b"vouch tour"[..], Verifier(life.to_be_bytes()));
    let user = Plain::sys(&AuthSys { machine_name: b"tour".to_vec(), ..AuthSys::default() });
    let connections = if minor == 0 { 1 } else { 2 };
    let client = Client::connect(Config { connections, ..Config::new(address.parse()?, minor, identity, user) }).await?;
    let directory = patient("walk", || client.walk(directory.as_bytes())).await?.handle;

    let _ = client.remove(&directory, b"tour-file").await;
    let _ = client.remove(&directory, b"tour-renamed").await;
    let mode = Attributes { mode: Some(0o640), ..Attributes::default() };
    let mut file = patient("open", || client.open(&directory, b"tour-file", ShareAccess::BOTH, Some(&mode))).await?;
    let data: Vec<u8> = (0..300_000u32).map(|at| (at / 7) as u8).collect();
    client.write(&file, 0, &data, StableHow::Unstable).await?;
    client.commit(&file).await?;
    check("read", client.read(&file, 1000, 400_000).await?.0 == data[1000..])?;
    check("list", client.list(&directory, 100_000).await?.iter().any(|entry| entry.name == b"tour-file"))?;
    let mut lock = client.lock(&mut file, b"me", LockType::Write, 0, 100).await?.map_err(|_| "the lock is held")?;
    check("lock conflict", client.lock(&mut file, b"you", LockType::Write, 50, 10).await?.is_err())?;
    client.unlock(&file, &mut lock, 0, 100).await?;
    client.rename(&directory, b"tour-file", &directory, b"tour-renamed").await?;
    check("rename", client.walk(b"/").await.is_ok())?;

    tell("setxattr", client.setxattr(&file.handle, b"tour", b"value", SetxattrOption::Either).await);
    tell("getxattr", client.getxattr(&file.handle, b"tour").await);
    tell("listxattrs", client.listxattrs(&file.handle).await);
    tell("seek", client.seek(&file, 0, DataContent::Hole).await);
    tell("allocate", client.allocate(&file, 0, 1 << 20).await);
    tell("deallocate", client.deallocate(&file, 0, 4096).await);
    tell("copy", client.copy((&file, 0), (&file, 1 << 21), 4096, true).await);
    tell("clone", client.clone_range((&file, 0), (&file, 1 << 22), 4096).await);
    client.close_file(file).await?;
    client.remove(&directory, b"tour-renamed").await?;
    client.close().await?;
    println!("4.{minor}: all well");
    Ok(())
}

/// Asks again while the server is in grace or wants time.
async fn patient<T, F: Future<Output = Result<T, Error>>>(what: &str, mut ask: impl FnMut() -> F) -> Result<T, Error> {
    loop {
        match ask().await {
            Err(error) if matches!(error.status(), Some(Status::GRACE | Status::DELAY)) => {
                println!("{what}: {error}, again");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            other => return other,
        }
    }
}

fn check(what: &str, holds: bool) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("{what}: not so")) }
}

fn tell<T>(what: &str, outcome: Result<T, Error>) {
    match outcome {
        Ok(_) => println!("{what}: granted"),
        Err(error) => println!("{what}: {error}"),
    }
}
