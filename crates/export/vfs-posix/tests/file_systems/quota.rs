//! Reporting and enforcement. On kernels without quotas, a guest runs the test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use vouch_testkit::require_programs;
use vouch_vfs::{Blocking, Caller, FileSystem, Quota, QuotaEnforcement};
use vouch_vfs_posix::{Options, leave_callers};

use crate::fixture::{
    Short as _, alone, export, image, made, memory, named, put, refused, report, run, users,
};

const GUEST: &str = "VOUCH_QUOTA_GUEST";

#[test]
#[ignore = "needs root"]
fn quota_is_reported_and_enforced() {
    const TEST: &str = "quota::quota_is_reported_and_enforced";
    alone(TEST, &["mkfs.ext4", "xfs_quota"], |above| {
        let more = ["-O", "quota", "-E", "quotatype=usrquota"];
        with_quotas(TEST, "ext4", &more, "loop,usrquota", &above.join("root"), check);
    });
}

#[test]
#[ignore = "needs root"]
fn ext4_limits_an_export_by_project() {
    const TEST: &str = "quota::ext4_limits_an_export_by_project";
    alone(TEST, &["mkfs.ext4"], |above| {
        let more = ["-O", "quota,project", "-E", "quotatype=prjquota"];
        with_quotas(TEST, "ext4", &more, "loop,prjquota", &above.join("root"), check_project);
    });
}

#[test]
#[ignore = "needs root"]
fn xfs_limits_an_export_by_project() {
    const TEST: &str = "quota::xfs_limits_an_export_by_project";
    alone(TEST, &["mkfs.xfs"], |above| {
        with_quotas(TEST, "xfs", &[], "loop,prjquota", &above.join("root"), check_project);
    });
}

fn with_quotas(
    test: &str,
    kind: &str,
    more: &[&str],
    options: &str,
    root: &Path,
    check: impl FnOnce(&Path),
) {
    let file = made(kind, more, root);
    std::fs::create_dir(root).expect("a directory");
    let mounted =
        run("mount", ["-t", kind, "-o", options, &file.to_string_lossy(), &root.to_string_lossy()]);
    match mounted {
        Ok(_) => check(root),
        Err(why) if std::env::var_os(GUEST).is_some() => {
            panic!("the guest's kernel has quotas: {why}")
        }
        Err(_) => in_a_guest(test),
    }
}

#[test]
#[ignore = "needs root"]
fn server_counts_where_file_system_has_no_projects() {
    const TEST: &str = "quota::server_counts_where_file_system_has_no_projects";
    alone(TEST, &["mkfs.ext4"], |above| {
        let (memory_root, disk_root) = (above.join("memory"), above.join("disk"));
        memory(&memory_root);
        check_limit(&memory_root, QuotaEnforcement::Server);
        image("ext4", &[], &disk_root);
        check_limit(&disk_root, QuotaEnforcement::Server);
    });
}

/// Also for what local programs write, and a nested export keeps its own project.
fn check_project(root: &Path) {
    let (limited, other) = (root.join("limited"), root.join("other"));
    std::fs::create_dir(&limited).expect("a directory");
    std::fs::create_dir(&other).expect("a directory");
    check_limit(&limited, QuotaEnforcement::FileSystem);
    leave_callers().expect("switching to root succeeds");
    std::fs::write(limited.join("local"), vec![1; 3 << 20]).expect("root is not limited here");
    std::fs::write(other.join("local"), vec![1; 3 << 20]).expect("another directory has no limit");
    let (upper, lower) = (export(root, Options::default()), export(&limited, Options::default()));
    lower.set_quota(Some(LIMIT)).expect("a limit");
    upper.set_quota(Some(64 << 20)).expect("a limit");
    settled(&upper, |used| (3 << 20..5 << 20).contains(&used));
    settled(&lower, |used| used >= 3 << 20);
    for file_system in [upper, lower] {
        file_system.set_quota(None).expect("no limit");
        assert_eq!(file_system.quota(), None);
    }
}

const LIMIT: u64 = 4 << 20;

/// Files that are there already count soon.
fn settled(fs: &impl FileSystem, is_right: impl Fn(u64) -> bool) -> Quota {
    let began = Instant::now();
    loop {
        let quota = fs.quota().expect("a limit is in force");
        if is_right(quota.used) {
            return quota;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{quota:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn check_limit(root: &Path, enforced_by: QuotaEnforcement) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(root, PermissionsExt::from_mode(0o1777)).expect("root is allowed");
    std::fs::create_dir(root.join("old")).expect("a directory");
    std::fs::write(root.join("old/first"), vec![1; 1 << 20]).expect("writing succeeds");
    std::fs::hard_link(root.join("old/first"), root.join("second")).expect("a link");
    let fs = export(root, Options::default());
    assert_eq!(fs.quota(), None);
    fs.set_quota(Some(LIMIT)).expect("a limit");
    let old = settled(&fs, |used| used >= 1 << 20);
    assert!((old.limit, old.enforced_by) == (LIMIT, enforced_by), "{old:?}");
    assert!(old.used < 1 << 20 | 64 << 10, "each file counts once: {old:?}");
    in_force(&fs);
    // Root as well, and the one name more needs no space.
    for who in [users().0, Caller::root()] {
        let made = fs.new_file(&who, &fs.root(), "mine", 0o644).expect("made");
        // XFS refuses a write as a whole.
        let part = vec![1; 64 << 10];
        let filled = (0..LIMIT / part.len() as u64)
            .try_for_each(|at| put(&*made.open, at * part.len() as u64, &part));
        refused!(filled, Quota);
        made.open.commit(0, 0, Blocking::Allowed).expect("on disk");
        let full = fs.quota().expect("a limit is in force");
        assert!(full.used <= LIMIT && full.used > LIMIT - (128 << 10), "{full:?}");
        let space = fs.space(&who, &fs.root(), Blocking::Allowed).expect("the call succeeds");
        assert!(space.bytes_total <= LIMIT && space.bytes_available < 128 << 10, "{space:?}");
        assert_eq!(space.quota, Some((full.used, LIMIT, LIMIT)));
        put(&*made.open, 0, &vec![2; 1 << 20]).expect("the space is there already");
        refused!(made.open.allocate(8 << 20, 1 << 20), Quota);
        made.open.truncate(1 << 20).expect("truncation succeeds");
        settled(&fs, |used| used < 5 << 19);
        // Removed files count until they are closed.
        fs.remove(&who, &fs.root(), named("mine"), None).expect("removal succeeds");
        settled(&fs, |used| used >= 2 << 20);
        let attributes = fs.attributes_of(&made.id).expect("it is open");
        assert_eq!(attributes.links, 0);
        drop(made);
        settled(&fs, |used| used <= old.used + (64 << 10));
    }
    fs.set_quota(Some(2 * LIMIT)).expect("a larger limit");
    let made = fs.new_file(&Caller::root(), &fs.root(), "mine", 0o644).expect("made");
    put(&*made.open, 0, &vec![1; LIMIT as usize]).expect("the new limit counts");
    fs.set_quota(None).expect("no limit");
    put(&*made.open, LIMIT, &vec![1; 2 * LIMIT as usize]).expect("nothing is limited");
    fs.remove(&Caller::root(), &fs.root(), named("mine"), None).expect("removal succeeds");
    let again = export(root, Options::default());
    again.set_quota(Some(LIMIT)).expect("a limit");
    drop(made);
    settled(&again, |used| used >= 1 << 20);
    in_force(&again);
    again.set_quota(None).expect("no limit");
}

/// Until existing files are marked, a project has no limit.
fn in_force(fs: &impl FileSystem) {
    let began = Instant::now();
    let made = fs.new_file(&Caller::root(), &fs.root(), "probe", 0o644).expect("made");
    while made.open.allocate(0, 2 * LIMIT).is_ok() {
        assert!(began.elapsed() < Duration::from_secs(60));
        made.open.truncate(0).expect("truncation succeeds");
    }
    drop(made);
    fs.remove(&Caller::root(), &fs.root(), named("probe"), None).expect("removal succeeds");
}

fn check(root: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(root, PermissionsExt::from_mode(0o1777)).expect("root is allowed");
    let path = root.to_string_lossy().into_owned();
    run("xfs_quota", ["-f", "-x", "-c", "limit bsoft=1m bhard=2m 1234", &path])
        .expect("quotas can be set");
    run("xfs_quota", ["-f", "-x", "-c", "limit bsoft=0 bhard=4m 2345", &path])
        .expect("quotas can be set");
    let fs = export(root, Options::default());
    let (one, other) = users();
    let space = fs.space(&one, &fs.root(), Blocking::Allowed).expect("the call succeeds");
    assert_eq!(space.quota, Some((0, 1 << 20, 2 << 20)));
    assert_eq!(space.bytes_available, 2 << 20, "no more than the quota leaves");
    assert!(space.bytes_free > 100 << 20);
    let made = fs.new_file(&one, &fs.root(), "mine", 0o644).expect("made");
    put(&*made.open, 0, &vec![1; 1 << 20]).expect("within the quota");
    made.open.commit(0, 0, Blocking::Allowed).expect("on disk");
    let (used, _, _) = fs
        .space(&one, &fs.root(), Blocking::Allowed)
        .expect("the call succeeds")
        .quota
        .expect("the object has one");
    assert!((1 << 20..2 << 20).contains(&used), "{used}");
    refused!(put(&*made.open, 1 << 20, &vec![1; 4 << 20]), Quota);
    assert_eq!(
        fs.space(&other, &fs.root(), Blocking::Allowed).expect("the call succeeds").quota,
        Some((0, 0, 4 << 20))
    );
    let theirs = fs.new_file(&other, &fs.root(), "theirs", 0o666).expect("made");
    let open = fs.opened(&one, &theirs.id).expect("everybody may");
    refused!(put(&*open, 0, &vec![1; 8 << 20]), Quota);
}

fn in_a_guest(test: &str) {
    require_programs(&["linux.uml", "busybox", "mount.nfs"]);
    let (index, _held) = network().expect("a guest's network is free");
    let program = std::env::current_exe().expect("the program's path is known");
    let script = tempfile::NamedTempFile::new().expect("creating a file succeeds");
    let text = format!(
        "set -eu\nmodules=/usr/lib/uml/modules/$(uname -r)/kernel\n\
         for module in fs/quota/quota_tree fs/quota/quota_v2 drivers/block/loop; do busybox insmod $modules/$module.ko; done\n\
         {} --exact {test} --include-ignored --nocapture\n",
        program.display()
    );
    std::fs::write(script.path(), text).expect("writing succeeds");
    let runner = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../script/guest/run");
    let index = index.to_string();
    let up = Command::new(&runner).args(["up", &index]).output().expect("the program starts");
    assert!(up.status.success(), "no network: {}", String::from_utf8_lossy(&up.stderr));
    let mut command = Command::new(&runner);
    command.args(["-i", &index, "-e", &format!("{GUEST}=1"), "-e", &format!("VOUCH_ALONE={test}")]);
    report(command.arg(script.path()));
    let _ = Command::new(runner).args(["down", &index]).status();
}

fn network() -> Option<(u32, std::fs::File)> {
    (80..90).find_map(|index| {
        let path: PathBuf = Path::new("/run").join(format!("vouch-guest-network-{index}.lock"));
        let file =
            std::fs::File::options().create(true).truncate(false).write(true).open(path).ok()?;
        file.try_lock().is_ok().then_some((index, file))
    })
}
