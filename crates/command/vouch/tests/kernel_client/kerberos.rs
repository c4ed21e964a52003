//! The Linux kernel's NFS client under Kerberos: rpc.gssd and tickets in the guest, a real KDC
//! outside.

use std::ffi::OsString;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::PathBuf;
use std::time::Duration;

use crate::guest::{self, Guest, Network};
use crate::server::{Server, ServerOptions};
use crate::tls::Certificates;
use vouch_testkit::kdc::{Client, Kdc};
use vouch_testkit::require;

/// Linux 6.1 lacks the encryption types of RFC 8009.
pub(crate) const ENCTYPES: &str = "aes256-cts-hmac-sha1-96 aes128-cts-hmac-sha1-96";
const USERS: [&str; 3] = ["daemon", "games", "mail"];

struct Realm {
    kdc: Kdc,
    network: Network,
    krb5_conf: PathBuf,
    server_keytab: PathBuf,
}

impl Realm {
    fn new(clock_skew: u32) -> Realm {
        let network = Network::new();
        require_gssd();
        let address = network.address.parse().expect("an address");
        let kdc = Kdc::start_on(&[address]);
        let machine = format!("host/{}", network.guest_name());
        kdc.add(&USERS);
        kdc.add(&["nfs/server.vouch.test", &machine]);
        USERS.iter().for_each(|user| drop(kdc.keytab(&format!("{user}.keytab"), &[user])));
        kdc.keytab("machine.keytab", &[&machine]);
        let server_keytab = kdc.keytab("server.keytab", &["nfs/server.vouch.test"]);
        kdc.client(&Client { name: "server", clock_skew, ..Client::default() });
        std::fs::create_dir(kdc.path("guest")).expect("a directory");
        let krb5_conf = kdc.client(&Client {
            name: "guest/krb5",
            kdc: address,
            enctypes: ENCTYPES,
            clock_skew,
            ..Client::default()
        });
        Realm { kdc, network, krb5_conf, server_keytab }
    }

    fn server(&self, options: &str) -> Server {
        self.server_with(options, Vec::new())
    }

    fn server_with(&self, options: &str, mut more: Vec<OsString>) -> Server {
        more.extend(["--keytab".into(), self.server_keytab.clone().into()]);
        let environment = self.kdc.environment("server");
        let server_options = ServerOptions {
            options: options.into(),
            more,
            environment,
            ..ServerOptions::default()
        };
        let server = Server::start_with(&self.network, server_options);
        std::fs::set_permissions(server.path(""), PermissionsExt::from_mode(0o1777))
            .expect("the export is ours");
        server
    }

    fn guest(&self, server: &Server) -> Guest {
        let mut guest = Guest::new(&self.network, server)
            .limit(1200)
            .file(&self.krb5_conf)
            .file(&guest::work("gss.bash"));
        for name in USERS.iter().chain(&["machine"]) {
            guest = guest.file(&self.kdc.path("keytabs").join(format!("{name}.keytab")));
        }
        guest
    }
}

pub(crate) fn require_gssd() {
    for (program, package) in
        [("/usr/sbin/rpc.gssd", "nfs-common"), ("/usr/bin/kinit", "krb5-user")]
    {
        require(&format!("the package {package}"), std::path::Path::new(program).exists());
    }
}

#[test]
#[ignore = "needs root and guests"]
fn each_flavour_works_for_users_with_tickets() {
    let realm = Realm::new(300);
    let server = realm.server("rw,sec=krb5p:krb5i:krb5,crossmnt");
    let out = realm.guest(&server).run("kerberos.sh");
    for version in ["4.1", "4.2", "4.0"] {
        for flavour in ["krb5", "krb5i", "krb5p"] {
            assert!(out.contains(&format!("ok: {version} {flavour}")), "{out}");
            let file = server.path(&format!("daemon-{version}-{flavour}"));
            assert_eq!(
                std::fs::metadata(file).expect("a file that the guest made").uid(),
                1,
                "the ticket holder owns the file"
            );
            let file = server.path(&format!("machine-{version}-{flavour}"));
            assert_eq!(
                std::fs::metadata(file).expect("a file that the guest made").uid(),
                65_534,
                "the machine account maps to nobody"
            );
        }
    }
    assert!(out.contains("ok: the strongest is chosen") && out.contains("ok: lent"), "{out}");
}

#[test]
#[ignore = "needs root and guests"]
fn kerberos_identifies_users_over_tls() {
    let realm = Realm::new(300);
    let certificates = Certificates::new();
    certificates.issue("server", &["server.vouch.test"], Some(&realm.network.address));
    let file = |name: &str| certificates.path(name).into_os_string();
    let more =
        vec!["--tls-cert".into(), file("server.pem"), "--tls-key".into(), file("server.key")];
    let server = realm.server_with("rw,sec=krb5,xprtsec=tls", more);
    let out = realm
        .guest(&server)
        .newer_system()
        .file(&certificates.path("ca.pem"))
        .run("kerberos_tls.sh");
    for version in ["4.2", "4.1"] {
        assert!(out.contains(&format!("ok: {version} krb5 over TLS")), "{out}");
        let file = server.path(&format!("daemon-{version}"));
        assert_eq!(
            std::fs::metadata(file).expect("a file that the guest made").uid(),
            1,
            "the ticket holder owns the file"
        );
    }
    assert!(out.contains("ok: no mount without TLS"), "{out}");
}

#[test]
#[ignore = "needs root and guests"]
fn work_continues_after_the_server_loses_its_contexts() {
    let realm = Realm::new(300);
    for version in ["4.2", "4.0"] {
        let mut server = realm.server("rw,sec=krb5p");
        let guest = realm.guest(&server).set("VERSION", version).start("kerberos_survivor.sh");
        server.wait_for("begun");
        for pause in [700, 900] {
            std::thread::sleep(Duration::from_millis(pause));
            server.kill();
            server.restart();
        }
        std::fs::write(server.path("enough"), "").expect("a file");
        let out = guest.ok();
        assert!(out.contains("ok: survived"), "{version}: {out}");
    }
}

#[test]
#[ignore = "needs root and guests"]
fn access_ends_with_the_ticket_and_resumes_with_a_new_one() {
    let realm = Realm::new(1);
    for version in ["4.1", "4.0"] {
        let server = realm.server("rw,sec=krb5i");
        let out = realm.guest(&server).set("VERSION", version).run("kerberos_expiry.sh");
        assert!(out.contains("ok: renewed"), "{version}: {out}");
    }
}
