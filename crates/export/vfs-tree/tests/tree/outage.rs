//! Unavailable data is a timely error, never an absence.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use vouch_vfs::{Blocking, Caller, Error, FileSystem, Name};

use crate::fixture::{DURATION_S, NOW, Site, random_bytes, read, until};

#[test]
fn nonblocking_calls_answer_only_from_caches() {
    let site = Site::new();
    site.add_many_directories();
    site.write("directory/file", random_bytes(1, 400_000));
    for n in 0..2000 {
        site.write(format!("directory/other{n}"), b"");
    }
    site.publish();
    let (id, directory) = {
        let exported = site.export();
        (exported.id("directory/file"), exported.id("directory"))
    };
    let exported = site.export();
    let name = Name::new(b"file").unwrap();
    let lookup = |blocking| exported.fs.lookup(&Caller::root(), &directory, name, blocking);
    assert!(matches!(lookup(Blocking::Forbidden), Err(Error::WouldBlock)));
    let found = lookup(Blocking::Allowed).unwrap();
    assert_eq!(found.0, id);
    assert_eq!(lookup(Blocking::Forbidden).unwrap(), found);
    assert_eq!(exported.fs.attributes(&id, Blocking::Forbidden).unwrap(), found.1);
    let open = exported.open(&id).unwrap();
    let read = |blocking| read(&*open, 200_000, 1000, &mut Vec::new(), blocking);
    assert!(matches!(read(Blocking::Forbidden), Err(Error::WouldBlock)));
    assert_eq!(read(Blocking::Allowed).unwrap(), (1000, false));
    assert_eq!(read(Blocking::Forbidden).unwrap(), (1000, false));
}

#[test]
fn unavailable_data_fails_in_time() {
    let site = Site::new();
    let long = "long name/".repeat(10) + "file";
    site.add_many_directories();
    site.write("directory/file", random_bytes(1, 400_000));
    site.write(&long, b"x");
    for n in 0..2000 {
        site.write(format!("directory/other{n}"), b"");
    }
    site.publish();
    let (file, long) = {
        let exported = site.export();
        (exported.id("directory/file"), exported.id(&long))
    };
    let exported = site.export();
    site.is_up.store(false, Ordering::SeqCst);
    std::thread::sleep(Duration::from_millis(100));
    let began = Instant::now();
    for id in [file, long] {
        let answer = exported.fs.attributes(&id, Blocking::Allowed);
        assert!(matches!(answer, Err(Error::Io(_))), "{answer:?}");
    }
    assert!(began.elapsed() < Duration::from_secs(15));
    site.is_up.store(true, Ordering::SeqCst);
    until(|| exported.fs.attributes(&file, Blocking::Allowed).is_ok());
    assert!(exported.content(&file).unwrap() == random_bytes(1, 400_000));
    assert_eq!(exported.content(&long).unwrap(), b"x");
}

#[test]
fn expired_tree_serves_nothing() {
    let site = Site::new();
    site.write("file", b"x");
    site.publish();
    let exported = site.export();
    let id = exported.id("file");
    site.now.store(NOW + i64::from(DURATION_S) + 1, Ordering::SeqCst);
    assert!(matches!(exported.fs.attributes(&id, Blocking::Allowed), Err(Error::Io(_))));
    assert!(matches!(
        exported.fs.attributes(&id, Blocking::Forbidden),
        Err(Error::Io(_) | Error::WouldBlock)
    ));
    assert!(matches!(
        exported.fs.space(&Caller::root(), &id, Blocking::Allowed),
        Err(Error::Io(_))
    ));
    site.now.store(NOW, Ordering::SeqCst);
    assert!(exported.content(&id).is_err());
}

#[test]
fn calls_continue_in_next_revision_when_replicas_drop_one() {
    let site = Site::new();
    let names: Vec<String> = (0..3000).map(|n| format!("{n:04}")).collect();
    let write = |seed: u64| {
        site.write("leaf", random_bytes(seed, 50_000));
        site.write("large", random_bytes(seed + 1, 400_000));
        names.iter().for_each(|name| site.write(format!("many/{name}"), seed.to_string()));
    };
    write(1);
    site.publish();
    let exported = site.export();
    let (leaf, large, many) = (exported.id("leaf"), exported.id("large"), exported.id("many"));
    let open = exported.open(&large).unwrap();
    assert_eq!(exported.list(&many, 0, 10).unwrap().len(), 10);
    write(3);
    site.publish_and_collect();
    site.reconnect();
    assert!(exported.content(&leaf).unwrap() == random_bytes(3, 50_000));
    let mut bytes = Vec::new();
    assert_eq!(read(&*open, 0, 1000, &mut bytes, Blocking::Allowed).unwrap(), (1000, false));
    assert!(bytes == random_bytes(4, 400_000)[..1000]);
    let mut listed: Vec<(String, u64)> = Vec::new();
    loop {
        let more = exported
            .list(&many, listed.last().map_or(0, |(_, cookie)| *cookie), usize::MAX)
            .unwrap();
        if more.is_empty() {
            break;
        }
        listed.extend(more);
    }
    assert!(listed.into_iter().map(|(name, _)| name).eq(names));
}
