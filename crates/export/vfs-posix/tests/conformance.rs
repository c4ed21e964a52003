//! Conformance rules: as root for several users, as an ordinary user, and by names without handles.
//! Nothing leads out of an export, even if files move outside of the server.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use tempfile::TempDir;
use vouch_testkit::succeed;
use vouch_vfs::conformance::{Fixture, check_all, check_read_only};
use vouch_vfs::{
    Blocking, Caller, CreateHow, FileSystem as _, FileType, Name, OpenAccess, SetAttributes,
};
use vouch_vfs_posix::{
    FileCache, IdStore, Options, PosixFs, SnapshotFs, SnapshotOptions, SnapshotPattern,
    can_serve_others, leave_callers,
};

struct Keep(#[expect(dead_code, reason = "kept until the end")] Vec<TempDir>);

impl Drop for Keep {
    fn drop(&mut self) {
        leave_callers().expect("switching to root succeeds");
    }
}

fn me() -> Caller {
    let groups = rustix::process::getgroups().expect("a process may ask for its groups");
    let groups = groups.into_iter().map(rustix::process::Gid::as_raw);
    Caller::new(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw(), groups)
}

fn fixture(above: &Path, options: impl FnOnce(&Path) -> Options) -> Fixture {
    let directory = TempDir::new_in(above).expect("creating a directory succeeds");
    let state = TempDir::new_in(above).expect("creating a directory succeeds");
    let root = directory.path().join("exported");
    std::fs::create_dir(&root).expect("creating a directory succeeds");
    std::os::unix::fs::chown(&root, None, Some(me().gid)).expect("its group can be set");
    let fs = PosixFs::open(&root, options(&state.path().join("ids"))).expect("the export succeeds");
    Fixture {
        fs: Arc::new(fs),
        owner: me(),
        any_caller: can_serve_others(),
        keep: Box::new(Keep(vec![directory, state])),
    }
}

/// The live directory of an export with a snapshot, which `.snapshot` does not disturb.
fn fixture_with_snapshots(above: &Path) -> Fixture {
    let plain = fixture(above, options);
    let (live, state) = (
        TempDir::new_in(above).expect("a directory"),
        TempDir::new_in(above).expect("a directory"),
    );
    let snapshots = state.path().join("snapshots");
    std::fs::create_dir_all(snapshots.join("one/directory")).expect("directories");
    std::os::unix::fs::chown(live.path(), None, Some(me().gid)).expect("its group can be set");
    let fs = PosixFs::open(live.path(), options(&state.path().join("ids")))
        .expect("the export succeeds");
    let pattern = SnapshotPattern::parse(snapshots.to_str().expect("UTF-8"));
    let fs = SnapshotFs::open(fs, SnapshotOptions { pattern, is_visible: false })
        .expect("the directory exists");
    Fixture { fs: Arc::new(fs), keep: Box::new((plain.keep, Keep(vec![live, state]))), ..plain }
}

#[test]
fn conforms_with_snapshots() {
    check_all(|| fixture_with_snapshots(Path::new(MEMORY)));
    check_all(|| fixture_with_snapshots(Path::new(DISK)));
}

fn by_handles(_: &Path) -> Options {
    Options::default()
}

fn by_names(ids: &Path) -> Options {
    Options {
        ids: Some(Arc::new(IdStore::open(ids).expect("creating a store succeeds"))),
        subtree_check: true,
        ..Options::default()
    }
}

fn tiny_cache(_: &Path) -> Options {
    Options { files: FileCache::new(1), ..Options::default() }
}

fn options(ids: &Path) -> Options {
    if can_serve_others() { by_handles(ids) } else { by_names(ids) }
}

const MEMORY: &str = "/dev/shm";
const DISK: &str = env!("CARGO_TARGET_TMPDIR");

fn on_disk() -> Fixture {
    fixture(Path::new(DISK), options)
}

fn in_memory() -> Fixture {
    fixture(Path::new(MEMORY), options)
}

vouch_vfs::conformance_tests!(disk, on_disk);
vouch_vfs::conformance_tests!(memory, in_memory);

#[test]
fn conforms_with_names_from_root() {
    check_all(|| fixture(Path::new(MEMORY), by_names));
}

#[test]
#[ignore = "needs root"]
fn conforms_with_tiny_cache() {
    vouch_testkit::require("root, who opens files by handle", can_serve_others());
    check_all(|| fixture(Path::new(DISK), tiny_cache));
}

#[test]
fn conforms_as_ordinary_user() {
    if !can_serve_others() {
        check_all(|| fixture(Path::new(MEMORY), by_names));
        check_all(|| fixture(&std::env::temp_dir(), by_names));
        return;
    }
    let copy = TempDir::new_in(MEMORY).expect("creating a directory succeeds");
    std::os::unix::fs::chown(copy.path(), Some(65_534), Some(65_534)).expect("root is allowed");
    let program = copy.path().join("tests");
    std::fs::copy(std::env::current_exe().expect("the program's path is known"), &program)
        .expect("copying succeeds");
    let mut command = std::process::Command::new(program);
    command
        .args(["--exact", "conforms_as_ordinary_user", "--nocapture"])
        .uid(65_534)
        .gid(65_534)
        .current_dir("/")
        .env("TMPDIR", "/tmp");
    succeed(&mut command);
}

#[test]
#[ignore = "needs root"]
fn leave_callers_resets_inherited_identity() {
    vouch_testkit::require("root, who acts for others", can_serve_others());
    let fixture = fixture(Path::new(DISK), options);
    let secret = TempDir::new_in(DISK).expect("creating a directory succeeds");
    let path = secret.path().join("keytab");
    std::fs::write(&path, b"a key").expect("creating a file succeeds");
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .expect("the value is ours");
    let root = fixture.fs.root();
    let _ = fixture.fs.access(
        &Caller::new(1234, 1234, []),
        &root,
        vouch_vfs::Access::READ,
        Blocking::Allowed,
    );
    let made = std::thread::spawn(move || {
        let before = std::fs::read(&path).map_err(|error| error.kind());
        leave_callers().expect("switching to root succeeds");
        (before, std::fs::read(&path).map_err(|error| error.kind()))
    });
    let (before, after) = made.join().expect("the thread does not panic");
    assert_eq!(
        before,
        Err(std::io::ErrorKind::PermissionDenied),
        "this thread and its new threads act as the caller"
    );
    assert_eq!(after, Ok(b"a key".to_vec()));
}

#[test]
fn read_only_export_is_never_changed() {
    let fixture = fixture(Path::new(DISK), options);
    let root = fixture.fs.path(&fixture.fs.root());
    assert_eq!(root.as_deref(), Some(&b""[..]));
    let above = TempDir::new_in(DISK).expect("creating a directory succeeds");
    std::fs::create_dir_all(above.path().join("a/b/c")).expect("creating directories succeeds");
    std::fs::write(above.path().join("a/file"), vec![7; 300_000])
        .expect("creating a file succeeds");
    std::os::unix::fs::symlink("/etc/passwd", above.path().join("a/b/link"))
        .expect("creating a link succeeds");
    let ids = TempDir::new_in(DISK).expect("creating a directory succeeds");
    let options = Options { read_only: true, ..options(&ids.path().join("ids")) };
    let fs = PosixFs::open(above.path(), options).expect("the export succeeds");
    check_read_only(&fs, &me());
    leave_callers().expect("switching to root succeeds");
}

#[test]
fn exports_share_descriptor_limit_and_release_all() {
    const BOUND: usize = 20;
    let files = FileCache::new(BOUND);
    let above = TempDir::new_in(DISK).expect("creating a directory succeeds");
    let ids = |name: &str| above.path().join(format!("{name} ids"));
    let exports: Vec<PosixFs> = ["a", "b", "c"]
        .into_iter()
        .map(|name| {
            let root = above.path().join(name);
            std::fs::create_dir(&root).expect("creating a directory succeeds");
            (0..BOUND).for_each(|n| {
                std::fs::write(root.join(n.to_string()), name).expect("creating a file succeeds")
            });
            PosixFs::open(&root, Options { files: files.clone(), ..options(&ids(name)) })
                .expect("the export succeeds")
        })
        .collect();
    let check_confinement = |fs: &PosixFs| {
        for n in 0..BOUND {
            let name = n.to_string();
            let name = Name::new(name.as_bytes()).expect("a name");
            let (id, _) =
                fs.lookup(&me(), &fs.root(), name, Blocking::Allowed).expect("the file exists");
            assert_eq!(fs.attributes(&id, Blocking::Allowed).expect("the value is known").size, 1);
            assert!(files.count() <= BOUND, "{} are kept", files.count());
        }
    };
    // The same names and, on fresh file systems, the same inode numbers.
    for _ in 0..3 {
        exports.iter().for_each(check_confinement);
    }
    assert!(files.count() > BOUND / 2);
    leave_callers().expect("switching to root succeeds");
    drop(exports);
    assert_eq!(files.count(), 0);
}

#[derive(Default)]
struct Seen {
    directory: bool,
    link: bool,
    home: bool,
    away: bool,
}

/// Uses the name while it is swapped; nothing outside may be reached.
fn check_confinement(fs: &PosixFs, outside: &Path, seen: &mut Seen) {
    let name = |name: &'static str| Name::new(name.as_bytes()).expect("a name");
    let (me, root) = (me(), fs.root());
    if let Ok((id, attributes)) = fs.lookup(&me, &root, name("swapped"), Blocking::Allowed) {
        *(if attributes.file_type == FileType::Directory {
            &mut seen.directory
        } else {
            &mut seen.link
        }) = true;
        assert!(
            fs.lookup(&me, &id, name("secret"), Blocking::Allowed).is_err(),
            "a link was followed"
        );
        let access = OpenAccess { read: true, write: true };
        let made = fs.create(
            &me,
            &id,
            name("made"),
            CreateHow::Unchecked,
            &SetAttributes::default(),
            access,
        );
        assert!(!outside.join("made").exists(), "something was made outside");
        if made.is_ok() {
            assert_eq!(
                attributes.file_type,
                FileType::Directory,
                "no file is created through a link"
            );
            let _ = fs.remove(&me, &id, name("made"), None);
        }
        if let Ok(parent) = fs.parent(&me, &id, Blocking::Allowed) {
            assert_eq!(parent, root);
        }
    }
    match fs.lookup(&me, &root, name("roaming"), Blocking::Allowed) {
        Ok((id, _)) => {
            seen.home = true;
            // The root or nothing, wherever the directory is.
            if let Ok(parent) = fs.parent(&me, &id, Blocking::Allowed) {
                assert_eq!(parent, root, "a way up led out of the export");
            }
            if let Ok((below, _)) = fs.lookup(&me, &id, name("deep"), Blocking::Allowed)
                && let Ok(parent) = fs.parent(&me, &below, Blocking::Allowed)
            {
                assert_eq!(parent, id);
            }
        }
        Err(_) => seen.away = true,
    }
}

fn swap_directory_during_calls(options: fn(&Path) -> Options) {
    const ROUNDS_MIN: usize = 1_000;
    let above = TempDir::new_in(MEMORY).expect("creating a directory succeeds");
    let [inside, outside] = ["inside", "outside"].map(|name| above.path().join(name));
    for directory in [&inside.join("swapped"), &inside.join("roaming/deep"), &outside] {
        std::fs::create_dir_all(directory).expect("creating directories succeeds");
    }
    std::fs::write(outside.join("secret"), "secret").expect("creating a file succeeds");
    std::os::unix::fs::symlink(&outside, inside.join("link")).expect("creating a link succeeds");
    let fs =
        PosixFs::open(&inside, options(&above.path().join("ids"))).expect("the export succeeds");
    let (mut seen, stop) = (Seen::default(), AtomicBool::new(false));
    let deadline = Instant::now() + Duration::from_secs(300);
    let swap = || {
        let exchange = || {
            renameat_with(
                CWD,
                inside.join("swapped"),
                CWD,
                inside.join("link"),
                RenameFlags::EXCHANGE,
            )
        };
        while !stop.load(Ordering::Relaxed) {
            exchange().expect("both files exist");
            std::fs::rename(inside.join("roaming"), outside.join("roaming"))
                .expect("the file is in its own file system");
            exchange().expect("both files exist");
            std::fs::rename(outside.join("roaming"), inside.join("roaming"))
                .expect("the file is gone");
        }
    };
    std::thread::scope(|scope| {
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _stop = Stop(&stop);
        scope.spawn(swap);
        let mut rounds = 0;
        while rounds < ROUNDS_MIN || !(seen.directory && seen.link && seen.home && seen.away) {
            check_confinement(&fs, &outside, &mut seen);
            rounds += 1;
            assert!(Instant::now() < deadline, "after {rounds} rounds not every state was met");
        }
    });
    leave_callers().expect("switching to root succeeds");
    let left: Vec<_> = std::fs::read_dir(&outside)
        .expect("the file exists")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(left, ["secret"]);
}

#[test]
fn swapped_directory_never_leads_outside() {
    swap_directory_during_calls(options);
}

#[test]
fn swapped_directory_never_leads_outside_by_names() {
    swap_directory_during_calls(by_names);
}

#[test]
#[ignore = "needs root"]
fn swapped_directory_never_leads_outside_with_tiny_cache() {
    vouch_testkit::require("root, who opens files by handle", can_serve_others());
    swap_directory_during_calls(tiny_cache);
}
