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
mod interface;
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
pub use interface::{Subject, SubjectInfo};
pub use kernel_audit::{AuditGuard, AuditSubject, Rules};
pub use mount::{MountOptions, MountSubject};
pub use private_export::{AuditMode, ExportSubject};
pub(crate) use recording_proxy::RecordingProxy;
pub(crate) use replay::{ReplaySubject, ReplyCheck};
pub use scp::ScpSubject;
pub(crate) use sshd::Sshd;
pub(crate) use web_server::WebServer;
