//! Our own client under every flavour, minor version and encryption type. The Kerberos library
//! reads only the environment of its process, so each test runs its client in a child process.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Child;

use vouch_gss_mit::{ClientSource, MitInitiator};
use vouch_nfs4::Attributes;
use vouch_nfs4::op::{ShareAccess, StableHow};
use vouch_nfs4_client::{Client, Config, GssProtection, establish};

use crate::bit_flips::ProtectedPart;
use crate::prelude::*;
use crate::relay::{Relay, last_record};
use vouch_testkit::kdc::ENCTYPES;

const SERVICE: &str = "nfs/localhost";
pub(crate) const HOST: &str = "VOUCH_TEST_HOST";
const PORT: &str = "VOUCH_TEST_PORT";
pub(crate) const ENCTYPE: &str = "VOUCH_TEST_ENCTYPE";
const CASE: &str = "VOUCH_TEST_CASE";
const READY: &str = "the client is ready";

pub(crate) fn realm(kdc: Kdc) -> Kdc {
    kdc.add(&["root", SERVICE]);
    kdc.keytab("service", &[SERVICE]);
    kdc.keytab("root", &["root"]);
    kdc
}

pub(crate) fn client_command(
    kdc: &Kdc,
    client: &str,
    enctype: &str,
    case: &str,
    port: u16,
) -> Command {
    let cache = kdc.kinit(client, "root", &kdc.path("keytabs/root"), client, &[]);
    let mut command = this_test("own_client::client_process");
    command.envs(kdc.environment(client)).env("KRB5CCNAME", cache);
    command.env(PORT, port.to_string()).env(ENCTYPE, enctype).env(CASE, case);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) fn assert_succeeds(mut command: Command, export: &Export) {
    assert_success(command.spawn().expect("this program starts"), export);
}

pub(crate) fn assert_success(child: Child, export: &Export) {
    let out = child.wait_with_output().expect("the child ends");
    assert!(out.status.success(), "{}\nthe server: {}", text_of(&out), export.log());
}

#[test]
#[ignore = "needs a KDC"]
fn every_flavour_minor_version_and_enctype_reads_and_writes() {
    let kdc = realm(Kdc::start());
    let export = Export::start(&kdc);
    for enctype in ENCTYPES {
        kdc.client(&kdc::Client { name: enctype, enctypes: enctype, ..kdc::Client::default() });
        assert_succeeds(
            client_command(&kdc, enctype, enctype, "files", export.address.port()),
            &export,
        );
        for name in names() {
            assert!(
                std::fs::read(export.data(&name)).expect("the file") == content(&name),
                "{enctype}: {name}"
            );
            std::fs::remove_file(export.data(&name)).expect("the file");
        }
        assert_eq!(
            export.metric("vouch_export_gss_contexts"),
            0.0,
            "clients destroy their contexts"
        );
    }
}

#[test]
#[ignore = "needs a KDC"]
fn privacy_hides_all_data_and_replayed_calls_are_refused() {
    let kdc = realm(Kdc::start());
    let export = Export::start(&kdc);
    for (case, in_clear) in [("krb5i", true), ("krb5p", false)] {
        let relay = Relay::start(export.address);
        // A file of another client, whose name appears only in a listing.
        let listed = format!("listed by {case}");
        std::fs::write(export.data(&listed), "").expect("a file");
        assert_succeeds(client_command(&kdc, "krb5", "", case, relay.port()), &export);
        let (sent, received) = relay.busiest();
        let name = format!("secret name {case}");
        let has =
            |bytes: &[u8], what: &[u8]| bytes.windows(what.len()).any(|window| window == what);
        let content = content(&name);
        // A single call writes this part, and a single call reads it.
        let piece = &content[100_000..100_064];
        for (bytes, what) in [
            (&sent, name.as_bytes()),
            (&sent, piece),
            (&received, piece),
            (&received, listed.as_bytes()),
        ] {
            assert_eq!(has(bytes, what), in_clear, "{case}");
        }
        // The last call is replayed: the server sends no reply and closes the connection.
        let mut socket = TcpStream::connect(export.address).expect("a connection");
        socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out");
        socket.write_all(&last_record(&sent)).expect("the record is sent");
        let mut answer = Vec::new();
        let ended = std::io::Read::read_to_end(&mut socket, &mut answer);
        let reset = ended.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        assert!(answer.is_empty() && !reset, "{case}: {answer:?}");
    }
    let (principal, enctype) = export.wait_for_record(Refusal::Replay, &["twice"]);
    assert_eq!(principal, format!("root@{}", kdc::REALM));
    assert!(enctype.is_some_and(|enctype| (17..=20).contains(&enctype)), "{enctype:?}");
}

#[test]
#[ignore = "needs a KDC"]
fn retransmitted_call_runs_once_and_its_cached_reply_is_protected_anew() {
    let kdc = realm(Kdc::start());
    let export = Export::start(&kdc);
    for service in SERVICES {
        std::fs::write(export.data(&format!("once {service:?}")), "").expect("a file");
    }
    assert_succeeds(client_command(&kdc, "krb5", "", "retry", export.address.port()), &export);
    for service in SERVICES {
        assert!(!export.data(&format!("once {service:?}")).exists());
    }
}

#[test]
#[ignore = "needs a KDC"]
fn every_flipped_bit_in_transit_is_detected() {
    let kdc = realm(Kdc::start());
    let export =
        Export::start_with(&kdc, ServerOptions { lease: "90", ..ServerOptions::default() });
    // Integrity covers the plaintext in RFC 3962, and the ciphertext in RFC 8009.
    for enctype in ["aes256-cts-hmac-sha1-96", "aes128-cts-hmac-sha256-128"] {
        kdc.client(&kdc::Client { name: enctype, enctypes: enctype, ..kdc::Client::default() });
        for service in SERVICES {
            std::fs::write(export.data(&format!("altered {service:?}")), "").expect("a file");
        }
        assert_succeeds(
            client_command(&kdc, enctype, enctype, "altered", export.address.port()),
            &export,
        );
        for service in SERVICES {
            assert!(!export.data(&format!("altered {service:?}")).exists(), "{enctype}");
        }
    }
    export.wait_for_record(Refusal::Altered, &[]);
}

#[test]
#[ignore = "needs a KDC"]
fn first_of_ten_thousand_contexts_stays_usable() {
    let kdc = realm(Kdc::start());
    let export =
        Export::start_with(&kdc, ServerOptions { lease: "90", ..ServerOptions::default() });
    let before = export.memory();
    assert_succeeds(client_command(&kdc, "krb5", "", "contexts", export.address.port()), &export);
    let (kept, each) = (
        export.metric("vouch_export_gss_contexts"),
        export.memory().saturating_sub(before) / CONTEXTS,
    );
    assert!(kept >= CONTEXTS as f64, "{kept}");
    // Two key schedules per direction, the replay window and the names.
    assert!(each < 16 << 10, "{each} bytes a context");
}

#[test]
#[ignore = "needs a KDC"]
fn calls_in_flight_of_mixed_lengths_arrive_intact() {
    let kdc = realm(Kdc::start());
    // On a busy machine a few megabytes may take long without optimization.
    let export =
        Export::start_with(&kdc, ServerOptions { lease: "90", ..ServerOptions::default() });
    for service in SERVICES {
        std::fs::write(export.data(&format!("together {service:?}")), "").expect("a file");
    }
    for enctype in ["aes256-cts-hmac-sha1-96", "aes256-cts-hmac-sha384-192"] {
        kdc.client(&kdc::Client { name: enctype, enctypes: enctype, ..kdc::Client::default() });
        assert_succeeds(
            client_command(&kdc, enctype, enctype, "together", export.address.port()),
            &export,
        );
        for service in SERVICES {
            let path = export.data(&format!("together {service:?}"));
            assert!(
                std::fs::read(&path).expect("the file") == crate::pipeline::content(),
                "{enctype}: {service:?}"
            );
            std::fs::write(&path, "").expect("the file");
        }
    }
}

#[test]
#[ignore = "needs a KDC"]
fn delegation_is_recalled_over_a_back_channel_under_each_service() {
    let kdc = realm(Kdc::start());
    let export = Export::start(&kdc);
    assert_succeeds(client_command(&kdc, "krb5", "", "recall", export.address.port()), &export);
}

#[test]
#[ignore = "needs a KDC"]
fn context_lost_by_a_restart_is_established_again() {
    let kdc = realm(Kdc::start());
    let mut export = Export::start(&kdc);
    let mut client = client_command(&kdc, "krb5", "", "restart", export.address.port())
        .spawn()
        .expect("this program starts");
    when_ready(&mut client, || export.run(&kdc));
    assert_success(client, &export);
    assert!(export.data("after").exists());
}

/// Waits until the child has its replies, because calls in progress may fail when the server dies. A
/// child without replies ends by itself.
pub(crate) fn when_ready(client: &mut Child, act: impl FnOnce()) {
    let mut lines =
        BufReader::new(client.stdout.take().expect("piped")).lines().map_while(Result::ok);
    if lines.by_ref().any(|line| line.contains(READY)) {
        act();
    }
    let _ = client.stdin.take().expect("piped").write_all(b"done\n");
    lines.for_each(drop);
}

/// The child's side of [`when_ready`].
pub(crate) async fn report_ready() {
    println!("{READY}");
    tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()))
        .await
        .expect("a thread")
        .expect("a line");
}

/// The child's side of the tests; does nothing without its variables.
#[test]
fn client_process() {
    let (Ok(port), Ok(case)) = (std::env::var(PORT), std::env::var(CASE)) else { return };
    let host: IpAddr = std::env::var(HOST)
        .map_or(Ipv4Addr::LOCALHOST.into(), |host| host.parse().expect("an address"));
    let address = SocketAddr::from((host, port.parse().expect("a port")));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    match case.as_str() {
        "files" => runtime.block_on(files(address)),
        "krb5i" => {
            runtime.block_on(write_list_and_read(address, Service::Integrity, "secret name krb5i"))
        }
        "krb5p" => {
            runtime.block_on(write_list_and_read(address, Service::Privacy, "secret name krb5p"))
        }
        "retry" => {
            for service in SERVICES {
                crate::retransmission::remove_twice(
                    address,
                    Box::new(context(address, service)),
                    &format!("once {service:?}"),
                );
            }
        }
        "together" => {
            for (service, connections) in SERVICES.into_iter().zip([1, 2, 1]) {
                let name = format!("together {service:?}");
                let handle = runtime.block_on(async {
                    let client = client(address, 1, service).await;
                    client.walk(format!("export/{name}").as_bytes()).await.expect("the file").handle
                });
                crate::pipeline::write_and_read(
                    address,
                    &name,
                    handle,
                    connections,
                    Box::new(context(address, service)),
                );
            }
        }
        "altered" => {
            for service in SERVICES {
                let proven = if service == Service::None {
                    ProtectedPart::Header
                } else {
                    ProtectedPart::All
                };
                let context = context(address, service);
                assert_eq!(
                    context.context().enctype().name(),
                    std::env::var(ENCTYPE).expect("the parent sets it")
                );
                crate::bit_flips::remove_after_bit_flips(
                    address,
                    Box::new(context),
                    proven,
                    &format!("altered {service:?}"),
                );
            }
        }
        "contexts" => many_contexts(&runtime, address),
        "recall" => {
            for service in SERVICES {
                runtime.block_on(crate::back_channel::recall(address, service, move || {
                    context(address, service)
                }));
            }
        }
        "array-task" => runtime.block_on(crate::jobs::array::work(address)),
        "job" => runtime.block_on(crate::jobs::work(address)),
        "restart" => runtime.block_on(work_across_restart(address)),
        "takeover" => runtime.block_on(crate::takeover::hold_over_takeover(address)),
        other => panic!("{other}: no such case"),
    }
}

const CONTEXTS: usize = 10_000;

fn many_contexts(runtime: &tokio::runtime::Runtime, address: SocketAddr) {
    let protection = context(address, Service::Privacy);
    let config =
        Config::new(address, 1, Identity::new(b"the first".to_vec(), Verifier([7; 8])), protection);
    let first = runtime.block_on(Client::connect(config)).unwrap_or_else(|error| panic!("{error}"));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                (0..CONTEXTS / 4).for_each(|_| drop(context(address, Service::Integrity)))
            });
        }
    });
    runtime.block_on(first.walk(b"export")).expect("its context is known");
}

fn context(address: SocketAddr, service: Service) -> GssProtection {
    let initiator = MitInitiator::new("nfs@localhost", &ClientSource::default())
        .unwrap_or_else(|fault| panic!("{fault}"));
    establish(address, initiator, service).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) async fn client(address: SocketAddr, minor: u32, service: Service) -> Client {
    client_of("test", address, minor, service).await
}

/// Each principal needs a client name of its own.
pub(crate) async fn client_of(
    name: &str,
    address: SocketAddr,
    minor: u32,
    service: Service,
) -> Client {
    let client = Client::connect(config(name, address, minor, service)).await;
    let client = client.unwrap_or_else(|error| panic!("minor {minor}, {service:?}: {error}"));
    // RFC 8881, section 2.10.8.3: state protection needs calls with integrity, and does not exist
    // in NFSv4.0.
    assert_eq!(
        client.is_protected(),
        minor > 0 && service != Service::None,
        "minor {minor}, {service:?}"
    );
    client
}

pub(crate) fn config(name: &str, address: SocketAddr, minor: u32, service: Service) -> Config {
    let protection = context(address, service);
    let wanted = std::env::var(ENCTYPE).expect("the parent sets it");
    assert!(wanted.is_empty() || protection.context().enctype().name() == wanted);
    let identity = Identity::new(
        format!("{name} {minor} {service:?} {wanted}").into_bytes(),
        Verifier([7; 8]),
    );
    let mut config = Config::new(address, minor, identity, protection);
    config.renewal = Some(Arc::new(move || {
        let initiator = MitInitiator::new("nfs@localhost", &ClientSource::default())?;
        Ok(Box::new(establish(address, initiator, service)?) as Box<dyn Protection>)
    }));
    config
}

pub(crate) const SERVICES: [Service; 3] = [Service::None, Service::Integrity, Service::Privacy];

fn names() -> Vec<String> {
    (0..=2).flat_map(|minor| SERVICES.map(|service| format!("{minor} {service:?}"))).collect()
}

pub(crate) fn content(name: &str) -> Vec<u8> {
    let seed =
        name.bytes().fold(7u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    (0..1_100_003u64).map(|at| (seed.wrapping_mul(at * at + 1) >> 13) as u8).collect()
}

async fn files(address: SocketAddr) {
    for minor in 0..=2 {
        for service in SERVICES {
            let client = client(address, minor, service).await;
            write_and_read(&client, &format!("{minor} {service:?}")).await;
            client.close().await.expect("the client closes");
        }
    }
}

async fn write_list_and_read(address: SocketAddr, service: Service, name: &str) {
    let client = client(address, 1, service).await;
    let root = client.walk(b"export").await.expect("the export");
    client.list(&root.handle, 1000).await.expect("a listing");
    write_and_read(&client, name).await;
}

/// In pieces of many lengths; reads with single calls and with many calls in flight.
async fn write_and_read(client: &Client, name: &str) {
    let bytes = content(name);
    let root = client.walk(b"export").await.expect("the export");
    let file = client
        .open(&root.handle, name.as_bytes(), ShareAccess::BOTH, Some(&Attributes::default()))
        .await
        .expect("a new file");
    const LENGTHS: [usize; 13] = [1, 2, 3, 4, 15, 16, 17, 100, 4095, 4096, 4097, 65_536, 1_000_000];
    let mut at = 0;
    for len in LENGTHS.into_iter().cycle() {
        let end = (at + len).min(bytes.len());
        client
            .write(&file, at as u64, &bytes[at..end], StableHow::Unstable)
            .await
            .expect("a write");
        at = end;
        if at == bytes.len() {
            break;
        }
    }
    let mut read = Vec::new();
    for len in LENGTHS.into_iter().cycle() {
        let (piece, eof) = client.read(&file, read.len() as u64, len as u32).await.expect("a read");
        read.extend(piece);
        if eof {
            break;
        }
    }
    assert!(read == bytes, "{name}");
    const PIECE_LEN: u64 = 16_411;
    let read_one = |number: u64| {
        let (client, file) = (client.clone(), file.clone());
        async move { client.read(&file, number * PIECE_LEN, PIECE_LEN as u32).await.expect("a read").0 }
    };
    let reads: Vec<_> = (0..64).map(|number| tokio::spawn(read_one(number))).collect();
    let mut read = Vec::new();
    for one in reads {
        read.extend(one.await.expect("the child ends"));
    }
    assert!(read == bytes[..64 * PIECE_LEN as usize], "{name}");
    client.close_file(file).await.expect("the file closes");
}

async fn work_across_restart(address: SocketAddr) {
    let client = client(address, 1, Service::Privacy).await;
    let root = client.walk(b"export").await.expect("the export");
    let file = client
        .open(&root.handle, b"before", ShareAccess::BOTH, Some(&Attributes::default()))
        .await
        .expect("a new file");
    client.close_file(file).await.expect("the file closes");
    report_ready().await;
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        assert!(Instant::now() < end, "the client does not come back");
        let opened = match client.walk(b"export").await {
            Ok(root) => {
                client
                    .open(&root.handle, b"after", ShareAccess::BOTH, Some(&Attributes::default()))
                    .await
            }
            Err(error) => Err(error),
        };
        match opened {
            Ok(file) => return client.close_file(file).await.expect("the file closes"),
            Err(_) => {
                let _ = client.renew().await;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}
