use vouch_vfs::{Blocking, Caller, FileSystem as _};
use vouch_vfs_posix::Options;

use crate::fixture::{Short as _, alone, content, export, image, put, refused};

const LEN: usize = 16 << 20;

fn shared(kind: &str, above: &std::path::Path) {
    let root = above.join(kind);
    image(kind, &[], &root);
    let fs = export(&root, Options::default());
    let one = Caller::new(0, 0, []);
    assert_eq!(fs.traits().clone_block_len, 4096, "{kind}");
    let from = fs.new_file(&one, &fs.root(), "from", 0o600).expect("made");
    let to = fs.new_file(&one, &fs.root(), "to", 0o600).expect("made");
    let bytes: Vec<u8> = (0..LEN).map(|at| (at / 4096 % 251) as u8).collect();
    put(&*from.open, 0, &bytes).expect("written");
    from.open.commit(0, 0, Blocking::Allowed).expect("on disk");
    let free = || {
        fs.sync_metadata(&[from.id, to.id, fs.root()], Blocking::Allowed).expect("on disk");
        fs.space(&one, &fs.root(), Blocking::Allowed).expect("the call succeeds").bytes_free
    };
    let before = free();
    to.open.clone_range(&*from.open, 0, 0, LEN as u64).expect("cloned");
    assert!(before - free() < LEN as u64 / 4, "{kind}: a clone takes no room for data");
    assert_eq!(to.open.attributes().expect("the call succeeds").size, LEN as u64);
    assert!(content(&*to.open) == bytes[..1 << 20]);
    put(&*to.open, 10, b"changed").expect("written");
    assert!(content(&*from.open) == bytes[..1 << 20] && &content(&*to.open)[10..17] == b"changed");
    to.open.clone_range(&*from.open, 4096, 0, 4096).expect("cloned");
    assert!(content(&*to.open)[..4096] == bytes[4096..8192]);
    refused!(to.open.clone_range(&*from.open, 100, 0, 4096), Invalid);
    refused!(to.open.clone_range(&*from.open, LEN as u64, 0, 4096), Invalid);
}

#[test]
#[ignore = "needs root"]
fn xfs_shares_blocks() {
    alone("clones::xfs_shares_blocks", &["mkfs.xfs"], |above| shared("xfs", above));
}

#[test]
#[ignore = "needs root"]
fn btrfs_shares_blocks() {
    alone("clones::btrfs_shares_blocks", &["mkfs.btrfs"], |above| shared("btrfs", above));
}

#[test]
#[ignore = "needs root"]
fn missing_clone_support_is_reported() {
    alone("clones::missing_clone_support_is_reported", &["mkfs.ext4"], |above| {
        let root = above.join("ext4");
        image("ext4", &[], &root);
        let fs = export(&root, Options::default());
        let one = Caller::root();
        assert_eq!(fs.traits().clone_block_len, 0);
        let from = fs.new_file(&one, &fs.root(), "from", 0o600).expect("made");
        let to = fs.new_file(&one, &fs.root(), "to", 0o600).expect("made");
        put(&*from.open, 0, &[7; 8192]).expect("written");
        refused!(to.open.clone_range(&*from.open, 0, 0, 4096), NotSupported);
        assert_eq!(to.open.copy_from(&*from.open, 0, 0, 8192).expect("a copy succeeds"), 8192);
        assert_eq!(content(&*to.open), [7; 8192]);
    });
}
