//! Collects data for a maintainer, and nothing secret.

mod redact;

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use redact::Redactor;
use vouch_daemon::printable::printable;
use vouch_daemon::status_client;

use super::status::MachineStatus;
use crate::cli::Global;
use crate::exit::{At as _, Outcome};
use crate::{cli, output, when};

/// Write a report for the maintainers: versions, kernel, configuration, status, recent log.
///
/// Key files, keytabs and credentials are not read. Of configuration files, only the known options
/// are copied; user names and passwords in URLs are left out. The report names hosts, paths, trees
/// and clients: read it before you send it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  vouch bugreport                  writes vouch-bugreport-TIME.txt here\n  vouch bugreport --out -          prints it\n\n\
                        Root sees all daemons and the system's log; another user only the own ones."
)]
pub(crate) struct Args {
    /// File to write, readable by its owner only; `-` is standard output.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Most lines of the system's log.
    #[arg(long, value_name = "N", default_value_t = 500)]
    log_lines: u32,
}

pub(crate) fn run(args: Args, global: &Global) -> Outcome {
    let redactor = Redactor::new(&cli::command());
    let report = Report { text: String::new(), redactor }.collect(&args, global)?;
    let out = args.out.unwrap_or_else(|| format!("vouch-bugreport-{}.txt", when::utc(when::now_s()).replace(':', "")).into());
    if out.as_os_str() == "-" {
        return output::text(&report);
    }
    let mut file = fs::File::options().write(true).create_new(true).mode(0o600).open(&out).at(out.display())?;
    file.write_all(report.as_bytes()).at(out.display())?;
    output::text(&format!("{}: written; read it before you send it\n", out.display()))
}

struct Report {
    text: String,
    redactor: Redactor,
}

impl Report {
    fn collect(mut self, args: &Args, global: &Global) -> Outcome<String> {
        self.section("vouch", &format!("{} {}, made {}", env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), when::utc(when::now_s())));
        self.system();
        self.configuration(global.config.as_deref().unwrap_or(Path::new(CONFIGURATION)));
        self.processes();
        self.directories(&["/var/lib/vouch", "/var/lib/vouch/export", "/var/cache/vouch", "/run/vouch"]);
        let machine = MachineStatus::read()?;
        let json = serde_json::to_string_pretty(&machine).unwrap_or_else(|error| error.to_string());
        self.section("status of the daemons", &json);
        for daemon in &machine.daemons {
            let metrics = status_client::metrics(&daemon.socket).unwrap_or_else(|error| error.to_string());
            let samples: Vec<_> = metrics.lines().filter(|line| !line.starts_with('#')).collect();
            self.section(&format!("metrics of {} {}", daemon.status.kind.name(), daemon.status.pid), &samples.join("\n"));
        }
        self.command(
            "log of the system",
            "journalctl",
            &["--unit=vouch*", "--no-pager", "--output=short-iso", &format!("--lines={}", args.log_lines)],
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
            &format!("{} {} {} {}", part(name.sysname()), part(name.release()), part(name.version()), part(name.machine())),
        );
        self.lines("distribution", "/etc/os-release", |line| line.starts_with("PRETTY_NAME") || line.starts_with("VERSION"));
        self.lines("memory", "/proc/meminfo", |line| ["MemTotal", "MemAvailable", "SwapFree"].iter().any(|name| line.starts_with(name)));
        self.lines("mounts", "/proc/self/mountinfo", |line| line.contains("vouch:") || line.contains(" nfs4 "));
        self.lines("security modules", "/sys/kernel/security/lsm", |_| true);
        self.lines("limits", "/proc/self/limits", |line| line.contains("open files") || line.contains("locked memory"));
        let device = fs::metadata("/dev/fuse")
            .map_or_else(|error| error.to_string(), |found| format!("mode {:o}, user {}", found.mode(), found.uid()));
        self.section("/dev/fuse", &device);
        self.command("fusermount3", "fusermount3", &["-V"]);
        let kerberos = vouch_gss_mit::available().map_or_else(|fault| fault.to_string(), |()| "the library is there".to_owned());
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
            let is_ours = fs::read_to_string(entry.path().join("comm")).is_ok_and(|name| name.trim_end() == "vouch");
            if let (true, Ok(line)) = (is_ours, fs::read(entry.path().join("cmdline"))) {
                let words: Vec<_> = line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
                let _ = writeln!(text, "{} {}", entry.file_name().to_string_lossy(), self.redactor.command_line(&words));
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
                    let _ = writeln!(text, "{:o} {} {} {}", found.mode(), found.uid(), found.len(), entry.file_name().to_string_lossy());
                }
            }
            if !text.is_empty() {
                self.section(&format!("files in {directory}"), &text);
            }
        }
    }

    fn command(&mut self, title: &str, program: &str, args: &[&str]) {
        let output = Command::new(program).args(args).stdin(Stdio::null()).stderr(Stdio::null()).output();
        let text = output.map_or_else(|error| format!("{program}: {error}"), |output| String::from_utf8_lossy(&output.stdout).into_owned());
        self.section(title, &text);
    }
}

/// Files of options. Directories of keys have other files.
fn files_below(directory: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && depth > 0 => files_below(&path, depth - 1, files),
            Ok(kind) if kind.is_file() && path.extension().is_some_and(|end| end == "toml" || end == "env") => files.push(path),
            _ => {}
        }
    }
}

const CONFIGURATION: &str = "/etc/vouch";

const DEPTH_MAX: usize = 3;
const FILES_MAX: usize = 256;
const FILE_LEN_MAX: usize = 64 * 1024;
