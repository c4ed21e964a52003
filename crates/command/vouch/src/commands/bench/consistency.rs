use std::io;
use std::path::{Path, PathBuf};

use vouch_bench::StopFlag;
use vouch_bench::target::{NfsTarget, Sec, Target};
use vouch_consistency::history::History;
use vouch_consistency::shrink::shrink;
use vouch_consistency::{Kind, Options, Server, Verdict, Violation, check, mounted, report};

use super::subjects::ServerAccess;
use crate::exit::{At as _, Code, Failure, Outcome};
use crate::{interrupt, output};

/// Check that NFS servers keep their promises while many clients work, connections break and the
/// server restarts.
///
/// Several clients of this process call each server at once through a relay that makes faults. The
/// order of all calls must be one that docs/consistency.md permits. The first violation ends the
/// run with exit status 1; its smallest history is written to --out. The run works in directories
/// of its own on the server, and removes them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    vouch bench consistency nfs://filer/export\n  \
    vouch bench consistency nfs://filer/export --minor 0,1,2 --sec sys,krb5p --histories 1000\n  \
    vouch bench consistency nfs://filer/export --restart 'ssh filer restart-nfs'\n  \
    vouch bench consistency --mount /mnt/a --mount /mnt/b --calls 200\n  \
    vouch bench consistency --check violation.json")]
pub(super) struct Args {
    /// Server to check: nfs://HOST[:PORT]/EXPORT; may be repeated.
    #[arg(value_name = "URL", required_unless_present_any = ["check", "mount"])]
    target: Vec<Target>,
    /// Directory of a mount of one export, at least two: check close-to-open, names and locks of the
    /// clients that mounted it, a thread for each.
    #[arg(long, value_name = "DIR", conflicts_with = "target")]
    mount: Vec<PathBuf>,
    /// Minor versions of NFSv4.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "2", value_parser = clap::value_parser!(u32).range(0..=2))]
    minor: Vec<u32>,
    /// Flavours: sys, krb5, krb5i, krb5p, and over TLS sys+tls, sys+mtls and krb5+tls.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "sys")]
    sec: Vec<Sec>,
    #[command(flatten)]
    access: ServerAccess,
    /// Clients at once.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=64))]
    clients: u16,
    /// Calls of each client in one history.
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=2000))]
    calls: u32,
    /// Histories of each server, version and flavour.
    #[arg(long, value_name = "N", default_value_t = 100)]
    histories: u64,
    /// Seed of the first history.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Faults of connections: none, or a list of cut, silent, delay, repeat; with 4.1 and 4.2 only.
    #[arg(long, value_name = "LIST", default_value = "none")]
    faults: String,
    /// Shell command that kills the server and starts it again, run once in each history; with 4.1
    /// and 4.2 only.
    #[arg(long, value_name = "COMMAND")]
    restart: Option<String>,
    /// Directory for the history of a violation: violation.json, .txt and .html. It is made if missing.
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
    /// Check a recorded history again, and call no server.
    #[arg(long, value_name = "FILE", conflicts_with = "target")]
    check: Option<PathBuf>,
}

impl Args {
    pub(super) fn run(&self) -> Outcome {
        if let Some(file) = &self.check {
            return self.check_file(file);
        }
        let faults = match self.faults.as_str() {
            "none" => Vec::new(),
            list => list
                .split(',')
                .map(|kind| kind.parse::<Kind>().map_err(|why| Failure::usage("--faults", why)))
                .collect::<Result<_, _>>()?,
        };
        if (!faults.is_empty() || self.restart.is_some()) && self.minor.contains(&0) {
            let why = "--faults and --restart need 1 or 2: NFSv4.0 does not promise that a repeated call executes once";
            return Err(Failure::usage("--minor", why));
        }
        if let Some(path) = self.reports().into_iter().find(|path| path.exists()) {
            Err(io::Error::from(io::ErrorKind::AlreadyExists)).at(path.display())?;
        }
        std::fs::create_dir_all(&self.out).at(self.out.display())?;
        let stop = StopFlag::default();
        let stop_requested = stop.clone();
        let _taken = interrupt::stop_gracefully(move || stop_requested.set());
        if !self.mount.is_empty() {
            self.measure_mounts(&stop)?;
        }
        for target in &self.target {
            let Target::Nfs(target) = target else {
                return Err(Failure::usage("URL", "the target must be nfs://HOST[:PORT]/EXPORT"));
            };
            for &minor in &self.minor {
                for &sec in &self.sec {
                    self.measure(target, minor, sec, &faults, &stop)?;
                }
            }
        }
        match stop.is_set() {
            true => Err(vouch_bench::Error::Interrupted.into()),
            false => Ok(()),
        }
    }

    fn measure(
        &self,
        target: &NfsTarget,
        minor: u32,
        sec: Sec,
        faults: &[Kind],
        stop: &StopFlag,
    ) -> Outcome {
        let is_tls = matches!(sec, Sec::SysTls | Sec::SysMtls | Sec::Krb5Tls);
        let tls = self.access.tls().filter(|_| is_tls);
        let (target, service) = (target.clone(), self.access.service.clone());
        let options = Options {
            server: Server { target, sec, service, tls, minor },
            clients: self.clients,
            calls: self.calls,
            histories: self.histories,
            seed: self.seed,
            faults: faults.to_vec(),
            restart: self.restart.clone(),
        };
        let summary = vouch_consistency::run::run(&options, stop, &|_| {})?;
        output::text(&format!(
            "{} NFSv4.{minor} sec={sec}: {} histories, {} calls, {} faults, {} undecided, {}\n",
            options.server.target,
            summary.histories,
            summary.calls,
            summary.faults,
            summary.undecided,
            if summary.violated.is_some() { "1 violation" } else { "no violation" },
        ))?;
        match summary.violated {
            None => Ok(()),
            Some((history, violation)) => self.write(&history, *violation),
        }
    }

    fn measure_mounts(&self, stop: &StopFlag) -> Outcome {
        if self.mount.len() < 2 {
            return Err(Failure::usage("--mount", "two mounts are needed to see what one hides"));
        }
        let (mut histories, mut calls, mut undecided) = (0, 0, 0);
        while histories < self.histories && !stop.is_set() {
            let seed = self.seed.wrapping_add(histories);
            let mut restart =
                self.restart.as_deref().map(|command| || mounted::restart_by(command));
            let restart = restart.as_mut().map(|run| run as &mut dyn FnMut() -> _);
            let history = mounted::history(&self.mount, (seed, self.calls), restart)?;
            histories += 1;
            calls += history.operations.len();
            match check(&history) {
                Verdict::Right => {}
                Verdict::Undecided(_) => undecided += 1,
                Verdict::Violated(violation) => return self.write(&history, *violation),
            }
        }
        let mounts = self.mount.len();
        output::text(&format!(
            "{mounts} mounts: {histories} histories, {calls} calls, {undecided} undecided, no violation\n"
        ))
    }

    fn reports(&self) -> [PathBuf; 3] {
        ["json", "txt", "html"].map(|kind| self.out.join(format!("violation.{kind}")))
    }

    fn write(&self, history: &History, violation: Violation) -> Outcome {
        let small = shrink(violation);
        let text = report::text(history, &small);
        output::text(&text)?;
        let json = serde_json::to_string_pretty(history).unwrap_or_default();
        for (path, content) in
            self.reports().into_iter().zip([json, text, report::html(history, &small)])
        {
            std::fs::write(&path, content).at(path.display())?;
        }
        Err(Failure::silent(Code::Differs))
    }

    fn check_file(&self, file: &Path) -> Outcome {
        let bytes = std::fs::read(file).at(file.display())?;
        let history: History = serde_json::from_slice(&bytes)
            .map_err(|error| Failure::input(file.display(), error.to_string()))?;
        match check(&history) {
            Verdict::Right => output::text("no violation\n"),
            Verdict::Undecided(object) => output::text(&format!("{object}: undecided\n")),
            Verdict::Violated(violation) => {
                output::text(&report::text(&history, &shrink(*violation)))?;
                Err(Failure::silent(Code::Differs))
            }
        }
    }
}
