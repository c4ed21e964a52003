//! A real CephFS, mounted by ceph-fuse.

use std::path::Path;
use std::sync::Arc;

use vouch_vfs::{
    AccessOverride, Blocking, Caller, Error, FileId, FileSystem, OpenAccess, ReadInto,
};
use vouch_vfs_posix::{IdStore, Options, SnapshotFs, SnapshotOptions};

use crate::fixture::{Short as _, alone, content, export, named, put, refused, run, with_names};
use crate::rules::{check_but, check_rules, plain};
use vouch_testkit::cephfs_cluster::{Cluster, Mounted, PROGRAMS};

const EXCEPTIONS: [&str; 2] = [
    // CephFS stores no times before 1970.
    "times_are_stored_exactly",
    // ceph-fuse shows the times that it has set on a directory until it returns their capability.
    "new_names_update_times_of_directory",
];

const ACL_OPTIONS: [&str; 2] = ["--client_acl_type=posix_acl", "--fuse_default_permissions=false"];
const ACL_RULES: [&str; 3] =
    ["acls_are_stored_and_enforced", "default_acls_are_inherited", "minimal_acl_equals_mode"];

#[test]
#[ignore = "needs root and Ceph"]
fn conforms_on_cephfs() {
    alone("cephfs::conforms_on_cephfs", &PROGRAMS, |above| {
        let cluster = Cluster::start();
        let root = above.join("root");
        let _mounted = cluster.mount(&root);
        check_but(&EXCEPTIONS, &root, plain);
        let root = above.join("acls");
        let _mounted = cluster.mount_with(&root, &ACL_OPTIONS);
        assert!(
            export(&root, Options::default()).traits().acls,
            "ceph-fuse has no ACLs with {ACL_OPTIONS:?}"
        );
        let below = root.join("with ACLs");
        std::fs::create_dir(&below).expect("a directory");
        check_rules(ACL_RULES, &below, plain);
    });
}

/// Two mounts stand for two machines.
#[test]
#[ignore = "needs root and Ceph"]
fn identities_hold_on_every_mount() {
    alone("cephfs::identities_hold_on_every_mount", &PROGRAMS, |above| {
        let mut cluster = Cluster::start();
        let [one, two] = ["one", "two"].map(|name| above.join(name));
        let (mounted, _other) = (cluster.mount(&one), cluster.mount(&two));
        let root = Caller::root();
        let first = export(&one, Options::default());
        let directory = first
            .new_directory(&root, &first.root(), "directory", 0o755)
            .expect("creation succeeds");
        let made = first.new_file(&root, &directory, "file", 0o644).expect("creation succeeds");
        put(&*made.open, 0, b"text").expect("writing succeeds");
        let second = export(&two, Options::default());
        assert_eq!(second.root(), first.root());
        for id in [directory, made.id] {
            assert_eq!(
                second.attributes_of(&id).expect("the file exists").file_number,
                first.attributes_of(&id).expect("it exists").file_number
            );
        }
        let read = |fs: &dyn FileSystem| {
            content(
                &*fs.open(&root, &made.id, READ, AccessOverride::None, Blocking::Allowed)
                    .expect("an open file"),
            )
        };
        assert_eq!(read(&second), b"text");
        first
            .rename(&root, &directory, named("file"), &first.root(), named("moved"), None)
            .expect("renaming succeeds");
        drop((first, made.open));
        drop(mounted);
        cluster.restart_mds();
        let _mounted = cluster.mount(&one);
        let first = export(&one, Options::default());
        assert_eq!(read(&first), b"text", "after a new mount and a restart of the MDS");
        second.remove(&root, &second.root(), named("moved"), None).expect("the removal succeeds");
        refused!(first.attributes_of(&made.id), Stale);
    });
}

const READ: OpenAccess = OpenAccess { read: true, write: false };

fn with_snapshots(point: &Path, store: &Path) -> SnapshotFs {
    let ids = Some(Arc::new(IdStore::open(store).expect("a store")));
    let live = export(point, Options { ids, ..Options::default() });
    SnapshotFs::open(live, SnapshotOptions { pattern: None, is_visible: false })
        .unwrap_or_else(|error| panic!("{error}"))
}

fn find(fs: &SnapshotFs, path: &[&str]) -> Result<FileId, Error> {
    path.iter().try_fold(fs.root(), |id, name| Ok(fs.find(&Caller::root(), &id, name)?.0))
}

fn read(fs: &SnapshotFs, id: &FileId) -> Result<Vec<u8>, Error> {
    let file = fs.open(&Caller::root(), id, READ, AccessOverride::None, Blocking::Allowed)?;
    let mut bytes = Vec::new();
    file.read(0, 100, ReadInto { bytes: &mut bytes, span_allowed: false }, Blocking::Allowed)?;
    Ok(bytes)
}

/// ceph-fuse numbers snapshots in the order of their first use, which differs here.
#[test]
#[ignore = "needs root and Ceph"]
fn snapshots_keep_their_identities_on_every_mount() {
    alone("cephfs::snapshots_keep_their_identities_on_every_mount", &PROGRAMS, |above| {
        let cluster = Cluster::start();
        let point = above.join("root");
        let store = above.join("names");
        let mounted = cluster.mount(&point);
        std::fs::create_dir_all(point.join("directory")).expect("a directory");
        for name in ["first", "second"] {
            std::fs::write(point.join("directory/file"), name).expect("a file");
            std::fs::create_dir(point.join(".snap").join(name)).expect("a snapshot");
        }
        let names = ["second", "first"];
        let paths = names.map(|name| [".snapshot", name, "directory", "file"]);
        let fs = with_snapshots(&point, &store);
        let ids = paths.each_ref().map(|path| find(&fs, path).expect("a file in a snapshot"));
        let number = |fs: &SnapshotFs, id: &FileId| {
            fs.attributes_of(id).expect("the file exists").file_number
        };
        let numbers = ids.each_ref().map(|id| number(&fs, id));
        names
            .iter()
            .zip(&ids)
            .for_each(|(name, id)| assert_eq!(read(&fs, id).expect("readable"), name.as_bytes()));
        remount(&cluster, &point, (mounted, fs), |_mounted| {
            std::fs::metadata(point.join(".snap/first")).expect("first used in the other order");
            let fs = with_snapshots(&point, &store);
            for (at, name) in names.iter().enumerate() {
                assert_eq!(
                    read(&fs, &ids[at]).expect("readable after a new mount"),
                    name.as_bytes()
                );
                assert_eq!(number(&fs, &ids[at]), numbers[at]);
                assert_eq!(find(&fs, &paths[at]).expect("a file in a snapshot"), ids[at]);
            }
            std::fs::remove_dir(point.join(".snap/second")).expect("the snapshot is removed");
            fs.maintain();
            refused!(read(&fs, &ids[0]), Stale);
            assert_eq!(read(&fs, &ids[1]).expect("the other one stays"), b"first");
        });
    });
}

fn remount(
    cluster: &Cluster,
    point: &Path,
    (mounted, fs): (Mounted, SnapshotFs),
    then: impl FnOnce(&Mounted),
) {
    drop(fs);
    drop(mounted);
    then(&cluster.mount(point));
}

#[test]
#[ignore = "needs root and Ceph"]
fn quota_is_reported_as_such_and_missing_features_are_named() {
    alone("cephfs::quota_is_reported_as_such_and_missing_features_are_named", &PROGRAMS, |above| {
        let cluster = Cluster::start();
        let root = above.join("root");
        let _mounted = cluster.mount(&root);
        let fs = export(&root, with_names(&above.join("names")));
        let missing = fs.missing_features();
        assert!(matches!(&missing[..], [acls] if acls.contains("ACLs")), "{missing:?}");
        let small = fs
            .new_directory(&Caller::root(), &fs.root(), "small", 0o755)
            .expect("creation succeeds");
        run(
            "setfattr",
            ["-n", "ceph.quota.max_bytes", "-v", "1000000", &root.join("small").to_string_lossy()],
        )
        .expect("a quota");
        let made = fs.new_file(&Caller::root(), &small, "file", 0o600).expect("creation succeeds");
        let full = (0..1000).find_map(|block| put(&*made.open, block << 20, &[7; 1 << 20]).err());
        assert!(matches!(full, Some(Error::Quota)), "{full:?}");
    });
}

#[test]
#[ignore = "needs root and Ceph"]
fn cached_pages_are_read_at_once_but_not_the_end_of_a_file() {
    alone("cephfs::cached_pages_are_read_at_once_but_not_the_end_of_a_file", &PROGRAMS, |above| {
        let cluster = Cluster::start();
        let root = above.join("root");
        let mounted = cluster.mount(&root);
        let fs = export(&root, with_names(&above.join("names")));
        std::fs::write(root.join("file"), [5; 3 * 4096]).expect("a file");
        let id = fs.find(&Caller::root(), &fs.root(), "file").expect("the file exists").0;
        let open = fs
            .open(&Caller::root(), &id, READ, AccessOverride::None, Blocking::Allowed)
            .expect("readable");
        let read = |offset, len, blocking| {
            let mut bytes = Vec::new();
            open.read(offset, len, ReadInto { bytes: &mut bytes, span_allowed: false }, blocking)
                .map(|_| bytes)
        };
        assert_eq!(read(0, 3 * 4096, Blocking::Allowed).expect("readable"), [5; 3 * 4096]);
        let paused = cluster.mds().pause();
        assert_eq!(
            read(0, 2 * 4096, Blocking::Forbidden).expect("in the page cache"),
            [5; 2 * 4096]
        );
        // Another client may have made the file longer.
        for (offset, len) in [(2 * 4096, 4096), (3 * 4096, 1)] {
            refused!(read(offset, len, Blocking::Forbidden), WouldBlock);
        }
        drop(paused);
        drop((open, fs, mounted));
    });
}
