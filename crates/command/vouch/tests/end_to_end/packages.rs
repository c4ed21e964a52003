//! The packages: built, checked by lintian, installed, upgraded, removed and purged; the container
//! image and the Ansible role.

use crate::prelude::*;

#[test]
#[ignore = "needs root and the tools of packages"]
fn packages_install_mount_upgrade_and_purge_in_clean_roots() {
    require("root", is_root());
    require_programs(&[
        "nfpm",
        "lintian",
        "rpm",
        "mmdebstrap",
        "objcopy",
        "buildah",
        "ansible-playbook",
    ]);
    let (site, _replica) = TestSite::served();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../script/test-packages");
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after", "5", "900"])
        .arg(script)
        .args([env!("CARGO_BIN_EXE_vouch"), &site.name("")]);
    let said = succeed(&mut command);
    let time = said
        .lines()
        .find_map(|line| line.strip_suffix(" ms")?.rsplit(' ').next()?.parse::<u64>().ok());
    assert!(time.is_some_and(|ms| ms < 60_000), "{said}");
}
