//! By syslog over TLS, TCP or UDP, or to NATS.

mod connection;
mod delivery_error;
mod nats;
pub(crate) mod place;
mod position;
mod target;
mod tls;
mod unacknowledged;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use vouch_audit::frame::Kind;
use vouch_audit::trail::{CHECKPOINT_FILE, Follower, Position, entries, read_checkpoint, segments};
use vouch_audit::{Record, json, syslog};
use vouch_daemon::failure::{At as _, Failure, Outcome};

use connection::Connection;
use delivery_error::DeliveryError;
use nats::Nats;
use target::Protocol;

pub use nats::NatsOptions;
pub use target::Target;
pub use tls::{TlsOptions, server_name};

#[derive(Debug)]
pub struct Sender {
    pub directory: PathBuf,
    pub to: Target,
    /// File of the position reached; without it, everything is sent.
    pub position: PathBuf,
    pub once: bool,
    /// Name of this machine in messages, if not its host name.
    pub host: Option<String>,
    pub tls: TlsOptions,
    pub nats: NatsOptions,
}

struct Message {
    seq: u64,
    text: String,
    short: Option<String>,
}

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

impl Sender {
    pub fn run(&self) -> Outcome {
        self.check_options()?;
        let mut sending = Sending::begin(self)?;
        loop {
            let first = sending.next()?;
            sending.warn_about_skipped();
            if first.is_empty() {
                sending.check_idle_trail()?;
                if self.once {
                    return Ok(());
                }
                std::thread::sleep(PAUSE);
                continue;
            }
            match sending.deliver(first)? {
                Ok(()) => sending.store_position()?,
                Err(error) => sending.retry_after(error)?,
            }
        }
    }

    fn check_options(&self) -> Outcome {
        if self.to.protocol.is_tls() {
            self.tls.config()?;
            self.tls.expected_name(&self.to.host)?;
        } else if self.tls.any() {
            return Err(Failure::usage("--to", "has no TLS, but TLS options are given")
                .cure("write syslog+tls:// or nats+tls://"));
        }
        match self.to.protocol.is_nats() {
            true => drop(self.nats.options()?),
            false if self.nats.any() => {
                return Err(Failure::usage(
                    "--to",
                    "is not a NATS server, but NATS options are given",
                ));
            }
            false => {}
        }
        if self.to.protocol == Protocol::NatsTls {
            self.tls.nats(self.nats.options()?)?;
        }
        Ok(())
    }
}

struct Sending<'a> {
    options: &'a Sender,
    host: String,
    /// Id of the trail; none before its first segment.
    trail: Option<String>,
    follower: Follower,
    nats: Option<Nats>,
    retry: Duration,
    plain_ends: u32,
    skipped_segments: u64,
    is_warned: bool,
}

impl<'a> Sending<'a> {
    fn begin(options: &'a Sender) -> Outcome<Self> {
        let host = options
            .host
            .clone()
            .unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
        let trail = nats::trail_of(&options.directory).ok();
        let position = position::resume(&options.position, &options.directory, trail.as_deref())?;
        Ok(Self {
            options,
            host,
            trail,
            follower: Follower::from_position(&options.directory, position),
            nats: None,
            retry: RETRY_MIN,
            plain_ends: 0,
            skipped_segments: 0,
            is_warned: false,
        })
    }

    fn resume_position(&self) -> Outcome<Position> {
        position::resume(&self.options.position, &self.options.directory, self.trail.as_deref())
    }

    fn warn_about_skipped(&mut self) {
        let skipped = self.follower.skipped_segments();
        if skipped > self.skipped_segments {
            self.skipped_segments = skipped;
            tracing::warn!(segments = skipped, "retention removed segments before they were sent");
        }
    }

    fn check_idle_trail(&mut self) -> Outcome {
        let directory = &self.options.directory;
        // The trail was restored from a backup while it was being sent.
        if position::is_beyond_seals(directory, self.follower.position())? {
            self.resume_position()?;
        }
        if !self.is_warned && lacks_checkpoint(directory)? {
            let fault = "has seals but no checkpoint, so nothing is sent";
            if self.options.once {
                return Err(Failure::input(directory.display(), fault)
                    .cure("copy `checkpoint` too, after the segments"));
            }
            tracing::warn!(trail = %directory.display(), "the trail {fault}");
            self.is_warned = true;
        }
        Ok(())
    }

    fn deliver(&mut self, first: Vec<Message>) -> Outcome<Result<(), DeliveryError>> {
        if self.options.to.protocol.is_nats() {
            Ok(self.publish(&first))
        } else {
            self.send_by_syslog(first)
        }
    }

    fn store_position(&mut self) -> Outcome {
        (self.retry, self.plain_ends) = (RETRY_MIN, 0);
        let Sender { directory, position, .. } = self.options;
        let trail = match &mut self.trail {
            Some(trail) => trail,
            // There was no segment at the start.
            none => none.insert(nats::trail_of(directory)?),
        };
        position::write(position, directory, self.follower.position(), trail).at(position.display())
    }

    fn retry_after(&mut self, error: DeliveryError) -> Outcome {
        self.plain_ends = if error.is_plain_end { self.plain_ends + 1 } else { 0 };
        if self.options.once && (error.is_refusal || self.plain_ends == PLAIN_ENDS_MAX) {
            return Err(error.into_failure(&self.options.to));
        }
        tracing::warn!(to = %self.options.to, "the collector did not accept all records; sending them again: {error}");
        self.nats = None;
        self.follower = Follower::from_position(&self.options.directory, self.resume_position()?);
        std::thread::sleep(self.retry);
        self.retry = (self.retry * 2).min(RETRY_MAX);
        Ok(())
    }

    fn next(&mut self) -> Outcome<Vec<Message>> {
        let Sender { directory, to, .. } = self.options;
        let (mut scratch, mut batch, mut len) = (Vec::new(), Vec::new(), 0);
        self.follower.set_limit(sealed(directory)?);
        let read = self.follower.read(|body, _, boot| {
            if let Ok(record) = Record::decode(body, &mut scratch) {
                let message = message(&record, boot, to.protocol, &self.host);
                len += message.text.len();
                batch.push(message);
            }
            len < BATCH_LEN
        });
        read.at(directory.display())?;
        Ok(batch)
    }

    fn publish(&mut self, batch: &[Message]) -> Result<(), DeliveryError> {
        let Sender { directory, to, tls, nats, .. } = self.options;
        let connection = match &mut self.nats {
            Some(connection) => connection,
            none => none.insert(Nats::open(to, nats, tls, directory)?),
        };
        connection.send(batch)
    }

    fn send_by_syslog(&mut self, first: Vec<Message>) -> Outcome<Result<(), DeliveryError>> {
        let mut connection = match Connection::open(&self.options.to, &self.options.tls) {
            Ok(connection) => connection,
            Err(error) => return Ok(Err(error)),
        };
        let begun = Instant::now();
        let (mut batch, mut len) = (first, 0);
        loop {
            len += batch.iter().map(|message| message.text.len()).sum::<usize>();
            if let Err(error) = connection.send(&batch) {
                return Ok(Err(error));
            }
            if len >= CONNECTION_LEN || begun.elapsed() >= CONNECTION_AGE {
                return Ok(connection.end());
            }
            batch = self.next()?;
            if batch.is_empty() {
                if self.options.once {
                    return Ok(connection.end());
                }
                std::thread::sleep(PAUSE);
            }
        }
    }
}

fn message(record: &Record<'_>, boot: Option<[u8; 16]>, protocol: Protocol, host: &str) -> Message {
    let text = match protocol.is_nats() {
        true => {
            let mut text = String::with_capacity(512);
            json::write(record, boot, &mut text);
            text.truncate(text.trim_end().len());
            text
        }
        false => syslog::message(record, boot, host),
    };
    let is_long = !protocol.is_nats() && text.len() > syslog::MESSAGE_LEN_MAX;
    let short = is_long.then(|| syslog::short_message(record, boot, host));
    match short {
        // Collectors split or cut longer messages of streams.
        Some(text) if protocol != Protocol::SyslogUdp => {
            Message { seq: record.seq, text, short: None }
        }
        short => Message { seq: record.seq, text, short },
    }
}

/// Sealed records are on disk; later ones may be lost in a crash, so a collector must not have
/// them.
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
    let Some(first) = segments(directory).at(directory.display())?.first().map(|file| file.number)
    else {
        return Ok(false);
    };
    let mut has_seal = false;
    let read = entries(directory, first, |entry| {
        has_seal = matches!(entry.kind, Kind::Checkpoint | Kind::Close);
        !has_seal
    });
    read.at(directory.display())?;
    // The first seal may have created the checkpoint meanwhile.
    Ok(has_seal && !directory.join(CHECKPOINT_FILE).exists())
}
