//! Load from many nodes: an agent on each ([`serve`]), which does benchmark work and nothing else
//! for who proves to be allowed, and a subject that lets all of them measure at once
//! ([`DistributedSubject`]).

mod channel;
mod coordinator;
mod server;

pub use channel::{Acceptor, Credential};
pub use coordinator::{AgentPool, DistributedSubject};
pub use server::{Limits, serve};

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::nfs::NfsOptions;
use crate::subject::SubjectInfo;
use crate::{Case, Sample};

/// What a coordinator asks.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Request {
    /// Connect to a server; the number names it from then on.
    Open { number: u32, options: Box<NfsOptions> },
    /// Make ready what a case needs.
    Prepare { number: u32, case: Case },
    /// Say when nothing but the start is missing: the barrier.
    Ready,
    /// Measure now.
    Measure { number: u32, case: Case },
    /// Remove what later cases don't need.
    Tidy { number: u32 },
    /// Remove everything.
    Clean { number: u32 },
}

/// What an agent answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Response {
    /// It is connected.
    Opened { about: SubjectInfo, node: String, machine: Box<Machine> },
    /// It is done.
    Done,
    /// What it measured.
    Measured { sample: Box<Sample> },
    /// It went wrong; and whether the server can't be reached, the data was not what was written.
    Failed { why: String, unreachable: bool, corrupt: bool },
}
