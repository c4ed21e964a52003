use std::fs;

use vouch_vfs::{Blocking, Error, FileId, FileSystem, FileType};

use crate::fixture::{Site, is_stale, read};

fn long_paths() -> Vec<String> {
    vec![
        "short".into(),
        "usr/lib/file".into(),
        format!("usr/share/{}/{}/file", "documentation-of-it".repeat(3), "examples".repeat(9)),
        format!("{}/{}", "a".repeat(255), "b".repeat(255)),
        format!("{}/b", "a".repeat(255)),
        format!("{}end", "deeper/".repeat(40)),
        format!("{}end", "d/".repeat(60)),
    ]
}

#[test]
fn identities_survive_restarts_and_revisions() {
    let site = Site::new();
    for path in long_paths() {
        site.write(&path, path.as_bytes());
    }
    site.publish();
    let exported = site.export();
    let ids: Vec<(FileId, u64)> = long_paths()
        .iter()
        .map(|path| exported.find(path).unwrap())
        .map(|(id, a)| (id, a.file_number))
        .collect();
    drop(exported);
    for revision in 0..2 {
        let exported = site.export();
        for ((id, number), path) in ids.iter().zip(long_paths()) {
            assert_eq!(
                exported.fs.attributes(id, Blocking::Allowed).unwrap().file_number,
                *number,
                "{path}"
            );
            assert_eq!(exported.content(id).unwrap(), path.as_bytes());
            assert_eq!(exported.id(&path), *id);
            assert_eq!(exported.fs.path(id).unwrap(), path.as_bytes());
        }
        if revision == 0 {
            for n in 0..300 {
                site.write(format!("aaa{n}"), b"");
                site.write(format!("{}/aaa{n}", "a".repeat(255)), b"");
                site.write(format!("{}aaa{n}/x", "deeper/".repeat(40)), b"");
            }
            site.publish();
        }
    }
}

#[test]
fn removed_file_is_stale_until_it_returns() {
    let site = Site::new();
    let long = format!("{}/{}/file", "x".repeat(90), "y".repeat(90));
    let paths = ["file", "directory/file", &long];
    paths.iter().for_each(|path| site.write(path, b"first"));
    site.publish();
    let exported = site.export();
    let ids = paths.map(|path| exported.id(path));
    let open = exported.open(&ids[0]).unwrap();
    paths.iter().for_each(|path| fs::remove_file(site.source(path)).unwrap());
    fs::create_dir(site.source("file")).unwrap();
    site.publish();
    ids.iter().for_each(|id| assert_eq!(exported.content(id).unwrap(), b"first"));
    exported.refresh();
    for exported in [&exported, &site.export()] {
        for _ in 0..2 {
            ids.iter()
                .for_each(|id| assert!(is_stale(&exported.fs.attributes(id, Blocking::Allowed))));
        }
        assert_eq!(exported.find("file").unwrap().1.file_type, FileType::Directory);
        assert!(matches!(exported.find("directory/file"), Err(Error::NotFound)));
    }
    assert!(is_stale(&read(&*open, 0, 9, &mut Vec::new(), Blocking::Allowed)));
    fs::remove_dir(site.source("file")).unwrap();
    paths.iter().for_each(|path| site.write(path, b"again"));
    site.publish();
    exported.refresh();
    ids.iter().for_each(|id| assert_eq!(exported.content(id).unwrap(), b"again"));
}

#[test]
fn invalid_identities_are_refused() {
    let site = Site::new();
    site.publish();
    let exported = site.export();
    for bytes in [&b""[..], b"x", b"\x10", b"\x11..", &[0xff; 64]] {
        let id = FileId::new(bytes).unwrap();
        assert!(
            matches!(exported.fs.attributes(&id, Blocking::Allowed), Err(Error::BadId)),
            "{bytes:?}"
        );
    }
    assert!(is_stale(
        &exported.fs.attributes(&FileId::new(b"\x11none").unwrap(), Blocking::Allowed)
    ));
}
