//! Load from several nodes: an agent on each ([`serve`]), and a subject that all agents measure
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

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Request {
    Open { number: u32, options: Box<NfsOptions> },
    Prepare { number: u32, case: Case },
    Ready,
    Measure { number: u32, case: Case },
    Tidy { number: u32 },
    Clean { number: u32 },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Response {
    Opened { about: SubjectInfo, node: String, machine: Box<Machine> },
    Done,
    Measured { sample: Box<Sample> },
    Failed { why: String, unreachable: bool, corrupt: bool },
}
