//! Listings continue by cookie across changes (RFC 8881 §18.23; RFC 8276 §8.4.3).

use std::collections::BTreeSet;

use crate::prelude::*;

type Page = (Vec<String>, u64, bool);

fn list_names(
    client: &mut Client<'_>,
    path: &[&str],
    cookie: u64,
    max_count: u32,
) -> Result<Page, Status> {
    match &client.run_at(path, &[readdir(cookie, max_count, &[20])]).1[..] {
        [Results::Readdir(Ok(ok))] => {
            let names = ok
                .entries
                .iter()
                .map(|entry| String::from_utf8(entry.name.0.to_vec()).unwrap())
                .collect();
            Ok((names, ok.entries.iter().last().map_or(cookie, |entry| entry.cookie.0), ok.eof))
        }
        list => Err(list.last().map_or(Status::SERVERFAULT, Results::status)),
    }
}

fn list_xattrs(client: &mut Client<'_>, cookie: u64, max_count: u32) -> Result<Page, Status> {
    match &client
        .run_at(
            &["export", "f"],
            &[Args::Listxattrs(op::ListxattrsArgs { cookie: Cookie(cookie), max_count })],
        )
        .1[..]
    {
        [Results::Listxattrs(Ok(ok))] => {
            let names =
                ok.names.iter().map(|name| String::from_utf8(name.0.to_vec()).unwrap()).collect();
            Ok((names, ok.cookie.0, ok.eof))
        }
        list => Err(list.last().map_or(Status::SERVERFAULT, Results::status)),
    }
}

fn list_to_end(mut page: impl FnMut(u64) -> Result<Page, Status>, mut cookie: u64) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        let (names, next, eof) = page(cookie).unwrap();
        assert!(eof || !names.is_empty(), "progress");
        all.extend(names);
        cookie = next;
        if eof {
            return all;
        }
    }
}

fn numbered_name(number: u32) -> String {
    format!("name{number:03}")
}

fn assert_stable_listing(
    page: &[String],
    later: &[String],
    before: std::ops::Range<u32>,
    after: std::ops::Range<u32>,
) {
    let all: Vec<&String> = page.iter().chain(later).collect();
    let set: BTreeSet<&String> = all.iter().copied().collect();
    assert_eq!(all.len(), set.len(), "no name twice");
    let stayed = before.start.max(after.start)..before.end.min(after.end);
    assert!(
        stayed.clone().all(|number| set.contains(&numbered_name(number))),
        "no remaining name is missing"
    );
    let known: BTreeSet<String> = before.chain(after.clone()).map(numbered_name).collect();
    assert!(set.iter().all(|name| known.contains(*name)), "no unknown name");
    assert!(
        later.iter().all(|one| after.clone().any(|number| *one == numbered_name(number))),
        "no removed name"
    );
}

fn exports(files: &Arc<MemoryFs>, range: std::ops::Range<u32>) -> Vec<Export> {
    range
        .map(|number| export(number + 1, &["srv", &numbered_name(number)], files, sys_access()))
        .collect()
}

#[test]
fn listing_of_exports_continues_across_reload() {
    let files = Arc::new(MemoryFs::new());
    let fixture = Fixture::with_exports(files.clone(), exports(&files, 0..60));
    let mut client = Client::new(&fixture, "one", 0);
    assert_eq!(list_names(&mut client, &["srv"], 0, 16), Err(Status::TOOSMALL));
    for max_len in [120, 500, 1000] {
        for (before, after) in [(0..60, 20..60), (20..60, 0..60), (0..60, 10..90), (10..90, 0..60)]
        {
            fixture.replace_exports(exports(&files, before.clone()));
            let (page, cookie, eof) = list_names(&mut client, &["srv"], 0, max_len).unwrap();
            assert!(!eof && !page.is_empty());
            fixture.replace_exports(exports(&files, after.clone()));
            let later =
                list_to_end(|cookie| list_names(&mut client, &["srv"], cookie, max_len), cookie);
            assert_stable_listing(&page, &later, before, after);
        }
    }
    assert_eq!(list_names(&mut client, &["srv"], u64::MAX, 1000), Ok((vec![], u64::MAX, true)));
    assert_eq!(list_names(&mut client, &["srv"], 2, 1000), Err(Status::BAD_COOKIE));
}

#[test]
fn listing_of_exports_continues_across_restart() {
    let files = Arc::new(MemoryFs::new());
    let fixture = Fixture::with_exports(files.clone(), exports(&files, 0..60));
    let (page, cookie, _) =
        list_names(&mut Client::new(&fixture, "one", 0), &["srv"], 0, 1000).unwrap();
    let fixture = fixture.restart_with_exports(exports(&files, 30..90));
    let mut client = Client::new(&fixture, "one", 0);
    assert_stable_listing(
        &page,
        &list_to_end(|cookie| list_names(&mut client, &["srv"], cookie, 1000), cookie),
        0..60,
        30..90,
    );
}

#[test]
fn listing_of_xattrs_continues_across_changes() {
    let mut client = Client::with_file();
    let set_xattr_present = |client: &mut Client<'_>, number: u32, present: bool| {
        let name = numbered_name(number);
        let option = op::SetxattrOption::Either;
        let one = match present {
            true => Args::Setxattr(op::SetxattrArgs {
                option,
                name: Name(name.as_bytes()),
                value: Bytes(b"value"),
            }),
            false => Args::Removexattr(op::RemovexattrArgs { name: Name(name.as_bytes()) }),
        };
        assert_eq!(client.status(&["export", "f"], &[one]), Status::OK);
    };
    assert_eq!(list_xattrs(&mut client, 0, 100), Ok((vec![], 0, true)));
    (0..60).for_each(|number| set_xattr_present(&mut client, number, true));
    let (page, cookie, eof) = list_xattrs(&mut client, 0, 200).unwrap();
    assert!(!eof && !page.is_empty());
    (0..20).for_each(|number| set_xattr_present(&mut client, number, false));
    (60..80).for_each(|number| set_xattr_present(&mut client, number, true));
    let later = list_to_end(|cookie| list_xattrs(&mut client, cookie, 200), cookie);
    assert_stable_listing(&page, &later, 0..60, 20..80);
    assert_eq!(list_xattrs(&mut client, 0, 20), Err(Status::TOOSMALL));
    assert_eq!(list_xattrs(&mut client, u64::MAX, 200), Ok((vec![], u64::MAX, true)));
}
