//! Floods of forged tokens and callback replies: the server refuses and counts them, limits the log
//! lines, and keeps serving honest clients.

use std::io::{Read as _, Write as _};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use vouch_oncrpc::{Accepted, Flavor, OpaqueAuth, Reply, ReplyBody, begin_record, end_record};

use crate::own_client::{assert_succeeds, client_command};
use crate::prelude::*;

const LINES_BURST: u64 = 5;
const LINE_INTERVAL: Duration = Duration::from_secs(10);

fn log_lines(export: &Export, words: &str) -> (u64, u64) {
    let log = export.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(words)).collect();
    let suppressed = lines
        .iter()
        .filter_map(|line| line.split_once("omitted=")?.1.split(' ').next()?.parse::<u64>().ok())
        .sum();
    (lines.len() as u64, suppressed)
}

#[test]
#[ignore = "needs a KDC"]
fn malformed_tokens_are_counted_logged_rarely_and_block_nobody() {
    let kdc = realm(Kdc::start());
    let export = Export::start(&kdc);
    let began = Instant::now();
    let mut socket = TcpStream::connect(export.address).expect("a connection");
    socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out");
    let mut sent = 0;
    let mut send = |sent: &mut u64| {
        *sent += 1;
        let (mut w, none) = (Writer::new(), OpaqueAuth::NONE);
        let start = begin_record(&mut w);
        [*sent as u32, 0, 2, 100_003, 4, 0].into_iter().for_each(|word| w.u32(word));
        // RPCSEC_GSS_INIT (RFC 2203, section 5.2): version, procedure, sequence number, service, no
        // handle; then the token.
        [Flavor::RPCSEC_GSS.0, 20, 1, 1, 0, 1, 0, none.flavor.0, 0, 8]
            .into_iter()
            .for_each(|word| w.u32(word));
        w.raw(b"no token");
        end_record(w.bytes_mut(), start, 0);
        socket.write_all(w.as_bytes()).expect("the record is sent");
        read_record(&mut socket).expect("an answer");
    };
    (0..300).for_each(|_| send(&mut sent));
    assert_succeeds(client_command(&kdc, "krb5", "", "krb5i", export.address.port()), &export);
    assert_eq!(export.metric("vouch_export_gss_contexts_refused_total"), sent as f64);
    let most = |began: Instant| {
        LINES_BURST + (began.elapsed().as_secs_f64() / LINE_INTERVAL.as_secs_f64()) as u64 + 1
    };
    let (lines, _) = log_lines(&export, "not a Kerberos V5 ticket");
    assert!((1..=most(began)).contains(&lines), "{}", export.log());
    let end = Instant::now() + Duration::from_secs(120);
    let (lines, suppressed) = loop {
        let (lines, suppressed) = log_lines(&export, "not a Kerberos V5 ticket");
        if suppressed > 0 {
            break (lines, suppressed);
        }
        assert!(Instant::now() < end, "no line reports suppressed lines: {}", export.log());
        thread::sleep(Duration::from_millis(200));
        send(&mut sent);
    };
    assert!(
        lines <= most(began) && lines + suppressed <= sent && suppressed >= 300 - lines,
        "{lines} lines, {suppressed} left out, {sent} sent"
    );
    export.wait_for_record(Refusal::Authentication, &["not a Kerberos V5 ticket"]);
}

/// Answers the server's callbacks before the client does, without knowing the keys.
struct Forger {
    port: u16,
    forged: Arc<AtomicU64>,
}

const FORGED: u64 = 40;

impl Forger {
    fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let forger =
            Forger { port: listener.local_addr().expect("bound").port(), forged: Arc::default() };
        let forged = forger.forged.clone();
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let Ok(server) = TcpStream::connect(server) else { continue };
                let to_server = Arc::new(Mutex::new(server.try_clone().expect("a socket")));
                let (to_client, from_client) = (client.try_clone().expect("a socket"), client);
                let (of_client, forged) = (to_server.clone(), forged.clone());
                thread::spawn(move || carry(from_client, &of_client, |_| {}));
                thread::spawn(move || {
                    carry(server, &Mutex::new(to_client), |record| {
                        if record[8..12] == [0; 4] {
                            let xid =
                                u32::from_be_bytes(record[4..8].try_into().expect("four bytes"));
                            let mut to_server =
                                to_server.lock().expect("the mutex is not poisoned");
                            for number in 0..FORGED {
                                let _ = to_server.write_all(&answer(xid, number));
                                forged.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    });
                });
            }
        });
        forger
    }
}

fn answer(xid: u32, number: u64) -> Vec<u8> {
    let verf = match number % 2 {
        0 => OpaqueAuth::NONE,
        _ => OpaqueAuth { flavor: Flavor::RPCSEC_GSS, body: &[7; 28] },
    };
    let body = ReplyBody::Accepted { verf, outcome: Accepted::Success(&[0; 12]) };
    vouch_oncrpc::record(|w| Reply { xid, body }.encode(w))
}

fn carry(mut from: TcpStream, to: &Mutex<TcpStream>, mut see: impl FnMut(&[u8])) {
    let mut record = vec![0; 4];
    while from.read_exact(&mut record[..4]).is_ok() {
        let len = u32::from_be_bytes(record[..4].try_into().expect("four bytes")) & 0x7fff_ffff;
        record.resize(4 + len as usize, 0);
        if from.read_exact(&mut record[4..]).is_err() {
            break;
        }
        see(&record);
        if to.lock().expect("the mutex is not poisoned").write_all(&record).is_err() {
            break;
        }
    }
    let _ = to.lock().expect("the mutex is not poisoned").shutdown(std::net::Shutdown::Both);
    let _ = from.shutdown(std::net::Shutdown::Both);
}

#[test]
#[ignore = "needs a KDC"]
fn forged_callback_replies_are_logged_rarely_and_recalls_succeed() {
    let kdc = realm(Kdc::start());
    let export = Export::start(&kdc);
    let began = Instant::now();
    let forger = Forger::start(export.address);
    assert_succeeds(client_command(&kdc, "krb5", "", "recall", forger.port), &export);
    let forged = forger.forged.load(Ordering::Relaxed);
    assert!(forged >= 12 * FORGED, "{forged}");
    let words = "ignoring a forged answer to a callback";
    export.wait_for_log(&[words, "peer=127.0.0.1"]);
    let (lines, suppressed) = log_lines(&export, words);
    let most =
        LINES_BURST + (began.elapsed().as_secs_f64() / LINE_INTERVAL.as_secs_f64()) as u64 + 1;
    assert!(
        lines <= most && lines + suppressed <= forged,
        "{lines} lines, {suppressed} left out, {forged} sent"
    );
    export.wait_for_record(Refusal::Altered, &["an answer to a callback"]);
}
