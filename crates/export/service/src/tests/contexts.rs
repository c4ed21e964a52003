use vouch_gss_mit::Partial;
use vouch_rpcsec_gss::{Accept, Acceptor, InitStep, Initiated, Initiation, Initiator, Service};

use super::blocking::{Gate, is_silent, until};
use super::gss::tests::{Claimer, TrustingAcceptor, call as protected};
use super::*;

const NULL: u32 = 900_000;

struct Slow(Gate);

impl Acceptor for Slow {
    type Partial = Partial;

    fn accept(&self, _: Option<Partial>, _: &[u8]) -> Accept<Partial> {
        self.0.pass();
        Accept::Failed {
            major: 13 << 16,
            minor: 0,
            reason: "a test".into(),
            token: Vec::new(),
            principal: String::new(),
            enctype: None,
        }
    }
}

struct Asker;

impl Initiator for Asker {
    type Error = std::io::Error;

    fn step(&mut self, _: Option<&[u8]>) -> std::io::Result<InitStep> {
        Ok(InitStep::Continue { token: b"hello".to_vec() })
    }
}

fn init(xid: u32) -> Vec<u8> {
    let initiation = Initiation::begin(Asker, Service::Integrity).unwrap();
    record(|w| initiation.call(xid, 100_003, 4, w))
}

#[test]
fn excess_context_requests_are_not_read_others_are() {
    let gate = Gate::default();
    let seams =
        SystemHooks { acceptor: Some(Arc::new(Slow(gate.clone()))), ..hooks(&MemoryFs::new()) };
    let server = Running::start_in(|config| config.threads = Some(1), seams);
    gate.set_closed(true);
    let mut clients: Vec<TcpStream> = (0..5).map(|_| server.connect()).collect();
    for (number, socket) in clients.iter_mut().enumerate() {
        let calls: Vec<u8> = (0..220).flat_map(|xid| init(1000 * number as u32 + xid)).collect();
        socket.write_all(&calls).unwrap();
        let least = if number < 4 { 220 * (number + 1) } else { 1027 };
        until("the requests do not wait", || server.status().waiting_calls >= least);
    }
    for socket in &mut clients {
        socket.write_all(&call(NULL, 0)).unwrap();
    }
    for socket in &mut clients[..4] {
        assert_eq!(xid(&read_record(socket)), NULL);
    }
    assert!(is_silent(&server, &clients[4]));
    gate.set_closed(false);
    for (number, socket) in clients.iter_mut().enumerate() {
        let count = if number < 4 { 220 } else { 221 };
        let mut all: Vec<u32> = (0..count).map(|_| xid(&read_record(socket))).collect();
        all.sort_unstable();
        let first = 1000 * number as u32;
        assert!(all.into_iter().filter(|&xid| xid != NULL).eq(first..first + 220));
    }
    until("calls still wait", || server.status().waiting_calls == 0);
}

#[test]
fn calls_before_a_fatal_one_are_answered() {
    let seams =
        SystemHooks { acceptor: Some(Arc::new(TrustingAcceptor)), ..hooks(&MemoryFs::new()) };
    let server = Running::start_in(|config| config.threads = Some(1), seams);
    let empty_request = [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    for service in [Service::None, Service::Integrity, Service::Privacy] {
        for replayed in [false, true] {
            let mut socket = server.connect();
            let initiation = Initiation::begin(Claimer, service).unwrap();
            socket.write_all(&record(|w| initiation.call(1, 100_003, 4, w))).unwrap();
            let Initiated::Done(mut context) =
                initiation.reply(1, &read_record(&mut socket)).unwrap()
            else {
                panic!("one exchange")
            };
            let mut calls: Vec<Vec<u8>> = (2..7)
                .map(|xid| protected(&mut context, xid, &empty_request, usize::MAX))
                .collect();
            calls.push(if replayed { calls[2].clone() } else { vec![0x80, 0, 0, 3, 1, 2, 3] });
            socket.write_all(&calls.concat()).unwrap();
            for expected in 2..7 {
                assert_eq!(xid(&read_record(&mut socket)), expected, "{service:?}");
            }
            assert_eq!(socket.read(&mut [0]).unwrap(), 0);
        }
    }
}
