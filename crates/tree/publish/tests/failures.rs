//! Unreadable, changing and forbidden files: one error line with the path.

mod reference;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reference::{Publisher, Tree};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use vouch_tree::key::{SecretKey, SigningCert};
use vouch_tree::keyfile::{Role, write_secret};
use vouch_tree_publish::{Error, Fault, Options, Progress, Signer, check_outside_source, publish};
use vouch_tree_store::{Database, WriteOptions};

fn without_privilege<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let mut sets = capabilities(None).unwrap();
            sets.effective -= CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
            set_capabilities(None, sets).unwrap();
            work()
        });
        thread.join().unwrap()
    })
}

fn chmod(path: &std::path::Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn unreadable_file_stops_publication_or_is_skipped() {
    let publisher = Publisher::new();
    let source = publisher.source();
    fs::create_dir_all(source.join("closed\ndir")).unwrap();
    fs::write(source.join("closed\ndir/file"), "x").unwrap();
    fs::write(source.join("open"), "x").unwrap();
    publisher.publish_and_compare();
    fs::write(source.join("secret"), "x").unwrap();
    fs::hard_link(source.join("secret"), source.join("secret too")).unwrap();
    chmod(&source.join("secret"), 0);
    chmod(&source.join("closed\ndir"), 0);
    without_privilege(|| {
        let error = publisher.publish(&publisher.options()).unwrap_err();
        assert_eq!(error.fault(), Fault::Input);
        let line = error.to_string();
        assert!(line.contains("secret") || line.contains("closed\\ndir"), "{line}");
        assert!(
            line.contains("denied") && line.contains("--skip-unreadable") && !line.contains('\n'),
            "{line}"
        );
        assert_eq!(publisher.tree().fsinfo.revision, 1);
        let mut options = publisher.options();
        options.skip_unreadable = true;
        let summary = publisher.publish(&options).unwrap();
        let paths: Vec<_> =
            summary.skipped.iter().map(|s| s.path.rsplit('/').next().unwrap().to_owned()).collect();
        assert_eq!(paths, ["closed\\ndir", "secret", "secret too"]);
        assert_eq!((summary.skipped_count, summary.counts.files), (3, 1));
    });
    chmod(&source.join("secret"), 0o600);
    chmod(&source.join("closed\ndir"), 0o700);
    publisher.publish_and_compare();
}

#[test]
fn file_that_changes_once_is_read_again() {
    let publisher = Publisher::new();
    let file = publisher.source().join("file");
    fs::write(&file, vec![1; 256 << 20]).unwrap();
    let progress = Progress::default();
    let summary = std::thread::scope(|scope| {
        scope.spawn(|| {
            while progress.files() == 0 {
                std::thread::sleep(Duration::from_micros(100));
            }
            std::thread::sleep(Duration::from_millis(2));
            std::io::Write::write_all(
                &mut fs::File::options().append(true).open(&file).unwrap(),
                b"more",
            )
            .unwrap();
        });
        publisher.publish_watched(&publisher.options(), &progress).unwrap()
    });
    assert!(summary.reread >= 1, "{summary:?}");
    publisher.tree().compare(&publisher.source());
}

fn while_changing<T>(mut change: impl FnMut() + Send, work: impl FnOnce() -> T) -> T {
    let (begun, done) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                change();
                begun.store(true, Ordering::Relaxed);
            }
        });
        while !begun.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        done.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[test]
fn file_that_keeps_changing_is_refused() {
    let publisher = Publisher::new();
    let file = publisher.source().join("file");
    fs::write(publisher.source().join("other"), "x").unwrap();
    fs::write(&file, vec![1; 100 << 20]).unwrap();
    publisher.publish_and_compare();
    let writer = fs::File::options().write(true).open(&file).unwrap();
    let change = || std::os::unix::fs::FileExt::write_all_at(&writer, b"x", 7).unwrap();
    let mut options = publisher.options();
    let error = while_changing(change, || publisher.publish(&options).unwrap_err());
    assert!(matches!(&error, Error::Changed { path } if path.ends_with("/file")), "{error}");
    assert_eq!(publisher.tree().fsinfo.revision, 1);
    options.skip_unreadable = true;
    let summary = while_changing(change, || publisher.publish(&options).unwrap());
    assert_eq!((summary.skipped_count, summary.counts.files), (1, 1));
}

#[test]
fn directory_that_keeps_changing_is_refused() {
    let publisher = Publisher::new();
    let dir = publisher.source().join("dir");
    fs::create_dir(&dir).unwrap();
    (0..4_000).for_each(|n| fs::write(dir.join(format!("rest{n}")), vec![3; 20_000]).unwrap());
    let change = || {
        let file = dir.join("restless");
        fs::write(&file, "x").unwrap();
        fs::remove_file(&file).unwrap();
    };
    let error = while_changing(change, || publisher.publish(&publisher.options()).unwrap_err());
    assert!(matches!(&error, Error::Changed { path } if path.contains("/dir")), "{error}");
    let mut options = publisher.options();
    options.skip_unreadable = true;
    let summary = while_changing(change, || publisher.publish(&options).unwrap());
    assert!(summary.counts.files >= 4_000, "{summary:?}");
    publisher.publish_and_compare();
}

#[test]
fn directory_swapped_for_link_is_not_followed() {
    let publisher = Publisher::new();
    let source = publisher.source();
    let outside = publisher.dir.path().join("outside");
    fs::create_dir_all(outside.join("below")).unwrap();
    fs::write(outside.join("below/secret"), "secret").unwrap();
    fs::create_dir_all(source.join("dir/below")).unwrap();
    (0..50).for_each(|n| fs::write(source.join(format!("dir/below/{n}")), "inside").unwrap());
    symlink(&outside, source.join("link")).unwrap();
    let exchange = || {
        let _ = rustix::fs::renameat_with(
            rustix::fs::CWD,
            source.join("dir"),
            rustix::fs::CWD,
            source.join("link"),
            rustix::fs::RenameFlags::EXCHANGE,
        );
    };
    let mut options = publisher.options();
    options.rehash = true;
    let mut published = 0;
    for _ in 0..30 {
        let result = while_changing(exchange, || publisher.publish(&options));
        match result {
            Ok(_) => published += 1,
            Err(Error::Changed { .. }) => continue,
            Err(other) => panic!("{other}"),
        }
        let tree = publisher.tree();
        for path in ["dir/below", "link/below"] {
            if let Some(below) =
                tree.find(path.split('/').next().unwrap()).filter(vouch_tree::Inode::is_directory)
            {
                let names: Vec<_> =
                    tree.entries(&below).iter().map(|e| e.name.to_string()).collect();
                assert_eq!(names, ["below"]);
                assert!(tree.find(&format!("{path}/secret")).is_none());
            }
        }
    }
    eprintln!("{published} of 30 publications went through");
    publisher.publish_and_compare();
}

#[test]
fn database_inside_source_is_refused() {
    let publisher = Publisher::new();
    let mut options = publisher.options();
    options.source = publisher.dir.path().to_owned();
    assert!(matches!(publisher.publish(&options).unwrap_err(), Error::DatabaseInside { .. }));
    options.source = publisher.db();
    assert!(matches!(publisher.publish(&options).unwrap_err(), Error::DatabaseInside { .. }));
}

#[test]
fn planned_database_or_keys_inside_source_are_refused() {
    let publisher = Publisher::new();
    let source = publisher.source();
    let outside = publisher.dir.path().join("not/yet");
    check_outside_source(&source, false, &outside.join("db"), &outside.join("keys")).unwrap();
    symlink(&source, publisher.dir.path().join("link")).unwrap();
    for inside in [
        source.join("db"),
        source.join("a/b/db"),
        publisher.dir.path().join("link/db"),
        source.clone(),
    ] {
        assert!(
            matches!(
                check_outside_source(&source, false, &inside, &outside).unwrap_err(),
                Error::DatabaseInside { .. }
            ),
            "{inside:?}"
        );
        assert!(
            matches!(
                check_outside_source(&source, false, &outside, &inside).unwrap_err(),
                Error::Private { .. }
            ),
            "{inside:?}"
        );
    }
    assert!(!outside.exists() && !source.join("db").exists());
}

#[test]
fn private_keys_are_never_published() {
    let publisher = Publisher::new();
    let (source, keys) = (publisher.source(), publisher.dir.path().join("keys"));
    fs::create_dir(&keys).unwrap();
    fs::write(keys.join("signing.key"), "a key of a format to come").unwrap();
    let identity =
        |path: &std::path::Path| fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).unwrap();
    let mut options = publisher.options();
    options.private = vec![identity(&keys), identity(&keys.join("signing.key"))];
    options.skip_unreadable = true;
    publisher.publish(&options).unwrap();
    let refused = |options: &Options, path: &str| {
        let error = publisher.publish(options).unwrap_err();
        assert!(
            matches!(&error, Error::Private { path: found, .. } if found.ends_with(path)),
            "{error}"
        );
        assert!(error.to_string().contains("outside"), "{error}");
        assert_eq!(publisher.tree().fsinfo.revision, 1);
    };
    fs::create_dir(source.join("d")).unwrap();
    fs::hard_link(keys.join("signing.key"), source.join("d/harmless")).unwrap();
    refused(&options, "d/harmless");
    fs::remove_file(source.join("d/harmless")).unwrap();
    fs::rename(&keys, source.join("d/keys")).unwrap();
    refused(&options, "d/keys");
    fs::rename(source.join("d/keys"), &keys).unwrap();
    for role in [Role::Root, Role::Signing] {
        let text = write_secret(role, &SecretKey::from_seed(&[3; 32]), None).unwrap();
        fs::write(source.join("d/copy"), text.as_bytes()).unwrap();
        refused(&publisher.options(), "d/copy");
    }
    fs::write(source.join("d/copy"), "vouch signing key v1 is how the file of a key begins\n")
        .unwrap();
    publisher.publish_and_compare();
}

#[test]
fn source_that_is_no_directory_is_named() {
    let publisher = Publisher::new();
    let mut options = publisher.options();
    for name in ["nowhere", "file"] {
        fs::write(publisher.dir.path().join("file"), "x").unwrap();
        options.source = publisher.dir.path().join(name);
        let error = publisher.publish(&options).unwrap_err();
        assert!(
            matches!(error, Error::Source { .. }) && error.to_string().contains(name),
            "{error}"
        );
    }
    symlink(publisher.source(), publisher.dir.path().join("way")).unwrap();
    options.source = publisher.dir.path().join("way");
    publisher.publish(&options).unwrap();
}

#[test]
fn stopped_publication_keeps_previous_revision() {
    let publisher = Publisher::new();
    fs::write(publisher.source().join("file"), vec![1; 256 << 20]).unwrap();
    publisher.publish_and_compare();
    let progress = Progress::default();
    let mut options = publisher.options();
    options.rehash = true;
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(5));
            progress.stop();
        });
        publisher.publish_watched(&options, &progress).unwrap_err()
    });
    assert_eq!(error.fault(), Fault::Stopped);
    assert_eq!(publisher.tree().fsinfo.revision, 1);
    publisher.publish_and_compare();
}

#[test]
fn invalid_for_clients_is_not_signed() {
    let publisher = Publisher::new();
    publisher.source();
    let (root, other) = (SecretKey::from_seed(&[1; 32]), SecretKey::from_seed(&[3; 32]));
    let attempt = |key: &SecretKey, cert: SigningCert, start: u64| {
        let writer = Database::open_write(&publisher.db(), WriteOptions::default()).unwrap();
        let mut options = publisher.options();
        options.start = start;
        publish(&writer, &Signer { key, cert }, &options, &Progress::default())
    };
    let cert = |serial, from, to| SigningCert::issue(&root, other.public(), serial, from, to);
    attempt(&other, cert(5, 0, 2_000_000), 1_000_000).unwrap();
    let refused = [
        attempt(&other, SigningCert::issue(&other, other.public(), 9, 0, u64::MAX), 1_000_001),
        attempt(&root, cert(5, 0, 2_000_000), 1_000_001),
        attempt(&other, cert(4, 0, 2_000_000), 1_000_001),
        attempt(&other, cert(5, 0, 1_000_001), 1_000_001),
        attempt(&other, cert(5, 1_000_002, 2_000_000), 1_000_001),
    ];
    for error in refused.map(Result::unwrap_err) {
        assert_eq!(error.fault(), Fault::Refused, "{error}");
    }
    let ahead = attempt(&other, cert(5, 0, 2_000_000), 999_999).unwrap_err();
    assert!(matches!(ahead, Error::Clock { .. }) && ahead.fault() == Fault::Refused);
    assert!(ahead.to_string().contains("--clock-was-ahead"), "{ahead}");
    assert_eq!(Tree::open(&publisher.db()).fsinfo.revision, 1);
}

#[test]
fn publication_continues_after_clock_was_ahead() {
    let publisher = Publisher::new();
    publisher.source();
    let (root, key) = (SecretKey::from_seed(&[1; 32]), SecretKey::from_seed(&[3; 32]));
    let attempt = |start: u64, clock_was_ahead: bool| {
        let writer = Database::open_write(&publisher.db(), WriteOptions::default()).unwrap();
        let options = Options { start, clock_was_ahead, ..publisher.options() };
        let cert = SigningCert::issue(&root, key.public(), 5, 0, 2_000_000);
        publish(&writer, &Signer { key: &key, cert }, &options, &Progress::default())
    };
    attempt(1_900_000, false).unwrap();
    assert!(attempt(1_000_000, false).is_err());
    attempt(1_000_000, true).unwrap();
    let fsinfo = Tree::open(&publisher.db()).fsinfo;
    assert_eq!((fsinfo.revision, fsinfo.start), (2, 1_000_000));
    attempt(1_000_001, false).unwrap();
}
