use super::fixture::{Fixture, READ, Rule, WRITE, alice, bob, mode, name, refused};
use crate::{
    AccessOverride, Blocking, Caller, CreateHow, Error, FileId, NewNode, OpenAccess, PosixAcl,
    PosixAclEntry, PosixAclKind, PosixAclTag, SetAttributes,
};

pub(super) const RULES: &[Rule] = &[
    ("acls_are_stored_and_enforced", acls_are_stored_and_enforced),
    ("default_acls_are_inherited", default_acls_are_inherited),
    ("minimal_acl_equals_mode", minimal_acl_equals_mode),
];

fn acl(entries: &[(PosixAclTag, u8)]) -> PosixAcl {
    PosixAcl {
        entries: entries
            .iter()
            .map(|&(tag, permissions)| PosixAclEntry { tag, permissions })
            .collect(),
    }
}

pub(super) fn for_user(uid: u32) -> PosixAcl {
    use PosixAclTag::{GroupObject, Mask, Other, User, UserObject};
    acl(&[(UserObject, 6), (User(uid), 6), (GroupObject, 0), (Mask, 6), (Other, 0)])
}

fn has_acls(fixture: &Fixture) -> bool {
    if !fixture.fs.traits().acls {
        eprintln!("not applicable: no ACLs");
    }
    fixture.fs.traits().acls
}

fn may(fixture: &Fixture, caller: &Caller, file: &FileId, access: OpenAccess) -> bool {
    fixture.open_as(caller, file, access, AccessOverride::None).is_ok()
}

fn acls_are_stored_and_enforced(fixture: &Fixture) {
    use PosixAclTag::{Group, GroupObject, Mask, Other, User, UserObject};
    if !has_acls(fixture) {
        return;
    }
    let (fs, owner, root) = (&fixture.fs, &fixture.owner, fixture.root());
    let file = fixture.file(&root, "file", b"content");
    let get =
        |id| fs.acl(owner, id, PosixAclKind::Access, Blocking::Allowed).expect("reading succeeds");
    assert!(get(&file).entries.is_empty(), "a new file has no ACL beyond its mode");
    let set = acl(&[
        (UserObject, 6),
        (User(1001), 6),
        (User(1002), 4),
        (GroupObject, 0),
        (Group(3002), 2),
        (Mask, 6),
        (Other, 0),
    ]);
    fs.set_acl(owner, &file, PosixAclKind::Access, &set).expect("the owner is allowed");
    assert_eq!(get(&file), set, "a stored value is returned");
    assert_eq!(fixture.attributes(&file).mode, 0o660, "the mask shows as the group's bits");
    if fixture.any_caller {
        assert!(
            may(fixture, &alice(), &file, READ) && may(fixture, &alice(), &file, WRITE),
            "a named user has the rights of its entry"
        );
        assert!(
            may(fixture, &bob(), &file, READ) && !may(fixture, &bob(), &file, WRITE),
            "the user's entry precedes group entries"
        );
        let member = Caller::new(1009, 9, [3002]);
        assert!(
            !may(fixture, &member, &file, READ) && may(fixture, &member, &file, WRITE),
            "a named group has the rights of its entry"
        );
        fixture.set(&file, mode(0o640));
        assert!(
            !may(fixture, &alice(), &file, WRITE) && may(fixture, &alice(), &file, READ),
            "the mask limits rights"
        );
        let refused = fs.set_acl(&bob(), &file, PosixAclKind::Access, &set);
        refused!(refused, Error::Permission, "another's ACL");
    }
    let broken = acl(&[(UserObject, 6), (User(1001), 6), (GroupObject, 0), (Other, 0)]);
    refused!(
        fs.set_acl(owner, &file, PosixAclKind::Access, &broken),
        Error::Invalid,
        "names without a mask"
    );
    refused!(
        fs.set_acl(owner, &file, PosixAclKind::Access, &acl(&[(UserObject, 6)])),
        Error::Invalid,
        "half an ACL"
    );
    fs.set_acl(owner, &file, PosixAclKind::Access, &PosixAcl::default())
        .expect("the removal succeeds");
    assert!(get(&file).entries.is_empty(), "an empty ACL removes the stored ACL");
    let refused = fs.set_acl(owner, &file, PosixAclKind::Default, &set);
    refused!(
        refused,
        Error::Access | Error::Invalid | Error::NotDirectory | Error::NotSupported,
        "a default ACL of a file"
    );
}

fn default_acls_are_inherited(fixture: &Fixture) {
    use PosixAclTag::{GroupObject, Mask, Other, User, UserObject};
    if !has_acls(fixture) {
        return;
    }
    let (fs, owner) = (&fixture.fs, &fixture.owner);
    let directory = fixture.directory(&fixture.root(), "directory", 0o755);
    let default = acl(&[(UserObject, 7), (User(1001), 7), (GroupObject, 5), (Mask, 7), (Other, 1)]);
    fs.set_acl(owner, &directory, PosixAclKind::Default, &default).expect("the owner is allowed");
    let masked = SetAttributes { umask: Some(0o077), ..mode(0o664) };
    let file = fixture
        .create_as(owner, &directory, "file", CreateHow::Guarded, &masked)
        .expect("creation succeeds");
    assert_eq!(file.attributes.mode, 0o660, "the default ACL replaces the umask");
    let inherited =
        acl(&[(UserObject, 6), (User(1001), 7), (GroupObject, 5), (Mask, 6), (Other, 0)]);
    assert_eq!(
        fs.acl(owner, &file.id, PosixAclKind::Access, Blocking::Allowed).expect("reading succeeds"),
        inherited,
        "the requested mode limits inherited rights"
    );
    let below = fs
        .make(owner, &directory, name("d"), NewNode::Directory, &mode(0o777))
        .expect("creation succeeds")
        .0;
    assert_eq!(
        fs.acl(owner, &below, PosixAclKind::Default, Blocking::Allowed).expect("reading succeeds"),
        default,
        "a new directory inherits the default ACL"
    );
    let link = fs
        .make(owner, &directory, name("l"), NewNode::Symlink(b"x"), &SetAttributes::default())
        .expect("creation succeeds")
        .0;
    assert!(
        fs.acl(owner, &link, PosixAclKind::Access, Blocking::Allowed)
            .expect("reading succeeds")
            .entries
            .is_empty(),
        "a symbolic link has no ACL"
    );
    fs.set_acl(owner, &directory, PosixAclKind::Default, &PosixAcl::default())
        .expect("the removal succeeds");
    let file = fixture
        .create_as(owner, &directory, "plain", CreateHow::Guarded, &masked)
        .expect("creation succeeds");
    assert_eq!(file.attributes.mode, 0o600, "without a default ACL the umask applies");
}

fn minimal_acl_equals_mode(fixture: &Fixture) {
    use PosixAclTag::{GroupObject, Other, UserObject};
    if !has_acls(fixture) {
        return;
    }
    let file = fixture.file(&fixture.root(), "file", b"");
    let minimal = acl(&[(UserObject, 7), (GroupObject, 5), (Other, 1)]);
    fixture
        .fs
        .set_acl(&fixture.owner, &file, PosixAclKind::Access, &minimal)
        .expect("the owner is allowed");
    assert_eq!(fixture.attributes(&file).mode, 0o751, "the ACL sets the mode");
    let kept = fixture
        .fs
        .acl(&fixture.owner, &file, PosixAclKind::Access, Blocking::Allowed)
        .expect("reading succeeds");
    assert!(kept.entries.is_empty(), "an ACL equal to the mode is not stored");
}
