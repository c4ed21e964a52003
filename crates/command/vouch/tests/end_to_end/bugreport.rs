use std::os::unix::fs::PermissionsExt as _;

use crate::prelude::*;

#[test]
fn report_has_the_state_and_none_of_the_planted_secrets() {
    if !fuse_is_available() {
        return;
    }
    let mut world = TestSite::new();
    world.environment.push(("VOUCH_RUNTIME_DIR", world.path("run").display().to_string()));
    world.environment.push(("AWS_SECRET_ACCESS_KEY", "planted-secret-1".to_owned()));
    world.environment.push(("HTTPS_PROXY", "http://user:planted-secret-2@127.0.0.1:9".to_owned()));
    world.small_tree();
    world.publish();
    let _replica = world.serve();
    let args = ["--replica", "http://user:planted-secret-3@127.0.0.1:9/db", "--proxy", "http://user:planted-secret-5@127.0.0.1:9"];
    let _mount = Mount::new(&world, "mnt", &[&args[..], &["--timeout", "5s", &world.name("")]].concat());
    world.write(
        "etc/vouch.toml",
        "# planted-secret-6\n[site]\ncache-quota = \"20G\"\nproxy = [\"http://user:planted-secret-7@proxy:1\"]\n\
         password = \"planted-secret-8\"\nnote = \"\"\"\nplanted-secret-9\n\"\"\"\n",
    );
    world.write(
        "etc/mount/mnt.env",
        "VOUCH_TREE=@host,ID\nAWS_SECRET_ACCESS_KEY=planted-secret-10\nVOUCH_MOUNT_OPTIONS=--replica https://u:planted-secret-11@h/db\n",
    );
    world.write("etc/keys/signing.key", "planted-secret-12\n");
    world.write("etc/krb5.keytab", "planted-secret-13\n");
    let said = world.run_ok(["bugreport", "--config", "etc", "--out", "report"]);
    assert!(said.contains("read it before you send it"), "{said}");
    assert_eq!(std::fs::metadata(world.path("report")).expect("written").permissions().mode() & 0o777, 0o600);
    let report = std::fs::read_to_string(world.path("report")).expect("text");
    for (number, line) in report.lines().enumerate() {
        assert!(!line.contains("planted-secret"), "line {number}: {line}");
    }
    let secret_keys = std::fs::read_dir(world.path("keys"))
        .expect("a directory")
        .map(|entry| std::fs::read_to_string(entry.expect("an entry").path()).unwrap_or_default());
    for line in secret_keys.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).filter(|line| line.len() > 20) {
        assert!(!report.contains(&line), "a line of a key file is in the report");
    }
    for expected in [
        "== kernel",
        "Linux",
        "cache-quota = \"20G\"",
        "password = (left out)",
        "\"kind\": \"mount\"",
        "vouch_mount_nodes",
        &world.name(""),
        "--proxy http://(left out)@127.0.0.1:9",
    ] {
        assert!(report.contains(expected), "{expected} is missing in {report}");
    }
    assert!(world.run_err(3, ["bugreport", "--config", "etc", "--out", "report"]).contains("exists"));
}
