//! Tickets of Kerberos for the users of pods: kubelet gives the driver a token of the pod's service account,
//! and `vouch jobs agent` of the node shows it to the broker.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Deserialize;
use tonic::Status;
use vouch_jobs::names::JobId;
use vouch_jobs::pods::{POD_PREFIX, PodToken};
use vouch_jobs::wire::{Reply, Request};
use vouch_jobs::{Error, SERVICE, ask_local};

use crate::attributes::{ExportMount, invalid};
use crate::csi_v1::NodePublishVolumeRequest;
use crate::locks::Locks;
use crate::records::{digest, read, write_durably};

/// A pod's token for one of its volumes.
pub(crate) struct Shown {
    pub(crate) job: JobId,
    pub(crate) token: String,
    /// rpc.gssd does not mount the volume.
    pub(crate) owns_cache: bool,
}

struct LastToken {
    digest: String,
    at: Instant,
    cache: Option<PathBuf>,
}

/// Of one audience.
#[derive(Deserialize)]
struct Token {
    token: String,
}

impl Shown {
    /// `None` for an export without tickets of its pod.
    pub(crate) fn of_request(
        request: &NodePublishVolumeRequest,
        target: &Path,
        export: &ExportMount,
    ) -> Result<Option<Self>, Status> {
        if !export.has_pod_tickets {
            return Ok(None);
        }
        let context = &request.volume_context;
        let uid = context.get("csi.storage.k8s.io/pod.uid").ok_or_else(|| {
            invalid("podTickets: the CSIDriver object needs podInfoOnMount: true")
        })?;
        // Kubernetes 1.35 can put it among the secrets.
        let tokens = [&request.secrets, context].into_iter().find_map(|map| map.get(TOKENS));
        let tokens: HashMap<String, Token> =
            tokens.and_then(|tokens| serde_json::from_str(tokens).ok()).unwrap_or_default();
        let token = tokens.into_iter().find(|(audience, _)| audience == SERVICE);
        let Some((_, Token { token })) = token else {
            return Err(invalid(&format!(
                "podTickets: the CSIDriver object needs tokenRequests with the audience {SERVICE}"
            )));
        };
        let volume = &digest(target.as_os_str().as_encoded_bytes())[..16];
        let job = JobId::parse(&format!("{POD_PREFIX}{uid}.{volume}"))
            .map_err(|error| invalid(&format!("podTickets: {error}")))?;
        Ok(Some(Self { job, token, owns_cache: export.is_fuse }))
    }
}

pub(crate) struct PodTickets {
    agent: PathBuf,
    /// kubelet calls again each minute with the same token.
    shown: Mutex<HashMap<JobId, LastToken>>,
    /// Jobs whose end the agent has not heard yet, also for the next driver.
    unended: Mutex<BTreeSet<JobId>>,
    /// Held while the agent hears of a job's end: a pod that begins again must not lose its tickets to
    /// its earlier end.
    ending: Locks,
    file: PathBuf,
}

impl PodTickets {
    /// `file` keeps ends of which the agent has not heard.
    pub(crate) fn open(agent: PathBuf, file: PathBuf) -> io::Result<Self> {
        let unended = if file.exists() { read(&file)? } else { BTreeSet::new() };
        Ok(Self {
            agent,
            shown: Mutex::default(),
            unended: Mutex::new(unended),
            ending: Locks::default(),
            file,
        })
    }

    /// Returns when the node has the tickets. A pod with a cache of its own gets the cache.
    pub(crate) fn show(
        &self,
        Shown { job, token, owns_cache }: Shown,
    ) -> Result<Option<PathBuf>, Status> {
        let digest = digest(token.as_bytes());
        // The agent may have lost the job meanwhile.
        let is_recent =
            |last: &&LastToken| last.digest == digest && last.at.elapsed() < SHOW_INTERVAL;
        if let Some(last) = self.shown.lock().get(&job).filter(is_recent) {
            return Ok(last.cache.clone());
        }
        {
            let _ending = self.ending.lock_blocking(job.as_str());
            self.forget(&job);
        }
        let request =
            Request::EnterPod { job: job.clone(), token: PodToken::new(token), owns_cache };
        let reply = ask_local(&self.agent, &request).map_err(|error| match error {
            Error::Refused(why) => Status::permission_denied(format!("podTickets: {why}")),
            Error::Io { path, source } => Status::unavailable(format!(
                "podTickets: {}: {source}; does `vouch jobs agent` run on this node?",
                path.display()
            )),
            other => Status::unavailable(format!("podTickets: {other}")),
        })?;
        let cache = match reply {
            Reply::Cache { path } => Some(path),
            _ if owns_cache => {
                return Err(Status::unavailable(
                    "podTickets: vouch jobs agent on this node is too old for client: fuse",
                ));
            }
            _ => None,
        };
        let last = LastToken { digest, at: Instant::now(), cache: cache.clone() };
        self.shown.lock().insert(job, last);
        Ok(cache)
    }

    /// A pod must be able to end without its agent, which is told later.
    pub(crate) fn end(&self, job: &JobId) {
        self.shown.lock().remove(job);
        let mut unended = self.unended.lock();
        unended.insert(job.clone());
        self.keep(&unended);
        drop(unended);
        if let Err(error) = self.leave(job) {
            tracing::error!(%job, "{error}; the agent is told later that the pod has ended");
        }
    }

    /// Tells the agent of ends. Call this at intervals.
    pub(crate) fn retry(&self) -> Result<(), Error> {
        let unended = self.unended.lock().clone();
        unended.iter().map(|job| self.leave(job)).fold(Ok(()), Result::and)
    }

    fn leave(&self, job: &JobId) -> Result<(), Error> {
        let _ending = self.ending.lock_blocking(job.as_str());
        if self.unended.lock().contains(job) {
            ask_local(&self.agent, &Request::Leave { job: job.clone() })?;
            self.forget(job);
        }
        Ok(())
    }

    fn forget(&self, job: &JobId) {
        let mut unended = self.unended.lock();
        if unended.remove(job) {
            self.keep(&unended);
        }
    }

    fn keep(&self, unended: &BTreeSet<JobId>) {
        if let Err(error) = write_durably(&self.file, unended) {
            tracing::error!("{}: {error}", self.file.display());
        }
    }
}

const SHOW_INTERVAL: Duration = Duration::from_secs(300);

const TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";
