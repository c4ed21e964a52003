//! The packet filter of the package, in the namespace of a head.

use std::io::BufRead as _;

use super::network::Network;
use crate::prelude::*;

/// Closes each connection first, as the kernel does for a killed head.
const SERVER: &str = r#"
import socket
listener = socket.create_server(("10.78.0.11", 2049))
print("ready", flush=True)
while True:
    connection, _ = listener.accept()
    connection.recv(1)
    connection.close()
"#;

/// Arguments: own port, and limit of the attempt in seconds.
const CLIENT: &str = r#"
import socket, sys
with socket.socket() as client:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    client.bind(("10.78.0.1", int(sys.argv[1])))
    client.settimeout(float(sys.argv[2]))
    try:
        client.connect(("10.78.0.11", 2049))
        client.send(b"x")
        print("connected, then", client.recv(1))
    except OSError as error:
        print(type(error).__name__)
"#;

#[test]
#[ignore = "needs root, nftables and python3"]
fn packet_filter_ignores_connections_only_without_a_listener() {
    require_programs(&["python3", "nft"]);
    let network = Network::make();
    let probe = "table inet probe { chain probe { socket transparent 0; }; }";
    let probed = inside(&network.heads[0], "nft").arg(probe).status();
    require("nft_socket of the kernel", probed.is_ok_and(|status| status.success()));
    let rules =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../packaging/failover/nftables.conf");
    assert!(
        inside(&network.heads[0], "nft")
            .arg("-f")
            .arg(rules)
            .status()
            .is_ok_and(|status| status.success()),
        "nft(8)"
    );
    let mut server = inside(&network.heads[0], "python3");
    let mut server =
        KillOnDrop(server.args(["-c", SERVER]).stdout(Stdio::piped()).spawn().expect("ip(8)"));
    let mut ready = String::new();
    BufReader::new(server.stdout.take().expect("piped")).read_line(&mut ready).expect("a line");
    assert_eq!(ready, "ready\n");
    assert_eq!(connect(&network, "800", "30"), "connected, then b''");
    // The first connection is in TIME_WAIT for 60 s.
    assert_eq!(connect(&network, "800", "30"), "connected, then b''");
    drop(server);
    assert_eq!(connect(&network, "801", "0.5"), "TimeoutError");
}

fn connect(network: &Network, port: &str, limit_s: &str) -> String {
    let out = inside(&network.client, "python3")
        .args(["-c", CLIENT, port, limit_s])
        .output()
        .expect("ip(8)");
    String::from_utf8_lossy(&out.stdout).trim().to_owned()
}

fn inside(namespace: &str, program: &str) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace, program]).stdin(Stdio::null());
    command
}
