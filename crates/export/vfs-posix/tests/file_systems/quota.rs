//! Reporting and enforcement. On kernels without quotas, a guest runs the test.

use std::path::{Path, PathBuf};
use std::process::Command;

use vouch_testkit::require_programs;
use vouch_vfs::{Blocking, FileSystem as _};
use vouch_vfs_posix::Options;

use crate::fixture::{Short as _, alone, export, made, put, refused, report, run, users};

const TEST: &str = "quota::quota_is_reported_and_enforced";
const GUEST: &str = "VOUCH_QUOTA_GUEST";

#[test]
#[ignore = "needs root"]
fn quota_is_reported_and_enforced() {
    alone(TEST, &["mkfs.ext4", "xfs_quota"], |above| {
        let root = above.join("root");
        let file = made("ext4", &["-O", "quota", "-E", "quotatype=usrquota"], &root);
        std::fs::create_dir(&root).expect("a directory");
        let mounted = run(
            "mount",
            ["-t", "ext4", "-o", "loop,usrquota", &file.to_string_lossy(), &root.to_string_lossy()],
        );
        match mounted {
            Ok(_) => check(&root),
            Err(why) if std::env::var_os(GUEST).is_some() => {
                panic!("the guest's kernel has quotas: {why}")
            }
            Err(_) => in_a_guest(),
        }
    });
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

fn in_a_guest() {
    require_programs(&["linux.uml", "busybox", "mount.nfs"]);
    let (index, _held) = network().expect("a guest's network is free");
    let program = std::env::current_exe().expect("the program's path is known");
    let script = tempfile::NamedTempFile::new().expect("creating a file succeeds");
    let text = format!(
        "set -eu\nmodules=/usr/lib/uml/modules/$(uname -r)/kernel\n\
         for module in fs/quota/quota_tree fs/quota/quota_v2 drivers/block/loop; do busybox insmod $modules/$module.ko; done\n\
         {} --exact {TEST} --include-ignored --nocapture\n",
        program.display()
    );
    std::fs::write(script.path(), text).expect("writing succeeds");
    let runner = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../script/guest/run");
    let index = index.to_string();
    let up = Command::new(&runner).args(["up", &index]).output().expect("the program starts");
    assert!(up.status.success(), "no network: {}", String::from_utf8_lossy(&up.stderr));
    let mut command = Command::new(&runner);
    command.args(["-i", &index, "-e", &format!("{GUEST}=1"), "-e", &format!("VOUCH_ALONE={TEST}")]);
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
