//! The rules for all file systems, on those that servers export most, and on such as lack something.

use std::path::Path;
use std::sync::Arc;

use vouch_vfs::Caller;
use vouch_vfs::conformance::{Fixture, RULES, check};
use vouch_vfs_posix::{Options, leave_callers};

use crate::world::{alone, export, image, overlay, with_names};

/// Checks all rules but those named.
fn check_but(but: &[&str], root: &Path, options: impl Fn(&Path) -> Options) {
    let rules = RULES.iter().flat_map(|rules| rules.iter()).map(|rule| rule.0);
    for (count, rule) in rules.filter(|rule| !but.contains(rule)).enumerate() {
        eprintln!("rule {rule}");
        leave_callers().expect("the superuser may be the superuser");
        let directory = root.join(format!("exported {count}"));
        std::fs::create_dir(&directory).expect("a directory can be made");
        let fs = export(&directory, options(&root.with_extension(format!("names {count}"))));
        check(rule, &Fixture { fs: Arc::new(fs), owner: Caller::root(), any_caller: true, keep: Box::new(()) });
    }
}

fn plain(_: &Path) -> Options {
    Options::default()
}

#[test]
fn on_xfs() {
    alone("rules::on_xfs", &["mkfs.xfs"], |above| {
        let root = above.join("root");
        if image("xfs", &[], &root).is_some() {
            check_but(&[], &root, plain);
        }
    });
}

#[test]
fn on_btrfs() {
    alone("rules::on_btrfs", &["mkfs.btrfs"], |above| {
        let root = above.join("root");
        if image("btrfs", &[], &root).is_some() {
            check_but(&[], &root, plain);
        }
    });
}

#[test]
fn on_ext4_with_a_coarse_clock() {
    alone("rules::on_ext4_with_a_coarse_clock", &["mkfs.ext4"], |above| {
        let root = above.join("root");
        if image("ext4", &["-I", "128", "-b", "4096"], &root).is_some() {
            // It asks for nanoseconds.
            check_but(&["times_are_set_and_kept"], &root, plain);
        }
    });
}

#[test]
fn on_a_stack_without_handles() {
    alone("rules::on_a_stack_without_handles", &[], |above| {
        let root = above.join("root");
        if overlay(&root).is_some() {
            check_but(&[], &root, with_names);
        }
    });
}
