use crate::prelude::*;
use crate::test_site::start;

#[test]
fn tagged_revisions_survive_keep_and_gc() {
    let world = TestSite::new();
    world.small_tree();
    world.publish_with(&["--tag", "first"]);
    for round in 0..4 {
        world.write("src/changing", format!("{round}").repeat(100_000));
        world.publish_with(&["--keep", "2"]);
    }
    let revisions: Vec<serde_json::Value> =
        world.run_ok(["log", "--db", "db", "--json"]).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let numbers: Vec<u64> = revisions.iter().map(|row| row["revision"].as_u64().expect("a number")).collect();
    assert_eq!(numbers, [5, 4, 1]);
    assert_eq!(revisions[2]["tag"], "first");
    world.run_ok(["gc", "--db", "db"]);
    assert!(world.run_ok(["verify", "--db", "db"]).contains("sound"));
    assert!(world.run_err(4, ["gc", "--db", "db", "--drop-tag", "no-such"]).contains("no kept revision"));
    world.run_ok(["gc", "--db", "db", "--drop-tag", "first", "--keep", "1"]);
    assert_eq!(world.run_ok(["log", "--db", "db", "--json"]).lines().count(), 1);
    assert!(world.run_ok(["verify", "--db", "db"]).contains("sound"));
}

#[test]
fn killed_publication_leaves_the_old_revision_intact() {
    let world = TestSite::published();
    for n in 0..400u32 {
        world.write(&format!("src/more/{n}"), n.to_le_bytes().repeat(20_000));
    }
    for wait_ms in [5, 20, 60, 150] {
        let location = format!("127.0.0.1:{}", world.port);
        let args = ["publish", "src", "--db", "db", "--keys", "keys", "--location", &location];
        let mut child = world.command(args).stdout(Stdio::null()).spawn().expect("the binary starts");
        std::thread::sleep(Duration::from_millis(wait_ms));
        let _ = child.kill();
        let _ = child.wait();
        assert!(world.run_ok(["verify", "--db", "db"]).contains("sound"));
    }
    world.publish();
    assert!(world.run_ok(["verify", "--db", "db"]).contains("sound"));
}

#[test]
fn interrupted_publication_is_reported_and_resumed() {
    let world = TestSite::new();
    // Incompressible content, so that the publication takes time.
    let mut noise = 1u64;
    for n in 0..3000u32 {
        let file: Vec<u8> = (0..5_000)
            .flat_map(|_| {
                noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (noise ^ noise >> 29).to_le_bytes()
            })
            .collect();
        world.write(&format!("src/{n}"), file);
    }
    let location = format!("127.0.0.1:{}", world.port);
    let args = ["publish", "src", "--db", "db", "--keys", "keys", "--location", &location, "--threads", "1"];
    let child = world.command(args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    let has_pack = || std::fs::read_dir(world.path("db/packs")).is_ok_and(|mut packs| packs.next().is_some());
    assert!(eventually(Duration::from_secs(60), has_pack), "the publisher writes no data");
    signal("INT", child.id());
    let output = child.wait_with_output().expect("a child");
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(world.publish()["revision"], 1);
}

#[test]
fn damaged_index_is_found_and_rebuilt() {
    let world = TestSite::published();
    for segment in std::fs::read_dir(world.path("db/index")).expect("an index") {
        std::fs::write(segment.expect("an entry").path(), "rubbish").expect("ours");
    }
    assert!(!world.run(["verify", "--db", "db"]).status.success());
    assert!(world.run_ok(["gc", "--db", "db", "--repair"]).contains("index rebuilt"));
    assert!(world.run_ok(["verify", "--db", "db"]).contains("sound"));
    assert_eq!(world.publish()["revision"], 2);
}

#[test]
fn unpublishable_input_is_named_and_stops_the_publication() {
    let world = TestSite::new();
    world.small_tree();
    let location = format!("127.0.0.1:{}", world.port);
    world.expect_err(3, ["publish", ".", "--db", "db", "--keys", "keys", "--location", &location], &["db"]);
    world.publish();
    world.run_ok(["keygen", "--out", "other"]);
    world.expect_err(3, ["publish", "src", "--db", "db", "--keys", "other", "--location", &location], &["another tree"]);
    std::fs::copy(world.path("other/signing.key"), world.path("keys/signing.key")).expect("a copy");
    world.expect_err(3, ["publish", "src", "--db", "db", "--keys", "keys", "--location", &location], &["is not the key of"]);
}

/// Root may maintain a database in a directory of another user, who may plant links there.
#[test]
fn planted_links_do_not_lead_writes_out_of_the_database() {
    let world = TestSite::published();
    let location = format!("127.0.0.1:{}", world.port);
    for planted in ["lock", "publisher/stat.redb"] {
        let (victim, link) = (world.path(format!("victim-{}", planted.replace('/', "-"))), world.path("db").join(planted));
        std::fs::write(&victim, "12345").expect("a file");
        std::fs::remove_file(&link).expect("the database has this file");
        std::os::unix::fs::symlink(&victim, &link).expect("a link");
        world.write("src/hello", format!("changed while {planted} is a link\n"));
        let output = world.run(["publish", "src", "--db", "db", "--keys", "keys", "--location", &location]);
        assert_eq!(std::fs::read(&victim).expect("the victim"), b"12345", "{planted}");
        // Without its lock the database is not written; without the stat cache it is, only slower.
        assert_eq!(output.status.success(), planted != "lock", "{planted}: {}", String::from_utf8_lossy(&output.stderr));
        if planted == "lock" {
            std::fs::remove_file(&link).expect("the link");
        }
    }
}

#[test]
fn second_writer_gets_database_busy_error() {
    if !python_is_available() {
        return;
    }
    let world = TestSite::published();
    let hold = "import fcntl,sys,time\nf=open('db/lock','r+')\nfcntl.flock(f,fcntl.LOCK_EX)\nprint('held',flush=True)\ntime.sleep(60)";
    let _holder = start(std::process::Command::new("python3").args(["-c", hold]).current_dir(world.path("")));
    let location = format!("127.0.0.1:{}", world.port);
    world.expect_err(8, ["publish", "src", "--db", "db", "--keys", "keys", "--location", &location], &["db"]);
}
