use std::os::unix::fs::PermissionsExt as _;

use crate::prelude::*;

#[test]
fn keygen_makes_private_files_and_never_overwrites() {
    let site = TestSite::new();
    for (name, mode) in
        [("root.key", 0o600), ("signing.key", 0o600), ("signing.cert", 0o644), ("root.pub", 0o644)]
    {
        let meta = std::fs::metadata(site.path("keys").join(name)).expect("keygen made it");
        assert_eq!(meta.permissions().mode() & 0o777 & !0o022, mode & !0o022, "{name}");
    }
    let before = std::fs::read(site.path("keys/root.key")).expect("a key");
    site.expect_err(3, ["keygen", "--out", "keys"], &["never overwritten"]);
    assert_eq!(std::fs::read(site.path("keys/root.key")).expect("a key"), before);
}

#[test]
fn key_readable_by_others_is_not_used() {
    let site = TestSite::published();
    let mode = |mode| {
        std::fs::set_permissions(
            site.path("keys/signing.key"),
            std::fs::Permissions::from_mode(mode),
        )
        .expect("our own file")
    };
    mode(0o640);
    site.expect_err(
        3,
        "publish src --db db --keys keys --location localhost",
        &["signing.key", "mode 640", "chmod 600"],
    );
    mode(0o400);
    assert_eq!(site.publish()["revision"], 2);
}

#[test]
fn sealed_root_key_opens_only_with_its_passphrase() {
    let site = TestSite::new();
    site.write("right", "correct horse\n");
    site.write("wrong", "battery staple\n");
    site.run_ok(["keygen", "--out", "sealed", "--passphrase-file", "right"]);
    assert!(site.run_err(3, ["certify", "sealed"]).contains("--passphrase-file"));
    assert_contains!(
        site.run_err(3, ["certify", "sealed", "--passphrase-file", "wrong"]),
        "wrong passphrase"
    );
    site.run_ok(["certify", "sealed", "--passphrase-file", "right"]);
}

#[test]
fn certificates_are_numbered_and_the_old_pair_is_kept() {
    let site = TestSite::new();
    for serial in 2..4 {
        let report: serde_json::Value =
            serde_json::from_str(&site.run_ok(["certify", "keys", "--json"])).expect("JSON");
        assert_eq!(report["serial"], serial);
    }
    for name in ["signing-1.key", "signing-1.cert", "signing-2.key", "signing.key", "signing.cert"]
    {
        assert!(site.path("keys").join(name).exists(), "{name}");
    }
    assert!(site.run_err(2, ["certify", "keys", "--serial", "3"]).contains("issued already"));
    assert_contains!(
        site.run_err(2, ["certify", "keys", "--serial", "18446744073709551615"]),
        "never be replaced"
    );
    site.run_ok(["certify", "keys", "--out", "elsewhere"]);
    assert!(
        site.path("elsewhere/signing.key").exists() && !site.path("elsewhere/root.key").exists()
    );
}

#[test]
fn names_are_printed_and_parsed() {
    let site = TestSite::new();
    let hostid = site.run_ok(["name", "keys"]);
    let hostid = hostid.trim();
    assert_eq!(hostid.len(), 52);
    assert_eq!(site.run_ok(["name", "keys/root.pub"]).trim(), hostid);
    assert_eq!(site.run_ok(["name", "keys/signing.cert"]).trim(), hostid);
    assert_eq!(
        site.run_ok(["name", hostid, "--location", "[::1]:99"]).trim(),
        format!("@[::1]:99,{hostid}")
    );
    let parts: serde_json::Value =
        serde_json::from_str(&site.run_ok(["name", &format!("@h.example,{hostid}"), "--json"]))
            .expect("JSON");
    assert_eq!((&parts["host"], &parts["port"]), (&"h.example".into(), &4340.into()));
    site.small_tree();
    site.publish();
    assert_eq!(site.run_ok(["name", "db"]).trim(), hostid);
}

#[test]
fn statements_are_made_checked_and_forwarded() {
    let site = TestSite::published();
    site.run_ok(["revoke", "keys", "--reason", "a test", "--out", "revocation"]);
    assert!(site.run_err(3, ["revoke", "keys", "--out", "revocation"]).contains("exists already"));
    site.run_ok(["revoke", "--statement", "revocation", "--db", "db"]);
    assert_contains!(
        site.run_err(3, ["forward", "--statement", "revocation", "--db", "db"]),
        "other kind"
    );
    site.expect_err(5, &site.publication(), &["revoked", "a test"]);
    site.expect_err(5, ["verify", "--db", "db"], &["revoked", "a test"]);
    let text = std::fs::read_to_string(site.path("revocation")).expect("text");
    let (header, body) = text.split_once('\n').expect("two lines");
    let mut bytes = data_encoding::BASE64.decode(body.trim().as_bytes()).expect("base64");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    site.write("altered", format!("{header}\n{}\n", data_encoding::BASE64.encode(&bytes)));
    assert!(site.run_err(5, ["revoke", "--statement", "altered"]).contains("signature"));
    let own = site.run_ok(["name", "keys", "--location", "elsewhere.example"]);
    assert_contains!(
        site.run_err(3, ["forward", "keys", "--to", own.trim(), "--out", "circle"]),
        "same HOSTID as the old name"
    );
    assert!(!site.path("circle").exists());
    site.run_ok(["keygen", "--out", "other"]);
    site.run_ok(["revoke", "other", "--out", "of-other"]);
    assert_contains!(
        site.run_err(3, ["revoke", "--statement", "of-other", "--db", "db"]),
        "another key"
    );
}

#[test]
fn revocation_without_reason_says_so() {
    let site = TestSite::published();
    site.run_ok(["revoke", "keys", "--out", "revocation", "--db", "db"]);
    let reason = "revoked (no reason given)";
    site.expect_err(5, &site.publication(), &[reason]);
    site.expect_err(5, ["verify", "--db", "db"], &[reason]);
    for command in [["log", "--db", "db"], ["gc", "--db", "db"]] {
        let output = site.run(command);
        let notes = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && notes.contains(reason), "{command:?}: {notes}");
    }
}

#[test]
fn revocation_is_sent_to_a_replica_and_reaches_clients() {
    let site = TestSite::published();
    let listen = format!("127.0.0.1:{}", site.port);
    let start = |more: &[&str]| {
        start_listener(
            &mut site.command([&["serve", "--db", "db", "--listen", &listen], more].concat()),
        )
    };
    let replica = start(&[]);
    site.run_ok(["revoke", "keys", "--reason", "stolen", "--out", "revocation"]);
    let send = ["revoke", "--statement", "revocation", "--send", &listen];
    assert!(site.run_err(5, send).contains("--accept-statements"));
    drop(replica);
    assert!(site.run_err(6, send).contains("refused"));
    let _replica = start(&["--accept-statements", "taken"]);
    site.run_ok(["cat", &site.name("/hello")]);
    site.run_ok(send);
    assert!(site.run_err(5, ["cat", &site.name("/hello")]).contains("revoked"));
}

#[test]
fn old_key_forwards_to_a_pair() {
    old_and_new_names(|_, _| {});
}

#[test]
#[ignore = "needs FUSE"]
fn mount_by_an_old_name_shows_the_tree_of_the_pair() {
    old_and_new_names(|site, old| {
        let mount = Mount::new(site, "mnt", &[old]);
        assert_eq!(std::fs::read(mount.path("a")).expect("mounted"), b"new");
    });
}

/// Calls `forwarded` with the old name once a pointer leads to the new one.
fn old_and_new_names(forwarded: impl FnOnce(&TestSite, &str)) {
    let site = TestSite::new();
    let listen = format!("127.0.0.1:{}", site.port);
    site.run_ok(["keygen", "--classic", "--out", "old"]);
    site.run_ok(["keygen", "--out", "new"]);
    for keys in ["old", "new"] {
        std::fs::create_dir(site.path(format!("{keys}-src"))).expect("a directory");
        site.write(&format!("{keys}-src/a"), keys);
        site.run_ok(&format!(
            "publish {keys}-src --db {keys}-db --keys {keys} --location {listen}"
        ));
    }
    // An old key goes on: its next signing key is of its kind.
    site.run_ok(["certify", "old"]);
    site.run_ok(&format!("publish old-src --db old-db --keys old --location {listen}"));
    let name = |keys| site.run_ok(["name", keys, "--location", &listen]).trim().to_owned();
    let (old, new) = (name("old"), name("new"));
    assert_eq!(old.len(), new.len());
    let mut serve =
        site.command(["serve", "--db", "old-db", "--db", "new-db", "--listen", &listen]);
    let replica = start_listener(&mut serve);
    for (name, content) in [(&old, "old"), (&new, "new")] {
        assert_eq!(site.run_ok(["cat", &format!("{name}/a")]), content);
    }
    drop(replica);
    site.run_ok(["forward", "old", "--to", &new, "--db", "old-db"]);
    let _replica = start_listener(&mut serve);
    forwarded(&site, &old);
    assert_eq!(site.run_ok(["cat", &format!("{old}/a")]), "new");
    std::fs::remove_dir_all(site.path("state")).expect("what clients have seen");
    assert_eq!(site.run_ok(["cat", &format!("{old}/a")]), "new");
}

/// A stolen signing key of a pair ends with the next certificate, and the root key with a
/// revocation.
#[test]
fn keys_of_pairs_rotate_and_are_revoked() {
    let site = TestSite::published();
    let length = |name: &str| std::fs::metadata(site.path(name)).expect("a file").len();
    assert!(length("keys/signing.cert") > 5000, "a pair, certified by a pair");
    let _replica = site.serve();
    site.run_ok(["cat", &site.name("/hello")]);
    std::fs::create_dir(site.path("thief")).expect("a directory");
    for file in ["signing.key", "signing.cert"] {
        std::fs::copy(site.path("keys").join(file), site.path("thief").join(file)).expect("a copy");
    }
    site.run_ok(["certify", "keys"]);
    site.write("src/hello", "by the new key\n");
    site.publish();
    assert!(eventually(Duration::from_secs(20), || {
        site.run(["cat", &site.name("/hello")]).stdout == b"by the new key\n"
    }));
    let theft = site.publication().replace("--keys keys", "--keys thief");
    assert!(!site.run(&theft).status.success(), "{theft}");
    site.run_ok(["revoke", "keys", "--reason", "stolen", "--out", "revocation", "--db", "db"]);
    assert!(eventually(Duration::from_secs(20), || {
        site.run(["cat", &site.name("/hello")]).status.code() == Some(5)
    }));
}
