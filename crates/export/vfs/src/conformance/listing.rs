use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use super::fixture::{Fixture, Rule, SplitMix64, refused};
use crate::{Blocking, Error, FileId};

pub(super) const RULES: &[Rule] = &[
    ("listings_name_each_entry_once", listings_name_each_entry_once),
    ("cookies_stay_valid_during_changes", cookies_stay_valid_during_changes),
    ("reserved_cookies_are_refused", reserved_cookies_are_refused),
    ("listings_include_identities_and_attributes", listings_include_identities_and_attributes),
    ("large_directory_is_listed_in_pieces", large_directory_is_listed_in_pieces),
];

fn piece(
    fixture: &Fixture,
    directory: &FileId,
    cookie: u64,
    count: usize,
    with_files: bool,
) -> (Vec<(String, u64)>, bool) {
    let mut names = Vec::new();
    let done = fixture.fs.read_directory(
        &fixture.owner,
        directory,
        cookie,
        with_files,
        Blocking::Allowed,
        &mut |entry| {
            if names.len() == count {
                return ControlFlow::Break(());
            }
            assert!(entry.cookie >= 3, "cookies below 3 are reserved");
            names.push((String::from_utf8_lossy(entry.name).into_owned(), entry.cookie));
            ControlFlow::Continue(())
        },
    );
    (names, done.expect("the owner can list"))
}

fn listings_name_each_entry_once(fixture: &Fixture) {
    let root = fixture.root();
    assert!(fixture.names(&root).is_empty(), "an empty directory lists nothing, neither . nor ..");
    let mut expected: Vec<_> = (0..100).map(|number| format!("file{number}")).collect();
    for name in &expected {
        fixture.file(&root, name, b"");
    }
    expected.sort();
    assert_eq!(fixture.names(&root), expected, "one call lists all entries");
    for count in [1, 2, 7, 99, 100, 101] {
        let (mut names, mut cookie) = (Vec::new(), 0);
        loop {
            let (part, done) = piece(fixture, &root, cookie, count, count % 2 == 1);
            names.extend(part.iter().map(|entry| entry.0.clone()));
            if done {
                break;
            }
            cookie = part.last().expect("each piece but the last has entries").1;
        }
        names.sort();
        assert_eq!(names, expected, "{count} at a time");
    }
    let file = fixture.found(&root, "file0");
    let listed =
        fixture.fs.read_directory(&fixture.owner, &file, 0, false, Blocking::Allowed, &mut |_| {
            ControlFlow::Continue(())
        });
    refused!(listed, Error::NotDirectory, "listing a file");
}

/// Permanent entries are listed once, others at most once.
fn cookies_stay_valid_during_changes(fixture: &Fixture) {
    for seed in 0..6 {
        let mut random = SplitMix64(seed);
        let directory = fixture.directory(&fixture.root(), &format!("d{seed}"), 0o755);
        let staying: BTreeSet<String> = (0..150).map(|number| format!("stays{number}")).collect();
        let mut passing = BTreeSet::new();
        for (number, name) in staying.iter().enumerate() {
            fixture.file(&directory, name, b"");
            let other = format!("passes{number}");
            fixture.file(&directory, &other, b"");
            passing.insert(other);
        }
        let mut seen: BTreeMap<String, u32> = BTreeMap::new();
        let (mut cookie, mut fresh) = (0, 0);
        loop {
            let (part, done) = piece(
                fixture,
                &directory,
                cookie,
                random.roll(20) as usize + 1,
                random.roll(2) == 0,
            );
            for (name, _) in &part {
                *seen.entry(name.clone()).or_default() += 1;
            }
            if done {
                break;
            }
            cookie = part.last().expect("each piece but the last has entries").1;
            for _ in 0..random.roll(20) {
                if random.roll(2) == 0 && !passing.is_empty() {
                    let at = random.roll(passing.len() as u64) as usize;
                    let name = passing.iter().nth(at).cloned().expect("within the set");
                    fixture.remove(&directory, &name);
                    passing.remove(&name);
                } else {
                    let name = format!("fresh{fresh}");
                    fresh += 1;
                    fixture.file(&directory, &name, b"");
                    passing.insert(name);
                }
            }
        }
        for name in &staying {
            assert_eq!(seen.get(name), Some(&1), "seed {seed}: {name} stays and is listed once");
        }
        assert!(seen.values().all(|&count| count == 1), "seed {seed}: nothing is listed twice");
    }
}

fn reserved_cookies_are_refused(fixture: &Fixture) {
    for cookie in [1, 2] {
        let root = fixture.root();
        let listed = fixture.fs.read_directory(
            &fixture.owner,
            &root,
            cookie,
            false,
            Blocking::Allowed,
            &mut |_| ControlFlow::Continue(()),
        );
        refused!(listed, Error::BadCookie, "cookie {cookie}");
    }
}

fn listings_include_identities_and_attributes(fixture: &Fixture) {
    let root = fixture.root();
    fixture.file(&root, "file", b"content");
    fixture.directory(&root, "directory", 0o755);
    let mut count = 0;
    let done = fixture.fs.read_directory(
        &fixture.owner,
        &root,
        0,
        true,
        Blocking::Allowed,
        &mut |entry| {
            let name = crate::Name::new(entry.name).expect("a name is listed");
            let (id, attributes) =
                entry.file.expect("the option was given").expect("the owner may read the path");
            let (found, there) = fixture
                .fs
                .lookup(&fixture.owner, &root, name, Blocking::Allowed)
                .expect("the file exists");
            assert_eq!(
                (id, attributes.file_number),
                (found, there.file_number),
                "a listing and a lookup agree"
            );
            assert_eq!(entry.file_number, attributes.file_number, "the entry and the file agree");
            assert_eq!(
                (attributes.size, attributes.change, attributes.mode),
                (there.size, there.change, there.mode),
                "a listing and a lookup report the same attributes"
            );
            count += 1;
            ControlFlow::Continue(())
        },
    );
    assert!(done.expect("the owner can list"));
    assert_eq!(count, 2, "every entry is listed");
}

fn large_directory_is_listed_in_pieces(fixture: &Fixture) {
    const COUNT: usize = 3000;
    let directory = fixture.directory(&fixture.root(), "big", 0o755);
    let file = fixture.file(&directory, "file", b"");
    for number in 1..COUNT {
        let long = format!("a name of some length, so that buffers fill: {number}");
        fixture.link(&file, &directory, &long).expect("the link succeeds");
    }
    let (mut names, mut cookie) = (BTreeSet::new(), 0);
    loop {
        let (part, done) = piece(fixture, &directory, cookie, 170, true);
        for (name, next) in part {
            assert!(names.insert(name), "nothing is listed twice");
            cookie = next;
        }
        if done {
            break;
        }
    }
    assert_eq!(names.len(), COUNT, "every entry is listed");
}
