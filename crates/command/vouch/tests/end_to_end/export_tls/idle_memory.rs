//! `VOUCH_IDLE_CONNECTIONS` sets how many connections the test opens.

use super::*;

const IDLE_LEN_MAX: usize = 40 * 1024;
const FIRST_COUNT: usize = 64;
const COUNT: usize = 300;

#[test]
fn idle_connection_costs_less_than_40_kib() {
    let count = std::env::var("VOUCH_IDLE_CONNECTIONS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(COUNT);
    let (site, authority) = site();
    authority.issue("node", Holder::default());
    let export = TlsExport::start(&site, "xprtsec=none", &["--tls-client-ca", "ca.pem"]);
    raise_descriptor_limit();
    block_on(async {
        let client = export.connect(&site, Some("node"), 1, 0).await.expect("a client over TLS");
        write_and_read(&client, b"file").await;
        client.close().await.expect("closed");
    });
    let over_tls = measure(&export, count, |host| over_mutual_tls(&site, export.address, host));
    let clear = measure(&export, count, |host| {
        let mut stream = socket(export.address, host);
        stream.write_all(&call(1, 0, Flavor::NONE)).expect("sent");
        assert!(read_record(&mut stream).is_ok(), "an answer");
        stream
    });
    println!(
        "{count} idle connections: {clear} bytes each in clear text, {over_tls} bytes each over mutual TLS"
    );
    assert!(over_tls <= IDLE_LEN_MAX, "an idle connection costs {over_tls} bytes");
}

fn measure<C>(export: &TlsExport, count: usize, connect: impl Fn(u8) -> C) -> usize {
    let host = |at: usize| u8::try_from(1 + at % 200).expect("less than 201");
    let mut open: Vec<C> = (0..FIRST_COUNT).map(|at| connect(host(at))).collect();
    let before = resident_len(export);
    open.extend((0..count).map(|at| connect(host(at))));
    let grown = resident_len(export).saturating_sub(before);
    drop(open);
    grown / count
}

fn over_mutual_tls(
    site: &TestSite,
    address: SocketAddr,
    host: u8,
) -> StreamOwned<ClientConnection, TcpStream> {
    let files = ClientFiles {
        authorities: site.path("ca.pem"),
        certificate: Some((site.path("node.pem"), site.path("node.key"))),
    };
    let name = ServerName::try_from("127.0.0.1").expect("an address");
    let connection =
        ClientConnection::new(client_config(&files).expect("files of this test"), name)
            .expect("a configuration");
    let mut stream = StreamOwned::new(connection, probed(address, host));
    stream.write_all(&call(2, 0, Flavor::NONE)).expect("sent");
    assert!(read_record(&mut stream).is_ok(), "an answer");
    stream
}

fn resident_len(export: &TlsExport) -> usize {
    let path = format!("/proc/{}/smaps_rollup", export.child.id());
    let text = std::fs::read_to_string(path).expect("the server runs");
    let line = text.lines().find(|line| line.starts_with("Rss:")).expect("a line of the kernel");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<usize>().ok()).expect("KiB") * 1024
}

fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
        .expect("the soft limit may grow to the hard one");
}
