//! In a guest: the package is installed, its units run, and mounts come back after a reboot.

use crate::prelude::*;

#[test]
#[ignore = "needs root and guests"]
fn installed_units_and_mounts_come_up_at_boot() {
    require("root", is_root());
    require_programs(&["linux.uml", "nfpm", "mmdebstrap", "mkfs.ext4", "objcopy", "cc"]);
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let runner = here.join("../../../script/guest/run");
    assert!(
        Command::new(&runner)
            .args(["up", GUEST])
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    );
    let site = TestSite::new();
    site.small_tree();
    let address = format!("10.77.{GUEST}.1:{}", free_port());
    site.run_ok(["publish", "src", "--db", "db", "--keys", "keys", "--location", &address]);
    let name = site.run_ok(["name", "keys", "--location", &address]);
    let (_replica, _, _) =
        start_listener(&mut site.command(["serve", "--db", "db", "--listen", &address]));
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after", "10", "1200", "bash"])
        .arg(here.join("tests/end_to_end/boot/machine.sh"));
    command.args([env!("CARGO_BIN_EXE_vouch"), name.trim(), GUEST]);
    let output = command.output().expect("timeout(1)");
    let _ = Command::new(&runner).args(["down", GUEST]).status();
    let (said, failed) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{failed}");
    assert!(
        said.contains("s after the start of the kernel")
            && said.contains("removal stops all services: ok"),
        "{said}{failed}"
    );
    println!("{said}");
}

const GUEST: &str = "96";
