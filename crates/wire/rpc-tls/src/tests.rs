use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::*;

struct Site {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

fn site() -> Site {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let issue = |params: CertificateParams| {
        let key = KeyPair::generate().unwrap();
        (
            vec![params.signed_by(&key, &issuer).unwrap().der().clone()],
            PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        )
    };
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone()).unwrap();
    let roots = Arc::new(roots);
    let provider = vouch_tls::provider();
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
        .build()
        .unwrap();
    let (chain, key) =
        issue(CertificateParams::new(vec!["server.example.org".to_owned()]).unwrap());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap();
    let mut server =
        builder.with_client_cert_verifier(verifier).with_single_cert(chain, key).unwrap();
    (server.enable_secret_extraction, server.send_tls13_tickets) = (true, 2);
    server.alpn_protocols = vec![ALPN.to_vec()];
    let mut params = CertificateParams::new(vec!["client.example.org".to_owned()]).unwrap();
    params.subject_alt_names.push(SanType::OtherName((
        vec![1, 3, 6, 1, 4, 1, 2238, 1, 1, 1],
        "alice@example.org".into(),
    )));
    let (chain, key) = issue(params);
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap();
    let mut client =
        builder.with_root_certificates(roots).with_client_auth_cert(chain, key).unwrap();
    client.enable_secret_extraction = true;
    client.alpn_protocols = vec![ALPN.to_vec()];
    Site { server: Arc::new(server), client: Arc::new(client) }
}

fn connect(site: &Site, piece: usize) -> (Session, Session) {
    let name = ServerName::try_from("server.example.org").unwrap();
    let mut sides = [
        Some(Handshake::client(site.client.clone(), name).unwrap()),
        Some(Handshake::server(site.server.clone()).unwrap()),
    ];
    let mut sessions = [None, None];
    let mut wire = [Vec::new(), Vec::new()];
    let mut begun = false;
    while sides.iter().any(Option::is_some) {
        for at in [0, 1] {
            let arrived = std::mem::take(&mut wire[at]);
            for bytes in if begun || at == 1 {
                arrived.chunks(piece).collect::<Vec<_>>()
            } else {
                vec![&[][..]]
            } {
                let mut out = Vec::new();
                match sides[at].take() {
                    Some(side) => match side.advance(bytes, &mut out).unwrap() {
                        Step::More(side) => sides[at] = Some(side),
                        Step::Done(session) => sessions[at] = Some(*session),
                    },
                    None => {
                        let session: &mut Session = sessions[at].as_mut().unwrap();
                        let mut late = vec![0; session.opener.partial_len()];
                        session.opener.take_partial(&mut late);
                        late.extend_from_slice(bytes);
                        assert_eq!(session.opener.open(&mut late).unwrap().len, 0);
                    }
                }
                wire[1 - at].extend(out);
            }
            begun = true;
        }
    }
    let [client, server] = sessions;
    let (mut client, server) = (client.unwrap(), server.unwrap());
    // Tickets behind the server's handshake are read and dropped.
    let mut late = vec![0; client.opener.partial_len()];
    client.opener.take_partial(&mut late);
    late.extend(std::mem::take(&mut wire[0]));
    assert_eq!(client.opener.open(&mut late).unwrap().len, 0);
    (client, server)
}

fn record(sealer: &mut Sealer, data: &[u8]) -> Vec<u8> {
    let mut record = vec![0; HEADER_LEN + data.len() + TAIL_LEN];
    record[HEADER_LEN..HEADER_LEN + data.len()].copy_from_slice(data);
    assert_eq!(sealer.seal(&mut record, data.len()).unwrap(), record.len());
    record
}

#[test]
fn handshake_completes_in_pieces_of_any_length() {
    let site = site();
    for piece in [1, 7, 1000, 1 << 20] {
        let (client, server) = connect(&site, piece);
        assert!(client.has_alpn && server.has_alpn);
        let peer = PeerCertificate::read(&server.certificates[0]).unwrap();
        assert_eq!(
            (peer.name.as_str(), peer.user.as_deref()),
            ("client.example.org", Some("alice@example.org"))
        );
        assert_eq!(peer.fingerprint_text().len(), 64);
    }
}

#[test]
fn opens_many_records_from_any_split_in_place() {
    let (mut client, mut server) = connect(&site(), 1 << 20);
    let data: Vec<u8> = (0..100_000u32).map(|i| (i / 3) as u8).collect();
    let mut wire = Vec::new();
    for piece in data.chunks(PLAIN_LEN_MAX).chain([&b""[..], b"x"]) {
        wire.extend(record(&mut server.sealer, piece));
    }
    let mut found = Vec::new();
    for piece in wire.chunks(7001) {
        let mut space = vec![0; 2 * RECORD_LEN_MAX + piece.len()];
        let held = client.opener.take_partial(&mut space);
        space[held..held + piece.len()].copy_from_slice(piece);
        let opened = client.opener.open(&mut space[..held + piece.len()]).unwrap();
        found.extend_from_slice(&space[..opened.len]);
    }
    assert!(found == [&data[..], b"x"].concat() && client.opener.partial_len() == 0);
}

#[test]
fn altered_repeated_and_reordered_records_are_refused() {
    let site = site();
    type Attack = fn(Vec<u8>, Vec<u8>) -> Vec<u8>;
    let attacks: [Attack; 6] = [
        |mut a, _| {
            let last = a.len() - 1;
            a[last] ^= 1;
            a
        },
        |mut a, _| {
            a[HEADER_LEN] ^= 0x80;
            a
        },
        |a, _| [a.clone(), a].concat(),
        |a, b| [b, a].concat(),
        |mut a, _| {
            a.remove(20);
            let len = (a.len() - HEADER_LEN) as u16;
            a[3..5].copy_from_slice(&len.to_be_bytes());
            a
        },
        |mut a, _| {
            // The header is authentic too.
            a[2] = 1;
            a
        },
    ];
    for (number, attack) in attacks.iter().enumerate() {
        let (mut client, mut server) = connect(&site, 1 << 20);
        let (a, b) = (record(&mut client.sealer, b"one"), record(&mut client.sealer, b"two"));
        let mut wire = attack(a, b);
        assert!(matches!(server.opener.open(&mut wire), Err(TlsError::Forged)), "{number}");
    }
    let clear = [content::HANDSHAKE, 3, 3, 0, 4, 1, 2, 3, 4];
    let (_, mut server) = connect(&site, 1 << 20);
    assert!(matches!(server.opener.open(&mut clear.clone()), Err(TlsError::Malformed(_))));
    assert!(matches!(server.opener.open(&mut [0x80, 0, 0, 0]), Err(TlsError::NotTls)));
    assert!(matches!(server.opener.open(&mut [23, 3, 3, 0xff, 0xff]), Err(TlsError::TooLong)));
}

#[test]
fn key_updates_work_and_a_flood_of_them_ends_the_session() {
    let (mut client, mut server) = connect(&site(), 1 << 20);
    client.sealer.limit_records(3);
    let mut wire = Vec::new();
    for number in 0..10u8 {
        if client.sealer.is_key_used_up() {
            client.sealer.update_key(&mut wire).unwrap();
        }
        wire.extend(record(&mut client.sealer, &[number]));
    }
    let opened = server.opener.open(&mut wire).unwrap();
    assert_eq!(wire[..opened.len], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let mut wire = Vec::new();
    (0..40).for_each(|_| client.sealer.update_key(&mut wire).unwrap());
    assert!(matches!(server.opener.open(&mut wire), Err(TlsError::Flood { .. })));
}

#[test]
fn close_notify_ends_the_stream_and_a_used_up_key_seals_nothing() {
    let (mut client, mut server) = connect(&site(), 1 << 20);
    let mut wire = record(&mut client.sealer, b"last");
    client.sealer.close(&mut wire).unwrap();
    wire.extend(b"garbage behind the end");
    let opened = server.opener.open(&mut wire).unwrap();
    assert!(opened.is_ended && wire[..opened.len] == *b"last");
    server.sealer.limit_records(0);
    let mut space = [0; 64];
    assert!((0..100).any(|_| server.sealer.seal(&mut space, 1).is_err()));
}

#[test]
fn handshake_refuses_clear_text_and_endless_messages() {
    let site = site();
    let server = || Handshake::server(site.server.clone()).unwrap();
    let mut out = Vec::new();
    assert!(matches!(
        server().advance(&[0x80, 0, 0, 40, 0, 0, 0, 1], &mut out),
        Err(TlsError::NotTls)
    ));
    // A message that announces 16 MiB, record by record.
    let mut first = vec![content::HANDSHAKE, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff];
    first.resize(HEADER_LEN + PLAIN_LEN_MAX, 0);
    let mut side = Some(server());
    let refused = (0..10).find_map(|_| match side.take()?.advance(&first, &mut out) {
        Ok(Step::More(next)) => {
            side = Some(next);
            None
        }
        Ok(Step::Done(_)) => panic!("nothing was agreed"),
        Err(error) => Some(error),
    });
    assert!(refused.is_some());
}

proptest::proptest! {
    #[test]
    fn garbage_never_panics(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
        static SITE: std::sync::OnceLock<Site> = std::sync::OnceLock::new();
        let site = SITE.get_or_init(site);
        let _ = Handshake::server(site.server.clone()).unwrap().advance(&bytes, &mut Vec::new());
        let _ = PeerCertificate::read(&CertificateDer::from(bytes));
    }
}

#[test]
fn certificate_with_two_extensions_of_alternative_names_is_refused() {
    let mut params = CertificateParams::new(vec!["node7".to_owned()]).unwrap();
    let key = KeyPair::generate().unwrap();
    assert_eq!(
        crate::PeerCertificate::read(params.self_signed(&key).unwrap().der()).unwrap().name,
        "node7"
    );
    let second =
        rcgen::CustomExtension::from_oid_content(&[2, 5, 29, 17], vec![0x30, 3, 0x82, 1, b'x']);
    params.custom_extensions.push(second);
    assert!(crate::PeerCertificate::read(params.self_signed(&key).unwrap().der()).is_err());
}
