use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use vouch_rpc_tls::credentials::{ClientFiles, ServerCredentials, ServerFiles, client_config};
use vouch_rpc_tls::{Handshake, ServerName, Session, Step, TlsStream};

use super::*;
use crate::transport::output::Outgoing;

fn sessions() -> (Box<Session>, Box<Session>) {
    let dir = tempfile::tempdir().unwrap();
    vouch_testkit::certificates::self_signed(dir.path(), "server.example.org");
    let (certificate, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    let files = ServerFiles {
        certificate: certificate.clone(),
        key,
        client_authorities: None,
        revoked: Vec::new(),
    };
    let mut server =
        Some(Handshake::server(ServerCredentials::load(&files).unwrap().config).unwrap());
    let config =
        client_config(&ClientFiles { authorities: certificate, certificate: None }).unwrap();
    let name = ServerName::try_from("server.example.org").unwrap();
    let mut client = Some(Handshake::client(config, name).unwrap());
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    let (mut of_client, mut of_server) = (None, None);
    while of_client.is_none() || of_server.is_none() {
        if let Some(handshake) = client.take() {
            match handshake.advance(&std::mem::take(&mut to_client), &mut to_server).unwrap() {
                Step::More(next) => client = Some(next),
                Step::Done(session) => of_client = Some(session),
            }
        }
        if let Some(handshake) = server.take() {
            match handshake.advance(&std::mem::take(&mut to_server), &mut to_client).unwrap() {
                Step::More(next) => server = Some(next),
                Step::Done(session) => of_server = Some(session),
            }
        }
    }
    (of_client.unwrap(), of_server.unwrap())
}

#[test]
fn replies_and_file_data_arrive_in_order_through_small_socket() {
    let (client, server) = sessions();
    let data: Vec<u8> = (0..1_200_000usize).map(|i| (i / 7) as u8).collect();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&data).unwrap();
    let file = Arc::new(file);
    let mut output = Output::default();
    let mut expected = Vec::new();
    for (offset, len) in
        [(0, 100), (5, PLAIN_LEN_MAX - 100), (20_000, 1_048_576), (3, 4096), (1_199_990, 40_000)]
    {
        let span = FileSpan { file: file.clone(), offset: offset as u64, len };
        output.push(Outgoing::reply(vec![7; 100], vec![(50, span)], None));
        expected.extend_from_slice(&(0x8000_0000u32 + 96 + len as u32).to_be_bytes());
        expected.extend_from_slice(&[7; 46]);
        expected.extend_from_slice(&data[offset..(offset + len).min(data.len())]);
        expected.resize(expected.len() + (offset + len).saturating_sub(data.len()), 0);
        expected.extend_from_slice(&[7; 50]);
        output.push(Outgoing::bytes(vec![9; 70_000]));
        expected.extend_from_slice(&[9; 70_000]);
    }
    let (here, there) = UnixStream::pair().unwrap();
    here.set_nonblocking(true).unwrap();
    let reader = std::thread::spawn(move || {
        let (mut stream, mut found) = (TlsStream::new(there, client), Vec::new());
        stream.read_to_end(&mut found).map(|_| found)
    });
    let mut tls = TlsOutput::default();
    tls.set_sealer(server.sealer);
    let (mut sent, mut done) = (0, 0);
    while tls.send(here.as_fd(), &mut output, &mut sent, |_| done += 1).unwrap() == Sent::Full {
        assert!(tls.pending_len() > 0);
        std::thread::yield_now();
        if sent % 3 == 0 && tls.messages.is_empty() {
            tls.update_key().unwrap();
        }
    }
    tls.close().unwrap();
    while tls.send(here.as_fd(), &mut output, &mut sent, |_| done += 1).unwrap() == Sent::Full {}
    assert_eq!((tls.pending_len(), done), (0, 10));
    drop(here);
    assert!(reader.join().unwrap().unwrap() == expected);
}
