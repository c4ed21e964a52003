//! TLS of `vouch export`: full mutual handshakes for each second of CPU, beside nginx with the same
//! keys, and memory of idle connections. Each connection does one handshake and one small request;
//! with vouch also the STARTTLS probe.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use vouch_benches::OrExit as _;
use vouch_benches::servers::Server;
use vouch_benches::tls_servers::Certificates;
use vouch_nfs4::{PROGRAM, VERSION};
use vouch_oncrpc::{Call, Flavor, OpaqueAuth};
use vouch_rpc_tls::credentials::{ClientFiles, client_config};
use vouch_rpc_tls::{ClientConfig, Handshake, STARTTLS, ServerName, Step, TlsStream};
use vouch_testkit::read_record;

#[derive(Parser)]
#[command(about = "Measure TLS handshakes and idle connections of vouch export")]
struct Args {
    /// The vouch program.
    #[arg(long, default_value = "target/release/vouch")]
    vouch: PathBuf,
    /// Rounds; the servers take turns.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Client threads.
    #[arg(long, default_value_t = 4)]
    threads: usize,
    /// Idle connections; 0 omits them.
    #[arg(long, default_value_t = 10_000)]
    idle: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Export,
    Web,
}

/// A server under test, and how clients reach it.
struct Subject {
    label: &'static str,
    kind: Kind,
    server: Server,
    config: Arc<ClientConfig>,
    connections: AtomicU64,
}

fn main() {
    let args = Args::parse();
    let certificates = Certificates::new();
    let files = ClientFiles {
        authorities: certificates.path("ca.pem"),
        certificate: Some((certificates.path("client.pem"), certificates.path("client.key"))),
    };
    let config = client_config(&files).or_exit("read certificates");
    // nginx refuses the protocol of NFS.
    let mut nameless = ClientConfig::clone(&config);
    nameless.alpn_protocols.clear();
    let subject = |label, kind, server, config: &Arc<ClientConfig>| Subject {
        label,
        kind,
        server,
        config: config.clone(),
        connections: AtomicU64::new(0),
    };
    let subjects = [
        subject(
            "vouch export",
            Kind::Export,
            Server::vouch_over_tls(&args.vouch, &certificates),
            &config,
        ),
        subject("nginx", Kind::Web, Server::nginx_over_tls(&certificates), &Arc::new(nameless)),
    ];
    let mut rates = subjects.each_ref().map(|_| Vec::new());
    for round in 0..=args.rounds {
        for (subject, rates) in subjects.iter().zip(&mut rates) {
            let (count, cpu_s, wall_s) = subject.measure(&args);
            // The first round fills caches.
            if round > 0 {
                let each_us = cpu_s * 1e6 / count as f64;
                println!(
                    "round {round}: {:12} {each_us:6.0} us of server CPU each, {:6.0} connections/s",
                    subject.label,
                    count as f64 / wall_s
                );
                rates.push(count as f64 / cpu_s);
            }
        }
    }
    for (subject, rates) in subjects.iter().zip(&mut rates) {
        rates.sort_by(f64::total_cmp);
        println!(
            "median: {:12} {:6.0} full mutual handshakes for each second of CPU",
            subject.label,
            rates[rates.len() / 2]
        );
    }
    if args.idle > 0 {
        measure_idle(&subjects[0], args.idle);
    }
}

impl Subject {
    /// Connections, seconds of server CPU, seconds.
    fn measure(&self, args: &Args) -> (u64, f64, f64) {
        let cpu = self.server.cpu();
        let (cpu_before, began) =
            (cpu.seconds().or_exit("read the server's CPU time"), Instant::now());
        let end = began + Duration::from_secs_f64(args.seconds);
        let count: u64 = std::thread::scope(|scope| {
            let connect = || {
                let mut count = 0;
                while Instant::now() < end {
                    drop(self.connect());
                    count += 1;
                }
                count
            };
            let threads: Vec<_> = (0..args.threads).map(|_| scope.spawn(connect)).collect();
            threads
                .into_iter()
                .map(|thread| {
                    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                })
                .sum()
        });
        (
            count,
            cpu.seconds().or_exit("read the server's CPU time") - cpu_before,
            began.elapsed().as_secs_f64(),
        )
    }

    /// A connection after a handshake and one request.
    fn connect(&self) -> TlsStream<TcpStream> {
        // Ports of one address would run out.
        let host = 1 + self.connections.fetch_add(1, Ordering::Relaxed) % 200;
        let address = SocketAddr::from((
            Ipv4Addr::new(127, 0, 1, u8::try_from(host).expect("less than 201")),
            self.server.port,
        ));
        let mut stream = TcpStream::connect(address).or_exit("connect");
        stream.set_nodelay(true).or_exit("set TCP_NODELAY");
        if self.kind == Kind::Export {
            stream.write_all(&call(Flavor::TLS)).or_exit("send the TLS probe");
            let reply = read_record(&mut stream).or_exit("read a reply");
            assert!(
                reply.windows(STARTTLS.len()).any(|part| part == STARTTLS),
                "the server offers TLS"
            );
        }
        let mut stream = self.handshake(stream);
        match self.kind {
            Kind::Export => {
                stream.write_all(&call(Flavor::NONE)).or_exit("send a call");
                read_record(&mut stream).or_exit("read a reply");
            }
            Kind::Web => {
                stream.write_all(b"GET / HTTP/1.0\r\n\r\n").or_exit("send a request");
                let mut head = [0; 12];
                stream.read_exact(&mut head).or_exit("read a response");
                assert_eq!(&head[9..], b"204", "nginx accepts the certificate");
            }
        }
        stream
    }

    fn handshake(&self, mut stream: TcpStream) -> TlsStream<TcpStream> {
        let name = ServerName::try_from("127.0.0.1").expect("an address");
        let mut handshake =
            Handshake::client(self.config.clone(), name).or_exit("begin a handshake");
        let (mut bytes, mut len) = ([0; 16 * 1024], 0);
        loop {
            let mut out = Vec::new();
            let step = handshake.advance(&bytes[..len], &mut out).or_exit("do a handshake");
            stream.write_all(&out).or_exit("send a message of the handshake");
            match step {
                Step::Done(session) => return TlsStream::new(stream, session),
                Step::More(next) => handshake = next,
            }
            len = stream.read(&mut bytes).or_exit("receive a message of the handshake");
            assert!(len > 0, "the server closed the connection");
        }
    }
}

fn measure_idle(subject: &Subject, count: usize) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
        .or_exit("raise the limit of descriptors");
    // The first connections fill buffers that all share.
    let mut open: Vec<_> = (0..64).map(|_| subject.connect()).collect();
    let before = subject.server.resident_kib();
    open.extend((0..count).map(|_| subject.connect()));
    let grown = subject.server.resident_kib() - before;
    println!(
        "{count} idle connections over mutual TLS: {:.1} KiB of memory each",
        grown as f64 / count as f64
    );
}

/// A NULL call with its record mark.
fn call(flavor: Flavor) -> Vec<u8> {
    let cred = OpaqueAuth { flavor, body: &[] };
    vouch_oncrpc::record(|w| Call { cred, ..Call::new(1, (PROGRAM, VERSION), 0, &[]) }.encode(w))
}
