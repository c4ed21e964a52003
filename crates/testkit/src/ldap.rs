//! slapd(8) on a Unix socket, with the schema of MIT Kerberos: the directory of a realm, whose KDC
//! then knows to which services a principal may delegate.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::kdc::{Directory, Kdc, REALM};
use crate::require;

/// A realm with its directory.
pub struct LdapRealm {
    pub kdc: Kdc,
    directory: Directory,
    slapd: Child,
    _files: tempfile::TempDir,
}

pub const BASE: &str = "dc=vouch,dc=test";
pub const ADMINISTRATOR: &str = "cn=admin,dc=vouch,dc=test";
pub const PASSWORD: &str = "secret";
const SCHEMA: &str = "/usr/share/doc/krb5-kdc-ldap/kerberos.schema.gz";

impl LdapRealm {
    /// The KDC also listens on `addresses`.
    pub fn start(addresses: &[std::net::IpAddr]) -> LdapRealm {
        let needs = ["/usr/sbin/slapd", "/usr/bin/ldapadd", "/usr/sbin/kdb5_ldap_util", SCHEMA];
        require(
            "the packages slapd, ldap-utils and krb5-kdc-ldap",
            needs.iter().all(|path| Path::new(path).exists()),
        );
        let files = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| files.path().join(name);
        let schema = Command::new("zcat").arg(SCHEMA).output().expect("zcat(1)").stdout;
        std::fs::write(path("kerberos.schema"), schema).expect("a file");
        std::fs::create_dir(path("database")).expect("a directory");
        let here = files.path().display();
        let text = format!(
            "include /etc/ldap/schema/core.schema\ninclude {here}/kerberos.schema\nmodulepath /usr/lib/ldap\nmoduleload back_mdb\n\
             database mdb\nsuffix {BASE}\nrootdn {ADMINISTRATOR}\nrootpw {PASSWORD}\ndirectory {here}/database\n"
        );
        std::fs::write(path("slapd.conf"), text).expect("a file");
        let socket = path("socket");
        let url = format!("ldapi://{}", socket.display().to_string().replace('/', "%2F"));
        let mut command = Command::new("/usr/sbin/slapd");
        command.args(["-d", "0", "-h", &url, "-f"]).arg(path("slapd.conf"));
        let slapd = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("slapd is there");
        wait_for(&socket);
        let directory =
            Directory { url, base: BASE, administrator: ADMINISTRATOR, password: PASSWORD };
        let root = format!(
            "dn: {BASE}\nobjectClass: dcObject\nobjectClass: organization\no: vouch\ndc: vouch\n"
        );
        change(&directory, "ldapadd", &root);
        let kdc = Kdc::start_with(REALM, addresses, Some(directory.clone()));
        LdapRealm { kdc, directory, slapd, _files: files }
    }

    /// Lets the KDC give a principal tickets in users' names for these services.
    pub fn allow_delegation(&self, principal: &str, services: &[&str]) {
        let mut text = format!(
            "dn: krbPrincipalName={principal}@{REALM},cn={REALM},cn=kerberos,{BASE}\nchangetype: modify\nadd: krbAllowedToDelegateTo\n"
        );
        services.iter().for_each(|service| {
            text.push_str(&format!("krbAllowedToDelegateTo: {service}@{REALM}\n"))
        });
        change(&self.directory, "ldapmodify", &text);
    }
}

impl Drop for LdapRealm {
    fn drop(&mut self) {
        let _ = self.slapd.kill();
        let _ = self.slapd.wait();
    }
}

pub fn wait_for(socket: &PathBuf) {
    let connects = || std::os::unix::net::UnixStream::connect(socket).is_ok();
    crate::within(60, "slapd does not start", connects);
}

pub fn change(directory: &Directory, program: &str, text: &str) {
    let Directory { url, administrator, password, .. } = directory;
    let mut command = Command::new(program);
    command.args(["-H", url, "-x", "-D", administrator, "-w", password]);
    let out = crate::output_with(&mut command, text);
    assert!(out.status.success(), "{program}: {}", String::from_utf8_lossy(&out.stderr));
}
