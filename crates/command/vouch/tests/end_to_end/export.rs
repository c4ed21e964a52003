use std::io::BufRead as _;
use std::os::unix::process::CommandExt as _;

use vouch_nfs4::{Status, Verifier};
use vouch_nfs4_client::{Config, FileInfo, Identity, Plain};
use vouch_oncrpc::AuthSys;

use crate::prelude::*;

impl Export {
    fn of(site: &TestSite, tree: &str) -> Self {
        Export::start(site, &["--dir", &format!("tree:{tree}"), "--options", "ro,insecure"])
    }

    /// `limit` as ulimit of the shell takes it; files in units of 512 bytes.
    fn with_limit(site: &TestSite, dir: &str, limit: &str) -> Self {
        let port = free_port();
        let (listen, listen_v6) = (format!("127.0.0.1:{port}"), format!("[::1]:{port}"));
        let export = format!(
            "export --dir {dir} --options rw,insecure --listen {listen} --listen {listen_v6}"
        );
        let export = words(&export);
        let vouch = site.command([&export[..], &["--state", "exporting", "--lease", "5"]].concat());
        let mut command = std::process::Command::new("sh");
        command
            .args(["-c", &format!("ulimit {limit}; exec \"$0\" \"$@\"")])
            .arg(vouch.get_program())
            .args(vouch.get_args());
        Export::spawn(
            command.current_dir(site.path("")).stdin(Stdio::null()),
            listen.parse().expect("an address"),
        )
    }

    async fn client(&self, minor: u32) -> Client {
        self.client_named(&format!("test {minor}"), minor).await
    }

    async fn client_named(&self, name: &str, minor: u32) -> Client {
        Self::client_at(self.address, name, minor).await
    }

    async fn client_at(address: std::net::SocketAddr, name: &str, minor: u32) -> Client {
        connect(address, minor, name, 0).await.expect("the client connects")
    }
}

async fn content(client: &Client, found: &FileInfo, name: &[u8]) -> Result<Vec<u8>, Error> {
    let file = loop {
        match client.open(&found.handle, name, ShareAccess::READ, None).await {
            Err(Error::Refused { status: Status::GRACE | Status::DELAY, .. }) => {
                tokio::time::sleep(Duration::from_millis(200)).await
            }
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

async fn wait_for_content(client: &Client, directory: &FileInfo, expected: &[u8]) {
    let mut left = 300;
    while content(client, directory, b"numbers").await.ok().as_deref() != Some(expected) {
        left -= 1;
        assert!(left > 0, "the next revision does not appear");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn numbers() -> Vec<u8> {
    (0..50_000u32).map(|n| format!("{n}\n")).collect::<String>().into_bytes()
}

#[test]
fn opens_of_one_host_leave_descriptors_for_another() {
    const FILES: usize = 1200;
    let site = TestSite::new();
    (0..FILES).for_each(|n| site.write(&format!("shared/f{n}"), format!("{n}")));
    const SHARE: usize = 800;
    let export = Export::with_limit(&site, "shared", "-n 4000");
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let other_host = (std::net::Ipv6Addr::LOCALHOST, export.address.port()).into();
        let greedy = export.client_named("greedy", 2).await;
        let root = greedy.walk(b"export").await.expect("the root").handle;
        let mut open = Vec::new();
        let refused = loop {
            let name = format!("f{}", open.len());
            match greedy.open(&root, name.as_bytes(), ShareAccess::READ, None).await {
                Ok(file) => open.push(file),
                Err(Error::Refused { status, .. }) => break status,
                Err(error) => panic!("{error}"),
            }
            assert!(open.len() < FILES, "opens are not limited");
        };
        assert_eq!((refused, open.len()), (Status::NOSPC, SHARE));
        let (bytes, _) = greedy.read(&open[SHARE - 1], 0, 10).await.expect("the file is open");
        assert_eq!(bytes, (SHARE - 1).to_string().into_bytes());
        // Not before: nobody renews its lease meanwhile.
        let other = Export::client_at(other_host, "other", 1).await;
        for n in [1100, 5, SHARE - 1] {
            let found = other.walk(b"export").await.expect("the root");
            assert_eq!(
                content(&other, &found, format!("f{n}").as_bytes()).await.expect("its content"),
                n.to_string().as_bytes()
            );
        }
        greedy.close_file(open.pop().expect("some are")).await.expect("the file was open");
        greedy
            .open(&root, b"f1199", ShareAccess::READ, None)
            .await
            .expect("in the place of the one that was closed");
    });
}

#[test]
fn file_over_size_limit_of_server_is_refused() {
    let site = TestSite::new();
    site.write("shared/small", "small");
    site.run_tool("chmod", &["666", "shared/small"]);
    let export = Export::with_limit(&site, "shared", "-f 131072");
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let client = export.client(2).await;
        let root = client.walk(b"export").await.expect("the root").handle;
        let file = loop {
            match client.open(&root, b"small", ShareAccess::BOTH, None).await {
                Err(Error::Refused { status: Status::GRACE | Status::DELAY, .. }) => {
                    tokio::time::sleep(Duration::from_millis(200)).await
                }
                opened => break opened.expect("opened"),
            }
        };
        let refused = client.write(&file, 64 << 20, &[1; 4096], StableHow::FileSync).await;
        assert!(matches!(refused, Err(Error::Refused { status: Status::FBIG, .. })), "{refused:?}");
        assert_eq!(client.read(&file, 0, 9).await.expect("the server lives").0, b"small");
    });
}

#[test]
fn tree_is_exported_from_replicas_in_every_minor_version() {
    let (site, _replica) = TestSite::served();
    let export = Export::of(&site, &site.name(""));
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        for minor in 0..=2 {
            let client = export.client(minor).await;
            let root = client.walk(b"export").await.expect("the root of the tree");
            assert_eq!(
                content(&client, &root, b"hello").await.expect("its content"),
                b"hello world\n"
            );
            let directory = client.walk(b"export/dir").await.expect("a directory");
            assert!(
                content(&client, &directory, b"numbers").await.expect("its content") == numbers()
            );
            assert!(client.walk(b"export/none").await.is_err());
            assert!(
                client
                    .open(&root.handle, b"new", ShareAccess::BOTH, Some(&Default::default()))
                    .await
                    .is_err()
            );
        }
    });
}

#[test]
fn exported_database_shows_new_revisions_and_keeps_handles() {
    let site = TestSite::published();
    let database = site.path("db").into_os_string().into_string().expect("UTF-8");
    let export = Export::of(&site, &database);
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let client = export.client(1).await;
        let directory = client.walk(b"export/dir").await.expect("a directory");
        assert!(content(&client, &directory, b"numbers").await.expect("its content") == numbers());
        site.write("src/dir/numbers", "others");
        site.write("src/above", "new");
        site.publish();
        wait_for_content(&client, &directory, b"others").await;
        drop((client, export));
        let export = Export::of(&site, &database);
        let client = export.client(2).await;
        assert_eq!(
            content(&client, &directory, b"numbers").await.expect("the handle is good"),
            b"others"
        );
    });
}

#[test]
fn expired_tree_gives_errors_instead_of_old_data() {
    let site = TestSite::new();
    site.small_tree();
    site.publish_with(&["--duration", "6s"]);
    let database = site.path("db").into_os_string().into_string().expect("UTF-8");
    let export = Export::of(&site, &database);
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let client = export.client(1).await;
        let directory = client.walk(b"export/dir").await;
        // On a slow machine the tree may have expired by now.
        let Ok(directory) = directory else { return };
        let open = client.open(&directory.handle, b"numbers", ShareAccess::READ, None).await;
        let mut left = 300;
        let error = loop {
            match content(&client, &directory, b"numbers").await {
                Ok(bytes) => assert!(bytes == numbers()),
                Err(error) => break error,
            }
            left -= 1;
            assert!(left > 0, "the tree does not expire");
            tokio::time::sleep(Duration::from_millis(200)).await;
        };
        assert_eq!(error.status(), Some(Status::IO), "{error}");
        if let Ok(open) = open {
            assert_eq!(
                client.read(&open, 0, 1000).await.expect_err("the tree has expired").status(),
                Some(Status::IO)
            );
        }
        site.write("src/dir/numbers", "new");
        site.publish();
        wait_for_content(&client, &directory, b"new").await;
    });
}

struct UserExport {
    directory: tempfile::TempDir,
    uid: u32,
    port: u16,
}

impl UserExport {
    fn new() -> Self {
        let me = rustix::process::geteuid();
        let uid = if me.is_root() { 65_534 } else { me.as_raw() };
        let directory = tempfile::tempdir().expect("a temporary directory");
        let program = directory.path().join("vouch");
        std::fs::hard_link(env!("CARGO_BIN_EXE_vouch"), &program)
            .or_else(|_| std::fs::copy(env!("CARGO_BIN_EXE_vouch"), &program).map(drop))
            .expect("the binary can be copied");
        std::fs::create_dir(directory.path().join("data")).expect("a directory");
        for path in [directory.path().to_owned(), directory.path().join("data")] {
            std::os::unix::fs::chown(path, Some(uid), Some(uid))
                .expect("the owner and root may call chown");
        }
        UserExport { directory, uid, port: free_port() }
    }

    fn start(&self) -> (Export, Vec<String>) {
        let at = |name: &str| self.directory.path().join(name);
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        let mut command = std::process::Command::new(at("vouch"));
        command
            .arg("export")
            .arg("--dir")
            .arg(at("data"))
            .arg("--state")
            .arg(at("state"))
            .args(["--lease", "5"]);
        command
            .args(["--listen", &address.to_string()])
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        if rustix::process::geteuid().is_root() {
            command.uid(self.uid).gid(self.uid);
        }
        let mut child = command.spawn().expect("the binary starts");
        let lines = std::io::BufReader::new(child.stdout.take().expect("piped")).lines().take(3);
        let lines = lines.map(|line| line.expect("text")).collect();
        (Export { child: KillOnDrop(child), address }, lines)
    }
}

#[test]
fn ordinary_user_exports_own_files_with_a_notice() {
    let ordinary = UserExport::new();
    let (mut export, output_text) = ordinary.start();
    let uid = ordinary.uid;
    assert!(output_text[2].contains(&format!("uses the rights of user {uid}")), "{output_text:?}");
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let as_user = async |name, uid| {
            connect(export.address, 1, name, uid).await.expect("the client connects")
        };
        let client = as_user("owner", uid).await;
        let root = client.walk(b"export").await.expect("the root").handle;
        let file = client
            .open(&root, b"mine", ShareAccess::BOTH, Some(&Default::default()))
            .await
            .expect("the user may create files");
        client
            .write(&file, 0, b"mine", vouch_nfs4::op::StableHow::FileSync)
            .await
            .expect("written");
        client.rename(&root, b"mine", &root, b"renamed").await.expect("renamed");
        let path = ordinary.directory.path().join("data/renamed");
        assert_eq!(
            std::os::unix::fs::MetadataExt::uid(&path.metadata().expect("the file exists")),
            uid
        );
        let other = as_user("other", 12_345).await;
        let refused = other
            .open(&root, b"theirs", ShareAccess::BOTH, Some(&Default::default()))
            .await
            .expect_err("not by that user");
        assert_eq!(refused.status(), Some(Status::ACCESS));

        export.child.kill().expect("the process runs");
        export.child.wait().expect("the server was killed");
        let (_export, _) = ordinary.start();
        let again = connect(export.address, 1, "again", uid).await.expect("the client connects");
        let reply = again
            .compound()
            .putfh(&file.handle)
            .getattr(vouch_nfs4::Bitmap::of(&[4]))
            .send()
            .await
            .expect("answered");
        let mut results = reply.results();
        results.next_ok().expect("the handle is good");
        results.next_ok().expect("getattr succeeds");
    });
}

#[test]
fn grace_ends_when_last_awaited_client_is_back() {
    let site = TestSite::with_directories(&["data"]);
    site.write("data/f", "x");
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let listen = address.to_string();
    let start = || {
        let fixed = words("export --dir data --options rw,insecure --state exporting --lease 600");
        Export::spawn(&mut site.command([&fixed[..], &["--listen", &listen]].concat()), address)
    };
    let awaited = || -> Vec<(String, bool)> {
        let status = site.run_ok(["export", "status", "--state", "exporting", "--json"]);
        let status: Value = serde_json::from_str(&status).expect("JSON");
        let mut awaited: Vec<_> = status["awaited"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|one| {
                let owner = one["owner"].as_str().expect("a name");
                (owner.to_owned(), one["is_back"].as_bool().expect("a flag"))
            })
            .collect();
        awaited.sort();
        awaited
    };
    let back = async |name: &str| {
        let identity = Identity::new(name.as_bytes().to_vec(), Verifier([7; 8]));
        let identity = Identity { reclaim_complete: false, ..identity };
        let user = Plain::sys(&AuthSys::default());
        Client::connect(Config::new(address, 2, identity, user)).await.expect("the client connects")
    };
    let export = start();
    tokio::runtime::Runtime::new().expect("a runtime").block_on(async {
        let mut files = Vec::new();
        for name in ["one", "two"] {
            let client = connect(address, 2, name, 0).await.expect("the client connects");
            let root = client.walk(b"export").await.expect("the root").handle;
            files.push(client.open(&root, b"f", ShareAccess::READ, None).await.expect("open"));
        }
        drop(export);
        let _export = start();
        assert_eq!(awaited(), [("one".to_owned(), false), ("two".to_owned(), false)]);
        let (one, two) = (back("one").await, back("two").await);
        one.reclaim_open(&mut files[0]).await.expect("reclaimed");
        one.reclaim_complete().await.expect("complete");
        assert_eq!(awaited(), [("two".to_owned(), true)]);
        let root = one.walk(b"export").await.expect("the root").handle;
        let early = one.open(&root, b"f", ShareAccess::READ, None).await;
        assert_eq!(early.err().and_then(|error| error.status()), Some(Status::GRACE));
        two.reclaim_complete().await.expect("complete");
        assert!(awaited().is_empty());
        one.open(&root, b"f", ShareAccess::READ, None).await.expect("grace has ended");
    });
}
