//! Mounts by mount(8), fstab(5) and autofs, with the real programs, in a mount namespace.

use crate::prelude::*;

#[test]
#[ignore = "needs root, FUSE and autofs"]
fn trees_mount_by_mount_program_fstab_and_autofs() {
    require("root", is_root());
    require_program("automount");
    let site = TestSite::published();
    site.write("etc/vouch.toml", "");
    let _replica = site.serve();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let script = here.join("tests/end_to_end/mount_program.sh");
    let map = here.join("../../../packaging/autofs/auto.vouch");
    let mut command = Command::new("timeout");
    command
        .args(words("--kill-after 5 120 unshare --mount --propagation private bash"))
        .arg(script)
        .args([env!("CARGO_BIN_EXE_vouch"), &site.name("")])
        .arg(map);
    command
        .current_dir(site.path(""))
        .env("VOUCH_CONFIG", site.path("etc"))
        .env("VOUCH_STATE", site.path("state"))
        .env("LC_ALL", "C");
    assert_eq!(succeed(&mut command), "mount(8): ok\nautofs: ok\n");
}
