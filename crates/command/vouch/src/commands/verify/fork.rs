//! `vouch verify --fork`: what evidence of a fork proves to somebody who has the HOSTID alone.

use std::ffi::OsStr;
use std::path::Path;

use serde::Serialize;
use vouch_tree::HostId;
use vouch_tree_client::fork::{Contradiction, Fork};

use crate::exit::{Code, Failure, Outcome};
use crate::tree_path::TreePath;
use crate::{output, when};

#[derive(Serialize)]
struct Report {
    hostid: String,
    contradictions: Vec<Found>,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Found {
    Revisions { revision: u64, certificate: u64, signed: [String; 2] },
    Heads { log_entries: u64, roots: [String; 2] },
    Histories { log_entries: [u64; 2], roots: [String; 2] },
}

pub(super) fn run(dir: &Path, name: &OsStr, is_json: bool) -> Outcome {
    let hostid = match name.to_str().and_then(|text| text.parse::<HostId>().ok()) {
        Some(hostid) => hostid,
        None => *TreePath::parse(name)?.name.hostid(),
    };
    // A directory that is not there proves nothing either, but is another mistake.
    std::fs::read_dir(dir).map_err(|error| Failure::new(dir.display(), error))?;
    let fork = Fork::read(dir).map_err(|error| Failure::new(dir.display(), error))?;
    let found = fork.contradictions(&hostid);
    let report = Report {
        hostid: hostid.to_string(),
        contradictions: found.into_iter().map(Found::from).collect(),
    };
    match is_json {
        true => output::json(&report)?,
        false => output::text(&report.text())?,
    }
    if report.contradictions.is_empty() {
        return Err(Failure::silent(Code::Differs));
    }
    Ok(())
}

impl From<Contradiction> for Found {
    fn from(found: Contradiction) -> Self {
        match found {
            Contradiction::Revisions { revision, cert_serial, starts } => Self::Revisions {
                revision,
                certificate: cert_serial,
                signed: starts.map(when::utc),
            },
            Contradiction::Heads { size, roots } => {
                Self::Heads { log_entries: size, roots: roots.map(|root| root.to_string()) }
            }
            Contradiction::Histories { sizes, roots } => {
                Self::Histories { log_entries: sizes, roots: roots.map(|root| root.to_string()) }
            }
        }
    }
}

impl Report {
    fn text(&self) -> String {
        if self.contradictions.is_empty() {
            return format!(
                "{}: nothing is proven: the directory lacks a side, or the sides do not contradict each other, or other keys have signed\n",
                self.hostid
            );
        }
        let lines = self.contradictions.iter().map(|found| match found {
            Found::Revisions { revision, certificate, signed: [a, b] } => format!(
                "two revisions {revision} are signed under certificate {certificate}, on {a} and on {b}"
            ),
            Found::Heads { log_entries, roots: [a, b] } => {
                format!("two heads of {log_entries} entries are signed, with root hashes {a} and {b}")
            }
            Found::Histories { log_entries: [a, b], roots: [root, other] } => format!(
                "the log of {b} entries does not continue that of {a}: its first {a} have the root hash {other}, not {root}"
            ),
        });
        lines.map(|line| format!("{}: PROVEN: {line}\n", self.hostid)).collect()
    }
}
