//! Recorded calls. Times are nanoseconds since the start of the history. The JSON form is what
//! `--check` reads.

use serde::{Deserialize, Serialize};

use crate::model::{CELLS, NAMES};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct History {
    pub seed: u64,
    pub server: String,
    pub minor: u32,
    pub sec: String,
    /// `change_attr_type` says that values only grow (RFC 7862 §12.2.3).
    #[serde(default)]
    pub changes_grow: bool,
    pub operations: Vec<Operation>,
    pub faults: Vec<Fault>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    pub id: u32,
    pub client: u16,
    /// Each object is checked alone: P-compositionality.
    pub object: String,
    pub start: u64,
    /// None: no reply. The server may execute the call at any later time, or never.
    pub end: Option<u64>,
    pub call: Call,
    pub outcome: Outcome,
    /// Change attribute of the object, read by the same call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<u64>,
    /// Write verifier of the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verifier: Option<u64>,
}

pub type Cell = u8;
pub type Owner = u16;

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Call {
    Write {
        cell: Cell,
        value: u64,
        /// As the server replied; false without a reply.
        stable: bool,
    },
    Read {
        cell: Cell,
        /// From the client's cache, under a delegation.
        #[serde(default)]
        cached: bool,
    },
    Truncate {
        cells: Cell,
    },
    Punch {
        cell: Cell,
    },
    /// Of another file with these cells.
    Clone {
        values: [u64; CELLS],
    },
    Allocate {
        cells: Cell,
    },
    Size,
    Commit,
    /// Of unstable data: the server's process ended, or a client's cache did not reach the server.
    Loss,
    /// A name or a value whose change was not answered before a restart. The restart may undo the
    /// change, also if others have seen it.
    Undone {
        key: u8,
    },
    Create {
        name: u8,
    },
    Mkdir {
        name: u8,
    },
    /// Of the file `file` (its file id).
    Link {
        name: u8,
        file: u64,
    },
    Rename {
        from: u8,
        to: u8,
    },
    /// Of a name outside, for the file `file`, over this name.
    Replace {
        name: u8,
        file: u64,
    },
    Remove {
        name: u8,
    },
    Lookup {
        name: u8,
        /// From the client's cache, under a delegation of the directory.
        #[serde(default)]
        cached: bool,
    },
    /// One name of a listing, which may take several calls.
    Listed {
        name: u8,
    },
    /// The whole listing.
    List,
    /// Number of names of the file `file`, of which one is in another directory.
    Links {
        file: u64,
    },
    Lock {
        owner: Owner,
        write: bool,
        first: u8,
        len: u8,
        reclaim: bool,
        /// For other owners. The client asks again.
        #[serde(default)]
        waits: bool,
    },
    Unlock {
        owner: Owner,
        first: u8,
        len: u8,
    },
    Open {
        owner: Owner,
        access: u8,
        deny: u8,
        #[serde(default)]
        reclaim: bool,
    },
    Close {
        owner: Owner,
    },
    /// READ or WRITE with the anonymous stateid.
    Use {
        access: u8,
    },
    /// The state of a client or open owner has ended: its lease expired, it came back as a new
    /// instance, or it lost its state in a restart.
    Drop {
        owner: Owner,
    },
    /// The change attribute alone.
    Change,
    /// A mode, an access control list, or an extended attribute.
    Set {
        key: u8,
        value: u64,
        how: SetHow,
    },
    Get {
        key: u8,
    },
    Unset {
        key: u8,
    },
    /// The extended attributes that exist: a bit for each.
    Keys,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SetHow {
    Either,
    Create,
    Replace,
}

impl Call {
    /// It changes nothing, so a history without it stays a possible history.
    pub(crate) const fn is_observer(&self) -> bool {
        matches!(
            self,
            Self::Read { .. }
                | Self::Size
                | Self::Lookup { .. }
                | Self::Listed { .. }
                | Self::List
                | Self::Links { .. }
                | Self::Use { .. }
                | Self::Get { .. }
                | Self::Keys
                | Self::Change
        )
    }

    pub(crate) const fn changes_file(&self) -> bool {
        matches!(
            self,
            Self::Write { .. }
                | Self::Truncate { .. }
                | Self::Punch { .. }
                | Self::Clone { .. }
                | Self::Allocate { .. }
        )
    }

    pub(crate) const fn changes_names(&self) -> bool {
        matches!(
            self,
            Self::Create { .. }
                | Self::Mkdir { .. }
                | Self::Link { .. }
                | Self::Rename { .. }
                | Self::Replace { .. }
                | Self::Remove { .. }
        )
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// No reply, or one that tells nothing.
    Unknown,
    Done,
    /// Content of a cell, number of cells, or a file id.
    Value(u64),
    /// The cell is beyond the end of the file.
    Absent,
    NotFound,
    Exists,
    Denied,
    Names(Vec<String>),
    /// Refused for another reason: no effect.
    Failed(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    pub kind: String,
    pub start: u64,
    pub end: u64,
}

pub(crate) const RESTART: &str = "restart";

impl Operation {
    /// It changed nothing, so a history without it stays a possible history.
    pub(crate) fn is_observer(&self) -> bool {
        let is_refused = matches!(
            self.outcome,
            Outcome::NotFound | Outcome::Exists | Outcome::Denied | Outcome::Failed(_)
        );
        let waits = matches!(self.call, Call::Lock { waits: true, .. });
        self.call.is_observer() || is_refused && !waits
    }
}

impl History {
    /// All calls, and what follows from others: the server's restarts are calls of each file, and
    /// a listing is a look at each of its names, at any time within its interval.
    pub(crate) fn expanded(&self) -> Vec<Operation> {
        let mut all = self.operations.clone();
        let mut files: Vec<&str> = self
            .operations
            .iter()
            .filter(|op| op.call.changes_file())
            .map(|op| op.object.as_str())
            .collect();
        files.sort_unstable();
        files.dedup();
        for object in files {
            for fault in self.faults.iter().filter(|fault| fault.kind == RESTART) {
                all.push(Operation {
                    id: 0,
                    client: u16::MAX,
                    object: object.to_owned(),
                    start: fault.start,
                    end: Some(fault.end),
                    call: Call::Loss,
                    outcome: Outcome::Done,
                    change: None,
                    verifier: None,
                });
            }
        }
        self.undo_unanswered(&mut all);
        self.widen_attributes(&mut all);
        for op in &self.operations {
            if let Outcome::Names(names) = &op.outcome {
                for name in 0..NAMES as u8 {
                    let is_listed = names.iter().any(|listed| *listed == volatile_name(name));
                    let outcome = if is_listed { Outcome::Done } else { Outcome::NotFound };
                    all.push(Operation { call: Call::Listed { name }, outcome, ..op.clone() });
                }
            }
        }
        let first = self.operations.iter().map(|op| op.id).max().unwrap_or(0) + 1;
        for (id, op) in (first..).zip(&mut all[self.operations.len()..]) {
            op.id = id;
        }
        all
    }
}

impl History {
    /// A call is durable when it is answered. Until then others may see its effect, and a power cut
    /// may undo it.
    fn undo_unanswered(&self, all: &mut Vec<Operation>) {
        for fault in self.faults.iter().filter(|fault| fault.kind == RESTART) {
            let runs = |op: &&Operation| {
                op.start < fault.end && op.end.is_none_or(|end| end > fault.start)
            };
            for op in self.operations.iter().filter(runs) {
                let keys = match op.call {
                    Call::Create { name }
                    | Call::Mkdir { name }
                    | Call::Link { name, .. }
                    | Call::Replace { name, .. }
                    | Call::Remove { name } => vec![name],
                    Call::Rename { from, to } => vec![from, to],
                    Call::Set { key, .. } | Call::Unset { key } => vec![key],
                    _ => continue,
                };
                all.extend(keys.into_iter().map(|key| Operation {
                    client: u16::MAX,
                    start: fault.start,
                    end: Some(fault.end),
                    call: Call::Undone { key },
                    outcome: Outcome::Done,
                    change: None,
                    verifier: None,
                    ..op.clone()
                }));
            }
        }
    }

    /// A server may change a link count or a size and then the name or the data, both while the call
    /// runs. A look at the attribute in between counts as anywhere within that call.
    fn widen_attributes(&self, all: &mut [Operation]) {
        for op in all.iter_mut() {
            let is_change = match op.call {
                Call::Links { .. } => Call::changes_names,
                Call::Size => Call::changes_file,
                _ => continue,
            };
            let (start, end) = (op.start, op.end);
            let changes = self.operations.iter().filter(|other| {
                other.object == op.object
                    && is_change(&other.call)
                    && end.is_none_or(|end| other.start <= end)
                    && other.end.is_none_or(|end| end >= start)
            });
            for change in changes {
                op.start = op.start.min(change.start);
                op.end = op.end.zip(change.end).map(|(one, other)| one.max(other));
            }
        }
    }
}

/// A name that comes and goes.
pub(crate) fn volatile_name(name: u8) -> String {
    format!("n{name}")
}

/// A name that stays in its directory during the whole history.
pub fn stable_name(name: usize) -> String {
    format!("s{name:02}")
}

pub const STABLE_NAMES: usize = 24;
