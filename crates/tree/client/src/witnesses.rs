//! Asks witnesses to cosign a checkpoint (C2SP tlog-witness), all at once and within a bounded time;
//! reads the newest ones that they show.
//!
//! Makes a runtime of its own for the requests: proofs come from files, which may block.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use reqwest::{Client, Response};
use tokio::runtime::Runtime;
use vouch_log::checkpoint::{CheckpointError, SignedCheckpoint};
use vouch_log::key::VerifierKey;
use vouch_log::merkle::{Hash, PROOF_LEN_MAX};
use vouch_log::note::{NOTE_LEN_MAX, NoteError, NoteSignature};
use vouch_log::policy::Policy;
use vouch_log::witness::{
    ADD_CHECKPOINT_PATH, AddCheckpoint, REPLY_LEN_MAX, Reply, ReplyError, monitor_path,
    verify_cosignatures,
};

use crate::http::{chain, plain_client};

/// After the quorum, witnesses that have not answered get as much time again, within these bounds.
const GRACE_MIN: Duration = Duration::from_millis(100);
const GRACE_MAX: Duration = Duration::from_millis(500);

/// Between attempts at a busy witness: doubled each time.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(250);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(10);

/// Two publishers can make each other's sizes stale for a while.
const CONFLICTS_MAX: u32 = 4;

/// A witness to ask.
#[derive(Debug, Clone, PartialEq)]
pub struct WitnessTarget {
    /// For messages.
    pub name: String,
    /// Submission prefix.
    pub url: String,
    /// Cosignatures of other keys are ignored.
    pub keys: Vec<VerifierKey>,
}

impl WitnessTarget {
    /// The witnesses of the policies that have a URL. Keys at one URL are one witness.
    pub fn of_policies<'p>(policies: impl IntoIterator<Item = &'p Policy>) -> Vec<Self> {
        let mut targets: Vec<Self> = Vec::new();
        for witness in policies.into_iter().flat_map(Policy::witnesses) {
            let Some(url) = witness.url.as_deref().map(|url| url.trim_end_matches('/')) else {
                continue;
            };
            match targets.iter_mut().find(|target| target.url == url) {
                Some(target) if target.keys.contains(&witness.key) => {}
                Some(target) => target.keys.push(witness.key.clone()),
                None => targets.push(Self {
                    name: witness.name.clone(),
                    url: url.to_owned(),
                    keys: vec![witness.key.clone()],
                }),
            }
        }
        targets
    }
}

/// The cause why a witness has not cosigned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WitnessFailure {
    /// [`WitnessTarget::name`].
    pub name: String,
    /// [`WitnessTarget::url`].
    pub url: String,
    /// In words.
    pub why: String,
    /// What it says against the head, if anything. Not signed.
    pub objection: Option<Objection>,
}

/// What a witness can say against a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Objection {
    /// It has cosigned this many entries, more than the head has.
    LongerLog(u64),
    /// It has cosigned a head that this one does not continue.
    OtherHistory,
}

/// All answers.
#[derive(Debug, Clone)]
pub struct Cosigning {
    /// With the cosignatures so far; after [`CosignRequest::confirm`], with those of this request
    /// alone.
    pub checkpoint: SignedCheckpoint,
    /// `None` if all policies hold, else what is missing.
    pub shortfall: Option<String>,
    /// In the order of the targets.
    pub failures: Vec<WitnessFailure>,
}

/// A request for cosignatures of one checkpoint.
#[derive(Debug)]
pub struct CosignRequest<'a> {
    /// Asked all at once.
    pub targets: &'a [WitnessTarget],
    /// The request has its quorum when all of them hold.
    pub policies: &'a [Policy],
    /// Keys of the log that witnesses know.
    pub log_keys: &'a [VerifierKey],
    /// Signed by the log.
    pub checkpoint: &'a SignedCheckpoint,
    /// The checkpoint does not grow beyond this, in bytes.
    pub checkpoint_len_max: usize,
    /// Limit of the whole.
    pub wait: Duration,
    /// Seconds since 1970.
    pub now: fn() -> u64,
}

impl CosignRequest<'_> {
    /// Returns when all have answered, soon after the quorum, or when the time is over. `proof`: of
    /// consistency, from a size below the checkpoint's.
    pub fn send<E: std::error::Error>(
        &self,
        mut proof: impl FnMut(u64) -> Result<Vec<Hash>, E>,
    ) -> Cosigning {
        self.run(false, &mut |old| proof(old).map_err(|error| error.to_string()))
    }

    /// For auditors: asks all witnesses to cosign the head again, which they do only if they have
    /// cosigned no longer log. Sends no proof, so that no witness learns of a head that it has not
    /// seen. Waits for all.
    pub fn confirm(&self) -> Cosigning {
        self.run(true, &mut |_| Err("no proof is sent".to_owned()))
    }

    fn run(&self, only_confirms: bool, proof: &mut MakeProof<'_>) -> Cosigning {
        let fresh = self.checkpoint.with_signatures_of(self.log_keys);
        let mut run = Run {
            request: self,
            only_confirms,
            checkpoint: if only_confirms { fresh.clone() } else { self.checkpoint.clone() },
            fresh,
            errors: vec![Some(String::new()); self.targets.len()],
            objections: vec![None; self.targets.len()],
        };
        let begun = Instant::now();
        match Network::start(self.wait) {
            Ok(network) => run.ask_all(&network, proof),
            Err(why) => run.errors.fill(Some(why)),
        }
        let late = format!("no answer within {:.1} s", begun.elapsed().as_secs_f32());
        let answers = self.targets.iter().zip(run.errors).zip(run.objections);
        let failures = answers.filter_map(|((target, why), objection)| {
            let (name, url) = (target.name.clone(), target.url.clone());
            let why = why.map(|why| if why.is_empty() { late.clone() } else { why });
            why.map(|why| WitnessFailure { name, url, why, objection })
        });
        Cosigning {
            failures: failures.collect(),
            shortfall: self.shortfall_of(&run.checkpoint),
            checkpoint: run.checkpoint,
        }
    }
}

impl CosignRequest<'_> {
    fn shortfall_of(&self, checkpoint: &SignedCheckpoint) -> Option<String> {
        let now = (self.now)();
        let check = |policy: &Policy| policy.check(checkpoint, self.log_keys, now).err();
        self.policies.iter().find_map(check).map(|error| error.to_string())
    }
}

struct Run<'a> {
    request: &'a CosignRequest<'a>,
    only_confirms: bool,
    checkpoint: SignedCheckpoint,
    /// With the cosignatures of this run alone: an earlier quorum makes no witness superfluous.
    fresh: SignedCheckpoint,
    /// One for each target; empty before the first answer.
    errors: Vec<Option<String>>,
    /// See [`WitnessFailure::objection`].
    objections: Vec<Option<Objection>>,
}

type MakeProof<'p> = dyn FnMut(u64) -> Result<Vec<Hash>, String> + 'p;

impl Run<'_> {
    fn ask_all(&mut self, network: &Network, proof: &mut MakeProof<'_>) {
        let begun = Instant::now();
        let mut until = begun + self.request.wait;
        let mut proofs = BTreeMap::new();
        let (mut waiting, mut has_quorum) = (vec![false; self.errors.len()], false);
        for (number, is_waiting) in waiting.iter_mut().enumerate() {
            // Most witnesses have seen the head before; 409 corrects a wrong guess.
            let is_new = !self.only_confirms && !self.has_cosigned(number);
            let guess = self.size() - u64::from(is_new).min(self.size());
            let attempt = Attempt { number, old_size: guess, ..Attempt::default() };
            *is_waiting = self.ask(network, attempt, &mut proofs, proof);
        }
        while self.is_worth_waiting(&waiting, has_quorum) {
            let left = until.saturating_duration_since(Instant::now());
            let (attempt, answer) = match network.answers.recv_timeout(left) {
                Ok(answered) => answered,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            };
            let number = attempt.number;
            match self.take(&attempt, answer) {
                Next::Done => {
                    self.errors[number] = None;
                    waiting[number] = false;
                }
                Next::Failed(why) => {
                    self.errors[number] = Some(why);
                    waiting[number] = false;
                }
                Next::Again(next, why) => {
                    if let Some(why) = why {
                        self.errors[number] = Some(why);
                    }
                    waiting[number] = self.ask(network, next, &mut proofs, proof);
                }
            }
            if !has_quorum && self.request.shortfall_of(&self.fresh).is_none() {
                has_quorum = true;
                let grace = begun.elapsed().clamp(GRACE_MIN, GRACE_MAX);
                if !self.only_confirms {
                    until = until.min(Instant::now() + grace);
                }
            }
        }
    }

    /// After the quorum, a witness that has failed is not waited for.
    fn is_worth_waiting(&self, waiting: &[bool], has_quorum: bool) -> bool {
        let has_failed = |error: &Option<String>| error.as_ref().is_some_and(|why| !why.is_empty());
        waiting
            .iter()
            .zip(&self.errors)
            .any(|(is, error)| *is && !(has_quorum && has_failed(error)))
    }

    fn size(&self) -> u64 {
        self.request.checkpoint.checkpoint().size
    }

    fn has_cosigned(&self, number: usize) -> bool {
        let keys = &self.request.targets[number].keys;
        !self.checkpoint.with_signatures_of(keys).note().signatures().is_empty()
    }

    /// False if the witness cannot be asked.
    fn ask(
        &mut self,
        network: &Network,
        attempt: Attempt,
        proofs: &mut BTreeMap<u64, Vec<Hash>>,
        make: &mut MakeProof<'_>,
    ) -> bool {
        let old = attempt.old_size;
        let size = self.size();
        let proof = match proofs.entry(old) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let made = if old == 0 || old == size { Ok(Vec::new()) } else { make(old) };
                match made {
                    Ok(hashes) if hashes.len() <= PROOF_LEN_MAX => place.insert(hashes),
                    Ok(_) => unreachable!("a log has fewer levels than a proof may have hashes"),
                    Err(why) => {
                        self.errors[attempt.number] =
                            Some(format!("the proof from {old} entries cannot be made: {why}"));
                        return false;
                    }
                }
            }
        };
        let (checkpoint, keys) = (self.request.checkpoint, self.request.log_keys);
        let body = AddCheckpoint::new(old, proof.clone(), checkpoint, keys).to_text();
        network.post(&self.request.targets[attempt.number].url, attempt, body);
        true
    }

    fn take(&mut self, attempt: &Attempt, answer: Result<Reply, Fault>) -> Next {
        let busy = |why: String| {
            let pause = (attempt.pause * 2).clamp(RETRY_PAUSE_MIN, RETRY_PAUSE_MAX);
            Next::Again(Attempt { pause, ..*attempt }, Some(why))
        };
        let size = self.size();
        let reply = match answer {
            Ok(reply) => reply,
            Err(Fault::Passing(why)) => return busy(why),
            Err(Fault::Lasting(why)) => return Next::Failed(why),
        };
        let origin = || self.request.checkpoint.checkpoint().origin.clone();
        self.objections[attempt.number] = match reply {
            Reply::Conflict { size: old } if old > size => Some(Objection::LongerLog(old)),
            Reply::ProofRefused => Some(Objection::OtherHistory),
            _ => None,
        };
        Next::Failed(match reply {
            Reply::Cosignatures(found) => {
                let keys = &self.request.targets[attempt.number].keys;
                let added = verify_cosignatures(self.request.checkpoint, found, keys)
                    .map_err(|error| match error {
                        ReplyError::Note(NoteError::Unsigned) => {
                            "its reply has no cosignature of the witness's key".to_owned()
                        }
                        error => error.to_string(),
                    })
                    .and_then(|good| good.into_iter().try_for_each(|one| self.add(one)));
                match added {
                    Ok(()) => return Next::Done,
                    Err(why) => why,
                }
            }
            Reply::Conflict { size: old } if old > size => format!(
                "it has cosigned {old} entries, and this log has {size}: the log was restored from an older copy, or its key is used elsewhere"
            ),
            Reply::Conflict { size: old } if self.only_confirms => {
                format!("it has cosigned {old} of the {size} entries so far")
            }
            Reply::Conflict { .. } if attempt.conflicts >= CONFLICTS_MAX => {
                "its size changed with each attempt".to_owned()
            }
            Reply::Conflict { size: old } => {
                let conflicts = attempt.conflicts + 1;
                return Next::Again(Attempt { old_size: old, conflicts, ..*attempt }, None);
            }
            Reply::UnknownLog => {
                format!("it does not know the log {}; register it with its operator", origin())
            }
            Reply::UnknownKey => format!(
                "it does not know the key of the log {}; send log.pub to its operator",
                origin()
            ),
            Reply::ProofRefused => {
                format!("it has seen another history of the log {}", origin())
            }
            Reply::BadRequest => "it cannot read the request (status 400)".to_owned(),
            Reply::Busy(status) => return busy(format!("it answers with status {status}")),
            Reply::Unexpected(status) => {
                format!("it answers with status {status}, which is none of tlog-witness")
            }
        })
    }

    fn add(&mut self, cosignature: NoteSignature) -> Result<(), String> {
        let mut next = self.checkpoint.clone();
        next.note_mut().add(cosignature.clone()).map_err(|error| error.to_string())?;
        if next.to_text().len() > self.request.checkpoint_len_max {
            return Err("its cosignature does not fit beside the others".to_owned());
        }
        self.checkpoint = next;
        self.fresh.note_mut().add(cosignature).map_err(|error| error.to_string())?;
        Ok(())
    }
}

enum Next {
    Done,
    Failed(String),
    /// With the cause, if it is a failure.
    Again(Attempt, Option<String>),
}

#[derive(Debug, Clone, Copy, Default)]
struct Attempt {
    /// The target.
    number: usize,
    old_size: u64,
    conflicts: u32,
    /// Before the request.
    pause: Duration,
}

enum Fault {
    /// Another attempt may help.
    Passing(String),
    Lasting(String),
}

struct Network {
    runtime: Option<Runtime>,
    client: Client,
    answer: Sender<(Attempt, Result<Reply, Fault>)>,
    answers: Receiver<(Attempt, Result<Reply, Fault>)>,
}

impl Network {
    fn start(wait: Duration) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("witnesses")
            .enable_all()
            .build()
            .map_err(|error| format!("cannot start threads: {error}"))?;
        let (answer, answers) = channel();
        Ok(Self { client: plain_client(wait)?, runtime: Some(runtime), answer, answers })
    }

    fn post(&self, url: &str, attempt: Attempt, body: String) {
        let url = format!("{}{ADD_CHECKPOINT_PATH}", url.trim_end_matches('/'));
        let (client, answer) = (self.client.clone(), self.answer.clone());
        let Some(runtime) = &self.runtime else { return };
        runtime.spawn(async move {
            tokio::time::sleep(attempt.pause).await;
            let reply = post(&client, &url, body).await;
            let _ = answer.send((attempt, reply));
        });
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Requests in flight end here. The caller may be within another runtime.
            runtime.shutdown_background();
        }
    }
}

async fn post(client: &Client, url: &str, body: String) -> Result<Reply, Fault> {
    let failed = |error: reqwest::Error| match error.is_builder() {
        true => Fault::Lasting(format!("{url} is no http:// or https:// URL")),
        false => Fault::Passing(chain(&error)),
    };
    let response = client.post(url).body(body).send().await.map_err(failed)?;
    let status = response.status().as_u16();
    let content_type = response.headers().get(reqwest::header::CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok()).unwrap_or("").to_owned();
    let bytes = read_body(response, REPLY_LEN_MAX).await.map_err(failed)?;
    let too_long = || Fault::Lasting(format!("its answer is longer than {REPLY_LEN_MAX} bytes"));
    let bytes = bytes.ok_or_else(too_long)?;
    Reply::parse(status, &content_type, &bytes).map_err(|error| Fault::Lasting(error.to_string()))
}

/// `None` if it is longer.
async fn read_body(mut response: Response, len_max: usize) -> reqwest::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if bytes.len() + chunk.len() > len_max {
            return Ok(None);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(Some(bytes))
}

impl WitnessTarget {
    /// For monitors: the newest head that the witness shows (C2SP tlog-witness, Monitor Retrieval
    /// Mechanism), signed by a key of the log and cosigned by the witness. It may be an hour old.
    /// `None`: the witness shows no heads, or has seen none.
    pub async fn shown_head(
        &self,
        origin: &str,
        log_keys: &[VerifierKey],
        wait: Duration,
    ) -> Result<Option<SignedCheckpoint>, ShownHeadError> {
        let url = format!("{}{}", self.url, monitor_path(origin));
        let client = plain_client(wait).map_err(ShownHeadError::Unreachable)?;
        let Ok(fetched) = tokio::time::timeout(wait, get(&client, &url)).await else {
            return Err(ShownHeadError::Unreachable("no answer in time".to_owned()));
        };
        let Some(bytes) = fetched? else { return Ok(None) };
        let head = SignedCheckpoint::parse(&bytes)?;
        if head.checkpoint().origin != origin {
            return Err(ShownHeadError::OtherOrigin(head.checkpoint().origin.clone()));
        }
        let keys: Vec<_> = log_keys.iter().chain(&self.keys).collect();
        let verified = head.note().verify(&keys)?;
        let is_signed = |by: &[VerifierKey]| verified.iter().any(|found| by.contains(found.key));
        match (is_signed(log_keys), is_signed(&self.keys)) {
            (true, true) => Ok(Some(head)),
            (false, _) => Err(ShownHeadError::Unsigned),
            (true, false) => Err(ShownHeadError::NotCosigned),
        }
    }
}

/// The cause why a witness shows no head that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShownHeadError {
    /// No complete answer.
    #[error("{0}")]
    Unreachable(String),
    /// A status other than those of tlog-witness.
    #[error("it answers with status {0}")]
    Status(u16),
    /// Longer than a note may be.
    #[error("its head is longer than {NOTE_LEN_MAX} bytes")]
    TooLong,
    /// No checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// Signatures that do not verify.
    #[error(transparent)]
    Note(#[from] NoteError),
    /// The head of another log.
    #[error("it shows a head of {0:?}")]
    OtherOrigin(String),
    /// None of the log's keys has signed it.
    #[error("the head that it shows is not signed by the log's keys")]
    Unsigned,
    /// The witness itself has not cosigned it.
    #[error("the head that it shows has not its cosignature")]
    NotCosigned,
}

async fn get(client: &Client, url: &str) -> Result<Option<Vec<u8>>, ShownHeadError> {
    let unreachable = |error: reqwest::Error| ShownHeadError::Unreachable(chain(&error));
    let response = client.get(url).send().await.map_err(unreachable)?;
    match response.status().as_u16() {
        200 => {}
        // 405: a server with the submission prefix alone.
        404 | 405 => return Ok(None),
        status => return Err(ShownHeadError::Status(status)),
    }
    let bytes = read_body(response, NOTE_LEN_MAX).await.map_err(unreachable)?;
    bytes.ok_or(ShownHeadError::TooLong).map(Some)
}
