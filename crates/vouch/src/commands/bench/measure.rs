//! What every workload is told: on what, how often, and where the results go. Makes the subjects and drives the run to its report.

use std::str::FromStr;

use indicatif::ProgressBar;
use vouch_bench::cpu::ServerCpu;
use vouch_bench::nfs::{NfsOptions, NfsSubject};
use vouch_bench::pairs::{Bench, Rounds, Watcher};
use vouch_bench::target::{NfsTarget, Sec, Target};
use vouch_bench::{Error, Run, Stop, Subject, machine};

use super::outputs::Outputs;
use crate::cli::Global;
use crate::exit::{Failure, Outcome};
use crate::{interrupt, progress};

/// Options of every workload.
#[derive(Debug, clap::Args)]
pub(super) struct Measure {
    /// What to measure: nfs://HOST[:PORT]/EXPORT; with a label of its own as LABEL=nfs://…; may be repeated. The first is what the others are compared with.
    #[arg(long, value_name = "URL")]
    target: Vec<Labelled<Target>>,
    /// Flavours to measure of each NFS target: sys, krb5, krb5i, krb5p. The first is what the others are compared with.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "sys")]
    sec: Vec<Sec>,
    /// The server's principal as a service, where it isn't nfs@HOST.
    #[arg(long, value_name = "SERVICE@HOST")]
    service: Option<String>,
    /// Where the server's CPU time is read: pid:N, cgroup:DIRECTORY or http://HOST:PORT/metrics; of one target of several as LABEL=…; may be repeated.
    #[arg(long, value_name = "SOURCE")]
    server_cpu: Vec<Labelled<ServerCpu>>,
    /// Sessions with each server, each driven by a thread of its own.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    sessions: u16,
    /// Connections of each session.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    connections: u16,
    /// A first look: small sizes, three rounds.
    #[arg(long)]
    pub(super) quick: bool,
    /// Most rounds of each case.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: Option<u16>,
    /// Stop a case early when each interval is within this many percent of its median.
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    tight: Option<f64>,
    /// Work in a directory that holds something; nothing of it is touched.
    #[arg(long)]
    not_empty: bool,
    #[command(flatten)]
    outputs: Outputs,
}

/// A value, and the label before its first `=`.
#[derive(Debug, Clone)]
pub(super) struct Labelled<T> {
    label: Option<String>,
    value: T,
}

impl<T: FromStr<Err = String>> FromStr for Labelled<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=').filter(|(label, _)| !label.contains([':', '/'])) {
            Some((label, value)) if !label.is_empty() => Ok(Self { label: Some(label.into()), value: value.parse()? }),
            Some(_) => Err(format!("{text}: a label is missing before the =")),
            None => Ok(Self { label: None, value: text.parse()? }),
        }
    }
}

impl Measure {
    /// Connects all subjects, measures by `work`, reports, and ends with what went wrong, if anything did. `depth` is the most calls in flight.
    pub(super) fn run(&self, workload: &str, depth: u32, global: &Global, work: impl FnOnce(&mut Bench) -> Result<(), Error>) -> Outcome {
        self.outputs.check()?;
        let stop = Stop::default();
        let asked = stop.clone();
        let _taken = interrupt::take(move || asked.ask());
        let mut run = Run::begin(std::env::args().collect::<Vec<_>>().join(" "), self.quick);
        let mut subjects = Vec::new();
        for connected in self.connect(depth, &mut run, &stop) {
            match connected {
                Ok(subject) => subjects.push(subject),
                Err(error) => {
                    subjects.iter_mut().try_for_each(|subject: &mut Box<dyn Subject>| subject.clean())?;
                    return Err(error);
                }
            }
        }
        let bar = progress::fraction(global, "measuring");
        let mut bench = Bench::new(run, subjects, self.rounds(), Box::new(Bar(bar.clone())), stop);
        let outcome = work(&mut bench);
        let run = bench.finish(&outcome);
        bar.finish_and_clear();
        self.outputs.write(&run)?;
        match outcome {
            Ok(()) if run.results.is_empty() => Err(Failure::not_found(workload, "nothing could be measured")),
            Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn rounds(&self) -> Rounds {
        let rounds = if self.quick { Rounds::QUICK } else { Rounds::FULL };
        let most = self.rounds.map_or(rounds.most, usize::from);
        Rounds { most, least: rounds.least.min(most), tight: self.tight.map_or(rounds.tight, |percent| percent / 100.0), ..rounds }
    }

    /// One subject after the other, so that those that are connected can be cleaned when a later one fails.
    fn connect<'a>(&'a self, depth: u32, run: &'a mut Run, stop: &'a Stop) -> impl Iterator<Item = Outcome<Box<dyn Subject>>> + 'a {
        let none = self.target.is_empty().then(|| Err(Failure::usage("--target", "say what to measure; see `vouch help bench`")));
        let several = self.target.len() > 1;
        let all = self.target.iter().flat_map(move |target| self.sec.iter().map(move |sec| (target, *sec)));
        let connected = all.map(move |(Labelled { label, value }, sec)| match value {
            Target::Nfs(nfs) => {
                let name = label.clone().or_else(|| several.then(|| format!("{}:{}", nfs.host, nfs.port)));
                self.nfs(name.as_deref(), nfs, sec, depth, run, stop)
            }
            other => Err(Failure::usage("--target", format!("{other:?}: this workload measures NFS servers"))),
        });
        none.into_iter().chain(connected)
    }

    fn nfs(&self, name: Option<&str>, target: &NfsTarget, sec: Sec, depth: u32, run: &mut Run, stop: &Stop) -> Outcome<Box<dyn Subject>> {
        let address = target.address()?;
        run.machine.network.extend(machine::route_to(address).filter(|route| !run.machine.network.contains(route)));
        let told = self
            .server_cpu
            .iter()
            .find(|source| source.label.as_deref() == name)
            .or_else(|| self.server_cpu.iter().find(|source| source.label.is_none()));
        let server_cpu = told.map(|source| source.value.clone()).or_else(|| ServerCpu::listening_at(address));
        if let Some(source) = &server_cpu {
            source.seconds()?;
        }
        let options = NfsOptions {
            label: name.map_or_else(|| sec.to_string(), |name| if self.sec.len() > 1 { format!("{name} {sec}") } else { name.to_owned() }),
            target: target.clone(),
            sec,
            service: self.service.clone(),
            sessions: self.sessions.into(),
            connections: self.connections.into(),
            slots: depth as usize,
            server_cpu,
            not_empty: self.not_empty,
        };
        let connected = NfsSubject::connect(options, stop).map_err(|error| {
            let cure = matches!(error, Error::NotEmpty(_))
                .then_some("name an empty directory, or say --not-empty: nothing that is there is touched");
            let failure = Failure::from(error);
            match cure {
                Some(cure) => failure.cure(cure),
                None => failure,
            }
        })?;
        Ok(Box::new(connected))
    }
}

/// Draws how far the run is.
struct Bar(ProgressBar);

impl Watcher for Bar {
    fn now(&mut self, done_s: f64, total_s: f64, what: &str) {
        self.0.set_length((total_s * 10.0) as u64);
        self.0.set_position((done_s * 10.0) as u64);
        self.0.set_message(what.to_owned());
    }
}

fn percent(text: &str) -> Result<f64, String> {
    text.trim_end_matches('%').parse().ok().filter(|value| (0.0..=100.0).contains(value)).ok_or_else(|| "write a percentage: 2".into())
}
