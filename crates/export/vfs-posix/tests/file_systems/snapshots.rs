//! `.snapshot` over lists of directories.

use std::ops::ControlFlow;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use tempfile::TempDir;
use vouch_vfs::{
    Access, Attributes, Blocking, Caller, CreateHow, Error, FileId, FileSystem as _, NewNode,
    OpenFile, PosixAcl, PosixAclKind, SetAttributes, SystemId, XattrHow,
};
use vouch_vfs_posix::{
    IdStore, Options, PosixFs, SnapshotFs, SnapshotOptions, SnapshotPattern, can_serve_others,
    leave_callers,
};

use crate::fixture::{BOTH, Short as _, content, named, refused, users};

pub(crate) struct Site {
    above: TempDir,
    pub(crate) pattern: String,
    is_visible: bool,
}

impl Site {
    /// `live/dir/file` is newer than in the snapshots `one` and `two`.
    pub(crate) fn new() -> Self {
        let above = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        let pattern = above.path().join("snapshots").to_str().expect("UTF-8").to_owned();
        let site = Site { above, pattern, is_visible: false };
        for (root, text) in
            [("live", "live"), ("snapshots/one", "first"), ("snapshots/two", "second")]
        {
            site.write(&format!("{root}/dir/sub/file"), text);
            site.write(&format!("{root}/top"), text);
        }
        site.write("live/new/file", "made after the snapshots");
        site
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.above.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a name below")).expect("directories");
        std::fs::write(path, text).expect("a file");
    }

    pub(crate) fn open(&self) -> SnapshotFs {
        leave_callers().expect("switching back succeeds");
        let ids = (!can_serve_others())
            .then(|| Arc::new(IdStore::open(&self.path("ids")).expect("a store")));
        open_at(
            &self.path("live"),
            Options { ids, ..Options::default() },
            &self.pattern,
            self.is_visible,
        )
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = leave_callers();
    }
}

pub(crate) fn open_at(
    live: &Path,
    options: Options,
    pattern: &str,
    is_visible: bool,
) -> SnapshotFs {
    leave_callers().expect("switching back succeeds");
    let live = PosixFs::open(live, options).unwrap_or_else(|error| panic!("{error}"));
    let pattern = SnapshotPattern::parse(pattern);
    SnapshotFs::open(live, SnapshotOptions { pattern, is_visible })
        .unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn me() -> Caller {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Caller::new(
        uid,
        gid,
        rustix::process::getgroups()
            .expect("its own groups")
            .into_iter()
            .map(rustix::process::Gid::as_raw),
    )
}

fn walk_as(fs: &SnapshotFs, who: &Caller, path: &str) -> Result<(FileId, Attributes), Error> {
    let mut found = (fs.root(), fs.attributes_of(&fs.root())?);
    for name in path.split('/').filter(|name| !name.is_empty()) {
        found = fs.find(who, &found.0, name)?;
    }
    Ok(found)
}

pub(crate) fn walk(fs: &SnapshotFs, path: &str) -> (FileId, Attributes) {
    walk_as(fs, &me(), path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

pub(crate) fn open_to_read(fs: &SnapshotFs, id: &FileId) -> Arc<dyn OpenFile> {
    let access = vouch_vfs::OpenAccess { read: true, write: false };
    fs.open(&me(), id, access, vouch_vfs::AccessOverride::None, Blocking::Allowed)
        .expect("the file can be read")
}

pub(crate) fn read(fs: &SnapshotFs, id: &FileId) -> Vec<u8> {
    content(&*open_to_read(fs, id))
}

fn names_as(fs: &SnapshotFs, who: &Caller, directory: &FileId) -> Result<Vec<String>, Error> {
    let (mut names, mut cookie) = (Vec::new(), 0);
    loop {
        // One entry at a time, so that each cookie is used.
        let mut one = None;
        let end =
            fs.read_directory(who, directory, cookie, true, Blocking::Allowed, &mut |entry| {
                if one.is_some() {
                    return ControlFlow::Break(());
                }
                entry.file.expect("asked for").expect("a listed file has attributes");
                one = Some((entry.cookie, String::from_utf8_lossy(entry.name).into_owned()));
                ControlFlow::Continue(())
            })?;
        if let Some((at, name)) = one {
            names.push(name);
            cookie = at;
        }
        if end {
            names.sort();
            return Ok(names);
        }
    }
}

pub(crate) fn names(fs: &SnapshotFs, path: &str) -> Vec<String> {
    names_as(fs, &me(), &walk(fs, path).0).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn each_directory_shows_itself_in_each_snapshot() {
    let site = Site::new();
    let fs = site.open();
    for (snapshot, text) in [("one", "first"), ("two", "second")] {
        for path in [
            format!(".snapshot/{snapshot}/dir/sub/file"),
            format!("dir/.snapshot/{snapshot}/sub/file"),
            format!("dir/sub/.snapshot/{snapshot}/file"),
        ] {
            assert_eq!(read(&fs, &walk(&fs, &path).0), text.as_bytes(), "{path}");
        }
    }
    for path in [".snapshot", "dir/.snapshot", "dir/sub/.snapshot"] {
        assert_eq!(names(&fs, path), ["one", "two"]);
    }
    // Made after the snapshots.
    assert_eq!(names(&fs, "new/.snapshot"), [""; 0]);
    refused!(walk_as(&fs, &me(), "new/.snapshot/one"), NotFound);
    // No file has it, nor a directory within a snapshot.
    refused!(walk_as(&fs, &me(), "top/.snapshot"), NotDirectory);
    refused!(walk_as(&fs, &me(), ".snapshot/one/.snapshot"), NotFound);
    refused!(walk_as(&fs, &me(), ".snapshot/none"), NotFound);
    assert_eq!(names(&fs, ".snapshot/one"), ["dir", "top"]);
    assert_eq!(
        fs.path(&walk(&fs, "dir/.snapshot/one/sub/file").0).expect("known"),
        b".snapshot/one/dir/sub/file"
    );
    assert_eq!(fs.path(&walk(&fs, "dir/.snapshot").0).expect("known"), b"dir/.snapshot");
}

#[test]
fn snapshot_directory_is_listed_only_on_request() {
    let mut site = Site::new();
    let fs = site.open();
    assert_eq!(names(&fs, ""), ["dir", "new", "top"]);
    drop(fs);
    site.is_visible = true;
    let fs = site.open();
    assert_eq!(names(&fs, ""), [".snapshot", "dir", "new", "top"]);
    assert_eq!(names(&fs, "dir"), ["sub"]);
}

/// RFC 8881, section 5.8.2.19, and section 11.3.1: another file system begins in the snapshot.
#[test]
fn each_snapshot_is_a_file_system_of_its_own() {
    let site = Site::new();
    let fs = site.open();
    let at_live = walk(&fs, "dir").1;
    let (list, at_list) = walk(&fs, "dir/.snapshot");
    assert_eq!((at_list.fsid, at_list.mode & 0o222), (at_live.fsid, 0));
    assert_ne!(at_list.file_number, at_live.file_number);
    assert_eq!(fs.listing_system(&list), Some(fs.home(&list).system), "it opens every snapshot");
    assert_eq!(fs.listing_system(&walk(&fs, "dir").0), None);
    let (one, at_one) = walk(&fs, "dir/.snapshot/one");
    let (_, at_two) = walk(&fs, "dir/.snapshot/two");
    assert!(at_one.fsid != at_two.fsid && at_one.fsid != at_live.fsid);
    assert_eq!(walk(&fs, ".snapshot/one/dir/sub/file").1.fsid, at_one.fsid);
    // The mount point is no file that the client knows.
    let mounted_on = fs.mounted_on(&one, &at_one);
    assert!(![at_one.file_number, at_live.file_number, at_list.file_number].contains(&mounted_on));
    let (below, at_below) = walk(&fs, ".snapshot/one/dir");
    assert_eq!(
        (at_below.file_number, fs.mounted_on(&below, &at_below)),
        (at_one.file_number, at_below.file_number)
    );
    assert_eq!(fs.parent(&me(), &list, Blocking::Allowed).expect("a parent"), walk(&fs, "dir").0);
    let top = walk(&fs, ".snapshot/one").0;
    assert_eq!(
        fs.parent(&me(), &top, Blocking::Allowed).expect("a parent"),
        walk(&fs, ".snapshot").0
    );
    let sub = walk(&fs, ".snapshot/one/dir/sub").0;
    assert_eq!(fs.parent(&me(), &sub, Blocking::Allowed).expect("a parent"), below);
}

#[test]
fn identities_survive_restarts_and_renamed_snapshots() {
    let site = Site::new();
    let fs = site.open();
    let paths = [
        ".snapshot",
        "dir/.snapshot",
        "dir/.snapshot/one",
        ".snapshot/one/dir/sub/file",
        "dir/sub/file",
    ];
    let ids = paths.map(|path| walk(&fs, path).0);
    drop(fs);
    let fs = site.open();
    for (path, id) in paths.iter().zip(&ids) {
        fs.attributes_of(id).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(walk(&fs, path).0, *id, "{path}");
    }
    assert_eq!(read(&fs, &ids[3]), b"first");
    std::fs::rename(site.path("snapshots/one"), site.path("snapshots/older")).expect("renamed");
    std::fs::rename(site.path("snapshots/two"), site.path("snapshots/one")).expect("renamed");
    if can_serve_others() {
        fs.maintain();
        assert_eq!(read(&fs, &ids[3]), b"first");
        assert_eq!(walk(&fs, ".snapshot/older/dir/sub/file").0, ids[3]);
    }
    assert_eq!(read(&fs, &walk(&fs, ".snapshot/one/dir/sub/file").0), b"second");
}

#[test]
fn only_files_of_removed_snapshot_are_stale() {
    let site = Site::new();
    let fs = site.open();
    let ids = |of: &str| {
        [
            walk(&fs, &format!("dir/.snapshot/{of}")).0,
            walk(&fs, &format!(".snapshot/{of}/dir/sub/file")).0,
        ]
    };
    let (one, two) = (ids("one"), ids("two"));
    let (list, before) = walk(&fs, ".snapshot");
    std::fs::remove_dir_all(site.path("snapshots/one")).expect("removed");
    fs.maintain();
    for id in one {
        refused!(fs.attributes_of(&id), Stale);
        assert_eq!(fs.home(&id).system, SystemId::UNKNOWN);
        fs.attributes_of(&two[0]).expect("the other snapshot is there");
    }
    assert_eq!(read(&fs, &two[1]), b"second");
    let without = fs.attributes_of(&list).expect("the list is there").change;
    assert!(without > before.change, "the list has changed");
    assert_eq!(names(&fs, ".snapshot"), ["two"]);
    // Another snapshot of that name appears without a restart, and does not answer for the earlier.
    site.write("snapshots/one/dir/sub/file", "third");
    assert_eq!(names(&fs, "dir/.snapshot"), ["one", "two"]);
    assert!(
        fs.attributes_of(&list).expect("the list is there").change > without,
        "the list has changed"
    );
    assert_eq!(read(&fs, &walk(&fs, "dir/.snapshot/one/sub/file").0), b"third");
    for id in one {
        refused!(fs.attributes_of(&id), Stale);
    }
    // Without the directory, no snapshots are left.
    std::fs::remove_dir_all(site.path("snapshots")).expect("removed");
    fs.maintain();
    assert_eq!(names(&fs, ".snapshot"), [""; 0]);
    refused!(fs.attributes_of(&two[1]), Stale);
}

#[test]
fn open_files_of_removed_snapshot_are_noticed() {
    let site = Site::new();
    let fs = site.open();
    let [one, two] =
        ["one", "two"].map(|name| walk(&fs, &format!(".snapshot/{name}/dir/sub/file")).0);
    let (of_one, of_two) = (open_to_read(&fs, &one), open_to_read(&fs, &two));
    let home = fs.home(&one);
    fs.maintain();
    assert!(!fs.has_removed_files() && !fs.is_removed(&one));
    if can_serve_others() {
        std::fs::rename(site.path("snapshots/one"), site.path("snapshots/renamed"))
            .expect("renamed");
        fs.maintain();
        assert!(!fs.has_removed_files() && !fs.is_removed(&one));
        std::fs::rename(site.path("snapshots/renamed"), site.path("snapshots/one"))
            .expect("renamed");
    }
    std::fs::rename(site.path("snapshots/one"), site.path("elsewhere")).expect("renamed");
    fs.maintain();
    assert!(!fs.has_removed_files(), "it may be a rename in progress");
    fs.maintain();
    assert!(fs.has_removed_files() && fs.is_removed(&one) && !fs.is_removed(&two));
    // Its state is found, so that a client can close it.
    assert_eq!(fs.home(&one), home);
    refused!(fs.attributes_of(&one), Stale);
    // It comes back.
    std::fs::rename(site.path("elsewhere"), site.path("snapshots/one")).expect("renamed");
    fs.maintain();
    assert!(!fs.has_removed_files() && !fs.is_removed(&one));
    std::fs::remove_dir_all(site.path("snapshots/one")).expect("removed");
    maintain_twice(&fs);
    assert!(fs.has_removed_files() && fs.is_removed(&one));
    drop(of_one);
    assert!(!fs.has_removed_files(), "its last file is closed");
    assert_eq!(fs.home(&one).system, SystemId::UNKNOWN);
    assert_eq!(content(&*of_two), b"second");
}

/// A removal is certain when it is seen twice.
pub(crate) fn maintain_twice(fs: &SnapshotFs) {
    fs.maintain();
    fs.maintain();
}

#[test]
fn snapshot_that_is_missing_once_is_not_removed() {
    let site = Site::new();
    let fs = site.open();
    let one = walk(&fs, ".snapshot/one/dir/sub/file").0;
    let open = open_to_read(&fs, &one);
    for _ in 0..3 {
        std::fs::rename(site.path("snapshots"), site.path("elsewhere")).expect("renamed");
        fs.maintain();
        std::fs::rename(site.path("elsewhere"), site.path("snapshots")).expect("renamed");
        fs.maintain();
        assert!(!fs.has_removed_files() && !fs.is_removed(&one));
    }
    assert_eq!(content(&*open), b"first");
}

/// The directory can be listed, but each look-up in it fails.
#[test]
fn failed_look_up_is_no_removal() {
    let site = Site::new();
    let fs = site.open();
    let one = walk(&fs, ".snapshot/one/dir/sub/file").0;
    let open = open_to_read(&fs, &one);
    leave_callers().expect("switching back succeeds");
    let set_mode = |mode| {
        std::fs::set_permissions(site.path("snapshots"), PermissionsExt::from_mode(mode))
            .expect("its owner may")
    };
    set_mode(0o400);
    // Capabilities belong to a thread.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut own = capabilities(None).expect("its own");
            let over_modes = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
            own.effective.remove(over_modes);
            own.permitted.remove(over_modes);
            set_capabilities(None, own).expect("a thread may drop its own");
            let refused = std::fs::metadata(site.path("snapshots/one"))
                .expect_err("searching is refused")
                .kind();
            assert_eq!(refused, std::io::ErrorKind::PermissionDenied);
            (0..3).for_each(|_| fs.maintain());
        });
    });
    set_mode(0o700);
    assert!(!fs.has_removed_files() && !fs.is_removed(&one));
    assert_eq!(content(&*open), b"first");
    assert_eq!(walk(&fs, ".snapshot/one/dir/sub/file").0, one);
}

#[test]
fn snapshot_missing_in_list_that_is_cut_is_not_removed() {
    const LISTED_MAX: usize = 4096;
    let site = Site::new();
    let fs = site.open();
    let one = walk(&fs, ".snapshot/one/dir/sub/file").0;
    let open = open_to_read(&fs, &one);
    leave_callers().expect("switching back succeeds");
    let others: Vec<PathBuf> =
        (0..LISTED_MAX).map(|other| site.path(&format!("snapshots/other-{other}"))).collect();
    others.iter().for_each(|other| std::fs::create_dir(other).expect("a directory"));
    std::fs::rename(site.path("snapshots/one"), site.path("elsewhere")).expect("renamed");
    (0..3).for_each(|_| fs.maintain());
    assert!(!fs.has_removed_files() && !fs.is_removed(&one));
    assert!(matches!(fs.attributes_of(&one), Err(Error::Io(_))));
    others.iter().for_each(|other| std::fs::remove_dir(other).expect("removed"));
    maintain_twice(&fs);
    assert!(fs.is_removed(&one));
    drop(open);
}

#[test]
fn every_change_of_a_snapshot_is_refused() {
    let site = Site::new();
    let fs = site.open();
    let (who, root) = (me(), fs.root());
    let mode = SetAttributes { mode: Some(0o700), ..SetAttributes::default() };
    for path in ["dir/.snapshot", "dir/.snapshot/one", ".snapshot/one/dir"] {
        let directory = walk(&fs, path).0;
        for how in [CreateHow::Unchecked, CreateHow::Guarded, CreateHow::Exclusive([1; 8])] {
            refused!(fs.create(&who, &directory, named("new"), how, &mode, BOTH), ReadOnly);
        }
        refused!(fs.make(&who, &directory, named("new"), NewNode::Directory, &mode), ReadOnly);
        refused!(fs.link(&who, &walk(&fs, "top").0, &directory, named("new")), ReadOnly);
        refused!(fs.remove(&who, &directory, named("sub"), None), ReadOnly);
        refused!(fs.remove_incomplete(&who, &directory, named("sub"), &root), ReadOnly);
        refused!(fs.rename(&who, &directory, named("sub"), &root, named("moved"), None), ReadOnly);
        refused!(fs.rename(&who, &root, named("top"), &directory, named("moved"), None), ReadOnly);
        change_is_refused(&fs, &directory);
        let requested = Access(0x1ff);
        let granted = fs.access(&who, &directory, requested, Blocking::Allowed).expect("answered");
        let changes = Access::MODIFY | Access::EXTEND | Access::DELETE | Access::XATTR_WRITE;
        assert_eq!(
            (granted & changes, granted.has(Access::READ | Access::LOOKUP)),
            (Access::default(), true),
            "{path}"
        );
    }
    let file = walk(&fs, "dir/.snapshot/one/sub/file").0;
    change_is_refused(&fs, &file);
    refused!(fs.opened(&who, &file), ReadOnly);
    refused!(fs.link(&who, &file, &root, named("new")), CrossesFileSystems);
    // The name itself.
    refused!(fs.make(&who, &root, named(".snapshot"), NewNode::Directory, &mode), Exists);
    refused!(fs.create(&who, &root, named(".snapshot"), CreateHow::Guarded, &mode, BOTH), Exists);
    refused!(fs.link(&who, &walk(&fs, "top").0, &root, named(".snapshot")), Exists);
    refused!(fs.rename(&who, &root, named("top"), &root, named(".snapshot"), None), Exists);
    refused!(fs.rename(&who, &root, named(".snapshot"), &root, named("moved"), None), ReadOnly);
    refused!(fs.remove(&who, &root, named(".snapshot"), None), ReadOnly);
    fs.sync_metadata(&[file, root], Blocking::Allowed).expect("nothing of a snapshot is written");
}

fn change_is_refused(fs: &SnapshotFs, id: &FileId) {
    let who = me();
    refused!(
        fs.set_attributes(
            &who,
            id,
            None,
            &SetAttributes { mode: Some(0), ..SetAttributes::default() }
        ),
        ReadOnly
    );
    refused!(fs.set_acl(&who, id, PosixAclKind::Access, &PosixAcl::default()), ReadOnly);
    refused!(fs.set_xattr(&who, id, b"name", b"value", XattrHow::Either), ReadOnly);
    refused!(fs.remove_xattr(&who, id, b"name"), ReadOnly);
}

#[test]
fn real_file_of_that_name_is_hidden() {
    let site = Site::new();
    site.write("live/.snapshot/real", "a user's file");
    site.write("live/dir/.snapshot", "a user's file");
    let fs = site.open();
    assert_eq!(names(&fs, ""), ["dir", "new", "top"]);
    assert_eq!(names(&fs, "dir"), ["sub"]);
    assert_eq!(names(&fs, ".snapshot"), ["one", "two"]);
    refused!(walk_as(&fs, &me(), ".snapshot/real"), NotFound);
}

/// A user who can write where the snapshots are gains nothing.
#[test]
fn links_lead_out_of_no_snapshot() {
    let mut site = Site::new();
    site.write("secret/dir/file", "outside of the export");
    symlink(site.path("secret"), site.path("snapshots/link")).expect("a link");
    symlink("../../../secret/dir", site.path("snapshots/one/inner")).expect("a link");
    std::fs::remove_dir_all(site.path("snapshots/two/dir")).expect("removed");
    symlink(site.path("secret/dir"), site.path("snapshots/two/dir")).expect("a link");
    let fs = site.open();
    assert_eq!(names(&fs, ".snapshot"), ["one", "two"]);
    refused!(walk_as(&fs, &me(), ".snapshot/link"), NotFound);
    refused!(walk_as(&fs, &me(), ".snapshot/one/inner/file"), NotDirectory);
    assert_eq!(names(&fs, "dir/.snapshot"), ["one"]);
    refused!(walk_as(&fs, &me(), "dir/.snapshot/two"), NotFound);
    drop(fs);
    // A directory of snapshots below the export is never left by a link.
    site.pattern = ".snapshots".into();
    std::fs::rename(site.path("snapshots"), site.path("live/.snapshots")).expect("renamed");
    let fs = site.open();
    assert_eq!(read(&fs, &walk(&fs, "dir/.snapshot/one/sub/file").0), b"first");
    std::fs::rename(site.path("live/.snapshots"), site.path("snapshots")).expect("renamed");
    symlink("../snapshots", site.path("live/.snapshots")).expect("a link");
    refused!(walk_as(&fs, &me(), "dir/.snapshot/one"), NotFound);
}

#[test]
fn pattern_names_snapshots_and_their_part() {
    let mut site = Site::new();
    site.write("snapshots/daily-1/data/dir/file", "daily");
    site.pattern = site.path("snapshots/daily-*/data").to_str().expect("UTF-8").to_owned();
    let fs = site.open();
    assert_eq!(names(&fs, ".snapshot"), ["daily-1"]);
    assert_eq!(read(&fs, &walk(&fs, "dir/.snapshot/daily-1/file").0), b"daily");
    refused!(walk_as(&fs, &me(), ".snapshot/one"), NotFound);
    leave_callers().expect("switching back succeeds");
    let live = PosixFs::open(&site.path("live"), Options { ids: None, ..Options::default() });
    if let Ok(live) = live {
        let missing = SnapshotPattern::parse(site.path("missing").to_str().expect("UTF-8"));
        assert!(
            SnapshotFs::open(live.clone(), SnapshotOptions { pattern: missing, is_visible: false })
                .is_err()
        );
        assert!(
            SnapshotFs::open(live, SnapshotOptions { pattern: None, is_visible: false }).is_err(),
            "this file system has none"
        );
    }
}

#[test]
#[ignore = "needs root"]
fn rights_are_those_of_the_snapshots_files() {
    vouch_testkit::require("root, who acts for others", can_serve_others());
    let site = Site::new();
    let set = |path: &str, mode: u32, owner: u32| {
        std::fs::set_permissions(site.path(path), PermissionsExt::from_mode(mode))
            .expect("root is allowed");
        chown(site.path(path), Some(owner), Some(owner)).expect("root is allowed");
    };
    let (owner, other) = users();
    std::fs::set_permissions(site.above.path(), PermissionsExt::from_mode(0o755))
        .expect("root is allowed");
    // Opened to all since the first snapshot, and closed since the second.
    set("snapshots/one/dir", 0o700, owner.uid);
    set("snapshots/one/dir/sub/file", 0o644, owner.uid);
    set("live/top", 0o600, owner.uid);
    let fs = site.open();
    refused!(walk_as(&fs, &other, "dir/.snapshot/one/sub"), Access);
    refused!(walk_as(&fs, &other, "dir/sub/.snapshot/one"), Access);
    walk_as(&fs, &owner, "dir/sub/.snapshot/one/file").expect("its owner may");
    walk_as(&fs, &other, "dir/sub/.snapshot/two/file").expect("the second is open to all");
    let sub =
        walk_as(&fs, &other, "dir/sub/.snapshot").expect("the live directory is open to all").0;
    assert_eq!(names_as(&fs, &other, &sub).expect("listed"), ["two"]);
    assert_eq!(names_as(&fs, &owner, &sub).expect("listed"), ["one", "two"]);
    // The live directory guards its own `.snapshot`.
    drop(fs);
    leave_callers().expect("switching back succeeds");
    set("live/dir", 0o700, owner.uid);
    let fs = site.open();
    let list = walk(&fs, "dir/.snapshot").0;
    refused!(fs.find(&other, &list, "two"), Access);
    refused!(names_as(&fs, &other, &list), Access);
    refused!(fs.parent(&other, &list, Blocking::Allowed), Access);
}
