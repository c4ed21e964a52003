//! A report for the maintainers: versions, kernel, configuration, status, recent log. Nothing secret.

mod redact;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use redact::Redactor;
use vouch_daemon::failure::Outcome;
use vouch_daemon::printable::printable;
use vouch_daemon::status_client;
use vouch_tree::time_text::Utc;

use crate::{MachineStatus, now_s};

/// What to put into a report.
pub struct BugReport<'a> {
    /// Names of all options; other settings in configuration files are left out.
    pub options: BTreeSet<String>,
    /// Configuration file or directory, if not the system's.
    pub configuration: Option<&'a Path>,
    /// Most lines of the system's log.
    pub log_lines: u32,
}

impl BugReport<'_> {
    /// Collects the report.
    ///
    /// # Errors
    /// Those of the daemons' status.
    pub fn collect(&self) -> Outcome<String> {
        Report { text: String::new(), redactor: Redactor::new(self.options.clone()) }.collect(self)
    }
}

/// A report in the making.
struct Report {
    text: String,
    redactor: Redactor,
}

impl Report {
    fn collect(mut self, request: &BugReport<'_>) -> Outcome<String> {
        self.section(
            "vouch",
            &format!("vouch {}, made {}", env!("CARGO_PKG_VERSION"), Utc(now_s())),
        );
        self.system();
        self.configuration(request.configuration.unwrap_or(Path::new(CONFIGURATION)));
        self.processes();
        self.directories(&[
            "/var/lib/vouch",
            "/var/lib/vouch/export",
            "/var/cache/vouch",
            "/run/vouch",
        ]);
        let machine = MachineStatus::read()?;
        let json = serde_json::to_string_pretty(&machine).unwrap_or_else(|error| error.to_string());
        self.section("status of the daemons", &json);
        for daemon in &machine.daemons {
            let metrics =
                status_client::metrics(&daemon.socket).unwrap_or_else(|error| error.to_string());
            let samples: Vec<_> = metrics.lines().filter(|line| !line.starts_with('#')).collect();
            self.section(
                &format!("metrics of {} {}", daemon.status.kind.name(), daemon.status.pid),
                &samples.join("\n"),
            );
        }
        self.command(
            "log of the system",
            "journalctl",
            &[
                "--unit=vouch*",
                "--no-pager",
                "--output=short-iso",
                &format!("--lines={}", request.log_lines),
            ],
        );
        self.command(
            "kernel messages about FUSE and memory",
            "sh",
            &["-c", "dmesg 2>/dev/null | grep -iE 'fuse|vouch|oom|out of memory' | tail -n 50"],
        );
        Ok(self.text)
    }

    /// Leaves out secrets and control characters.
    fn section(&mut self, title: &str, text: &str) {
        let _ = writeln!(self.text, "== {title}");
        for line in self.redactor.text(text).lines() {
            let _ = writeln!(self.text, "{}", printable(line.as_bytes()));
        }
        self.text.push('\n');
    }

    fn system(&mut self) {
        let name = rustix::system::uname();
        let part = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        self.section(
            "kernel",
            &format!(
                "{} {} {} {}",
                part(name.sysname()),
                part(name.release()),
                part(name.version()),
                part(name.machine())
            ),
        );
        self.lines("distribution", "/etc/os-release", |line| {
            line.starts_with("PRETTY_NAME") || line.starts_with("VERSION")
        });
        self.lines("memory", "/proc/meminfo", |line| {
            ["MemTotal", "MemAvailable", "SwapFree"].iter().any(|name| line.starts_with(name))
        });
        self.lines("mounts", "/proc/self/mountinfo", |line| {
            line.contains("vouch:") || line.contains(" nfs4 ")
        });
        self.lines("security modules", "/sys/kernel/security/lsm", |_| true);
        self.lines("limits", "/proc/self/limits", |line| {
            line.contains("open files") || line.contains("locked memory")
        });
        let device = fs::metadata("/dev/fuse").map_or_else(
            |error| error.to_string(),
            |found| format!("mode {:o}, user {}", found.mode(), found.uid()),
        );
        self.section("/dev/fuse", &device);
        self.command("fusermount3", "fusermount3", &["-V"]);
        let kerberos = vouch_gss_mit::available()
            .map_or_else(|fault| fault.to_string(), |()| "the library is there".to_owned());
        self.section("Kerberos", &kerberos);
    }

    fn lines(&mut self, title: &str, file: &str, wanted: impl Fn(&str) -> bool) {
        let text = fs::read_to_string(file).unwrap_or_else(|error| format!("{file}: {error}"));
        let lines: Vec<_> = text.lines().filter(|line| wanted(line)).collect();
        self.section(title, &lines.join("\n"));
    }

    fn configuration(&mut self, directory: &Path) {
        let mut files = Vec::new();
        if directory.is_file() {
            files.push(directory.to_owned());
        }
        files_below(directory, DEPTH_MAX, &mut files);
        files.sort();
        for file in files.into_iter().take(FILES_MAX) {
            let text = fs::read(&file).map_or_else(
                |error| error.to_string(),
                |bytes| {
                    let start = &bytes[..bytes.len().min(FILE_LEN_MAX)];
                    self.redactor.configuration(&String::from_utf8_lossy(start))
                },
            );
            self.section(&format!("configuration {}", file.display()), &text);
        }
    }

    /// Processes of this program.
    fn processes(&mut self) {
        let mut text = String::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let is_ours = fs::read_to_string(entry.path().join("comm"))
                .is_ok_and(|name| name.trim_end() == "vouch");
            if let (true, Ok(line)) = (is_ours, fs::read(entry.path().join("cmdline"))) {
                let words: Vec<_> = line
                    .split(|byte| *byte == 0)
                    .map(|word| String::from_utf8_lossy(word).into_owned())
                    .collect();
                let _ = writeln!(
                    text,
                    "{} {}",
                    entry.file_name().to_string_lossy(),
                    self.redactor.command_line(&words)
                );
            }
        }
        self.section("processes", &text);
    }

    /// Names, modes and sizes; never content.
    fn directories(&mut self, directories: &[&str]) {
        for directory in directories {
            let mut text = String::new();
            for entry in fs::read_dir(directory).into_iter().flatten().flatten().take(FILES_MAX) {
                if let Ok(found) = entry.metadata() {
                    let _ = writeln!(
                        text,
                        "{:o} {} {} {}",
                        found.mode(),
                        found.uid(),
                        found.len(),
                        entry.file_name().to_string_lossy()
                    );
                }
            }
            if !text.is_empty() {
                self.section(&format!("files in {directory}"), &text);
            }
        }
    }

    fn command(&mut self, title: &str, program: &str, args: &[&str]) {
        let output =
            Command::new(program).args(args).stdin(Stdio::null()).stderr(Stdio::null()).output();
        let text = output.map_or_else(
            |error| format!("{program}: {error}"),
            |output| String::from_utf8_lossy(&output.stdout).into_owned(),
        );
        self.section(title, &text);
    }
}

/// Files of options. Directories of keys have other files.
fn files_below(directory: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && depth > 0 => files_below(&path, depth - 1, files),
            Ok(kind)
                if kind.is_file()
                    && path.extension().is_some_and(|end| end == "toml" || end == "env") =>
            {
                files.push(path)
            }
            _ => {}
        }
    }
}

const CONFIGURATION: &str = "/etc/vouch";

const DEPTH_MAX: usize = 3;
const FILES_MAX: usize = 256;
const FILE_LEN_MAX: usize = 64 * 1024;
