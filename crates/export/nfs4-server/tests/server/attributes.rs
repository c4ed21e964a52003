use vouch_nfs4::attr::SecLabel;
use vouch_nfs4::{Ace, AceFlags, AceMask, AceType, Acl, SetTime, Time};
use vouch_vfs::{FileSystem as _, PosixAcl, PosixAclEntry, PosixAclKind, PosixAclTag};

use crate::prelude::*;

// RFC 8881 §5.6.
#[test]
fn every_supported_attribute_can_be_read() {
    let fixture = Fixture::new();
    for minor in 1..=2 {
        let mut client = Client::new(&fixture, ["", "one", "two"][minor as usize], 0);
        client.minor = minor;
        client.create("f");
        for path in [&[][..], &["export"], &["export", "f"]] {
            let (_, list) = client.run_at(path, &[getattr(&[0])]);
            let supported = attributes(&list[0]).supported_attrs.unwrap();
            assert!(Attributes::REQUIRED.minus(supported).is_empty(), "{path:?}");
            let wanted = supported.minus(Attributes::WRITE_ONLY);
            let list = expect_ok(client.run_at(path, &[Args::Getattr(op::GetattrArgs { wanted })]));
            let values = attributes(&list[0]);
            let missing = wanted.minus(values.present(wanted));
            assert!(missing.is_empty(), "{path:?} {missing:?}");
            // RFC 8881 §5.8.1.1.
            assert_eq!(
                (supported.has(50), values.time_create.is_some()),
                (!path.is_empty(), !path.is_empty()),
                "{path:?}"
            );
        }
    }
}

/// Linux 7.2 opens to read and then sets the size with this stateid, for open(2) with O_TRUNC. A write has
/// a right of the owner (`AccessOverride::Owner`), as Linux gives it.
#[test]
fn size_without_an_open_needs_permission_to_write_also_of_the_owner() {
    let fixture = Fixture::new();
    let mut root = Client::new(&fixture, "root", 0);
    let open_to_all = mode(0o777);
    assert_eq!(root.status(&["export"], &[setattr(&open_to_all)]), Status::OK);
    let mut owner = Client::new(&fixture, "owner", 4321);
    owner.create("f");
    let at = ["export", "f"];
    let set_size = |client: &mut Client<'_>| client.status(&at, &[setattr(&size(0))]);
    for (bits, expected) in [(0o477, Status::ACCESS), (0o200, Status::OK)] {
        assert_eq!(owner.status(&at, &[setattr(&mode(bits))]), Status::OK);
        assert_eq!(set_size(&mut owner), expected, "{bits:o}");
        assert_eq!(set_size(&mut root), Status::OK, "{bits:o}");
    }
}

// Options no_acl and no_xattr.
#[test]
fn acls_and_xattrs_that_an_export_hides_are_not_offered() {
    const ACL_ATTRIBUTES: [u32; 3] = [12, 13, 58];
    for offered in [true, false] {
        let files = Arc::new(MemoryFs::new());
        let plain = export(7, &["export"], &files, sys_access());
        let fixture =
            Fixture::with_exports(files, vec![Export { acls: offered, xattrs: offered, ..plain }]);
        let mut client = Client::new(&fixture, "one", 0);
        client.create("f");
        let (_, list) = client.run_at(&["export", "f"], &[getattr(&[0, 12, 82])]);
        let values = attributes(&list[0]);
        let supported = values.supported_attrs.unwrap();
        assert!(ACL_ATTRIBUTES.iter().all(|&acl| supported.has(acl) == offered), "{supported:?}");
        assert_eq!((values.acl.is_some(), values.xattr_support), (offered, Some(offered)));
        let names = Args::Listxattrs(op::ListxattrsArgs { cookie: Cookie(0), max_count: 1000 });
        let (status, _) = client.run_at(&["export", "f"], &[names]);
        assert_eq!(status, if offered { Status::OK } else { Status::NOTSUPP });
    }
}

/// RFC 7862 §12.2.4. Option security_label.
#[test]
fn labels_are_set_by_owner_where_the_export_offers_them() {
    const SEC_LABEL: u32 = 80;
    let label_of = |list: &[Results<'static>]| {
        attributes(&list[0]).sec_label.map(|label| label.data.0.to_vec())
    };
    let packed = |format, data: &'static [u8]| {
        let sec_label = Some(SecLabel { format, policy: 0, data: Bytes(data) });
        Packed::one(SEC_LABEL, Attributes { sec_label, ..Attributes::default() })
    };
    for offered in [true, false] {
        let files = Arc::new(MemoryFs::new());
        let plain = export(7, &["export"], &files, sys_access());
        let fixture = Fixture::with_exports(files, vec![Export { labels: offered, ..plain }]);
        let mut client = Client::new(&fixture, "one", 0);
        client.create("f");
        let path = &["export", "f"][..];
        let list = expect_ok(client.run_at(path, &[getattr(&[0, SEC_LABEL])]));
        let supported = attributes(&list[0]).supported_attrs.unwrap();
        let unlabeled = offered.then(|| b"system_u:object_r:unlabeled_t:s0".to_vec());
        assert_eq!((supported.has(SEC_LABEL), label_of(&list)), (offered, unlabeled));
        let label = packed(0, b"system_u:object_r:etc_t:s0\0");
        let mut set = |label: &Packed| client.status(path, &[setattr(label)]);
        if !offered {
            assert_eq!(set(&label), Status::ATTRNOTSUPP);
            continue;
        }
        assert_eq!(set(&packed(7, b"x")), Status::WRONG_LFS);
        assert_eq!(set(&packed(0, b"a\0b")), Status::BADLABEL);
        assert_eq!(set(&label), Status::OK);
        let list = expect_ok(client.run_at(path, &[getattr(&[SEC_LABEL])]));
        assert_eq!(label_of(&list).as_deref(), Some(&b"system_u:object_r:etc_t:s0"[..]));
        let mut other = Client::new(&fixture, "two", 1000);
        assert_eq!(other.status(path, &[setattr(&label)]), Status::PERM);
        // Of a new file.
        let new = packed(0, b"new_t");
        assert_eq!(client.status(&["export"], &[open_by_name("g", Some(&new))]), Status::OK);
        let list = expect_ok(client.run_at(&["export", "g"], &[getattr(&[SEC_LABEL])]));
        assert_eq!(label_of(&list).as_deref(), Some(&b"new_t"[..]));
    }
}

/// Option uncacheable; draft-ietf-nfsv4-uncacheable-files.
#[test]
fn regular_files_of_uncacheable_export_say_so() {
    const UNCACHEABLE: u32 = 87;
    for offered in [true, false] {
        let files = Arc::new(MemoryFs::new());
        let plain = export(7, &["export"], &files, sys_access());
        let fixture = Fixture::with_exports(files, vec![Export { uncacheable: offered, ..plain }]);
        let mut client = Client::new(&fixture, "one", 0);
        client.create("f");
        let list = expect_ok(client.run_at(&["export", "f"], &[getattr(&[0, UNCACHEABLE])]));
        let seen = attributes(&list[0]);
        assert_eq!(seen.uncacheable_file_data, offered.then_some(true));
        assert_eq!(seen.supported_attrs.unwrap().has(UNCACHEABLE), offered);
        let of_directory = client.status(&["export"], &[getattr(&[UNCACHEABLE])]);
        let set = Attributes { uncacheable_file_data: Some(false), ..Attributes::default() };
        let set = Packed::one(UNCACHEABLE, set);
        let setting = client.status(&["export", "f"], &[setattr(&set)]);
        let expected = match offered {
            true => (Status::INVAL, Status::INVAL),
            false => (Status::OK, Status::ATTRNOTSUPP),
        };
        assert_eq!((of_directory, setting), expected);
    }
}

// RFC 8881 §18.30.
#[test]
fn setattr_values_are_returned_by_getattr() {
    let mut client = Client::with_file();
    let time = Time { seconds: 12_345, nanoseconds: 6 };
    let wanted = Attributes {
        size: Some(1000),
        mode: Some(0o2751),
        owner: Some(Bytes(b"alice@EXAMPLE.ORG")),
        owner_group: Some(Bytes(b"42")),
        time_modify_set: Some(SetTime::Client(time)),
        ..Attributes::default()
    };
    let packed = Packed::new(&[4, 33, 36, 37, 54], &wanted);
    let list = expect_ok(
        client.run_at(&["export", "f"], &[setattr(&packed), getattr(&[4, 33, 36, 37, 53])]),
    );
    let values = attributes(&list[1]);
    assert_eq!(
        (values.size, values.owner, values.owner_group, values.time_modify),
        (Some(1000), Some(Bytes(b"1000")), Some(Bytes(b"42")), Some(time))
    );
    assert_eq!(values.mode.unwrap() & 0o777, 0o751);
}

// RFC 8881 §5.5, 5.9, 6.2.4, 3.3.1.
#[test]
fn setattr_refuses_invalid_attributes() {
    let mut client = Client::with_file();
    let bad_time = SetTime::Client(Time { seconds: 0, nanoseconds: 1_000_000_000 });
    let cases = [
        (
            Packed::one(33, Attributes { mode: Some(0o10000), ..Attributes::default() }),
            Status::INVAL,
        ),
        (
            Packed::one(
                36,
                Attributes { owner: Some(Bytes(b"bob@example.org")), ..Attributes::default() },
            ),
            Status::BADOWNER,
        ),
        (
            Packed::one(
                36,
                Attributes { owner: Some(Bytes(b"alice@elsewhere")), ..Attributes::default() },
            ),
            Status::BADOWNER,
        ),
        (Packed::one(20, Attributes { fileid: Some(5), ..Attributes::default() }), Status::INVAL),
        (
            Packed::one(14, Attributes { archive: Some(true), ..Attributes::default() }),
            Status::ATTRNOTSUPP,
        ),
        (
            Packed::one(
                48,
                Attributes { time_access_set: Some(bad_time), ..Attributes::default() },
            ),
            Status::INVAL,
        ),
    ];
    for (packed, expected) in &cases {
        assert_eq!(client.status(&["export", "f"], &[setattr(packed)]), *expected);
    }
    assert_eq!(client.status(&["export", "f"], &[getattr(&[48])]), Status::INVAL);
}

// RFC 8881 §18.31 and 18.15.
#[test]
fn verify_and_nverify_compare_attributes() {
    let mut client = Client::with_file();
    let same = Packed::new(
        &[4, 33],
        &Attributes { size: Some(0), mode: Some(0o644), ..Attributes::default() },
    );
    let other = size(1);
    let verify = |packed| Args::Verify(op::VerifyArgs { attrs: Packed::fattr(packed) });
    let nverify = |packed| Args::Nverify(op::VerifyArgs { attrs: Packed::fattr(packed) });
    let path = &["export", "f"];
    assert_eq!(client.status(path, &[verify(&same)]), Status::OK);
    assert_eq!(client.status(path, &[verify(&other)]), Status::NOT_SAME);
    assert_eq!(client.status(path, &[nverify(&same)]), Status::SAME);
    assert_eq!(client.status(path, &[nverify(&other)]), Status::OK);
}

// RFC 8881 §6.
#[test]
fn acl_is_readable_and_changes_the_mode() {
    let mut client = Client::with_file();
    let ace =
        |kind, mask, who| Ace { kind, flags: AceFlags(0), mask: AceMask(mask), who: Bytes(who) };
    let list = vec![
        ace(AceType::ALLOW, 0x1601ff & 0x7, &b"OWNER@"[..]),
        ace(AceType::ALLOW, 1, b"1000"),
        ace(AceType::ALLOW, 1, b"EVERYONE@"),
    ];
    let packed =
        Packed::one(12, Attributes { acl: Some(Acl(list.into())), ..Attributes::default() });
    let (status, results) =
        client.run_at(&["export", "f"], &[setattr(&packed), getattr(&[12, 33])]);
    assert_eq!(status, Status::OK, "{results:?}");
    let values = attributes(&results[1]);
    assert_eq!(values.mode.unwrap() & 0o707, 0o604);
    let acl = values.acl.unwrap();
    assert!(
        acl.0.iter().any(|ace| ace.who.0 == b"1000" && ace.mask.contains(AceMask::READ_DATA)),
        "{acl:?}"
    );
    let bad = vec![ace(AceType::AUDIT, 1, &b"EVERYONE@"[..])];
    let packed =
        Packed::one(12, Attributes { acl: Some(Acl(bad.into())), ..Attributes::default() });
    let (status, results) = client.run_at(&["export", "f"], &[setattr(&packed)]);
    assert!(
        matches!(&results[0], Results::Setattr(Err(_))) && status == Status::ATTRNOTSUPP,
        "{results:?}"
    );
}

#[test]
fn compares_acl_longer_than_a_call() {
    let (fixture, mut client) = Client::with_fixture();
    client.create("f");
    let entry = |tag| PosixAclEntry { tag, permissions: 4 };
    let users = (0..30_000).map(|number| PosixAclTag::User(100_000 + number));
    let tags = [PosixAclTag::UserObject].into_iter().chain(users);
    let tags = tags.chain([PosixAclTag::GroupObject, PosixAclTag::Mask, PosixAclTag::Other]);
    let (file, acl) = (fixture.find("f"), PosixAcl { entries: tags.map(entry).collect() });
    fixture.files.set_acl(&Caller::root(), &file, PosixAclKind::Access, &acl).unwrap();
    let packed =
        Packed::one(12, Attributes { acl: Some(Acl(vec![].into())), ..Attributes::default() });
    let (verify, nverify) =
        (op::VerifyArgs { attrs: packed.fattr() }, op::VerifyArgs { attrs: packed.fattr() });
    assert_eq!(client.status(&["export", "f"], &[Args::Verify(verify)]), Status::NOT_SAME);
    assert_eq!(client.status(&["export", "f"], &[Args::Nverify(nverify)]), Status::OK);
}

// RFC 7862 §12.2.3.
#[test]
fn change_attr_type_is_reported_on_read_only_file_systems() {
    const TYPE: u32 = 79;
    let (fixture, mut client) = Client::with_fixture();
    client.create("f");
    for (path, is_supported) in [(&[][..], true), (&["export"], false), (&["export", "f"], false)] {
        let values = attributes(&client.run_at(path, &[getattr(&[0, TYPE])]).1[0]);
        assert_eq!(
            (values.supported_attrs.unwrap().has(TYPE), values.change_attr_type.is_some()),
            (is_supported, is_supported),
            "{path:?}"
        );
    }
    fixture.files.set_read_only(true);
    fixture.replace_exports(vec![export(7, &["export"], &fixture.files, sys_access())]);
    let values = attributes(&client.run_at(&["export", "f"], &[getattr(&[TYPE])]).1[0]);
    assert_eq!(values.change_attr_type, Some(vouch_nfs4::attr::ChangeAttrType::MONOTONIC_INCR));
}
