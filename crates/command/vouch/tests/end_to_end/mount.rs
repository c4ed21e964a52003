use std::fs::File;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{Advice, fadvise};

use crate::prelude::*;

#[test]
#[ignore = "needs FUSE"]
fn mount_stays_at_the_chosen_revision() {
    let newest = Mounted::with_tree(
        &["--refresh", "1s"],
        &["--tag", "v1", "--duration", "1m"],
        TestSite::small_tree,
    );
    let site = &newest.site;
    let by_number =
        Mount::new(site, "by-number", &["--refresh", "1s", "--revision", "1", &site.name("")]);
    let by_tag = Mount::new(site, "by-tag", &["--refresh", "1s", "--tag", "v1", &site.name("")]);
    assert_eq!(std::fs::read_to_string(by_tag.path("hello")).expect("text"), "hello world\n");
    site.write("src/hello", "hello again\n");
    std::fs::remove_file(site.path("src/dir/empty")).expect("the file exists");
    site.publish();
    let read = |mount: &Mount| std::fs::read_to_string(mount.path("hello")).expect("text");
    assert!(eventually(Duration::from_secs(20), || read(&newest.mount) == "hello again\n"));
    std::thread::sleep(Duration::from_secs(2));
    for mount in [&by_number, &by_tag] {
        assert_eq!(read(mount), "hello world\n");
        assert!(mount.path("dir/empty").is_file());
        assert!(mount.path("dir/numbers").is_file());
    }
    assert!(site.run_err(4, ["mount", "--tag", "v9", &site.name(""), "by-tag"]).contains("tag v9"));
    site.run_ok(["revoke", "keys", "--reason", "stolen", "--db", "db", "--out", "revocation"]);
    assert!(eventually(Duration::from_secs(30), || std::fs::read(by_number.path("dir/numbers"))
        .is_err()));
}

#[test]
#[ignore = "needs FUSE and python3"]
fn mount_shows_every_odd_case_faithfully() {
    require_program("python3");
    let odd_tree = |site: &TestSite| {
        assert!(
            site.script("odd-tree", ["src", "--large", "20000", "--depth", "1000"])
                .status
                .success()
        );
    };
    let Mounted { site, mount, replica: _replica } =
        Mounted::with_tree(&[], &["--private-files", "allow"], odd_tree);
    // Only root sees extended attributes in the kernel's own name spaces.
    site.assert_same("src", "mnt", if is_root() { &[] } else { &["--no-xattr"] });
    assert_eq!(mount.terminate(), Some(0));
    assert_eq!(fs::read_dir(site.path("mnt")).expect("the bare mount point").count(), 0);
}

#[test]
#[ignore = "needs FUSE"]
fn automatic_namespace_finds_trees_by_name() {
    let Mounted { site, mount: _mount, replica: _replica } = Mounted::new(&[]);
    let namespace = Mount::new(&site, "vouch", &["--auto"]);
    assert_eq!(
        fs::read_to_string(namespace.path(site.name("/hello"))).expect("reached by its name"),
        "hello world\n"
    );
    assert!(fs::metadata(namespace.path("no-name")).is_err());
}

#[test]
#[ignore = "needs FUSE"]
fn opaque_directories_list_only_names_that_were_looked_up() {
    let with_opaque = |site: &TestSite| {
        site.small_tree();
        for name in [
            "option/first",
            "option/second",
            "marker/.vouch-opaque",
            "marker/first",
            "marker/below/second",
        ] {
            site.write(&format!("src/{name}"), name);
        }
    };
    let Mounted { mount, replica: _replica, .. } =
        Mounted::with_tree(&[], &["--opaque", "option"], with_opaque);
    let listed = |dir: &str| {
        let names = fs::read_dir(mount.path(dir))
            .expect("a directory")
            .map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().expect("UTF-8")).collect();
        names.sort();
        names
    };
    assert_eq!((listed("option"), listed("marker")), (vec![], vec![]));
    assert_eq!(
        fs::read_to_string(mount.path("option/second")).expect("reached by its name"),
        "option/second"
    );
    assert!(fs::metadata(mount.path("option/third")).is_err());
    assert_eq!(
        fs::read_to_string(mount.path("marker/below/second")).expect("reached by its name"),
        "marker/below/second"
    );
    assert!(eventually(Duration::from_secs(10), || listed("option") == ["second"]
        && listed("marker") == ["below"]));
    assert_eq!(listed("marker/below"), ["second"]);
    assert_eq!(listed("dir"), ["empty", "numbers"]);
}

#[test]
#[ignore = "needs FUSE"]
fn background_mount_returns_and_is_unmounted() {
    let Mounted { site, mount, replica: _replica } = Mounted::new(&[]);
    drop(mount);
    let output_text =
        site.run_ok(["mount", "--background", "--log-file", "log", &site.name(""), "mnt"]);
    assert!(output_text.starts_with("mounted on "), "{output_text}");
    assert_eq!(fs::read_to_string(site.path("mnt/hello")).expect("mounted"), "hello world\n");
    assert!(site.run_err(8, ["mount", &site.name(""), "mnt"]).contains("already"));
    site.run_ok(["umount", "mnt"]);
    assert!(eventually(Duration::from_secs(10), || fs::metadata(site.path("mnt/hello")).is_err()));
    assert!(site.run_err(3, ["umount", "mnt"]).contains("not a vouch mount"));
    assert_contains!(
        site.run_err(4, ["mount", "--background", &site.name(""), "no-such-directory"]),
        "no-such-directory"
    );
}

#[test]
#[ignore = "needs root and FUSE"]
fn umount_names_what_keeps_the_mount() {
    require("root", is_root());
    let Mounted { site, mut mount, replica: _replica } = Mounted::new(&[]);
    let holder = Command::new("unshare")
        .args(["--mount", "sleep", "600"])
        .spawn()
        .expect("a tool of every system");
    let mut holder = vouch_testkit::kill_on_drop::KillOnDrop(holder);
    let own = fs::read_link("/proc/self/ns/mnt").expect("a namespace");
    assert!(eventually(Duration::from_secs(20), || {
        fs::read_link(format!("/proc/{}/ns/mnt", holder.id())).is_ok_and(|other| other != own)
    }));
    let open = File::open(mount.path("hello")).expect("published");
    let output = site.run(["umount", "mnt"]);
    assert_eq!(output.status.code(), Some(0));
    let notes = String::from_utf8_lossy(&output.stderr);
    assert_contains!(notes, &format!("process {} (", std::process::id()), "/mnt/hello");
    assert!(notes.contains(&format!("mount namespace of process {}", holder.id())), "{notes}");
    assert_eq!(mount.exit_code(), None);
    drop(open);
    holder.kill().expect("it runs");
    assert!(eventually(Duration::from_secs(30), || mount.exit_code() == Some(0)));
}

#[test]
#[ignore = "needs FUSE"]
fn refresh_shows_the_new_revision_at_once() {
    let Mounted { site, mount, replica: _replica } = Mounted::new(&["--refresh", "1h"]);
    let pinned = Mount::new(&site, "pinned", &["--revision", "1", &site.name("")]);
    site.write("src/hello", "hello again\n");
    site.publish();
    assert!(site.run_ok(["refresh", "mnt"]).contains("revision 2"));
    assert_eq!(fs::read_to_string(mount.path("hello")).expect("mounted"), "hello again\n");
    assert!(site.run_ok(["refresh", "pinned"]).contains("revision 1"));
    assert_eq!(fs::read_to_string(pinned.path("hello")).expect("mounted"), "hello world\n");
    assert!(site.run_err(3, ["refresh", "src"]).contains("not a vouch mount"));
}

#[test]
#[ignore = "needs root and FUSE"]
fn connection_that_the_kernel_aborts_is_no_success() {
    require("root", is_root());
    let Mounted { site, mut mount, replica: _replica } = Mounted::new(&["--log-file", "log"]);
    // The kernel names a connection after the minor number of the mount's device.
    let connection =
        std::os::unix::fs::MetadataExt::dev(&fs::metadata(site.path("mnt")).expect("mounted"));
    let control = site.path("connections");
    fs::create_dir(&control).expect("a new directory");
    site.run_tool("mount", &["-t", "fusectl", "none", "connections"]);
    fs::write(control.join(connection.to_string()).join("abort"), "1").expect("root may");
    site.run_tool("umount", &["connections"]);
    assert!(eventually(Duration::from_secs(30), || mount.exit_code().is_some()));
    assert_eq!(mount.exit_code(), Some(7));
    let log = fs::read_to_string(site.path("log")).expect("the log");
    assert_eq!(log.matches("ERROR mount: ").count(), 1, "{log}");
    assert!(site.run_err(3, ["umount", "mnt"]).contains("not a vouch mount"));
    // Restart=on-failure mounts again.
    let mount = Mount::new(&site, "mnt", &[&site.name("")]);
    assert_eq!(fs::read_to_string(mount.path("hello")).expect("mounted"), "hello world\n");
}

/// Pods with user namespaces and podman's `:idmap` mount volumes like this.
#[test]
#[ignore = "needs root, FUSE and python3"]
fn mount_can_be_idmapped() {
    require("root", is_root());
    require_program("python3");
    let Mounted { site, mount: _mount, replica: _replica } = Mounted::new(&[]);
    fs::create_dir(site.path("mapped")).expect("a new directory");
    let owner = |path: &str| {
        std::os::unix::fs::MetadataExt::uid(&fs::metadata(site.path(path)).expect("a file"))
    };
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/end_to_end/idmapped_mount.py");
    let arguments = ["mnt", "mapped", &owner("mnt/hello").to_string(), "4000"];
    let output = Command::new("python3")
        .arg(tool)
        .args(arguments)
        .current_dir(site.path(""))
        .output()
        .expect("python3 starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "idmapped FUSE mounts need Linux 6.12: {errors}");
    assert_eq!(owner("mapped/hello"), owner("mnt/hello") + 4000);
    assert_eq!(fs::read_to_string(site.path("mapped/hello")).expect("readable"), "hello world\n");
    site.run_tool("umount", &["mapped"]);
}

#[test]
fn mount_without_reachable_replicas_fails_in_time() {
    let site = TestSite::with_directories(&["mnt"]);
    let started = std::time::Instant::now();
    let output = site
        .command(["mount", "--timeout", "2s", &site.name(""), "mnt"])
        .stdout(Stdio::null())
        .output()
        .expect("the binary starts");
    assert_eq!(output.status.code(), Some(6), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(started.elapsed() < Duration::from_secs(20));
}

/// The kernel asks a second time for the page whose read-ahead has failed.
#[test]
#[ignore = "needs FUSE"]
fn read_ends_once_its_timeout_is_over() {
    let large = |site: &TestSite| {
        let noise = (0..4_000_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes());
        site.write("src/large", noise.collect::<Vec<u8>>());
    };
    let Mounted { site: _site, mount, replica } =
        Mounted::with_tree(&["--no-cache", "--timeout", "10s"], &[], large);
    let held = File::open(mount.path("large")).expect("published");
    drop(replica);
    let begun = Instant::now();
    held.read_exact_at(&mut [0], 12_000_000).expect_err("no replica is left");
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}

#[test]
#[ignore = "needs FUSE"]
fn mount_whose_workers_cannot_start_fails_in_the_end() {
    let Mounted { site, mount, replica: _replica } =
        Mounted::with_tree(&["--no-supervisor"], &[], TestSite::small_tree);
    assert!(site.run_err(7, ["upgrade", "mnt"]).contains("mnt"));
    drop(mount);
    let mut mount = Mount::new(&site, "mnt", &[&site.name("")]);
    let held = File::open(mount.path("dir/numbers")).expect("published");
    fs::remove_dir_all(site.path("state")).expect("the state of this test");
    fs::write(site.path("state"), "no directory").expect("a file");
    site.write("unusable", "");
    drop(_replica);
    signal("KILL", mount.worker().expect("a worker"));
    let begun = Instant::now();
    let mut byte = [0];
    assert!(eventually(Duration::from_secs(400), || {
        let _ = fadvise(&held, 0, None, Advice::DontNeed);
        held.read_exact_at(&mut byte, 200_000).is_err()
    }));
    println!("reads fail {:?} after the kill", begun.elapsed());
    assert!(eventually(Duration::from_secs(120), || mount.exit_code() == Some(7)));
    let _ = Command::new("umount").arg("-l").arg(site.path("mnt")).status();
}
