//! What cases are measured on.

mod child_process;
pub mod compile;
mod connections;
mod cpu_meter;
mod file_reads;
mod fio;
mod fuse_daemon;
mod kernel_audit;
mod mount;
mod private_export;
mod recording_proxy;
mod replay;
mod scp;
mod sshd;
mod web_server;

pub use child_process::{ChildProcess, terminate_all};
pub use connections::{ConnectSubject, Request};
pub use cpu_meter::CpuMeter;
pub use file_reads::{DropCaches, ReadSubject, prepare};
pub use kernel_audit::{AuditGuard, AuditSubject, Rules};
pub use mount::{MountOptions, MountSubject};
pub use private_export::{AuditMode, ExportSubject};
pub use recording_proxy::RecordingProxy;
pub use replay::{AnswerCheck, ReplaySubject, ReplyCheck};
pub use scp::ScpSubject;
pub use sshd::Sshd;
pub use web_server::WebServer;

use serde::{Deserialize, Serialize};

use crate::{Case, Error, Sample};

/// Something that cases are measured on: a server under one flavour, a mounted directory, a program
/// that copies.
pub trait Subject: Send {
    /// What the report says of it.
    fn info(&self) -> SubjectInfo;

    /// Why it can't do a case; nothing if it can.
    fn unsupported(&self, case: &Case) -> Option<String>;

    /// How far what the case writes has come when a write counts as done, where that is not "stored
    /// for good": subjects that differ in it do not do the same work, and have no ratio to each
    /// other.
    fn stored(&self, _case: &Case) -> Option<&'static str> {
        None
    }

    /// Makes ready what the case needs and is not part of it.
    fn prepare(&mut self, case: &Case) -> Result<(), Error>;

    /// Measures it once. What is read is compared with what was written, by fio by sums alone;
    /// answers by TLS are counted only.
    fn measure(&mut self, case: &Case) -> Result<Sample, Error>;

    /// Removes what was made for cases so far that later ones don't need.
    fn tidy(&mut self) -> Result<(), Error>;

    /// Where that is what is made, if it is left behind.
    fn place(&self) -> Option<String> {
        None
    }

    /// Removes everything that was made; also after an interruption.
    fn clean(&mut self) -> Result<(), Error>;
}

/// What the report says of a subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubjectInfo {
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

/// Waits for a program's end; ends it when somebody asks to stop.
pub(crate) fn wait(child: &mut std::process::Child, stop: &crate::StopFlag) -> std::io::Result<std::process::ExitStatus> {
    // So long is a program let alone that ends by itself soon: a sleep would be part of what is
    // measured.
    for pause_us in (0u64..).map(|turn| (50 << turn.min(5)).min(1000)) {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if stop.is_set() {
            child.kill()?;
            return child.wait();
        }
        std::thread::sleep(std::time::Duration::from_micros(pause_us));
    }
    unreachable!("the turns do not end")
}
