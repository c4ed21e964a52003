//! `.snapshot` of an export, through all minor versions, restarts and removed snapshots.

use vouch_nfs4::op::Results;
use vouch_nfs4::{Bitmap, Filehandle, Fsid, Status};
use vouch_nfs4_client::OpenFile;

use crate::prelude::*;

const FSID: u32 = 8;
const FILEID: u32 = 20;
const MOUNTED_ON_FILEID: u32 = 55;

struct Numbers {
    fsid: Fsid,
    fileid: u64,
    mounted_on: u64,
}

async fn numbers(client: &Client, handle: &Filehandle) -> Result<Numbers, Error> {
    loop {
        let wanted = Bitmap::of(&[FSID, FILEID, MOUNTED_ON_FILEID]);
        let reply = client.compound().putfh(handle).getattr(wanted).send().await?;
        let mut results = reply.results();
        let found = match results.next_ok().and_then(|_| results.next_ok()) {
            Err(Error::Refused { status: Status::DELAY, .. }) => continue,
            found => found?,
        };
        let Results::Getattr(Ok(ok)) = found else { panic!("not the result of GETATTR") };
        let attributes = ok.attrs.attributes()?;
        return Ok(Numbers {
            fsid: attributes.fsid.expect("asked for"),
            fileid: attributes.fileid.expect("asked for"),
            mounted_on: attributes.mounted_on_fileid.expect("asked for"),
        });
    }
}

async fn handle(client: &Client, path: &str) -> Filehandle {
    client.walk(path.as_bytes()).await.unwrap_or_else(|error| panic!("{path}: {error}")).handle
}

async fn content(client: &Client, directory: &str, name: &str) -> Vec<u8> {
    let file = open_file(client, directory, name).await;
    let (bytes, _) = client.read(&file, 0, 4096).await.expect("read");
    client.close_file(file).await.expect("closed");
    bytes
}

async fn open_file(client: &Client, directory: &str, name: &str) -> OpenFile {
    let directory = handle(client, directory).await;
    loop {
        match client.open(&directory, name.as_bytes(), ShareAccess::READ, None).await {
            Err(Error::Refused { status: Status::GRACE | Status::DELAY, .. }) => {
                tokio::time::sleep(Duration::from_millis(100)).await
            }
            opened => break opened.unwrap_or_else(|error| panic!("{name}: {error}")),
        }
    }
}

async fn names(client: &Client, path: &str) -> Vec<String> {
    let entries = client
        .list(&handle(client, path).await, 1000)
        .await
        .unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut names: Vec<_> = entries
        .into_iter()
        .map(|entry| String::from_utf8_lossy(&entry.name).into_owned())
        .collect();
    names.sort();
    names
}

fn site() -> (TestSite, String) {
    let site = TestSite::new();
    for (root, text) in [("live", "live"), ("snapshots/one", "first"), ("snapshots/two", "second")]
    {
        site.write(&format!("{root}/dir/file"), text);
    }
    let options =
        format!("rw,insecure,no_root_squash,snapshots={}", site.path("snapshots").display());
    (site, options)
}

fn status<T>(result: Result<T, Error>) -> Option<Status> {
    result.err().and_then(|error| error.status())
}

#[test]
fn snapshots_are_read_and_never_changed_in_every_minor_version() {
    let (site, options) = site();
    let export = Export::start(&site, &["--dir", "live", "--options", &options]);
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        for minor in 0..=2 {
            let client = connect(export.address, minor, &format!("reader {minor}"), 0)
                .await
                .expect("connected");
            assert_eq!(names(&client, "export").await, ["dir"]);
            assert_eq!(names(&client, "export/dir/.snapshot").await, ["one", "two"]);
            assert_eq!(content(&client, "export/dir/.snapshot/one", "file").await, b"first");
            assert_eq!(content(&client, "export/.snapshot/two/dir", "file").await, b"second");
            assert_eq!(content(&client, "export/dir", "file").await, b"live");
            let (live, list) = (
                handle(&client, "export/dir").await,
                handle(&client, "export/dir/.snapshot").await,
            );
            let (one, two) = (
                handle(&client, "export/dir/.snapshot/one").await,
                handle(&client, "export/dir/.snapshot/two").await,
            );
            let [at_live, at_list, at_one, at_two] = [&live, &list, &one, &two]
                .map(|handle| async { numbers(&client, handle).await.expect("attributes") });
            let (at_live, at_list, at_one, at_two) =
                (at_live.await, at_list.await, at_one.await, at_two.await);
            assert_eq!(at_list.fsid, at_live.fsid);
            assert!(
                at_one.fsid != at_live.fsid
                    && at_two.fsid != at_live.fsid
                    && at_one.fsid != at_two.fsid
            );
            assert!(
                at_one.mounted_on != at_one.fileid
                    && at_one.mounted_on != at_two.mounted_on
                    && at_one.mounted_on != at_live.fileid
            );
            for (directory, name) in [(&list, &b"two"[..]), (&one, b"file")] {
                assert_eq!(
                    status(client.mkdir(directory, b"new", 0o755).await),
                    Some(Status::ROFS)
                );
                assert_eq!(status(client.remove(directory, name).await), Some(Status::ROFS));
                assert_eq!(
                    status(client.rename(directory, name, &live, b"moved").await),
                    Some(Status::ROFS)
                );
                assert_eq!(
                    status(
                        client
                            .open(
                                directory,
                                b"new",
                                ShareAccess::BOTH,
                                Some(&Attributes::default())
                            )
                            .await
                    ),
                    Some(Status::ROFS)
                );
            }
            assert_eq!(
                status(client.open(&one, b"file", ShareAccess::BOTH, None).await),
                Some(Status::ROFS)
            );
            let mode = Attributes { mode: Some(0o700), ..Attributes::default() };
            let set = client
                .compound()
                .putfh(&one)
                .setattr(vouch_nfs4::Stateid::default(), &mode)
                .send()
                .await
                .expect("answered");
            let mut results = set.results();
            results.next_ok().expect("the handle is good");
            assert_eq!(status(results.next_ok()), Some(Status::ROFS));
        }
    });
}

#[test]
fn handles_survive_restart_and_only_a_removed_snapshot_is_stale() {
    let (site, options) = site();
    let start = || Export::start(&site, &["--dir", "live", "--options", &options]);
    let mut export = start();
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let client = connect(export.address, 2, "before", 0).await.expect("connected");
        let paths = words(
            "export/dir/.snapshot export/.snapshot/one/dir/file export/dir/.snapshot/two/file",
        );
        let mut handles = Vec::new();
        for path in &paths {
            handles.push(handle(&client, path).await);
        }
        let before = numbers(&client, &handles[1]).await.expect("attributes");
        drop(client);
        export.child.kill().expect("the process runs");
        export.child.wait().expect("the server was killed");
        let export = start();
        let client = connect(export.address, 2, "after", 0).await.expect("connected");
        for (path, handle) in paths.iter().zip(&handles) {
            numbers(&client, handle).await.unwrap_or_else(|error| panic!("{path}: {error}"));
        }
        let after = numbers(&client, &handles[1]).await.expect("attributes");
        assert_eq!((after.fsid, after.fileid), (before.fsid, before.fileid));
        std::fs::remove_dir_all(site.path("snapshots/one")).expect("removed");
        let deadline = Instant::now() + Duration::from_secs(120);
        while status(numbers(&client, &handles[1]).await) != Some(Status::STALE) {
            assert!(Instant::now() < deadline, "the removed snapshot is still there");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        for handle in [&handles[0], &handles[2]] {
            numbers(&client, handle).await.expect("the others are there");
        }
        assert_eq!(names(&client, "export/.snapshot").await, ["two"]);
        // A new snapshot shows without a restart.
        site.write("snapshots/three/dir/file", "third");
        assert_eq!(names(&client, "export/.snapshot").await, ["three", "two"]);
        assert_eq!(content(&client, "export/dir/.snapshot/three", "file").await, b"third");
    });
}

/// As long as the server has files of a snapshot open, its device cannot be freed.
#[test]
fn server_closes_files_of_removed_snapshot_that_clients_have_open() {
    for minor in [0, 2] {
        let (site, options) = site();
        let export = Export::start(&site, &["--dir", "live", "--options", &options]);
        tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
            let client = connect(export.address, minor, "reader", 0).await.expect("connected");
            let one = open_file(&client, "export/.snapshot/one/dir", "file").await;
            let two = open_file(&client, "export/.snapshot/two/dir", "file").await;
            assert_eq!(client.read(&one, 0, 100).await.expect("read").0, b"first");
            assert!(has_open_files_below(&export, &site.path("snapshots/one")));
            std::fs::remove_dir_all(site.path("snapshots/one")).expect("removed");
            let deadline = Instant::now() + Duration::from_secs(120);
            loop {
                match client.read(&one, 0, 100).await {
                    Err(Error::Refused { status: Status::DELAY, .. }) | Ok(_) => {}
                    stale => break assert_eq!(status(stale), Some(Status::STALE), "4.{minor}"),
                }
                assert!(Instant::now() < deadline, "4.{minor}: the file is still open");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            while has_open_files_below(&export, &site.path("snapshots/one")) {
                assert!(Instant::now() < deadline, "4.{minor}: the server has a file of it open");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            assert_eq!(
                status(client.close_file(one).await),
                Some(Status::ADMIN_REVOKED),
                "4.{minor}"
            );
            assert_eq!(
                client.read(&two, 0, 100).await.expect("the other snapshot is there").0,
                b"second"
            );
            client.close_file(two).await.expect("closed");
        });
    }
}

fn has_open_files_below(export: &Export, directory: &Path) -> bool {
    let descriptors =
        std::fs::read_dir(format!("/proc/{}/fd", export.child.id())).expect("the server runs");
    let mut paths =
        descriptors.filter_map(|descriptor| std::fs::read_link(descriptor.ok()?.path()).ok());
    // A removed one is shown with " (deleted)" behind its name.
    paths.any(|path| path.to_string_lossy().starts_with(&*directory.to_string_lossy()))
}
