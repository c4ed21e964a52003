//! winbind of a member server of the domain. That of a controller does not resolve nested groups.

use super::domain::{Domain, PASSWORD, succeed, until};
use crate::kill_on_drop::KillOnDrop;
use crate::prelude::*;

/// Its directories below those of the domain.
pub(super) const NAME: &str = "member";

const CONFIGURATION: &str = "[global]
workgroup = ADVOUCH
realm = AD.VOUCH.TEST
netbios name = MEMBER
security = ads
password server = dc1.ad.vouch.test
bind interfaces only = yes
interfaces = 127.0.0.1/32
idmap config * : backend = tdb
idmap config * : range = 60000-69999
idmap config ADVOUCH : backend = rid
idmap config ADVOUCH : range = 100000-199999
";

/// Has a machine account of its own, which needs none of the keytab's keys.
pub(super) fn start(domain: &Domain) -> KillOnDrop {
    domain.make_root(NAME);
    std::fs::write(domain.path("member/etc/samba/smb.conf"), CONFIGURATION).expect("a file");
    let mut join = domain.inside_own(NAME, "net");
    succeed(join.args(["ads", "join", "-S", "dc1.ad.vouch.test", "--no-dns-updates", "-U"]).arg(format!("Administrator%{PASSWORD}")));
    let log = std::fs::File::create(domain.path("winbind.log")).expect("a file");
    let mut winbind = domain.inside_own(NAME, "/usr/sbin/winbindd");
    winbind.args(["-F", "--no-process-group", "--debug-stdout", "-d", "1"]);
    winbind.stdin(Stdio::null()).stdout(log.try_clone().expect("a file")).stderr(log);
    let process = KillOnDrop(winbind.spawn().expect("unshare(1)"));
    until("winbind does not reach the controller", || {
        domain.inside_own(NAME, "wbinfo").args(["-r", "ADVOUCH\\carol"]).stdin(Stdio::null()).output().is_ok_and(|out| out.status.success())
    });
    process
}
