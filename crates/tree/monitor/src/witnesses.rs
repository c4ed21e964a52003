//! Compares what the witnesses of a log know with our copy of it.

use futures_util::stream::{self, StreamExt as _};
use vouch_log::checkpoint::SignedCheckpoint;
use vouch_log::evidence::LogEvidence;
use vouch_log::note::NOTE_LEN_MAX;
use vouch_log::proof::TlogProof;
use vouch_log::revision::LogCert;
use vouch_tree_client::fork::{CONSISTENCY_FILE, consistency_file};
use vouch_tree_client::{CosignRequest, Objection, WitnessTarget};
use vouch_xdr::Xdr as _;

use crate::Result;
use crate::event::AlarmKind;
use crate::expected::Expected;
use crate::tree::{ASKED_MAX, Sink, TreeMonitor};

/// A publisher shows a head to witnesses before it shows it to readers. Without the publisher's
/// database, only time tells the two apart.
const HIDDEN_S_MAX: u64 = 60;

/// The answers of one round.
#[derive(Default)]
pub(crate) struct WitnessAnswers {
    pub(crate) asked: usize,
    pub(crate) failures: Vec<String>,
    witnessed: Vec<WitnessedHead>,
}

/// Entries that only a witness knows, or another history of the log.
struct WitnessedHead {
    target: WitnessTarget,
    known: Known,
}

enum Known {
    /// Signed by the log and the witness.
    Head(SignedCheckpoint),
    /// The witness shows no heads, and says this about ours.
    Said(Objection),
}

impl WitnessedHead {
    fn size(&self) -> u64 {
        match &self.known {
            Known::Head(head) => head.checkpoint().size,
            Known::Said(Objection::LongerLog(size)) => *size,
            Known::Said(Objection::OtherHistory) => 0,
        }
    }
}

impl TreeMonitor {
    /// Asks each witness for its newest head, and one that shows none to confirm ours.
    pub(crate) async fn ask_witnesses(&self) -> Result<WitnessAnswers> {
        let mut found = WitnessAnswers::default();
        let (Some(ours), Some(cert)) = (self.log.checkpoint()?, self.known_cert()) else {
            return Ok(found);
        };
        let demanded = cert.policy().map(|demanded| demanded.policy());
        let targets = WitnessTarget::of_policies(self.options.policies.iter().chain(demanded));
        let (keys, origin) = (cert.keys().all(), &ours.checkpoint().origin);
        let time_max = self.options.time_max;
        let asked: Vec<_> =
            targets.iter().map(|target| target.shown_head(origin, &keys, time_max)).collect();
        let answers: Vec<_> = stream::iter(asked).buffered(ASKED_MAX).collect().await;
        found.asked = targets.len();
        let mut silent = Vec::new();
        for (target, answer) in targets.into_iter().zip(answers) {
            match answer {
                Ok(Some(head)) => {
                    found.witnessed.push(WitnessedHead { target, known: Known::Head(head) })
                }
                Ok(None) => silent.push(target),
                Err(error) => found.fail(&target, &error.to_string()),
            }
        }
        if !silent.is_empty() {
            tokio::task::block_in_place(|| found.confirm(&silent, &ours, &cert, self));
        }
        Ok(found)
    }

    fn known_cert(&self) -> Option<LogCert> {
        LogEvidence::from_xdr(&self.state.evidence()?).ok().map(|evidence| evidence.cert)
    }

    /// True if a witness knows more entries than our copy has.
    pub(crate) fn is_behind(&self, answers: &WitnessAnswers) -> Result<bool> {
        let size = self.log.checkpoint()?.map_or(0, |ours| ours.checkpoint().size);
        Ok(answers.witnessed.iter().any(|head| head.size() > size))
    }

    /// After the replicas were asked again.
    pub(crate) fn compare_witnesses(
        &mut self,
        answers: &WitnessAnswers,
        now: u64,
        sink: &Sink,
    ) -> Result<()> {
        let (Some(ours), Some(cert)) = (self.log.checkpoint()?, self.known_cert()) else {
            return Ok(());
        };
        let (size, hostid) = (ours.checkpoint().size, *self.options.name.hostid());
        let path = self.options.expected.clone();
        // A revision is in the publisher's database before a witness sees it.
        let mut expected = path.map(|path| Expected::open(&path, &hostid)).transpose()?;
        let mut hidden = Vec::new();
        for head in &answers.witnessed {
            let root = match &head.known {
                Known::Head(head) => Some(head.checkpoint().root),
                Known::Said(_) => None,
            };
            if head.size() <= size {
                self.check_history(head, &ours, &cert, now, sink)?;
                continue;
            }
            let is_known = match &mut expected {
                Some(expected) => expected.has_shown(head.size(), root)?,
                None => false,
            };
            if !is_known {
                hidden.push(head);
            }
        }
        let begun = self.state.record.hidden.filter(|(hidden, _)| *hidden > size);
        let first = hidden.iter().map(|head| head.size()).min();
        self.state.record.hidden = first.map(|first| begun.unwrap_or((first, now)));
        self.state.save()?;
        let since = self.state.record.hidden.map_or(now, |(_, since)| since);
        if expected.is_some() || now.saturating_sub(since) >= HIDDEN_S_MAX {
            for head in hidden {
                let text = format!(
                    "has cosigned {} entries of the log, and no replica shows more than {size}",
                    head.size()
                );
                let files = evidence_files(head, &ours, &cert, self.state.evidence());
                self.raise_about_witness(AlarmKind::HiddenHead, head, files, &text, now, sink)?;
            }
        }
        Ok(())
    }

    /// A head that is no longer than our copy must be one of its beginnings.
    fn check_history(
        &self,
        head: &WitnessedHead,
        ours: &SignedCheckpoint,
        cert: &LogCert,
        now: u64,
        sink: &Sink,
    ) -> Result<()> {
        let mut files = evidence_files(head, ours, cert, self.state.evidence());
        let text = match &head.known {
            Known::Head(theirs) => {
                let theirs = theirs.checkpoint();
                let mut copy = self.log.open(ours)?;
                let root = copy.root_at(theirs.size).map_err(|error| self.damaged(&error))?;
                if root == theirs.root {
                    return Ok(());
                }
                if theirs.size < ours.checkpoint().size {
                    let proof = consistency_file(&mut copy, theirs.size);
                    let proof = proof.map_err(|error| self.damaged(&error))?;
                    files.push((CONSISTENCY_FILE.to_owned(), proof));
                }
                format!("has cosigned {} entries of another history of the log", theirs.size)
            }
            Known::Said(Objection::LongerLog(_)) => return Ok(()),
            Known::Said(Objection::OtherHistory) => format!(
                "has cosigned another history of the log than our {} entries, and does not show it",
                ours.checkpoint().size
            ),
        };
        self.raise_about_witness(AlarmKind::SplitView, head, files, &text, now, sink)
    }

    /// One alarm of each kind for each witness.
    fn raise_about_witness(
        &self,
        kind: AlarmKind,
        head: &WitnessedHead,
        files: Vec<(String, Vec<u8>)>,
        what: &str,
        now: u64,
        sink: &Sink,
    ) -> Result<()> {
        let WitnessTarget { name, url, .. } = &head.target;
        let text = format!("witness {name} ({url}) {what}");
        self.raise(kind, url.as_bytes(), &files, text, now, sink)
    }
}

impl WitnessAnswers {
    fn fail(&mut self, target: &WitnessTarget, why: &str) {
        self.failures.push(format!("witness {} ({}): {why}", target.name, target.url));
    }

    fn confirm(
        &mut self,
        targets: &[WitnessTarget],
        ours: &SignedCheckpoint,
        cert: &LogCert,
        monitor: &TreeMonitor,
    ) {
        let request = CosignRequest {
            targets,
            policies: &[],
            log_keys: &cert.keys().all(),
            checkpoint: ours,
            checkpoint_len_max: NOTE_LEN_MAX,
            wait: monitor.options.time_max,
            now: || 0,
        };
        for failure in request.confirm().failures {
            let target = targets.iter().find(|target| target.url == failure.url);
            let Some(target) = target else { continue };
            match failure.objection {
                Some(said) => {
                    self.witnessed
                        .push(WitnessedHead { target: target.clone(), known: Known::Said(said) });
                }
                None => self.fail(target, &failure.why),
            }
        }
    }
}

/// Both heads, as `vouch verify --fork` takes them.
fn evidence_files(
    head: &WitnessedHead,
    ours: &SignedCheckpoint,
    cert: &LogCert,
    known: Option<Vec<u8>>,
) -> Vec<(String, Vec<u8>)> {
    let mut files = vec![("ours.checkpoint".to_owned(), ours.to_text().into_bytes())];
    files.extend(known.map(|bytes| ("ours.evidence".to_owned(), bytes)));
    if let Known::Head(theirs) = &head.known {
        let (checkpoint, cert) = (theirs.clone(), cert.clone());
        let proof = TlogProof { extra: None, index: 0, hashes: Vec::new(), checkpoint };
        files.push(("theirs.checkpoint".to_owned(), theirs.to_text().into_bytes()));
        files.push(("theirs.evidence".to_owned(), LogEvidence { cert, proof }.to_xdr()));
    }
    files
}
