use std::sync::mpsc;
use std::time::Duration;

use vouch_nfs4_client::FileInfo;
use vouch_vfs::memory::Call;
use vouch_vfs::{Caller, FileSystem as _, Name, NewNode, SetAttributes};

use super::*;

fn serve<T>(
    config: &AuditConfig,
    files: &MemoryFs,
    work: impl AsyncFnOnce(&Client, FileInfo) -> T,
) -> T {
    let config = config.clone();
    let server = Running::start_with(|all| all.audit = Some(config), files.clone());
    block_on(async {
        let client = client_of(&server, "one", 1, 2).await;
        let data = client.walk(b"/data").await.unwrap();
        let done = work(&client, data).await;
        client.close().await.unwrap();
        done
    })
}

async fn make(client: &Client, directory: &vouch_nfs4::Filehandle, name: &[u8]) {
    let mode = Attributes { mode: Some(0o644), ..Attributes::default() };
    let file = client.open(directory, name, ShareAccess::BOTH, Some(&mode)).await.unwrap();
    client.close_file(file).await.unwrap();
}

async fn look(client: &Client, path: &[u8]) {
    let (directory, name) = path.split_at(path.iter().rposition(|byte| *byte == b'/').unwrap());
    let directory = client.walk(directory).await.unwrap();
    let file = client.open(&directory.handle, &name[1..], ShareAccess::READ, None).await.unwrap();
    client.close_file(file).await.unwrap();
}

fn assert_records(directory: &tempfile::TempDir, since: usize, expected: &[(&str, &str)]) {
    let found = records(directory.path());
    let found: Vec<_> =
        found.iter().skip(since).map(|(what, detail, _)| (&what[..], &detail[..])).collect();
    assert_eq!(found, expected);
}

#[test]
fn watch_follows_directory_and_its_parents_over_restart() {
    let (directory, config) = configured(Some("-w /data/a/secret -p rwa -k s\n"));
    let files = MemoryFs::new();
    serve(&config, &files, async |client, data| {
        let a = client.mkdir(&data.handle, b"a", 0o755).await.unwrap();
        let secret = client.mkdir(&a, b"secret", 0o755).await.unwrap();
        make(client, &secret, b"f").await;
        make(client, &a, b"open").await;
        client.rename(&data.handle, b"a", &data.handle, b"b").await.unwrap();
        look(client, b"/data/b/secret/f").await;
        look(client, b"/data/b/open").await;
        let a = client.mkdir(&data.handle, b"a", 0o755).await.unwrap();
        let again = client.mkdir(&a, b"secret", 0o755).await.unwrap();
        make(client, &again, b"g").await;
    });
    let was = "was \"/data/a/secret/f\" before a rename";
    assert_records(
        &directory,
        0,
        &[
            ("CREATE /data/a/secret", "makes a directory"),
            ("OPEN /data/a/secret/f", ""),
            ("RENAME /data/a /data/b", ""),
            ("OPEN /data/b/secret/f", was),
            ("CREATE /data/a/secret", "makes a directory"),
            ("OPEN /data/a/secret/g", ""),
        ],
    );
    serve(&config, &files, async |client, data| {
        look(client, b"/data/b/secret/f").await;
        let b = client.walk(b"/data/b").await.unwrap();
        client.rename(&b.handle, b"secret", &data.handle, b"known").await.unwrap();
        let (root, name) = (files.root(), |name| Name::new(name).unwrap());
        files
            .rename(&Caller::new(0, 0, []), &root, name(b"known"), &root, name(b"unknown"), None)
            .unwrap();
        look(client, b"/data/unknown/f").await;
    });
    assert_records(
        &directory,
        6,
        &[
            ("OPEN /data/b/secret/f", was),
            ("RENAME /data/b/secret /data/known", "was \"/data/a/secret\" before a rename"),
            ("OPEN /data/unknown/f", was),
        ],
    );
}

#[test]
fn watched_file_is_recorded_under_other_names() {
    let (directory, config) = configured(Some("-w /data/secret -p wa -k s\n"));
    serve(&config, &MemoryFs::new(), async |client, data| {
        let data = &data.handle;
        make(client, data, b"secret").await;
        make(client, data, b"plain").await;
        let secret = client.walk(b"/data/secret").await.unwrap();
        client.link(&secret.handle, data, b"other").await.unwrap();
        let other = client.walk(b"/data/other").await.unwrap();
        client.link(&other.handle, data, b"third").await.unwrap();
        client.rename(data, b"third", data, b"fourth").await.unwrap();
        let from = client.open(data, b"plain", ShareAccess::READ, None).await.unwrap();
        let onto = client.open(data, b"other", ShareAccess::WRITE, None).await.unwrap();
        client.copy((&from, 0), (&onto, 0), 0, true).await.unwrap();
        client.clone_range((&from, 0), (&onto, 0), 0).await.unwrap();
        client.close_file(from).await.unwrap();
        client.close_file(onto).await.unwrap();
        client.remove(data, b"fourth").await.unwrap();
        client.rename(data, b"plain", data, b"other").await.unwrap();
    });
    let also = "also named \"/data/secret\"";
    assert_records(
        &directory,
        0,
        &[
            ("OPEN /data/secret", ""),
            ("LINK /data/secret /data/other", ""),
            ("LINK /data/other /data/third", also),
            ("RENAME /data/third /data/fourth", also),
            ("OPEN /data/other", also),
            ("COPY /data/plain /data/other", also),
            ("CLONE /data/plain /data/other", also),
            ("REMOVE /data/fourth", also),
            ("RENAME /data/plain /data/other", also),
        ],
    );
}

#[test]
fn file_with_unknown_links_counts_as_watched() {
    let (directory, config) = configured(Some("-w /data/d/secret -p rw\n-w /other -p rw\n"));
    let (files, caller) = (MemoryFs::new(), Caller::new(0, 0, []));
    let (root, name) = (files.root(), |name| Name::new(name).unwrap());
    let d = files
        .make(&caller, &root, name(b"d"), NewNode::Directory, &SetAttributes::default())
        .unwrap()
        .0;
    for plain in [&b"secret"[..], b"plain"] {
        let how = vouch_vfs::CreateHow::Guarded;
        let mode = SetAttributes { mode: Some(0o644), ..SetAttributes::default() };
        let made = files
            .create(
                &caller,
                &d,
                name(plain),
                how,
                &mode,
                vouch_vfs::OpenAccess { read: true, write: false },
            )
            .unwrap();
        if plain == b"secret" {
            files.link(&caller, &made.id, &root, name(b"free")).unwrap();
        }
    }
    serve(&config, &files, async |client, _| {
        look(client, b"/data/free").await;
        look(client, b"/data/d/plain").await;
        look(client, b"/data/d/secret").await;
        look(client, b"/data/free").await;
    });
    assert_records(
        &directory,
        0,
        &[
            ("OPEN /data/free", "it may have another name, which is not known"),
            ("OPEN /data/d/secret", ""),
            ("OPEN /data/free", "also named \"/data/d/secret\""),
        ],
    );
}

#[test]
fn watch_stays_on_link_after_name_is_removed() {
    let (directory, config) = configured(Some("-w /data/secret -p r\n"));
    let files = MemoryFs::new();
    serve(&config, &files, async |client, data| {
        let data = &data.handle;
        make(client, data, b"secret").await;
        let secret = client.walk(b"/data/secret").await.unwrap();
        client.link(&secret.handle, data, b"y").await.unwrap();
        client.remove(data, b"secret").await.unwrap();
        look(client, b"/data/y").await;
        let y = client.walk(b"/data/y").await.unwrap();
        client.link(&y.handle, data, b"z").await.unwrap();
        make(client, data, b"plain").await;
        client.rename(data, b"plain", data, b"y").await.unwrap();
        look(client, b"/data/y").await;
        look(client, b"/data/z").await;
    });
    let was = "was \"/data/secret\" before a rename";
    assert_records(
        &directory,
        0,
        &[("OPEN /data/secret", ""), ("OPEN /data/y", was), ("OPEN /data/z", was)],
    );
    serve(&config, &files, async |client, _| {
        look(client, b"/data/y").await;
        look(client, b"/data/z").await;
    });
    assert_records(&directory, 3, &[("OPEN /data/z", was)]);
}

#[test]
fn rename_between_hard_links_moves_nothing() {
    let (directory, config) = configured(Some("-w /data/secret -p r\n"));
    serve(&config, &MemoryFs::new(), async |client, data| {
        let data = &data.handle;
        make(client, data, b"secret").await;
        client.rename(data, b"secret", data, b"x").await.unwrap();
        let x = client.walk(b"/data/x").await.unwrap();
        client.link(&x.handle, data, b"y").await.unwrap();
        client.rename(data, b"y", data, b"x").await.unwrap();
        client.remove(data, b"y").await.unwrap();
        look(client, b"/data/x").await;
    });
    let was = "was \"/data/secret\" before a rename";
    assert_records(&directory, 0, &[("OPEN /data/secret", ""), ("OPEN /data/x", was)]);
}

#[test]
fn watch_follows_rename_before_it_is_durable() {
    let files = MemoryFs::new();
    let (directory, server) = start_audited(Some("-w /data/a/secret -p rw\n"), files.clone());
    block_on(async {
        let (one, two) =
            (client_of(&server, "one", 1, 2).await, client_of(&server, "two", 1, 2).await);
        let data = one.walk(b"/data").await.unwrap();
        let a = one.mkdir(&data.handle, b"a", 0o755).await.unwrap();
        let secret = one.mkdir(&a, b"secret", 0o755).await.unwrap();
        make(&one, &secret, b"f").await;
        files.set_slow_sync(true);
        let ((began, begun), (go, wait)) = (mpsc::channel(), mpsc::channel::<()>());
        let (began, wait) = (std::sync::Mutex::new(began), std::sync::Mutex::new(wait));
        files.set_fault(move |call, _| {
            (call == Call::SyncMetadata).then(|| {
                let _ = began.lock().unwrap().send(());
                let _ = wait.lock().unwrap().recv();
                vouch_vfs::Error::Io(std::io::Error::other("a bad block"))
            })
        });
        let meanwhile = async {
            while begun.try_recv().is_err() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            look(&two, b"/data/b/secret/f").await;
            drop(go);
        };
        let (renamed, ()) =
            tokio::join!(one.rename(&data.handle, b"a", &data.handle, b"b"), meanwhile);
        renamed.unwrap_err();
        files.clear_fault();
        look(&two, b"/data/b/secret/f").await;
        one.close().await.unwrap();
        two.close().await.unwrap();
    });
    drop(server);
    let was = "was \"/data/a/secret/f\" before a rename";
    let mut found: Vec<_> = records(directory.path())
        .into_iter()
        .skip(1)
        .map(|(what, detail, _)| (what, detail))
        .collect();
    found.sort();
    let expected = [
        ("OPEN /data/a/secret/f", ""),
        ("OPEN /data/b/secret/f", was),
        ("OPEN /data/b/secret/f", was),
        ("RENAME /data/a /data/b", ""),
    ];
    assert_eq!(found, expected.map(|(what, detail)| (what.to_owned(), detail.to_owned())));
}

#[test]
fn open_record_names_file_for_every_claim() {
    use vouch_nfs4::op::{
        Args, DelegateCur, DelegationType, OpenArgs, OpenClaim, OpenHow, ShareDeny,
    };
    use vouch_nfs4::{Bytes, ClientId, OwnerSeq, StateOwner, Stateid};
    let (directory, server) = start_audited(Some("-w /data/secret -p r -k s\n"), MemoryFs::new());
    block_on(async {
        let client = client_of(&server, "one", 1, 2).await;
        let data = client.walk(b"/data").await.unwrap();
        make(&client, &data.handle, b"secret").await;
        let secret = client.walk(b"/data/secret").await.unwrap();
        let (name, stateid) = (vouch_nfs4::Name(b"secret"), Stateid::ANONYMOUS);
        for (of, claim) in [
            (&data, OpenClaim::Null(name)),
            (&data, OpenClaim::DelegateCur(DelegateCur { stateid, name })),
            (&data, OpenClaim::DelegatePrev(name)),
            (&secret, OpenClaim::Previous(DelegationType::None)),
            (&secret, OpenClaim::Fh),
            (&secret, OpenClaim::DelegCurFh(stateid)),
            (&secret, OpenClaim::DelegPrevFh),
        ] {
            let owner = StateOwner { client: ClientId(0), owner: Bytes(b"owner") };
            let how = OpenHow::NoCreate;
            let open = OpenArgs {
                seq: OwnerSeq(0),
                access: ShareAccess::READ,
                deny: ShareDeny(0),
                owner,
                how,
                claim,
            };
            drop(client.compound().putfh(&of.handle).op(&Args::Open(open)).send().await);
        }
    });
    drop(server);
    assert_records(&directory, 0, &[("OPEN /data/secret", ""); 8]);
}

#[test]
fn read_is_audited_under_path_at_time_of_read() {
    let files = MemoryFs::new();
    let (directory, server) = start_audited(Some("-w /data/secret -p rwa -k s\n"), files.clone());
    block_on(async {
        let (one, two) =
            (client_of(&server, "one", 1, 2).await, client_of(&server, "two", 1, 2).await);
        let data = one.walk(b"/data").await.unwrap();
        let secret = one.mkdir(&data.handle, b"secret", 0o755).await.unwrap();
        make(&one, &secret, b"f").await;
        make(&one, &data.handle, b"a").await;
        let file = one.walk(b"/data/secret/f").await.unwrap();
        files.set_slow_sync(true);
        let ((began, begun), (go, wait)) = (mpsc::channel(), mpsc::channel::<()>());
        let frozen = std::sync::Mutex::new(Some((began, wait)));
        files.set_fault(move |call, _| {
            let first =
                (call == Call::SyncMetadata).then(|| frozen.lock().unwrap().take()).flatten();
            if let Some((began, wait)) = first {
                let _ = began.send(());
                let _ = wait.recv();
            }
            None
        });
        let read = vouch_nfs4::op::ReadArgs {
            stateid: vouch_nfs4::Stateid::ANONYMOUS,
            offset: 0,
            count: 1,
        };
        let (old, new) = (vouch_nfs4::Name(b"a"), vouch_nfs4::Name(b"b"));
        let rename = vouch_nfs4::op::Args::Rename(vouch_nfs4::op::RenameArgs { old, new });
        let one_call = one.compound().putfh(&data.handle).savefh().op(&rename).putfh(&file.handle);
        let one_call = one_call.op(&vouch_nfs4::op::Args::Read(read));
        let meanwhile = async {
            while begun.try_recv().is_err() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let is_moved = async {
                while two.walk(b"/data/g").await.is_err() {}
                drop(go);
            };
            let (renamed, ()) =
                tokio::join!(two.rename(&secret, b"f", &data.handle, b"g"), is_moved);
            renamed.unwrap();
        };
        let (done, ()) = tokio::join!(one_call.send(), meanwhile);
        done.unwrap();
        one.close().await.unwrap();
        two.close().await.unwrap();
    });
    drop(server);
    let found = records(directory.path());
    assert!(
        found.iter().any(|(what, detail, _)| what == "READ /data/secret/f" && detail.is_empty()),
        "{found:?}"
    );
}
