//! Lists that go on while what they list comes and goes (RFC 8881, section 18.23; RFC 8276, section
//! 8.4.3).

use std::collections::BTreeSet;
use std::sync::Arc;

use vouch_nfs4::op::{self, Args, Results};
use vouch_nfs4::{Bytes, Cookie, Name, Status, Verifier};
use vouch_nfs4_server::{Export, Exports};

use crate::world::{Client, MemoryFs, World, access, export};

/// One page: names, the last cookie, and whether it is the end.
type Page = (Vec<String>, u64, bool);

fn readdir(client: &mut Client<'_>, path: &[&str], cookie: u64, max_count: u32) -> Result<Page, Status> {
    let wanted = vouch_nfs4::Bitmap::of(&[20]);
    let args = op::ReaddirArgs { cookie: Cookie(cookie), verifier: Verifier([0; 8]), dir_count: 0, max_count, wanted };
    match &client.at(path, &[Args::Readdir(args)]).1[..] {
        [Results::Readdir(Ok(ok))] => {
            let names = ok.entries.iter().map(|entry| String::from_utf8(entry.name.0.to_vec()).unwrap()).collect();
            Ok((names, ok.entries.iter().last().map_or(cookie, |entry| entry.cookie.0), ok.eof))
        }
        list => Err(list.last().map_or(Status::SERVERFAULT, Results::status)),
    }
}

fn listxattrs(client: &mut Client<'_>, cookie: u64, max_count: u32) -> Result<Page, Status> {
    match &client.at(&["export", "f"], &[Args::Listxattrs(op::ListxattrsArgs { cookie: Cookie(cookie), max_count })]).1[..] {
        [Results::Listxattrs(Ok(ok))] => {
            let names = ok.names.iter().map(|name| String::from_utf8(name.0.to_vec()).unwrap()).collect();
            Ok((names, ok.cookie.0, ok.eof))
        }
        list => Err(list.last().map_or(Status::SERVERFAULT, Results::status)),
    }
}

/// Lists from a cookie to the end.
fn rest(mut page: impl FnMut(u64) -> Result<Page, Status>, mut cookie: u64) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        let (names, next, eof) = page(cookie).unwrap();
        assert!(eof || !names.is_empty(), "it goes on");
        all.extend(names);
        cookie = next;
        if eof {
            return all;
        }
    }
}

fn name(number: u32) -> String {
    format!("name{number:03}")
}

/// What is listed after a page, of names of which some are gone since and others have come: each
/// that stayed once, none of the page again.
fn check(page: &[String], rest: &[String], before: std::ops::Range<u32>, after: std::ops::Range<u32>) {
    let all: Vec<&String> = page.iter().chain(rest).collect();
    let set: BTreeSet<&String> = all.iter().copied().collect();
    assert_eq!(all.len(), set.len(), "nothing is told twice");
    let stayed = before.start.max(after.start)..before.end.min(after.end);
    assert!(stayed.clone().all(|number| set.contains(&name(number))), "nothing that stayed is left out");
    let known: BTreeSet<String> = before.chain(after.clone()).map(name).collect();
    assert!(set.iter().all(|name| known.contains(*name)), "nothing is made up");
    assert!(rest.iter().all(|one| after.clone().any(|number| *one == name(number))), "nor told after it has gone");
}

fn exports(files: &Arc<MemoryFs>, range: std::ops::Range<u32>) -> Vec<Export> {
    range.map(|number| export(number + 1, &["srv", &name(number)], files, access())).collect()
}

#[test]
fn a_listing_of_exports_goes_on_over_a_reload() {
    let files = Arc::new(MemoryFs::new());
    let world = World::with(files.clone(), exports(&files, 0..60));
    let mut client = Client::new(&world, "one", 0);
    assert_eq!(readdir(&mut client, &["srv"], 0, 16), Err(Status::TOOSMALL));
    for room in [120, 500, 1000] {
        for (before, after) in [(0..60, 20..60), (20..60, 0..60), (0..60, 10..90), (10..90, 0..60)] {
            let _ = world.server.replace_exports(Exports::new(exports(&files, before.clone())).unwrap());
            let (page, cookie, eof) = readdir(&mut client, &["srv"], 0, room).unwrap();
            assert!(!eof && !page.is_empty());
            let _ = world.server.replace_exports(Exports::new(exports(&files, after.clone())).unwrap());
            let rest = rest(|cookie| readdir(&mut client, &["srv"], cookie, room), cookie);
            check(&page, &rest, before, after);
        }
    }
    // Past all that there is.
    assert_eq!(readdir(&mut client, &["srv"], u64::MAX, 1000), Ok((vec![], u64::MAX, true)));
    assert_eq!(readdir(&mut client, &["srv"], 2, 1000), Err(Status::BAD_COOKIE));
}

#[test]
fn a_listing_of_exports_goes_on_over_a_restart() {
    let files = Arc::new(MemoryFs::new());
    let world = World::with(files.clone(), exports(&files, 0..60));
    let (page, cookie, _) = readdir(&mut Client::new(&world, "one", 0), &["srv"], 0, 1000).unwrap();
    let world = world.restarted_with(exports(&files, 30..90));
    let mut client = Client::new(&world, "one", 0);
    check(&page, &rest(|cookie| readdir(&mut client, &["srv"], cookie, 1000), cookie), 0..60, 30..90);
}

#[test]
fn a_listing_of_xattrs_goes_on_while_they_come_and_go() {
    let world = World::new();
    let mut client = Client::new(&world, "one", 0);
    client.create("f");
    let change = |client: &mut Client<'_>, number: u32, there: bool| {
        let name = name(number);
        let option = op::SetxattrOption::Either;
        let one = match there {
            true => Args::Setxattr(op::SetxattrArgs { option, name: Name(name.as_bytes()), value: Bytes(b"value") }),
            false => Args::Removexattr(op::RemovexattrArgs { name: Name(name.as_bytes()) }),
        };
        assert_eq!(client.status(&["export", "f"], &[one]), Status::OK);
    };
    assert_eq!(listxattrs(&mut client, 0, 100), Ok((vec![], 0, true)));
    (0..60).for_each(|number| change(&mut client, number, true));
    let (page, cookie, eof) = listxattrs(&mut client, 0, 200).unwrap();
    assert!(!eof && !page.is_empty());
    (0..20).for_each(|number| change(&mut client, number, false));
    (60..80).for_each(|number| change(&mut client, number, true));
    let rest_of = rest(|cookie| listxattrs(&mut client, cookie, 200), cookie);
    check(&page, &rest_of, 0..60, 20..80);
    assert_eq!(listxattrs(&mut client, 0, 20), Err(Status::TOOSMALL));
    assert_eq!(listxattrs(&mut client, u64::MAX, 200), Ok((vec![], u64::MAX, true)));
}
