//! `security_label` with a client that runs SELinux.

use std::process::Command;

use crate::guest::{Guest, Network, has_program, work};
use crate::server::{Server, ServerOptions};
use vouch_testkit::require;

#[test]
#[ignore = "needs root and guests"]
fn selinux_client_sets_labels_and_enforces_them() {
    require("the package secilc", has_program("secilc"));
    let network = Network::new();
    let options = "rw,no_root_squash,sec=sys,security_label".to_owned();
    let server =
        Server::start_with(&network, ServerOptions { options, ..ServerOptions::default() });
    // Made on the server.
    std::fs::write(server.path("old"), "old").expect("a file");
    std::fs::write(server.path("labelled"), "labelled").expect("a file");
    rustix::fs::setxattr(
        server.path("labelled"),
        "security.selinux",
        b"system_u:object_r:public_t:s0\0",
        rustix::fs::XattrFlags::empty(),
    )
    .expect("root may");
    let policy = server.path("policy");
    let status = Command::new("secilc")
        .args(["-M", "true", "-c", "33", "-f", "/dev/null", "-o"])
        .args([&policy, &work("selinux.cil")])
        .status();
    assert!(status.expect("secilc").success(), "the policy is valid");
    let out = Guest::new(&network, &server)
        .newer_system()
        .argument("security=selinux")
        .argument("selinux=1")
        .file(&policy)
        .run("selinux.sh");
    assert!(out.contains("ok: labels"), "{out}");
    let mut label = [0; 64];
    let len = rustix::fs::getxattr(server.path("made"), "security.selinux", &mut label[..]);
    assert_eq!(&label[..len.expect("it has one")], b"system_u:object_r:public_t:s0\0");
}
