use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};

use crate::guest::{Guest, Network};
use crate::server::{Server, ServerOptions};

pub(crate) struct Certificates {
    dir: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Certificates {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority of a test");
        let key = KeyPair::generate().expect("a key");
        std::fs::write(
            dir.path().join("ca.pem"),
            params.self_signed(&key).expect("a certificate").pem(),
        )
        .expect("a file");
        Certificates { dir, issuer: Issuer::new(params, key) }
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.dir.path().join(file)
    }

    pub(crate) fn issue(&self, file: &str, names: &[&str], address: Option<&str>) {
        let mut params =
            CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
                .expect("names");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, names[0]);
        params
            .subject_alt_names
            .extend(address.map(|text| SanType::IpAddress(text.parse().expect("an address"))));
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        std::fs::write(self.path(&format!("{file}.pem")), certificate.pem()).expect("a file");
        std::fs::write(self.path(&format!("{file}.key")), key.serialize_pem()).expect("a file");
        std::fs::set_permissions(
            self.path(&format!("{file}.key")),
            std::fs::Permissions::from_mode(0o600),
        )
        .expect("an own file");
    }
}

fn mount_with(xprtsec: &str) {
    let network = Network::new();
    let files = Certificates::new();
    files.issue("server", &["server.vouch.test"], Some(&network.address));
    files.issue("node", &[&network.guest_name()], None);
    let option = |name: &str, file: &str| [name.into(), files.path(file).into_os_string()];
    let more = [
        option("--tls-cert", "server.pem"),
        option("--tls-key", "server.key"),
        option("--tls-client-ca", "ca.pem"),
    ]
    .concat();
    let options = format!("rw,no_root_squash,sec=sys,xprtsec={xprtsec}");
    let server =
        Server::start_with(&network, ServerOptions { options, more, ..ServerOptions::default() });
    let guest = Guest::new(&network, &server)
        .newer_system()
        .set("VERSIONS", "4.2 4.1 4.0")
        .set("XPRTSEC", xprtsec);
    let guest = guest
        .file(&files.path("ca.pem"))
        .file(&files.path("node.pem"))
        .file(&files.path("node.key"))
        .start("tls.sh");
    server.wait_for("begun");
    std::thread::sleep(Duration::from_millis(500));
    files.issue("server", &["server.vouch.test"], Some(&network.address));
    server.reload();
    network.disconnect();
    std::thread::sleep(Duration::from_millis(500));
    network.reconnect();
    let out = guest.ok();
    assert!(out.contains("ok: no mount without TLS"), "{out}");
}

#[test]
#[ignore = "needs root and guests"]
fn linux_mounts_over_tls() {
    mount_with("tls");
}

#[test]
#[ignore = "needs root and guests"]
fn linux_mounts_over_mutual_tls() {
    mount_with("mtls");
}

/// The server runs in the guest, because kernel TLS is there.
#[test]
#[ignore = "needs root and guests"]
fn file_data_leaves_through_kernel_tls() {
    let network = Network::new();
    let files = Certificates::new();
    files.issue("server", &["server.vouch.test"], Some("127.0.0.1"));
    let server = Server::start(&network);
    let guest =
        Guest::new(&network, &server).newer_kernel().set("VOUCH", env!("CARGO_BIN_EXE_vouch"));
    let guest = guest
        .file(&files.path("ca.pem"))
        .file(&files.path("server.pem"))
        .file(&files.path("server.key"));
    println!("{}", guest.run("kernel_tls.sh"));
}
