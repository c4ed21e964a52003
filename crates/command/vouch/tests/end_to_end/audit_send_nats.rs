//! `vouch audit send` to a real NATS server, 2.10 or later: JetStream stores each record across restarts of either
//! side.

use std::collections::BTreeSet;

use async_nats::ConnectOptions;
use async_nats::jetstream::{self, stream};
use vouch_testkit::certificates::{Authority, Holder};

use crate::audit_commands::{SECOND, open, put, with_trail};
use crate::prelude::*;

const WAIT_MAX: Duration = Duration::from_secs(120);

struct Server {
    child: KillOnDrop,
    port: u16,
}

impl Server {
    fn start(site: &TestSite, port: u16, more: &str) -> Server {
        let store = site.path("nats");
        site.write(
            "nats.conf",
            format!(
                "listen: \"127.0.0.1:{port}\"\njetstream {{ store_dir: {:?} }}\n{more}\n",
                store.display()
            ),
        );
        let mut command = Command::new("nats-server");
        command
            .env("PATH", format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default()))
            .arg("-c")
            .arg(site.path("nats.conf"));
        let child = KillOnDrop(
            command
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("nats-server starts"),
        );
        let server = Server { child, port };
        assert!(
            eventually(WAIT_MAX, || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()),
            "the NATS server does not listen"
        );
        server
    }

    fn end(mut self) {
        signal("TERM", self.child.id());
        self.child.wait().expect("a child");
    }

    fn to(&self) -> String {
        format!("nats://127.0.0.1:{}/audit.nfs1", self.port)
    }
}

async fn stream(port: u16, options: ConnectOptions) -> stream::Stream {
    let client = options.connect(format!("127.0.0.1:{port}")).await.expect("a connection");
    let config = stream::Config {
        name: "AUDIT".into(),
        subjects: vec!["audit.>".into()],
        ..stream::Config::default()
    };
    jetstream::new(client).get_or_create_stream(config).await.expect("a stream")
}

async fn stored(stream: &mut stream::Stream) -> Vec<u64> {
    let messages = stream.info().await.expect("stream information").state.messages;
    let mut all = Vec::new();
    for at in 1..=messages {
        let message = stream.get_raw_message(at).await.expect("a message");
        let value: serde_json::Value = serde_json::from_slice(&message.payload).expect("JSON");
        all.push(value["event"]["sequence"].as_u64().expect("a number"));
    }
    all
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Runtime::new().expect("a runtime").block_on(work)
}

fn send<'a>(to: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["audit", "send", "--to", to, "--position", "position", "trail"], more].concat()
}

#[test]
#[ignore = "needs nats-server"]
fn jetstream_stores_every_record_across_restarts() {
    require_program("nats-server");
    let site = with_trail();
    let port = free_port();
    let mut server = Server::start(&site, port, "");
    block_on(stream(port, ConnectOptions::new()));
    let to = server.to();
    let start = || KillOnDrop(site.command(send(&to, &[])).spawn().expect("the binary starts"));
    let mut sender = start();
    let mut log = open(&site.path("trail"));
    for number in 0..300 {
        put(&mut log, "dave@EXAMPLE.ORG", READ, &format!("/srv/new-{number}"), "", 0);
        log.write().expect("the write succeeds");
        match number {
            100 => {
                server.end();
                server = Server::start(&site, port, "");
            }
            200 => {
                drop(sender);
                sender = start();
            }
            _ => std::thread::sleep(Duration::from_millis(2)),
        }
    }
    log.close(3_000_000 * SECOND).expect("the trail closes");
    let wanted: BTreeSet<u64> = (1..=502).collect();
    let mut found = Vec::new();
    let all = eventually(WAIT_MAX, || {
        found = block_on(async { stored(&mut stream(port, ConnectOptions::new()).await).await });
        found.iter().copied().collect::<BTreeSet<_>>() == wanted
    });
    drop(sender);
    assert!(all, "{found:?}");
    assert_eq!(found.len(), wanted.len());
}

#[test]
#[ignore = "needs nats-server"]
fn records_without_a_stream_or_credentials_do_not_count_as_sent() {
    require_program("nats-server");
    let site = with_trail();
    site.write("password", "secret\n");
    site.write("wrong", "guess\n");
    let server =
        Server::start(&site, free_port(), "authorization { user: vouch, password: secret }");
    let to = server.to();
    site.expect_err(5, send(&to, &["--once"]), &["--nats-user"]);
    site.expect_err(
        5,
        send(&to, &["--once", "--nats-user", "vouch", "--nats-password-file", "wrong"]),
        &["--nats-user"],
    );
    let known = ["--once", "--nats-user", "vouch", "--nats-password-file", "password"];
    site.expect_err(5, send(&to, &known), &["nats stream add"]);
    assert!(!site.path("position").exists());
    let us = || ConnectOptions::with_user_and_password("vouch".into(), "secret".into());
    block_on(stream(server.port, us()));
    site.run_ok(send(&to, &known));
    let found = block_on(async { stored(&mut stream(server.port, us()).await).await });
    assert_eq!(found, (1..=202).collect::<Vec<_>>());
    site.run_err(2, send("syslog+tcp://127.0.0.1:1", &known));
}

#[test]
#[ignore = "needs nats-server"]
fn unauthenticated_nats_server_gets_no_record() {
    require_program("nats-server");
    let site = with_trail();
    let authority = Authority::new(&site.path(""), "ca");
    Authority::new(&site.path(""), "other-ca");
    let first = "handshake_first: true,";
    for (name, ca, more, says) in [
        ("elsewhere.example.org", "ca.pem", "", Some("write the collector's name")),
        ("localhost", "other-ca.pem", "", Some("--tls-ca names another CA")),
        ("localhost", "other-ca.pem", first, Some("--tls-ca names another CA")),
        ("localhost", "ca.pem", "", None),
        ("localhost", "ca.pem", first, None),
    ] {
        authority.issue(name, Holder::default());
        let files = ["pem", "key"].map(|end| site.path(format!("{name}.{end}")));
        let tls = format!(
            "tls {{ {more} cert_file: {:?}, key_file: {:?}, timeout: 30 }}",
            files[0], files[1]
        );
        let server = Server::start(&site, free_port(), &tls);
        let to = format!("nats+tls://localhost:{}/audit.nfs1", server.port);
        let args = send(&to, &["--once", "--tls-ca", ca]);
        match says {
            Some(says) => {
                site.expect_err(5, args, &[says, "nothing was sent"]);
                assert!(!site.path("position").exists());
            }
            None => {
                let options = || {
                    let options = ConnectOptions::new()
                        .require_tls(true)
                        .add_root_certificates(site.path("ca.pem"));
                    if more.is_empty() { options } else { options.tls_first() }
                };
                let client = || async {
                    options()
                        .connect(format!("localhost:{}", server.port))
                        .await
                        .expect("a connection")
                };
                let config = stream::Config {
                    name: "AUDIT".into(),
                    subjects: vec!["audit.>".into()],
                    ..stream::Config::default()
                };
                block_on(async {
                    jetstream::new(client().await)
                        .get_or_create_stream(config.clone())
                        .await
                        .map(drop)
                        .expect("a stream")
                });
                site.run_ok(args);
                let found = block_on(async {
                    stored(
                        &mut jetstream::new(client().await)
                            .get_stream("AUDIT")
                            .await
                            .expect("a stream"),
                    )
                    .await
                });
                assert_eq!(found.len(), 202);
            }
        }
        server.end();
        let _ = (fs::remove_dir_all(site.path("nats")), fs::remove_file(site.path("position")));
    }
}
