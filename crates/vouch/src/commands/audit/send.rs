//! `vouch audit send`: records to a collector, by syslog over TCP or UDP.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream, ToSocketAddrs, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use vouch_audit::trail::{Follower, Place};
use vouch_audit::{Record, syslog};

use crate::cli::Global;
use crate::exit::{At as _, Failure, Outcome};

/// Send records to a syslog collector as they are written, and go on after a restart where it was.
///
/// Over TCP at least once: each connection is ended after 10 s or 8 MiB, and what was sent on it counts when the other side ended it too, after it has read all. What does
/// not count is sent again, so that a collector may see a record twice (`event.sequence` tells). Over UDP nobody acknowledges anything. The trail stays the truth.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch audit send --to syslog+tcp://collector.example.org:601 --position /var/lib/vouch/sent /var/lib/vouch/audit\n  \
                  vouch audit send --once --to syslog+udp://127.0.0.1:514 --position /var/lib/vouch/sent /var/lib/vouch/audit"
)]
pub(crate) struct Args {
    /// The trail's directory.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// The collector: syslog+tcp://HOST:PORT or syslog+udp://HOST:PORT.
    #[arg(long, value_name = "URL", value_parser = target)]
    to: Target,
    /// File that keeps how far the trail was sent; made if it isn't there, and then all is sent.
    #[arg(long, value_name = "FILE")]
    position: PathBuf,
    /// End when all that is there was sent.
    #[arg(long)]
    once: bool,
    /// Name of this machine in messages, if not its own.
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
}

#[derive(Clone, Debug)]
struct Target {
    is_stream: bool,
    address: String,
}

fn target(text: &str) -> Result<Target, String> {
    let (is_stream, address) = match (text.strip_prefix("syslog+tcp://"), text.strip_prefix("syslog+udp://")) {
        (Some(address), _) => (true, address),
        (_, Some(address)) => (false, address),
        _ => return Err("write syslog+tcp://HOST:PORT or syslog+udp://HOST:PORT".into()),
    };
    let has_port = address.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if has_port { Ok(Target { is_stream, address: address.to_owned() }) } else { Err("the port is missing".into()) }
}

const PAUSE: Duration = Duration::from_millis(200);
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// A collector that takes nothing for so long is given up and connected to anew.
const STALL: Duration = Duration::from_secs(60);
/// Records go out in writes of about so many bytes.
const BATCH_LEN: usize = 256 * 1024;
/// A connection ends after so many bytes or so long, since only its end says that all was read.
const CONNECTION_LEN: usize = 8 << 20;
const CONNECTION_AGE: Duration = Duration::from_secs(10);

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let host = args.host.clone().unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
    let mut retry = RETRY_MIN;
    let mut lost = 0;
    let mut follower = Follower::at(&args.directory, read_position(&args.position)?);
    loop {
        let first = next(&args, &host, &mut follower)?;
        if follower.lost() > lost {
            lost = follower.lost();
            tracing::warn!(segments = lost, "retention removed segments before they were sent");
        }
        if first.is_empty() {
            if args.once {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
            continue;
        }
        match send(&args, &host, &mut follower, first)? {
            Ok(()) => {
                retry = RETRY_MIN;
                write_position(&args.position, follower.place()).at(args.position.display())?;
            }
            Err(error) => {
                tracing::warn!(to = args.to.address, %error, "the collector did not take all; it is sent again");
                follower = Follower::at(&args.directory, read_position(&args.position)?);
                std::thread::sleep(retry);
                retry = (retry * 2).min(RETRY_MAX);
            }
        }
    }
}

/// The messages of records that were not sent, at most a batch.
fn next(args: &Args, host: &str, follower: &mut Follower) -> Outcome<Vec<String>> {
    let (mut scratch, mut batch, mut len) = (Vec::new(), Vec::new(), 0);
    let read = follower.read(|body, _| {
        if let Ok(record) = Record::decode(body, &mut scratch) {
            let message = syslog::message(&record, host);
            len += message.len();
            batch.push(message);
        }
        len < BATCH_LEN
    });
    read.at(args.directory.display())?;
    Ok(batch)
}

/// One connection, from its first batch to its end: whether the other side took all. The outer result is of the trail.
fn send(args: &Args, host: &str, follower: &mut Follower, first: Vec<String>) -> Outcome<io::Result<()>> {
    let mut connection = match Connection::open(&args.to) {
        Ok(connection) => connection,
        Err(error) => return Ok(Err(error)),
    };
    let begun = Instant::now();
    let (mut batch, mut len) = (first, 0);
    loop {
        len += batch.iter().map(String::len).sum::<usize>();
        if let Err(error) = connection.send(&batch) {
            return Ok(Err(error));
        }
        if len >= CONNECTION_LEN || begun.elapsed() >= CONNECTION_AGE {
            return Ok(connection.end());
        }
        batch = next(args, host, follower)?;
        if batch.is_empty() {
            if args.once {
                return Ok(connection.end());
            }
            std::thread::sleep(PAUSE);
        }
    }
}

enum Connection {
    Stream(TcpStream),
    Datagrams(UdpSocket),
}

impl Connection {
    fn open(target: &Target) -> io::Result<Connection> {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in target.address.to_socket_addrs()? {
            let opened = match target.is_stream {
                true => TcpStream::connect_timeout(&address, STALL).and_then(|stream| {
                    stream.set_write_timeout(Some(STALL))?;
                    stream.set_read_timeout(Some(STALL))?;
                    Ok(Connection::Stream(stream))
                }),
                false => {
                    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
                    UdpSocket::bind(any).and_then(|socket| socket.connect(address).map(|()| Connection::Datagrams(socket)))
                }
            };
            match opened {
                Ok(connection) => return Ok(connection),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn send(&mut self, messages: &[String]) -> io::Result<()> {
        match self {
            Connection::Stream(stream) => {
                let mut bytes = Vec::new();
                messages.iter().for_each(|message| syslog::frame(message, &mut bytes));
                stream.write_all(&bytes)
            }
            Connection::Datagrams(socket) => messages.iter().try_for_each(|message| socket.send(message.as_bytes()).map(drop)),
        }
    }

    /// Ends the connection. Syslog has no acknowledgements: that the other side ends it too, after our end and in good order, says that it has read all; if it hadn't, its
    /// system would have answered with a reset (RFC 2525, section 2.17).
    fn end(self) -> io::Result<()> {
        let Connection::Stream(mut stream) = self else { return Ok(()) };
        stream.shutdown(Shutdown::Write)?;
        let begun = Instant::now();
        let mut ignored = [0; 512];
        while stream.read(&mut ignored)? > 0 {
            if begun.elapsed() > STALL {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }
}

fn read_position(path: &Path) -> Outcome<Place> {
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Place::default()),
        other => other.at(path.display())?,
    };
    let numbers: Vec<u64> = text.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect();
    match numbers[..] {
        [segment, offset, next_seq] => Ok(Place { segment, offset, next_seq }),
        _ => Err(Failure::input(path.display(), "holds no position").cure("remove it to send all again")),
    }
}

fn write_position(path: &Path, place: Place) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    let mut file = std::fs::File::create(&new)?;
    writeln!(file, "{} {} {}", place.segment, place.offset, place.next_seq)?;
    file.sync_data()?;
    std::fs::rename(&new, path)
}
