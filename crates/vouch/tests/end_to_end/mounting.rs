//! The mount: faithful, current, and gone when it is ended.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::process::Stdio;
use std::time::Duration;

use crate::world::{Mount, World, eventually, have_fuse, have_python, is_root};

#[test]
fn a_mount_shows_every_odd_case_as_it_is() {
    if !have_fuse() || !have_python() {
        return;
    }
    let world = World::new();
    assert!(world.script("odd-tree", ["src", "--large", "20000", "--depth", "1000"]).status.success());
    world.publish();
    let _replica = world.serve();
    let mount = Mount::new(&world, "mnt", &[&world.name("")]);
    // Attributes of the kernel's own name spaces are root's to see.
    world.assert_same("src", "mnt", if is_root() { &[] } else { &["--no-xattr"] });
    assert_eq!(mount.terminate(), Some(0));
    assert_eq!(fs::read_dir(world.path("mnt")).expect("the bare mount point").count(), 0);
}

#[test]
fn a_new_revision_appears_under_an_open_file() {
    if !have_fuse() {
        return;
    }
    let world = World::new();
    world.small_tree();
    world.write("src/doomed", "doomed\n");
    // Short, so that the mount looks for news often.
    world.publish_with(&["--duration", "20s"]);
    let _replica = world.serve();
    let mount = Mount::new(&world, "mnt", &[&world.name("")]);
    let open = fs::File::open(mount.path("dir/numbers")).expect("published");
    let mut start = [0; 4];
    open.read_exact_at(&mut start, 0).expect("verified bytes");
    world.write("src/hello", "second\n");
    fs::remove_file(world.path("src/doomed")).expect("it is there");
    world.publish_with(&["--duration", "10m"]);
    assert!(eventually(Duration::from_secs(30), || fs::read_to_string(mount.path("hello")).is_ok_and(|text| text == "second\n")));
    assert!(eventually(Duration::from_secs(10), || fs::metadata(mount.path("doomed")).is_err()));
    // The open file goes on.
    open.read_exact_at(&mut start, 1000).expect("still verified bytes");
}

#[test]
fn the_namespace_reaches_trees_by_their_names() {
    if !have_fuse() {
        return;
    }
    let world = World::new();
    world.small_tree();
    world.publish();
    let _replica = world.serve();
    let mount = Mount::new(&world, "vouch", &["--auto"]);
    assert_eq!(fs::read_to_string(mount.path(world.name("/hello"))).expect("reached by its name"), "hello world\n");
    assert!(fs::metadata(mount.path("no-name")).is_err());
}

#[test]
fn a_mount_in_the_background_returns_and_is_unmounted() {
    if !have_fuse() {
        return;
    }
    let world = World::new();
    world.small_tree();
    world.publish();
    let _replica = world.serve();
    fs::create_dir(world.path("mnt")).expect("new");
    let said = world.ok(["mount", "--background", "--log-file", "log", &world.name(""), "mnt"]);
    assert!(said.starts_with("mounted on "), "{said}");
    assert_eq!(fs::read_to_string(world.path("mnt/hello")).expect("mounted"), "hello world\n");
    assert!(world.fails(8, ["mount", &world.name(""), "mnt"]).contains("already"));
    world.ok(["umount", "mnt"]);
    assert!(eventually(Duration::from_secs(10), || fs::metadata(world.path("mnt/hello")).is_err()));
    assert!(world.fails(3, ["umount", "mnt"]).contains("no vouch mount"));
    // A failure behind is the failure in front.
    assert!(world.fails(3, ["mount", "--background", &world.name(""), "no-such-directory"]).contains("no-such-directory"));
}

#[test]
fn without_replicas_what_is_cached_goes_on_and_the_rest_fails_in_time() {
    if !have_fuse() {
        return;
    }
    let world = World::new();
    world.small_tree();
    world.publish();
    let replica = world.serve();
    let mount = Mount::new(&world, "mnt", &["--timeout", "3s", &world.name("")]);
    let numbers = fs::read(mount.path("dir/numbers")).expect("verified bytes");
    drop(replica);
    assert_eq!(fs::read(mount.path("dir/numbers")).expect("cached and fresh"), numbers);
    assert_eq!(fs::read_dir(mount.path("dir")).expect("cached").count(), 2);
}

#[test]
fn a_mount_of_nothing_reachable_ends_with_an_error_in_time() {
    let world = World::new();
    fs::create_dir(world.path("mnt")).expect("new");
    let started = std::time::Instant::now();
    let output =
        world.command(["mount", "--timeout", "2s", &world.name(""), "mnt"]).stdout(Stdio::null()).output().expect("the binary starts");
    assert_eq!(output.status.code(), Some(6), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(started.elapsed() < Duration::from_secs(20));
}
