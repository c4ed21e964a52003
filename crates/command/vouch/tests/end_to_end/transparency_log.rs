use crate::prelude::*;

/// Builds a reader with torchwood and Tessera by the go command, which fetches pinned modules.
fn build_go_reader(site: &TestSite) -> PathBuf {
    let directory = site.path("peer");
    site.write("peer/main.go", include_str!("../../../../tree/log/tests/go/main.go"));
    let modules = [
        "filippo.io/torchwood@v0.10.0",
        "github.com/transparency-dev/tessera@v1.0.4",
        "github.com/transparency-dev/formats@v0.1.1",
    ];
    for arguments in [
        &["mod", "init", "peer"][..],
        &[&["get"][..], &modules].concat(),
        &["build", "-o", "peer", "."],
    ] {
        let mut go = Command::new("go");
        go.envs([("GOTOOLCHAIN", "go1.27.0"), ("GOFLAGS", "-mod=mod"), ("GOWORK", "off")]);
        let output = go.current_dir(&directory).args(arguments).output().expect("go runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "go {arguments:?}: {error}");
    }
    directory.join("peer")
}

#[test]
#[ignore = "needs Go"]
fn go_tools_read_published_log() {
    let site = TestSite::new();
    let reader = build_go_reader(&site);
    site.small_tree();
    let read = |entries: u64| {
        std::fs::copy(site.path("keys/log.pub"), site.path("db/log.pub")).expect("keys");
        let mut go = Command::new(&reader);
        let output = go.arg("read").arg(site.path("db/log")).output().expect("the reader runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{entries} entries: {error}");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(printed.starts_with(&format!("{entries} entries of vouch/v1/log/")), "{printed}");
    };
    assert_eq!(site.publish()["log_entries"], 1);
    read(1);
    site.write("src/hello", "changed\n");
    assert_eq!(site.publish_with(&["--tag", "v1"])["log_entries"], 2);
    read(2);
    site.run_ok("rollback --to 1 --db db --keys keys");
    site.run_ok("tag moved --revision 2 --db db --keys keys");
    read(5);
    // A new key continues the log.
    site.run_ok("certify keys");
    assert_eq!(site.publish()["log_entries"], 6);
    read(6);
    let report: Value = serde_json::from_str(&site.run_ok("verify --db db --json")).expect("JSON");
    assert_eq!(report["log_entries"], 6);
}

#[test]
fn tree_without_log_key_goes_on_and_gets_its_history_later() {
    let site = TestSite::new();
    site.small_tree();
    for name in ["log.key", "log.cert", "log.pub"] {
        std::fs::remove_file(site.path("keys").join(name)).expect("keygen writes it");
    }
    assert_contains!(site.run_ok(&site.publication()), "none; `vouch certify`");
    assert_eq!(site.publish().get("log_entries"), None);
    site.run_ok("certify keys");
    assert_eq!(site.publish()["log_entries"], 3);
}

#[test]
fn certify_keeps_the_log_key_on_request() {
    let site = TestSite::published();
    let key = || std::fs::read(site.path("keys/log.key")).expect("a key");
    let first = key();
    site.run_ok("certify keys --keep-log-key keys/log.cert");
    assert!(key() == first);
    assert_eq!(site.publish()["log_entries"], 2);
    site.run_ok("certify keys");
    assert!(key() != first);
    assert!(std::fs::read(site.path("keys/log-2.key")).expect("the earlier key") == first);
    assert_eq!(site.publish()["log_entries"], 3);
}

#[test]
fn damage_of_the_log_is_found() {
    let site = TestSite::published();
    site.publish();
    site.write("db/log/tile/entries/000.p/2", "damaged");
    let output = site.run("verify --db db");
    assert_eq!(output.status.code(), Some(1));
    assert_contains!(
        String::from_utf8_lossy(&output.stdout),
        "the log of revisions: tile/entries/000.p/2 of the log"
    );
}
