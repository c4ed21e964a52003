use std::os::unix::fs::PermissionsExt as _;

use crate::prelude::*;

#[test]
#[ignore = "needs FUSE"]
fn report_has_the_state_and_none_of_the_planted_secrets() {
    let mut site = TestSite::new();
    site.environment.push(("VOUCH_RUNTIME_DIR", site.path("run").display().to_string()));
    site.environment.push(("AWS_SECRET_ACCESS_KEY", "planted-secret-1".to_owned()));
    site.environment.push(("HTTPS_PROXY", "http://user:planted-secret-2@127.0.0.1:9".to_owned()));
    site.small_tree();
    site.publish();
    let _replica = site.serve();
    let args = words(
        "--replica http://user:planted-secret-3@127.0.0.1:9/db --proxy http://user:planted-secret-5@127.0.0.1:9",
    );
    let _mount =
        Mount::new(&site, "mnt", &[&args[..], &["--timeout", "5s", &site.name("")]].concat());
    site.write(
        "etc/vouch.toml",
        "# planted-secret-6\n[site]\ncache-quota = \"20G\"\nproxy = [\"http://user:planted-secret-7@proxy:1\"]\n\
         password = \"planted-secret-8\"\nnote = \"\"\"\nplanted-secret-9\n\"\"\"\n",
    );
    site.write(
        "etc/mount/mnt.env",
        "VOUCH_TREE=@host,ID\nAWS_SECRET_ACCESS_KEY=planted-secret-10\nVOUCH_MOUNT_OPTIONS=--replica https://u:planted-secret-11@h/db\n",
    );
    site.write("etc/keys/signing.key", "planted-secret-12\n");
    site.write("etc/krb5.keytab", "planted-secret-13\n");
    let said = site.run_ok(["bugreport", "--config", "etc", "--out", "report"]);
    assert!(said.contains("read it before you send it"), "{said}");
    assert_eq!(
        std::fs::metadata(site.path("report")).expect("written").permissions().mode() & 0o777,
        0o600
    );
    let report = std::fs::read_to_string(site.path("report")).expect("text");
    for (number, line) in report.lines().enumerate() {
        assert!(!line.contains("planted-secret"), "line {number}: {line}");
    }
    let secret_keys = std::fs::read_dir(site.path("keys"))
        .expect("a directory")
        .map(|entry| std::fs::read_to_string(entry.expect("an entry").path()).unwrap_or_default());
    for line in secret_keys
        .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
        .filter(|line| line.len() > 20)
    {
        assert!(!report.contains(&line), "a line of a key file is in the report");
    }
    for expected in [
        "== kernel",
        "Linux",
        "cache-quota = \"20G\"",
        "password = (left out)",
        "\"kind\": \"mount\"",
        "vouch_mount_nodes",
        &site.name(""),
        "--proxy http://(left out)@127.0.0.1:9",
    ] {
        assert!(report.contains(expected), "{expected} is missing in {report}");
    }
    assert_contains!(
        site.run_err(3, ["bugreport", "--config", "etc", "--out", "report"]),
        "exists"
    );
}
