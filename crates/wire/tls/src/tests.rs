use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, NamedGroup, RootCertStore, ServerConfig,
    ServerConnection, SignatureScheme,
};

use crate::key_exchange::PORTABLE_HYBRID;
use crate::{ml_dsa_key, ml_dsa_verifier, provider};

/// Written by OpenSSL 3.6: `genpkey -algorithm ML-DSA-…`, `pkey -provparam ml-dsa.output_formats=…`
/// and `req -x509`.
macro_rules! made_by_openssl {
    ($($name:literal),*) => {
        [$((
            include_str!(concat!("testdata/certificate-", $name, ".pem")),
            [
                include_str!(concat!("testdata/seed-", $name, ".pem")),
                include_str!(concat!("testdata/expanded-", $name, ".pem")),
                include_str!(concat!("testdata/both-", $name, ".pem")),
            ],
        )),*]
    };
}

const FILES: [(&str, [&str; 3]); 3] = made_by_openssl!("44", "65", "87");

fn certificate(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

fn key(pem: &str) -> PrivatePkcs8KeyDer<'static> {
    PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).unwrap()
}

/// Both sides present the same certificate.
fn configs(
    [client, server]: [Arc<CryptoProvider>; 2],
    (chain, private): (&str, &str),
) -> (ClientConfig, ServerConfig) {
    let chain = vec![certificate(chain)];
    let private = PrivateKeyDer::Pkcs8(key(private));
    let mut roots = RootCertStore::empty();
    roots.add(chain[0].clone()).unwrap();
    let roots = Arc::new(roots);
    let of_server = WebPkiServerVerifier::builder_with_provider(roots.clone(), client.clone());
    let of_client = WebPkiClientVerifier::builder_with_provider(roots, server.clone());
    let client = ClientConfig::builder_with_provider(client)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_webpki_verifier(of_server.build().unwrap())
        .with_client_auth_cert(chain.clone(), private.clone_key())
        .unwrap();
    let server = ServerConfig::builder_with_provider(server)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(of_client.build().unwrap())
        .with_single_cert(chain, private)
        .unwrap();
    (client, server)
}

type Sides = (ClientConnection, ServerConnection);

fn connect((client, server): (ClientConfig, ServerConfig)) -> Result<Sides, rustls::Error> {
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = ClientConnection::new(Arc::new(client), name)?;
    let mut server = ServerConnection::new(Arc::new(server))?;
    while client.is_handshaking() || server.is_handshaking() {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        let mut bytes = &wire[..];
        while !bytes.is_empty() {
            server.read_tls(&mut bytes).unwrap();
            server.process_new_packets()?;
        }
        let mut wire = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
        let mut bytes = &wire[..];
        while !bytes.is_empty() {
            client.read_tls(&mut bytes).unwrap();
            client.process_new_packets()?;
        }
    }
    Ok((client, server))
}

fn with_groups(groups: Vec<&'static dyn SupportedKxGroup>) -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider { kx_groups: groups, ..CryptoProvider::clone(&provider()) })
}

fn group_of(sides: &Sides) -> NamedGroup {
    assert_eq!(sides.0.handshake_kind(), Some(HandshakeKind::Full), "a second round trip");
    sides.1.negotiated_key_exchange_group().unwrap().name()
}

#[test]
fn hybrid_group_is_agreed_by_any_two_implementations() {
    let ours = provider().kx_groups[0];
    assert_eq!(ours.name(), NamedGroup::X25519MLKEM768);
    let portable = &PORTABLE_HYBRID as &dyn SupportedKxGroup;
    for (one, other) in [(ours, ours), (ours, portable), (portable, ours), (portable, portable)] {
        let client = one.start().unwrap();
        let server = other.start_and_complete(client.pub_key()).unwrap();
        let secret = client.complete(&server.pub_key).unwrap();
        assert_eq!(secret.secret_bytes(), server.secret.secret_bytes());
        assert_eq!((server.pub_key.len(), secret.secret_bytes().len()), (1120, 64));
    }
}

#[test]
fn peers_without_the_hybrid_group_need_no_second_round_trip() {
    let (ours, file) = (provider(), (FILES[0].0, FILES[0].1[0]));
    let old = with_groups(vec![rustls::crypto::ring::kx_group::X25519]);
    let agreed = |client: &Arc<CryptoProvider>, server: &Arc<CryptoProvider>| {
        group_of(&connect(configs([client.clone(), server.clone()], file)).unwrap())
    };
    assert_eq!(agreed(&ours, &ours), NamedGroup::X25519MLKEM768);
    assert_eq!(agreed(&ours, &old), NamedGroup::X25519);
    assert_eq!(agreed(&old, &ours), NamedGroup::X25519);
}

#[test]
fn malformed_key_shares_are_refused() {
    for group in [provider().kx_groups[0], &PORTABLE_HYBRID] {
        let share = group.start().unwrap().pub_key().to_vec();
        let server = group.start_and_complete(&share).unwrap().pub_key;
        // A coefficient of 4095 exceeds the modulus (FIPS 203 §7.2).
        let above_modulus = [&[0xff; 3], &share[3..]].concat();
        let zero_point = [&share[..1184], &[0; 32]].concat();
        for bad in [&share[1..], &[&share[..], &[0]].concat(), &[], &above_modulus, &zero_point] {
            assert!(group.start_and_complete(bad).is_err());
        }
        for bad in [&server[1..], &[], &[&server[..1088], &[0; 32]].concat()] {
            assert!(group.start().unwrap().complete(bad).is_err());
        }
        // Altered ciphertexts lead to another secret (FIPS 203 §6.3).
        let client = group.start().unwrap();
        let mut answer = group.start_and_complete(client.pub_key()).unwrap();
        answer.pub_key[7] ^= 1;
        let secret = client.complete(&answer.pub_key).unwrap();
        assert_ne!(secret.secret_bytes(), answer.secret.secret_bytes());
    }
}

#[test]
fn both_sides_prove_ml_dsa_certificates_with_keys_of_each_form() {
    for (certificate, keys) in FILES {
        for key in keys {
            let (client, server) =
                connect(configs([provider(), provider()], (certificate, key))).unwrap();
            assert!(client.peer_certificates().is_some() && server.peer_certificates().is_some());
        }
    }
}

#[test]
fn key_of_another_certificate_is_refused() {
    let chain = vec![certificate(FILES[0].0)];
    for wrong in [FILES[1].1[0], FILES[0].1[0]] {
        // Another seed of the same length.
        let mut der = key(wrong).secret_pkcs8_der().to_vec();
        *der.last_mut().unwrap() ^= 1;
        let result = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain.clone(), PrivateKeyDer::Pkcs8(der.into()));
        assert!(result.is_err());
    }
}

#[test]
fn damaged_private_keys_are_refused() {
    for (_, [seed, expanded, both]) in FILES {
        let [seed, expanded, both] = [seed, expanded, both].map(key);
        for (der, places) in [
            // Version, and the form's tag.
            (&seed, vec![4, 20]),
            // rho, tr, s1 and s2. Nothing shows a damaged K, and t0 only sometimes.
            (&expanded, vec![40, 100, 170, 600]),
            // The seed, K, and the rest.
            (&both, vec![40, 100, 130, 300, 2000]),
        ] {
            for at in places {
                let mut der = der.secret_pkcs8_der().to_vec();
                der[at] ^= 0xff;
                assert!(!matches!(ml_dsa_key::load(&der), Some(Ok(_))), "{at}");
            }
        }
    }
}

#[test]
fn altered_signatures_are_refused() {
    let schemes =
        [SignatureScheme::ML_DSA_44, SignatureScheme::ML_DSA_65, SignatureScheme::ML_DSA_87];
    for ((_, keys), (scheme, algorithms)) in FILES.iter().zip(ml_dsa_verifier::ALGORITHMS) {
        let signing_key = ml_dsa_key::load(key(keys[0]).secret_pkcs8_der()).unwrap().unwrap();
        let signer = signing_key.choose_scheme(&schemes).unwrap();
        assert_eq!(signer.scheme(), scheme);
        let spki = signing_key.public_key().unwrap();
        let public = &spki[22..];
        let signature = signer.sign(b"message").unwrap();
        let verify = |public: &[u8], message: &[u8], signature: &[u8]| {
            algorithms[0].verify_signature(public, message, signature).is_ok()
        };
        assert!(verify(public, b"message", &signature));
        assert_ne!(signature, signer.sign(b"message").unwrap(), "signatures are hedged");
        assert!(!verify(public, b"massage", &signature));
        assert!(!verify(&public[1..], b"message", &signature));
        for at in [0, 100, signature.len() - 1] {
            let mut signature = signature.clone();
            signature[at] ^= 0x81;
            assert!(!verify(public, b"message", &signature), "{at}");
        }
        for bad in [&signature[1..], &[], &[&signature[..], &[0]].concat()] {
            assert!(!verify(public, b"message", bad));
        }
    }
}

proptest::proptest! {
    #[test]
    fn garbage_in_private_keys_never_panics(
        which in 0..9_usize,
        changes in proptest::collection::vec((0..8000_usize, 0..=255_u8), 1..6),
        cut in 0..8000_usize,
    ) {
        let mut der = key(FILES[which / 3].1[which % 3]).secret_pkcs8_der().to_vec();
        for (at, value) in changes {
            let at = at % der.len();
            der[at] = value;
        }
        let _ = ml_dsa_key::load(&der);
        let _ = ml_dsa_key::load(&der[..cut.min(der.len())]);
    }
}
