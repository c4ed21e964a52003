use std::io::Read as _;

use proptest::prelude::*;
use vouch_tree::Blob;
use vouch_tree::xattr::Xattrs;

use super::*;
use crate::tar_writer;

fn items(bytes: &[u8]) -> Vec<(Item, Vec<u8>)> {
    let (mut layer, mut items) = (Layer::new(bytes), Vec::new());
    while let Some(item) = layer.next_item().expect("a well-formed archive") {
        let mut data = Vec::new();
        layer.by_ref().take(1 << 20).read_to_end(&mut data).expect("its data");
        items.push((item, data));
    }
    items
}

/// A file of GNU tar's PAX format 1.0: 3 bytes at 5, 2 bytes at 10, and a hole to 20.
#[test]
fn sparse_files_of_pax_are_expanded() {
    let mut pax = Vec::new();
    for (key, value) in [
        ("GNU.sparse.major", "1"),
        ("GNU.sparse.minor", "0"),
        ("GNU.sparse.name", "holes"),
        ("GNU.sparse.realsize", "20"),
    ] {
        tar_writer::record(&mut pax, key.as_bytes(), value.as_bytes());
    }
    let mut map = b"2\n5\n3\n10\n2\n".to_vec();
    map.resize(BLOCK_LEN, 0);
    let archive = archive(&[
        (EntryType::XHeader, b"x", &pax),
        (EntryType::Regular, b"GNUSparseFile.0/holes", &[&map[..], b"abcde"].concat()),
        (EntryType::Regular, b"next", b"n"),
    ]);
    let found = items(&archive);
    assert_eq!(found[0].0.path, b"holes");
    assert_eq!(found[0].1, b"\0\0\0\0\0abc\0\0de\0\0\0\0\0\0\0\0");
    assert_eq!(found[1].1, b"n");
}

#[test]
fn long_extensions_are_refused_before_they_are_read() {
    let mut archive = archive(&[(EntryType::XHeader, b"x", b"")]);
    let mut header = Header::from_byte_slice(&archive[..BLOCK_LEN]).clone();
    header.set_size(1 << 40);
    header.set_cksum();
    archive[..BLOCK_LEN].copy_from_slice(header.as_bytes());
    let error = Layer::new(&archive[..]).next_item().expect_err("an extension of a terabyte");
    assert!(matches!(error, LayerError::TooLarge(..)), "{error}");
}

#[test]
fn names_of_gnu_and_binary_attributes_are_read() {
    let long = [b'n'; 300];
    let mut pax = Vec::new();
    tar_writer::record(&mut pax, b"SCHILY.xattr.user.x", b"a\nb=\0");
    tar_writer::record(&mut pax, b"mtime", b"-1.25");
    let archive = archive(&[
        (EntryType::GNULongName, b"././@LongLink", &long),
        (EntryType::Regular, b"short", b"data"),
        (EntryType::XHeader, b"x", &pax),
        (EntryType::Directory, b"d/", b""),
    ]);
    let found = items(&archive);
    assert_eq!((&found[0].0.path[..], &found[0].1[..]), (&long[..], &b"data"[..]));
    assert_eq!(found[1].0.xattrs, [(b"user.x".to_vec(), b"a\nb=\0".to_vec())]);
    assert_eq!(found[1].0.mtime, Timestamp { s: -2, ns: 750_000_000 });
    assert_eq!(found[1].0.path, b"d");
}

fn archive(entries: &[(EntryType, &[u8], &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (kind, name, data) in entries {
        let mut header = Header::new_gnu();
        header.as_gnu_mut().expect("GNU").name[..name.len()].copy_from_slice(name);
        header.set_entry_type(*kind);
        header.set_size(data.len() as u64);
        for set in [Header::set_uid, Header::set_gid, Header::set_mtime] {
            set(&mut header, 0);
        }
        header.set_mode(0o644);
        header.set_cksum();
        bytes.extend(header.as_bytes());
        bytes.extend(*data);
        bytes.resize(bytes.len().next_multiple_of(BLOCK_LEN), 0);
    }
    bytes
}

proptest! {
    #[test]
    fn written_headers_are_read_back(
        path in proptest::collection::vec(1u8.., 1..300),
        target in proptest::collection::vec(1u8.., 1..300),
        (mode, uid, gid) in (0u16..0o10000, any::<u32>(), any::<u32>()),
        (s, ns) in (-(1i64 << 40)..1 << 40, 0u32..1_000_000_000),
        value in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        prop_assume!(!path.ends_with(b"/"));
        let inode = vouch_tree::Inode {
            mode,
            uid,
            gid,
            mtime: Timestamp { s, ns },
            nlink: 1,
            link_group: 0,
            xattrs: Blob::empty(),
            content: vouch_tree::Content::Symlink(target.clone()),
        };
        let pairs = vec![(b"user.x".to_vec(), value)];
        let bytes = tar_writer::header(&path, &inode, &Xattrs::new(pairs.clone()), None);
        let bytes = bytes.expect("a link");
        let mut layer = Layer::new(&bytes[..]);
        let item = layer.next_item().expect("well-formed").expect("an entry");
        prop_assert_eq!(item.kind, ItemKind::Symlink(target));
        prop_assert_eq!((item.path, item.mode, item.uid, item.gid), (path, mode, uid, gid));
        prop_assert_eq!((item.mtime, item.xattrs), (inode.mtime, pairs));
    }
}
