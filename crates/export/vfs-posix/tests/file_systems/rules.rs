//! Conformance rules on common file systems, and on some that lack features.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use vouch_vfs::conformance::{Fixture, RULES, check};
use vouch_vfs::{Caller, FileSystem as _};
use vouch_vfs_posix::{Options, leave_callers};

use crate::fixture::{Short as _, alone, export, image, overlay, put, with_names};

pub(crate) fn check_but(but: &[&str], root: &Path, options: impl Fn(&Path) -> Options) {
    let rules: Vec<&str> = RULES.iter().flat_map(|rules| rules.iter()).map(|rule| rule.0).collect();
    but.iter().for_each(|rule| assert!(rules.contains(rule), "no rule is called {rule}"));
    check_rules(rules.into_iter().filter(|rule| !but.contains(rule)), root, options);
}

pub(crate) fn check_rules<'a>(
    rules: impl IntoIterator<Item = &'a str>,
    root: &Path,
    options: impl Fn(&Path) -> Options,
) {
    let mut failed = Vec::new();
    for (count, rule) in rules.into_iter().enumerate() {
        eprintln!("rule {rule}");
        leave_callers().expect("switching to root succeeds");
        let directory = root.join(format!("exported {count}"));
        std::fs::create_dir(&directory).expect("creating a directory succeeds");
        let fs = export(&directory, options(&root.with_extension(format!("names {count}"))));
        let fixture = Fixture {
            fs: Arc::new(fs),
            owner: Caller::root(),
            any_caller: true,
            keep: Box::new(()),
        };
        if catch_unwind(AssertUnwindSafe(|| check(rule, &fixture))).is_err() {
            failed.push(rule);
        }
    }
    assert!(failed.is_empty(), "rules that do not hold: {failed:?}");
}

pub(crate) fn plain(_: &Path) -> Options {
    Options::default()
}

#[test]
#[ignore = "needs root"]
fn on_xfs() {
    alone("rules::on_xfs", &["mkfs.xfs"], |above| {
        let root = above.join("root");
        image("xfs", &[], &root);
        check_but(&[], &root, plain);
    });
}

#[test]
#[ignore = "needs root"]
fn on_btrfs() {
    alone("rules::on_btrfs", &["mkfs.btrfs"], |above| {
        let root = above.join("root");
        image("btrfs", &[], &root);
        check_but(&[], &root, plain);
    });
}

#[test]
#[ignore = "needs root"]
fn conforms_on_ext4_with_coarse_clock() {
    alone("rules::conforms_on_ext4_with_coarse_clock", &["mkfs.ext4"], |above| {
        let root = above.join("root");
        image("ext4", &["-I", "128", "-b", "4096"], &root);
        check_but(&["times_are_stored_exactly"], &root, plain);
    });
}

/// A client caches writes, so a write beyond an unknown limit would fail too late.
#[test]
#[ignore = "needs root"]
fn file_size_limit_is_reported_and_enforced() {
    alone("rules::file_size_limit_is_reported_and_enforced", &["mkfs.ext4", "mkfs.xfs"], |above| {
        // ext4 extents count blocks in 32 bits.
        for (kind, more, longest) in
            [("ext4", &["-b", "4096"][..], Some((1 << 44) - 4096)), ("xfs", &[][..], None)]
        {
            let root = above.join(kind);
            image(kind, more, &root);
            let (fs, owner) = (export(&root, Options::default()), Caller::root());
            let limit = fs.traits().file_size_max;
            assert!(
                longest.is_none_or(|longest| longest == limit) && limit <= i64::MAX as u64,
                "{kind}: {limit}"
            );
            let made = fs.new_file(&owner, &fs.root(), "long", 0o600).expect("creation succeeds");
            put(&*made.open, limit - 1, b"x")
                .unwrap_or_else(|error| panic!("{kind}: the last byte: {error:?}"));
            assert_eq!(fs.attributes_of(&made.id).expect("the file exists").size, limit);
            assert!(put(&*made.open, limit, b"x").is_err(), "{kind}: one byte more");
        }
    });
}

#[test]
#[ignore = "needs root"]
fn conforms_on_overlay_without_handles() {
    alone("rules::conforms_on_overlay_without_handles", &[], |above| {
        let root = above.join("root");
        overlay(&root);
        check_but(&[], &root, with_names);
    });
}
