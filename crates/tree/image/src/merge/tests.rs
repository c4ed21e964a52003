use vouch_tree::{Blob, Timestamp};

use super::*;
use crate::layer::{Item, ItemKind};
use crate::unpack::apply;

fn add(merged: &mut Merged, path: &str, kind: ItemKind) -> Result<(), LayerError> {
    let item = Item {
        path: path.as_bytes().to_vec(),
        kind,
        mode: 0o755,
        uid: 0,
        gid: 0,
        mtime: Timestamp::default(),
        xattrs: Vec::new(),
    };
    apply(merged, &item, Blob::empty()).map(drop)
}

fn file(merged: &mut Merged, path: &str) {
    add(merged, path, ItemKind::File(0)).expect("an entry");
}

/// Paths of all entries, directories with a slash.
fn paths(merged: &Merged) -> Vec<String> {
    let (mut stack, mut paths) = (vec![(ROOT, String::new())], Vec::new());
    while let Some((node, above)) = stack.pop() {
        for (name, below) in &merged.nodes[node].names {
            let path = format!("{above}{}", printable(name.as_bytes()));
            if merged.nodes[below.node].inode.is_directory() {
                paths.push(format!("{path}/"));
                stack.push((below.node, format!("{path}/")));
            } else {
                paths.push(path);
            }
        }
    }
    paths.sort();
    paths
}

#[test]
fn whiteouts_hide_lower_layers_only() {
    let mut merged = Merged::new();
    merged.begin_layer();
    for path in ["a/old", "b/old", "b/sub/old", "c"] {
        file(&mut merged, path);
    }
    merged.begin_layer();
    // In either order within the layer.
    file(&mut merged, "b/new");
    file(&mut merged, "b/sub/new");
    for whiteout in ["b/.wh..wh..opq", ".wh.c", "a/.wh.old", ".wh.missing", "gone/.wh.x"] {
        file(&mut merged, whiteout);
    }
    file(&mut merged, "a/old2");
    assert_eq!(paths(&merged), ["a/", "a/old2", "b/", "b/new", "b/sub/", "b/sub/new"]);
}

#[test]
fn nothing_leaves_the_image() {
    let mut merged = Merged::new();
    merged.begin_layer();
    let link = |target: &str| ItemKind::Symlink(target.as_bytes().to_vec());
    add(&mut merged, "lib", link("usr/lib")).expect("a link");
    add(&mut merged, "up", link("../../../etc")).expect("a link");
    add(&mut merged, "abs", link("/etc")).expect("a link");
    add(&mut merged, "loop", link("loop")).expect("a link");
    for path in ["usr/lib/one", "lib/two", "up/three", "abs/four", "/absolute"] {
        file(&mut merged, path);
    }
    for path in ["../out", "a/../../out", "loop/x", "usr/lib/one/x"] {
        assert!(add(&mut merged, path, ItemKind::File(0)).is_err(), "{path}");
    }
    let outside = ItemKind::HardLink(b"../../etc/passwd".to_vec());
    assert!(add(&mut merged, "hard", outside).is_err());
    let inside = ItemKind::HardLink(b"lib/one".to_vec());
    add(&mut merged, "hard", inside).expect("a link through a link");
    let expected = [
        "abs",
        "absolute",
        "etc/",
        "etc/four",
        "etc/three",
        "hard",
        "lib",
        "loop",
        "up",
        "usr/",
        "usr/lib/",
        "usr/lib/one",
        "usr/lib/two",
    ];
    assert_eq!(paths(&merged), expected);
    merged.number_links();
    let root = &merged.nodes[ROOT].names;
    let hard = &merged.nodes[root[&b"hard"[..]].node].inode;
    assert_eq!((hard.nlink, hard.link_group != 0), (2, true));
}

#[test]
fn entries_replace_those_before() {
    let mut merged = Merged::new();
    merged.begin_layer();
    file(&mut merged, "d/kept");
    file(&mut merged, "f/lost");
    merged.begin_layer();
    add(&mut merged, "d", ItemKind::Directory).expect("a directory");
    file(&mut merged, "f");
    assert_eq!(paths(&merged), ["d/", "d/kept", "f"]);
}

/// Each whiteout would look at all entries of the layer again: hours for an archive of some megabytes.
#[test]
fn repeated_whiteouts_take_no_quadratic_time() {
    const COUNT: usize = 1000;
    let mut merged = Merged::new();
    merged.begin_layer();
    file(&mut merged, "d/old");
    merged.begin_layer();
    (0..COUNT).for_each(|number| file(&mut merged, &format!("d/{number}")));
    for _ in 0..COUNT {
        assert!(merged.whiteout(b"d/.wh..wh..opq").expect("valid"));
        assert!(merged.whiteout(b".wh.d").expect("valid"));
    }
    assert!(merged.hidden_from <= 2 * COUNT, "{}", merged.hidden_from);
    assert_eq!(paths(&merged).len(), COUNT + 1);
}

#[test]
fn memory_of_an_image_is_bounded() {
    let target = vec![b'a'; 4000];
    let symlink = || ItemKind::Symlink(target.clone());
    let full = |kind: &dyn Fn() -> ItemKind, left: usize| {
        let mut merged = Merged::new();
        merged.begin_layer();
        file(&mut merged, "target");
        merged.memory_len = MEMORY_LEN_MAX - left;
        assert!(add(&mut merged, "1", kind()).is_ok());
        // An entry that is replaced stays in the table.
        assert!(matches!(add(&mut merged, "1", kind()), Err(LayerError::TooLarge(..))));
    };
    full(&symlink, 2 * target.len());
    full(&|| ItemKind::HardLink(b"target".to_vec()), 2 * NAME_COST);
}
