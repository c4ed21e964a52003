//! Systems under test.

mod capp_rules;
mod child_process;
mod closure;
pub(crate) mod compile;
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

pub(crate) use child_process::ChildProcess;
pub use child_process::terminate_all;
pub(crate) use closure::{ClosureSubject, Measurement};
pub(crate) use connections::{ConnectSubject, Request};
pub(crate) use cpu_meter::CpuMeter;
pub(crate) use file_reads::{DropCaches, PROJECT, ReadSubject, prepare};
pub use kernel_audit::{AuditGuard, AuditSubject, Rules};
pub use mount::{MountOptions, MountSubject};
pub use private_export::{AuditMode, ExportSubject};
pub(crate) use recording_proxy::RecordingProxy;
pub(crate) use replay::{ReplaySubject, ReplyCheck};
pub use scp::ScpSubject;
pub(crate) use sshd::Sshd;
pub(crate) use web_server::WebServer;

use serde::{Deserialize, Serialize};

use crate::{Case, Error, Sample};

pub trait Subject: Send {
    fn info(&self) -> SubjectInfo;

    /// The reason why the subject does not support a case.
    fn unsupported(&self, case: &Case) -> Option<String>;

    /// Durability of completed writes. None means stable storage. Subjects that differ in this have
    /// no ratio to each other.
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

/// A stop request kills the child.
pub(crate) fn wait(child: &mut std::process::Child, stop: &crate::StopFlag) -> std::io::Result<std::process::ExitStatus> {
    // Short pauses at first, because a long one would be measured.
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
