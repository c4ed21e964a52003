//! Two heads with one certificate: clients over TLS reclaim after a takeover.

use super::*;
use crate::lock_holder::LockHolder;
use vouch_testkit::moving_address::MovingAddress;
use vouch_testkit::words;

fn start_head(site: &TestSite, head: &str, address: SocketAddr) -> KillOnDrop {
    let listen = address.to_string();
    let fixed =
        words("export --dir shared --options rw,insecure,no_root_squash,xprtsec=tls --lease 90");
    let tls = ["--tls-cert", "server.pem", "--tls-key", "server.key", "--tls-client-ca", "ca.pem"];
    let heads = ["--listen", &listen, "--state", "exporting", "--shared-state", "--head", head];
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(site.path("log"))
        .expect("a file");
    let mut command = site.command([&fixed[..], &tls, &heads].concat());
    KillOnDrop(command.stdout(Stdio::null()).stderr(log).spawn().expect("the binary starts"))
}

fn is_active(site: &TestSite, head: &str) -> bool {
    site.run(["export", "status", "--state", "exporting", "--head", head, "--is-active"])
        .status
        .success()
}

fn config(
    site: &TestSite,
    address: SocketAddr,
    minor: u32,
    holder: Option<&str>,
    name: &str,
) -> Config {
    let files = ClientFiles {
        authorities: site.path("ca.pem"),
        certificate: holder
            .map(|name| (site.path(format!("{name}.pem")), site.path(format!("{name}.key")))),
    };
    let tls = TlsClient::new(&files, "127.0.0.1").expect("files of this test");
    let identity =
        Identity::new(format!("{name} {minor} {holder:?}").into_bytes(), Verifier([7; 8]));
    Config {
        tls: Some(tls),
        ..Config::new(address, minor, identity, Plain::sys(&AuthSys::default()))
    }
}

#[test]
fn clients_over_tls_reclaim_after_takeover() {
    let (site, authority) = site();
    authority.issue("node", Holder::default());
    std::fs::create_dir(site.path("shared")).expect("a directory");
    site.state_directory("exporting");
    let addresses = [0; 2].map(|_| SocketAddr::from(([127, 0, 0, 1], free_port())));
    let first = start_head(&site, "a", addresses[0]);
    assert!(eventually(Duration::from_secs(60), || is_active(&site, "a")), "{}", read_log(&site));
    let _second = start_head(&site, "b", addresses[1]);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let moving = MovingAddress::start(listener, vec![addresses[0]], u64::MAX);
    let address = moving.address;
    let kinds =
        || [1, 2].into_iter().flat_map(|minor| [None, Some("node")].map(|holder| (minor, holder)));
    block_on(async {
        let mut holders = Vec::new();
        for (minor, holder) in kinds() {
            let config = config(&site, address, minor, holder, "holder");
            holders
                .push(LockHolder::connect(config, format!("f{minor}{}", holder.is_some())).await);
        }
        drop(first);
        moving.move_to(addresses[1]);
        for holder in &mut holders {
            holder.reclaim().await;
        }
        for (holder, (minor, certificate)) in holders.into_iter().zip(kinds()) {
            let rival = Client::connect(config(&site, address, minor, certificate, "rival"))
                .await
                .expect("the next head serves");
            holder.release_to(&rival).await;
        }
    });
    assert!(is_active(&site, "b"));
}
