//! The bytes drawn in docs/formats/tree.md. A changed file needs a new format version. To add a
//! vector, run with `VOUCH_WRITE_GOLDEN=1` and review the file.

use std::path::PathBuf;

use vouch_tree::blob::Indirect;
use vouch_tree::directory::{DirectoryBuilder, InteriorPage, LeafPage};
use vouch_tree::inode::DeviceNumber;
use vouch_tree::key::{SecretKey, SigningCert};
use vouch_tree::proof::{Finding, ProofHeader, Walk};
use vouch_tree::statement::{Body, KeyStatement};
use vouch_tree::verify::{NewestSeen, verify_fsinfo};
use vouch_tree::xattr::Xattrs;
use vouch_tree::*;
use vouch_xdr::Xdr;

fn check(name: &str, bytes: &[u8]) {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.hex"));
    let hex: String = bytes
        .chunks(32)
        .map(|line| line.iter().map(|b| format!("{b:02x}")).collect::<String>() + "\n")
        .collect();
    if std::env::var_os("VOUCH_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, &hex).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), hex, "{name}: the format has changed");
}

fn iv() -> Iv {
    Iv::from_bytes(core::array::from_fn(|i| i as u8))
}

fn handle(n: u8) -> BlockHandle {
    BlockHandle::from_bytes([n; 32])
}

fn inode(content: Content) -> Inode {
    let mtime = Timestamp { s: 1_700_000_000, ns: 123_456_789 };
    Inode { uid: 1000, gid: 100, mtime, nlink: 1, ..Inode::new(0o644, content) }
}

fn name(text: &str) -> FileName {
    FileName::parse(text.as_bytes()).unwrap()
}

fn page_of(entries: Vec<(&str, Inode)>) -> Vec<u8> {
    let mut page = None;
    let mut builder = DirectoryBuilder::new();
    let mut put = |kind, payload: &[u8]| {
        assert_eq!(kind, FrameKind::DirLeaf);
        page = Some(payload.to_vec());
        Ok::<_, ()>(handle(0))
    };
    for (n, inode) in entries {
        builder.push(name(n), inode, &mut put).unwrap();
    }
    builder.finish(&mut put).unwrap();
    page.unwrap()
}

#[test]
fn inodes_of_every_type() {
    let inline = Blob { size: 5, body: BlobBody::Inline(b"hello".to_vec()) };
    let large = Blob { size: 300_000, body: BlobBody::Tree { depth: 1, top: handle(2) } };
    let sparse = Blob { size: 1 << 30, body: BlobBody::Hole };
    let directory = Content::Directory {
        entries: 3,
        subdirs: 1,
        opaque: true,
        top: Some(PageRef { height: 0, handle: handle(3) }),
    };
    let with_xattrs = Inode {
        xattrs: Blob { size: 2000, body: BlobBody::Leaf(handle(4)) },
        link_group: 0x0102_0304_0506_0708,
        nlink: 2,
        ..inode(Content::Regular {
            blob: Blob { size: 4096, body: BlobBody::Leaf(handle(1)) },
            space: 4096,
        })
    };
    for (file, value) in [
        ("inode-inline", inode(Content::Regular { blob: inline, space: 5 })),
        ("inode-large", inode(Content::Regular { blob: large, space: 300_000 })),
        ("inode-hole", inode(Content::Regular { blob: sparse, space: 0 })),
        ("inode-linked-xattrs", with_xattrs),
        ("inode-directory", inode(directory)),
        (
            "inode-empty-directory",
            inode(Content::Directory { entries: 0, subdirs: 0, opaque: false, top: None }),
        ),
        ("inode-symlink", inode(Content::Symlink(b"../target".to_vec()))),
        ("inode-fifo", inode(Content::Fifo)),
        ("inode-socket", inode(Content::Socket)),
        ("inode-char-device", inode(Content::CharDevice(DeviceNumber { major: 1, minor: 3 }))),
        ("inode-block-device", inode(Content::BlockDevice(DeviceNumber { major: 8, minor: 0 }))),
    ] {
        check(file, &value.to_xdr());
        assert_eq!(Inode::from_xdr(&value.to_xdr()).unwrap(), value);
    }
}

#[test]
fn frames_and_their_handles() {
    let leaf = frame::build(FrameKind::Leaf, b"hello, world\n", 0);
    check("frame-leaf", &leaf);
    check("frame-leaf-handle", iv().handle_of(&leaf).as_bytes());
    let children = vec![Some(handle(1)), None, Some(handle(2))];
    check("payload-indirect", &Indirect { depth: 1, children }.to_xdr());
    let xattrs =
        Xattrs::new(vec![(b"user.origin".to_vec(), b"x".to_vec()), (b"user.a".to_vec(), vec![])]);
    check("blob-xattrs", &xattrs.to_xdr());
}

#[test]
fn directory_pages() {
    let empty = || inode(Content::Regular { blob: Blob::empty(), space: 0 });
    let page = page_of(vec![("a", empty()), ("b", inode(Content::Symlink(b"a".to_vec())))]);
    check("payload-directory-leaf", &page);
    assert_eq!(LeafPage::from_xdr(&page).unwrap().to_xdr(), page);

    let mut interior = None;
    let mut lens = Vec::new();
    let mut put = |kind, payload: &[u8]| {
        if kind == FrameKind::DirInterior {
            interior = Some(payload.to_vec());
        }
        lens.push(payload.len() as u32);
        Ok::<_, ()>(iv().handle_of(&frame::build(kind, payload, 0)))
    };
    let mut builder = DirectoryBuilder::new();
    for n in 0..1000 {
        builder.push(name(&format!("file-{n:04}")), empty(), &mut put).unwrap();
    }
    builder.finish(&mut put).unwrap();
    let interior = interior.unwrap();
    check("payload-directory-interior", &interior);
    assert_eq!(InteriorPage::from_xdr(&interior).unwrap().to_xdr(), interior);
    check("directory-page-lengths", &lens.iter().flat_map(|n| n.to_be_bytes()).collect::<Vec<_>>());
}

#[test]
fn names_certificates_and_signed_fsinfo() {
    signed_structures("", &SecretKey::from_seed(&[1; 32]), &SecretKey::from_seed(&[2; 32]));
    let pair = |n| SecretKey::from_seeds(&[n; 32], &[n + 16; 32]);
    signed_structures("-pair", &pair(1), &pair(2));
}

/// Writes and checks each vector under its name with `suffix`.
fn signed_structures(suffix: &str, root: &SecretKey, signing: &SecretKey) {
    let check = |name: &str, bytes: &[u8]| check(&format!("{name}{suffix}"), bytes);
    let hostid = root.public().hostid();
    check("hostid", hostid.to_string().as_bytes());
    let cert = SigningCert::issue(root, signing.public(), 1, 1_700_000_000, 1_800_000_000);
    check("signing-cert", &cert.to_xdr());
    let fsinfo = Fsinfo {
        hostid,
        revision: 2,
        start: 1_750_000_000,
        duration_s: 86_400,
        iv: iv(),
        root: Inode {
            mode: 0o755,
            ..inode(Content::Directory { entries: 0, subdirs: 0, opaque: false, top: None })
        },
        previous: Some(handle(7)),
        counts: Counts { directories: 1, ..Counts::default() },
        tag: "v1".into(),
    };
    let signed = SignedFsinfo::sign(&fsinfo, signing, cert).to_xdr();
    check("signed-fsinfo", &signed);
    let verified =
        verify_fsinfo(&hostid, &signed, 1_750_000_001, &NewestSeen::default(), []).unwrap();
    assert_eq!(verified.fsinfo, fsinfo);
    check("seen", &verified.seen.to_xdr());

    let revocation =
        KeyStatement::issue(root, 1_760_000_000, Body::Revocation { reason: "key lost".into() });
    check("statement-revocation", &revocation.to_xdr());
    let to = TreeName::new("new.example.org:4341", HostId::from_bytes([9; 32])).unwrap();
    check(
        "statement-forwarding",
        &KeyStatement::issue(root, 1_760_000_000, Body::Forwarding { to }).to_xdr(),
    );
}

#[test]
fn proof_of_a_file() {
    let (root, signing) = (SecretKey::from_seed(&[1; 32]), SecretKey::from_seed(&[2; 32]));
    let leaf = frame::build(FrameKind::Leaf, &[5; 1025], 0);
    let blob = Blob { size: 1025, body: BlobBody::Leaf(iv().handle_of(&leaf)) };
    let page = page_of(vec![("file", inode(Content::Regular { blob, space: 1025 }))]);
    let page = frame::build(FrameKind::DirLeaf, &page, 0);
    let top = Some(PageRef { height: 0, handle: iv().handle_of(&page) });
    let fsinfo = Fsinfo {
        hostid: root.public().hostid(),
        revision: 1,
        start: 1_750_000_000,
        duration_s: 86_400,
        iv: iv(),
        root: inode(Content::Directory { entries: 1, subdirs: 0, opaque: false, top }),
        previous: None,
        counts: Counts::default(),
        tag: String::new(),
    };
    let cert = SigningCert::issue(&root, signing.public(), 1, 1_700_000_000, 1_800_000_000);
    let header = ProofHeader {
        signed_fsinfo: SignedFsinfo::sign(&fsinfo, &signing, cert).to_xdr(),
        path: b"file".to_vec(),
    };
    let mut proof = vouch_xdr::Writer::new();
    header.encode(&mut proof);
    proof.opaque(&page);
    proof.opaque(&leaf);
    check("proof", proof.as_bytes());
    let mut walk = Walk::begin(iv(), &fsinfo.root, b"file", &mut |_| {}).unwrap();
    for stored in [&page, &leaf] {
        walk.feed(stored, &mut |_| {}).unwrap();
    }
    assert!(walk.needed().is_none() && matches!(walk.finding(), Some(Finding::Present(_))));
}
