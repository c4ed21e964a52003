use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use vouch_testkit::certificates::{Authority, Holder};

use crate::test_site::{Mount, Replica, TestSite};

fn site() -> (TestSite, Replica) {
    let site = TestSite::published();
    let authority = Authority::new(&site.path(""), "ca");
    Authority::new(&site.path(""), "strange");
    authority.issue("server", Holder::on_loopback());
    let replica = site.serve_with(
        "db",
        site.port,
        &["--tls-cert", "server.pem", "--tls-key", "server.key", "--tls-only"],
    );
    (site, replica)
}

fn page(replica: &Replica) -> String {
    let mut stream = TcpStream::connect(&replica.page).expect("the page");
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("text");
    text
}

#[test]
fn clients_read_over_tls_and_clear_text_is_refused() {
    let (site, replica) = site();
    let name = site.name("/hello");
    let over_tls = format!("tls://127.0.0.1:{}", site.port);
    let read = |more: &[&str]| {
        site.run([&["cat", "--no-cache", "--timeout", "3s"], more, &[name.as_str()]].concat())
    };
    let fails = |more: &[&str]| {
        let output = read(more);
        assert!(!output.status.success() && output.stdout.is_empty(), "{more:?}: {output:?}");
        String::from_utf8(output.stderr).expect("text")
    };

    for more in [&["--replica-tls"][..], &["--only-replicas", "--replica", &over_tls]] {
        let output = read(&[&["--replica-ca", "ca.pem"], more].concat());
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "hello world\n",
            "{more:?}: {output:?}"
        );
    }
    assert!(fails(&["--replica-tls", "--replica-ca", "strange.pem"]).contains("UnknownIssuer"));
    let hostid = &name[name.find(',').expect("a hostid") + 1..name.find('/').expect("a path")];
    let clear = format!("http://127.0.0.1:{}/{hostid}/", site.port);
    let refused =
        fails(&["--replica-tls", "--replica-ca", "ca.pem", "--only-replicas", "--replica", &clear]);
    assert!(refused.contains("TLS is required"), "{refused}");
    fails(&["--replica-ca", "missing.pem", "--replica-tls"]);

    let before = closed_for_clear_text(&replica);
    fails(&[]);
    fails(&["--only-replicas", "--replica", &clear]);
    assert!(closed_for_clear_text(&replica) >= before + 2, "{}", page(&replica));
}

fn closed_for_clear_text(replica: &Replica) -> u64 {
    let page = page(replica);
    let line = page
        .lines()
        .find(|line| line.starts_with("vouch_connections_closed_total{reason=\"clear_text\"}"));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).expect("a count")
}

#[test]
#[ignore = "needs FUSE"]
fn mount_and_pull_read_over_tls() {
    let (site, _replica) = site();
    site.run_ok(&format!("pull --replica-tls --replica-ca ca.pem --db copy {}", site.name("")));
    let _mount =
        Mount::new(&site, "mnt", &["--replica-tls", "--replica-ca", "ca.pem", &site.name("")]);
    site.assert_same("src", "mnt", &[]);
}

#[test]
fn refusal_of_clear_text_needs_certificate() {
    let site = TestSite::published();
    let output = site.run(["serve", "--db", "db", "--tls-only"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("--tls-cert"), "{output:?}");
}
