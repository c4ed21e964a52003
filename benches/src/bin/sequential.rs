//! One client reads a large file in order: the replica's CPU time per GiB against bare loops that
//! do nothing but send the same blocks, by sendfile and by writev from a map. Measured in turn,
//! round by round.

use std::fs::File;
use std::io::{IoSlice, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use rustix::net::RecvFlags;
use vouch_benches::process::{Server, free_port};
use vouch_benches::rpc::Request;
use vouch_benches::{OrStop as _, machine, median, tree};
use vouch_tree::{BlockHandle, FrameKind, LEAF_LEN_MAX};

#[derive(Parser)]
#[command(about = "Server CPU per GiB of sequential GETDATA, against bare send loops of the same block size")]
struct Args {
    /// The vouch program.
    #[arg(long, default_value = "target/release/vouch")]
    vouch: PathBuf,
    /// Rounds; each measures every case once.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Length of the file in MiB; read as often as it takes to make `--gib`.
    #[arg(long, default_value_t = 512)]
    file_mib: usize,
    /// GiB a case and round.
    #[arg(long, default_value_t = 4)]
    gib: u64,
    /// Be a bare server on this port instead; for the benchmark's own use.
    #[arg(long, hide = true, requires = "file")]
    bare: Option<Bare>,
    #[arg(long, hide = true)]
    file: Option<PathBuf>,
    #[arg(long, hide = true, default_value_t = 0)]
    port: u16,
}

#[derive(Clone, Copy, ValueEnum)]
enum Bare {
    Sendfile,
    Writev,
}

/// A record in a pack: status, length, frame.
const BLOCK_LEN: u64 = 8 + (LEAF_LEN_MAX as u64 + 2).next_multiple_of(4);

fn main() {
    let args = Args::parse();
    if let (Some(bare), Some(file)) = (args.bare, &args.file) {
        serve_bare(bare, file, args.port);
        return;
    }
    println!("sequential: one connection, frames of 128 KiB in order, {} GiB a case and round", args.gib);
    println!("machine: {}", machine());
    let source = tempfile::tempdir_in("/dev/shm").or_stop("source");
    let file = source.path().join("big");
    std::fs::write(&file, tree::noise(args.file_mib << 20, 5)).or_stop("source");
    let published = tree::Published::new(source.path(), 3);
    let leaves: Vec<_> = published.walk().into_iter().filter(|(kind, _)| *kind == FrameKind::Leaf).map(|(_, handle)| handle).collect();
    let replica = Server::vouch(&args.vouch, &published.path(), 1);
    let bare = |how: &str| {
        let port = free_port();
        let mut command = Command::new(std::env::current_exe().or_stop("this program"));
        command.args(["--bare", how, "--port", &port.to_string(), "--file"]).arg(&file);
        Server::start(command, port, None)
    };
    let (sendfile, writev) = (bare("sendfile"), bare("writev"));
    let requests = |handles: usize| -> Vec<Request> {
        leaves.chunks(handles).map(|chunk: &[BlockHandle]| Request::data(published.hostid, published.iv, chunk.to_vec())).collect()
    };
    let (one, eight) = (requests(1), requests(8));
    check_once(&replica, &eight);

    let bytes = args.gib << 30;
    type Run<'a> = Box<dyn Fn() -> u64 + 'a>;
    let cases: [(&str, &Server, Run<'_>); 4] = [
        ("vouch, GETDATA of 8 handles, 4 in flight", &replica, Box::new(|| read_replica(&replica, &eight, 8, 4, bytes))),
        ("bare sendfile loop", &sendfile, Box::new(|| read_bare(&sendfile, bytes))),
        ("vouch, GETDATA of 1 handle, 16 in flight", &replica, Box::new(|| read_replica(&replica, &one, 1, 16, bytes))),
        ("bare writev loop", &writev, Box::new(|| read_bare(&writev, bytes))),
    ];
    let mut figures: Vec<(Vec<f64>, Vec<f64>)> = vec![Default::default(); cases.len()];
    for round in 1..=args.rounds {
        for ((name, server, run), (cpu, rate)) in cases.iter().zip(&mut figures) {
            let (before, start) = (server.cpu(), Instant::now());
            let gib = run() as f64 / (1u64 << 30) as f64;
            let elapsed = start.elapsed();
            cpu.push((server.cpu() - before).as_secs_f64() / gib);
            rate.push(gib * 1024.0 / elapsed.as_secs_f64());
            println!("round {round}: {:.3} s CPU/GiB, {:>6.0} MiB/s  {name}", cpu[round - 1], rate[round - 1]);
        }
    }
    println!();
    let cpu: Vec<f64> = figures.iter().map(|(cpu, _)| median(cpu.clone())).collect();
    for ((name, ..), (figure, (_, rate))) in cases.iter().zip(cpu.iter().zip(&figures)) {
        println!("median: {figure:.3} s CPU/GiB, {:>6.0} MiB/s  {name}", median(rate.clone()));
    }
    let best = cpu[1].min(cpu[3]);
    println!("vouch 8 handles / better bare loop: {:.2}; vouch 1 handle / better bare loop: {:.2}", cpu[0] / best, cpu[2] / best);
}

/// Reads the whole file once with every frame's hash checked; the measured reads only count.
fn check_once(server: &Server, requests: &[Request]) {
    let mut socket = TcpStream::connect(("127.0.0.1", server.port)).or_stop("connect");
    for request in requests {
        socket.write_all(&request.bytes).or_stop("send");
        let mut mark = [0; 4];
        socket.read_exact(&mut mark).or_stop("receive");
        let mut answer = mark.to_vec();
        answer.resize(4 + (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize, 0);
        socket.read_exact(&mut answer[4..]).or_stop("receive");
        assert_eq!(request.check(&answer), Ok(true));
    }
}

fn read_replica(server: &Server, requests: &[Request], handles: u64, in_flight: u64, bytes: u64) -> u64 {
    let mut socket = TcpStream::connect(("127.0.0.1", server.port)).or_stop("connect");
    // What an answer is longer than its blocks: record mark, reply header, count.
    let answer_len = 32 + handles * BLOCK_LEN;
    let answers = bytes / (handles * BLOCK_LEN);
    let mut turn = requests[..requests.len() - 1].iter().cycle();
    let mut ask = |socket: &mut TcpStream| turn.next().into_iter().for_each(|request| socket.write_all(&request.bytes).or_stop("send"));
    (0..in_flight.min(answers)).for_each(|_| ask(&mut socket));
    let (mut received, mut asked) = (0, in_flight.min(answers));
    while received < answers * answer_len {
        received += discard(&socket);
        while asked < answers && received / answer_len + in_flight > asked {
            ask(&mut socket);
            asked += 1;
        }
    }
    answers * handles * BLOCK_LEN
}

fn read_bare(server: &Server, bytes: u64) -> u64 {
    let mut socket = TcpStream::connect(("127.0.0.1", server.port)).or_stop("connect");
    let blocks = bytes / BLOCK_LEN;
    socket.write_all(&blocks.to_be_bytes()).or_stop("send");
    let mut received = 0;
    while received < blocks * BLOCK_LEN {
        received += discard(&socket);
    }
    received
}

/// Takes what has come without copying it, so that the client costs the server's core as little as
/// possible.
fn discard(socket: &TcpStream) -> u64 {
    DISCARD.with_borrow_mut(|buffer| {
        let (_, n) = rustix::net::recv(socket, &mut buffer[..], RecvFlags::TRUNC).or_stop("receive");
        if n == 0 {
            Err::<(), _>("the server closed early").or_stop("receive");
        }
        n as u64
    })
}

thread_local! {
    static DISCARD: std::cell::RefCell<Vec<u8>> = std::cell::RefCell::new(vec![0; 1 << 20]);
}

fn serve_bare(bare: Bare, path: &PathBuf, port: u16) {
    let file = File::open(path).or_stop("file");
    let len = file.metadata().or_stop("file").len();
    let map = map(&file);
    let listener = TcpListener::bind(("0.0.0.0", port)).or_stop("listen");
    for socket in listener.incoming() {
        let mut socket = socket.or_stop("accept");
        let mut blocks = [0; 8];
        if socket.read_exact(&mut blocks).is_err() {
            continue;
        }
        let mut at = 0;
        for _ in 0..u64::from_be_bytes(blocks) {
            if at + BLOCK_LEN > len {
                at = 0;
            }
            let mut sent = 0;
            while sent < BLOCK_LEN {
                let left = (BLOCK_LEN - sent) as usize;
                let mut from = at + sent;
                sent += match bare {
                    Bare::Sendfile => rustix::fs::sendfile(&socket, &file, Some(&mut from), left).or_stop("sendfile") as u64,
                    Bare::Writev => {
                        let block = &map[from as usize..from as usize + left];
                        rustix::io::writev(&socket, &[IoSlice::new(block)]).or_stop("writev") as u64
                    }
                };
            }
            at += BLOCK_LEN;
        }
    }
}

#[allow(unsafe_code, reason = "the peer of the comparison writes from a map, as many servers do")]
fn map(file: &File) -> memmap2::Mmap {
    // SAFETY: the file was made by the benchmark, and nobody changes or cuts it while it runs.
    unsafe { memmap2::Mmap::map(file) }.or_stop("map")
}
