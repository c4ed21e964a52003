//! `vouch audit send`: collectors that die, and collectors that fail authentication.

use std::io::Write as _;

use rcgen::KeyPair;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use vouch_testkit::certificates::{Authority, Holder};

use crate::audit_commands::{SECOND, open, put, with_trail};
use crate::prelude::*;

fn message(stream: &mut impl std::io::Read) -> Option<serde_json::Value> {
    let mut len = 0;
    loop {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        match byte[0] {
            b' ' => break,
            digit => len = len * 10 + usize::from(digit - b'0'),
        }
    }
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes).ok()?;
    let text = String::from_utf8(bytes).expect("UTF-8");
    let (head, value) = text.split_at(text.find('{').expect("JSON"));
    assert!(head.starts_with("<110>1 ") || head.starts_with("<108>1 "), "{head}");
    Some(serde_json::from_str(value).expect("JSON"))
}

#[test]
fn records_are_sent_at_least_once_across_reconnects_and_restarts() {
    let site = with_trail();
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = format!("syslog+tcp://{}", socket.local_addr().expect("an address"));
    let args = ["audit", "send", "--once", "--to", &to, "--position", "position", "trail"];
    let collector = std::thread::spawn(move || {
        let mut seen = Vec::new();
        for (at, stream) in socket.incoming().take(3).enumerate() {
            let mut stream = BufReader::new(stream.expect("a connection"));
            let mut of_this = Vec::new();
            while let Some(value) = message(&mut stream) {
                of_this.push(value["event"]["sequence"].as_u64().expect("a number"));
                if at == 0 && of_this.len() == 20 {
                    break;
                }
            }
            seen.push(of_this);
        }
        seen
    });
    site.run_ok(args);
    let mut log = open(&site.path("trail"));
    put(&mut log, "dave@EXAMPLE.ORG", READ, "/srv/late", "", 0);
    log.close(3_000_000 * SECOND).expect("the trail closes");
    site.run_ok(args);
    let seen = collector.join().expect("the collector ends");
    let mut all: Vec<u64> = seen.concat();
    assert_eq!(seen[2], [203], "{seen:?}");
    all.sort_unstable();
    all.dedup();
    assert_eq!(all, (1..=203).collect::<Vec<_>>(), "{seen:?}");
    std::fs::write(site.path("position"), "nonsense").unwrap();
    site.run_err(3, args);
}

#[test]
fn copied_trail_without_its_checkpoint_is_refused() {
    let site = with_trail();
    let args = words("audit send --once --to syslog+udp://127.0.0.1:9 --position position trail");
    std::fs::remove_file(site.path("trail").join("checkpoint")).unwrap();
    site.expect_err(3, &args, &["no checkpoint"]);
    for entry in std::fs::read_dir(site.path("trail")).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    site.expect_err(4, &args, &["trail"]);
    site.run_ok(["audit", "keygen", "trail"]);
    let mut log = open(&site.path("trail"));
    put(&mut log, "dave@EXAMPLE.ORG", READ, "/srv/late", "", 0);
    log.sync().expect("sync succeeds");
    site.run_ok(&args);
}

#[test]
fn only_sealed_records_are_sent() {
    let site = with_trail();
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = format!("syslog+tcp://{}", socket.local_addr().expect("an address"));
    let args = ["audit", "send", "--once", "--to", &to, "--position", "position", "trail"];
    let collector = std::thread::spawn(move || {
        let each = socket.incoming().take(2).map(|stream| {
            let mut stream = BufReader::new(stream.expect("a connection"));
            let mut last = None;
            while let Some(value) = message(&mut stream) {
                last = value["event"]["sequence"].as_u64();
            }
            last
        });
        each.collect::<Vec<_>>()
    });
    let mut log = open(&site.path("trail"));
    log.append_record(&Record {
        operation: READ,
        principal: b"dave@EXAMPLE.ORG",
        ..Record::default()
    });
    log.write().expect("the write succeeds");
    assert_eq!(
        site.run_ok(["audit", "search", "trail", "--principal", "dave@EXAMPLE.ORG", "--count"]),
        "1\n"
    );
    site.run_ok(args);
    site.run_ok(args);
    log.close(3_000_000 * SECOND).expect("the trail closes");
    site.run_ok(args);
    assert_eq!(collector.join().expect("the collector ends"), [Some(202), Some(203)]);
}

fn snapshot(directory: &std::path::Path) -> impl Fn() + use<> {
    let directory = directory.to_owned();
    let files = || {
        std::fs::read_dir(&directory)
            .expect("a directory")
            .map(|entry| entry.expect("an entry").path())
    };
    let saved: Vec<_> = files().map(|path| (std::fs::read(&path).expect("a file"), path)).collect();
    move || {
        std::fs::read_dir(&directory).expect("a directory").for_each(|entry| {
            std::fs::remove_file(entry.expect("an entry").path()).expect("a file")
        });
        saved.iter().for_each(|(bytes, path)| std::fs::write(path, bytes).expect("a file"));
    }
}

#[test]
fn restored_trail_is_refused_after_newer_records_were_sent() {
    let site = with_trail();
    let more = |count: u64, path: &str| {
        let mut log = open(&site.path("trail"));
        (0..count).for_each(|number| {
            put(&mut log, "dave@EXAMPLE.ORG", READ, &format!("/srv/{path}-{number}"), "", 0)
        });
        log.close(3_000_000 * SECOND).expect("the trail closes");
    };
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let to = format!("syslog+udp://{}", socket.local_addr().expect("an address"));
    let args = ["audit", "send", "--once", "--to", &to, "--position", "position", "trail"];
    let restore = snapshot(&site.path("trail"));
    more(40, "sent");
    site.run_ok(args);
    let sent = std::fs::read_to_string(site.path("position")).expect("the file exists");
    let stays = || {
        assert_eq!(std::fs::read_to_string(site.path("position")).expect("the file exists"), sent)
    };
    site.run_ok(args);
    restore();
    site.expect_err(5, args, &["ends before what was sent", "record 242", "remove position"]);
    more(10, "other");
    assert!(site.run_err(5, args).contains("was sent"));
    more(100, "other");
    assert!(site.run_err(5, args).contains("differs from the records that were sent"));
    stays();
    restore();
    let old: Vec<&str> = sent.split_whitespace().take(4).collect();
    site.write("position", old.join(" "));
    assert!(site.run_err(5, args).contains("ends before what was sent"));
    std::fs::remove_file(site.path("position")).expect("the file exists");
    site.run_ok(args);
    more(5, "late");
    site.run_ok(args);
}

#[test]
fn record_too_large_for_a_datagram_does_not_block_later_ones() {
    let site = TestSite::new();
    site.run_ok(["audit", "keygen", "trail"]);
    let mut log = open(&site.path("trail"));
    let path = [&b"/srv/\xff"[..], &[1; 4080], b"/name"].concat();
    log.append_record(&Record {
        operation: READ,
        path: &path,
        path2: &path,
        detail: &[1; 1024],
        ..Record::default()
    });
    put(&mut log, "dave@EXAMPLE.ORG", READ, "/srv/after", "", 0);
    log.close(3_000_000 * SECOND).expect("the trail closes");
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.set_read_timeout(Some(std::time::Duration::from_secs(60))).expect("a socket");
    let to = format!("syslog+udp://{}", socket.local_addr().expect("an address"));
    let collector = std::thread::spawn(move || {
        let mut bytes = vec![0; 65_536];
        loop {
            let len = socket.recv(&mut bytes).expect("a message");
            let text = std::str::from_utf8(&bytes[..len]).expect("UTF-8");
            let text = &text[text.find('{').expect("JSON")..];
            let value: serde_json::Value = serde_json::from_str(text).expect("JSON");
            match value["event"]["sequence"].as_u64() {
                Some(1) => assert_eq!(
                    (&value["vouch"]["truncated"], &value["file"]["path"]),
                    (&true.into(), &"/srv/.../name".into())
                ),
                Some(2) => return assert!(value["vouch"]["truncated"].is_null()),
                other => panic!("there is no record {other:?}"),
            }
        }
    });
    let mut sender = site
        .command(["audit", "send", "--to", &to, "--position", "position", "trail"])
        .spawn()
        .expect("the binary starts");
    let received = collector.join();
    sender.kill().expect("the process runs");
    sender.wait().expect("a child");
    received.expect("all came");
}

fn server(
    authority: &Authority,
    name: &str,
    years: std::ops::Range<i32>,
    clients: Option<&Authority>,
) -> Arc<ServerConfig> {
    let (certificate, key) = authority.certify(name, Holder { years, ..Holder::default() });
    let provider = vouch_tls::provider();
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("versions");
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(issuer) => {
            let mut roots = RootCertStore::empty();
            roots.add(issuer.certificate.der().clone()).expect("a certificate of a CA");
            builder.with_client_cert_verifier(
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                    .build()
                    .expect("roots"),
            )
        }
    };
    let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    Arc::new(builder.with_single_cert(chain, key).expect("a key that fits"))
}

#[derive(Clone, Copy)]
enum Behaviour {
    ReadToEnd,
    DieAfter(usize),
    CloseTcpOnly,
}

fn collect(stream: TcpStream, config: Arc<ServerConfig>, behaviour: Behaviour) -> Vec<u64> {
    let session = ServerConnection::new(config).expect("a session");
    let mut stream = BufReader::new(StreamOwned::new(session, stream));
    let mut seen = Vec::new();
    while let Some(value) = message(&mut stream) {
        seen.push(value["event"]["sequence"].as_u64().expect("a number"));
        if matches!(behaviour, Behaviour::DieAfter(after) if seen.len() == after) {
            return seen;
        }
    }
    if matches!(behaviour, Behaviour::ReadToEnd) {
        let mut stream = stream.into_inner();
        stream.conn.send_close_notify();
        let _ = stream.flush();
    }
    seen
}

fn collector(
    config: Arc<ServerConfig>,
    behaviour: Vec<Behaviour>,
) -> (u16, JoinHandle<Vec<Vec<u64>>>) {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = socket.local_addr().expect("an address").port();
    let connections = move || {
        let accepted = behaviour
            .into_iter()
            .map(|behaviour| (socket.accept().expect("a connection").0, behaviour));
        accepted.map(|(stream, behaviour)| collect(stream, config.clone(), behaviour)).collect()
    };
    (port, std::thread::spawn(connections))
}

fn send<'a>(to: &'a str, ca: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [
        &["audit", "send", "--once", "--to", to, "--tls-ca", ca, "--position", "position", "trail"],
        more,
    ]
    .concat()
}

#[test]
fn records_are_sent_over_tls_at_least_once() {
    let site = with_trail();
    let authority = Authority::new(&site.path(""), "ca");
    let behaviour = vec![
        Behaviour::DieAfter(1),
        Behaviour::DieAfter(77),
        Behaviour::DieAfter(202),
        Behaviour::ReadToEnd,
        Behaviour::ReadToEnd,
    ];
    let (port, collector) = collector(server(&authority, "localhost", 2020..2120, None), behaviour);
    let to = format!("syslog+tls://localhost:{port}");
    site.run_ok(send(&to, "ca.pem", &[]));
    site.run_ok(send(&to, "ca.pem", &[]));
    let mut log = open(&site.path("trail"));
    put(&mut log, "dave@EXAMPLE.ORG", READ, "/srv/late", "", 0);
    log.close(3_000_000 * SECOND).expect("the trail closes");
    site.run_ok(send(&to, "ca.pem", &[]));
    let seen = collector.join().expect("the collector ends");
    assert_eq!(seen[3], (1..=202).collect::<Vec<_>>());
    assert_eq!(seen[4], [203]);
}

#[test]
fn unauthenticated_collector_gets_no_record() {
    let site = with_trail();
    let authority = Authority::new(&site.path(""), "ca");
    Authority::new(&site.path(""), "other-ca");
    for (name, years, ca, more, says) in [
        ("localhost", 2020..2120, "other-ca.pem", &[][..], "--tls-ca names another CA"),
        ("localhost", 2020..2021, "ca.pem", &[], "needs a new certificate"),
        ("localhost", 2119..2120, "ca.pem", &[], "clocks is wrong"),
        ("elsewhere.example.org", 2020..2120, "ca.pem", &[], "--tls-name"),
        ("localhost", 2020..2120, "ca.pem", &["--tls-name", "collector.example.org"], "--tls-name"),
    ] {
        let (port, collector) =
            collector(server(&authority, name, years, None), vec![Behaviour::ReadToEnd]);
        site.expect_err(
            5,
            send(&format!("syslog+tls://localhost:{port}"), ca, more),
            &[says, "nothing was sent"],
        );
        assert_eq!(collector.join().expect("the collector ends"), [[0u64; 0]]);
        assert!(!site.path("position").exists());
    }
    let (port, collector) = collector(
        server(&authority, "elsewhere.example.org", 2020..2120, None),
        vec![Behaviour::ReadToEnd],
    );
    site.run_ok(send(
        &format!("syslog+tls://127.0.0.1:{port}"),
        "ca.pem",
        &["--tls-name", "elsewhere.example.org"],
    ));
    assert_eq!(collector.join().expect("the collector ends")[0].len(), 202);
}

#[test]
fn collector_without_tls_gets_no_record() {
    let site = with_trail();
    Authority::new(&site.path(""), "ca");
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = format!("syslog+tls://{}", socket.local_addr().expect("an address"));
    let other = std::thread::spawn(move || {
        let (mut stream, _) = socket.accept().expect("a connection");
        stream.write_all(b"220 mail.example.org ESMTP\r\n").expect("a greeting");
        let mut got = Vec::new();
        let _ = std::io::Read::read_to_end(&mut stream, &mut got);
        got
    });
    site.expect_err(5, send(&to, "ca.pem", &[]), &["does not speak TLS"]);
    let got = other.join().expect("the child ends");
    assert!(!String::from_utf8_lossy(&got).contains("alice"), "{got:?}");
}

#[test]
fn client_certificate_is_sent_if_the_collector_asks() {
    let site = with_trail();
    let (authority, ours) =
        (Authority::new(&site.path(""), "ca"), Authority::new(&site.path(""), "our-ca"));
    ours.issue("our", Holder::default());
    authority.issue("stray", Holder::default());
    let config = server(&authority, "localhost", 2020..2120, Some(&ours));
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = format!("syslog+tls://localhost:{}", socket.local_addr().expect("an address").port());
    // A refused sender may see the connection end before it reads the alert, and retry.
    let collector = std::thread::spawn(move || {
        let all = socket.incoming().map(|stream| {
            collect(stream.expect("a connection"), config.clone(), Behaviour::ReadToEnd)
        });
        all.map(|seen| seen.len()).find(|count| *count > 0)
    });
    for more in [&[][..], &["--tls-cert", "stray.pem", "--tls-key", "stray.key"]] {
        site.expect_err(5, send(&to, "ca.pem", more), &["rejects our certificate"]);
        assert!(!site.path("position").exists());
    }
    site.run_ok(send(&to, "ca.pem", &["--tls-cert", "our.pem", "--tls-key", "our.key"]));
    assert_eq!(collector.join().expect("the collector ends"), Some(202));
}

#[test]
fn truncated_tls_connection_does_not_count_unless_allowed() {
    let site = with_trail();
    let authority = Authority::new(&site.path(""), "ca");
    let (port, collector) = collector(
        server(&authority, "localhost", 2020..2120, None),
        vec![Behaviour::CloseTcpOnly; 4],
    );
    let to = format!("syslog+tls://localhost:{port}");
    site.expect_err(5, send(&to, "ca.pem", &[]), &["close_notify", "--tls-plain-end"]);
    assert!(!site.path("position").exists());
    site.run_ok(send(&to, "ca.pem", &["--tls-plain-end"]));
    assert!(site.path("position").exists());
    assert_eq!(collector.join().expect("the collector ends").concat().len(), 4 * 202);
}

#[test]
fn faulty_tls_files_are_reported_before_connecting() {
    let site = with_trail();
    let authority = Authority::new(&site.path(""), "ca");
    authority.issue("our", Holder::default());
    site.write("other.key", KeyPair::generate().expect("a key").serialize_pem());
    site.write("empty", "");
    let to = "syslog+tls://localhost:1";
    site.run_err(4, send(to, "nowhere", &[]));
    site.run_err(3, send(to, "empty", &[]));
    site.run_err(3, send(to, "our.key", &[]));
    site.run_err(3, send(to, "ca.pem", &["--tls-cert", "our.pem", "--tls-key", "other.key"]));
    site.run_err(3, send(to, "ca.pem", &["--tls-cert", "our.pem", "--tls-key", "ca.pem"]));
    site.run_err(2, ["audit", "send", "--once", "--to", to, "--position", "position", "trail"]);
    site.run_err(2, send("syslog+tcp://localhost:1", "ca.pem", &[]));
}
