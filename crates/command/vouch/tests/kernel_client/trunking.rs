//! Session trunking (RFC 8881, section 2.10.5): several connections, also to several addresses,
//! carry one session.

use crate::guest::{Guest, Network};
use crate::server::{Server, ServerOptions};

/// Starts a server with two addresses, runs `script` and checks that all connections of the guest
/// carry one session.
fn mount_and_count(version: &str, script: &str, connections: u64) {
    let network = Network::new();
    let second = network.add_address();
    let trunk = |address: &str| ["--trunk".into(), address.into()];
    let more = [trunk(&network.address), trunk(&second)].concat();
    let server = Server::start_with(&network, ServerOptions { more, ..ServerOptions::default() });
    let guest = Guest::new(&network, &server)
        .set("VERSION", version)
        .set("SECOND", &second)
        .set("NUMBER", &connections.to_string());
    let guest = guest.file(&crate::guest::work("trunking.bash")).start(script);
    server.wait_for("begun");
    let status = server.status();
    let sessions: Vec<_> = status["clients"]
        .as_array()
        .expect("clients")
        .iter()
        .map(|client| &client["sessions"])
        .collect();
    std::fs::write(server.path("enough"), "").expect("a file");
    let out = guest.ok();
    assert_eq!(
        (sessions, &status["connections"]),
        (vec![&1.into()], &connections.into()),
        "{version}: {status} {out}"
    );
}

#[test]
#[ignore = "needs root and guests"]
fn four_connections_of_a_mount_carry_one_session() {
    for version in ["4.1", "4.2"] {
        mount_and_count(version, "nconnect.sh", 4);
    }
}

#[test]
#[ignore = "needs root and guests"]
fn mounts_from_two_addresses_share_a_session() {
    for version in ["4.1", "4.2"] {
        mount_and_count(version, "max_connect.sh", 2);
    }
}

#[test]
#[ignore = "needs root and guests"]
fn client_discovers_the_second_address() {
    for version in ["4.1", "4.2"] {
        mount_and_count(version, "trunkdiscovery.sh", 2);
    }
}
