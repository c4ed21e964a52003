//! Load from several nodes: an agent on each node ([`serve`]), and a subject that all agents
//! measure at once ([`DistributedSubject`]).

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

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Request {
    /// Connect to a server, which `number` identifies from then on.
    Open { number: u32, options: Box<NfsOptions> },
    /// Prepare a case.
    Prepare { number: u32, case: Case },
    /// Answer when ready to start. This is the barrier before a measurement.
    Ready,
    /// Measure a case.
    Measure { number: u32, case: Case },
    /// Remove what later cases do not need.
    Tidy { number: u32 },
    /// Remove everything.
    Clean { number: u32 },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Response {
    /// Connected.
    Opened { about: SubjectInfo, node: String, machine: Box<Machine> },
    /// Done.
    Done,
    /// The sample.
    Measured { sample: Box<Sample> },
    /// The error, and its kind.
    Failed { why: String, unreachable: bool, corrupt: bool },
}
