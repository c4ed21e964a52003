//! Work runs in its own process, because the kernel audits only processes that start after it was
//! enabled.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::capp_rules::{calls_rule, capp_rules, watch};
use super::child_process::{CleanupHook, wait};
use super::{ChildProcess, CpuMeter, SubjectInfo};
use crate::cpu::{self, ServerCpu};
use crate::workload::Mpi;
use crate::workload::audit::WorkReport;
use crate::{Case, Error, Sample, StopFlag, Subject};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    Off,
    Watches,
    SystemCalls,
    Capp,
}

impl Rules {
    pub const ALL: [Self; 4] = [Self::Off, Self::Watches, Self::SystemCalls, Self::Capp];

    const fn label(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Watches => "file watches",
            Self::SystemCalls => "system calls",
            Self::Capp => "CAPP",
        }
    }

    fn arguments(self, directory: &Path) -> Vec<Vec<String>> {
        match self {
            Self::Off => Vec::new(),
            Self::Watches => vec![watch(&directory.display().to_string(), "rwxa")],
            Self::SystemCalls => vec![calls_rule("b64", CHANGES.iter())],
            Self::Capp => capp_rules(),
        }
    }
}

pub struct AuditSubject {
    rules: Rules,
    directory: PathBuf,
    dir: Option<tempfile::TempDir>,
    worker: Vec<OsString>,
    mpi: Option<Arc<Mpi>>,
    _guard: Option<AuditGuard>,
    stop: StopFlag,
}

/// Exclusive use of the kernel's audit. Dropping it removes all rules and turns audit off.
pub struct AuditGuard {
    daemon: ChildProcess,
    _undo: CleanupHook,
    _configuration: tempfile::TempDir,
}

impl AuditGuard {
    pub fn take() -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("only root may change the kernel's audit rules".into());
        }
        let status = auditctl(&["-s"])
            .map_err(|error| format!("auditctl: {error} (package auditd; CAP_AUDIT_CONTROL)"))?;
        let field = |name: &str| {
            status.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<i64>().ok())
        };
        if field("enabled ").is_none_or(|enabled| enabled != 0)
            || field("pid ").is_some_and(|pid| pid != 0)
        {
            return Err("the kernel's audit is in use on this machine, and the benchmark would change its rules".into());
        }
        if auditctl(&["-l"]).is_ok_and(|rules| !rules.contains("No rules")) {
            return Err("this machine has audit rules".into());
        }
        let configuration = tempfile::tempdir().map_err(|error| error.to_string())?;
        let path = |name: &str| configuration.path().join(name).display().to_string();
        let text = format!(
            "log_file = {}\nlog_format = RAW\nflush = INCREMENTAL_ASYNC\nfreq = 50\nmax_log_file = 256\nmax_log_file_action = rotate\nnum_logs = 2\nlocal_events = yes\nname_format = none\nspace_left = 75\nspace_left_action = ignore\nadmin_space_left = 50\nadmin_space_left_action = ignore\ndisk_full_action = ignore\ndisk_error_action = ignore\nverify_email = no\n",
            path("log")
        );
        fs::write(path("auditd.conf"), text).map_err(|error| error.to_string())?;
        let mut daemon = Command::new("auditd");
        daemon
            .args(["-n", "-s", "nochange", "-c"])
            .arg(configuration.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let daemon =
            ChildProcess::start(&mut daemon).map_err(|error| format!("auditd: {error}"))?;
        let mut guard = Self {
            daemon,
            _undo: CleanupHook::at_the_end(release_audit),
            _configuration: configuration,
        };
        let start = Instant::now();
        while start.elapsed() < AUDITD_TIMEOUT
            && guard.daemon.try_wait().is_ok_and(|status| status.is_none())
        {
            if auditctl(&["-s"])
                .is_ok_and(|status| status.contains(&format!("pid {}", guard.daemon.id())))
            {
                return Ok(guard);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err("auditd did not start".into())
    }
}

impl Drop for AuditGuard {
    fn drop(&mut self) {
        release_audit();
        // Repeat SIGTERM, because auditd ignores it while it starts.
        let start = Instant::now();
        while start.elapsed() < AUDITD_TIMEOUT
            && self.daemon.try_wait().is_ok_and(|status| status.is_none())
        {
            if let Some(pid) = rustix::process::Pid::from_raw(self.daemon.id().cast_signed()) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

impl AuditSubject {
    pub fn new(
        rules: Rules,
        directory: &Path,
        worker: Vec<OsString>,
        guard: Option<AuditGuard>,
        stop: &StopFlag,
    ) -> Self {
        Self {
            rules,
            directory: directory.to_owned(),
            dir: None,
            worker,
            mpi: None,
            _guard: guard,
            stop: stop.clone(),
        }
    }
}

impl AuditSubject {
    pub fn with_mpi(self, mpi: Option<Arc<Mpi>>) -> Self {
        Self { mpi, ..self }
    }
}

impl Subject for AuditSubject {
    fn info(&self) -> SubjectInfo {
        let details = self
            .rules
            .arguments(&self.directory)
            .iter()
            .map(|rule| format!("auditctl {}", rule.join(" ")))
            .collect();
        SubjectInfo {
            label: self.rules.label().into(),
            target: format!("the kernel's audit, {}", self.directory.display()),
            sec: None,
            details,
        }
    }

    fn unsupported(&self, case: &Case) -> Option<String> {
        (!matches!(case, Case::Audit { .. })).then(|| "this subject measures only audit".into())
    }

    fn prepare(&mut self, _case: &Case) -> Result<(), Error> {
        Ok(())
    }

    fn measure(&mut self, case: &Case) -> Result<Sample, Error> {
        let Case::Audit { work, files } = case else {
            return Err(Error::Input("this subject measures only audit".into()));
        };
        // A new directory for each round, because some file systems are slow after many removals.
        let dir = tempfile::Builder::new()
            .prefix(crate::nfs::PREFIX)
            .tempdir_in(&self.directory)
            .map_err(Error::file(&self.directory))?;
        set_rules(self.rules, dir.path())?;
        let (before, lost, cost) = (switches(), lost_record_count(), Cost::begin());
        let meter = CpuMeter::start(None, false)?;
        let start = Instant::now();
        let mut command = match &self.mpi {
            Some(mpi) if work.is_mpi() => mpi.command(*work, *files, dir.path()),
            _ => {
                let mut command = Command::new(&self.worker[0]);
                command
                    .args(&self.worker[1..])
                    .arg(work.name())
                    .arg(files.to_string())
                    .arg(dir.path());
                command
            }
        };
        let mut output = tempfile::tempfile().map_err(Error::io("temporary file"))?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(Error::io("temporary file"))?)
            .spawn()
            .map_err(|error| Error::Program(format!("{}: {error}", self.worker[0].display())))?;
        let status =
            wait(&mut child, &self.stop).map_err(|error| Error::Program(error.to_string()))?;
        let mut sample = Sample {
            seconds: start.elapsed().as_secs_f64(),
            operations: *files,
            ..Sample::default()
        };
        let mut text = String::new();
        output
            .rewind()
            .and_then(|()| output.read_to_string(&mut text))
            .map_err(Error::io("temporary file"))?;
        WorkReport::parse(&text).into_iter().for_each(|report| report.apply(&mut sample));
        meter.end(&mut sample)?;
        let after = switches();
        let others = [
            ("context switches", after.0 - before.0),
            ("interrupts", after.1 - before.1),
            ("records lost", self::lost_record_count() - lost),
        ];
        sample.others.extend(others.into_iter().map(|(name, count)| (name.to_owned(), count)));
        sample.others.extend(cost.end().map(|seconds| (COST.to_owned(), seconds)));
        auditctl(&["-D"]).map_err(refused)?;
        self.dir = Some(dir);
        match status.success() {
            _ if self.stop.is_set() => Err(Error::Interrupted),
            true => Ok(sample),
            false => Err(Error::Program("the audited work failed".into())),
        }
    }

    fn tidy(&mut self) -> Result<(), Error> {
        self.dir.take().map_or(Ok(()), |dir| dir.close().map_err(Error::file(&self.directory)))
    }

    fn clean(&mut self) -> Result<(), Error> {
        self.tidy()
    }
}

fn release_audit() {
    let _ = auditctl(&["-D"]);
    let _ = auditctl(&["-e", "0"]);
}

fn auditctl(args: &[&str]) -> io::Result<String> {
    let output = Command::new("auditctl").args(args).stdin(Stdio::null()).output()?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}

pub(super) struct Watch {
    lost: f64,
}

impl Watch {
    pub(super) fn begin(directory: &Path) -> Result<Self, Error> {
        set_rules(Rules::Watches, directory)?;
        Ok(Self { lost: lost_record_count() })
    }

    pub(super) fn end(self) -> Result<f64, Error> {
        set_rules(Rules::Off, Path::new("/"))?;
        Ok(lost_record_count() - self.lost)
    }
}

fn set_rules(rules: Rules, directory: &Path) -> Result<(), Error> {
    auditctl(&["-D"]).map_err(refused)?;
    auditctl(&["-e", if rules == Rules::Off { "0" } else { "1" }]).map_err(refused)?;
    for rule in rules.arguments(directory) {
        auditctl(&rule.iter().map(String::as_str).collect::<Vec<_>>()).map_err(refused)?;
    }
    Ok(())
}

pub(super) struct Cost {
    processes: Vec<ServerCpu>,
    before: Option<f64>,
}

impl Cost {
    pub(super) fn begin() -> Self {
        let daemon = status("pid").filter(|pid| *pid > 0.0).map(|pid| pid as u32);
        Self::of([daemon, cpu::kernel_thread("kauditd")])
    }

    /// A part would look like the whole.
    fn of(processes: [Option<u32>; 2]) -> Self {
        let processes: Option<Vec<ServerCpu>> =
            processes.into_iter().map(|pid| pid.map(ServerCpu::Process)).collect();
        let before = processes.as_deref().and_then(cpu_time_s);
        Self { processes: processes.unwrap_or_default(), before }
    }

    pub(super) fn end(self) -> Option<f64> {
        let before = self.before?;
        let start = Instant::now();
        while status("backlog").is_some_and(|records| records > 0.0)
            && start.elapsed() < AUDITD_TIMEOUT
        {
            std::thread::sleep(Duration::from_millis(20));
        }
        cpu_time_s(&self.processes).map(|now| (now - before).max(0.0))
    }
}

fn cpu_time_s(processes: &[ServerCpu]) -> Option<f64> {
    processes.iter().map(|one| one.seconds().ok()).sum()
}

fn refused(error: io::Error) -> Error {
    Error::Program(format!("auditctl: {error}"))
}

pub(super) fn switches() -> (f64, f64) {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let first = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
            .unwrap_or(0.0)
    };
    (first("ctxt "), first("intr "))
}

fn lost_record_count() -> f64 {
    status("lost").unwrap_or(0.0)
}

fn status(name: &str) -> Option<f64> {
    let status = auditctl(&["-s"]).ok()?;
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

pub(super) const COST: &str = "kernel audit CPU (s)";

const CHANGES: [&str; 19] = [
    "open",
    "openat",
    "creat",
    "truncate",
    "ftruncate",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "chmod",
    "fchmod",
    "fchmodat",
    "chown",
    "fchown",
    "lchown",
    "fchownat",
    "setxattr",
    "removexattr",
];
const AUDITD_TIMEOUT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_needs_both_processes() {
        let dir = std::process::id();
        let cost = Cost::of([Some(dir), Some(dir)]);
        let (start, mut state) = (cpu::own_s(), 1);
        while cpu::own_s() - start < 0.05 {
            (0..10_000).for_each(|_| state = crate::content::mix(state));
        }
        assert!(state != 0);
        assert!(cost.end().expect("a process that is there") >= 0.1);
        assert_eq!(Cost::of([Some(dir), None]).end(), None);
    }

    #[test]
    fn watches_cover_only_directory() {
        assert!(Rules::Off.arguments(Path::new("/x")).is_empty());
        assert_eq!(Rules::Watches.arguments(Path::new("/x")), [["-w", "/x", "-p", "rwxa"]]);
        assert!(
            Rules::Capp.arguments(Path::new("/x")).len()
                > Rules::SystemCalls.arguments(Path::new("/x")).len()
        );
    }
}
