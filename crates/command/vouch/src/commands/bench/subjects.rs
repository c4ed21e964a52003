use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::str::FromStr;

use vouch_bench::agent::{AgentPool, Credential, DistributedSubject};
use vouch_bench::cpu::{ServerCpu, is_local};
use vouch_bench::nfs::{NfsOptions, NfsSubject};
use vouch_bench::subject::{MountOptions, MountSubject, ScpSubject};
use vouch_bench::target::{NfsTarget, Sec, Target, TlsFiles};
use vouch_bench::{Error, Run, StopFlag, Subject, machine};

use super::agent::token;
use crate::exit::{Failure, Outcome};

/// Options of sessions with NFS servers.
#[derive(Debug, clap::Args)]
pub(super) struct ServerAccess {
    /// Service principal of the server, if not nfs@HOST.
    #[arg(long, value_name = "SERVICE@HOST")]
    pub(super) service: Option<String>,
    /// Authorities (PEM) of the server's certificate, for flavours over TLS.
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Client certificate (PEM, with intermediate certificates), for sys+mtls.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the client certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Name in the server's certificate, if not the target's host.
    #[arg(long, value_name = "NAME", requires = "tls_ca")]
    tls_name: Option<String>,
}

impl ServerAccess {
    pub(super) fn tls(&self) -> Option<TlsFiles> {
        self.tls_ca.clone().map(|authorities| TlsFiles {
            authorities,
            certificate: self.tls_cert.clone().zip(self.tls_key.clone()),
            name: self.tls_name.clone(),
        })
    }
}

/// Options that name subjects.
#[derive(Debug, clap::Args)]
pub(super) struct Subjects {
    /// Server to measure: nfs://HOST[:PORT]/EXPORT, or for copies scp://HOST, or scp:// for a
    /// private sshd on this machine; with a label as LABEL=nfs://…; may be repeated. The first is
    /// the baseline of comparisons.
    #[arg(long, value_name = "URL")]
    target: Vec<Labelled<Target>>,
    /// Flavours of each NFS target: sys, krb5, krb5i, krb5p, and over TLS sys+tls, sys+mtls and
    /// krb5+tls. The first is the baseline of comparisons.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "sys")]
    sec: Vec<Sec>,
    /// Mounted directory to measure, with a label as LABEL=DIR; may be repeated. fio does the reads
    /// and writes.
    #[arg(long, value_name = "DIR")]
    mount: Vec<Labelled<Directory>>,
    /// Page cache of mounts: cold, warm, or both as two subjects.
    #[arg(long, value_name = "HOW", default_value = "cold")]
    cache: Cache,
    #[command(flatten)]
    access: ServerAccess,
    /// Source of a server's CPU time: pid:N, cgroup:DIRECTORY or http://HOST:PORT/metrics; for one
    /// of several servers as LABEL=…; may be repeated.
    #[arg(long, value_name = "SOURCE")]
    server_cpu: Vec<Labelled<ServerCpu>>,
    /// Source of the CPU time of a mount's FUSE daemon, if not found automatically: pid:N or
    /// cgroup:DIRECTORY; for one of several mounts as LABEL=…; may be repeated.
    #[arg(long, value_name = "SOURCE")]
    client_cpu: Vec<Labelled<ServerCpu>>,
    /// Sessions with each NFS server, each with a thread of its own; they share the calls in flight
    /// of --depth.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    sessions: u16,
    /// Connections of each session.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    connections: u16,
    /// Accept a directory that is not empty; its contents stay untouched.
    #[arg(long)]
    not_empty: bool,
    /// Agent (`vouch bench agent`) that takes part; may be repeated. All agents measure each NFS
    /// target together.
    #[arg(long, value_name = "HOST:PORT")]
    agent: Vec<String>,
    /// File of the secret shared with agents. Without it, agents prove themselves by a ticket for
    /// host@NODE.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

#[derive(Debug, Clone)]
pub(super) struct Labelled<T> {
    pub(super) label: Option<String>,
    pub(super) value: T,
}

#[derive(Debug, Clone)]
struct Directory(PathBuf);

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Cache {
    /// Dropped where permitted, and bypassed.
    Cold,
    /// Kept.
    Warm,
    /// Both in turn.
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
            Some((label, value)) if !label.is_empty() => {
                Ok(Self { label: Some(label.into()), value: value.parse()? })
            }
            Some(_) => Err(format!("{text}: a label is missing before the =")),
            None => Ok(Self { label: None, value: text.parse()? }),
        }
    }
}

fn source(sources: &[Labelled<ServerCpu>], name: Option<&str>) -> Option<ServerCpu> {
    let of = |label: Option<&str>| sources.iter().find(|source| source.label.as_deref() == label);
    name.and_then(|name| of(Some(name))).or_else(|| of(None)).map(|source| source.value.clone())
}

/// Unused sources would silently measure nothing.
fn all_used(option: &str, sources: &[Labelled<ServerCpu>], names: &[Option<&str>]) -> Outcome {
    for (at, Labelled { label, .. }) in sources.iter().enumerate() {
        let label = label.as_deref();
        let first = sources[..at].iter().all(|other| other.label.as_deref() != label);
        let named = |name: &str| sources.iter().any(|other| other.label.as_deref() == Some(name));
        let used = match label {
            Some(label) => names.contains(&Some(label)),
            None => names.iter().any(|name| !name.is_some_and(named)),
        };
        if !first || !used {
            let what =
                label.map_or("a source without a label".to_owned(), |label| format!("{label}=…"));
            return Err(Failure::usage(
                option,
                format!(
                    "{what} matches no --target or --mount, or is given twice; use the labels of --target and --mount"
                ),
            ));
        }
    }
    Ok(())
}

impl Subjects {
    pub(super) fn are_none(&self) -> bool {
        self.target.is_empty() && self.mount.is_empty()
    }

    fn check(&self) -> Outcome {
        let mounts: Vec<String> = self.mount.iter().map(mount_name).collect();
        let mounts = mounts.iter().map(|name| Some(name.as_str()));
        let servers: Vec<Option<String>> = self.servers().map(|(name, _)| name).collect();
        let names: Vec<Option<&str>> =
            servers.iter().map(Option::as_deref).chain(mounts.clone()).collect();
        all_used("--server-cpu", &self.server_cpu, &names)?;
        all_used("--client-cpu", &self.client_cpu, &mounts.collect::<Vec<_>>())?;
        let elsewhere = !self.mount.is_empty()
            || self.target.iter().any(|target| !matches!(target.value, Target::Nfs(_)));
        match !self.agent.is_empty() && elsewhere {
            true => Err(Failure::usage(
                "--agent",
                "agents measure only NFS servers; measure --mount and scp:// in a separate run",
            )),
            false => Ok(()),
        }
    }

    fn servers(&self) -> impl Iterator<Item = (Option<String>, &NfsTarget)> {
        let servers = || {
            self.target.iter().filter_map(|target| match &target.value {
                Target::Nfs(nfs) => Some((&target.label, nfs)),
                _ => None,
            })
        };
        let several = servers().count() > 1;
        servers().map(move |(label, target)| {
            (
                label
                    .clone()
                    .or_else(|| several.then(|| format!("{}:{}", target.host, target.port))),
                target,
            )
        })
    }

    /// If a subject fails, earlier ones are removed. `depth`: most calls in flight.
    pub(super) fn make(
        &self,
        depth: u32,
        run: &mut Run,
        stop: &StopFlag,
    ) -> Outcome<Vec<Box<dyn Subject>>> {
        if self.are_none() {
            return Err(Failure::usage(
                "--target",
                "give --target or --mount; see `vouch help bench`",
            ));
        }
        self.check()?;
        let mut subjects: Vec<Box<dyn Subject>> = Vec::new();
        let made = self.fill(depth, run, stop, &mut subjects);
        let labels: Vec<String> = subjects.iter().map(|subject| subject.info().label).collect();
        let twice = labels.iter().enumerate().find(|(at, label)| labels[..*at].contains(label));
        let made = made.and(twice.map_or(Ok(()), |(_, label)| {
            Err(Failure::usage(
                "--target",
                format!("{label} would name two subjects; give labels: LABEL=…"),
            ))
        }));
        if let Err(failure) = made {
            for subject in &mut subjects {
                let (label, place) = (subject.info().label, subject.place().unwrap_or_default());
                if let Err(error) = subject.clean() {
                    tracing::warn!(
                        "{label}: cannot remove the run's files: {error}; left behind: {place}"
                    );
                }
            }
            return Err(failure);
        }
        Ok(subjects)
    }

    fn fill(
        &self,
        depth: u32,
        run: &mut Run,
        stop: &StopFlag,
        subjects: &mut Vec<Box<dyn Subject>>,
    ) -> Outcome {
        let fleet = self.fleet(stop)?;
        let mut servers = self.servers();
        for Labelled { label, value } in &self.target {
            match value {
                Target::Nfs(target) => {
                    let name = servers.next().and_then(|(name, _)| name);
                    for &sec in &self.sec {
                        let options = self.options(name.as_deref(), target, sec, depth, run)?;
                        subjects.push(match &fleet {
                            None => {
                                Box::new(NfsSubject::connect(options, stop).map_err(with_hint)?)
                            }
                            Some(fleet) => {
                                let subject =
                                    DistributedSubject::open(fleet, subjects.len() as u32, options)
                                        .map_err(with_hint)?;
                                run.nodes = subject.nodes().to_vec();
                                Box::new(subject)
                            }
                        });
                    }
                }
                Target::Scp(host) => {
                    run.machine.with_version("ssh", "-V");
                    let label = label.clone().unwrap_or_else(|| {
                        host.as_ref().map_or("scp".into(), |host| format!("scp {host}"))
                    });
                    subjects.push(Box::new(ScpSubject::begin(label, host.as_deref(), stop)?));
                }
                Target::Http { .. } => {
                    return Err(Failure::usage(
                        "--target",
                        "http:// and https:// are for `vouch bench tree`",
                    ));
                }
            }
        }
        let alone = self.is_alone();
        if !alone && !self.mount.is_empty() && self.cache != Cache::Warm {
            run.notes.push(
                "cold mounts share this machine with other subjects: only the pages of their own files were dropped (posix_fadvise); names, attributes and what \
                 their servers keep were not"
                    .into(),
            );
        }
        for mount in &self.mount {
            run.machine.with_version("fio", "--version");
            let (name, Directory(directory)) = (mount_name(mount), &mount.value);
            let warms: &[bool] = match self.cache {
                Cache::Cold => &[false],
                Cache::Warm => &[true],
                Cache::Both => &[false, true],
            };
            for &warm in warms {
                let label = if self.cache == Cache::Both {
                    format!("{name} {}", if warm { "warm" } else { "cold" })
                } else {
                    name.clone()
                };
                let (server_cpu, client_cpu) =
                    (source(&self.server_cpu, Some(&name)), source(&self.client_cpu, Some(&name)));
                for source in [&server_cpu, &client_cpu].into_iter().flatten() {
                    source.seconds()?;
                }
                let (directory, not_empty) = (directory.clone(), self.not_empty);
                let options = MountOptions {
                    label,
                    directory,
                    warm,
                    alone,
                    server_cpu,
                    client_cpu,
                    not_empty,
                };
                subjects.push(Box::new(MountSubject::begin(options, stop).map_err(with_hint)?));
            }
        }
        Ok(())
    }

    /// True: the page cache may be dropped.
    fn is_alone(&self) -> bool {
        let here = |target: &Labelled<Target>| match &target.value {
            Target::Nfs(target) => target.address().is_ok_and(|address| is_local(address.ip())),
            Target::Scp(_) => true,
            Target::Http { .. } => false,
        };
        self.mount.len() == 1 && self.cache != Cache::Both && !self.target.iter().any(here)
    }

    fn options(
        &self,
        name: Option<&str>,
        target: &NfsTarget,
        sec: Sec,
        depth: u32,
        run: &mut Run,
    ) -> Outcome<NfsOptions> {
        let address = target.address()?;
        let route = machine::route_to(address).filter(|route| !run.machine.network.contains(route));
        run.machine.network.extend(route);
        let server_cpu =
            source(&self.server_cpu, name).or_else(|| ServerCpu::listening_at(address));
        if let Some(source) = &server_cpu {
            source.seconds()?;
        }
        Ok(NfsOptions {
            label: name.map_or_else(
                || sec.to_string(),
                |name| if self.sec.len() > 1 { format!("{name} {sec}") } else { name.to_owned() },
            ),
            target: target.clone(),
            sec,
            service: self.access.service.clone(),
            tls: self.access.tls(),
            sessions: self.sessions.into(),
            connections: self.connections.into(),
            slots: depth as usize,
            server_cpu,
            not_empty: self.not_empty,
        })
    }

    fn fleet(&self, stop: &StopFlag) -> Outcome<Option<AgentPool>> {
        if self.agent.is_empty() {
            return Ok(None);
        }
        let mut addresses: Vec<(SocketAddr, String)> = Vec::new();
        for agent in &self.agent {
            let found = agent.to_socket_addrs().ok().and_then(|mut all| all.next());
            let address =
                found.ok_or_else(|| Failure::not_found(agent, "unknown host; write HOST:PORT"))?;
            addresses.push((
                address,
                agent.rsplit_once(':').map_or(agent.clone(), |(host, _)| host.to_owned()),
            ));
        }
        let secret = self.token_file.as_deref().map(token).transpose()?;
        let credential = |address: SocketAddr| match &secret {
            Some(secret) => Credential::Token(secret.clone()),
            None => {
                let host = addresses
                    .iter()
                    .find(|(other, _)| *other == address)
                    .map_or("localhost", |(_, host)| host);
                Credential::Kerberos(format!(
                    "host@{}",
                    if address.ip().is_loopback() { "localhost" } else { host }
                ))
            }
        };
        let all: Vec<SocketAddr> = addresses.iter().map(|(address, _)| *address).collect();
        Ok(Some(AgentPool::connect(&all, &credential, stop)?))
    }
}

fn mount_name(mount: &Labelled<Directory>) -> String {
    mount.label.clone().unwrap_or_else(|| mount.value.0.display().to_string())
}

fn with_hint(error: Error) -> Failure {
    match error.hint() {
        Some(cure) => Failure::from(error).cure(cure),
        None => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(all: &[&str]) -> Vec<Labelled<ServerCpu>> {
        all.iter().map(|text| text.parse().expect("a source")).collect()
    }

    #[test]
    fn source_without_label_serves_unlabelled_subjects() {
        let sources = sources(&["a=pid:1", "pid:2"]);
        assert_eq!(source(&sources, Some("a")), Some(ServerCpu::Process(1)));
        assert_eq!(source(&sources, Some("b")), Some(ServerCpu::Process(2)));
        assert_eq!(source(&sources, None), Some(ServerCpu::Process(2)));
        assert_eq!(source(&sources[..1], Some("b")), None);
    }

    #[test]
    fn unused_source_is_an_error() {
        let check = |all: &[&str], names: &[Option<&str>]| {
            all_used("--server-cpu", &sources(all), names).is_ok()
        };
        assert!(check(&["a=pid:1", "pid:2"], &[Some("a"), Some("b")]));
        assert!(check(&["pid:2"], &[None]));
        assert!(check(&[], &[]));
        assert!(!check(&["c=pid:1"], &[Some("a"), Some("b")]));
        assert!(!check(&["pid:1"], &[]));
        assert!(!check(&["a=pid:1", "pid:2"], &[Some("a")]));
        assert!(!check(&["a=pid:1", "a=pid:2"], &[Some("a")]));
    }

    #[test]
    fn mount_is_alone_without_other_local_subjects() {
        let alone = |targets: &[&str], mounts: &[&str], cache| {
            let mut subjects = <Subjects as clap::Args>::augment_args(clap::Command::new("x"));
            let mut args = vec!["x".to_owned(), format!("--cache={cache}")];
            args.extend(targets.iter().map(|target| format!("--target={target}")));
            args.extend(mounts.iter().map(|mount| format!("--mount={mount}")));
            let matches = subjects.try_get_matches_from_mut(args).expect("options");
            <Subjects as clap::FromArgMatches>::from_arg_matches(&matches)
                .expect("options")
                .is_alone()
        };
        assert!(alone(&[], &["/a"], "cold"));
        assert!(!alone(&[], &["/a"], "both"));
        assert!(!alone(&[], &["/a", "/b"], "cold"));
        assert!(!alone(&["scp://"], &["/a"], "cold"));
        assert!(!alone(&["nfs://127.0.0.1/export"], &["/a"], "cold"));
        // RFC 5737.
        assert!(alone(&["nfs://192.0.2.1/export"], &["/a"], "cold"));
    }
}
