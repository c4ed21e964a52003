//! Histories of several Linux clients: close-to-open and locks, also over a restart of the server.

use std::path::Path;

use crate::guest::{Guest, Network};
use crate::server::Server;

#[test]
#[ignore = "needs root and guests"]
fn histories_of_three_clients_are_right_over_a_restart() {
    let network = Network::new();
    let mut server = Server::start(&network);
    let guest = Guest::new(&network, &server)
        .file(Path::new(env!("CARGO_BIN_EXE_vouch")))
        .start("consistency.sh");
    server.wait_for("restart");
    server.kill();
    server.restart();
    std::fs::write(server.path("restart"), "done").expect("a file that the guest made");
    let out = guest.ok();
    assert_eq!(out.matches("0 undecided, no violation").count(), 2, "{out}");
}
