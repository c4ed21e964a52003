//! Started for each round: without audit, with an audit trail, or with the kernel's audit of its
//! directory.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::kernel_audit::{AuditGuard, COST, Cost, Watch, switches};
use super::{ChildProcess, SubjectInfo};
use crate::cpu::ServerCpu;
use crate::nfs::{NfsOptions, NfsSubject};
use crate::target::{NfsTarget, Sec};
use crate::{Case, Error, Sample, StopFlag, Subject};

pub enum AuditMode {
    None,
    Trail,
    Kernel(AuditGuard),
}

pub struct ExportSubject {
    program: PathBuf,
    directory: PathBuf,
    audited: AuditMode,
    dir: Option<tempfile::TempDir>,
    stop: StopFlag,
}

impl ExportSubject {
    pub fn new(program: &Path, directory: &Path, audited: AuditMode, stop: &StopFlag) -> Self {
        Self {
            program: program.to_owned(),
            directory: directory.to_owned(),
            audited,
            dir: None,
            stop: stop.clone(),
        }
    }

    fn run(&self, args: &[&str], path: &Path) -> Result<String, Error> {
        let output = Command::new(&self.program).args(args).arg(path).stdin(Stdio::null()).output();
        let output = output
            .map_err(|error| Error::Program(format!("{}: {error}", self.program.display())))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
            false => Err(Error::Program(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
        }
    }

    fn trail_counts(&self, public: &str, trail: &Path) -> Result<[(String, f64); 2], Error> {
        self.run(&["audit", "verify", "--public", public], trail)?;
        let report = self.run(&["audit", "report", "--json"], trail)?;
        let report: serde_json::Value = serde_json::from_str(&report)
            .map_err(|error| Error::Program(format!("audit report: {error}")))?;
        let number =
            |name: &str| report.get(name).and_then(serde_json::Value::as_f64).unwrap_or(0.0);
        Ok([("records".into(), number("records")), ("records lost".into(), number("lost"))])
    }
}

struct Server {
    child: ChildProcess,
    port: u16,
}

impl Server {
    fn start(mut command: Command) -> Result<Self, Error> {
        let failed = |error: std::io::Error| Error::Program(format!("vouch export: {error}"));
        let child = ChildProcess::start(
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()),
        )
        .map_err(failed)?;
        let mut server = Self { child, port: 0 };
        let mut line = String::new();
        let read = server.child.stdout.take().map(|read| BufReader::new(read).read_line(&mut line));
        read.transpose().map_err(failed)?;
        let port = line.trim().rsplit(':').next().and_then(|port| port.parse().ok());
        server.port = port.ok_or_else(|| Error::Program("vouch export did not start".into()))?;
        Ok(server)
    }

    fn end(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

impl ExportSubject {
    fn connect(&self, server: &Server, depth: u32) -> Result<NfsSubject, Error> {
        let options = NfsOptions {
            label: self.info().label,
            target: NfsTarget {
                host: "127.0.0.1".into(),
                port: server.port,
                path: vec!["export".into()],
            },
            sec: Sec::Sys,
            service: None,
            tls: None,
            sessions: 1,
            connections: 1,
            slots: depth as usize,
            server_cpu: Some(ServerCpu::Process(server.child.id())),
            not_empty: false,
        };
        NfsSubject::connect(options, &self.stop)
    }
}

impl Subject for ExportSubject {
    fn info(&self) -> SubjectInfo {
        let (label, detail) = match self.audited {
            AuditMode::None => ("export", "no audit"),
            AuditMode::Trail => (
                "export, trail",
                "vouch export --audit, every operation, policy count, synced each second",
            ),
            AuditMode::Kernel(_) => (
                "export, kernel",
                "auditctl -w DIR -p rwxa on the exported directory; server CPU includes auditd and kauditd where they can be read",
            ),
        };
        let details = vec![detail.to_owned(), "NFSv4.1 from user space".to_owned()];
        SubjectInfo {
            label: label.into(),
            target: format!("a private export below {}", self.directory.display()),
            sec: Some("sys".into()),
            details,
        }
    }

    fn unsupported(&self, case: &Case) -> Option<String> {
        (!matches!(case, Case::Changes { .. }))
            .then(|| "this subject measures only file changes".into())
    }

    fn prepare(&mut self, _case: &Case) -> Result<(), Error> {
        Ok(())
    }

    fn measure(&mut self, case: &Case) -> Result<Sample, Error> {
        let dir = tempfile::Builder::new()
            .prefix(crate::nfs::PREFIX)
            .tempdir_in(&self.directory)
            .map_err(Error::file(&self.directory))?;
        let path = |name: &str| dir.path().join(name);
        fs::create_dir(path("files")).map_err(Error::file(dir.path()))?;
        let rules = match self.audited {
            AuditMode::Kernel(_) => Some(Watch::begin(&path("files"))?),
            _ => None,
        };
        let mut command = Command::new(&self.program);
        command.args([
            "export",
            "--listen",
            "127.0.0.1:0",
            "--pseudo",
            "/export",
            "--options",
            "rw,no_root_squash,insecure",
            "--dir",
        ]);
        command.arg(path("files")).arg("--state").arg(path("state"));
        let public = match self.audited {
            AuditMode::Trail => {
                command.arg("--audit").arg(path("trail"));
                Some(self.run(&["audit", "keygen"], &path("trail"))?)
            }
            _ => None,
        };
        let mut server = Server::start(command)?;
        let mut export = self.connect(&server, case.depth())?;
        let cost = rules.as_ref().map(|_| Cost::begin());
        let before = switches();
        let measured = export.measure(case);
        let after = switches();
        let cost = cost.and_then(Cost::end);
        let cleaned = export.clean();
        drop(export);
        server.end();
        let mut sample = measured?;
        cleaned?;
        sample.others.extend([
            ("context switches".to_owned(), after.0 - before.0),
            ("interrupts".to_owned(), after.1 - before.1),
        ]);
        if let Some(rules) = rules {
            sample.others.push(("records lost".to_owned(), rules.end()?));
        }
        if let Some(seconds) = cost {
            sample.others.push((COST.to_owned(), seconds));
            // The server's time already includes the threads of the trail.
            sample.server_cpu_s = sample.server_cpu_s.map(|server| server + seconds);
        }
        if let Some(public) = public {
            sample.others.extend(self.trail_counts(&public, &path("trail"))?);
        }
        self.dir = Some(dir);
        Ok(sample)
    }

    fn tidy(&mut self) -> Result<(), Error> {
        self.dir.take().map_or(Ok(()), |dir| dir.close().map_err(Error::file(&self.directory)))
    }

    fn clean(&mut self) -> Result<(), Error> {
        self.tidy()
    }
}
