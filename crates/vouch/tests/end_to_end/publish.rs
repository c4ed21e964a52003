use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::test_site::{TestSite, python_is_available, signal};

#[test]
fn unchanged_files_are_not_read_again() {
    let world = TestSite::new();
    world.small_tree();
    let first = world.publish();
    assert_eq!((&first["revision"], &first["files"], &first["symlinks"]), (&1.into(), &3.into(), &1.into()));
    assert!(first["new_bytes"].as_u64().expect("a number") > 0);
    // A file that changed within the same clock tick would be read again.
    std::thread::sleep(Duration::from_millis(2100));
    world.publish();
    let third = world.publish();
    assert_eq!((&third["revision"], &third["files_read"], &third["bytes_read"]), (&3.into(), &0.into(), &0.into()));
    let rehashed = world.publish_with(&["--rehash"]);
    assert_eq!(rehashed["files_read"], 3);
}

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
    let end = Instant::now() + Duration::from_secs(60);
    while !std::fs::read_dir(world.path("db/packs")).is_ok_and(|mut packs| packs.next().is_some()) {
        assert!(Instant::now() < end, "the publisher writes no data");
        std::thread::sleep(Duration::from_millis(1));
    }
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
    let output_text = world.run_err(3, ["publish", ".", "--db", "db", "--keys", "keys", "--location", &location]);
    assert!(output_text.contains("db"), "{output_text}");
    world.publish();
    world.run_ok(["keygen", "--out", "other"]);
    let output_text = world.run_err(3, ["publish", "src", "--db", "db", "--keys", "other", "--location", &location]);
    assert!(output_text.contains("another tree"), "{output_text}");
    std::fs::copy(world.path("other/signing.key"), world.path("keys/signing.key")).expect("a copy");
    let output_text = world.run_err(3, ["publish", "src", "--db", "db", "--keys", "keys", "--location", &location]);
    assert!(output_text.contains("is not the key of"), "{output_text}");
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
    let mut holder = std::process::Command::new("python3");
    let mut holder = holder.args(["-c", hold]).current_dir(world.path("")).stdout(Stdio::piped()).spawn().expect("python3");
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(holder.stdout.take().expect("piped")), &mut line).expect("a line");
    let location = format!("127.0.0.1:{}", world.port);
    let output_text = world.run_err(8, ["publish", "src", "--db", "db", "--keys", "keys", "--location", &location]);
    let _ = holder.kill();
    let _ = holder.wait();
    assert!(output_text.contains("db"), "{output_text}");
}
