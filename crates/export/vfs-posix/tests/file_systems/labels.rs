use std::path::Path;

use rustix::fs::XattrFlags;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use vouch_vfs::{Blocking, Error, FileSystem as _};
use vouch_vfs_posix::Options;

use crate::fixture::{Short as _, alone, export, image, memory, refused, run, users};

#[test]
#[ignore = "needs root"]
fn label_is_the_attribute_that_local_programs_see() {
    const TEST: &str = "labels::label_is_the_attribute_that_local_programs_see";
    alone(TEST, &["mkfs.ext4", "getfattr"], |above| {
        let (memory_root, disk_root) = (above.join("memory"), above.join("disk"));
        memory(&memory_root);
        check(&memory_root);
        image("ext4", &[], &disk_root);
        check(&disk_root);
    });
}

fn check(root: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(root, PermissionsExt::from_mode(0o1777)).expect("root is allowed");
    let fs = export(root, Options::default());
    assert!(fs.traits().labels);
    let (one, other) = users();
    let made = fs.new_file(&one, &fs.root(), "f", 0o666).expect("made");
    let label = || fs.label(&made.id, Blocking::Allowed);
    assert!(matches!(label(), Err(Error::NoXattr)));
    let before = fs.attributes_of(&made.id).expect("the call succeeds").change;
    fs.set_label(&one, &made.id, b"system_u:object_r:etc_t:s0").expect("the owner may");
    assert_eq!(label().expect("it has one"), b"system_u:object_r:etc_t:s0");
    assert_ne!(fs.attributes_of(&made.id).expect("the call succeeds").change, before);
    refused!(fs.set_label(&other, &made.id, b"other_t"), Permission);
    let path = root.join("f");
    let without_administration = || {
        let mut less = capabilities(None).expect("it has some");
        less.effective.remove(CapabilitySet::SYS_ADMIN);
        less.permitted.remove(CapabilitySet::SYS_ADMIN);
        set_capabilities(None, less).expect("fewer are allowed");
        // A kernel with SELinux allows it to the owner.
        let own = root.join("own");
        std::fs::write(&own, "").expect("a file");
        let may = rustix::fs::setxattr(&own, "security.selinux", b"x_t\0", XattrFlags::empty());
        (export(root, Options::default()).traits().labels, may.is_ok())
    };
    let offered = std::thread::scope(|scope| scope.spawn(without_administration).join());
    let (offered, may) = offered.expect("no panic");
    assert_eq!(offered, may, "if not, clients with SELinux could create no file");
    let shown = run("getfattr", ["-n", "security.selinux", &path.to_string_lossy()]);
    assert!(shown.expect("it has one").contains("\"system_u:object_r:etc_t:s0"));
}
