use crate::prelude::*;

#[test]
fn proofs_are_checked_offline_after_the_tree_has_changed() {
    let site = TestSite::new();
    site.small_tree();
    site.publish_with(&["--tag", "v1", "--duration", "2s"]);
    let first = std::fs::read(site.path("src/dir/numbers")).expect("a file");
    site.write("src/dir/numbers", "changed\n");
    std::fs::remove_file(site.path("src/hello")).expect("the file exists");
    site.publish();
    let mut replica = site.serve();
    let name = site.name("");
    let prove = |path: &str, more: &[&str], out: &str| {
        site.run_ok([&["prove", &site.name(path), "--out", out], more].concat())
    };
    assert_eq!(
        prove("/dir/numbers", &["--tag", "v1"], "old.proof"),
        "revision 1 holds /dir/numbers\n"
    );
    assert_eq!(prove("/dir/numbers", &[], "new.proof"), "revision 2 holds /dir/numbers\n");
    assert_eq!(prove("/hello", &[], "absent.proof"), "revision 2 lacks /hello\n");
    assert_eq!(prove("/hello", &["--revision", "1"], "present.proof"), "revision 1 holds /hello\n");
    prove("/link", &[], "link.proof");
    assert_contains!(
        site.run_err(3, ["prove", &site.name("/hello"), "--out", "old.proof"]),
        "exists already"
    );
    assert_contains!(
        site.run_err(4, ["prove", &site.name("/hello"), "--tag", "v9", "--out", "none"]),
        "tag v9"
    );
    replica.kill();

    std::thread::sleep(std::time::Duration::from_secs(2));
    let shown = site.run_ok(["check-proof", &name, "old.proof", "--out", "content"]);
    assert_contains!(shown, "revision  1, tag v1, signed ", "present   /dir/numbers: file");
    assert_eq!(std::fs::read(site.path("content")).expect("written"), first);
    let sum = std::process::Command::new("sha256sum")
        .arg(site.path("content"))
        .output()
        .expect("coreutils");
    assert!(
        shown.contains(std::str::from_utf8(&sum.stdout[..64]).expect("hexadecimal")),
        "{shown}"
    );
    assert!(site.run_ok(["check-proof", &name, "absent.proof"]).contains("absent    /hello"));
    assert!(site.run_ok(["check-proof", &name, "link.proof"]).contains("target dir/numbers"));
    let json: serde_json::Value = serde_json::from_str(
        &site.run_ok(&format!("check-proof {} present.proof --json", site.name("/hello"))),
    )
    .expect("JSON");
    assert_eq!(
        (&json["revision"], &json["path"]["name"], &json["file"]["size"]),
        (&1.into(), &"hello".into(), &12.into())
    );

    assert_contains!(
        site.run_err(5, ["check-proof", &site.name("/dir/empty"), "present.proof"]),
        "the proof is about /hello"
    );
    let other = TestSite::new();
    let copy = other.path("proof");
    std::fs::copy(site.path("present.proof"), &copy).expect("copied");
    other.run_err(5, ["check-proof", &other.name(""), "proof"]);
    let proof = std::fs::read(site.path("present.proof")).expect("a proof");
    for at in (0..proof.len()).step_by(61) {
        let mut altered = proof.clone();
        altered[at] ^= 0x10;
        site.write("altered", &altered);
        // With the path: an altered path may be proved to be absent.
        let output = site.run(["check-proof", &site.name("/hello"), "altered"]);
        assert!(
            matches!(output.status.code(), Some(3 | 5)),
            "byte {at}: {}",
            String::from_utf8_lossy(&output.stdout)
        );
    }
    for (bytes, why) in [
        (&proof[..proof.len() - 4], "ends too early"),
        (&[&proof[..], &[0; 4]].concat()[..], "bytes follow"),
    ] {
        site.write("altered", bytes);
        assert!(site.run_err(5, ["check-proof", &name, "altered"]).contains(why));
    }
    site.run_ok(["revoke", "keys", "--reason", "stolen", "--out", "revocation"]);
    site.write(
        "statements/revocation",
        std::fs::read(site.path("revocation")).expect("a statement"),
    );
    assert_contains!(
        site.run_err(5, ["check-proof", &name, "present.proof", "--statements", "statements"]),
        "revoked"
    );
}
