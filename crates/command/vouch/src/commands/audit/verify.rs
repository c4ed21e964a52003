use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use vouch_audit::seal::Seal;
use vouch_audit::trail::{Trust, read_checkpoint, seals_from, verify};
use vouch_audit_pipeline::trail_log::{
    Error as TrailLogError, LOG_DIRECTORY, LogFault, LoggedSeal, WitnessedLog,
};
use vouch_log::note::NOTE_LEN_MAX;
use vouch_log::policy::{CLOCK_SKEW_S_MAX, Policy};
use vouch_tree_client::{CosignRequest, Cosigning, WitnessTarget};

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
                  vouch audit verify --policy trail.policy /var/lib/vouch/audit      by the log of the trail\n  \
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
    /// The trail must have what its log has (`vouch audit log`), and the log's head must satisfy this
    /// policy (C2SP tlog-policy), whose `log` line names the log's key. The policy's witnesses are
    /// asked, and its quorum must confirm that it has seen no longer log.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Directory of the log, if not `log` in the trail's directory.
    #[arg(long, value_name = "DIR", requires = "policy")]
    log: Option<PathBuf>,
    /// Ask no witness. A trail and a log from one backup then pass, if it is not older than
    /// --witnessed-within.
    #[arg(long, requires = "policy")]
    offline: bool,
    /// With --offline: the policy's quorum must have cosigned the log's head within this time.
    #[arg(long, value_name = "DURATION", default_value = "1d", value_parser = when::parse_duration, requires = "policy")]
    witnessed_within: Duration,
    /// Time limit for asking all witnesses.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = when::parse_duration, requires = "policy")]
    witness_wait: Duration,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args, global: &Global) -> Outcome {
    let public = args.public.as_deref().map(public).transpose()?;
    let mut checkpoints = args
        .checkpoint
        .iter()
        .map(|path| read_checkpoint(path).at(path.display()))
        .collect::<Outcome<Vec<_>>>()?;
    let witnessed = args.policy.as_deref().map(|policy| read_log(&args, policy)).transpose()?;
    let witnessed = witnessed.unwrap_or_default();
    checkpoints.extend(witnessed.newest);
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
    let mut faults: Vec<Fault> = found
        .faults
        .iter()
        .map(|fault| Fault {
            kind: fault.kind.name(),
            segment: fault.segment,
            offset: fault.offset,
            seq: fault.seq,
            what: fault.description.clone(),
            text: fault.to_string(),
        })
        .collect();
    faults.extend(witnessed.faults.into_iter().map(|what| Fault {
        kind: "log",
        segment: 0,
        offset: 0,
        seq: 0,
        text: format!("the log of the trail: {what}"),
        what,
    }));
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
        witnessed: witnessed.time.map(when::utc),
        sound: faults.is_empty(),
        faults,
        notes: [found.notes, witnessed.notes].concat(),
    };
    if args.json {
        output::json(&report)?;
    } else {
        // Faults come last, and control characters from a forged trail are escaped.
        let notes = report
            .notes
            .iter()
            .map(|note| format!("note: {}\n", vouch_daemon::printable::printable(note.as_bytes())));
        let faults = report.faults.iter().map(|fault| {
            format!("{}\n", vouch_daemon::printable::printable(fault.text.as_bytes()))
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
    /// Until when the policy's witnesses saw no longer log.
    #[serde(skip_serializing_if = "Option::is_none")]
    witnessed: Option<String>,
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
    #[serde(skip)]
    text: String,
}

/// The evidence that the log of the trail gives.
#[derive(Default)]
struct Witnessed {
    /// The trail must have it.
    newest: Option<Seal>,
    time: Option<u64>,
    faults: Vec<String>,
    notes: Vec<String>,
}

impl Witnessed {
    fn fault(error: impl ToString) -> Self {
        Self { faults: vec![error.to_string()], ..Self::default() }
    }
}

/// Read before the trail: a seal is in the trail before it is in the log.
fn read_log(args: &Args, path: &Path) -> Outcome<Witnessed> {
    let policy = vouch_tree_client::read_policy(path)?;
    if !args.offline && WitnessTarget::of_policies([&policy]).is_empty() {
        return Err(Failure::input(path.display(), "has no witness with a URL")
            .cure("add the URLs; --offline asks no witness, and proves less"));
    }
    let (log, asked) = match open_log(args, &policy) {
        Ok(found) => found,
        Err(error @ LogFault::NoKey) => return Err(Failure::input("--policy", error)),
        Err(error) => return Ok(Witnessed::fault(error)),
    };
    let first = seals_from(&args.directory, 0, 1).at(args.directory.display())?;
    let trail = first.first().map(|seal| seal.trail);
    // The first key tells which of the trails is the right one.
    let read = || {
        let has_other = match trail.filter(|_| args.public.is_none()) {
            Some(trail) => log.has_other_trail(trail)?,
            None => false,
        };
        Ok::<_, TrailLogError>((log.newest_seal(trail)?, has_other))
    };
    let (newest, has_other) = match read() {
        Ok(found) => found,
        Err(error) => return Ok(Witnessed::fault(error)),
    };
    let mut witnessed = match asked {
        Some(asked) => confirmed(&policy, asked, args.witness_wait),
        None => cosigned_before(&log, args.witnessed_within),
    };
    if has_other {
        witnessed.faults.push(
            "it has seals of another trail too, whose place this one may have taken; give --public"
                .to_owned(),
        );
    }
    let newest = match newest {
        None => Err("it has no seal".to_owned()),
        Some(logged) => find_logged(&args.directory, trail, &logged)?,
    };
    witnessed.newest = newest.map_err(|what| witnessed.faults.push(what)).ok();
    Ok(witnessed)
}

/// The log, and the witnesses' answers about its head.
fn open_log(args: &Args, policy: &Policy) -> Result<(WitnessedLog, Option<Cosigning>), LogFault> {
    let path = args.log.clone().unwrap_or_else(|| args.directory.join(LOG_DIRECTORY));
    let mut attempts = 1..ATTEMPTS_MAX;
    loop {
        let log = WitnessedLog::open(&path, policy, when::now_s())?;
        if args.offline {
            return Ok((log, None));
        }
        let asked = ask_witnesses(&log, policy, args.witness_wait);
        let is_contradicted = asked.failures.iter().any(|failure| failure.objection.is_some());
        // A logger may have shown the witnesses a later head meanwhile.
        if !is_contradicted || log.is_newest()? || attempts.next().is_none() {
            return Ok((log, Some(asked)));
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

const ATTEMPTS_MAX: u32 = 3;

fn ask_witnesses(log: &WitnessedLog, policy: &Policy, wait: Duration) -> Cosigning {
    let head = log.head();
    // Any one of the policy's keys suffices, so not all have signed.
    let keys = policy.logs().iter().map(|log| log.key.clone()).filter(|key| {
        let signed = head.with_signatures_of(std::slice::from_ref(key));
        key.name() == head.checkpoint().origin && !signed.note().signatures().is_empty()
    });
    CosignRequest {
        targets: &WitnessTarget::of_policies([policy]),
        policies: std::slice::from_ref(policy),
        log_keys: &keys.collect::<Vec<_>>(),
        checkpoint: head,
        checkpoint_len_max: NOTE_LEN_MAX,
        wait,
        now: when::now_s,
    }
    .confirm()
}

fn confirmed(policy: &Policy, asked: Cosigning, wait: Duration) -> Witnessed {
    let mut found = Witnessed::default();
    for failure in asked.failures {
        let what = format!("witness {} ({}): {}", failure.name, failure.url, failure.why);
        match failure.objection {
            Some(_) => found.faults.push(what),
            None => found.notes.push(what),
        }
    }
    let now = when::now_s();
    match (asked.shortfall, policy.check(&asked.checkpoint, &[], now)) {
        (Some(why), _) => {
            found.faults.push(format!("it may have been cut back together with the trail: {why}"));
        }
        (None, Err(why)) => found.faults.push(why.to_string()),
        (None, Ok(belief)) => {
            found.time = belief.quorum_time;
            // Answers of earlier days could be replayed.
            let limit = wait.as_secs().saturating_add(CLOCK_SKEW_S_MAX);
            let old = belief.quorum_time.filter(|time| now.saturating_sub(*time) > limit);
            found.faults.extend(old.map(|time| {
                format!("the answers of its witnesses are of {}, and not of now", when::utc(time))
            }));
        }
    }
    found
}

fn cosigned_before(log: &WitnessedLog, limit: Duration) -> Witnessed {
    let time = log.belief.quorum_time;
    let age = |time: &u64| when::now_s().saturating_sub(*time);
    let old = time.filter(|time| age(time) > limit.as_secs()).map(|time| {
        format!(
            "its head was cosigned last at {}, so it may have been cut back since; run `vouch audit log`, or give --witnessed-within",
            when::utc(time)
        )
    });
    Witnessed { time, faults: old.into_iter().collect(), ..Witnessed::default() }
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
        let witnessed = match &self.witnessed {
            Some(time) => format!("; witnessed at {time}"),
            None => String::new(),
        };
        format!("{verdict}: {records} records in {segments} segments, {sealed}{witnessed}\n")
    }
}

/// The seal of the trail that the log has, or what is wrong.
fn find_logged(
    directory: &Path,
    trail: Option<[u8; 16]>,
    logged: &LoggedSeal,
) -> Outcome<Result<Seal, String>> {
    let epoch = logged.epoch();
    if trail.is_some_and(|trail| trail != logged.trail()) {
        return Ok(
            Err("its seals are of another trail, whose place this one has taken".to_owned()),
        );
    }
    let found = seals_from(directory, epoch, 1).at(directory.display())?;
    Ok(match found.into_iter().find(|seal| seal.epoch == epoch) {
        Some(seal) if LoggedSeal::of(&seal) == *logged => Ok(seal),
        Some(_) => Err(format!("seal {epoch} of the trail differs from the one that was logged")),
        None => Err(format!("it has seal {epoch}, and the trail ends before: it was cut back")),
    })
}
