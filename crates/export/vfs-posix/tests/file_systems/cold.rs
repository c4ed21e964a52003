//! A caller that must not wait gets WouldBlock.

use std::path::Path;

use vouch_vfs::{Access, AccessOverride, Blocking, Caller, FileId, FileSystem as _};
use vouch_vfs_posix::{Options, PosixFs};

use crate::fixture::{BOTH, Short as _, alone, export, image, memory, named, refused};

fn unused(root: &Path) -> (PosixFs, FileId, FileId) {
    let before = export(root, Options::default());
    let directory = before
        .new_directory(&Caller::root(), &before.root(), "directory", 0o755)
        .expect("creating a directory succeeds");
    let file = before
        .new_file(&Caller::root(), &directory, "file", 0o644)
        .expect("creating a file succeeds")
        .id;
    (export(root, Options::default()), directory, file)
}

#[test]
#[ignore = "needs root"]
fn uncached_inode_is_waited_for_once() {
    alone("cold::uncached_inode_is_waited_for_once", &["mkfs.ext4"], |above| {
        let root = above.join("root");
        image("ext4", &[], &root);
        let (fs, directory, file) = unused(&root);
        let who = Caller::root();
        refused!(fs.attributes(&file, Blocking::Forbidden), WouldBlock);
        refused!(fs.access(&who, &file, Access::READ, Blocking::Forbidden), WouldBlock);
        refused!(fs.open(&who, &file, BOTH, AccessOverride::None, Blocking::Forbidden), WouldBlock);
        refused!(fs.lookup(&who, &directory, named("file"), Blocking::Forbidden), WouldBlock);
        assert!(!fs.syncs_together(&[file]), "its content is unknown");
        fs.attributes(&fs.root(), Blocking::Forbidden).expect("the root is always known");
        fs.attributes_of(&file).expect("the file exists");
        fs.attributes(&file, Blocking::Forbidden).expect("the entry was used recently");
        fs.open(&who, &file, BOTH, AccessOverride::None, Blocking::Forbidden)
            .expect("the entry was used recently");
        assert!(fs.syncs_together(&[file]), "ext4 has a journal");
    });
}

#[test]
#[ignore = "needs root"]
fn file_in_memory_never_blocks() {
    alone("cold::file_in_memory_never_blocks", &[], |above| {
        let root = above.join("root");
        memory(&root);
        let (fs, directory, file) = unused(&root);
        fs.attributes(&file, Blocking::Forbidden).expect("the file is in memory");
        fs.lookup(&Caller::root(), &directory, named("file"), Blocking::Forbidden)
            .expect("the file is in memory");
    });
}
