//! TLS sessions of exports: certificates and their map, messages of a handshake, and records that
//! an attacker cuts, alters and repeats. The server accepts only a beginning of the client's data.
#![no_main]

use std::sync::{Arc, OnceLock};

use libfuzzer_sys::fuzz_target;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use vouch_rpc_tls::credentials::{ClientFiles, ServerCredentials, ServerFiles, client_config};
use vouch_rpc_tls::{
    CertificateDer, ClientConfig, HEADER_LEN, Handshake, PeerCertificate, RECORD_LEN_MAX,
    ServerConfig, Session, Step, TAIL_LEN,
};

fn configs() -> &'static (Arc<ServerConfig>, Arc<ClientConfig>) {
    static CONFIGS: OnceLock<(Arc<ServerConfig>, Arc<ClientConfig>)> = OnceLock::new();
    CONFIGS.get_or_init(|| {
        let directory = std::env::temp_dir().join(format!("rpc_tls.{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let path = |name: &str| directory.join(name);
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        std::fs::write(path("ca"), params.self_signed(&key).expect("a certificate").pem())
            .expect("a file");
        let issuer = Issuer::new(params, key);
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["server".to_owned()]).expect("a name");
        std::fs::write(
            path("certificate"),
            params.signed_by(&key, &issuer).expect("a certificate").pem(),
        )
        .expect("a file");
        std::fs::write(path("key"), key.serialize_pem()).expect("a file");
        let _ = std::fs::set_permissions(
            path("key"),
            std::os::unix::fs::PermissionsExt::from_mode(0o600),
        );
        let files = ServerFiles {
            certificate: path("certificate"),
            key: path("key"),
            client_authorities: Some(path("ca")),
            revoked: Vec::new(),
        };
        let server = ServerCredentials::load(&files).expect("good files").config;
        let client = client_config(&ClientFiles { authorities: path("ca"), certificate: None })
            .expect("good files");
        let _ = std::fs::remove_dir_all(&directory);
        (server, client)
    })
}

fn session() -> (Session, Session) {
    let (server, client) = configs();
    let mut server = Handshake::server(server.clone()).expect("a configuration");
    let mut client = Handshake::client(client.clone(), "server".try_into().expect("a name"))
        .expect("a configuration");
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    let mut ready = None;
    loop {
        let arrived = std::mem::take(&mut to_client);
        if ready.is_none() {
            match client.advance(&arrived, &mut to_server).expect("an honest server") {
                Step::More(next) => client = next,
                Step::Done(session) => {
                    ready = Some(*session);
                    client = Handshake::client(
                        configs().1.clone(),
                        "server".try_into().expect("a name"),
                    )
                    .expect("unused");
                }
            }
        }
        let arrived = std::mem::take(&mut to_server);
        match server.advance(&arrived, &mut to_client).expect("an honest client") {
            Step::More(next) => server = next,
            Step::Done(session) => return (ready.expect("the client is ready first"), *session),
        }
    }
}

/// The server opens the records that the attacker lets through.
fn attack(input: &[u8]) {
    let (mut client, mut server) = session();
    let (mut sent, mut found, mut wire) = (Vec::new(), Vec::new(), Vec::new());
    for step in input.chunks(3).take(64) {
        let at = |n: usize| usize::from(step.get(n).copied().unwrap_or(0));
        match at(0) % 8 {
            0..=2 => {
                let data: Vec<u8> = (0..at(1) * 7).map(|n| n as u8).collect();
                let mut record = vec![0; HEADER_LEN + data.len() + TAIL_LEN];
                record[HEADER_LEN..HEADER_LEN + data.len()].copy_from_slice(&data);
                client.sealer.seal(&mut record, data.len()).expect("a fresh key");
                sent.extend(data);
                wire.extend(record);
            }
            3 => client.sealer.update_key(&mut wire).expect("a fresh key"),
            4 if !wire.is_empty() => {
                let place = (at(1) << 8 | at(2)) % wire.len();
                wire[place] ^= 1 << (at(2) % 8);
            }
            5 => wire.extend_from_slice(&step[1..]),
            6 => wire.truncate(wire.len().saturating_sub(at(1))),
            _ => {
                let mut space = vec![0; RECORD_LEN_MAX + wire.len()];
                let held = server.opener.take_partial(&mut space);
                space[held..held + wire.len()].copy_from_slice(&wire);
                match server.opener.open(&mut space[..held + wire.len()]) {
                    Ok(opened) => found.extend_from_slice(&space[..opened.len]),
                    Err(_) => return,
                }
                wire.clear();
                assert!(server.opener.partial_len() < RECORD_LEN_MAX && sent.starts_with(&found));
            }
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&kind, input)) = input.split_first() else { return };
    match kind % 4 {
        0 => drop(PeerCertificate::read(&CertificateDer::from(input))),
        1 => {
            let mut handshake =
                Some(Handshake::server(configs().0.clone()).expect("a configuration"));
            let mut out = Vec::new();
            for piece in input.chunks(1 + input.len() / 3) {
                handshake = match handshake.and_then(|one| one.advance(piece, &mut out).ok()) {
                    Some(Step::More(next)) => Some(next),
                    _ => None,
                };
            }
        }
        2 => drop(std::str::from_utf8(input).map(vouch_export::fuzzing::certificate_map)),
        _ => attack(input),
    }
});
