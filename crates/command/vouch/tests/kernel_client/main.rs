//! A guest mounts the export and runs ordinary tools. Each test has its own server, export, state
//! directory and guests.

mod cephfs;
mod cold_start;
mod consistency;
mod export_files;
mod failover;
mod guest;
mod heads;
mod jobs;
mod kerberos;
mod long_job;
mod memory;
mod moved_clock;
mod pnfs;
#[path = "../end_to_end/prelude.rs"]
#[allow(unused_imports, reason = "tests without a guest use the rest")]
mod prelude;
mod selinux;
mod server;
#[path = "../end_to_end/test_site.rs"]
#[allow(dead_code, reason = "tests without a guest use the rest")]
mod test_site;
mod tls;
mod tls_guide;
mod trunking;

use std::time::Duration;
use vouch_testkit::assert_contains;

use guest::{Guest, Network};
use server::{Server, ServerOptions};
use vouch_testkit::require;

const VERSIONS: [&str; 3] = ["4.2", "4.1", "4.0"];

#[test]
#[ignore = "needs root and guests"]
fn ordinary_tools_behave_as_on_a_local_file_system() {
    for version in VERSIONS {
        let network = Network::new();
        let server = Server::start(&network);
        let out = Guest::new(&network, &server).set("VERSION", version).run("files.sh");
        assert!(out.contains("ok: a second mount sees the same"), "{version}: {out}");
        assert_eq!(
            std::fs::read(server.path("old")).expect("a file that the guest made"),
            b"new bytes"
        );
        assert!(
            server.names().iter().all(|name| !name.starts_with(".nfs")),
            "{version}: a silly name was left: {:?}",
            server.names()
        );
    }
}

#[test]
#[ignore = "needs root and guests"]
fn acls_grant_access_to_named_users_and_groups() {
    for version in VERSIONS {
        let network = Network::new();
        let server = Server::start(&network);
        require("POSIX ACLs in the temporary directory", server.has_acls());
        Guest::new(&network, &server).set("VERSION", version).run("acl.sh");
    }
}

#[test]
#[ignore = "needs root and guests"]
fn locks_and_writes_are_coherent_between_two_clients() {
    for version in VERSIONS {
        let (first, second) = (Network::new(), Network::new());
        let server = Server::start(&first);
        let waiter = Guest::new(&second, &server).set("VERSION", version).start("lock_waiter.sh");
        let holder = Guest::new(&first, &server).set("VERSION", version).start("lock_holder.sh");
        waiter.ok();
        holder.ok();
    }
}

#[test]
#[ignore = "needs root and guests"]
fn large_directory_is_listed_completely_while_it_changes() {
    const COUNT: usize = 100_000;
    for version in VERSIONS {
        let network = Network::new();
        let server = Server::start(&network);
        std::fs::create_dir(server.path("large")).expect("a directory");
        for n in 0..COUNT {
            std::fs::File::create(server.path(&format!("large/entry-{n:06}"))).expect("a file");
        }
        Guest::new(&network, &server)
            .set("VERSION", version)
            .set("COUNT", &COUNT.to_string())
            .run("large_directory.sh");
    }
}

/// VOUCH_TEST_REPLACEMENTS: number of restarts, every second a kill, every fourth before the client
/// has recovered from the one before.
#[test]
#[ignore = "needs root and guests"]
fn restarted_server_keeps_opens_locks_and_acknowledged_data() {
    let restarts = std::env::var("VOUCH_TEST_REPLACEMENTS")
        .map_or(2, |count| count.parse::<u64>().expect("a number of restarts"));
    for (version, socket_is_held) in [("4.0", true), ("4.1", false), ("4.2", true)] {
        let network = Network::new();
        let listener =
            socket_is_held.then(|| std::net::TcpListener::bind("0.0.0.0:0").expect("a free port"));
        let mut server =
            Server::start_with(&network, ServerOptions { listener, ..ServerOptions::default() });
        let limit = 300 + 30 * u32::try_from(restarts).expect("a small number");
        let guest = Guest::new(&network, &server)
            .set("VERSION", version)
            .set("SECONDS_OF_LOAD", "6")
            .limit(limit)
            .start("survivor.sh");
        server.wait_for("begun");
        for restart in 0..restarts {
            std::thread::sleep(Duration::from_millis(700 + restart * 200 % 2_000));
            if restart % 2 == 0 {
                server.kill()
            } else {
                server.terminate()
            }
            server.restart();
            if restart % 4 != 2 {
                server.wait_for_progress();
            }
        }
        std::fs::write(server.path("enough"), "").expect("a file");
        println!("{version}, {restarts} restarts, socket held: {socket_is_held}: {}", guest.ok());
        assert!(
            server.names().iter().all(|name| !name.starts_with(".nfs")),
            "{version}: a silly name was left: {:?}",
            server.names()
        );
    }
}

#[test]
#[ignore = "needs root and guests"]
fn snapshots_are_read_over_restart_and_removal_of_another() {
    for version in VERSIONS {
        let network = Network::new();
        let snapshots = tempfile::tempdir().expect("a temporary directory");
        let write = |name: &str, text: &str| {
            std::fs::create_dir_all(snapshots.path().join(name).join("dir")).expect("directories");
            std::fs::write(snapshots.path().join(name).join("dir/file"), text).expect("a file");
        };
        write("one", "first");
        write("two", "second");
        let options = format!("rw,no_root_squash,sec=sys,snapshots={}", snapshots.path().display());
        let mut server =
            Server::start_with(&network, ServerOptions { options, ..ServerOptions::default() });
        std::fs::create_dir(server.path("dir")).expect("a directory");
        std::fs::write(server.path("dir/file"), "live").expect("a file");
        let guest = Guest::new(&network, &server).set("VERSION", version).start("snapshots.sh");
        server.wait_for("ready");
        server.kill();
        server.restart();
        std::fs::write(server.path("restarted"), "").expect("a file");
        server.wait_for("survived");
        std::fs::remove_dir_all(snapshots.path().join("one")).expect("removed");
        write("three", "third");
        std::fs::write(server.path("removed"), "").expect("a file");
        let out = guest.ok();
        assert!(out.contains("ok: a new snapshot shows"), "{version}: {out}");
    }
}

/// The guest has the volume and is the server and its NFS client.
#[test]
#[ignore = "needs root and guests"]
fn thin_volume_snapshots_stay_readable_after_restart_and_removal() {
    let network = Network::new();
    require(
        "lvm2 and linux-6.12-guest of script/install-needs",
        ["lvm", "mkfs.ext4", "/opt/vouch-guest/usr/bin/linux.uml"]
            .iter()
            .all(|program| guest::has_program(program)),
    );
    let disk = tempfile::NamedTempFile::new().expect("a temporary file");
    disk.as_file().set_len(1 << 30).expect("a sparse file");
    let guest = Guest::with_port(&network, 2049)
        .newer_kernel()
        .disk(disk.path())
        .file(&guest::work("snapshots.sh"));
    let out =
        guest.set("VOUCH", env!("CARGO_BIN_EXE_vouch")).set("VERSION", "4.2").run("lvm_thin.sh");
    assert_contains!(out, "ok: a new snapshot shows", "ok: snapshots of a thin volume");
}

/// The client follows a referral to the standard port.
#[test]
#[ignore = "needs root and guests"]
fn client_follows_referral_to_the_other_server() {
    for version in VERSIONS {
        let network = Network::new();
        let target = Server::start_with(
            &network,
            ServerOptions { port: Some(2049), ..ServerOptions::default() },
        );
        let options = format!("rw,no_root_squash,sec=sys,refer=/export@{}", network.address);
        let server =
            Server::start_with(&network, ServerOptions { options, ..ServerOptions::default() });
        std::fs::write(server.path("here"), "the server that refers").expect("a file");
        std::fs::write(target.path("there"), "the server that has the files").expect("a file");
        Guest::new(&network, &server).set("VERSION", version).run("referral.sh");
        assert_eq!(
            std::fs::read(target.path("written")).expect("a file that the guest made"),
            b"through the referral"
        );
    }
}

#[test]
#[ignore = "needs root and guests"]
fn partition_shorter_or_longer_than_the_lease_heals() {
    for (version, cut) in [("4.1", 1), ("4.2", 9), ("4.0", 9)] {
        let network = Network::new();
        let server = Server::start(&network);
        let guest = Guest::new(&network, &server)
            .set("VERSION", version)
            .set("SECONDS_OF_LOAD", "2")
            .start("survivor.sh");
        server.wait_for("begun");
        network.disconnect();
        std::thread::sleep(Duration::from_secs(cut));
        network.reconnect();
        std::fs::write(server.path("enough"), "").expect("a file");
        guest.ok();
    }
}
