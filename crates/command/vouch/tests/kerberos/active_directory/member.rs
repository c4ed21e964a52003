//! A member server that joins by Samba's own tool, with its keytab, and its winbind. The winbind of a
//! controller does not resolve nested groups.

use super::documented;
use super::domain::{Domain, PASSWORD, make_root};
use crate::prelude::*;
use vouch_testkit::kill_on_drop::KillOnDrop;

/// Its directories below those of the domain.
pub(super) const NAME: &str = "member";
pub(super) const KEYTAB: &str = "member.keytab";
pub(super) const TARGET: &str = "nfs@member.ad.vouch.test";

/// Added to the smb.conf of the page: this machine lacks a name server and a host name of its own.
const OWN: &str = "netbios name = MEMBER
password server = dc1.ad.vouch.test
bind interfaces only = yes
interfaces = 127.0.0.1/32
idmap config PARTNER : backend = rid
idmap config PARTNER : range = 2000000-2999999
";

/// Joins as docs/directories.md says.
pub(super) fn start(domain: &Domain) -> KillOnDrop {
    make_root(&domain.path(""), NAME);
    let configuration = format!(
        "{}{OWN}",
        documented::file("security = ads").replace("/etc/krb5.keytab", &format!("/mnt/{KEYTAB}"))
    );
    std::fs::write(domain.path("member/etc/samba/smb.conf"), configuration).expect("a file");
    let mut commands = vec![documented::command("net ads join") + " --no-dns-updates"];
    let usage = domain.inside_own(NAME, "net").args(["ads", "keytab"]).output().expect("net(8)");
    if String::from_utf8_lossy(&[usage.stdout, usage.stderr].concat()).contains("add_update_ads") {
        commands.push(documented::quoted("net ads keytab add_update_ads"));
    } else {
        commands.extend(
            ["net ads setspn", "net ads keytab create"]
                .map(|start| documented::command(start).replace("filer", "member")),
        );
    }
    for command in commands {
        let command = command.replace("-U Administrator", &format!("-U Administrator%{PASSWORD}"));
        let mut net = domain.inside_own(NAME, "sh");
        succeed(
            net.args(["-c", &format!("{command} -S dc1.ad.vouch.test")])
                .env("KRB5_KTNAME", format!("/mnt/{KEYTAB}")),
        );
    }
    let log = std::fs::File::create(domain.path("winbind.log")).expect("a file");
    let mut winbind = domain.inside_own(NAME, "/usr/sbin/winbindd");
    winbind.args(["-F", "--no-process-group", "--debug-stdout", "-d", "1"]);
    winbind.stdin(Stdio::null()).stdout(log.try_clone().expect("a file")).stderr(log);
    let process = KillOnDrop(winbind.spawn().expect("unshare(1)"));
    within(120, "winbind does not reach the controller", || {
        domain
            .inside_own(NAME, "wbinfo")
            .args(["-r", "AD\\carol"])
            .stdin(Stdio::null())
            .output()
            .is_ok_and(|out| out.status.success())
    });
    process
}
