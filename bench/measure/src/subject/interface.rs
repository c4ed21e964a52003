//! What all systems under test do.

use serde::{Deserialize, Serialize};

use crate::{Case, Error, Sample};

pub trait Subject: Send {
    fn info(&self) -> SubjectInfo;

    fn unsupported(&self, case: &Case) -> Option<String>;

    /// Durability of completed writes; `None`: stable storage. Subjects that differ in it have no
    /// ratio to each other.
    fn stored(&self, _case: &Case) -> Option<&'static str> {
        None
    }

    fn prepare(&mut self, case: &Case) -> Result<(), Error>;

    /// Compares data read with data written, except by fio (checksums) and over TLS (not compared).
    fn measure(&mut self, case: &Case) -> Result<Sample, Error>;

    fn tidy(&mut self) -> Result<(), Error>;

    fn place(&self) -> Option<String> {
        None
    }

    fn clean(&mut self) -> Result<(), Error>;
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubjectInfo {
    pub label: String,
    pub target: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sec: Option<String>,
    /// Settings that figures depend on: mount options, encryption, connections.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub details: Vec<String>,
}
