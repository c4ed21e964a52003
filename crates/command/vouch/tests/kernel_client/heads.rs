//! Published trees on several servers ("heads"): a mounted client whose server changes.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use vouch_testkit::words;

use crate::guest::{Guest, Network};
use crate::test_site::{Export, TestSite, free_port};
use vouch_testkit::moving_address::MovingAddress;

/// Bytes of `large`.
pub(crate) const LARGE_LEN: usize = 24 << 20;

/// A published tree with the files `large` and `locked`, and a key for its heads.
pub(crate) fn tree() -> TestSite {
    let site = TestSite::new();
    site.write(
        "src/large",
        (0..LARGE_LEN / 4096).map(|n| format!("{n:08x}").repeat(512)).collect::<String>(),
    );
    site.write("src/locked", "locked\n".repeat(1000));
    site.write("key", format!("{}\n", "5a".repeat(32)));
    std::fs::set_permissions(site.path("key"), PermissionsExt::from_mode(0o600))
        .expect("an own file");
    site.publish();
    site
}

pub(crate) fn head(
    site: &TestSite,
    state: &str,
    address: std::net::SocketAddr,
    options: &str,
    more: &[&str],
) -> Export {
    let (dir, listen) = (format!("tree:{}", site.path("db").display()), address.to_string());
    let args = format!(
        "export --dir {dir} --state {state} --lease 5 --listen {listen} --filehandle-key key"
    );
    let args = words(&args);
    Export::spawn(&mut site.command([&args[..], &["--options", options], more].concat()), address)
}

#[test]
#[ignore = "needs root and guests"]
fn open_files_and_locks_survive_moves_between_heads() {
    for version in ["4.2", "4.1", "4.0"] {
        let network = Network::new();
        let site = tree();
        let heads = ["first", "second"].map(|state| {
            head(&site, state, ([127, 0, 0, 1], free_port()).into(), "ro,insecure", &[])
        });
        let listener = TcpListener::bind((network.address.as_str(), 0)).expect("a free port");
        let servers = heads.iter().map(|head| head.address).collect();
        let moving = MovingAddress::start(listener, servers, LARGE_LEN as u64 / 2);
        let out = Guest::with_port(&network, moving.address.port())
            .set("VERSION", version)
            .run("heads.sh");
        assert!(out.contains("ok: read"), "{version}: {out}");
        assert!(moving.moves() >= 3, "{version}: {} moves", moving.moves());
    }
}
