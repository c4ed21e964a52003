//! Changes of directories by other processes.

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use vouch_vfs::{Caller, ChangeListener, FileSystem as _, Name, NewNode, SetAttributes};
use vouch_vfs_posix::{Options, PosixFs};

use crate::fixture::{Short as _, alone, export, image, memory, run};

const LIMIT: Duration = Duration::from_secs(30);

fn listener(name: &'static str, seen: &mpsc::Sender<&'static str>) -> ChangeListener {
    let seen = seen.clone();
    Arc::new(move || {
        let _ = seen.send(name);
    })
}

fn others(commands: &[&str], at: &Path) {
    let script = commands.join(" && ");
    let at = at.to_str().expect("the path is text");
    run("sh", ["-c", &format!("cd {at} && {script}")]).expect("the commands succeed");
}

fn check(fs: &PosixFs, path: &Path) {
    let root = Caller::root();
    others(&["mkdir d marker"], path);
    let [d, marker] =
        ["d", "marker"].map(|name| fs.find(&root, &fs.root(), name).expect("it exists").0);
    let (sender, seen) = mpsc::channel();
    let next = || seen.recv_timeout(LIMIT).expect("the change is reported");
    let watch = fs.watch_directory(&d, listener("d", &sender)).expect("it can be watched");
    let again = fs.watch_directory(&d, listener("again", &sender)).expect("it can be watched");
    let _marker = fs.watch_directory(&marker, listener("marker", &sender)).expect("as well");
    for change in [
        "touch d/file",
        "mkdir d/sub",
        "ln d/file d/link",
        "mv d/file d/moved",
        "rm d/link",
        "rmdir d/sub",
        "mv d/moved out",
        "mv out d/in",
        "chmod 700 d",
    ] {
        others(&[change], path);
        let mut both = [next(), next()];
        both.sort_unstable();
        assert_eq!(both, ["again", "d"], "{change}");
        // Of a rename within the directory: two events.
        others(&["touch marker/x", "rm marker/x"], path);
        while next() != "marker" {}
        while seen.recv_timeout(Duration::from_millis(20)).is_ok() {}
    }
    // Its own changes and those of files are no events.
    let name = Name::new(b"own").expect("a valid name");
    fs.make(&root, &d, name, NewNode::Directory, &SetAttributes::default()).expect("it is made");
    fs.remove(&root, &d, name, None).expect("it is removed");
    others(&["echo x >>d/in", "touch d/in"], path);
    drop(watch);
    others(&["touch marker/x"], path);
    assert_eq!(next(), "marker");
    while seen.recv_timeout(Duration::from_millis(20)).is_ok() {}
    others(&["touch d/more"], path);
    assert_eq!(next(), "again", "one watch of two has ended");
    drop(again);
    others(&["rm d/more", "touch marker/y"], path);
    assert_eq!(next(), "marker");
}

#[test]
#[ignore = "needs root, xfsprogs and btrfs-progs"]
fn changes_by_other_processes_are_reported() {
    alone(
        "watch::changes_by_other_processes_are_reported",
        &["mkfs.ext4", "mkfs.xfs", "mkfs.btrfs"],
        |above| {
            for kind in ["ext4", "xfs", "btrfs"] {
                let path = above.join(kind);
                image(kind, &[], &path);
                check(&export(&path, Options::default()), &path);
            }
            let path = above.join("memory");
            memory(&path);
            check(&export(&path, Options::default()), &path);
        },
    );
}
