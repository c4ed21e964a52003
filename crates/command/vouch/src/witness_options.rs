//! Options of commands that ask witnesses for cosignatures.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use vouch_log::evidence::LogEvidence;
use vouch_log::key::VerifierKey;
use vouch_log::policy::{Cosigned, Policy};
use vouch_log::revision::LogCert;
use vouch_tree::statement::OFFERED_LEN_MAX;
use vouch_tree_client::{CosignRequest, Cosigning, WitnessTarget};
use vouch_tree_publish::{CosignOutcome, LogPublisher, PendingLog};
use vouch_xdr::Xdr as _;

use crate::exit::{Cause, Code, Failure, Outcome};
use crate::when;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Witness options")]
pub(crate) struct WitnessArgs {
    /// Ask this witness (C2SP tlog-witness) to cosign the log; may be repeated. A URL alone is one
    /// more address of a witness whose key is in a policy; with the key in front, as in a line of a
    /// policy, it is one more witness that must cosign. The witnesses in the policy of log.cert are
    /// always asked.
    #[arg(long, value_name = "[KEY ]URL", value_parser = parse_witness)]
    witness: Vec<NamedWitness>,
    /// Ask the witnesses of this policy (C2SP tlog-policy), and demand its quorum beside that of
    /// log.cert.
    #[arg(long = "policy", value_name = "FILE")]
    witness_policy: Option<PathBuf>,
    /// Time limit for asking all witnesses. The command goes on half a second after the quorum.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = when::parse_duration)]
    witness_wait: Duration,
    /// If the quorum is missing after that time. The default is `hold` if log.cert demands a quorum,
    /// since readers believe nothing without it, and `publish` otherwise; for `vouch witness` it is
    /// `fail`.
    #[arg(long, value_name = "CHOICE")]
    too_few: Option<TooFew>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TooFew {
    /// Make the revision visible without a quorum.
    Publish,
    /// Keep the revision, invisible to readers, until `vouch witness` or a later publication finds a
    /// quorum.
    Hold,
    /// As hold, and end with exit code 10.
    Fail,
}

#[derive(Clone, Debug)]
struct NamedWitness {
    key: Option<VerifierKey>,
    url: String,
}

fn parse_witness(text: &str) -> Result<NamedWitness, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (key, url) = match *words {
        [url] => (None, url),
        [key, url] => (Some(VerifierKey::parse(key).map_err(|error| error.to_string())?), url),
        _ => return Err("write a URL, or a key and a URL with a blank between".to_owned()),
    };
    if !["http://", "https://"]
        .iter()
        .any(|scheme| url.len() > scheme.len() && url.starts_with(scheme))
    {
        return Err("write a URL that begins with http:// or https://".to_owned());
    }
    Ok(NamedWitness { key, url: url.trim_end_matches('/').to_owned() })
}

impl WitnessArgs {
    /// `None` if there is nobody to ask.
    pub(crate) fn asking(
        &self,
        cert: &LogCert,
        default: TooFew,
    ) -> Outcome<Option<WitnessRequests>> {
        let mut own = Vec::new();
        if let Some(path) = &self.witness_policy {
            own.push(vouch_tree_client::read_policy(path)?);
        }
        let named: Vec<_> = self.witness.iter().filter_map(NamedWitness::policy_line).collect();
        if !named.is_empty() {
            let names: String = (1..=named.len()).map(|number| format!(" {number}")).collect();
            let lines: String =
                (1..).zip(&named).map(|(n, line)| format!("witness {n} {line}\n")).collect();
            let text = format!("{lines}group all all{names}\nquorum all\n");
            let policy = Policy::parse(text.as_bytes());
            own.push(policy.map_err(|error| Failure::usage("--witness", error))?);
        }
        let urls = self.witness.iter().filter(|one| one.key.is_none()).map(|one| one.url.clone());
        let asking = WitnessRequests {
            own,
            urls: urls.collect(),
            wait: self.witness_wait,
            too_few: self.too_few.unwrap_or(default),
            result: Mutex::new(None),
        };
        if asking.targets(cert).is_empty() {
            let given = self.witness.first().map(|_| "--witness");
            return match given.or(self.witness_policy.as_ref().map(|_| "--policy")) {
                None => Ok(None),
                Some(what) => Err(Failure::usage(what, "there is no key of a witness with a URL")
                    .cure("give the key in front of the URL (--witness 'KEY URL'), or a --policy with both")),
            };
        }
        if let (Some(url), true) =
            (asking.urls.first(), asking.policies(cert).all(|policy| policy.witnesses().is_empty()))
        {
            return Err(Failure::usage(format_args!("--witness {url}"), "its key is not known")
                .cure(
                    "give the key in front of the URL (--witness 'KEY URL'), or a --policy with it",
                ));
        }
        Ok(Some(asking))
    }

    /// For publications: the log's keys ask witnesses, if there are any.
    pub(crate) fn attach(&self, log: Option<LogPublisher>) -> Outcome<LogAndWitnesses> {
        let Some(log) = log else {
            return match self.witness.is_empty() && self.witness_policy.is_none() {
                true => Ok((None, None)),
                false => Err(Failure::usage(
                    "--witness",
                    "the key directory has no log.key, so there is no log to cosign",
                )
                .cure("make one with `vouch certify`")),
            };
        };
        let default = log.cert.policy().map_or(TooFew::Publish, |_| TooFew::Hold);
        let Some(asking) = self.asking(&log.cert, default)?.map(Arc::new) else {
            return Ok((Some(Arc::new(log)), None));
        };
        let ask = asking.clone();
        let cosign = Some(Box::new(move |pending: &mut PendingLog<'_>| ask.ask(pending)) as _);
        Ok((Some(Arc::new(LogPublisher { cosign, ..log })), Some(asking)))
    }
}

impl NamedWitness {
    fn policy_line(&self) -> Option<String> {
        self.key.as_ref().map(|key| format!("{} {}", key.to_text(), self.url))
    }
}

/// One line for each witness that has not cosigned.
pub(crate) fn warn_of_failures(cosigning: &Cosigning) {
    for failure in &cosigning.failures {
        tracing::warn!(
            witness = failure.name,
            url = failure.url,
            "no cosignature: {}",
            failure.why
        );
    }
}

/// The log that a publication extends, and the witnesses that it asks.
pub(crate) type LogAndWitnesses = (Option<Arc<LogPublisher>>, Option<Arc<WitnessRequests>>);

/// The witnesses that a command asks, and their last answers.
pub(crate) struct WitnessRequests {
    /// Of the command line.
    own: Vec<Policy>,
    /// Of witnesses whose keys are in a policy.
    urls: Vec<String>,
    wait: Duration,
    too_few: TooFew,
    result: Mutex<Option<Cosigning>>,
}

impl WitnessRequests {
    fn policies<'a>(&'a self, cert: &'a LogCert) -> impl Iterator<Item = &'a Policy> {
        self.own.iter().chain(cert.policy().map(|demanded| demanded.policy()))
    }

    fn targets(&self, cert: &LogCert) -> Vec<WitnessTarget> {
        let mut targets = WitnessTarget::of_policies(self.policies(cert));
        let all = self.policies(cert).flat_map(Policy::witnesses);
        let keys: Vec<_> = all.map(|witness| witness.key.clone()).collect();
        for url in &self.urls {
            if !keys.is_empty() && targets.iter().all(|target| target.url != *url) {
                targets.push(WitnessTarget {
                    name: url.clone(),
                    url: url.clone(),
                    keys: keys.clone(),
                });
            }
        }
        targets
    }

    /// Logs a line for each witness that has not cosigned.
    pub(crate) fn ask(&self, pending: &mut PendingLog<'_>) -> CosignOutcome {
        let evidence = pending.evidence().clone();
        let policies: Vec<_> = self.policies(&evidence.cert).cloned().collect();
        let checkpoint = &evidence.proof.checkpoint;
        let rest = evidence.to_xdr().len() - checkpoint.to_text().len();
        let cosigning = CosignRequest {
            targets: &self.targets(&evidence.cert),
            policies: &policies,
            log_keys: &evidence.cert.keys().all(),
            checkpoint,
            // The end of the text is padded to four bytes.
            checkpoint_len_max: OFFERED_LEN_MAX.saturating_sub(rest + 3),
            wait: self.wait,
            now: when::now_s,
        }
        .send(|old| pending.consistency_proof(old));
        warn_of_failures(&cosigning);
        let checkpoint = cosigning.checkpoint.clone();
        let is_visible = cosigning.shortfall.is_none() || self.too_few == TooFew::Publish;
        *self.result.lock() = Some(cosigning);
        match is_visible {
            true => CosignOutcome::Publish(checkpoint),
            false => CosignOutcome::Hold(checkpoint),
        }
    }

    /// The answers about the newest revision.
    pub(crate) fn result(&self) -> Option<Cosigning> {
        self.result.lock().clone()
    }

    /// Witnesses and times, the latest first, and the earliest time of all quorums.
    pub(crate) fn cosigned(&self, evidence: &LogEvidence) -> (Vec<(String, u64)>, Option<u64>) {
        let (log_keys, now) = (evidence.cert.keys().all(), when::now_s());
        let checkpoint = &evidence.proof.checkpoint;
        let (mut found, mut quorums) = (Vec::new(), Vec::new());
        for policy in self.policies(&evidence.cert) {
            let name = |one: &Cosigned| policy.witnesses()[one.witness].name.clone();
            let cosigned = policy.cosigned(checkpoint, now);
            found.extend(cosigned.iter().map(|one| (name(one), one.time)));
            quorums.push(policy.check(checkpoint, &log_keys, now));
        }
        found.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        found.dedup();
        let beliefs = quorums.into_iter().collect::<Result<Vec<_>, _>>();
        let times = beliefs.map(|found| found.iter().filter_map(|one| one.quorum_time).min());
        (found, times.ok().flatten())
    }

    /// After the output of the command.
    pub(crate) fn check(&self, revision: u64) -> Outcome {
        let shortfall = self.result().and_then(|result| result.shortfall);
        match (self.too_few, shortfall) {
            (TooFew::Fail, Some(why)) => Err(too_few(revision, &why)),
            _ => Ok(()),
        }
    }
}

pub(crate) fn too_few(revision: u64, why: &str) -> Failure {
    let cause = Cause::Error(Code::Unwitnessed, format!("too few cosignatures: {why}").into());
    Failure::new(format_args!("revision {revision}"), cause)
        .cure("`vouch witness` asks the witnesses again")
}

/// For the summary of a publication.
pub(crate) fn visibility(is_visible: bool) -> &'static str {
    if is_visible { "" } else { "; waits for witnesses, and readers do not see it yet" }
}
