use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use vouch_audit_pipeline::trail_log::{LOG_DIRECTORY, TrailLog};
use vouch_log::policy::Policy;
use vouch_log::trail::{TRAIL_KEY_LEN_MAX, TrailSigners};
use vouch_tree_client::{CosignRequest, WitnessTarget};

use super::directory::require_trail;
use crate::cli::Global;
use crate::exit::{Cause, Code, Failure, Outcome};
use crate::key_directory as keys;
use crate::{interrupt, output, when};

pub(super) const LOG_KEY: &str = "log.key";
pub(super) const LOG_PUBLIC: &str = "log.pub";

/// Log a trail's seals in a transparency log, and have witnesses cosign it.
///
/// The log lies beside the trail, as tlog-tiles of C2SP. Witnesses see its head alone: a number and
/// a hash. With their cosignatures, `vouch audit verify --policy` finds a trail that was cut back or
/// replaced as a whole, also by somebody with all keys of this machine.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch audit log --policy witnesses.policy /var/lib/vouch/audit\n  \
                  vouch audit log --once /var/lib/vouch/audit        log new seals, without witnesses\n\n\
                  With --once, the exit code is 10 if the cosignatures do not suffice for the policy."
)]
pub(crate) struct Args {
    /// Directories of the trails: one, or several that share a log.
    #[arg(value_name = "DIR", required = true)]
    directories: Vec<PathBuf>,
    /// Directory of the log, if not `log` in the first trail's directory.
    #[arg(long, value_name = "DIR")]
    log: Option<PathBuf>,
    /// File of the log's key, if not `log.key` in the first trail's directory.
    #[arg(long, value_name = "FILE")]
    log_key: Option<PathBuf>,
    /// Let a log that has begun get a further trail, which shares it from then on.
    #[arg(long)]
    add_trail: bool,
    /// Ask the witnesses of this policy (C2SP tlog-policy) that have a URL.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Time limit for asking all witnesses.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = when::parse_duration)]
    witness_wait: Duration,
    /// Time between two looks at the trails. Each also renews the cosignatures' times, which show
    /// that the log was not cut back until then.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = when::parse_duration)]
    interval: Duration,
    /// Log the seals that are there, then end.
    #[arg(long, conflicts_with = "interval")]
    once: bool,
    /// With --once, print the result as JSON.
    #[arg(long, requires = "once")]
    json: bool,
}

impl Args {
    pub(crate) fn is_daemon(&self) -> bool {
        !self.once
    }
}

#[derive(Serialize)]
struct Row {
    new_entries: u64,
    entries: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<String>,
}

pub(crate) fn run(args: Args, _: &Global) -> Outcome {
    let first = &args.directories[0];
    args.directories.iter().try_for_each(|directory| require_trail(directory))?;
    let log_path = args.log.clone().unwrap_or_else(|| first.join(LOG_DIRECTORY));
    let key_path = args.log_key.clone().unwrap_or_else(|| first.join(LOG_KEY));
    let signers = read_signers(&key_path)?;
    let policy = args.policy.as_deref().map(vouch_tree_client::read_policy).transpose()?;
    let mut log = TrailLog::open(&log_path, signers, &args.directories, args.add_trail)?;
    if args.once {
        let row = look(&args, &mut log, policy.as_ref())?;
        match args.json {
            true => output::json_line(&row)?,
            false => output::text(&format!(
                "{} new seals, {} entries in the log\n",
                row.new_entries, row.entries
            ))?,
        }
        return match row.missing {
            None => Ok(()),
            Some(why) => {
                let why = format!("too few cosignatures: {why}");
                Err(Failure::new(log_path.display(), Cause::Error(Code::Unwitnessed, why.into())))
            }
        };
    }
    let (stop, stopped) = std::sync::mpsc::channel();
    let _taken = interrupt::stop_gracefully(move || {
        let _ = stop.send(());
    });
    loop {
        match look(&args, &mut log, policy.as_ref()) {
            Ok(Row { missing: Some(why), .. }) => tracing::warn!("too few cosignatures: {why}"),
            Ok(_) => {}
            // A trail that is being removed or created, a full disk: the next look may succeed.
            Err(failure) => tracing::error!("the log of trails is not written: {failure}"),
        }
        if stopped.recv_timeout(args.interval).is_ok() {
            return Ok(());
        }
    }
}

fn look(args: &Args, log: &mut TrailLog, policy: Option<&Policy>) -> Outcome<Row> {
    let new_entries = log.append(when::now_s())?;
    let Some(head) = log.head()? else {
        return Ok(Row { new_entries, entries: 0, missing: None });
    };
    let entries = head.checkpoint().size;
    let Some(policy) = policy else { return Ok(Row { new_entries, entries, missing: None }) };
    let targets = WitnessTarget::of_policies([policy]);
    // Witnesses know the log by one key.
    let keys = log.signers().keys();
    let cosigning = CosignRequest {
        targets: &targets,
        policies: std::slice::from_ref(policy),
        log_keys: &keys,
        checkpoint: &head,
        checkpoint_len_max: vouch_log::note::NOTE_LEN_MAX,
        wait: args.witness_wait,
        now: when::now_s,
    }
    .send(|old| log.consistency_proof(&head, old));
    crate::witness_options::warn_of_failures(&cosigning);
    log.set_cosigned(&cosigning.checkpoint)?;
    Ok(Row { new_entries, entries, missing: cosigning.shortfall })
}

fn read_signers(path: &Path) -> Outcome<TrailSigners> {
    if !path.exists() {
        return Err(Failure::not_found(path.display(), "there is no key of the trail's log")
            .cure("make one with `vouch audit keygen --log`"));
    }
    keys::refuse_exposed(path)?;
    let text = keys::read_limited(path, TRAIL_KEY_LEN_MAX)?;
    let signers = std::str::from_utf8(&text).ok().and_then(TrailSigners::parse);
    signers.ok_or_else(|| Failure::input(path.display(), "is no key of a log of trails"))
}
