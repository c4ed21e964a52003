//! A member server that joins by Samba's own tool, with its keytab, and its winbind. The winbind of a
//! controller does not resolve nested groups.

use super::documented;
use super::domain::{Domain, PASSWORD, make_root, succeed, until};
use crate::kill_on_drop::KillOnDrop;
use crate::prelude::*;

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
    let configuration = format!("{}{OWN}", documented::file("security = ads"));
    std::fs::write(domain.path("member/etc/samba/smb.conf"), configuration).expect("a file");
    for (command, more) in [("net ads join", "-S dc1.ad.vouch.test --no-dns-updates"), ("net ads keytab", "-S dc1.ad.vouch.test")] {
        let command = documented::command(command).replace("-U Administrator", &format!("-U Administrator%{PASSWORD}"));
        let mut net = domain.inside_own(NAME, "sh");
        succeed(net.args(["-c", &format!("{command} {more}")]).env("KRB5_KTNAME", format!("/mnt/{KEYTAB}")));
    }
    let log = std::fs::File::create(domain.path("winbind.log")).expect("a file");
    let mut winbind = domain.inside_own(NAME, "/usr/sbin/winbindd");
    winbind.args(["-F", "--no-process-group", "--debug-stdout", "-d", "1"]);
    winbind.stdin(Stdio::null()).stdout(log.try_clone().expect("a file")).stderr(log);
    let process = KillOnDrop(winbind.spawn().expect("unshare(1)"));
    until("winbind does not reach the controller", || {
        domain.inside_own(NAME, "wbinfo").args(["-r", "AD\\carol"]).stdin(Stdio::null()).output().is_ok_and(|out| out.status.success())
    });
    process
}
