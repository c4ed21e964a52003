//! Published trees exported to NFS clients that have nothing of ours: by name and from a database, over new revisions and restarts.

use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::time::Duration;

use vouch_nfs4::op::ShareAccess;
use vouch_nfs4::{Status, Verifier};
use vouch_nfs4_client::{Client, Config, Error, Found, Identity, Plain};
use vouch_oncrpc::AuthSys;

use crate::world::{World, eventually};

struct Export {
    child: Child,
    address: SocketAddr,
}

impl Drop for Export {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Export {
    fn of(world: &World, tree: &str) -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port").port();
        let (listen, state) = (format!("127.0.0.1:{port}"), world.path("exporting"));
        let mut command = world.command(["export", "--dir", &format!("tree:{tree}"), "--options", "ro,insecure", "--listen", &listen]);
        let child = command.arg("--state").arg(state).args(["--lease", "5"]).stdout(Stdio::null()).spawn().expect("the binary starts");
        let export = Export { child, address: listen.parse().expect("an address") };
        assert!(eventually(Duration::from_secs(30), || std::net::TcpStream::connect(export.address).is_ok()), "the export does not start");
        export
    }

    async fn client(&self, minor: u32) -> Client {
        let identity = Identity::new(format!("test {minor}").into_bytes(), Verifier([7; 8]));
        Client::connect(Config::new(self.address, minor, identity, Plain::sys(&AuthSys::default()))).await.expect("a client is let in")
    }
}

async fn content(client: &Client, found: &Found, name: &[u8]) -> Result<Vec<u8>, Error> {
    let file = loop {
        match client.open(&found.handle, name, ShareAccess::READ, None).await {
            // Grace after a restart.
            Err(Error::Refused { status: Status::GRACE | Status::DELAY, .. }) => tokio::time::sleep(Duration::from_millis(200)).await,
            opened => break opened?,
        }
    };
    let mut bytes = Vec::new();
    loop {
        let (piece, eof) = client.read(&file, bytes.len() as u64, 100_000).await?;
        bytes.extend(piece);
        if eof {
            client.close_file(file).await?;
            return Ok(bytes);
        }
    }
}

fn numbers() -> Vec<u8> {
    (0..50_000u32).map(|n| format!("{n}\n")).collect::<String>().into_bytes()
}

#[test]
fn a_tree_is_exported_from_replicas_to_every_minor_version() {
    let world = World::new();
    world.small_tree();
    world.publish();
    let _replica = world.serve();
    let export = Export::of(&world, &world.name(""));
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        for minor in 0..=2 {
            let client = export.client(minor).await;
            let root = client.walk(b"export").await.expect("the root of the tree");
            assert_eq!(content(&client, &root, b"hello").await.expect("its content"), b"hello world\n");
            let directory = client.walk(b"export/dir").await.expect("a directory");
            assert!(content(&client, &directory, b"numbers").await.expect("its content") == numbers());
            assert!(client.walk(b"export/none").await.is_err());
            assert!(client.open(&root.handle, b"new", ShareAccess::BOTH, Some(&Default::default())).await.is_err());
        }
    });
}

#[test]
fn a_database_is_exported_and_its_next_revision_appears_and_handles_outlive_the_export() {
    let world = World::new();
    world.small_tree();
    world.publish();
    let database = world.path("db").into_os_string().into_string().expect("UTF-8");
    let export = Export::of(&world, &database);
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let client = export.client(1).await;
        let directory = client.walk(b"export/dir").await.expect("a directory");
        assert!(content(&client, &directory, b"numbers").await.expect("its content") == numbers());
        world.write("src/dir/numbers", "others");
        world.write("src/above", "new");
        world.publish();
        let mut left = 100;
        while content(&client, &directory, b"numbers").await.expect("its content") != b"others" {
            left -= 1;
            assert!(left > 0, "the next revision does not appear");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        drop((client, export));
        let export = Export::of(&world, &database);
        let client = export.client(2).await;
        assert_eq!(content(&client, &directory, b"numbers").await.expect("the handle is good"), b"others");
    });
}
