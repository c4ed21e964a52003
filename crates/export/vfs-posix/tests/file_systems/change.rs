//! One-second clocks, and a clock that was set back.

use std::collections::HashSet;
use std::path::Path;

use vouch_vfs::{Caller, FileSystem as _, SetAttributes};
use vouch_vfs_posix::{FileCache, Options};

use crate::fixture::{Short as _, alone, export, image, made, mount, put, run, unmount};

const COARSE: &[&str] = &["-I", "128"];

fn root_owner() -> Caller {
    Caller::root()
}

#[test]
#[ignore = "needs root"]
fn change_attribute_moves_within_a_tick_and_over_restart() {
    alone(
        "change::change_attribute_moves_within_a_tick_and_over_restart",
        &["mkfs.ext4"],
        |above| {
            let root = above.join("root");
            image("ext4", COARSE, &root);
            let one = root_owner();
            let begin =
                || export(&root, Options { files: FileCache::new(1), ..Options::default() });
            let fs = begin();
            assert!(!fs.traits().change_grows);
            let id = fs.new_file(&one, &fs.root(), "file", 0o644).expect("made").id;
            let others: Vec<_> = (0..8)
                .map(|n| {
                    fs.new_file(&one, &fs.root(), &format!("other {n}"), 0o644).expect("made").id
                })
                .collect();
            let mut seen = HashSet::new();
            let mut fs = fs;
            for round in 0..60u16 {
                match round % 3 {
                    0 => put(&*fs.opened(&one, &id).expect("opened"), 0, &round.to_be_bytes())
                        .expect("written"),
                    1 => {
                        let set = SetAttributes {
                            mode: Some(0o600 + round % 8),
                            ..SetAttributes::default()
                        };
                        fs.set_attributes(&one, &id, None, &set).expect("set");
                    }
                    _ => fs
                        .set_xattr(
                            &one,
                            &id,
                            b"round",
                            &round.to_be_bytes(),
                            vouch_vfs::XattrHow::Either,
                        )
                        .expect("set"),
                }
                let now = fs.attributes_of(&id).expect("the call succeeds").change;
                assert!(seen.insert(now), "round {round}: {now} was the change attribute before");
                if round % 5 == 0 {
                    others.iter().for_each(|other| {
                        assert_eq!(fs.attributes_of(other).expect("the call succeeds").links, 1)
                    });
                }
                if round % 20 == 19 {
                    drop(fs);
                    fs = begin();
                }
            }
        },
    );
}

#[test]
#[ignore = "needs root"]
fn change_attribute_moves_after_clock_was_set_back() {
    alone(
        "change::change_attribute_moves_after_clock_was_set_back",
        &["mkfs.ext4", "debugfs"],
        |above| {
            for (name, more) in [("fine", &[][..]), ("coarse", COARSE)] {
                clock_set_back(&above.join(name), more);
            }
        },
    );
}

/// The file gets a ctime in the future instead.
fn clock_set_back(root: &Path, more: &[&str]) {
    let file = made("ext4", more, root);
    mount("ext4", "loop", &file, root);
    for name in ["file", "beside"] {
        std::fs::write(root.join(name), "as it was").expect("a file");
    }
    unmount(root);
    let image = file.to_string_lossy().into_owned();
    for command in
        ["set_inode_field /file ctime 20360101000000", "set_inode_field /. ctime 20360101000000"]
    {
        run("debugfs", ["-w", "-R", command, &image]).expect("debugfs writes");
    }
    mount("ext4", "loop", &file, root);
    let fs = export(root, Options::default());
    let one = root_owner();
    let (id, before) = fs.find(&one, &fs.root(), "file").expect("the file exists");
    assert!(
        before.changed.seconds > 2_000_000_000,
        "{root:?}: the time of change lies in the future"
    );
    let mut seen = HashSet::from([before.change]);
    for round in 0..20u8 {
        put(&*fs.opened(&one, &id).expect("opened"), 0, &[round]).expect("written");
        let now = fs.attributes_of(&id).expect("the call succeeds").change;
        assert!(seen.insert(now), "{root:?} round {round}: {now} was the change attribute before");
    }
    let change = fs.new_file(&one, &fs.root(), "new", 0o644).expect("made").directory;
    assert_ne!(change.before, change.after, "{root:?}");
    drop(fs);
    unmount(root);
}
