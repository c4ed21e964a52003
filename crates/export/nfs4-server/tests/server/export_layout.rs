use vouch_vfs::{FileSystem as _, NewNode, SetAttributes};

use crate::delegations::bind_backchannel;
use crate::prelude::*;

struct DenyAll;

impl ClientMatcher for DenyAll {
    fn access_for(&self, _: SocketAddr) -> Option<Arc<ClientAccess>> {
        None
    }
}

fn without_clients(export: Export) -> Export {
    Export { clients: Arc::new(DenyAll), ..export }
}

fn list_names(client: &mut Client<'_>, path: &[&str]) -> Vec<String> {
    let (_, list) = client.run_at(path, &[readdir(0, 8192, &[1, 8, 20])]);
    let [Results::Readdir(Ok(ok))] = &list[..] else { panic!("{path:?}: {list:?}") };
    ok.entries.iter().map(|entry| String::from_utf8_lossy(entry.name.0).into_owned()).collect()
}

fn make_directory(files: &MemoryFs, name: &str) {
    let (name, set) = (
        vouch_vfs::Name::new(name.as_bytes()).unwrap(),
        SetAttributes { mode: Some(0o755), ..SetAttributes::default() },
    );
    files.make(&Caller::root(), &files.root(), name, NewNode::Directory, &set).unwrap();
}

type Layout<'a> = &'a [(&'a [&'a str], &'a [&'a str], bool)];

fn with_layout(layout: Layout<'_>) -> Fixture {
    let exports = layout.iter().zip(1..).map(|((path, directories, is_accessible), id)| {
        let files = Arc::new(MemoryFs::new());
        directories.iter().for_each(|name| make_directory(&files, name));
        let export = export(id, path, &files, sys_access());
        if *is_accessible { export } else { without_clients(export) }
    });
    Fixture::with_exports(Arc::new(MemoryFs::new()), exports.collect())
}

const MISSING_DIRECTORY: Layout<'_> =
    &[(&["srv"], &[], true), (&["srv", "no", "such", "in"], &[], true)];

// RFC 8881 §7.3.
#[test]
fn pseudo_fs_leads_to_every_accessible_export() {
    type Case<'a> = (Layout<'a>, &'a [(&'a [&'a str], &'a [&'a str])], &'a [&'a [&'a str]]);
    let cases: [Case<'_>; 5] = [
        (
            &[
                (&["srv"], &["private", "x"], false),
                (&["srv", "y"], &[], false),
                (&["srv", "x", "in"], &[], true),
            ],
            &[(&[], &["srv"]), (&["srv"], &["x"]), (&["srv", "x"], &["in"])],
            &[&["srv", "private"], &["srv", "y"], &["srv", "x", "f"]],
        ),
        (
            &[(&["srv"], &["other", "x"], true), (&["srv", "x"], &[], true)],
            &[(&["srv"], &["other", "x"])],
            &[],
        ),
        (&[(&[], &[], false), (&["in"], &[], true)], &[(&[], &["in"])], &[]),
        (
            &[
                (&["a"], &["b"], true),
                (&["a", "b"], &["secret", "c"], false),
                (&["a", "b", "c"], &[], true),
            ],
            &[(&["a"], &["b"]), (&["a", "b"], &["c"])],
            &[&["a", "b", "secret"]],
        ),
        (MISSING_DIRECTORY, &[(&["srv", "no"], &["such"])], &[&["srv", "no", "other"]]),
    ];
    for (layout, names, missing) in cases {
        let fixture = with_layout(layout);
        let mut client = Client::new(&fixture, "one", 0);
        for (path, names) in names {
            assert_eq!(list_names(&mut client, path), *names, "{path:?}");
        }
        for path in missing {
            assert_eq!(client.status(path, &[]), Status::NOENT, "{path:?}");
        }
        let inner = layout[layout.len() - 1].0;
        assert_eq!(client.status(inner, &[open_by_name("f", Some(&mode(0o644)))]), Status::OK);
        for up in 0..=inner.len() {
            let parent = client.filehandle(&inner[..inner.len() - up], &[]);
            assert_eq!(client.filehandle(inner, &vec![Args::Lookupp; up]), parent, "{inner:?}");
        }
    }
}

#[test]
fn export_without_directory_in_outer_export_is_reported() {
    assert_eq!(
        with_layout(MISSING_DIRECTORY).server.exports_without_directory(),
        [("memory 2".into(), "memory 1".into())]
    );
}

fn open_file(client: &mut Client<'_>, path: &[&str], attrs: bool) -> Stateid {
    let mode = mode(0o644);
    let (_, list) = client.run_at(path, &[open_by_name("f", attrs.then_some(&mode))]);
    let [Results::Open(Ok(ok))] = &list[..] else { panic!("{list:?}") };
    ok.stateid
}

#[test]
fn exports_of_one_directory_share_locks_and_files() {
    let files = Arc::new(MemoryFs::new());
    let fixture = Fixture::with_exports(
        files.clone(),
        vec![export(1, &["a"], &files, sys_access()), export(2, &["b"], &files, sys_access())],
    );
    let [mut one, mut two] = fixture.clients(["one", "two"]);
    let through_a = open_file(&mut one, &["a"], true);
    let through_b = open_file(&mut two, &["b"], false);
    assert_eq!(one.status(&["a", "f"], &[lock(through_a, 0, 10)]), Status::OK);
    assert_eq!(two.status(&["b", "f"], &[lock(through_b, 0, 10)]), Status::DENIED);
    assert_ne!(one.filehandle(&["a", "f"], &[]), one.filehandle(&["b", "f"], &[]));
    let write = |stateid| write_stable(stateid, 0, b"x");
    assert_eq!(one.status(&["b", "f"], &[write(through_a)]), Status::BAD_STATEID);
    assert_eq!(one.status(&["a", "f"], &[write(through_a)]), Status::OK);
    assert_eq!(two.status(&["b"], &[remove("f")]), Status::OK);
    assert_eq!(one.status(&["a", "f"], &[]), Status::NOENT);
}

#[test]
fn open_through_other_export_recalls_delegation() {
    let files = Arc::new(MemoryFs::new());
    let fixture = Fixture::with_exports(
        files.clone(),
        vec![export(7, &["export"], &files, sys_access()), export(2, &["b"], &files, sys_access())],
    );
    let [mut one, mut two] = fixture.clients(["one", "two"]);
    bind_backchannel(&one);
    let (_, _, delegation) = crate::delegations::open_with_want(
        &mut one,
        op::ShareAccess::WANT_WRITE_DELEG,
        Some(&mode(0o644)),
    );
    assert!(matches!(delegation, op::Delegation::Write(_)), "{delegation:?}");
    assert_eq!(two.status(&["b"], &[open_by_name("f", None)]), Status::DELAY);
}

#[test]
fn replacing_export_ends_opens_and_makes_handles_stale() {
    let (before, after) = (Arc::new(MemoryFs::new()), Arc::new(MemoryFs::new()));
    let fixture = Fixture::with_exports(
        before.clone(),
        vec![export(1, &["a"], &before, sys_access()), export(2, &["b"], &before, sys_access())],
    );
    let mut one = Client::new(&fixture, "one", 0);
    let (through_a, through_b) =
        (open_file(&mut one, &["a"], true), open_file(&mut one, &["b"], false));
    let [old_a, old_b] = ["a", "b"].map(|name| one.filehandle(&[name, "f"], &[]));
    assert_eq!(before.open_count(), 2);
    let export_again = |files: &Arc<MemoryFs>, id| {
        export(id, &[if id == 1 { "a" } else { "b" }], files, sys_access())
    };
    fixture.replace_exports([export_again(&before, 1), export_again(&before, 2)]);
    assert_eq!(before.open_count(), 2);
    fixture.replace_exports([export_again(&after, 1)]);
    assert_eq!(before.open_count(), 0, "the old directory has no open files");
    let read = |handle: &Filehandle, stateid| [putfh(*handle), read(stateid, 0, 1)];
    let (status, _) = one.run(&read(&old_a, through_a));
    assert!(
        matches!(status, Status::STALE | Status::BADHANDLE | Status::ADMIN_REVOKED),
        "{status:?}"
    );
    assert_eq!(one.run(&read(&old_b, through_b)).0, Status::STALE);
    assert_eq!(fixture.server.status(fixture.now()).clients[0].opens, 0);
    assert_eq!(one.status(&["a"], &[getattr(&[1])]), Status::OK);
}
