use std::io::{Read as _, Write as _};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::mpsc;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use vouch_nfs4::Verifier;
use vouch_nfs4_client::{ClientFiles, Config, Identity, Plain, TlsClient};
use vouch_oncrpc::{AuthSys, Call, Flavor, OpaqueAuth, record};
use vouch_rpc_tls::credentials::client_config;
use vouch_testkit::certificates::{Authority, Holder, user_name};
use vouch_testkit::read_record;

use crate::prelude::*;

mod idle_memory;
mod takeover;

struct TlsExport {
    address: SocketAddr,
    child: KillOnDrop,
}

impl TlsExport {
    fn start(site: &TestSite, options: &str, more: &[&str]) -> Self {
        std::fs::create_dir_all(site.path("shared")).expect("a directory");
        let listen = format!("127.0.0.1:{}", free_port());
        let options = format!("rw,insecure,no_root_squash,{options}");
        let args = format!(
            "export --dir shared --options {options} --listen {listen} --state exporting --lease 5"
        );
        let args = words(&args);
        let log = std::fs::File::create(site.path("log")).expect("a file");
        let mut command = site.command(
            [&args[..], &["--tls-cert", "server.pem", "--tls-key", "server.key"], more].concat(),
        );
        let child = KillOnDrop(
            command.stdout(Stdio::null()).stderr(log).spawn().expect("the binary starts"),
        );
        let export = TlsExport { child, address: listen.parse().expect("an address") };
        assert!(
            eventually(Duration::from_secs(30), || TcpStream::connect(export.address).is_ok()),
            "{}",
            read_log(site)
        );
        export
    }

    async fn connect(
        &self,
        site: &TestSite,
        holder: Option<&str>,
        minor: u32,
        uid: u32,
    ) -> Result<Client, Error> {
        let files = ClientFiles {
            authorities: site.path("ca.pem"),
            certificate: holder
                .map(|name| (site.path(format!("{name}.pem")), site.path(format!("{name}.key")))),
        };
        let tls = TlsClient::new(&files, "127.0.0.1").expect("files of this test");
        let user = AuthSys { uid, gid: uid, ..AuthSys::default() };
        let name = format!("{holder:?} {minor} {uid}");
        let identity = Identity::new(name.into_bytes(), Verifier([7; 8]));
        Client::connect(Config {
            tls: Some(tls),
            ..Config::new(self.address, minor, identity, Plain::sys(&user))
        })
        .await
    }

    /// A way to the server that tells when the client has sent the end of its handshake, and then waits
    /// for a word before it passes that on.
    fn held_before_end_of_handshake(&self) -> (SocketAddr, mpsc::Receiver<()>, mpsc::Sender<()>) {
        const PROBE_AND_HELLO: usize = 2;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let (address, server) = (listener.local_addr().expect("bound"), self.address);
        let ((held, is_held), (go, goes_on)) = (mpsc::channel(), mpsc::channel::<()>());
        std::thread::spawn(move || {
            let (mut from, mut to) = (
                listener.accept().expect("a client").0,
                TcpStream::connect(server).expect("the server"),
            );
            let (mut back, mut answers) =
                (from.try_clone().expect("a descriptor"), to.try_clone().expect("a descriptor"));
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut answers, &mut back);
                let _ = back.shutdown(std::net::Shutdown::Both);
            });
            let mut bytes = [0; 1 << 16];
            for part in 0.. {
                let Ok(len @ 1..) = from.read(&mut bytes) else { break };
                if part == PROBE_AND_HELLO {
                    held.send(()).expect("the test waits");
                    goes_on.recv().expect("the test says so");
                }
                if to.write_all(&bytes[..len]).is_err() {
                    break;
                }
            }
        });
        (address, is_held, go)
    }
}

fn read_log(site: &TestSite) -> String {
    std::fs::read_to_string(site.path("log")).unwrap_or_default()
}

fn site() -> (TestSite, Authority) {
    let site = TestSite::new();
    let authority = Authority::new(&site.path(""), "ca");
    authority.issue("server", Holder::on_loopback());
    (site, authority)
}

async fn write_and_read(client: &Client, name: &[u8]) {
    let root = client.walk(b"/export").await.expect("the export").handle;
    let mode = Attributes { mode: Some(0o644), ..Attributes::default() };
    let file = client.open(&root, name, ShareAccess::BOTH, Some(&mode)).await.expect("a new file");
    let data: Vec<u8> = (0..2_500_000u32).map(|i| (i / 7) as u8).collect();
    for (at, piece) in data.chunks(1 << 20).enumerate() {
        client.write(&file, (at as u64) << 20, piece, StableHow::Unstable).await.expect("written");
    }
    let mut found = Vec::new();
    while found.len() < data.len() {
        found.extend(client.read(&file, found.len() as u64, 1 << 20).await.expect("data").0);
    }
    assert!(found == data);
    client.close_file(file).await.expect("closed");
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Runtime::new().expect("a runtime").block_on(work)
}

#[test]
fn data_passes_over_tls_in_all_versions() {
    let (site, authority) = site();
    authority.issue("node", Holder::default());
    let export = TlsExport::start(&site, "xprtsec=tls", &["--tls-client-ca", "ca.pem"]);
    block_on(async {
        for minor in 0..=2 {
            for holder in [None, Some("node")] {
                let client =
                    export.connect(&site, holder, minor, 0).await.expect("a client over TLS");
                write_and_read(&client, format!("f{minor}{}", holder.is_some()).as_bytes()).await;
                client.close().await.expect("closed");
            }
        }
        let clear = connect(export.address, 1, "clear", 0).await;
        assert!(
            matches!(clear.as_ref().err(), Some(Error::Denied(stat)) if stat.0 == 5),
            "AUTH_TOOWEAK, not {:?}",
            clear.err()
        );
    });
    let log = read_log(&site);
    assert!(log.contains("a call without TLS, which all exports of this client demand"), "{log}");
    let status = site.run_ok(["export", "status", "--state", "exporting"]);
    assert!(status.contains("TLS certificate server"), "{status}");
}

#[test]
fn ml_dsa_certificates_prove_both_sides_after_hybrid_key_exchange() {
    let made = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wire/tls/src/testdata");
    let read = |name: String| std::fs::read(made.join(name)).expect("a file of OpenSSL");
    for (name, form) in [("44", "seed"), ("65", "both"), ("87", "expanded")] {
        let site = TestSite::new();
        for file in ["ca.pem", "server.pem"] {
            site.write(file, read(format!("certificate-{name}.pem")));
        }
        site.write("server.key", read(format!("{form}-{name}.pem")));
        let owner_only = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(site.path("server.key"), owner_only).expect("a mode");
        let export = TlsExport::start(&site, "xprtsec=mtls", &["--tls-client-ca", "ca.pem"]);
        block_on(async {
            let client = export.connect(&site, Some("server"), 2, 0).await.expect("a client");
            write_and_read(&client, b"file").await;
            client.close().await.expect("closed");
        });
        let mut stream = session(&site, export.address, 1, |_| ());
        stream.flush().expect("a handshake");
        let group = stream.conn.negotiated_key_exchange_group().expect("a handshake").name();
        assert_eq!(group, rustls::NamedGroup::X25519MLKEM768);
    }
}

#[test]
fn bench_measures_over_tls() {
    let (site, authority) = site();
    authority.issue("node", Holder::default());
    let export = TlsExport::start(&site, "xprtsec=none", &["--tls-client-ca", "ca.pem"]);
    let target = format!("nfs://{}/export", export.address);
    let tls = ["--tls-ca", "ca.pem", "--tls-cert", "node.pem", "--tls-key", "node.key"];
    let args = format!(
        "bench concurrency --quick --target {target} --sec sys,sys+tls,sys+mtls --rounds 1"
    );
    let args = words(&args);
    let short = ["--seconds", "0.05", "--file-size", "2M", "--depth", "8"];
    let output = site.run_ok([&args[..], &short, &tls].concat());
    assert!(output.contains("sys+mtls"), "{output}");
}

#[test]
fn certificate_decides_who_is_asking() {
    let (site, authority) = site();
    authority.issue("machine", Holder::default());
    authority.issue(
        "nobody",
        Holder { others: vec![user_name("nobody@example.org")], ..Holder::default() },
    );
    authority.issue(
        "foreign",
        Holder { others: vec![user_name("nobody@elsewhere.org")], ..Holder::default() },
    );
    let listed = authority.issue("listed", Holder::default());
    site.write("map", format!("sha256:{listed} daemon\nsubject:2.5.4.3 = BANNED !refuse\n"));
    authority.issue("banned", Holder::default());
    let more = ["--tls-client-ca", "ca.pem", "--certificate-map", "map", "--domain", "example.org"];
    let export = TlsExport::start(&site, "xprtsec=mtls", &more);
    let uid_of = |name: &str| {
        nix::unistd::User::from_name(name)
            .expect("a name service")
            .expect("a user of every system")
            .uid
            .as_raw()
    };
    block_on(async {
        for (holder, uid) in
            [("machine", 0), ("nobody", uid_of("nobody")), ("listed", uid_of("daemon"))]
        {
            site.run_tool("chmod", &["777", "shared"]);
            let client =
                export.connect(&site, Some(holder), 1, 0).await.expect("a client over TLS");
            let root = client.walk(b"/export").await.expect("the export").handle;
            let mode = Attributes { mode: Some(0o644), ..Attributes::default() };
            let file = client
                .open(&root, holder.as_bytes(), ShareAccess::BOTH, Some(&mode))
                .await
                .expect("a new file");
            let owner = std::os::unix::fs::MetadataExt::uid(
                &std::fs::metadata(site.path("shared").join(holder)).expect("made"),
            );
            assert_eq!(owner, uid, "{holder}");
            client.close_file(file).await.expect("closed");
        }
        for (holder, cause) in [
            ("foreign", "is not of the domain example.org"),
            ("banned", "the certificate map refuses"),
        ] {
            assert!(export.connect(&site, Some(holder), 1, 0).await.is_err());
            assert!(read_log(&site).contains(cause), "{}", read_log(&site));
        }
    });
}

#[test]
fn renewal_keeps_sessions_and_revocation_ends_them() {
    let (site, authority) = site();
    authority.issue("good", Holder::default());
    authority.issue("stolen", Holder { serial: 77, ..Holder::default() });
    authority.revoke("crl.pem", &[]);
    let export = TlsExport::start(
        &site,
        "xprtsec=mtls",
        &["--tls-client-ca", "ca.pem", "--tls-crl", "crl.pem"],
    );
    let server = export.address;
    block_on(async {
        let good = export.connect(&site, Some("good"), 1, 0).await.expect("a client");
        let stolen = export.connect(&site, Some("stolen"), 1, 0).await.expect("not revoked yet");
        let renewed = authority.issue("server", Holder::on_loopback());
        authority.revoke("crl.pem", &[77]);
        site.run_ok(["export", "reload", "--state", "exporting"]);
        write_and_read(&good, b"kept").await;
        let gone = tokio::time::timeout(Duration::from_secs(30), stolen.walk(b"/export")).await;
        assert!(!matches!(gone, Ok(Ok(_))), "a revoked client goes on");
        assert!(export.connect(&site, Some("stolen"), 1, 0).await.is_err());
        assert!(export.connect(&site, Some("good"), 2, 0).await.is_ok());
        let log = read_log(&site);
        assert!(log.contains("no longer accepted") && log.contains("Revoked"), "{log}");
        let status = site.run_ok(["export", "status", "--json", "--state", "exporting"]);
        assert!(status.contains(&renewed), "{status}");
    });
    // A handshake that began before the reload.
    authority.issue("late", Holder { serial: 78, ..Holder::default() });
    let (address, is_held, go) = export.held_before_end_of_handshake();
    let through = TlsExport { address, ..export };
    std::thread::scope(|scope| {
        let late = scope.spawn(|| block_on(through.connect(&site, Some("late"), 1, 0)).is_ok());
        is_held.recv_timeout(Duration::from_secs(60)).expect("the handshake begins");
        authority.revoke("crl.pem", &[77, 78]);
        site.run_ok(["export", "reload", "--state", "exporting"]);
        go.send(()).expect("the way is open");
        assert!(!late.join().expect("no panic"), "a revoked client enters");
    });
    let export = TlsExport { address: server, ..through };
    site.write("server.pem", "nonsense");
    let refused = site.run(["export", "reload", "--state", "exporting"]);
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("server.pem: contains no certificate"),
        "{refused:?}"
    );
    assert!(block_on(export.connect(&site, Some("good"), 1, 0)).is_ok());
}

#[test]
fn changed_certificate_map_reaches_open_sessions() {
    let (site, authority) = site();
    let listed = authority.issue("listed", Holder::default());
    authority.issue("other", Holder::default());
    site.write("map", format!("sha256:{listed} daemon\n* !machine\n"));
    let more = ["--tls-client-ca", "ca.pem", "--certificate-map", "map"];
    let export = TlsExport::start(&site, "xprtsec=mtls", &more);
    site.run_tool("chmod", &["777", "shared"]);
    block_on(async {
        let other = export.connect(&site, Some("other"), 1, 0).await.expect("a client");
        let client = export.connect(&site, Some("listed"), 1, 0).await.expect("a client");
        let root = client.walk(b"/export").await.expect("the export").handle;
        let mode = Attributes { mode: Some(0o600), ..Attributes::default() };
        let file = client
            .open(&root, b"private", ShareAccess::BOTH, Some(&mode))
            .await
            .expect("a new file");
        client.write(&file, 0, b"secret", StableHow::FileSync).await.expect("written");
        site.write("map", format!("sha256:{listed} nobody\n* !machine\n"));
        site.run_ok(["export", "reload", "--state", "exporting"]);
        let read = tokio::time::timeout(Duration::from_secs(30), client.read(&file, 0, 6)).await;
        assert!(!matches!(read, Ok(Ok(_))), "another user reads the file");
        assert!(read_log(&site).contains("names another holder"), "{}", read_log(&site));
        write_and_read(&other, b"kept").await;
    });
}

#[test]
fn demands_that_the_server_cannot_meet_are_refused_at_start() {
    let (site, _) = site();
    site.write("shared/x", "");
    let run = |more: &[&str]| {
        let output = site.run(
            [
                &["export", "--dir", "shared", "--listen", "127.0.0.1:0", "--state", "exporting"],
                more,
            ]
            .concat(),
        );
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        String::from_utf8(output.stderr).expect("text")
    };
    let tls = ["--tls-cert", "server.pem", "--tls-key", "server.key"];
    assert!(run(&["--options", "xprtsec=tls"]).contains("start it with --tls-cert and --tls-key"));
    assert!(run(&[&["--options", "xprtsec=mtls"], &tls[..]].concat()).contains("--tls-client-ca"));
    site.run_tool("chmod", &["644", "server.key"]);
    assert!(run(&tls).contains("server.key: the private key is accessible by other users (mode 0644) and holds secrets; run `chmod 600"));
}

fn call(xid: u32, procedure: u32, flavor: Flavor) -> Vec<u8> {
    let args = if procedure == 0 { &[][..] } else { &[0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0] };
    let cred = OpaqueAuth { flavor, body: &[] };
    record(|w| Call { cred, ..Call::new(xid, (100_003, 4), procedure, args) }.encode(w))
}

fn socket(address: SocketAddr, host: u8) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    bind(&socket, &SocketAddr::from((Ipv4Addr::new(127, 0, 0, host), 0)))
        .expect("a loopback address");
    connect(&socket, &address).expect("the server listens");
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true).expect("an option of TCP");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out");
    stream
}

fn probed(address: SocketAddr, host: u8) -> TcpStream {
    let mut stream = socket(address, host);
    stream.write_all(&call(1, 0, Flavor::TLS)).expect("sent");
    assert!(
        read_record(&mut stream)
            .is_ok_and(|record| record.windows(8).any(|part| part == b"STARTTLS"))
    );
    stream
}

type Attack = Box<dyn Fn(&TestSite, SocketAddr, u8)>;

fn in_session(attack: impl Fn(StreamOwned<ClientConnection, TcpStream>) + 'static) -> Attack {
    Box::new(move |site, address, host| {
        let mut stream = session(site, address, host, |_| ());
        stream.write_all(&call(2, 0, Flavor::NONE)).expect("sent");
        assert!(read_record(&mut stream).is_ok(), "the session works");
        attack(stream);
    })
}

fn session(
    site: &TestSite,
    address: SocketAddr,
    host: u8,
    change: impl FnOnce(&mut rustls::ClientConfig),
) -> StreamOwned<ClientConnection, TcpStream> {
    let files = ClientFiles { authorities: site.path("ca.pem"), certificate: None };
    let mut config =
        rustls::ClientConfig::clone(&client_config(&files).expect("files of this test"));
    change(&mut config);
    let name = ServerName::try_from("127.0.0.1").expect("an address");
    StreamOwned::new(
        ClientConnection::new(Arc::new(config), name).expect("a configuration"),
        probed(address, host),
    )
}

fn with_certificate(holder: &'static str) -> Attack {
    Box::new(move |site, address, host| {
        let certificate =
            Some((site.path(format!("{holder}.pem")), site.path(format!("{holder}.key"))));
        let files = ClientFiles { authorities: site.path("ca.pem"), certificate };
        let config = client_config(&files).expect("files of this test");
        let name = ServerName::try_from("127.0.0.1").expect("an address");
        let mut stream = StreamOwned::new(
            ClientConnection::new(config, name).expect("a configuration"),
            probed(address, host),
        );
        assert!(
            stream.write_all(&call(2, 0, Flavor::NONE)).is_err()
                || read_record(&mut stream).is_err(),
            "{holder} gets an answer"
        );
    })
}

#[test]
fn attacks_are_refused_with_one_line_each() {
    let (site, authority) = site();
    let strange = Authority::new(&site.path(""), "strange");
    strange.issue("untrusted", Holder::default());
    authority.issue("expired", Holder { years: 2001..2002, ..Holder::default() });
    authority.issue("early", Holder { years: 2090..2091, ..Holder::default() });
    authority.issue("revoked", Holder { serial: 5, ..Holder::default() });
    authority.issue("purpose", Holder { is_server_only: true, ..Holder::default() });
    authority.revoke("crl.pem", &[5]);
    let more = ["--tls-client-ca", "ca.pem", "--tls-crl", "crl.pem", "--stall-max", "2s"];
    let export = TlsExport::start(&site, "xprtsec=mtls", &more);
    let closed = |mut stream: TcpStream| while stream.read(&mut [0; 4096]).is_ok_and(|n| n > 0) {};
    let attacks: Vec<(&str, Attack)> = vec![
        (
            "clear text behind STARTTLS",
            Box::new(move |_, address, host| {
                let mut stream = socket(address, host);
                stream
                    .write_all(&[call(1, 0, Flavor::TLS), call(2, 0, Flavor::NONE)].concat())
                    .expect("sent");
                closed(stream);
            }),
        ),
        (
            "the peer sent no TLS record",
            Box::new(move |_, address, host| {
                let mut stream = probed(address, host);
                stream.write_all(&call(2, 1, Flavor::NONE)).expect("sent");
                closed(stream);
            }),
        ),
        (
            "a call without TLS",
            Box::new(|_, address, host| {
                let mut stream = socket(address, host);
                stream.write_all(&call(1, 1, Flavor::NONE)).expect("sent");
                assert_eq!(
                    read_record(&mut stream).expect("a denial")[8..],
                    [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 5]
                );
            }),
        ),
        (
            "STARTTLS after calls in clear text",
            Box::new(move |_, address, host| {
                let mut stream = socket(address, host);
                stream.write_all(&call(1, 1, Flavor::NONE)).expect("sent");
                read_record(&mut stream).expect("a denial");
                stream.write_all(&call(2, 0, Flavor::TLS)).expect("sent");
                closed(stream);
            }),
        ),
        (
            "a second STARTTLS",
            in_session(|mut stream| {
                stream.write_all(&call(3, 0, Flavor::TLS)).expect("sent");
                assert!(read_record(&mut stream).is_err());
            }),
        ),
        (
            "a call without a client certificate",
            in_session(|mut stream| {
                stream.write_all(&call(3, 1, Flavor::NONE)).expect("sent");
                assert_eq!(
                    read_record(&mut stream).expect("a denial")[8..],
                    [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 5]
                );
            }),
        ),
        (
            "a TLS record is forged or damaged",
            in_session(|mut stream| {
                stream.conn.writer().write_all(&call(3, 0, Flavor::NONE)).expect("room");
                let mut record = Vec::new();
                stream.conn.write_tls(&mut record).expect("a record");
                *record.last_mut().expect("bytes") ^= 1;
                stream.sock.write_all(&record).expect("sent");
                assert!(read_record(&mut stream).is_err());
            }),
        ),
        (
            "TLS records without data in a row",
            in_session(|mut stream| {
                for _ in 0..40 {
                    stream.conn.refresh_traffic_keys().expect("a session");
                    let _ = stream.flush();
                }
                assert!(read_record(&mut stream).is_err());
            }),
        ),
        (
            "does not offer the protocol sunrpc",
            Box::new(|site, address, host| {
                let mut stream = session(site, address, host, |config| {
                    config.alpn_protocols = vec![b"http/1.1".to_vec()]
                });
                assert!(stream.flush().is_err() || read_record(&mut stream).is_err());
            }),
        ),
        ("UnknownIssuer", with_certificate("untrusted")),
        ("certificate expired", with_certificate("expired")),
        ("certificate not valid yet", with_certificate("early")),
        ("Revoked", with_certificate("revoked")),
        ("does not allow extended key usage", with_certificate("purpose")),
        (
            "the handshake takes too long",
            Box::new(move |_, address, host| closed(probed(address, host))),
        ),
        (
            "too many handshakes are in progress",
            Box::new(move |_, address, host| {
                let held: Vec<TcpStream> = (0..256).map(|_| probed(address, host)).collect();
                let mut refused = socket(address, host);
                refused.write_all(&call(1, 0, Flavor::TLS)).expect("sent");
                closed(refused);
                drop(held);
            }),
        ),
    ];
    for (at, (cause, attack)) in attacks.iter().enumerate() {
        let host = 10 + u8::try_from(at).expect("few attacks");
        attack(&site, export.address, host);
        let lines = || {
            let log = read_log(&site);
            log.lines()
                .filter(|line| line.contains(&format!("127.0.0.{host}:")))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let found =
            eventually(Duration::from_secs(10), || lines().iter().any(|line| line.contains(cause)));
        assert!(found, "{cause}: {:?}", lines());
        assert_eq!(
            lines().iter().filter(|line| line.contains(cause)).count(),
            1,
            "{cause}: {:?}",
            lines()
        );
    }
    in_session(|mut stream| {
        stream.conn.refresh_traffic_keys().expect("a session");
        stream.write_all(&call(3, 0, Flavor::NONE)).expect("sent");
        assert!(read_record(&mut stream).is_ok());
        stream.conn.writer().write_all(&call(4, 0, Flavor::NONE)).expect("room");
        let mut record = Vec::new();
        stream.conn.write_tls(&mut record).expect("a record");
        for byte in &record {
            stream.sock.write_all(std::slice::from_ref(byte)).expect("sent");
        }
        assert!(read_record(&mut stream).is_ok());
    })(&site, export.address, 200);
}
