use super::fixture::{
    BOTH, Fixture, READ, Rule, WRITE, alice, bob, mode, name, read, refused, write,
};
use crate::{
    Access, AccessOverride, Blocking, Caller, CreateHow, Error, FileId, NewNode, OpenAccess,
    SetAttributes, SetTime, Stability,
};

pub(super) const RULES: &[Rule] = &[
    ("mode_is_enforced_for_each_class", mode_is_enforced_for_each_class),
    ("supplementary_groups_count", supplementary_groups_count),
    ("superuser_bypasses_mode", superuser_bypasses_mode),
    ("sticky_bit_restricts_removal", sticky_bit_restricts_removal),
    ("set_gid_directory_passes_on_its_group", set_gid_directory_passes_on_its_group),
    ("only_owners_set_attributes", only_owners_set_attributes),
    ("write_clears_set_id_bits", write_clears_set_id_bits),
    ("owner_bypasses_mode_if_requested", owner_bypasses_mode_if_requested),
    ("execute_right_allows_reading_if_requested", execute_right_allows_reading_if_requested),
    ("lookup_requires_search_permission", lookup_requires_search_permission),
    ("files_belong_to_their_creator", files_belong_to_their_creator),
    ("open_file_keeps_its_rights", open_file_keeps_its_rights),
];

fn file_of(fixture: &Fixture, new: &str, uid: u32, gid: u32, bits: u16) -> FileId {
    let file = fixture.file(&fixture.root(), new, b"content");
    fixture.set(
        &file,
        SetAttributes {
            uid: Some(uid),
            gid: Some(gid),
            mode: Some(bits),
            ..SetAttributes::default()
        },
    );
    file
}

fn opens(fixture: &Fixture, caller: &Caller, file: &FileId, access: OpenAccess) -> bool {
    match fixture.open_as(caller, file, access, AccessOverride::None) {
        Ok(_) => true,
        Err(Error::Access) => false,
        Err(error) => panic!("an open fails with {error:?}"),
    }
}

fn has(fixture: &Fixture, caller: &Caller, file: &FileId, rights: u8, why: &str) {
    assert_eq!(opens(fixture, caller, file, READ), rights & 4 != 0, "{why}: reading");
    assert_eq!(opens(fixture, caller, file, WRITE), rights & 2 != 0, "{why}: writing");
    assert_eq!(opens(fixture, caller, file, BOTH), rights & 6 == 6, "{why}: both");
    let wanted = Access::READ | Access::MODIFY | Access::EXTEND | Access::EXECUTE;
    let granted = fixture
        .fs
        .access(caller, file, wanted, Blocking::Allowed)
        .expect("every user may call this");
    assert_eq!(granted.has(Access::READ), rights & 4 != 0, "{why}: read access is reported");
    assert_eq!(granted.has(Access::MODIFY), rights & 2 != 0, "{why}: write access is reported");
    assert_eq!(granted.has(Access::EXECUTE), rights & 1 != 0, "{why}: execute access is reported");
    let one = fixture
        .fs
        .access(caller, file, Access::READ, Blocking::Allowed)
        .expect("every user may call this");
    assert_eq!(one.0 & !Access::READ.0, 0, "{why}: only requested rights are reported");
}

fn mode_is_enforced_for_each_class(fixture: &Fixture) {
    let (owner, member, other) = (alice(), Caller::new(1005, 2001, []), bob());
    for (number, bits) in [0o640u16, 0o421, 0o124, 0o077, 0o707, 0o777, 0].into_iter().enumerate() {
        let file = file_of(fixture, &format!("file{number}"), owner.uid, owner.gid, bits);
        has(fixture, &owner, &file, (bits >> 6 & 7) as u8, &format!("{bits:o}, the owner"));
        has(fixture, &member, &file, (bits >> 3 & 7) as u8, &format!("{bits:o}, the group"));
        has(fixture, &other, &file, (bits & 7) as u8, &format!("{bits:o}, others"));
    }
}

fn supplementary_groups_count(fixture: &Fixture) {
    let file = file_of(fixture, "file", 1, 3002, 0o060);
    has(fixture, &alice(), &file, 6, "a supplementary group counts");
    has(fixture, &Caller::new(1001, 2001, [3001]), &file, 0, "not in the group");
    // More groups than AUTH_SYS can carry.
    has(fixture, &Caller::new(1001, 2001, 2900..3100), &file, 6, "200 groups count");
    has(fixture, &Caller::new(1001, 2001, []), &file, 0, "in none, right after");
    has(fixture, &Caller::new(1001, 3002, []), &file, 6, "the primary group");
}

fn superuser_bypasses_mode(fixture: &Fixture) {
    let file = file_of(fixture, "file", 1, 1, 0);
    has(fixture, &Caller::root(), &file, 6, "the superuser reads and writes");
    fixture.set(&file, mode(0o001));
    has(
        fixture,
        &Caller::root(),
        &file,
        7,
        "the superuser executes files that any user may execute",
    );
    for _ in 0..10 {
        has(fixture, &bob(), &file, 1, "another, in between");
        has(fixture, &Caller::root(), &file, 7, "root again");
    }
}

fn sticky_bit_restricts_removal(fixture: &Fixture) {
    let root = fixture.root();
    let sticky = fixture.directory(&root, "sticky", 0o777);
    fixture.set(&sticky, mode(0o1777));
    let open = fixture.directory(&root, "open", 0o777);
    for directory in [&sticky, &open] {
        fixture
            .create_as(&alice(), directory, "file", CreateHow::Guarded, &mode(0o666))
            .expect("every user may create files");
        fixture
            .create_as(&bob(), directory, "other", CreateHow::Guarded, &mode(0o666))
            .expect("every user may create files");
    }
    let fs = &fixture.fs;
    refused!(
        fs.remove(&bob(), &sticky, name("file"), None),
        Error::Permission | Error::Access,
        "removing another's"
    );
    refused!(
        fs.rename(&bob(), &sticky, name("file"), &open, name("x"), None),
        Error::Permission | Error::Access,
        "moving another's away"
    );
    refused!(
        fs.rename(&bob(), &open, name("other"), &sticky, name("file"), None),
        Error::Permission | Error::Access,
        "replacing another's"
    );
    fs.remove(&alice(), &sticky, name("file"), None).expect("the owner is allowed");
    fs.remove(&bob(), &open, name("file"), None)
        .expect("without the sticky bit, write access to the directory suffices");
    fs.remove(&Caller::root(), &sticky, name("other"), None).expect("root is allowed");
}

fn set_gid_directory_passes_on_its_group(fixture: &Fixture) {
    let root = fixture.root();
    let directory = fixture.directory(&root, "directory", 0o777);
    fixture.set(
        &directory,
        SetAttributes { gid: Some(3002), mode: Some(0o2777), ..SetAttributes::default() },
    );
    let made = fixture
        .create_as(&alice(), &directory, "file", CreateHow::Guarded, &mode(0o644))
        .expect("every user may create files");
    assert_eq!(
        (made.attributes.uid, made.attributes.gid),
        (1001, 3002),
        "a file gets the directory's group"
    );
    let below = fixture
        .fs
        .make(&alice(), &directory, name("d"), NewNode::Directory, &mode(0o755))
        .expect("every user may create files")
        .1;
    assert_eq!(
        (below.gid, below.mode),
        (3002, 0o2755),
        "a directory inherits the group and the set-gid bit"
    );
}

fn only_owners_set_attributes(fixture: &Fixture) {
    let file = file_of(fixture, "file", 1001, 2001, 0o666);
    let set =
        |caller: &Caller, set: SetAttributes| fixture.fs.set_attributes(caller, &file, None, &set);
    let none = SetAttributes::default();
    refused!(set(&bob(), mode(0o600)), Error::Permission, "another's mode");
    refused!(
        set(&bob(), SetAttributes { gid: Some(2002), ..none }),
        Error::Permission,
        "another's group"
    );
    refused!(
        set(&alice(), SetAttributes { uid: Some(1002), ..none }),
        Error::Permission,
        "giving a file away"
    );
    refused!(
        set(&alice(), SetAttributes { gid: Some(2002), ..none }),
        Error::Permission,
        "to a group without the owner"
    );
    set(&alice(), SetAttributes { gid: Some(3002), ..none }).expect("to a group with the owner");
    let then = Some(SetTime::To(crate::Time { seconds: 1, nanos: 1 }));
    refused!(
        set(&bob(), SetAttributes { modified: then, ..none }),
        Error::Permission | Error::Access,
        "another's times"
    );
    let now = SetAttributes { accessed: Some(SetTime::Now), modified: Some(SetTime::Now), ..none };
    set(&bob(), now).expect("write access allows setting the times to now");
    set(&bob(), SetAttributes { size: Some(1), ..none })
        .expect("write access allows setting the size");
    set(&alice(), mode(0o644)).expect("the owner is allowed");
    refused!(
        set(&bob(), now),
        Error::Access | Error::Permission,
        "a user without write permission"
    );
    refused!(
        set(&bob(), SetAttributes { size: Some(0), ..none }),
        Error::Access,
        "a user without write permission"
    );
    set(&Caller::root(), SetAttributes { uid: Some(1), gid: Some(1), ..none })
        .expect("root may give the file to any user");
    if fixture.fs.traits().xattrs {
        refused!(
            fixture.fs.set_xattr(&bob(), &file, b"x", b"y", crate::XattrHow::Either),
            Error::Access,
            "setting an xattr of another user's file"
        );
        fixture.set(&file, mode(0o600));
        refused!(
            fixture.fs.xattrs(&bob(), &file, Blocking::Allowed),
            Error::Access,
            "listing another's xattrs"
        );
        refused!(
            fixture.fs.xattr(&bob(), &file, b"x", Blocking::Allowed),
            Error::Access,
            "reading another's xattr"
        );
    }
}

fn write_clears_set_id_bits(fixture: &Fixture) {
    let file = file_of(fixture, "file", 1001, 2001, 0o777);
    fixture.set(&file, mode(0o6777));
    let open =
        fixture.open_as(&bob(), &file, WRITE, AccessOverride::None).expect("others may write");
    fixture.set(&file, mode(0o6777));
    write(&*open, 0, b"x");
    assert_eq!(fixture.attributes(&file).mode, 0o777, "a write by an unprivileged user");
    fixture.set(&file, mode(0o6777));
    open.truncate(0).expect("the file is open for writing");
    assert_eq!(fixture.attributes(&file).mode & 0o4000, 0, "a truncation, too");
}

fn owner_bypasses_mode_if_requested(fixture: &Fixture) {
    let file = file_of(fixture, "file", 1001, 2001, 0);
    refused!(
        fixture.open_as(&alice(), &file, BOTH, AccessOverride::None),
        Error::Access,
        "an owner without rights"
    );
    let open =
        fixture.open_as(&alice(), &file, BOTH, AccessOverride::Owner).expect("the owner continues");
    assert_eq!(read(&*open, 0, 100).0, b"content", "the owner reads");
    refused!(
        fixture.open_as(&alice(), &file, READ, AccessOverride::Execute),
        Error::Access,
        "an owner override that was not requested"
    );
    refused!(fixture.open_as(&bob(), &file, READ, AccessOverride::Owner), Error::Access, "another");
}

fn execute_right_allows_reading_if_requested(fixture: &Fixture) {
    let file = file_of(fixture, "file", 1001, 2001, 0o711);
    refused!(
        fixture.open_as(&bob(), &file, READ, AccessOverride::None),
        Error::Access,
        "an execute override that was not requested"
    );
    for access_override in [AccessOverride::Execute, AccessOverride::Owner] {
        let open = fixture
            .open_as(&bob(), &file, READ, access_override)
            .expect("execute permission allows reading for execution");
        assert_eq!(read(&*open, 0, 100).0, b"content", "the program is read");
        refused!(
            fixture.open_as(&bob(), &file, WRITE, access_override),
            Error::Access,
            "execute permission does not allow writing"
        );
    }
    fixture.set(&file, mode(0o713));
    refused!(
        fixture.open_as(&bob(), &file, BOTH, AccessOverride::Execute),
        Error::Access,
        "write access does not grant read access"
    );
    fixture.set(&file, mode(0o710));
    refused!(
        fixture.open_as(&bob(), &file, READ, AccessOverride::Execute),
        Error::Access,
        "a user without execute permission"
    );
}

fn lookup_requires_search_permission(fixture: &Fixture) {
    let root = fixture.root();
    let directory = fixture.directory(&root, "directory", 0o744);
    let file = fixture.file(&directory, "file", b"content");
    fixture.set(&file, mode(0o666));
    let (fs, bob) = (&fixture.fs, bob());
    refused!(
        fs.lookup(&bob, &directory, name("file"), Blocking::Allowed),
        Error::Access,
        "a name without search"
    );
    refused!(
        fs.lookup(&bob, &directory, name("none"), Blocking::Allowed),
        Error::Access,
        "a missing name without search"
    );
    refused!(
        fs.create(&bob, &directory, name("x"), CreateHow::Guarded, &mode(0o644), BOTH),
        Error::Access,
        "creating"
    );
    refused!(
        fs.make(&bob, &directory, name("x"), NewNode::Directory, &mode(0o755)),
        Error::Access,
        "making"
    );
    refused!(fs.remove(&bob, &directory, name("file"), None), Error::Access, "removing");
    refused!(
        fs.rename(&bob, &directory, name("file"), &directory, name("x"), None),
        Error::Access,
        "renaming"
    );
    let mut seen = 0;
    let listed = fs.read_directory(&bob, &directory, 0, true, Blocking::Allowed, &mut |entry| {
        refused!(
            entry.file.expect("the option was given"),
            Error::Access,
            "attributes without search"
        );
        seen += 1;
        std::ops::ControlFlow::Continue(())
    });
    assert!(listed.expect("the directory may be read") && seen == 1, "names are listed");
    assert!(opens(fixture, &bob, &file, READ), "opening by identity needs no search permission");
    fixture.set(&directory, mode(0o711));
    fs.lookup(&bob, &directory, name("file"), Blocking::Allowed)
        .expect("search is enough to find a name");
    let listed = fs.read_directory(&bob, &directory, 0, false, Blocking::Allowed, &mut |_| {
        std::ops::ControlFlow::Continue(())
    });
    refused!(listed, Error::Access, "listing without reading");
    let granted = fs.access(
        &bob,
        &directory,
        Access::READ | Access::LOOKUP | Access::MODIFY | Access::EXTEND | Access::DELETE,
        Blocking::Allowed,
    );
    assert_eq!(
        granted.expect("every user may call this"),
        Access::LOOKUP,
        "the reported attributes of a directory"
    );
    refused!(
        fs.rename(&bob, &directory, name("file"), &root, name("x"), None),
        Error::Access,
        "moving out"
    );
}

fn files_belong_to_their_creator(fixture: &Fixture) {
    let root = fixture.root();
    fixture.set(&root, mode(0o777));
    for (number, caller) in [alice(), bob(), Caller::root(), alice()].iter().enumerate() {
        let made = fixture
            .create_as(caller, &root, &format!("file{number}"), CreateHow::Guarded, &mode(0o644))
            .expect("every user may create files");
        assert_eq!((made.attributes.uid, made.attributes.gid), (caller.uid, caller.gid), "a file");
        let made = fixture.fs.make(
            caller,
            &root,
            name(&format!("link{number}")),
            NewNode::Symlink(b"x"),
            &SetAttributes::default(),
        );
        let made = made.expect("every user may create files").1;
        assert_eq!((made.uid, made.gid), (caller.uid, caller.gid), "a symbolic link");
    }
}

fn open_file_keeps_its_rights(fixture: &Fixture) {
    let file = file_of(fixture, "file", 1, 1, 0o666);
    let open = fixture.open_as(&bob(), &file, BOTH, AccessOverride::None).expect("anybody may");
    fixture.set(&file, mode(0o600));
    refused!(
        fixture.open_as(&bob(), &file, READ, AccessOverride::None),
        Error::Access,
        "other users lose access"
    );
    open.write(0, b"C", Stability::Unstable, Blocking::Allowed).expect("open files stay open");
    assert_eq!(read(&*open, 0, 100).0, b"Content", "for reading, too");
}
