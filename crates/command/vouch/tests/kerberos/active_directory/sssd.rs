//! A machine that msktutil(1) joins, with the users and nested groups of the domain by SSSD.

use std::path::Path;
use vouch_testkit::words;

use super::domain::{Domain, Options};
use super::{documented, is_inside, run_in_namespaces};
use crate::prelude::*;
use vouch_testkit::kill_on_drop::KillOnDrop;

/// A root file system with SSSD, by `script/install-needs sssd`.
static ROOT: LazyLock<String> = LazyLock::new(|| peers_root("sssd"));
/// Added to the sssd.conf of the page: this machine lacks a name server.
const OWN: &str = "ad_server = dc1.ad.vouch.test\ndyndns_update = false\n";

const START: &str = r#"set -e
mkdir -p "$1/var/lib/sss" "$1/var/log/sssd" "$1/etc/sssd"
for name in hosts krb5.conf krb5.keytab; do
    [ -e "$1/etc/$name" ] || touch "$1/etc/$name"
done
mount --bind "$0/var-lib/sss" "$1/var/lib/sss"
mount --bind "$0/sssd" "$1/etc/sssd"
mount --bind "$0/sssd-log" "$1/var/log/sssd"
mount --bind "$0/hosts" "$1/etc/hosts"
mount --bind "$0/krb5.conf" "$1/etc/krb5.conf"
mount --bind "$0/filer.keytab" "$1/etc/krb5.keytab"
mount -t tmpfs tmpfs "$1/run"
mount -t tmpfs tmpfs "$1/tmp"
mount -t proc proc "$1/proc"
mount --bind /dev "$1/dev"
exec chroot "$1" /usr/sbin/sssd -i
"#;

#[test]
#[ignore = "needs root, samba-dc and sssd"]
fn sssd_resolves_groups_on_machine_joined_by_msktutil() {
    let module = format!("usr/lib/{}-linux-gnu/sssd/libsss_ad.so", std::env::consts::ARCH);
    require("sssd of script/install-needs", Path::new(&*ROOT).join(module).exists());
    run_in_namespaces("active_directory::sssd::sssd_process");
}

/// The child in the namespaces; does nothing without its variable.
#[test]
fn sssd_process() {
    if !is_inside() {
        return;
    }
    let domain = Domain::start(0);
    join(&domain);
    let found = domain.output_of_documented("vouch check --keytab");
    assert!(found.contains("has a key of the service nfs"), "{found}");
    let _sssd = start(&domain);
    let [carol, staff] = [("passwd", "carol"), ("group", "staff")]
        .map(|(table, name)| domain.number_by_sssd(table, name));
    domain.make_directory("carol", (carol, 0));
    domain.make_directory("staff", (0, staff));
    let export = domain.export_with("sssd", &Options { by_sssd: true, ..Options::default() });
    let [member, other] = ["carol", "bob"].map(|user| domain.kinit(user, user));
    for directory in ["carol", "staff"] {
        export
            .enters_at(directory, &domain, &member)
            .unwrap_or_else(|status| panic!("{directory}: {status}: {}", domain.log()));
        assert_eq!(
            export.enters_at(directory, &domain, &other),
            Err(Status::ACCESS.to_string()),
            "{directory}"
        );
    }
}

/// As docs/directories.md says.
fn join(domain: &Domain) {
    domain.kinit("Administrator", "administrator");
    let mut command = domain.documented(
        "msktutil create",
        "--server dc1.ad.vouch.test --no-reverse-lookups --keytab /mnt/filer.keytab",
    );
    succeed(command.env("KRB5CCNAME", "FILE:/mnt/administrator"));
}

fn start(domain: &Domain) -> KillOnDrop {
    for name in ["sssd", "sssd/conf.d", "sssd-log", "var-lib", "sssd-module"] {
        std::fs::create_dir(domain.path(name)).expect("a directory");
    }
    let module = Path::new(&*ROOT)
        .join(format!("usr/lib/{}-linux-gnu/libnss_sss.so.2", std::env::consts::ARCH));
    std::fs::copy(module, domain.path("sssd-module/libnss_sss.so.2")).expect("the module of SSSD");
    succeed(
        Command::new("cp")
            .arg("-a")
            .arg(Path::new(&*ROOT).join("var/lib/sss"))
            .arg(domain.path("var-lib")),
    );
    let conf = domain.path("sssd/sssd.conf");
    std::fs::write(&conf, format!("{}{OWN}", documented::file("id_provider = ad")))
        .expect("a file");
    std::fs::set_permissions(&conf, std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .expect("an own file");
    std::fs::write(domain.path("sss.conf"), "passwd: files sss\ngroup: files sss\n")
        .expect("a file");
    let mut command = Command::new("unshare");
    command.args(words("--mount --pid --fork --kill-child --propagation private"));
    command.args(["sh", "-c", START]);
    command.arg(domain.path("")).arg(&*ROOT).stdin(Stdio::null()).stdout(Stdio::null());
    let log = std::fs::File::create(domain.path("sssd.log")).expect("a file");
    let process = KillOnDrop(command.stderr(log).spawn().expect("unshare(1)"));
    within(120, "SSSD does not reach the controller", || {
        let mut getent = domain.with_sssd("getent");
        getent
            .args(["-s", "sss", "passwd", "carol"])
            .stdin(Stdio::null())
            .output()
            .is_ok_and(|out| out.status.success())
    });
    process
}

impl Domain {
    /// Number of a user or group.
    fn number_by_sssd(&self, table: &str, name: &str) -> u32 {
        let out =
            self.with_sssd("getent").args(["-s", "sss", table, name]).output().expect("getent(1)");
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let number = text.split(':').nth(2).and_then(|number| number.parse().ok());
        number.unwrap_or_else(|| panic!("SSSD does not know {name}: {text}{}", self.log()))
    }

    /// A command whose name service is SSSD.
    pub(super) fn with_sssd(&self, program: &str) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c"]);
        command.arg("mount --bind \"$0\" /etc/nsswitch.conf && mount --bind \"$1\" /var/lib && shift && exec \"$@\"");
        command.arg(self.path("sss.conf")).arg(self.path("var-lib")).arg(program);
        command.env("LD_LIBRARY_PATH", self.path("sssd-module"));
        command
    }
}
