use std::time::Duration;

use vouch_vfs::{Blocking, FileSystem};

use crate::fixture::{Site, is_stale, random_bytes, read, until};

#[test]
fn new_revision_appears_within_refresh_interval() {
    let site = Site::new();
    site.write("file", b"first");
    site.publish();
    let exported =
        site.export_with(|options| options.refresh_interval = Some(Duration::from_millis(200)));
    let id = exported.id("file");
    site.write("file", b"second");
    site.publish();
    until(|| exported.content(&id).unwrap() == b"second");
}

#[test]
fn change_attribute_moves_exactly_with_changes() {
    let site = Site::new();
    site.write("a/same", random_bytes(1, 900));
    site.write("a/below/same", b"x");
    site.write("b/inline", random_bytes(2, 900));
    site.write("b/large", random_bytes(2, 900_000));
    site.publish();
    let exported = site.export();
    let (same, moving) =
        (["a", "a/same", "a/below", "a/below/same"], ["", "b", "b/inline", "b/large"]);
    let change =
        |path: &str| exported.fs.attributes(&exported.id(path), Blocking::Allowed).unwrap().change;
    let (same_before, mut before) = (same.map(change), moving.map(change));
    let open = exported.open(&exported.id("b/large")).unwrap();
    for seed in 3..6 {
        for (path, len) in [("b/inline", 900), ("b/large", 900_000)] {
            let times = std::fs::metadata(site.source(path)).unwrap().modified().unwrap();
            site.write(path, random_bytes(seed, len));
            std::fs::File::options()
                .write(true)
                .open(site.source(path))
                .unwrap()
                .set_modified(times)
                .unwrap();
        }
        site.publish();
        exported.refresh();
        let after = moving.map(change);
        assert!(
            before.iter().zip(after).all(|(before, after)| *before != after),
            "{before:?} {after:?}"
        );
        before = after;
        assert_eq!(same.map(change), same_before);
        assert!(exported.content(&exported.id("b/inline")).unwrap() == random_bytes(seed, 900));
        let mut bytes = Vec::new();
        assert_eq!(
            read(&*open, 0, 1_000_000, &mut bytes, Blocking::Allowed).unwrap(),
            (900_000, true)
        );
        assert!(bytes == random_bytes(seed, 900_000));
    }
    let restarted = site.export();
    for (path, before) in moving.into_iter().chain(same).zip(before.into_iter().chain(same_before))
    {
        assert_eq!(restarted.find(path).unwrap().1.change, before, "{path}");
    }
}

#[test]
fn stolen_key_revision_ends_with_next_certificate() {
    for count in [2, 4] {
        let site = Site::new();
        site.write("d/file", b"genuine");
        site.write("d/same", b"same");
        site.publish();
        let exported = site.export();
        let (id, same) = (exported.id("d/file"), exported.id("d/same"));
        let change = |id| exported.fs.attributes(id, Blocking::Allowed).unwrap().change;
        let follow = |cert_serial, number| {
            until(|| {
                let _ = exported.runtime.block_on(exported.tree.refresh());
                (exported.tree.newest().cert_serial(), exported.tree.newest().number())
                    == (cert_serial, number)
            });
        };
        assert_eq!(exported.content(&id).unwrap(), b"genuine");
        let (genuine, unmoved) = (change(&id), change(&same));
        site.publish_with_stolen_key();
        site.write("d/file", b"forged");
        site.write("d/extra", b"forged");
        (0..count).for_each(|_| site.publish());
        site.reconnect();
        follow(1, count);
        assert_eq!(exported.content(&id).unwrap(), b"forged");
        let (forged, extra) = (change(&id), exported.id("d/extra"));
        site.certify();
        site.write("d/file", b"mended");
        std::fs::remove_file(site.source("d/extra")).unwrap();
        site.publish();
        site.reconnect();
        follow(2, 2);
        assert_eq!(exported.content(&id).unwrap(), b"mended");
        assert!(
            is_stale(&exported.fs.attributes(&extra, Blocking::Allowed)),
            "gone with the thief's revision"
        );
        let mended = change(&id);
        assert!(
            genuine != forged && forged != mended && mended != genuine,
            "{genuine} {forged} {mended}"
        );
        assert_eq!(change(&same), unmoved);
    }
}

#[test]
fn new_revision_is_reported_to_watches_of_directories() {
    let site = Site::new();
    site.write("d/file", b"first");
    site.publish();
    let exported = site.export();
    let (sender, seen) = std::sync::mpsc::channel();
    let changed = std::sync::Arc::new(move || sender.send(()).expect("the test waits"));
    let watch = exported.fs.watch_directory(&exported.id("d"), changed).unwrap();
    exported.fs.maintain();
    assert!(seen.try_recv().is_err(), "nothing has changed");
    site.write("d/more", b"second");
    site.publish();
    exported.refresh();
    exported.fs.maintain();
    assert!(seen.try_recv().is_ok());
    drop(watch);
    site.write("d/again", b"third");
    site.publish();
    exported.refresh();
    exported.fs.maintain();
    assert!(seen.try_recv().is_err());
}

#[test]
fn tree_offers_xattrs_and_acls_while_a_file_has_some() {
    let site = Site::new();
    site.write("file", b"x");
    site.publish();
    let exported = site.export();
    let offers = || {
        let traits = exported.fs.traits();
        assert_eq!(traits.xattrs, traits.acls);
        traits.xattrs
    };
    assert!(!offers());
    let path = site.source("file");
    let set = rustix::fs::setxattr(&path, "user.a", b"1", rustix::fs::XattrFlags::empty());
    set.expect("the file system of the temporary directory has extended attributes");
    site.publish();
    exported.refresh();
    assert!(offers());
    rustix::fs::removexattr(&path, "user.a").expect("it is there");
    site.publish();
    exported.refresh();
    assert!(!offers());
}
