use crate::prelude::*;
use crate::test_site::start;

#[test]
fn tagged_revisions_survive_keep_and_gc() {
    let site = TestSite::new();
    site.small_tree();
    site.publish_with(&["--tag", "first"]);
    for round in 0..4 {
        site.write("src/changing", format!("{round}").repeat(100_000));
        site.publish_with(&["--keep", "2"]);
    }
    let revisions: Vec<serde_json::Value> = site
        .run_ok(["log", "--db", "db", "--json"])
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let numbers: Vec<u64> =
        revisions.iter().map(|row| row["revision"].as_u64().expect("a number")).collect();
    assert_eq!(numbers, [5, 4, 1]);
    assert_eq!(revisions[2]["tag"], "first");
    site.run_ok(["gc", "--db", "db"]);
    assert!(site.run_ok(["verify", "--db", "db"]).contains("sound"));
    assert_contains!(
        site.run_err(4, ["gc", "--db", "db", "--drop-tag", "no-such"]),
        "no kept revision"
    );
    site.run_ok(["gc", "--db", "db", "--drop-tag", "first", "--keep", "1"]);
    assert_eq!(site.run_ok(["log", "--db", "db", "--json"]).lines().count(), 1);
    assert!(site.run_ok(["verify", "--db", "db"]).contains("sound"));
}

#[test]
fn killed_publication_leaves_the_old_revision_intact() {
    let site = TestSite::published();
    for n in 0..400u32 {
        site.write(&format!("src/more/{n}"), n.to_le_bytes().repeat(20_000));
    }
    for wait_ms in [5, 20, 60, 150] {
        let mut child = site
            .command(&site.publication())
            .stdout(Stdio::null())
            .spawn()
            .expect("the binary starts");
        std::thread::sleep(Duration::from_millis(wait_ms));
        let _ = child.kill();
        let _ = child.wait();
        assert!(site.run_ok(["verify", "--db", "db"]).contains("sound"));
    }
    site.publish();
    assert!(site.run_ok(["verify", "--db", "db"]).contains("sound"));
}

#[test]
fn interrupted_publication_is_reported_and_resumed() {
    let site = TestSite::new();
    for n in 0..3000 {
        site.write(&format!("src/{n}"), noise(n, 40_000));
    }
    let args = &format!("{} --threads 1", site.publication());
    let child = site
        .command(args)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let has_pack =
        || std::fs::read_dir(site.path("db/packs")).is_ok_and(|mut packs| packs.next().is_some());
    within(60, "the publisher writes no data", has_pack);
    signal("INT", child.id());
    let output = child.wait_with_output().expect("a child");
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(site.publish()["revision"], 1);
}

#[test]
fn damaged_index_is_found_and_rebuilt() {
    let site = TestSite::published();
    for segment in std::fs::read_dir(site.path("db/index")).expect("an index") {
        std::fs::write(segment.expect("an entry").path(), "rubbish").expect("ours");
    }
    assert!(!site.run(["verify", "--db", "db"]).status.success());
    assert!(site.run_ok(["gc", "--db", "db", "--repair"]).contains("index rebuilt"));
    assert!(site.run_ok(["verify", "--db", "db"]).contains("sound"));
    assert_eq!(site.publish()["revision"], 2);
}

#[test]
fn unpublishable_input_is_named_and_stops_the_publication() {
    let site = TestSite::new();
    site.small_tree();
    site.expect_err(3, "publish . --db db --keys keys --location localhost", &["db"]);
    site.publish();
    site.run_ok(["keygen", "--out", "other"]);
    site.expect_err(3, "publish src --db db --keys other --location localhost", &["another tree"]);
    std::fs::copy(site.path("other/signing.key"), site.path("keys/signing.key")).expect("a copy");
    site.expect_err(3, &site.publication(), &["is not the key of"]);
}

#[test]
fn planted_links_do_not_lead_writes_out_of_the_database() {
    let site = TestSite::published();
    for planted in ["lock", "publisher/stat.redb"] {
        let (victim, link) = (
            site.path(format!("victim-{}", planted.replace('/', "-"))),
            site.path("db").join(planted),
        );
        std::fs::write(&victim, "12345").expect("a file");
        std::fs::remove_file(&link).expect("the database has this file");
        std::os::unix::fs::symlink(&victim, &link).expect("a link");
        site.write("src/hello", format!("changed while {planted} is a link\n"));
        let output = site.run(&site.publication());
        assert_eq!(std::fs::read(&victim).expect("the victim"), b"12345", "{planted}");
        assert_eq!(
            output.status.success(),
            planted != "lock",
            "{planted}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        if planted == "lock" {
            std::fs::remove_file(&link).expect("the link");
        }
    }
}

#[test]
#[ignore = "needs python3"]
fn second_writer_gets_database_busy_error() {
    require_program("python3");
    let site = TestSite::published();
    let hold = "import fcntl,sys,time\nf=open('db/lock','r+')\nfcntl.flock(f,fcntl.LOCK_EX)\nprint('held',flush=True)\ntime.sleep(60)";
    let _holder =
        start(std::process::Command::new("python3").args(["-c", hold]).current_dir(site.path("")));
    site.expect_err(8, &site.publication(), &["db"]);
}

#[test]
fn snapshot_is_published_instead_of_the_live_directory() {
    let site = TestSite::new();
    site.write("src/file", "live");
    site.write("src/.snapshot/daily/file", "daily");
    site.write("elsewhere/file", "elsewhere");
    let publish = |from: &str| site.publish_with(&["--from-snapshot", from]);
    let report = publish("daily");
    assert_eq!((&report["snapshot"], &report["files"]), (&Value::from("daily"), &Value::from(1)));
    let _replica = site.serve();
    let shows = |content: &str| {
        // The replica sees a new revision after a moment.
        let read = || site.run_ok(["cat", "--no-cache", &site.name("/file")]);
        assert!(
            eventually(Duration::from_secs(60), || read() == content),
            "not {content:?} but {:?}",
            read()
        );
    };
    shows("daily");
    publish("./elsewhere");
    shows("elsewhere");
    // It is unknown when the snapshot was taken, so none of its files is taken as unchanged.
    assert_eq!([&publish("daily")["files_read"], &publish("daily")["files_read"]], [1, 1]);
    shows("daily");
    let args = |db: &str, from: &str| {
        format!("{} --from-snapshot {from}", site.publication())
            .replace("--db db", &format!("--db {db}"))
    };
    for missing in ["none", "../elsewhere/none", "..", "."] {
        site.expect_err(4, &args("db", missing), &["no snapshot of src"]);
    }
    site.expect_err(3, &args("src/db", "daily"), &["src/db"]);
    site.expect_err(
        3,
        &args("db", "new"),
        &["not the root of a btrfs subvolume", "--from-snapshot"],
    );
}

/// In a mount namespace of its own.
const PUBLISH_SUBVOLUME: &str = r#"
set -eu
truncate -s 320M image; mkfs.btrfs -q image; mkdir volume; mount -o loop image volume
btrfs subvolume create volume/src >/dev/null
echo first >volume/src/file
ln volume/src/file volume/src/linked
publish() {
    "$VOUCH" publish volume/src --db db --keys keys --location 127.0.0.1 --json --from-snapshot new >"$1"
    [ ! -e volume/src/.vouch-snapshot ]
}
# A file that changed within two seconds before the snapshot is read again.
sleep 4
publish one
# Left by a killed run.
btrfs subvolume snapshot -r volume/src volume/src/.vouch-snapshot >/dev/null
publish two
echo more >volume/src/more
sleep 4
publish three
umount volume
"#;

#[test]
#[ignore = "needs root and btrfs-progs"]
fn btrfs_snapshot_lives_as_long_as_the_publication() {
    require("root", is_root());
    require_program("mkfs.btrfs");
    let site = TestSite::new();
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "sh", "-c", PUBLISH_SUBVOLUME])
        .current_dir(site.path(""));
    let program = env!("CARGO_BIN_EXE_vouch");
    succeed(command.env("VOUCH", program).env("VOUCH_CONFIG", "/dev/null"));
    let [one, two, three] = ["one", "two", "three"].map(|name| site.json(name));
    assert!(one["snapshot"].as_str().expect("named").starts_with("made at "), "{one}");
    // The next snapshot has other device numbers and the same files.
    assert_eq!([&one["files_read"], &two["files_read"], &three["files_read"]], [1, 0, 1]);
    assert_eq!([&one["files"], &two["files"], &three["files"]], [2, 2, 3]);
}

#[test]
fn guards_and_dry_run_come_before_a_revision() {
    use std::os::unix::fs::PermissionsExt as _;
    let site = TestSite::new();
    site.small_tree();
    (0..12).for_each(|n| site.write(&format!("src/more/{n}"), n.to_string()));
    std::fs::set_permissions(site.path("src/hello"), std::fs::Permissions::from_mode(0o600))
        .expect("ours");
    let publish = &site.publication();
    assert!(site.run_ok(&format!("{publish} --dry-run --exclude hello")).contains("1 until"));
    assert!(!site.path("db").exists());
    site.expect_err(3, publish, &["src/hello", "--private-files allow"]);
    assert_eq!(
        site.publish_with(&["--private-files", "allow", "--message", "the first"])["private_files"],
        1
    );
    let warned = site.run(publish);
    assert!(
        warned.status.success() && String::from_utf8_lossy(&warned.stderr).contains("src/hello")
    );
    std::fs::rename(site.path("src"), site.path("away")).expect("ours");
    std::fs::create_dir(site.path("src")).expect("a mount point without its disk");
    site.expect_err(3, publish, &["are gone", "--max-delete 100%"]);
    assert_eq!(site.publish_with(&["--max-delete", "100%"])["revision"], 3);
    site.run_err(4, ["rollback", "--db", "db", "--keys", "keys", "--to", "9"]);
    assert_contains!(
        site.run_ok(["rollback", "--db", "db", "--keys", "keys", "--to", "2"]),
        "revision 4 has the content of revision 2"
    );
    assert_contains!(
        site.run_ok(["tag", "stable", "--db", "db", "--keys", "keys", "--revision", "1"]),
        "revision 6 has the newest content"
    );
    let log = site.run_ok(["log", "--db", "db"]);
    assert_contains!(log, "\"the first\"", "  stable", "\"rollback to revision 2\"");
    let _replica = site.serve();
    assert_eq!(site.run_ok(["cat", "--tag", "stable", &site.name("/hello")]), "hello world\n");
    assert_eq!(site.run_ok(["cat", &site.name("/more/7")]), "7");
    assert!(site.run_ok(["ls", "-a", &site.name("")]).contains("hello"));
    assert!(site.run_ok(["log", &site.name("")]).contains("rollback to revision 2"));
    site.run_ok(["gc", "--db", "db", "--keep-daily", "1"]);
    assert_eq!(site.run_ok(["log", "--db", "db", "--json"]).lines().count(), 2);
    assert_eq!(site.run_ok(["version"]), site.run_ok(["--version"]));
}

#[test]
fn validity_that_the_certificate_cuts_is_said() {
    let site = TestSite::published();
    let output = site.run(&format!("{} --duration 400d", site.publication()));
    let (text, warning) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("certificate ends") && warning.contains("certify"), "{text}{warning}");
    let ends: Vec<serde_json::Value> = site
        .run_ok(["log", "--db", "db", "--json"])
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let end = ends[0]["end"].as_str().expect("a time");
    assert!(text.contains(end), "{end} {text}");
}

#[test]
#[ignore = "needs root"]
fn full_disk_gets_back_what_was_stored() {
    require("root", is_root());
    let site = TestSite::with_directories(&["disk"]);
    site.run_tool("mount", &["-t", "tmpfs", "-o", "size=6m", "tmpfs", "disk"]);
    let content = noise(1, 12_000_000);
    site.write("src/large", &content);
    site.write("small/file", "small");
    let publish = |source: &str| {
        site.run(&format!(
            "publish {source} --db disk/db --keys keys --location {}",
            site.location()
        ))
    };
    let full = publish("src");
    let used = rustix::fs::statvfs(site.path("disk")).map(|stat| stat.f_blocks - stat.f_bfree);
    let small = publish("small");
    site.publish();
    let _replica = site.serve();
    let pulled = site.run(["pull", &site.name(""), "--db", "disk/mirror"]);
    let used_by_pull =
        rustix::fs::statvfs(site.path("disk")).map(|stat| stat.f_blocks - stat.f_bfree);
    site.run_tool("umount", &["disk"]);
    assert_eq!((full.status.code(), pulled.status.code()), (Some(7), Some(7)));
    assert!(small.status.success(), "{}", String::from_utf8_lossy(&small.stderr));
    assert!(
        used.is_ok_and(|pages| pages < 100) && used_by_pull.is_ok_and(|pages| pages < 200),
        "{used:?} {used_by_pull:?}"
    );
}
