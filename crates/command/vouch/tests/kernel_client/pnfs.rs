//! A Linux client reads a tree from several heads (pNFS, RFC 8435).

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use crate::guest::{Guest, Network};
use crate::heads::{LARGE_LEN, head, tree};
use crate::test_site::free_port;

/// Bytes that a head has sent, from its page of metrics.
fn sent_bytes(page: SocketAddr) -> u64 {
    let mut stream = TcpStream::connect(page).expect("the page of a running head");
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("the page");
    let line = text.lines().find_map(|line| line.strip_prefix("vouch_export_sent_bytes_total "));
    line.and_then(|value| value.parse().ok()).expect("the counter")
}

#[test]
#[ignore = "needs root and guests"]
fn reads_arrive_at_both_heads_and_survive_the_death_of_one() {
    for (version, newer) in [("4.2", true), ("4.1", true), ("4.2", false)] {
        let network = Network::new();
        let site = tree();
        let addresses = [network.address.clone(), network.add_address()];
        let addresses = addresses
            .map(|address| SocketAddr::new(address.parse().expect("an address"), free_port()));
        let pages = [free_port(), free_port()].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let options = format!("ro,insecure,pnfs={}+{}", addresses[0], addresses[1]);
        let mut heads: Vec<_> = (0..2)
            .map(|at| {
                let page = pages[at].to_string();
                head(&site, &format!("head-{at}"), addresses[at], &options, &["--metrics", &page])
            })
            .collect();
        let listener = TcpListener::bind((network.address.as_str(), 0)).expect("a free port");
        let signal = listener.local_addr().expect("bound").port().to_string();
        let guest = Guest::with_port(&network, addresses[0].port())
            .set("VERSION", version)
            .set("SIGNAL", &signal);
        let guest = if newer { guest.newer_system() } else { guest };
        let mut guest = guest.set("LENGTH", &LARGE_LEN.to_string()).start("pnfs.sh");
        listener.set_nonblocking(true).expect("a socket");
        let first_read = loop {
            match listener.accept() {
                Ok((stream, _)) => break stream,
                Err(_) if guest.has_ended() => panic!("{version}: {}", guest.ok()),
                Err(_) => std::thread::sleep(std::time::Duration::from_millis(50)),
            }
        };
        let sent = pages.map(sent_bytes);
        assert!(
            sent.iter().all(|&sent| sent > LARGE_LEN as u64 / 4),
            "{version}: {sent:?} bytes of {LARGE_LEN}"
        );
        drop(heads.pop());
        drop(first_read);
        let out = guest.ok();
        assert!(out.contains("ok: read again"), "{version}: {out}");
    }
}
