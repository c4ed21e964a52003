use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::sync::Mutex;
use std::thread;

use crate::prelude::*;

type Traffic = Arc<Mutex<[Vec<u8>; 2]>>;

pub(crate) struct Relay {
    port: u16,
    connections: Arc<Mutex<Vec<Traffic>>>,
}

impl Relay {
    pub(crate) fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let connections: Arc<Mutex<Vec<Traffic>>> = Arc::default();
        let all = connections.clone();
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let Ok(server) = TcpStream::connect(server) else { continue };
                let carried = Traffic::default();
                all.lock().expect("the mutex is not poisoned").push(carried.clone());
                for (from, to, way) in [(&client, &server, 0), (&server, &client, 1)] {
                    let (from, to) =
                        (from.try_clone().expect("a socket"), to.try_clone().expect("a socket"));
                    let carried = carried.clone();
                    thread::spawn(move || {
                        carry(from, to, |bytes| {
                            carried.lock().expect("the mutex is not poisoned")[way]
                                .extend_from_slice(bytes)
                        })
                    });
                }
            }
        });
        Relay { port, connections }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn busiest(&self) -> (Vec<u8>, Vec<u8>) {
        let all = self.connections.lock().expect("the mutex is not poisoned");
        let copies =
            all.iter().map(|carried| carried.lock().expect("the mutex is not poisoned").clone());
        let [sent, received] =
            copies.max_by_key(|[sent, _]| sent.len()).expect("a connection exists");
        (sent, received)
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, keep: impl Fn(&[u8])) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        keep(&bytes[..n]);
        if to.write_all(&bytes[..n]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

pub(crate) fn last_record(mut stream: &[u8]) -> Vec<u8> {
    let mut last = &stream[..0];
    while let Some(mark) = stream.first_chunk() {
        let len = 4 + (u32::from_be_bytes(*mark) & 0x7fff_ffff) as usize;
        let Some((record, rest)) = stream.split_at_checked(len) else { break };
        (last, stream) = (record, rest);
    }
    last.to_vec()
}
