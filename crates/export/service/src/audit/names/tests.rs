use std::net::SocketAddr;

use vouch_nfs4_server::{ClientAccess, ClientMatcher, ExportId, NameChange};
use vouch_vfs::memory::MemoryFs;
use vouch_vfs::{Caller, FileSystem as _, NewNode, SetAttributes};

use super::*;

struct Nobody;

impl ClientMatcher for Nobody {
    fn access_for(&self, _: SocketAddr) -> Option<Arc<ClientAccess>> {
        None
    }
}

fn export(files: &Arc<MemoryFs>) -> Export {
    Export {
        id: ExportId(1),
        pseudo_path: vec![b"data".to_vec()],
        fsid: None,
        source: "/data".into(),
        file_system: files.clone(),
        sync: true,
        clients: Arc::new(Nobody),
        delegations: true,
        acls: true,
        xattrs: true,
        labels: false,
        uncacheable: false,
        quota: None,
        data_servers: Vec::new(),
        locations: Default::default(),
    }
}

fn id(number: u32) -> FileId {
    FileId::new(&[&[0xee; 16][..], &number.to_be_bytes()].concat()).unwrap()
}

fn renewed(before: &[Arc<[u8]>], after: &[Arc<[u8]>]) -> usize {
    before.iter().zip(after).filter(|(before, after)| !Arc::ptr_eq(before, after)).count()
}

const FEW: usize = 10;

#[test]
fn alternating_hard_links_invalidate_only_their_file() {
    let files = Arc::new(MemoryFs::new());
    let (export, names, root) =
        (export(&files), Names::seeded(7, MovedPaths::read(None)), files.root());
    names.learn(&export, &id(1), &root, b"d", &Rules::default(), LinkCertainty::No);
    for number in 2..1002 {
        names.learn(
            &export,
            &id(number),
            &id(1),
            format!("f{number}").as_bytes(),
            &Rules::default(),
            LinkCertainty::No,
        );
    }
    let all = || (1..1002).map(|number| names.path(&export, &id(number))).collect::<Vec<_>>();
    let before = all();
    assert_eq!(renewed(&before, &all()), 0);
    for _ in 0..1000 {
        names.learn(&export, &id(2), &id(1), b"one", &Rules::default(), LinkCertainty::No);
        names.learn(&export, &id(2), &id(1), b"another", &Rules::default(), LinkCertainty::No);
    }
    assert_eq!(&*names.path(&export, &id(2)), b"/data/d/another");
    let renewed = renewed(&before, &all());
    assert!((1..FEW).contains(&renewed), "{renewed} of 1001");
}

#[test]
fn rename_invalidates_paths_below_it_only() {
    let files = Arc::new(MemoryFs::new());
    let (export, names, root) =
        (export(&files), Names::seeded(7, MovedPaths::read(None)), files.root());
    for (directory, name) in [(1, &b"d"[..]), (2, b"e")] {
        names.learn(&export, &id(directory), &root, name, &Rules::default(), LinkCertainty::No);
        for number in 0..100 {
            names.learn(
                &export,
                &id(directory * 1000 + number),
                &id(directory),
                format!("f{number}").as_bytes(),
                &Rules::default(),
                LinkCertainty::No,
            );
        }
    }
    let of = |directory: u32| {
        (0..100)
            .map(|number| names.path(&export, &id(directory * 1000 + number)))
            .collect::<Vec<_>>()
    };
    let (d, e) = (of(1), of(2));
    names.renamed(
        &export,
        &id(1007),
        (&id(1), b"f7"),
        (&id(1), b"g"),
        b"/data/d/f7",
        &Rules::default(),
    );
    let after = of(1);
    assert_eq!(&*after[7], b"/data/d/g");
    assert!((1..FEW).contains(&renewed(&d, &after)) && renewed(&e, &of(2)) < FEW);
    let e = of(2);
    names.renamed(
        &export,
        &id(1),
        (&root, b"d"),
        (&id(2), b"below"),
        b"/data/d",
        &Rules::default(),
    );
    let moved = of(1);
    assert!(renewed(&after, &moved) == 100 && renewed(&e, &of(2)) < FEW);
    assert_eq!((&*moved[7], &*moved[8]), (&b"/data/e/below/g"[..], &b"/data/e/below/f8"[..]));
    names.renamed(&export, &id(2), (&root, b"e"), (&root, b"x"), b"/data/e", &Rules::default());
    assert_eq!((&*of(1)[7], &*of(2)[0]), (&b"/data/x/below/g"[..], &b"/data/x/f0"[..]));
}

#[test]
fn file_system_path_is_read_again_after_rename_above() {
    let files = Arc::new(MemoryFs::new());
    let (export, names, root) =
        (export(&files), Names::seeded(7, MovedPaths::read(None)), files.root());
    let caller = Caller::new(0, 0, []);
    let make = |directory: &FileId, name: &[u8]| {
        let name = vouch_vfs::Name::new(name).unwrap();
        files
            .make(&caller, directory, name, NewNode::Directory, &SetAttributes::default())
            .unwrap()
            .0
    };
    let a = make(&root, b"a");
    let b = make(&a, b"b");
    make(&root, b"other");
    let path = names.path(&export, &b);
    assert_eq!(&*path, b"/data/a/b");
    let rename = |old: &[u8], new: &[u8]| {
        let name = |name| vouch_vfs::Name::new(name).unwrap();
        files.rename(&caller, &root, name(old), &root, name(new), None).unwrap();
        let file = files.lookup(&caller, &root, name(new), Blocking::Allowed).unwrap().0;
        names.renamed(
            &export,
            &file,
            (&root, old),
            (&root, new),
            &[b"/data/", old].concat(),
            &Rules::default(),
        );
    };
    rename(b"other", b"others");
    assert!(Arc::ptr_eq(&path, &names.path(&export, &b)));
    rename(b"a", b"z");
    assert_eq!(&*names.path(&export, &b), b"/data/z/b");
}

#[test]
fn earlier_lookup_of_renamed_directory_follows_rename() {
    let files = Arc::new(MemoryFs::new());
    let (export, names, root) =
        (export(&files), Names::seeded(7, MovedPaths::read(None)), files.root());
    let (caller, name) = (Caller::new(0, 0, []), |name| vouch_vfs::Name::new(name).unwrap());
    let d = files
        .make(&caller, &root, name(b"d"), NewNode::Directory, &SetAttributes::default())
        .unwrap()
        .0;
    let change = |naming: NameChange<'_>| {
        drop(names.name_changed(&export, number::RENAME, &naming, &Rules::default()))
    };
    change(NameChange::Created(&d, (&root, b"d")));
    files.rename(&caller, &root, name(b"d"), &root, name(b"e"), None).unwrap();
    change(NameChange::Renamed(&d, (&root, b"d"), (&root, b"e")));
    change(NameChange::Created(&d, (&root, b"d")));
    assert_eq!(&*names.path(&export, &d), b"/data/e");
    files.rename(&caller, &root, name(b"e"), &root, name(b"g"), None).unwrap();
    change(NameChange::Created(&d, (&root, b"g")));
    assert_eq!(&*names.path(&export, &d), b"/data/g");
}

#[test]
fn too_deep_path_is_incomplete_and_dotted_name_is_complete() {
    let files = Arc::new(MemoryFs::new());
    let (export, names, root) =
        (export(&files), Names::seeded(7, MovedPaths::read(None)), files.root());
    names.learn(&export, &id(1), &root, b"secret", &Rules::default(), LinkCertainty::No);
    let deep = u32::try_from(DEPTH_MAX).unwrap() + 40;
    for number in 2..deep {
        names.learn(
            &export,
            &id(number),
            &id(number - 1),
            b"d",
            &Rules::default(),
            LinkCertainty::No,
        );
    }
    let path = |number: u32| names.path(&export, &id(number));
    assert!(path(200).starts_with(b"/data/secret/d/") && names.is_whole(&export, &id(200)));
    assert!(Rules::is_partial(&path(deep - 1)) && !names.is_whole(&export, &id(deep - 1)));
    names.learn(&export, &id(1000), &root, b"...", &Rules::default(), LinkCertainty::No);
    names.learn(&export, &id(1001), &id(1000), b"f", &Rules::default(), LinkCertainty::No);
    assert!(Rules::is_partial(&path(1001)) && names.is_whole(&export, &id(1001)));
}

#[test]
fn borrowed_name_is_found() {
    let files = Arc::new(MemoryFs::new());
    let (export, names, root) =
        (export(&files), Names::seeded(7, MovedPaths::read(None)), files.root());
    names.learn(&export, &id(1), &root, b"a", &Rules::default(), LinkCertainty::No);
    let file = |directory: &FileId, name: &[u8]| names.child(&export, directory, name);
    assert_eq!(
        (file(&root, b"a"), file(&root, b"b"), file(&id(1), b"a")),
        (Some(id(1)), None, None)
    );
}

#[test]
fn removed_name_leaves_other_name_or_none() {
    let files = Arc::new(MemoryFs::new());
    let (export, names, root) =
        (export(&files), Names::seeded(7, MovedPaths::read(None)), files.root());
    let change = |op, naming: NameChange<'_>| {
        drop(names.name_changed(&export, op, &naming, &Rules::default()))
    };
    let path = || names.path(&export, &id(1)).to_vec();
    change(number::CREATE, NameChange::Created(&id(1), (&root, b"a")));
    change(number::LINK, NameChange::Linked(&id(1), (&root, b"b")));
    assert_eq!(path(), b"/data/a");
    change(number::REMOVE, NameChange::Removed(&id(1), (&root, b"a")));
    assert_eq!(path(), b"/data/b");
    change(number::REMOVE, NameChange::Removed(&id(1), (&root, b"b")));
    assert_eq!(path(), b"");
}
