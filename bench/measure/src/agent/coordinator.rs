//! A subject that several agents measure at once. Their samples are merged and kept by node.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use super::channel::{Channel, Credential};
use super::{Request, Response};
use crate::cpu::ServerCpu;
use crate::machine::Machine;
use crate::nfs::{NfsOptions, share_of};
use crate::subject::{CpuMeter, SubjectInfo};
use crate::{Case, Error, Sample, StopFlag, Subject};

#[derive(Clone)]
pub struct AgentPool(Arc<Mutex<Vec<Member>>>);

struct Member {
    name: String,
    /// None after an unanswered request. The agent then cleans up by itself.
    channel: Option<Channel>,
}

impl AgentPool {
    pub fn connect(
        agents: &[SocketAddr],
        credential: &dyn Fn(SocketAddr) -> Credential,
        stop: &StopFlag,
    ) -> Result<Self, Error> {
        let members = agents.iter().map(|&address| {
            let mut channel = Channel::connect(address, &credential(address), stop)?;
            channel.set_authenticated(Some(stop));
            Ok(Member { name: address.to_string(), channel: Some(channel) })
        });
        Ok(Self(Arc::new(Mutex::new(members.collect::<Result<_, Error>>()?))))
    }

    fn all(&self, request: &Request) -> Result<Vec<(usize, String, Response)>, Error> {
        self.each(&|_| Some(request.clone()))
    }

    fn each(
        &self,
        request: &dyn Fn(usize) -> Option<Request>,
    ) -> Result<Vec<(usize, String, Response)>, Error> {
        let mut members = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (mut pending, mut send_error) = (Vec::new(), None);
        for (at, member) in members.iter_mut().enumerate() {
            if let Some(request) = request(at) {
                let gone = || {
                    Error::Unreachable(format!(
                        "agent {}: no answer; if the agent still runs, it removes its files by itself",
                        member.name
                    ))
                };
                match member
                    .channel
                    .as_mut()
                    .ok_or_else(gone)
                    .and_then(|channel| channel.send(&request, &member.name))
                {
                    Ok(()) => pending.push((at, member)),
                    Err(error) => {
                        member.channel = None;
                        send_error = send_error.or(Some(error));
                    }
                }
            }
        }
        // An early return would take the next response for this request's.
        let mut responses: Vec<Result<(usize, String, Response), Error>> = pending
            .into_iter()
            .map(|(at, member)| {
                let name = member.name.clone();
                let answer =
                    member.channel.as_mut().map_or(Ok(None), |channel| channel.receive(&name));
                if !matches!(answer, Ok(Some(_))) {
                    member.channel = None;
                }
                match answer?.ok_or_else(|| {
                    Error::Unreachable(format!("agent {name}: connection closed, or no answer"))
                })? {
                    Response::Failed { why, corrupt: true, .. } => {
                        Err(Error::Corrupt(format!("agent {name}: {why}")))
                    }
                    Response::Failed { why, unreachable: true, .. } => {
                        Err(Error::Unreachable(format!("agent {name}: {why}")))
                    }
                    Response::Failed { why, .. } => {
                        Err(Error::Refused(format!("agent {name}: {why}")))
                    }
                    answer => Ok((at, name, answer)),
                }
            })
            .collect();
        if let Some(corrupt) =
            responses.iter().position(|answer| matches!(answer, Err(Error::Corrupt(_))))
        {
            responses.swap(0, corrupt);
            return responses.into_iter().collect();
        }
        send_error.map_or_else(|| responses.into_iter().collect(), Err)
    }
}

pub struct DistributedSubject {
    fleet: AgentPool,
    number: u32,
    about: SubjectInfo,
    server_cpu: Option<ServerCpu>,
    nodes: Vec<(String, Machine)>,
    clean: bool,
}

impl DistributedSubject {
    pub fn open(fleet: &AgentPool, number: u32, options: NfsOptions) -> Result<Self, Error> {
        let server_cpu = options.server_cpu.clone();
        let opened = fleet.all(&Request::Open { number, options: Box::new(options) })?;
        let mut about = None;
        let mut nodes = Vec::new();
        for (_, name, answer) in opened {
            let Response::Opened { about: theirs, node, machine } = answer else {
                return Err(Error::Refused(format!("agent {name}: unexpected response")));
            };
            about.get_or_insert(theirs);
            nodes.push((format!("{node} ({name})"), *machine));
        }
        let mut about =
            about.ok_or_else(|| Error::Refused("no agent connected to the server".into()))?;
        let names: Vec<&str> = nodes.iter().map(|(name, _)| &name[..]).collect();
        about.details.push(format!(
            "{} agents share the files of a copy, the calls in flight and the rate of a load; each has its own copy of a single file: {}",
            nodes.len(),
            names.join(", ")
        ));
        Ok(Self { fleet: fleet.clone(), number, about, server_cpu, nodes, clean: false })
    }

    pub fn nodes(&self) -> &[(String, Machine)] {
        &self.nodes
    }
}

/// Share of a case for one node, or None if nothing is left for it. Each node has its own single
/// file.
fn share(case: &Case, at: usize, nodes: usize) -> Option<Case> {
    let mut case = *case;
    match &mut case {
        Case::Load(load) => {
            let depth = share_of(load.depth, at, nodes);
            load.rate = load.rate.map(|rate| rate * f64::from(depth) / f64::from(load.depth));
            load.depth = depth;
            if depth == 0 {
                return None;
            }
        }
        Case::Metadata { depth, .. } | Case::Getattr { depth, .. } => {
            *depth = share_of(*depth, at, nodes);
            if *depth == 0 {
                return None;
            }
        }
        Case::Put(copy) | Case::Get(copy) if copy.files > 1 => {
            let before = |at: usize| copy.files * at as u64 / nodes as u64;
            copy.files = before(at + 1) - before(at);
            if copy.files == 0 {
                return None;
            }
        }
        _ => {}
    }
    Some(case)
}

impl Subject for DistributedSubject {
    fn info(&self) -> SubjectInfo {
        self.about.clone()
    }

    fn unsupported(&self, case: &Case) -> Option<String> {
        matches!(
            case,
            Case::Connect { .. }
                | Case::Audit { .. }
                | Case::Changes { .. }
                | Case::Read(_)
                | Case::Compile { .. }
                | Case::Build
                | Case::Primitive { .. }
                | Case::Replay { .. }
        )
        .then(|| "agents measure only NFS servers".into())
    }

    fn stored(&self, case: &Case) -> Option<&'static str> {
        crate::nfs::stored(case)
    }

    fn prepare(&mut self, case: &Case) -> Result<(), Error> {
        let (number, nodes) = (self.number, self.nodes.len());
        self.fleet
            .each(&|at| share(case, at, nodes).map(|case| Request::Prepare { number, case }))
            .map(drop)
    }

    fn measure(&mut self, case: &Case) -> Result<Sample, Error> {
        self.fleet.all(&Request::Ready)?;
        let meter = CpuMeter::start(self.server_cpu.as_ref(), true)?;
        let (number, nodes) = (self.number, self.nodes.len());
        let measured = self
            .fleet
            .each(&|at| share(case, at, nodes).map(|case| Request::Measure { number, case }))?;
        let mut sample = Sample::default();
        let (mut fewer, mut in_flight) = (false, 0);
        for (at, node, answer) in measured {
            let Response::Measured { sample: part } = answer else {
                return Err(Error::Refused(format!("agent {node}: unexpected response")));
            };
            let wanted = share(case, at, nodes).map_or(0, |case| case.depth());
            fewer |= part.depth.is_some();
            in_flight += part.depth.unwrap_or(wanted);
            sample.join(self.nodes[at].0.clone(), *part);
        }
        sample.depth = fewer.then_some(in_flight);
        let (client_s, elsewhere, others) =
            (sample.client_cpu_s, sample.elsewhere, sample.others.clone());
        meter.end(&mut sample)?;
        (sample.client_cpu_s, sample.elsewhere, sample.others) = (client_s, elsewhere, others);
        Ok(sample)
    }

    fn tidy(&mut self) -> Result<(), Error> {
        self.fleet.all(&Request::Tidy { number: self.number }).map(drop)
    }

    fn place(&self) -> Option<String> {
        (!self.clean).then(|| format!("the agents' files in {}", self.about.target))
    }

    fn clean(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.clean, true) {
            return Ok(());
        }
        self.fleet.all(&Request::Clean { number: self.number }).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::agent::{Acceptor, Credential};
    use crate::case::{Content, Copy};

    fn token() -> Vec<u8> {
        b"a secret of some length".to_vec()
    }

    /// A pool of two agents, which fail as they say, and one that is gone.
    fn pool(
        failures: [fn(&Request) -> Response; 2],
    ) -> (AgentPool, Vec<std::thread::JoinHandle<()>>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let at = listener.local_addr().expect("a port");
        let (mut members, mut agents) = (Vec::new(), Vec::new());
        for (name, fail) in ["first", "second"].into_iter().zip(failures) {
            let listener = listener.try_clone().expect("a listener");
            agents.push(std::thread::spawn(move || {
                let stream = listener.accept().expect("the coordinator").0;
                let within = std::time::Duration::from_secs(60);
                let (acceptor, stop) = (Acceptor::Token(token()), StopFlag::default());
                let mut channel = Channel::accept(stream, &acceptor, within, &stop, || true)
                    .expect("the token is correct");
                while let Ok(Some(request)) = channel.receive::<Request>("the coordinator") {
                    channel.send(&fail(&request), "the coordinator").expect("the peer listens");
                }
            }));
            let channel = Channel::connect(at, &Credential::Token(token()), &StopFlag::default());
            members.push(Member {
                name: name.into(),
                channel: Some(channel.expect("the peer listens")),
            });
        }
        members.push(Member { name: "gone".into(), channel: None });
        (AgentPool(Arc::new(Mutex::new(members))), agents)
    }

    fn failed(why: &str, corrupt: bool) -> Response {
        Response::Failed { why: why.into(), unreachable: false, corrupt }
    }

    #[test]
    fn responses_are_received_when_another_agent_is_gone() {
        let fail = |request: &Request| match request {
            Request::Tidy { .. } => failed("to tidy", false),
            _ => failed("to be ready", false),
        };
        let (fleet, agents) = pool([fail, fail]);
        let lost = fleet.all(&Request::Tidy { number: 1 }).map(drop);
        assert!(
            matches!(&lost, Err(Error::Unreachable(why)) if why.contains("gone") && why.contains("if the agent still runs")),
            "{lost:?}"
        );
        let answer = fleet.each(&|at| (at == 0).then_some(Request::Ready)).map(drop);
        assert!(
            matches!(&answer, Err(Error::Refused(why)) if why.contains("to be ready")),
            "{answer:?}"
        );
        drop(fleet);
        agents.into_iter().for_each(|agent| agent.join().expect("the thread ends"));
    }

    #[test]
    fn corrupt_data_is_reported_first() {
        let (fleet, agents) = pool([|_| failed("refused", false), |_| failed("wrong", true)]);
        for pending in [2, 3] {
            let outcome = fleet.each(&|at| (at < pending).then_some(Request::Ready)).map(drop);
            assert!(
                matches!(&outcome, Err(Error::Corrupt(why)) if why.contains("second")),
                "{outcome:?}"
            );
        }
        drop(fleet);
        agents.into_iter().for_each(|agent| agent.join().expect("the thread ends"));
    }

    #[test]
    fn shares_add_up_to_case() {
        let copy = |files| {
            Case::Put(Copy { files, len: 10, content: Content::Random, streams: 1, depth: 1 })
        };
        let files = |files: u64, nodes: usize| -> Vec<u64> {
            let of = |at| {
                share(&copy(files), at, nodes)
                    .map(|case| if let Case::Put(copy) = case { copy.files } else { 0 })
            };
            (0..nodes).filter_map(of).collect()
        };
        assert_eq!(files(10, 3), [3, 3, 4]);
        assert_eq!(files(2, 3).iter().sum::<u64>(), 2);
        assert_eq!(files(2, 3).len(), 2);
        assert_eq!(files(1, 3), [1, 1, 1]);
        let load = crate::case::Load { depth: 3, rate: Some(900.0), ..crate::case::Load::READS };
        assert!(
            matches!(share(&Case::Load(load), 2, 3), Some(Case::Load(load)) if load.rate == Some(300.0) && load.depth == 1)
        );
        for (depth, parts) in [(1, &[1][..]), (4, &[2, 1, 1]), (64, &[22, 21, 21])] {
            for case in [
                Case::Load(crate::case::Load { depth, ..load }),
                Case::Metadata { depth, seconds: 1.0 },
                Case::Getattr { depth, seconds: 1.0 },
            ] {
                let shared: Vec<Case> = (0..3).filter_map(|at| share(&case, at, 3)).collect();
                assert_eq!(shared.iter().map(Case::depth).collect::<Vec<_>>(), parts);
                let rates: f64 = shared
                    .iter()
                    .filter_map(|case| if let Case::Load(load) = case { load.rate } else { None })
                    .sum();
                assert!(matches!(case, Case::Load(_)) == ((rates - 900.0).abs() < 1e-6));
            }
        }
    }
}
