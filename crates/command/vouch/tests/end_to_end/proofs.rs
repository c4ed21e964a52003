use crate::prelude::*;

#[test]
fn proofs_are_checked_offline_after_the_tree_has_changed() {
    let world = TestSite::new();
    world.small_tree();
    world.publish_with(&["--tag", "v1", "--duration", "2s"]);
    let first = std::fs::read(world.path("src/dir/numbers")).expect("a file");
    world.write("src/dir/numbers", "changed\n");
    std::fs::remove_file(world.path("src/hello")).expect("the file exists");
    world.publish();
    let mut replica = world.serve();
    let name = world.name("");
    let prove = |path: &str, more: &[&str], out: &str| world.run_ok([&["prove", &world.name(path), "--out", out], more].concat());
    assert_eq!(prove("/dir/numbers", &["--tag", "v1"], "old.proof"), "revision 1 holds /dir/numbers\n");
    assert_eq!(prove("/dir/numbers", &[], "new.proof"), "revision 2 holds /dir/numbers\n");
    assert_eq!(prove("/hello", &[], "absent.proof"), "revision 2 lacks /hello\n");
    assert_eq!(prove("/hello", &["--revision", "1"], "present.proof"), "revision 1 holds /hello\n");
    prove("/link", &[], "link.proof");
    assert!(world.run_err(3, ["prove", &world.name("/hello"), "--out", "old.proof"]).contains("exists already"));
    assert!(world.run_err(4, ["prove", &world.name("/hello"), "--tag", "v9", "--out", "none"]).contains("tag v9"));
    replica.kill();

    std::thread::sleep(std::time::Duration::from_secs(2));
    let shown = world.run_ok(["check-proof", &name, "old.proof", "--out", "content"]);
    assert!(shown.contains("revision  1, tag v1, signed ") && shown.contains("present   /dir/numbers: file"), "{shown}");
    assert_eq!(std::fs::read(world.path("content")).expect("written"), first);
    let sum = std::process::Command::new("sha256sum").arg(world.path("content")).output().expect("coreutils");
    assert!(shown.contains(std::str::from_utf8(&sum.stdout[..64]).expect("hexadecimal")), "{shown}");
    assert!(world.run_ok(["check-proof", &name, "absent.proof"]).contains("absent    /hello"));
    assert!(world.run_ok(["check-proof", &name, "link.proof"]).contains("target dir/numbers"));
    let json: serde_json::Value =
        serde_json::from_str(&world.run_ok(["check-proof", &world.name("/hello"), "present.proof", "--json"])).expect("JSON");
    assert_eq!((&json["revision"], &json["path"]["name"], &json["file"]["size"]), (&1.into(), &"hello".into(), &12.into()));

    assert!(world.run_err(5, ["check-proof", &world.name("/dir/empty"), "present.proof"]).contains("the proof is about /hello"));
    let other = TestSite::new();
    let copy = other.path("proof");
    std::fs::copy(world.path("present.proof"), &copy).expect("copied");
    other.run_err(5, ["check-proof", &other.name(""), "proof"]);
    let proof = std::fs::read(world.path("present.proof")).expect("a proof");
    for at in (0..proof.len()).step_by(7) {
        let mut altered = proof.clone();
        altered[at] ^= 0x10;
        world.write("altered", &altered);
        let output = world.run(["check-proof", &name, "altered"]);
        assert!(matches!(output.status.code(), Some(3 | 5)), "byte {at}: {}", String::from_utf8_lossy(&output.stdout));
    }
    for (bytes, why) in [(&proof[..proof.len() - 4], "ends too early"), (&[&proof[..], &[0; 4]].concat()[..], "bytes follow")] {
        world.write("altered", bytes);
        assert!(world.run_err(5, ["check-proof", &name, "altered"]).contains(why));
    }
    world.run_ok(["revoke", "keys", "--reason", "stolen", "--out", "revocation"]);
    world.write("statements/revocation", std::fs::read(world.path("revocation")).expect("a statement"));
    assert!(world.run_err(5, ["check-proof", &name, "present.proof", "--statements", "statements"]).contains("revoked"));
}
