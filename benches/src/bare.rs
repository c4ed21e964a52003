//! The least that a server of many connections can do: for each request of a fixed length one
//! answer of a fixed length, by two threads through epoll. What such a loop loses with more
//! connections is the kernel's and the machine's, not a server's.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, sockopt};

use crate::OrStop as _;

/// Answers at `port` of all addresses for ever: `answer_len` bytes for each `request_len`.
pub fn serve(port: u16, request_len: usize, answer_len: usize) {
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(move || thread(port, request_len, answer_len));
        }
    });
}

struct Peer {
    socket: OwnedFd,
    /// Bytes of a request that is not whole yet.
    received: usize,
    /// Bytes of answers that the socket did not take yet.
    owed: usize,
}

fn thread(port: u16, request_len: usize, answer_len: usize) {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let listener = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, Some(ipproto::TCP)).or_stop("socket");
    sockopt::set_socket_reuseaddr(&listener, true).or_stop("reuse");
    sockopt::set_socket_reuseport(&listener, true).or_stop("reuse");
    sockopt::set_tcp_nodelay(&listener, true).or_stop("nodelay");
    rustix::net::bind(&listener, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port)).or_stop("bind");
    rustix::net::listen(&listener, 8192).or_stop("listen");
    let poll = epoll::create(CreateFlags::CLOEXEC).or_stop("epoll");
    epoll::add(&poll, listener.as_fd(), EventData::new_u64(u64::MAX), EventFlags::IN).or_stop("epoll");
    let mut peers: Vec<Option<Peer>> = Vec::new();
    let mut events = Vec::with_capacity(1024);
    let (answer, mut buffer) = (vec![7; answer_len], vec![0; 8192]);
    loop {
        events.clear();
        match epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => Err(error).or_stop("epoll"),
        }
        for event in &events {
            let id = { event.data }.u64();
            if id == u64::MAX {
                while let Ok(socket) = rustix::net::accept_with(&listener, flags) {
                    let interest = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
                    epoll::add(&poll, socket.as_fd(), EventData::new_u64(peers.len() as u64), interest).or_stop("epoll");
                    peers.push(Some(Peer { socket, received: 0, owed: 0 }));
                }
            } else if let Some(slot) = peers.get_mut(id as usize)
                && let Some(peer) = slot
                && !go_on(peer, request_len, &answer, &mut buffer)
            {
                *slot = None;
            }
        }
    }
}

/// Whether the connection lives on.
fn go_on(peer: &mut Peer, request_len: usize, answer: &[u8], buffer: &mut [u8]) -> bool {
    loop {
        while peer.owed > 0 {
            let len = (peer.owed - 1) % answer.len() + 1;
            match rustix::net::send(&peer.socket, &answer[answer.len() - len..], SendFlags::NOSIGNAL) {
                Ok(n) => peer.owed -= n,
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
        match rustix::net::recv(&peer.socket, &mut *buffer, RecvFlags::empty()) {
            Ok((0, _)) => return false,
            Ok((n, _)) => {
                peer.received += n;
                peer.owed = peer.received / request_len * answer.len();
                peer.received %= request_len;
                // A short read has emptied the socket.
                if peer.owed == 0 {
                    return true;
                }
            }
            Err(Errno::AGAIN) => return true,
            Err(_) => return false,
        }
    }
}

const THREADS: usize = 2;
