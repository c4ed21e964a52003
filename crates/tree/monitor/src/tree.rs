//! One tree: its rounds.

use std::cmp::Ordering;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use vouch_log::checkpoint::SignedCheckpoint;
use vouch_log::evidence::LogEvidence;
use vouch_log::policy::Policy;
use vouch_log::reader::{LogReader, ReadError, TileSource};
use vouch_log::revision::parse_revision_entry;
use vouch_log_directory::LogDirectory;
use vouch_tree::TreeName;
use vouch_tree_client::fork::{CONSISTENCY_FILE, consistency_file};
use vouch_tree_client::{
    Client, DatabaseFiles, HttpOptions, RemoteLog, Tree, TreeOptions, location_of_name,
};
use vouch_xdr::Xdr as _;

use crate::event::{AlarmKind, Event, RevisionEvent};
use crate::expected::Expected;
use crate::head::{common_size, contains_leaf};
use crate::offer::Offer;
use crate::report::TreeStatus;
use crate::state::{Alarm, State};
use crate::{Error, Result};

/// A tree to watch, and the ways to it.
#[derive(Debug, Clone)]
pub struct MonitorOptions {
    /// The tree.
    pub name: TreeName,
    /// Replicas beside those that the tree and its name have.
    pub tree: TreeOptions,
    /// Connects to replicas.
    pub http: HttpOptions,
    /// For each answer, and each file of a log.
    pub time_max: Duration,
    /// Directory of all monitored trees.
    pub state_dir: PathBuf,
    /// The publisher's database.
    pub expected: Option<PathBuf>,
    /// Only heads that satisfy these count as signs of life. Their witnesses are asked, as those of
    /// the tree's own policy.
    pub policies: Vec<Policy>,
    /// The log has stopped after this time without a sign of life. `None`: when the newest revision
    /// expires.
    pub stale_after_s: Option<u64>,
}

/// Follows one tree. Holds a lock on its state.
pub struct TreeMonitor {
    pub(crate) options: MonitorOptions,
    pub(crate) state: State,
    pub(crate) log: LogDirectory,
    /// Knows the replicas that the tree names, once it could be opened.
    tree: Option<Arc<Tree>>,
    /// Replicas that failed in the last round are asked last.
    failed: Vec<String>,
}

/// The outcome of a round.
#[derive(Debug, Clone)]
pub struct Round {
    /// Of the tree.
    pub status: TreeStatus,
    /// One for each replica or witness whose answer could not be used.
    pub failures: Vec<String>,
}

/// Entries that one round adds at most: a thief's log must not fill the disk.
const NEW_ENTRIES_MAX: u64 = 1 << 24;

/// Replicas asked at once: a manifest may have 128 MiB.
pub(crate) const ASKED_MAX: usize = 8;

/// Entries that an alarm names at most.
const NAMED_ENTRIES_MAX: u64 = 256;

/// Where events go. An error ends the round before the event is stored as reported.
pub type Sink = dyn Fn(&Event) -> io::Result<()> + Send + Sync;

/// The head of a log at one replica.
struct ReplicaHead<'a> {
    offer: &'a Offer,
    evidence: &'a LogEvidence,
    now: u64,
    sink: &'a Sink,
}

/// A replica's answer is of no use.
enum Fault {
    Replica(String),
    Ours(Error),
}

impl<E: Into<Error>> From<E> for Fault {
    fn from(error: E) -> Self {
        Self::Ours(error.into())
    }
}

fn lied(error: ReadError) -> Fault {
    Fault::Replica(error.to_string())
}

fn tell(sink: &Sink, event: &Event) -> Result<()> {
    let written = |error| Error::Io { step: "write", path: "standard output".into(), error };
    sink(event).map_err(written)
}

/// The same for each head of this head.
fn head_id(evidence: &LogEvidence) -> Vec<u8> {
    let head = evidence.proof.checkpoint.checkpoint();
    [&head.size.to_be_bytes()[..], &head.root.0].concat()
}

impl TreeMonitor {
    /// `now`: seconds since 1970.
    pub fn open(options: MonitorOptions, now: u64) -> Result<Self> {
        let state = State::open(&options.state_dir, options.name.hostid(), now)?;
        let log = LogDirectory::new(state.log_path(), 0o600);
        Ok(Self { options, state, log, tree: None, failed: Vec::new() })
    }

    /// Asks all replicas once. Events are reported before they are stored: one may be reported
    /// again after a crash.
    pub async fn round(&mut self, client: &Arc<Client>, now: u64, sink: &Sink) -> Result<Round> {
        let (mut offers, mut failures, mut replicas) = self.ask(client).await;
        let is_strange =
            tokio::task::block_in_place(|| self.compare(&offers, false, now, &mut failures, sink))?;
        let witnesses = self.ask_witnesses().await?;
        if is_strange || self.is_behind(&witnesses)? {
            // A mirror that pulled meanwhile may be ahead of those that were asked before.
            (offers, failures, replicas) = self.ask(client).await;
            tokio::task::block_in_place(|| {
                self.compare(&offers, is_strange, now, &mut failures, sink)
            })?;
        }
        tokio::task::block_in_place(|| self.compare_witnesses(&witnesses, now, sink))?;
        self.check_life(now, sink)?;
        let status = TreeStatus {
            replicas,
            good_replicas: replicas.saturating_sub(failures.len()),
            witnesses: witnesses.asked,
            good_witnesses: witnesses.asked - witnesses.failures.len(),
            ..self.status(now)?
        };
        failures.extend(witnesses.failures);
        Ok(Round { status, failures })
    }

    async fn ask(&mut self, client: &Arc<Client>) -> (Vec<Offer>, Vec<String>, usize) {
        let mut locations = self.locations(client).await;
        locations.sort_by_key(|location| self.failed.contains(location));
        let (hostid, time_max) = (*self.options.name.hostid(), self.options.time_max);
        let mut asked = Vec::new();
        for location in &locations {
            let files = DatabaseFiles::new(location, &hostid, &self.options.http);
            asked.push(async move {
                let files = files.map_err(|error| error.to_string())?;
                let url = files.url();
                let offer = Offer::ask(files, hostid, time_max).await;
                offer.map_err(|error| format!("{url}: {error}"))
            });
        }
        let (mut offers, mut failures) = (Vec::new(), Vec::new());
        self.failed.clear();
        let answers: Vec<_> = stream::iter(asked).buffered(ASKED_MAX).collect().await;
        for (location, answer) in locations.iter().zip(answers) {
            match answer {
                Ok(offer) => offers.push(offer),
                Err(error) => {
                    self.failed.push(location.clone());
                    failures.push(error);
                }
            }
        }
        (offers, failures, locations.len())
    }

    /// All addresses of each host, and the mirrors that the tree names; only the configured ones as
    /// long as the tree can't be opened.
    async fn locations(&mut self, client: &Arc<Client>) -> Vec<String> {
        let options = &self.options;
        if self.tree.is_none() {
            match client.open(&options.name, &options.tree).await {
                Ok(tree) => self.tree = Some(tree),
                Err(error) => tracing::info!(tree = %options.name, "not opened: {error}"),
            }
        }
        let mut locations = options.tree.replicas.clone();
        if !options.tree.only_replicas {
            locations.push(location_of_name(&options.name));
        }
        let replicas = self.tree.iter().flat_map(|tree| tree.replicas());
        locations.extend(replicas.map(|replica| replica.location(&options.http)));
        let mut seen = std::collections::BTreeSet::new();
        locations.retain(|location| seen.insert(location.clone()));
        locations
    }

    /// True if a replica's newest revision is in no log that was seen so far. `is_final`: that is an
    /// alarm.
    fn compare(
        &mut self,
        offers: &[Offer],
        is_final: bool,
        now: u64,
        failures: &mut Vec<String>,
        sink: &Sink,
    ) -> Result<bool> {
        let path = self.options.expected.clone();
        let hostid = *self.options.name.hostid();
        let mut expected = path.map(|path| Expected::open(&path, &hostid)).transpose()?;
        let mut compared = Vec::new();
        for offer in offers {
            match self.follow(offer, expected.as_mut(), now, sink) {
                Ok(()) => compared.push(offer.proof().is_some()),
                Err(Fault::Ours(error)) => return Err(error),
                Err(Fault::Replica(why)) => {
                    failures.push(format!("{}: {why}", offer.url));
                    compared.push(false);
                }
            }
        }
        let mut is_strange = false;
        // A log that was compared and has the revision is continued, or has its own alarm.
        for (offer, _) in offers.iter().zip(compared).filter(|(_, is_compared)| !is_compared) {
            if self.check_newest(offer, expected.as_mut(), is_final, now, sink)? {
                is_strange = true;
            }
        }
        self.state.save()?;
        Ok(is_strange)
    }

    /// Compares the head of the log that a replica has with our copy, which it may continue.
    fn follow(
        &mut self,
        offer: &Offer,
        mut expected: Option<&mut Expected>,
        now: u64,
        sink: &Sink,
    ) -> std::result::Result<(), Fault> {
        let Some(evidence) = &offer.evidence else { return Ok(()) };
        let seen = ReplicaHead { offer, evidence, now, sink };
        let theirs = evidence.proof.checkpoint.checkpoint();
        let ours = self.log.checkpoint()?;
        let remote = RemoteLog { files: &offer.files, time_max: self.options.time_max };
        let known = match expected.as_deref_mut() {
            None => true,
            Some(expected) => expected.has_head(theirs.size, theirs.root)?,
        };
        let size = ours.as_ref().map_or(0, |ours| ours.checkpoint().size);
        let is_continued = theirs.size > size;
        let mut remote = if is_continued || !known {
            Some(LogReader::open(remote, theirs.size, theirs.root).map_err(lied)?)
        } else {
            None
        };
        if let Some(ours) = &ours {
            let mut copy = self.log.open(ours)?;
            let is_same = match &mut remote {
                Some(remote) if is_continued => {
                    remote.root_at(size).map_err(lied)? == ours.checkpoint().root
                }
                _ => {
                    copy.root_at(theirs.size).map_err(|error| self.damaged(&error))? == theirs.root
                }
            };
            if !is_same {
                if self.state.has_alarm(AlarmKind::SplitView, &head_id(evidence)) {
                    return Ok(());
                }
                let remote = RemoteLog { files: &offer.files, time_max: self.options.time_max };
                let other = LogReader::open(remote, theirs.size, theirs.root);
                let begin =
                    other.and_then(|mut other| Ok((common_size(&mut copy, &mut other)?, other)));
                self.report_split(&seen, ours, begin.ok(), expected)?;
                return Ok(());
            }
        }
        if let (Some(remote), false, Some(expected)) = (&mut remote, known, expected) {
            if self.state.has_alarm(AlarmKind::UnknownRevision, &head_id(evidence)) {
                return Ok(());
            }
            let begin = match &mut expected.log {
                Some(log) => common_size(log, remote).map_err(lied)?,
                None => 0,
            };
            let text = format!(
                "{} has {} entries of the log, of which the publisher's database knows {begin}",
                offer.url, theirs.size
            );
            let named = self.named_entries(&seen, remote, begin, Some(expected))?;
            self.raise_about(AlarmKind::UnknownRevision, &seen, named, text)?;
            return Ok(());
        }
        if let Some(remote) = remote.filter(|_| is_continued) {
            self.continue_copy(&seen, remote)?;
        }
        if known && offer.proof().is_some() {
            self.note_life(offer, evidence, now);
        }
        Ok(())
    }

    /// Reports the new entries, and adds them to the copy.
    fn continue_copy(
        &mut self,
        seen: &ReplicaHead<'_>,
        mut remote: LogReader<RemoteLog<'_>>,
    ) -> std::result::Result<(), Fault> {
        let ReplicaHead { offer, evidence, now, sink } = *seen;
        let known = self.options.expected.is_some().then_some(true);
        let (tree, hostid) = (self.options.name.to_string(), *self.options.name.hostid());
        let mut copy = self.log.append()?;
        let begin = copy.size();
        if remote.size() - begin > NEW_ENTRIES_MAX {
            return Err(Fault::Replica(format!("more than {NEW_ENTRIES_MAX} new entries at once")));
        }
        while copy.size() < remote.size() {
            let next = copy.size();
            let (first, entries) = remote.bundle(next).map_err(lied)?;
            for entry in entries.iter().skip((next - first) as usize) {
                let index = copy.push(entry)?;
                let event =
                    RevisionEvent::of_entry(&tree, &hostid, index, entry, &offer.url, known);
                tell(sink, &Event::Revision(event))?;
            }
        }
        copy.commit(&evidence.proof.checkpoint)?;
        self.state.write_evidence(&evidence.to_xdr())?;
        if self.options.policies.is_empty() && evidence.cert.policy().is_none() {
            self.state.record.fresh = self.state.record.fresh.max(now);
        }
        Ok(())
    }

    /// Cosignatures have times; without a policy, a head is fresh when it is first seen.
    fn note_life(&mut self, offer: &Offer, evidence: &LogEvidence, now: u64) {
        let record = &mut self.state.record;
        if offer.fsinfo.revision >= record.revision {
            record.revision = offer.fsinfo.revision;
            record.expires = offer.fsinfo.end().min(offer.parsed.cert().not_after);
        }
        let (hostid, policies) = (self.options.name.hostid(), &self.options.policies);
        match evidence.verify(hostid, &offer.signed, policies, now) {
            Ok(belief) => {
                record.fresh = record.fresh.max(belief.quorum_time.unwrap_or(0).min(now));
            }
            Err(error) => {
                tracing::warn!(tree = %self.options.name, replica = offer.url, "{error}");
            }
        }
    }

    fn report_split(
        &self,
        seen: &ReplicaHead<'_>,
        ours: &SignedCheckpoint,
        other: Option<(u64, LogReader<RemoteLog<'_>>)>,
        expected: Option<&mut Expected>,
    ) -> std::result::Result<(), Fault> {
        let mut files = Vec::new();
        let mut text = format!(
            "{} has another history of the log: {} entries of one, {} of the other",
            seen.offer.url,
            ours.checkpoint().size,
            seen.evidence.proof.checkpoint.checkpoint().size
        );
        let known = self.state.evidence();
        if let Some((begin, mut remote)) = other {
            text += &format!("; they differ from entry {begin} on");
            let size = |evidence: &LogEvidence| evidence.proof.checkpoint.checkpoint().size;
            let known = known.as_ref().and_then(|bytes| LogEvidence::from_xdr(bytes).ok());
            let (known, theirs) = (known.as_ref().map_or(0, size), size(seen.evidence));
            let consistency = match known.cmp(&theirs) {
                Ordering::Less => consistency_file(&mut remote, known).ok(),
                Ordering::Greater => consistency_file(&mut self.log.open(ours)?, theirs).ok(),
                Ordering::Equal => None,
            };
            files = self.named_entries(seen, &mut remote, begin, expected)?;
            files.extend(consistency.map(|bytes| (CONSISTENCY_FILE.to_owned(), bytes)));
        }
        files.push(("ours.checkpoint".to_owned(), ours.to_text().into_bytes()));
        files.extend(known.map(|bytes| ("ours.evidence".to_owned(), bytes)));
        self.raise_about(AlarmKind::SplitView, seen, files, text)
    }

    /// Reports entries from `begin` on that the publisher does not know, and returns them as files.
    fn named_entries<S: TileSource>(
        &self,
        seen: &ReplicaHead<'_>,
        remote: &mut LogReader<S>,
        begin: u64,
        mut expected: Option<&mut Expected>,
    ) -> std::result::Result<Vec<(String, Vec<u8>)>, Fault> {
        let (tree, hostid) = (self.options.name.to_string(), *self.options.name.hostid());
        let (mut files, mut index) = (Vec::new(), begin);
        let end = remote.size().min(begin + NAMED_ENTRIES_MAX);
        while index < end {
            let (first, entries) = remote.bundle(index).map_err(lied)?;
            let skipped = (index - first) as usize;
            for entry in entries.iter().skip(skipped).take((end - index) as usize) {
                let known = match (expected.as_deref_mut(), parse_revision_entry(entry)) {
                    (None, _) => None,
                    (Some(_), Err(_)) => Some(false),
                    (Some(expected), Ok((_, signed))) => Some(expected.knows(signed)?),
                };
                if known != Some(true) {
                    let event = RevisionEvent::of_entry(
                        &tree,
                        &hostid,
                        index,
                        entry,
                        &seen.offer.url,
                        known,
                    );
                    tell(seen.sink, &Event::Revision(event))?;
                    files.push((format!("theirs.entry-{index}"), entry.clone()));
                }
                index += 1;
            }
        }
        Ok(files)
    }

    /// Checks that the newest revision of a replica is in the log, and that the publisher knows it.
    /// True if it is in no log so far.
    fn check_newest(
        &mut self,
        offer: &Offer,
        expected: Option<&mut Expected>,
        is_final: bool,
        now: u64,
        sink: &Sink,
    ) -> Result<bool> {
        let ours = self.log.checkpoint()?;
        let is_logged = match &ours {
            Some(ours) => contains_leaf(&mut self.log.open(ours)?, offer.leaf())
                .map_err(|error| self.damaged(&error))?,
            None => false,
        };
        let known = expected.map(|expected| expected.knows(&offer.signed)).transpose()?;
        let has_log = ours.is_some();
        if is_logged || (has_log && known == Some(true)) {
            return Ok(false);
        }
        if has_log && !is_final {
            return Ok(true);
        }
        let id = blake3::hash(&offer.signed).to_hex().to_string();
        if !self.state.record.reported.contains(&id) {
            let (tree, hostid) = (self.options.name.to_string(), self.options.name.hostid());
            let parsed = Some(&offer.parsed);
            let event = RevisionEvent::new(&tree, hostid, None, parsed, &offer.url, known);
            tell(sink, &Event::Revision(event))?;
            self.state.record.reported.push(id);
        }
        if !has_log && known != Some(false) {
            self.note_unlogged(offer, now);
            return Ok(false);
        }
        let number = offer.fsinfo.revision;
        let (kind, text) = if known == Some(false) {
            let text = format!(
                "{} has revision {number}, which the publisher's database does not know",
                offer.url
            );
            (AlarmKind::UnknownRevision, text)
        } else {
            let text = format!("{} has revision {number}, which is not in the log", offer.url);
            (AlarmKind::UnloggedRevision, text)
        };
        let files = [("theirs.fsinfo".to_owned(), offer.signed.clone())];
        self.raise(kind, &offer.signed, &files, text, now, sink)?;
        Ok(false)
    }

    /// Of a tree without a log.
    fn note_unlogged(&mut self, offer: &Offer, now: u64) {
        let record = &mut self.state.record;
        if offer.fsinfo.revision > record.revision {
            record.revision = offer.fsinfo.revision;
            record.expires = offer.fsinfo.end().min(offer.parsed.cert().not_after);
            record.fresh = record.fresh.max(now);
        }
    }

    fn check_life(&mut self, now: u64, sink: &Sink) -> Result<()> {
        let record = &self.state.record;
        let is_stopped = match self.options.stale_after_s {
            Some(limit) => now.saturating_sub(record.fresh) > limit,
            None => record.expires != 0 && now >= record.expires,
        };
        if is_stopped == record.is_stopped {
            return Ok(());
        }
        let (tree, kind) = (self.options.name.to_string(), AlarmKind::StoppedLog);
        let event = if is_stopped {
            Event::Alarm { tree, kind, text: self.stopped_text(), evidence: None }
        } else {
            Event::Cleared { tree, kind }
        };
        tell(sink, &event)?;
        self.state.record.is_stopped = is_stopped;
        self.state.save()
    }

    fn stopped_text(&self) -> String {
        let record = &self.state.record;
        let since = vouch_tree::time_text::Utc(record.fresh);
        format!("no new head of the log since {since}; the newest revision is {}", record.revision)
    }

    /// With both signed heads as files.
    fn raise_about(
        &self,
        kind: AlarmKind,
        seen: &ReplicaHead<'_>,
        mut files: Vec<(String, Vec<u8>)>,
        text: String,
    ) -> std::result::Result<(), Fault> {
        let ReplicaHead { offer, evidence, now, sink } = *seen;
        let checkpoint = &evidence.proof.checkpoint;
        files.push(("theirs.checkpoint".to_owned(), checkpoint.to_text().into_bytes()));
        files.push(("theirs.evidence".to_owned(), evidence.to_xdr()));
        files.push(("theirs.fsinfo".to_owned(), offer.signed.clone()));
        Ok(self.raise(kind, &head_id(evidence), &files, text, now, sink)?)
    }

    pub(crate) fn raise(
        &self,
        kind: AlarmKind,
        id: &[u8],
        files: &[(String, Vec<u8>)],
        text: String,
        now: u64,
        sink: &Sink,
    ) -> Result<()> {
        let Some(dir) = self.state.begin_alarm(kind, id, files)? else { return Ok(()) };
        let event = Event::Alarm {
            tree: self.options.name.to_string(),
            kind,
            text: text.clone(),
            evidence: Some(dir.display().to_string()),
        };
        tell(sink, &event)?;
        self.state.finish_alarm(&dir, &Alarm { kind, text, raised: now })
    }

    pub(crate) fn damaged(&self, error: &ReadError) -> Error {
        Error::Damaged { path: self.state.log_path(), what: error.to_string() }
    }

    fn status(&self, now: u64) -> Result<TreeStatus> {
        let record = &self.state.record;
        let mut alarms = self.state.alarms();
        if record.is_stopped {
            let text = self.stopped_text();
            alarms.push(Alarm { kind: AlarmKind::StoppedLog, text, raised: record.fresh });
        }
        let head = self.log.checkpoint()?;
        Ok(TreeStatus {
            tree: self.options.name.to_string(),
            entries: head.map_or(0, |head| head.checkpoint().size),
            revision: record.revision,
            fresh: record.fresh,
            checked: now,
            alarms,
            ..TreeStatus::default()
        })
    }
}
