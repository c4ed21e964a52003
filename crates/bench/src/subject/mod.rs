//! What cases are measured on.

mod meter;

pub use meter::Meter;

use serde::{Deserialize, Serialize};

use crate::{Case, Error, Sample};

/// Something that cases are measured on: a server under one flavour, a mounted directory, a program that copies.
pub trait Subject: Send {
    /// What the report says of it.
    fn about(&self) -> About;

    /// Why it can't do a case; nothing if it can.
    fn lacks(&self, case: &Case) -> Option<String>;

    /// Makes ready what the case needs and is not part of it.
    fn prepare(&mut self, case: &Case) -> Result<(), Error>;

    /// Measures it once. Everything that is read is compared with what was written.
    fn measure(&mut self, case: &Case) -> Result<Sample, Error>;

    /// Removes what was made for cases so far that later ones don't need.
    fn tidy(&mut self) -> Result<(), Error>;

    /// Removes everything that was made; also after an interruption.
    fn clean(&mut self) -> Result<(), Error>;
}

/// What the report says of a subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Its name in tables and plots; no two of a run have the same.
    pub label: String,
    /// The target, as it was written.
    pub target: String,
    /// The flavour, where there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sec: Option<String>,
    /// Anything else that its figures depend on: mount options, encryption, connections.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub details: Vec<String>,
}
