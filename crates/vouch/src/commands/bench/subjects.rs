//! What is measured, as it is told on the command line, and the subjects that come of it.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::str::FromStr;

use vouch_bench::agent::{Credential, Fleet, FleetSubject};
use vouch_bench::cpu::ServerCpu;
use vouch_bench::nfs::{NfsOptions, NfsSubject};
use vouch_bench::subject::{MountOptions, MountSubject, ScpSubject};
use vouch_bench::target::{NfsTarget, Sec, Target};
use vouch_bench::{Error, Run, Stop, Subject, machine};

use super::agent::token;
use crate::exit::{Failure, Outcome};

/// Options that name subjects.
#[derive(Debug, clap::Args)]
pub(super) struct Subjects {
    /// What to measure: nfs://HOST[:PORT]/EXPORT, or scp:// (a private sshd of this machine) or scp://HOST for copies; with a label of its own as LABEL=nfs://…; may be repeated. The first is what the others are compared with.
    #[arg(long, value_name = "URL")]
    target: Vec<Labelled<Target>>,
    /// Flavours to measure of each NFS target: sys, krb5, krb5i, krb5p. The first is what the others are compared with.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "sys")]
    sec: Vec<Sec>,
    /// A directory of whatever is mounted there, with a label of its own as LABEL=DIR; may be repeated. Reads and writes are fio's.
    #[arg(long, value_name = "DIR")]
    mount: Vec<Labelled<Directory>>,
    /// Whether what was read before may be kept by the system for the mounts: cold, warm, or both as two subjects.
    #[arg(long, value_name = "HOW", default_value = "cold")]
    cache: Cache,
    /// The server's principal as a service, where it isn't nfs@HOST.
    #[arg(long, value_name = "SERVICE@HOST")]
    service: Option<String>,
    /// Where a server's CPU time is read: pid:N, cgroup:DIRECTORY or http://HOST:PORT/metrics; of one of several as LABEL=…; may be repeated.
    #[arg(long, value_name = "SOURCE")]
    server_cpu: Vec<Labelled<ServerCpu>>,
    /// Sessions with each NFS server, each driven by a thread of its own.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    sessions: u16,
    /// Connections of each session.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    connections: u16,
    /// Work in a directory that holds something; nothing of it is touched.
    #[arg(long)]
    not_empty: bool,
    /// A node that takes part, where `vouch bench agent` runs; may be repeated. All measure each NFS target at once.
    #[arg(long, value_name = "HOST:PORT")]
    agent: Vec<String>,
    /// The secret that agents share with this program. Without it a ticket for host@NODE is their proof.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// A value, and the label before its first `=`.
#[derive(Debug, Clone)]
pub(super) struct Labelled<T> {
    label: Option<String>,
    value: T,
}

/// A directory.
#[derive(Debug, Clone)]
struct Directory(PathBuf);

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Cache {
    /// Dropped where that is allowed, and passed by.
    Cold,
    /// Kept.
    Warm,
    /// One after the other.
    Both,
}

impl FromStr for Directory {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() { Err("a directory is missing".into()) } else { Ok(Self(text.into())) }
    }
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

impl Subjects {
    /// Makes all of them; when one can't be made, those before it are cleaned. `depth` is the most calls in flight.
    pub(super) fn make(&self, depth: u32, run: &mut Run, stop: &Stop) -> Outcome<Vec<Box<dyn Subject>>> {
        if self.target.is_empty() && self.mount.is_empty() {
            return Err(Failure::usage("--target", "say what to measure, or name a mounted directory by --mount; see `vouch help bench`"));
        }
        let mut subjects: Vec<Box<dyn Subject>> = Vec::new();
        let made = self.fill(depth, run, stop, &mut subjects);
        let labels: Vec<String> = subjects.iter().map(|subject| subject.about().label).collect();
        let twice = labels.iter().enumerate().find(|(at, label)| labels[..*at].contains(label));
        let made = made.and(
            twice.map_or(Ok(()), |(_, label)| Err(Failure::usage("--target", format!("{label} would name two; label them: LABEL=…")))),
        );
        if let Err(failure) = made {
            subjects.iter_mut().try_for_each(|subject| subject.clean())?;
            return Err(failure);
        }
        Ok(subjects)
    }

    fn fill(&self, depth: u32, run: &mut Run, stop: &Stop, subjects: &mut Vec<Box<dyn Subject>>) -> Outcome {
        let nfs = self.target.iter().filter(|target| matches!(target.value, Target::Nfs(_))).count();
        let fleet = self.fleet()?;
        for Labelled { label, value } in &self.target {
            match value {
                Target::Nfs(target) => {
                    let name = label.clone().or_else(|| (nfs > 1).then(|| format!("{}:{}", target.host, target.port)));
                    for &sec in &self.sec {
                        let options = self.options(name.as_deref(), target, sec, depth, run)?;
                        subjects.push(match &fleet {
                            None => Box::new(NfsSubject::connect(options, stop).map_err(with_cure)?),
                            Some(fleet) => Box::new(FleetSubject::open(fleet, subjects.len() as u32, options).map_err(with_cure)?),
                        });
                    }
                }
                Target::Scp(host) => {
                    run.machine.with_version("ssh", "-V");
                    let label = label.clone().unwrap_or_else(|| host.as_ref().map_or("scp".into(), |host| format!("scp {host}")));
                    subjects.push(Box::new(ScpSubject::begin(label, host.as_deref(), stop)?));
                }
                Target::Http { .. } => return Err(Failure::usage("--target", "http:// and https:// are for `vouch bench tree`")),
            }
        }
        for Labelled { label, value: Directory(directory) } in &self.mount {
            run.machine.with_version("fio", "--version");
            let name = label.clone().unwrap_or_else(|| directory.display().to_string());
            let warms: &[bool] = match self.cache {
                Cache::Cold => &[false],
                Cache::Warm => &[true],
                Cache::Both => &[false, true],
            };
            for &warm in warms {
                let label = if self.cache == Cache::Both { format!("{name} {}", if warm { "warm" } else { "cold" }) } else { name.clone() };
                let server_cpu =
                    self.server_cpu.iter().find(|source| source.label.as_deref() == Some(&name)).map(|source| source.value.clone());
                let options = MountOptions { label, directory: directory.clone(), warm, server_cpu, not_empty: self.not_empty };
                subjects.push(Box::new(MountSubject::begin(options, stop).map_err(with_cure)?));
            }
        }
        Ok(())
    }

    fn options(&self, name: Option<&str>, target: &NfsTarget, sec: Sec, depth: u32, run: &mut Run) -> Outcome<NfsOptions> {
        let address = target.address()?;
        let route = machine::route_to(address).filter(|route| !run.machine.network.contains(route));
        run.machine.network.extend(route);
        let told = self
            .server_cpu
            .iter()
            .find(|source| source.label.as_deref() == name)
            .or_else(|| self.server_cpu.iter().find(|source| source.label.is_none()));
        let server_cpu = told.map(|source| source.value.clone()).or_else(|| ServerCpu::listening_at(address));
        if let Some(source) = &server_cpu {
            source.seconds()?;
        }
        Ok(NfsOptions {
            label: name.map_or_else(|| sec.to_string(), |name| if self.sec.len() > 1 { format!("{name} {sec}") } else { name.to_owned() }),
            target: target.clone(),
            sec,
            service: self.service.clone(),
            sessions: self.sessions.into(),
            connections: self.connections.into(),
            slots: depth as usize,
            server_cpu,
            not_empty: self.not_empty,
        })
    }

    fn fleet(&self) -> Outcome<Option<Fleet>> {
        if self.agent.is_empty() {
            return Ok(None);
        }
        let mut addresses: Vec<(SocketAddr, String)> = Vec::new();
        for agent in &self.agent {
            let found = agent.to_socket_addrs().ok().and_then(|mut all| all.next());
            let address = found.ok_or_else(|| Failure::not_found(agent, "no such host; write HOST:PORT"))?;
            addresses.push((address, agent.rsplit_once(':').map_or(agent.clone(), |(host, _)| host.to_owned())));
        }
        let secret = self.token_file.as_deref().map(token).transpose()?;
        let credential = |address: SocketAddr| match &secret {
            Some(secret) => Credential::Token(secret.clone()),
            None => {
                let host = addresses.iter().find(|(other, _)| *other == address).map_or("localhost", |(_, host)| host);
                Credential::Kerberos(format!("host@{}", if address.ip().is_loopback() { "localhost" } else { host }))
            }
        };
        let all: Vec<SocketAddr> = addresses.iter().map(|(address, _)| *address).collect();
        Ok(Some(Fleet::connect(&all, &credential)?))
    }
}

fn with_cure(error: Error) -> Failure {
    match error.cure() {
        Some(cure) => Failure::from(error).cure(cure),
        None => error.into(),
    }
}
