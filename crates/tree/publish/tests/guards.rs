//! Guards before a revision is signed, and revisions of older content.

mod reference;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use reference::{Publisher, let_timestamps_age};
use vouch_tree::key::SecretKey;
use vouch_tree_publish::{
    DeletionMax, Error, Options, RefusePrivate, Republication, Signer, republish,
};
use vouch_tree_store::{Database, WriteOptions};

fn publisher(count: usize) -> Publisher {
    let publisher = Publisher::new();
    for n in 0..count {
        fs::write(publisher.source().join(format!("{n:03}")), format!("content {n}")).unwrap();
    }
    publisher.publish(&publisher.options()).unwrap();
    publisher
}

#[test]
fn emptied_source_is_refused_unless_allowed() {
    let publisher = publisher(40);
    let guarded =
        |deletion_max| Options { deletion_max: Some(deletion_max), ..publisher.options() };
    (0..20).for_each(|n| fs::remove_file(publisher.source().join(format!("{n:03}"))).unwrap());
    assert!(matches!(
        publisher.publish(&guarded(DeletionMax::Files(19))),
        Err(Error::Deleted { deleted: 20, before: 40, .. })
    ));
    assert_eq!(publisher.publish(&guarded(DeletionMax::Percent(50))).unwrap().deleted_files, 20);
    (20..40).for_each(|n| fs::remove_file(publisher.source().join(format!("{n:03}"))).unwrap());
    let refused = publisher.publish(&guarded(DeletionMax::Percent(50))).unwrap_err();
    assert!(refused.to_string().contains("20 of the 20 files of revision 2 are gone"), "{refused}");
    assert_eq!(publisher.publish(&guarded(DeletionMax::Percent(100))).unwrap().revision, 3);
}

#[test]
fn private_files_are_counted_and_refused() {
    let publisher = publisher(3);
    let source = publisher.source();
    fs::create_dir(source.join("closed")).unwrap();
    fs::write(source.join("closed/file"), "readable in a closed directory").unwrap();
    for (name, mode) in [("closed", 0o700), ("000", 0o600), ("001", 0o640)] {
        fs::set_permissions(source.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::write(source.join("000"), "private content ".repeat(1000)).unwrap();
    let refusing =
        |refuse_private| publisher.publish(&Options { refuse_private, ..publisher.options() });
    assert!(matches!(refusing(RefusePrivate::Always), Err(Error::PrivateFiles { count: 3, .. })));
    let packs = fs::read_dir(publisher.db().join("packs")).unwrap();
    let data = packs
        .filter(|pack| pack.as_ref().unwrap().file_name().to_string_lossy().starts_with("d-"))
        .count();
    assert_eq!(data, 0, "private content is never stored");
    assert_eq!(refusing(RefusePrivate::First).unwrap().private_count, 3);
    // Unchanged files count too.
    assert_eq!(refusing(RefusePrivate::Never).unwrap().private_count, 3);
}

#[test]
fn excluded_names_are_left_out() {
    let publisher = publisher(3);
    fs::create_dir_all(publisher.source().join("a/build")).unwrap();
    fs::write(publisher.source().join("a/build/x"), "x").unwrap();
    fs::write(publisher.source().join("a/x.tmp"), "x").unwrap();
    let exclude = ["*.tmp", "a/build", "/000"].map(str::to_owned).to_vec();
    let summary = publisher.publish(&Options { exclude, ..publisher.options() }).unwrap();
    assert_eq!((summary.counts.files, summary.counts.directories), (2, 2));
    let all = publisher.publish_and_compare();
    assert_eq!((all.counts.files, all.counts.directories), (5, 3));
}

#[test]
fn dry_run_counts_and_stores_nothing() {
    let publisher = publisher(3);
    fs::write(publisher.source().join("new"), "n".repeat(5000)).unwrap();
    fs::write(publisher.source().join("same"), "n".repeat(5000)).unwrap();
    let_timestamps_age();
    let files = || {
        let below = |dir: &str| {
            fs::read_dir(publisher.db().join(dir))
                .unwrap()
                .map(|entry| entry.unwrap().file_name())
                .collect::<Vec<_>>()
        };
        (below("packs"), below("index"), fs::read(publisher.db().join("manifest")).unwrap())
    };
    let before = files();
    let would = publisher.publish(&Options { is_dry_run: true, ..publisher.options() }).unwrap();
    assert_eq!(files(), before);
    // The fsinfo is not counted.
    let done = publisher.publish(&publisher.options()).unwrap();
    assert_eq!(
        (would.revision, would.counts, would.new_frames),
        (done.revision, done.counts, done.new_frames - 1)
    );
}

#[test]
fn message_replaces_the_one_in_the_source() {
    let publisher = publisher(1);
    let message = |text: &str| Options { message: Some(text.to_owned()), ..publisher.options() };
    publisher.publish(&message("first")).unwrap();
    assert_eq!(publisher.tree().fsinfo.message().as_deref(), Some("first"));
    publisher.publish(&publisher.options()).unwrap();
    assert_eq!(publisher.tree().fsinfo.message(), None);
    assert!(matches!(publisher.publish(&message("two\nlines")), Err(Error::Option(_))));
}

#[test]
fn older_content_is_published_again_and_tags_move() {
    let publisher = publisher(2);
    fs::write(publisher.source().join("000"), "second").unwrap();
    publisher.publish(&publisher.options()).unwrap();
    let signing = SecretKey::from_seed(&[2; 32]);
    let again = |of, tag: Option<&str>, keeps_newest| {
        let writer = Database::open_write(&publisher.db(), WriteOptions::default()).unwrap();
        let tag = tag.map(str::to_owned);
        let options = Republication {
            of,
            start: publisher.start,
            duration_s: None,
            tag,
            message: None,
            keeps_newest,
            log: None,
        };
        republish(&writer, &Signer { key: &signing, cert: publisher.cert() }, &options)
    };
    let second = publisher.tree().fsinfo;
    let moved = again(1, Some("stable"), true).unwrap();
    assert_eq!((moved.revision, moved.newest), (3, 4));
    let now = publisher.tree().fsinfo;
    assert_eq!((&now.root, now.revision, now.tag.as_str()), (&second.root, 4, ""));
    let tags = || {
        Database::open_read(&publisher.db())
            .unwrap()
            .revisions()
            .iter()
            .map(|r| r.tag.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(tags(), [None, None, Some("stable".to_owned()), None]);
    again(4, Some("stable"), true).unwrap();
    assert_eq!(tags(), [None, None, None, None, Some("stable".to_owned())]);
    assert_eq!(again(1, None, false).unwrap().newest, 6);
    assert_ne!(publisher.tree().fsinfo.root, second.root);
    assert!(matches!(again(99, None, false), Err(Error::NoRevision(_))));
    assert!(Database::verify(&publisher.db(), None).unwrap().is_sound());
    // The chain of signed revisions is whole, and the next publication goes on.
    assert_eq!(publisher.publish_and_compare().revision, 7);
}
