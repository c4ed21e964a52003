use std::path::PathBuf;

use serde::Serialize;
use vouch_audit::trail::{Trust, read_checkpoint, verify};

use super::hex;
use crate::cli::Global;
use crate::exit::{At as _, Code, Failure, Outcome};
use crate::{output, progress, when};

/// Verify that no record of a trail was altered, removed, inserted, reordered or cut off, and
/// report where.
///
/// Trusts only the public key that `vouch audit keygen` printed. With checkpoints kept elsewhere,
/// not even an intruder with the server's key can have altered or removed earlier records. Exits
/// with 1 if anything is wrong.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch audit verify --public trail.pub /var/lib/vouch/audit\n  \
                  cp /var/lib/vouch/audit/checkpoint /media/kept/monday        a checkpoint, kept elsewhere\n  \
                  vouch audit verify --public trail.pub --checkpoint /media/kept/monday /var/lib/vouch/audit"
)]
pub(crate) struct Args {
    /// Directory of the trail.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// The trail's first public key: 64 hexadecimal digits, or a file that holds them.
    #[arg(long, value_name = "KEY")]
    public: Option<String>,
    /// A checkpoint kept elsewhere, which the trail must contain; may be repeated.
    #[arg(long, value_name = "FILE")]
    checkpoint: Vec<PathBuf>,
    /// File of the trail's key, if not in the trail's directory: it shows how far the trail must
    /// reach.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args, global: &Global) -> Outcome {
    let public = args.public.as_deref().map(public).transpose()?;
    let checkpoints = args
        .checkpoint
        .iter()
        .map(|path| read_checkpoint(path).at(path.display()))
        .collect::<Outcome<Vec<_>>>()?;
    let bar = progress::spinner(global, "verifying");
    let trust = Trust { public, checkpoints, key: args.key };
    let found = verify(&args.directory, &trust, |done, count| {
        bar.set_message(format!("{done} of {count} segments"))
    })
    .at(args.directory.display());
    bar.finish_and_clear();
    let found = found?;
    if found.segments == 0 && found.faults.is_empty() {
        return Err(Failure::not_found(
            args.directory.display(),
            "contains no segment of an audit trail",
        ));
    }
    let time = |ns: u64| when::utc(ns / 1_000_000_000);
    let report = Report {
        trail: found.trail.map(|trail| hex(&trail)),
        public: found.public.map(|public| hex(&public)),
        segments: found.segments,
        records: found.records,
        unsealed: found.unsealed,
        first: found.span.map(|span| span.0),
        last: found.span.map(|span| span.1),
        from: found.times.map(|times| time(times.0)),
        until: found.times.map(|times| time(times.1)),
        seal: found.last.as_ref().map(|seal| seal.epoch),
        sealed: found.last.as_ref().map(|seal| time(seal.time_ns)),
        sound: found.faults.is_empty(),
        faults: found
            .faults
            .iter()
            .map(|fault| Fault {
                kind: fault.kind.name(),
                segment: fault.segment,
                offset: fault.offset,
                seq: fault.seq,
                what: fault.description.clone(),
            })
            .collect(),
        notes: found.notes,
    };
    if args.json {
        output::json(&report)?;
    } else {
        // Faults come last, and control characters from a forged trail are escaped.
        let notes = report
            .notes
            .iter()
            .map(|note| format!("note: {}\n", vouch_daemon::printable::printable(note.as_bytes())));
        let faults = found.faults.iter().map(|fault| {
            format!("{}\n", vouch_daemon::printable::printable(fault.to_string().as_bytes()))
        });
        let mut text: String = notes.chain(faults).collect();
        text.push_str(&report.summary());
        output::text(&text)?;
    }
    if report.sound { Ok(()) } else { Err(Failure::silent(Code::Differs)) }
}

pub(super) fn public(given: &str) -> Outcome<[u8; 32]> {
    let decode = |text: &str| {
        data_encoding::HEXLOWER_PERMISSIVE.decode(text.trim().as_bytes()).ok()?.try_into().ok()
    };
    if let Some(key) = decode(given) {
        return Ok(key);
    }
    let text = std::fs::read_to_string(given).at(given)?;
    decode(&text)
        .ok_or_else(|| Failure::input(given, "is not a public key of 64 hexadecimal digits"))
}

#[derive(Serialize)]
struct Report {
    trail: Option<String>,
    public: Option<String>,
    segments: u64,
    records: u64,
    unsealed: u64,
    first: Option<u64>,
    last: Option<u64>,
    from: Option<String>,
    until: Option<String>,
    seal: Option<u64>,
    sealed: Option<String>,
    sound: bool,
    faults: Vec<Fault>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct Fault {
    kind: &'static str,
    segment: u64,
    offset: u64,
    seq: u64,
    what: String,
}

impl Report {
    fn summary(&self) -> String {
        let Report { segments, records, unsealed, .. } = self;
        let verdict = match self.faults.len() {
            0 => "sound".to_owned(),
            1 => "1 fault".to_owned(),
            count => format!("{count} faults"),
        };
        let sealed = match (unsealed, &self.sealed) {
            (0, Some(at)) => format!("all sealed, last at {at}"),
            (count, Some(at)) => format!("{count} since the last seal at {at}"),
            (_, None) => "none sealed yet".to_owned(),
        };
        format!("{verdict}: {records} records in {segments} segments, {sealed}\n")
    }
}
