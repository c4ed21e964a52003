//! One server, measured by all agents at once: they start together, their histograms are merged, and what each gave is kept.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use super::wire::{Credential, Line};
use super::{Answer, Ask};
use crate::cpu::ServerCpu;
use crate::nfs::NfsOptions;
use crate::subject::{About, Meter};
use crate::{Case, Error, Sample, Subject};

/// The agents of a run; all subjects share their connections.
#[derive(Clone)]
pub struct Fleet(Arc<Mutex<Vec<Member>>>);

struct Member {
    name: String,
    line: Line,
}

impl Fleet {
    /// Connects to all of them.
    pub fn connect(agents: &[SocketAddr], credential: &dyn Fn(SocketAddr) -> Credential) -> Result<Self, Error> {
        let members = agents.iter().map(|&address| {
            let line = Line::connect(address, &credential(address))?;
            line.without_hurry();
            Ok(Member { name: address.to_string(), line })
        });
        Ok(Self(Arc::new(Mutex::new(members.collect::<Result<_, Error>>()?))))
    }

    /// Asks all, then hears all: they work at the same time.
    fn all(&self, ask: &Ask) -> Result<Vec<(String, Answer)>, Error> {
        let mut members = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for member in members.iter_mut() {
            member.line.send(ask, &member.name)?;
        }
        // All are heard before a failure is told, or the next answer would be to another question.
        let heard: Vec<Result<(String, Answer), Error>> = members
            .iter_mut()
            .map(|member| {
                let name = member.name.clone();
                let answer = member.line.receive(&name)?.ok_or_else(|| Error::Unreachable(format!("agent {name}: it hung up")))?;
                match answer {
                    Answer::Failed { why, corrupt: true, .. } => Err(Error::Corrupt(format!("agent {name}: {why}"))),
                    Answer::Failed { why, unreachable: true, .. } => Err(Error::Unreachable(format!("agent {name}: {why}"))),
                    Answer::Failed { why, .. } => Err(Error::Refused(format!("agent {name}: {why}"))),
                    answer => Ok((name, answer)),
                }
            })
            .collect();
        heard.into_iter().collect()
    }
}

/// A server, as all agents see it.
pub struct FleetSubject {
    fleet: Fleet,
    number: u32,
    about: About,
    server_cpu: Option<ServerCpu>,
    /// Names of the nodes.
    nodes: Vec<String>,
    clean: bool,
}

impl FleetSubject {
    /// Lets all agents connect to a server; `number` is this subject's own in the fleet.
    pub fn open(fleet: &Fleet, number: u32, options: NfsOptions) -> Result<Self, Error> {
        let server_cpu = options.server_cpu.clone();
        let opened = fleet.all(&Ask::Open { number, options: Box::new(options) })?;
        let mut about = None;
        let mut nodes = Vec::new();
        for (name, answer) in opened {
            if let Answer::Opened { about: theirs, node } = answer {
                about.get_or_insert(theirs);
                nodes.push(format!("{node} ({name})"));
            }
        }
        let mut about = about.ok_or_else(|| Error::Refused("no agent has opened it".into()))?;
        about.details.push(format!("{} agents: {}", nodes.len(), nodes.join(", ")));
        Ok(Self { fleet: fleet.clone(), number, about, server_cpu, nodes, clean: false })
    }
}

impl Subject for FleetSubject {
    fn about(&self) -> About {
        self.about.clone()
    }

    fn lacks(&self, case: &Case) -> Option<String> {
        matches!(
            case,
            Case::Connect { .. } | Case::Audit { .. } | Case::Changes { .. } | Case::Read(_) | Case::Compile { .. } | Case::Replay { .. }
        )
        .then(|| "agents measure NFS servers alone".into())
    }

    fn prepare(&mut self, case: &Case) -> Result<(), Error> {
        self.fleet.all(&Ask::Prepare { number: self.number, case: *case }).map(drop)
    }

    fn measure(&mut self, case: &Case) -> Result<Sample, Error> {
        // The load is for all of them together.
        let mut case = *case;
        if let Case::Load(load) = &mut case
            && let Some(rate) = &mut load.rate
        {
            *rate /= self.nodes.len() as f64;
        }
        self.fleet.all(&Ask::Ready)?;
        let meter = Meter::begin(self.server_cpu.as_ref(), true)?;
        let measured = self.fleet.all(&Ask::Measure { number: self.number, case })?;
        let mut sample = Sample::default();
        for (node, (_, answer)) in self.nodes.iter().zip(measured) {
            let Answer::Measured { sample: part } = answer else {
                return Err(Error::Refused(format!("agent {node}: it answers something else")));
            };
            sample.join(node.clone(), *part);
        }
        let clients = sample.client_cpu_s;
        meter.end(&mut sample)?;
        (sample.client_cpu_s, sample.elsewhere) = (clients, None);
        Ok(sample)
    }

    fn tidy(&mut self) -> Result<(), Error> {
        self.fleet.all(&Ask::Tidy { number: self.number }).map(drop)
    }

    fn clean(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.clean, true) {
            return Ok(());
        }
        self.fleet.all(&Ask::Clean { number: self.number }).map(drop)
    }
}
