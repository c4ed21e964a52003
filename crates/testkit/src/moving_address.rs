//! An address that moves between servers: a relay that closes all connections at each move.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

pub struct MovingAddress {
    pub address: SocketAddr,
    relay: Arc<Relay>,
}

struct Relay {
    servers: Mutex<Vec<SocketAddr>>,
    moves: AtomicUsize,
    bytes_per_move: u64,
    bytes_since_move: AtomicU64,
    connections: Mutex<Vec<TcpStream>>,
    is_ended: AtomicBool,
}

impl MovingAddress {
    /// Moves to the next server, and back to the first one, whenever the servers have sent
    /// `bytes_per_move`.
    pub fn start(listener: TcpListener, servers: Vec<SocketAddr>, bytes_per_move: u64) -> Self {
        let address = listener.local_addr().expect("bound");
        let relay = Arc::new(Relay {
            servers: Mutex::new(servers),
            moves: AtomicUsize::new(0),
            bytes_per_move,
            bytes_since_move: AtomicU64::new(0),
            connections: Mutex::default(),
            is_ended: AtomicBool::new(false),
        });
        let shared = relay.clone();
        std::thread::spawn(move || shared.accept(&listener));
        MovingAddress { address, relay }
    }

    pub fn move_on(&self) {
        self.relay.move_on();
    }

    pub fn move_to(&self, server: SocketAddr) {
        *self.relay.servers.lock() = vec![server];
        self.move_on();
    }

    pub fn moves(&self) -> usize {
        self.relay.moves.load(Ordering::SeqCst)
    }
}

impl Drop for MovingAddress {
    fn drop(&mut self) {
        self.relay.is_ended.store(true, Ordering::SeqCst);
        self.relay.close_all();
        // Ends the wait for a connection.
        let _ = TcpStream::connect(self.address);
    }
}

impl Relay {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        while let Ok((client, _)) = listener.accept() {
            if self.is_ended.load(Ordering::SeqCst) {
                return;
            }
            let Ok(server) = TcpStream::connect(self.server()) else { continue };
            let both = || Some((client.try_clone().ok()?, server.try_clone().ok()?));
            let (Some(first), Some(second)) = (both(), both()) else { continue };
            self.connections.lock().extend([client, server]);
            let (to_server, to_client) = (self.clone(), self.clone());
            std::thread::spawn(move || to_server.copy(first.0, first.1, false));
            std::thread::spawn(move || to_client.copy(second.1, second.0, true));
        }
    }

    fn server(&self) -> SocketAddr {
        let servers = self.servers.lock();
        servers[self.moves.load(Ordering::SeqCst) % servers.len()]
    }

    fn copy(&self, mut from: TcpStream, mut to: TcpStream, is_from_server: bool) {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(len @ 1..) = from.read(&mut buffer) {
            if to.write_all(&buffer[..len]).is_err() {
                break;
            }
            let sent = len as u64 + self.bytes_since_move.fetch_add(len as u64, Ordering::SeqCst);
            if is_from_server && sent >= self.bytes_per_move {
                self.move_on();
            }
        }
        for stream in [&from, &to] {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn move_on(&self) {
        self.moves.fetch_add(1, Ordering::SeqCst);
        self.bytes_since_move.store(0, Ordering::SeqCst);
        self.close_all();
    }

    fn close_all(&self) {
        for stream in self.connections.lock().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}
