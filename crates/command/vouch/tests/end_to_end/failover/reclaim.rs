//! Many clients reclaim many opens and locks after a takeover, within one grace period.
//!
//! `VOUCH_TEST_RECLAIMS`: opens and locks in all.

use vouch_nfs4::op::LockType;
use vouch_nfs4::{ClientId, Status, Verifier};
use vouch_nfs4_client::{Config, Identity, OpenFile, Plain};
use vouch_oncrpc::AuthSys;

use crate::prelude::*;

const CLIENTS: usize = 100;
const AT_ONCE: usize = 16;
const LEASE: Duration = Duration::from_secs(90);

struct Holder {
    number: usize,
    opened_by: ClientId,
    files: Vec<OpenFile>,
}

#[derive(Clone, Copy)]
struct Share {
    files: usize,
    locks: usize,
}

impl Share {
    /// Opens may use a quarter of the descriptors, and one address four fifths of that. Locks make up
    /// the rest.
    fn of_each_client(total: usize) -> Self {
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile)
            .maximum
            .unwrap_or(u64::MAX);
        let opens_max = usize::try_from(descriptors / 4 * 4 / 5 * 9 / 10).unwrap_or(usize::MAX);
        let files = (total / 2).min(opens_max) / CLIENTS;
        Share { files, locks: total / CLIENTS - files }
    }

    /// Of one open file.
    fn locks_of(self, file: usize) -> impl Iterator<Item = u64> {
        (0..self.locks as u64).skip(file).step_by(self.files)
    }
}

#[test]
fn clients_reclaim_all_opens_and_locks_within_one_grace_period() {
    let total: usize = std::env::var("VOUCH_TEST_RECLAIMS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(2000);
    let (site, share) = (TestSite::with_directories(&["data"]), Share::of_each_client(total));
    site.state_directory("shared");
    for number in 0..CLIENTS * share.files {
        site.write(&format!("data/f{number}"), "x");
    }
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let first = head(&site, "a", address);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let holders = runtime.block_on(async {
        let tasks: Vec<_> =
            (0..CLIENTS).map(|number| tokio::spawn(hold(address, number, share))).collect();
        let mut holders = Vec::new();
        for task in tasks {
            holders.push(task.await.expect("a client").expect("opens and locks"));
        }
        holders
    });
    drop(first);
    let _second = head(&site, "b", address);
    let (took, reclaimed) = runtime.block_on(reclaim_all(address, holders, share));
    assert_eq!(reclaimed, CLIENTS * (share.files + share.locks));
    println!(
        "failover: {CLIENTS} clients reclaimed {} opens and {} locks in {:.2} s; grace period {} s",
        CLIENTS * share.files,
        CLIENTS * share.locks,
        took.as_secs_f64(),
        LEASE.as_secs()
    );
}

/// Begins when the second head serves.
async fn reclaim_all(address: SocketAddr, holders: Vec<Holder>, share: Share) -> (Duration, usize) {
    let probe = until_answered(|| connect(address, CLIENTS)).await.expect("the second head serves");
    let began = Instant::now();
    let tasks: Vec<_> =
        holders.into_iter().map(|holder| tokio::spawn(reclaim(address, holder, share))).collect();
    let mut reclaimed = 0;
    for task in tasks {
        reclaimed += task.await.expect("a client").expect("everything is reclaimed");
    }
    let took = began.elapsed();
    // The grace period has ended with the last client.
    probe.reclaim_complete().await.expect("nothing to reclaim");
    let root = probe.walk(b"export").await.expect("the root").handle;
    let opened = probe.open(&root, b"f0", ShareAccess::READ, None).await;
    assert!(opened.is_ok(), "{:?}", opened.err());
    (took, reclaimed)
}

fn head(site: &TestSite, name: &str, address: SocketAddr) -> Export {
    let (listen, lease) = (address.to_string(), LEASE.as_secs().to_string());
    let fixed = words(
        "export --dir data --options rw,insecure,no_root_squash --state shared --shared-state",
    );
    let more = ["--head", name, "--state-lease", "5s", "--listen", &listen, "--lease", &lease];
    Export::spawn(&mut site.command([&fixed[..], &more].concat()), address)
}

async fn connect(address: SocketAddr, number: usize) -> Result<Client, Error> {
    let identity = Identity::new(format!("holder {number}").into_bytes(), Verifier([7; 8]));
    let identity = Identity { reclaim_complete: false, ..identity };
    Client::connect(Config::new(address, 2, identity, Plain::sys(&AuthSys::default()))).await
}

async fn hold(address: SocketAddr, number: usize, share: Share) -> Result<Holder, Error> {
    let client = connect(address, number).await?;
    client.reclaim_complete().await?;
    let root = client.walk(b"export").await?.handle;
    let mut tasks = tokio::task::JoinSet::new();
    let mut files = Vec::new();
    for file in 0..share.files {
        if tasks.len() >= AT_ONCE {
            files.push(tasks.join_next().await.expect("a task").expect("an open")?);
        }
        let client = client.clone();
        tasks.spawn(async move {
            let name = format!("f{}", number * share.files + file);
            let mut open =
                until_answered(|| client.open(&root, name.as_bytes(), ShareAccess::BOTH, None))
                    .await?;
            for offset in share.locks_of(file) {
                let locked = client
                    .lock(&mut open, &owner(number, offset), LockType::Write, offset, 1)
                    .await?;
                assert!(locked.is_ok(), "nobody else locks the file");
            }
            Ok::<_, Error>((file, open))
        });
    }
    while let Some(task) = tasks.join_next().await {
        files.push(task.expect("an open")?);
    }
    files.sort_by_key(|(file, _)| *file);
    Ok(Holder {
        number,
        opened_by: client.id(),
        files: files.into_iter().map(|(_, open)| open).collect(),
    })
}

async fn reclaim(address: SocketAddr, holder: Holder, share: Share) -> Result<usize, Error> {
    let Holder { number, opened_by, files } = holder;
    let client = until_answered(|| connect(address, number)).await?;
    assert_ne!(client.id(), opened_by, "the second head knows nothing of the session");
    let mut tasks = tokio::task::JoinSet::new();
    let mut count = 0;
    for (file, mut open) in files.into_iter().enumerate() {
        if tasks.len() >= AT_ONCE {
            count += tasks.join_next().await.expect("a task").expect("a reclaim")?;
        }
        let client = client.clone();
        tasks.spawn(async move {
            client.reclaim_open(&mut open).await?;
            let mut count = 1;
            for offset in share.locks_of(file) {
                client
                    .reclaim_lock(&mut open, &owner(number, offset), LockType::Write, offset, 1)
                    .await?;
                count += 1;
            }
            Ok::<_, Error>(count)
        });
    }
    while let Some(task) = tasks.join_next().await {
        count += task.expect("a reclaim")?;
    }
    client.reclaim_complete().await?;
    Ok(count)
}

/// Calls again after DELAY, and while the address has no server.
async fn until_answered<T, F: Future<Output = Result<T, Error>>>(
    mut call: impl FnMut() -> F,
) -> Result<T, Error> {
    loop {
        match call().await {
            Err(error) if error.status() == Some(Status::DELAY) => {
                tokio::time::sleep(Duration::from_millis(20)).await
            }
            Err(Error::Io(_) | Error::Lost) => tokio::time::sleep(Duration::from_millis(20)).await,
            result => return result,
        }
    }
}

fn owner(number: usize, lock: u64) -> Vec<u8> {
    format!("owner {number} {lock}").into_bytes()
}
