mod connection;
mod nats;
mod place;
mod position;
mod target;
mod tls;
mod trouble;
mod unacknowledged;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use vouch_audit::frame::Kind;
use vouch_audit::trail::{CHECKPOINT_FILE, Follower, entries, read_checkpoint, segments};
use vouch_audit::{Record, json, syslog};

use crate::cli::Global;
use crate::exit::{At as _, Failure, Outcome};
use connection::Connection;
use nats::{Nats, NatsArgs};
use target::{Protocol, Target};
use tls::TlsArgs;
use trouble::Trouble;

/// Send records to a collector as they are written, and continue after a restart.
///
/// Syslog over TLS or TCP delivers at least once: each connection ends after 10 s or 8 MiB, and its
/// records count as sent when the collector has ended it too, after reading everything. NATS
/// delivers at least once: JetStream acknowledges stored records. Records without acknowledgement
/// are sent again, so a collector may see a record twice (`event.sequence` identifies it; a NATS
/// stream drops it by its id). UDP has no acknowledgements. Over TLS, a collector needs a
/// certificate that --tls-ca trusts. A record is sent when it is sealed and on disk, at most
/// `--audit-seal` after it was written.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch audit send --to syslog+tls://collector.example.org --tls-ca /etc/vouch/collector-ca.pem --position /var/lib/vouch/sent /var/lib/vouch/audit\n  \
                  vouch audit send --to syslog+tcp://collector.example.org:601 --position /var/lib/vouch/sent /var/lib/vouch/audit\n  \
                  vouch audit send --to nats+tls://nats.example.org/audit.nfs1 --tls-ca /etc/vouch/nats-ca.pem --position /var/lib/vouch/sent /var/lib/vouch/audit\n  \
                  vouch audit send --once --to syslog+udp://127.0.0.1:514 --position /var/lib/vouch/sent /var/lib/vouch/audit"
)]
pub(crate) struct Args {
    /// Directory of the trail.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Collector: syslog+tls://HOST[:PORT] (6514), syslog+tcp://HOST:PORT, syslog+udp://HOST:PORT,
    /// nats+tls://HOST[:PORT]/SUBJECT (4222) or nats://HOST[:PORT]/SUBJECT.
    #[arg(long, value_name = "URL", value_parser = Target::parse)]
    to: Target,
    /// File of the position reached; created if missing, and then everything is sent.
    #[arg(long, value_name = "FILE")]
    position: PathBuf,
    /// Stop when all sealed records are sent.
    #[arg(long)]
    once: bool,
    /// Name of this machine in messages, if not its host name.
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    #[command(flatten)]
    tls: TlsArgs,
    #[command(flatten)]
    nats: NatsArgs,
}

struct Message {
    seq: u64,
    text: String,
    /// For a datagram, if the text is too long.
    short: Option<String>,
}

/// Any network carries a datagram of this length, if needed in fragments.
const SHORT_ABOVE_LEN: usize = 8192;

const PAUSE: Duration = Duration::from_millis(200);
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// After this many ends in a row without close_notify, the collector is taken to never send one.
const PLAIN_ENDS_MAX: u32 = 3;
/// A collector that accepts nothing for this long is disconnected.
const STALL: Duration = Duration::from_secs(60);
const BATCH_LEN: usize = 256 * 1024;
/// Bytes on one connection: only its end proves that all was read.
const CONNECTION_LEN: usize = 8 << 20;
const CONNECTION_AGE: Duration = Duration::from_secs(10);

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    if args.to.protocol.is_tls() {
        // Reports faults now, not at the first connection.
        args.tls.config()?;
        args.tls.name(&args.to.host)?;
    } else if args.tls.any() {
        return Err(Failure::usage("--to", "has no TLS, but TLS options are given").cure("write syslog+tls:// or nats+tls://"));
    }
    match args.to.protocol.is_nats() {
        true => drop(args.nats.options()?),
        false if args.nats.any() => return Err(Failure::usage("--to", "is not a NATS server, but NATS options are given")),
        false => {}
    }
    if args.to.protocol == Protocol::NatsTls {
        args.tls.nats(args.nats.options()?)?;
    }
    let host = args.host.clone().unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
    let mut retry = RETRY_MIN;
    let mut lost = 0;
    let mut trail = nats::trail_of(&args.directory).ok();
    let mut follower = Follower::from_position(&args.directory, position::resume(&args.position, &args.directory, trail.as_deref())?);
    let (mut nats, mut plain_ends) = (None, 0);
    let mut is_warned = false;
    loop {
        let first = next(&args, &host, &mut follower)?;
        if follower.skipped_segments() > lost {
            lost = follower.skipped_segments();
            tracing::warn!(segments = lost, "retention removed segments before they were sent");
        }
        if first.is_empty() {
            // The trail was restored from a backup while it was being sent.
            if position::is_beyond_seals(&args.directory, follower.position())? {
                position::resume(&args.position, &args.directory, trail.as_deref())?;
            }
            if !is_warned && lacks_checkpoint(&args.directory)? {
                let fault = "has seals but no checkpoint, so nothing is sent";
                if args.once {
                    let cure = "copy `checkpoint` too, after the segments";
                    return Err(Failure::input(args.directory.display(), fault).cure(cure));
                }
                tracing::warn!(trail = %args.directory.display(), "the trail {fault}");
                is_warned = true;
            }
            if args.once {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
            continue;
        }
        let sent = match args.to.protocol.is_nats() {
            true => publish(&args, &mut nats, &first),
            false => send(&args, &host, &mut follower, first)?,
        };
        match sent {
            Ok(()) => {
                (retry, plain_ends) = (RETRY_MIN, 0);
                let trail = match &mut trail {
                    Some(trail) => trail,
                    none => none.insert(nats::trail_of(&args.directory)?),
                };
                position::write(&args.position, &args.directory, follower.position(), trail).at(args.position.display())?;
            }
            Err(trouble) => {
                plain_ends = if trouble.is_plain_end { plain_ends + 1 } else { 0 };
                if args.once && (trouble.is_refusal || plain_ends == PLAIN_ENDS_MAX) {
                    return Err(trouble.into_failure(&args.to));
                }
                tracing::warn!(to = %args.to, "the collector did not accept all records; sending them again: {trouble}");
                nats = None;
                follower = Follower::from_position(&args.directory, position::resume(&args.position, &args.directory, trail.as_deref())?);
                std::thread::sleep(retry);
                retry = (retry * 2).min(RETRY_MAX);
            }
        }
    }
}

/// Number of the first unsealed record. A crash may lose unsealed records, so a collector must not
/// have them.
fn sealed(directory: &Path) -> Outcome<u64> {
    let path = directory.join(CHECKPOINT_FILE);
    match read_checkpoint(&path) {
        Ok(seal) => Ok(seal.next_seq),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error).at(path.display()),
    }
}

/// True for an incomplete copy: a seal without a checkpoint. A new trail has neither.
fn lacks_checkpoint(directory: &Path) -> Outcome<bool> {
    if directory.join(CHECKPOINT_FILE).exists() {
        return Ok(false);
    }
    let Some(first) = segments(directory).at(directory.display())?.first().map(|file| file.number) else { return Ok(false) };
    let mut has_seal = false;
    let read = entries(directory, first, |entry| {
        has_seal = matches!(entry.kind, Kind::Checkpoint | Kind::Close);
        !has_seal
    });
    read.at(directory.display())?;
    // The first seal may have created the checkpoint meanwhile.
    Ok(has_seal && !directory.join(CHECKPOINT_FILE).exists())
}

fn next(args: &Args, host: &str, follower: &mut Follower) -> Outcome<Vec<Message>> {
    let (mut scratch, mut batch, mut len) = (Vec::new(), Vec::new(), 0);
    follower.set_limit(sealed(&args.directory)?);
    let read = follower.read(|body, _, boot| {
        if let Ok(record) = Record::decode(body, &mut scratch) {
            let text = match args.to.protocol.is_nats() {
                true => {
                    let mut text = String::with_capacity(512);
                    json::write(&record, boot, &mut text);
                    text.truncate(text.trim_end().len());
                    text
                }
                false => syslog::message(&record, boot, host),
            };
            len += text.len();
            let is_long = args.to.protocol == Protocol::SyslogUdp && text.len() > SHORT_ABOVE_LEN;
            let short = is_long.then(|| syslog::short_message(&record, boot, host));
            batch.push(Message { seq: record.seq, text, short });
        }
        len < BATCH_LEN
    });
    read.at(args.directory.display())?;
    Ok(batch)
}

fn publish(args: &Args, nats: &mut Option<Nats>, batch: &[Message]) -> Result<(), Trouble> {
    let connection = match nats {
        Some(connection) => connection,
        None => nats.insert(Nats::open(&args.to, &args.nats, &args.tls, &args.directory)?),
    };
    connection.send(batch)
}

/// True if the collector took all. The outer error concerns the trail.
fn send(args: &Args, host: &str, follower: &mut Follower, first: Vec<Message>) -> Outcome<Result<(), Trouble>> {
    let mut connection = match Connection::open(&args.to, &args.tls) {
        Ok(connection) => connection,
        Err(trouble) => return Ok(Err(trouble)),
    };
    let begun = Instant::now();
    let (mut batch, mut len) = (first, 0);
    loop {
        len += batch.iter().map(|message| message.text.len()).sum::<usize>();
        if let Err(trouble) = connection.send(&batch) {
            return Ok(Err(trouble));
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
