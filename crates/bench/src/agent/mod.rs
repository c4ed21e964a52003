//! Load from many nodes: an agent on each ([`serve`]), which does benchmark work and nothing else
//! for who proves to be allowed, and a subject that lets all of them measure at once
//! ([`FleetSubject`]).

mod fleet;
mod node;
mod wire;

pub use fleet::{Fleet, FleetSubject};
pub use node::{Limits, serve};
pub use wire::{Acceptor, Credential};

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::nfs::NfsOptions;
use crate::subject::About;
use crate::{Case, Sample};

/// What a coordinator asks.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Ask {
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
enum Answer {
    /// It is connected.
    Opened { about: About, node: String, machine: Box<Machine> },
    /// It is done.
    Done,
    /// What it measured.
    Measured { sample: Box<Sample> },
    /// It went wrong; and whether the server can't be reached, the data was not what was written.
    Failed { why: String, unreachable: bool, corrupt: bool },
}
