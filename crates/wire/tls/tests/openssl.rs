//! Handshakes with OpenSSL, both ways: X25519MLKEM768 and ML-DSA certificates.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, NamedGroup, RootCertStore, ServerConfig,
    ServerConnection, StreamOwned,
};

/// That of `script/install-needs`, or else that of the system.
fn openssl() -> Command {
    let newer = Path::new("/opt/vouch-openssl/openssl");
    let program = if newer.exists() { newer } else { Path::new("openssl") };
    let groups = Command::new(program).args(["list", "-kem-algorithms"]).output().unwrap().stdout;
    assert!(String::from_utf8_lossy(&groups).contains("X25519MLKEM768"), "needs OpenSSL 3.5");
    Command::new(program)
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const CERTIFICATES: [(&str, &str); 5] =
    [("44", "seed"), ("44", "both"), ("65", "expanded"), ("65", "seed"), ("87", "both")];

fn files((name, form): (&str, &str)) -> (PathBuf, PathBuf) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/testdata");
    (dir.join(format!("certificate-{name}.pem")), dir.join(format!("{form}-{name}.pem")))
}

fn credentials(which: (&str, &str)) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let (certificate, key) = files(which);
    (
        CertificateDer::from_pem_file(certificate).unwrap(),
        PrivateKeyDer::from_pem_file(key).unwrap(),
    )
}

fn roots(certificate: &CertificateDer<'static>) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    Arc::new(roots)
}

#[test]
#[ignore = "needs OpenSSL 3.5"]
fn client_agrees_on_the_hybrid_group_with_openssl() {
    for which in CERTIFICATES {
        for (groups, expected) in [
            ("X25519MLKEM768", NamedGroup::X25519MLKEM768),
            ("X25519MLKEM768:X25519", NamedGroup::X25519MLKEM768),
            ("X25519", NamedGroup::X25519),
        ] {
            let (certificate, key) = files(which);
            let mut server = openssl();
            server.args(["s_server", "-accept", "127.0.0.1:0", "-rev", "-tls1_3", "-Verify", "1"]);
            server.arg("-verify_return_error").args(["-groups", groups]);
            server.arg("-cert").arg(&certificate).arg("-CAfile").arg(&certificate);
            server.arg("-key").arg(&key);
            let mut server =
                Ended(server.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
            let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
            let address = lines
                .find_map(|line| line.unwrap().strip_prefix("ACCEPT ").map(str::to_owned))
                .expect("the server's address");
            let (certificate, key) = credentials(which);
            let config = ClientConfig::builder_with_provider(vouch_tls::provider())
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots(&certificate))
                .with_client_auth_cert(vec![certificate], key)
                .unwrap();
            let name = ServerName::try_from("localhost").unwrap();
            let session = ClientConnection::new(Arc::new(config), name).unwrap();
            let mut stream = StreamOwned::new(session, TcpStream::connect(address).unwrap());
            stream.write_all(b"vouch\n").unwrap();
            let mut answer = [0; 6];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"hcuov\n");
            let session = &stream.conn;
            assert_eq!(session.negotiated_key_exchange_group().unwrap().name(), expected);
            assert_eq!(session.handshake_kind(), Some(HandshakeKind::Full), "{groups}");
        }
    }
}

#[test]
#[ignore = "needs OpenSSL 3.5"]
fn server_agrees_on_the_hybrid_group_with_openssl() {
    for which in CERTIFICATES {
        for (groups, expected) in [
            ("X25519MLKEM768", NamedGroup::X25519MLKEM768),
            ("X25519", NamedGroup::X25519),
            ("P-256", NamedGroup::secp256r1),
        ] {
            let (certificate, key) = credentials(which);
            let provider = vouch_tls::provider();
            let verifier =
                WebPkiClientVerifier::builder_with_provider(roots(&certificate), provider.clone());
            let config = ServerConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_client_cert_verifier(verifier.build().unwrap())
                .with_single_cert(vec![certificate], key)
                .unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let (certificate, key) = files(which);
            let mut client = openssl();
            client.args(["s_client", "-quiet", "-tls1_3", "-groups", groups]);
            client.args(["-verify_return_error", "-verify_hostname", "localhost", "-connect"]);
            client.arg(listener.local_addr().unwrap().to_string());
            client.arg("-CAfile").arg(&certificate).arg("-cert").arg(&certificate);
            client.arg("-key").arg(&key);
            let mut client = Ended(client.stdin(Stdio::piped()).spawn().unwrap());
            client.0.stdin.as_mut().unwrap().write_all(b"vouch\n").unwrap();
            let session = ServerConnection::new(Arc::new(config)).unwrap();
            let mut stream = StreamOwned::new(session, listener.accept().unwrap().0);
            let mut line = [0; 6];
            stream.read_exact(&mut line).unwrap();
            assert_eq!(&line, b"vouch\n");
            let session = &stream.conn;
            assert_eq!(session.negotiated_key_exchange_group().unwrap().name(), expected);
            assert_eq!(session.handshake_kind(), Some(HandshakeKind::Full), "{groups}");
            assert!(session.peer_certificates().is_some());
        }
    }
}
