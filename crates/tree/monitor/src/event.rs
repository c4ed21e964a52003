//! Events for people and programs, one line each.

use std::fmt;

use serde::{Deserialize, Serialize};
use vouch_daemon::printable::printable;
use vouch_log::revision::parse_revision_entry;
use vouch_tree::time_text::Utc;
use vouch_tree::{HostId, SignedFsinfo};

/// The kinds of alarms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlarmKind {
    /// The publisher's own database does not know a revision.
    UnknownRevision,
    /// A replica offers a signed revision that is not in the tree's log.
    UnloggedRevision,
    /// The log's key has signed two histories.
    SplitView,
    /// A witness has cosigned entries that no replica shows.
    HiddenHead,
    /// The log has no new head.
    StoppedLog,
}

impl AlarmKind {
    pub(crate) const ALL: [Self; 5] = [
        Self::UnknownRevision,
        Self::UnloggedRevision,
        Self::SplitView,
        Self::HiddenHead,
        Self::StoppedLog,
    ];

    /// As in metrics, file names and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::UnknownRevision => "unknown_revision",
            Self::UnloggedRevision => "unlogged_revision",
            Self::SplitView => "split_view",
            Self::HiddenHead => "hidden_head",
            Self::StoppedLog => "stopped_log",
        }
    }
}

/// Something happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[allow(missing_docs, reason = "as in RevisionEvent, Alarm and TreeStatus")]
pub enum Event {
    /// A revision that the monitor sees for the first time.
    Revision(RevisionEvent),
    /// Something is wrong.
    Alarm {
        tree: String,
        kind: AlarmKind,
        text: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        evidence: Option<String>,
    },
    /// An alarm has ended by itself.
    Cleared { tree: String, kind: AlarmKind },
}

/// An entry of the log, or a revision outside of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RevisionEvent {
    /// The tree's name.
    pub tree: String,
    /// Number of the entry. `None`: the revision is in no log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
    /// `None`: the entry is no revision of this tree.
    pub revision: Option<u64>,
    /// When it was signed, by the publisher's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signed: Option<String>,
    /// Serial number of the signing key's certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<u64>,
    /// The first 16 characters of the signing key's hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signing_key: Option<String>,
    /// The revision's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Where it was seen first.
    pub replica: String,
    /// The publisher's database knows it. `None` if the monitor cannot tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known: Option<bool>,
}

impl RevisionEvent {
    pub(crate) fn of_entry(
        tree: &str,
        hostid: &HostId,
        index: u64,
        entry: &[u8],
        replica: &str,
        known: Option<bool>,
    ) -> Self {
        // Later versions may have other entries, and a thief may log anything.
        let signed = parse_revision_entry(entry).ok().map(|(signed, _)| signed);
        Self::new(tree, hostid, Some(index), signed.as_ref(), replica, known)
    }

    pub(crate) fn new(
        tree: &str,
        hostid: &HostId,
        index: Option<u64>,
        signed: Option<&SignedFsinfo>,
        replica: &str,
        known: Option<bool>,
    ) -> Self {
        let opened = signed.and_then(|signed| Some((signed.open(hostid).ok()?, signed.cert())));
        let mut key = opened.as_ref().map(|(_, cert)| cert.signing.hostid().to_string());
        key.iter_mut().for_each(|key| key.truncate(16));
        let fsinfo = opened.as_ref().map(|(fsinfo, _)| fsinfo);
        Self {
            tree: tree.to_owned(),
            index,
            revision: fsinfo.map(|fsinfo| fsinfo.revision),
            signed: fsinfo.map(|fsinfo| Utc(fsinfo.start).to_string()),
            certificate: opened.as_ref().map(|(_, cert)| cert.serial),
            signing_key: key,
            tag: fsinfo.map(|fsinfo| fsinfo.tag.clone()).filter(|tag| !tag.is_empty()),
            replica: replica.to_owned(),
            known,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Revision(seen) => seen.fmt(f),
            Self::Alarm { tree, kind, text, evidence } => {
                write!(f, "ALARM {} {}: {}", kind.name(), printable(tree.as_bytes()), text)?;
                match evidence {
                    Some(dir) => write!(f, "; evidence in {}", printable(dir.as_bytes())),
                    None => Ok(()),
                }
            }
            Self::Cleared { tree, kind } => {
                write!(f, "cleared {} {}", kind.name(), printable(tree.as_bytes()))
            }
        }
    }
}

impl fmt::Display for RevisionEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.revision {
            Some(number) => write!(f, "revision {number}")?,
            None => f.write_str("no revision")?,
        }
        write!(f, " {}", printable(self.tree.as_bytes()))?;
        if let Some(index) = self.index {
            write!(f, " entry {index}")?;
        }
        if let (Some(signed), Some(certificate), Some(key)) =
            (&self.signed, self.certificate, &self.signing_key)
        {
            write!(f, " signed {signed} by key {key} of certificate {certificate}")?;
        }
        if let Some(tag) = &self.tag {
            write!(f, " tag {}", printable(tag.as_bytes()))?;
        }
        write!(f, " at {}", printable(self.replica.as_bytes()))?;
        match self.known {
            Some(false) => f.write_str(", which the publisher's database does not know"),
            _ => Ok(()),
        }
    }
}
