//! Several instances on one machine, and what a standby answers.

use crate::prelude::*;

fn command(site: &TestSite, instance: usize, head: &str, address: SocketAddr) -> Command {
    let (dir, state, listen) =
        (format!("data{instance}"), format!("state{instance}"), address.to_string());
    let fixed = format!(
        "export --dir {dir} --options rw,insecure,no_root_squash --state {state} --shared-state"
    );
    let fixed = words(&fixed);
    site.command([&fixed[..], &["--head", head, "--listen", &listen]].concat())
}

fn is_active(site: &TestSite, instance: usize, head: &str) -> Option<i32> {
    let state = format!("state{instance}");
    site.run(["export", "status", "--state", &state, "--head", head, "--is-active"]).status.code()
}

/// Bytes of the instance's file, by way of the server.
fn served(address: SocketAddr) -> Vec<u8> {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let client = connect(address, 2, "instances", 0).await.expect("the client connects");
        let root = client.walk(b"export").await.expect("the root").handle;
        let file =
            client.open(&root, b"name", ShareAccess::READ, None).await.expect("an open file");
        client.read(&file, 0, 100).await.expect("its content").0
    })
}

#[test]
fn instances_of_one_machine_serve_their_own_exports_and_a_standby_takes_one_over() {
    let site = TestSite::with_directories(&["data1", "data2"]);
    ["state1", "state2"].iter().for_each(|name| site.state_directory(name));
    site.write("data1/name", "first");
    site.write("data2/name", "second");
    let port = free_port();
    let address = |host: u8| SocketAddr::from(([127, 0, 0, host], port));
    let mut first = Export::spawn(&mut command(&site, 1, "a", address(2)), address(2));
    let _second = Export::spawn(&mut command(&site, 2, "a", address(3)), address(3));
    assert_eq!((served(address(2)), served(address(3))), (b"first".to_vec(), b"second".to_vec()));

    // It ignores connections.
    let _standby = KillOnDrop(
        command(&site, 1, "b", address(4))
            .stdout(Stdio::null())
            .spawn()
            .expect("the binary starts"),
    );
    within(120, "a standby is not active", || is_active(&site, 1, "b") == Some(1));
    assert_eq!((is_active(&site, 1, "a"), is_active(&site, 2, "a")), (Some(0), Some(0)));
    let status = site.run_ok(["export", "status", "--state", "state1", "--head", "b"]);
    assert!(status.contains("head b: standby; a has epoch 1"), "{status}");
    let reloaded = site.run_ok(["export", "reload", "--state", "state1", "--head", "b"]);
    assert!(reloaded.contains("standby"), "{reloaded}");

    first.terminate();
    within(120, "the standby does not take over", || is_active(&site, 1, "b") == Some(0));
    assert_eq!(served(address(4)), b"first");
    let status = site.run_ok(["export", "status", "--state", "state1", "--head", "b"]);
    assert!(status.contains("head b: active in epoch 2"), "{status}");
    let record = fs::read_to_string(site.path("state1/lease/epoch-2")).expect("the record");
    assert!(record.contains("\nhead b\n") && record.contains("\ntenure active\n"), "{record}");
}

#[test]
fn head_of_a_shared_directory_needs_a_plain_name_and_a_usable_lease() {
    let site = TestSite::with_directories(&["data"]);
    let export = ["export", "--dir", "data", "--state", "state", "--listen", "127.0.0.1:0"];
    site.expect_err(
        2,
        [&export[..], &["--shared-state", "--head", "a/b"]].concat(),
        &["--head", "a/b"],
    );
    for wrong in [
        &["--shared-state", "--state-lease", "10ms"][..],
        &["--fence", "/bin/true"],
        &["--shared-state", "--fence-required"],
    ] {
        assert_eq!(site.run([&export[..], wrong].concat()).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn state_directory_serves_one_server_or_heads_and_is_not_created_for_heads() {
    let site = TestSite::with_directories(&["data"]);
    let addresses = [1, 2].map(|host| SocketAddr::from(([127, 0, 0, host], free_port())));
    let listen = addresses.map(|address| address.to_string());
    let export = ["export", "--dir", "data", "--state", "state", "--listen"];
    let alone = [&export[..], &[&listen[0]]].concat();
    let shared = [&export[..], &[&listen[1], "--shared-state", "--head", "a"]].concat();
    site.expect_err(4, &shared, &["state", "is the shared storage mounted?"]);
    assert!(!site.path("state").exists());
    let mut server = Export::spawn(&mut site.command(&alone), addresses[0]);
    site.expect_err(8, &shared, &["a server without --shared-state uses this state directory"]);
    server.terminate();
    let head = Export::spawn(&mut site.command(&shared), addresses[1]);
    site.expect_err(8, &alone, &["belongs to servers with --shared-state", "a has its lease"]);
    drop(head);
    site.expect_err(8, &alone, &["remove state/lease"]);
}
