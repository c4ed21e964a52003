//! Several servers that export one tree, and clients that move between them.

use std::os::unix::fs::PermissionsExt as _;

use vouch_nfs4::op::LockType;
use vouch_nfs4::{Bitmap, Status, Verifier};
use vouch_nfs4_client::{Config, Identity, Lock, OpenFile, Plain};
use vouch_oncrpc::AuthSys;

use crate::prelude::*;
use vouch_testkit::moving_address::MovingAddress;

/// Starts a head with its own state. `source` is a tree's name or database.
pub(crate) fn start_head(site: &TestSite, state: &str, source: &str, more: &[&str]) -> Export {
    let key = site.path("filehandle.key");
    if !key.exists() {
        fs::write(&key, format!("{}\n", "5a".repeat(32))).expect("a file");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("an own file");
    }
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let (dir, listen) = (format!("tree:{source}"), address.to_string());
    let fixed = format!(
        "export --dir {dir} --state {state} --lease 5 --listen {listen} --filehandle-key filehandle.key"
    );
    let fixed = words(&fixed);
    Export::spawn(&mut site.command([&fixed, more].concat()), address)
}

fn database(site: &TestSite) -> String {
    site.path("db").into_os_string().into_string().expect("UTF-8")
}

const READ_ONLY: [&str; 2] = ["--options", "ro,insecure"];

/// All that could differ between servers: type, change, size, fsid, filehandle, fileid, mode, links,
/// owner, group, device, space used, times.
const COMPARED: Bitmap = Bitmap::of(&[1, 3, 4, 8, 19, 20, 33, 35, 36, 37, 41, 45, 47, 52, 53, 55]);

async fn attributes_of(client: &Client, path: &str) -> String {
    let found = client.walk(path.as_bytes()).await.expect("a file of the tree");
    let reply =
        client.compound().putfh(&found.handle).getattr(COMPARED).send().await.expect("an answer");
    let mut results = reply.results();
    results.next_ok().expect("a good handle");
    format!("{:?}", results.next_ok().expect("attributes"))
}

#[test]
fn heads_of_a_tree_report_the_same_identities() {
    let (site, _replica) = TestSite::served();
    let deep = format!("{}/{}/file", "long-name".repeat(9), "longer-name".repeat(9));
    let paths = format!(
        "export export/hello export/dir export/dir/numbers export/dir/empty export/link export/{deep}"
    );
    let paths = words(&paths);
    let old = start_head(&site, "old", &database(&site), &READ_ONLY);
    let by_name = start_head(&site, "by-name", &site.name(""), &READ_ONLY);
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let through_old = connect(old.address, 2, "test", 0).await.expect("the client connects");
        let through_name =
            connect(by_name.address, 2, "test", 0).await.expect("the client connects");
        for path in &paths[..6] {
            assert_eq!(
                attributes_of(&through_old, path).await,
                attributes_of(&through_name, path).await,
                "{path}"
            );
        }
        // The old head knows these files from the revision before.
        site.write(&format!("src/{deep}"), "deep");
        site.publish();
        let new = start_head(&site, "new", &database(&site), &READ_ONLY);
        let mut left = 300;
        while through_old.walk(paths[6].as_bytes()).await.is_err() {
            left -= 1;
            assert!(left > 0, "the next revision does not appear");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        // Not before: its lease would end during the wait.
        let through_new = connect(new.address, 2, "test", 0).await.expect("the client connects");
        for path in paths {
            assert_eq!(
                attributes_of(&through_old, path).await,
                attributes_of(&through_new, path).await,
                "{path}"
            );
        }
    });
}

/// A client with an open file and a lock on it.
struct Reader {
    client: Client,
    file: OpenFile,
    lock: Lock,
}

impl Reader {
    async fn start(address: SocketAddr, minor: u32) -> Reader {
        // Reclaims come before RECLAIM_COMPLETE.
        let identity =
            Identity { reclaim_complete: false, ..Identity::new("reader", Verifier([7; 8])) };
        let client =
            Client::connect(Config::new(address, minor, identity, Plain::sys(&AuthSys::default())))
                .await
                .expect("a server");
        client.reclaim_complete().await.expect("nothing to reclaim");
        let directory = client.walk(b"export/dir").await.expect("a directory").handle;
        let mut file = client
            .open(&directory, b"numbers", ShareAccess::READ, None)
            .await
            .expect("the file opens");
        let lock = client
            .lock(&mut file, b"owner", LockType::Read, 0, 10)
            .await
            .expect("an answer")
            .expect("nobody holds a lock");
        Reader { client, file, lock }
    }

    async fn content(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        loop {
            let (piece, eof) = self.client.read(&self.file, bytes.len() as u64, 10_000).await?;
            bytes.extend(piece);
            if eof {
                return Ok(bytes);
            }
        }
    }

    async fn reclaim(&mut self) -> Result<(), Error> {
        self.client.renew().await?;
        self.client.reclaim_open(&mut self.file).await?;
        self.lock =
            self.client.reclaim_lock(&mut self.file, b"owner", LockType::Read, 0, 10).await?;
        match self.client.reclaim_complete().await {
            // The head still has the client's record of an earlier visit.
            Err(error) if error.status() == Some(Status::COMPLETE_ALREADY) => Ok(()),
            completed => completed,
        }
    }
}

#[test]
fn client_keeps_open_file_and_lock_when_its_address_moves() {
    let site = TestSite::published();
    let heads =
        ["first", "second"].map(|state| start_head(&site, state, &database(&site), &READ_ONLY));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let moving =
        MovingAddress::start(listener, heads.iter().map(|head| head.address).collect(), u64::MAX);
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let mut reader = Reader::start(moving.address, 2).await;
        let content = reader.content().await.expect("the content");
        for _ in 0..5 {
            moving.move_on();
            let error =
                reader.content().await.expect_err("the other head does not know the session");
            assert!(matches!(error, Error::Lost) || error.status().is_some(), "{error}");
            reader.reclaim().await.expect("the other head grants what the first one did");
            assert!(reader.content().await.expect("the content") == content);
        }
        assert_eq!(moving.moves(), 5);
        let Reader { client, file, mut lock } = reader;
        client.unlock(&file, &mut lock, 0, 10).await.expect("the lock was kept");
        client.close_file(file).await.expect("the file was open");
    });
}
