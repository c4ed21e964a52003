//! A changed file changes the format (`docs/formats/store.md`). `VOUCH_WRITE_GOLDEN=1` writes them
//! for review.

mod fixtures;

use std::path::{Path, PathBuf};

use fixtures::{HOSTID, written};
use vouch_tree_store::conformance::IV;
use vouch_tree_store::{Database, FrameSink, FrameSource, NewRevision};

const FRAMES: [&[u8]; 3] = [b"\x01\x00abc", b"\x02\x00indirect", b"\x05\x00head"];

const FILES: [(&str, &str); 4] = [
    ("manifest", "manifest"),
    ("packs/d-00000001.pack", "data-pack"),
    ("packs/m-00000002.pack", "metadata-pack"),
    ("index/00000001.segment", "segment"),
];

#[test]
fn files_are_written_as_documented() {
    let (_dir, path, w) = written();
    FRAMES.iter().for_each(|frame| assert!(w.put(&IV.handle_of(frame), frame).unwrap()));
    w.set_statements(vec![b"statement".to_vec()]).unwrap();
    let new = NewRevision {
        number: 7,
        start: 1_700_000_000,
        fsinfo: IV.handle_of(FRAMES[2]),
        signed: b"head".to_vec(),
        tag: Some("first".to_owned()),
        companions: vec![IV.handle_of(FRAMES[1])],
        keep: None,
        supersedes: false,
        evidence: None,
    };
    w.commit(new).unwrap();
    for (file, golden) in FILES {
        let found = hex_lines(&std::fs::read(path.join(file)).unwrap());
        if std::env::var_os("VOUCH_WRITE_GOLDEN").is_some() {
            std::fs::write(golden_path(golden), &found).unwrap();
        }
        assert_eq!(
            found,
            std::fs::read_to_string(golden_path(golden)).unwrap_or_default(),
            "{file} is not {golden}.hex"
        );
    }
}

#[test]
fn documented_files_are_read() {
    let dir = tempfile::tempdir().unwrap();
    for sub in ["packs", "index"] {
        std::fs::create_dir(dir.path().join(sub)).unwrap();
    }
    for (file, golden) in FILES {
        let hex = std::fs::read_to_string(golden_path(golden)).unwrap();
        std::fs::write(dir.path().join(file), from_hex(&hex)).unwrap();
    }
    let reader = Database::open_read(dir.path()).unwrap();
    assert_eq!((reader.hostid(), reader.iv()), (HOSTID, IV));
    assert_eq!(reader.head().as_deref(), Some(&b"head"[..]));
    assert_eq!(reader.statements(), [b"statement".to_vec()]);
    assert_eq!(reader.companions(), [IV.handle_of(FRAMES[1])]);
    let revisions = reader.revisions();
    assert_eq!(
        (revisions[0].number, revisions[0].start, revisions[0].tag.as_deref()),
        (7, 1_700_000_000, Some("first"))
    );
    for frame in FRAMES {
        assert_eq!(reader.get(&IV.handle_of(frame)).unwrap().as_deref(), Some(frame));
    }
}

fn golden_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name).with_extension("hex")
}

fn hex_lines(bytes: &[u8]) -> String {
    bytes
        .chunks(32)
        .map(|line| line.iter().map(|b| format!("{b:02x}")).collect::<String>() + "\n")
        .collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}
