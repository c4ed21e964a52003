//! `tour ADDRESS DIRECTORY [MINOR]` creates and removes files in DIRECTORY. It prints which
//! optional operations the server supports, and fails if a required operation has a wrong result.

use std::time::Duration;

use vouch_nfs4::op::*;
use vouch_nfs4::*;
use vouch_nfs4_client::{Client, Config, Error, Identity, Plain};
use vouch_oncrpc::AuthSys;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, address, directory, minor @ ..] = &arguments[..] else {
        return Err("usage: tour ADDRESS DIRECTORY [MINOR]".into());
    };
    let minor: u32 = minor.first().map_or(Ok(2), |minor| minor.parse())?;
    let start_time =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_nanos() as u64;
    let identity = Identity::new(&b"vouch tour"[..], Verifier(start_time.to_be_bytes()));
    let user = Plain::sys(&AuthSys { machine_name: b"tour".to_vec(), ..AuthSys::default() });
    let connections = if minor == 0 { 1 } else { 2 };
    let client = Client::connect(Config {
        connections,
        ..Config::new(address.parse()?, minor, identity, user)
    })
    .await?;
    let directory = retry("walk", || client.walk(directory.as_bytes())).await?.handle;

    let _ = client.remove(&directory, b"tour-file").await;
    let _ = client.remove(&directory, b"tour-renamed").await;
    let mode = Attributes { mode: Some(0o640), ..Attributes::default() };
    let mut file =
        retry("open", || client.open(&directory, b"tour-file", ShareAccess::BOTH, Some(&mode)))
            .await?;
    let data: Vec<u8> = (0..300_000u32).map(|at| (at / 7) as u8).collect();
    client.write(&file, 0, &data, StableHow::Unstable).await?;
    client.commit(&file).await?;
    check("read", client.read(&file, 1000, 400_000).await?.0 == data[1000..])?;
    check(
        "list",
        client.list(&directory, 100_000).await?.iter().any(|entry| entry.name == b"tour-file"),
    )?;
    let mut lock = client
        .lock(&mut file, b"first", LockType::Write, 0, 100)
        .await?
        .map_err(|_| "the file is already locked")?;
    check(
        "lock conflict",
        client.lock(&mut file, b"second", LockType::Write, 50, 10).await?.is_err(),
    )?;
    client.unlock(&file, &mut lock, 0, 100).await?;
    client.rename(&directory, b"tour-file", &directory, b"tour-renamed").await?;
    check("rename", client.walk(b"/").await.is_ok())?;

    report(
        "setxattr",
        client.setxattr(&file.handle, b"tour", b"value", SetxattrOption::Either).await,
    );
    report("getxattr", client.getxattr(&file.handle, b"tour").await);
    report("listxattrs", client.listxattrs(&file.handle).await);
    report("seek", client.seek(&file, 0, DataContent::Hole).await);
    report("allocate", client.allocate(&file, 0, 1 << 20).await);
    report("deallocate", client.deallocate(&file, 0, 4096).await);
    report("copy", client.copy((&file, 0), (&file, 1 << 21), 4096, true).await);
    report("clone", client.clone_range((&file, 0), (&file, 1 << 22), 4096).await);
    client.close_file(file).await?;
    client.remove(&directory, b"tour-renamed").await?;
    client.close().await?;
    println!("NFSv4.{minor}: all required operations succeeded");
    Ok(())
}

async fn retry<T, F: Future<Output = Result<T, Error>>>(
    name: &str,
    mut operation: impl FnMut() -> F,
) -> Result<T, Error> {
    loop {
        match operation().await {
            Err(error) if matches!(error.status(), Some(Status::GRACE | Status::DELAY)) => {
                println!("{name}: {error}, retrying");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            outcome => return outcome,
        }
    }
}

fn check(name: &str, is_correct: bool) -> Result<(), String> {
    if is_correct { Ok(()) } else { Err(format!("{name}: wrong result")) }
}

fn report<T>(name: &str, outcome: Result<T, Error>) {
    match outcome {
        Ok(_) => println!("{name}: supported"),
        Err(error) => println!("{name}: {error}"),
    }
}
