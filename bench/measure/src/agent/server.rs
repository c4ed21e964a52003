//! Authenticates coordinators, and measures for one at a time. It opens no file of its node.

use std::collections::HashMap;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use super::channel::{Acceptor, Channel, Receiver};
use super::{Request, Response};
use crate::nfs::NfsSubject;
use crate::{Case, Error, StopFlag, Subject};

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub bytes: u64,
    pub seconds: f64,
    pub subjects: usize,
    pub sessions: usize,
    pub silence: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 1 << 40,
            seconds: 3600.0,
            subjects: 64,
            sessions: 1024,
            silence: Duration::from_secs(3600),
        }
    }
}

/// One coordinator at a time, until a stop request. Peers authenticate in parallel.
pub fn serve(
    listener: &TcpListener,
    acceptor: &Acceptor,
    limits: Limits,
    stop: &StopFlag,
    log: &(dyn Fn(String) + Sync),
) -> Result<(), Error> {
    listener.set_nonblocking(true).map_err(Error::io("the listener"))?;
    let (slot, handshakes) = (CoordinatorSlot::default(), PendingHandshakes::default());
    std::thread::scope(|scope| {
        while !stop.is_set() {
            match listener.accept() {
                Ok((stream, peer)) => {
                    let Some(permit) = handshakes.admit(peer.ip()) else {
                        log(format!("{peer}: closed: too many unauthenticated connections"));
                        continue;
                    };
                    let slot = &slot;
                    scope.spawn(move || {
                        let outcome = stream
                            .set_nonblocking(false)
                            .map_err(Error::io("a connection"))
                            .and_then(|()| {
                                if slot.is_taken() {
                                    Channel::refuse_busy(stream);
                                    return Err(Error::Refused(
                                        "refused: the agent works for another coordinator".into(),
                                    ));
                                }
                                log(format!("{peer}: connected"));
                                coordinator(stream, acceptor, limits, stop, slot, permit)
                            });
                        match outcome {
                            Ok(cases) => log(format!("{peer}: done, {cases} measurements")),
                            Err(error) => log(format!("{peer}: {error}")),
                        }
                    });
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    std::thread::sleep(TICK)
                }
                Err(error)
                    if error.kind() == std::io::ErrorKind::Interrupted
                        || error.kind() == std::io::ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(Error::io("the listener")(error)),
            }
        }
        Ok(())
    })
}

/// The flag is true until the agent's coordinator disconnects.
#[derive(Default)]
struct CoordinatorSlot(Mutex<Option<Arc<AtomicBool>>>);

struct SlotGuard<'a> {
    slot: &'a CoordinatorSlot,
    active: Arc<AtomicBool>,
}

impl CoordinatorSlot {
    fn holder(&self) -> MutexGuard<'_, Option<Arc<AtomicBool>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_taken(&self) -> bool {
        self.holder().as_ref().is_some_and(|active| active.load(Ordering::Relaxed))
    }

    /// Waits for cleanup, but not for another coordinator's run.
    fn take(&self, stop: &StopFlag) -> Option<SlotGuard<'_>> {
        let begun = Instant::now();
        loop {
            let mut holder = self.holder();
            if holder.is_none() {
                let active = Arc::new(AtomicBool::new(true));
                *holder = Some(active.clone());
                return Some(SlotGuard { slot: self, active });
            }
            drop(holder);
            if self.is_taken() || stop.is_set() || begun.elapsed() > CLEANUP_WAIT_MAX {
                return None;
            }
            std::thread::sleep(TICK);
        }
    }
}

impl Drop for SlotGuard<'_> {
    fn drop(&mut self) {
        *self.slot.holder() = None;
    }
}

/// By address. An IPv6 host may use its whole /64.
#[derive(Default)]
struct PendingHandshakes(Arc<Mutex<HashMap<IpAddr, usize>>>);

struct HandshakePermit {
    all: Arc<Mutex<HashMap<IpAddr, usize>>>,
    address: IpAddr,
}

impl PendingHandshakes {
    fn admit(&self, address: IpAddr) -> Option<HandshakePermit> {
        let address = match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6((address.to_bits() & !u128::from(u64::MAX)).into()),
            address => address,
        };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = all.get(&address).copied().unwrap_or(0);
        if count >= UNAUTHENTICATED_PER_ADDRESS_MAX
            || all.values().sum::<usize>() >= UNAUTHENTICATED_MAX
        {
            return None;
        }
        all.insert(address, count + 1);
        Some(HandshakePermit { all: self.0.clone(), address })
    }
}

impl Drop for HandshakePermit {
    fn drop(&mut self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = all.get_mut(&self.address) {
            *count -= 1;
        }
        all.retain(|_, count| *count > 0);
    }
}

fn coordinator(
    stream: TcpStream,
    acceptor: &Acceptor,
    limits: Limits,
    agent_stop: &StopFlag,
    slot: &CoordinatorSlot,
    permit: HandshakePermit,
) -> Result<u64, Error> {
    let mut guard = None;
    let mut channel = Channel::accept(stream, acceptor, PROOF_TIMEOUT, agent_stop, || {
        guard = slot.take(agent_stop);
        guard.is_some()
    })?;
    drop(permit);
    let Some(guard) = guard else {
        return Err(Error::Refused("refused: the agent works for another coordinator".into()));
    };
    let active = guard.active.clone();
    channel.set_authenticated(None);
    let (mut channel, receiver) = channel.split()?;
    let stop = StopFlag::default();
    let requests = receive_requests(receiver, &stop, &active);
    let mut subjects: HashMap<u32, NfsSubject> = HashMap::new();
    let (mut measured, mut outcome) = (0, Ok(()));
    let mut last_request = Instant::now();
    loop {
        if agent_stop.is_set() {
            stop.set();
        }
        let request = match requests.recv_timeout(Duration::from_millis(200)) {
            Ok(request) => request,
            // A coordinator that hangs must not block others.
            Err(mpsc::RecvTimeoutError::Timeout)
                if !stop.is_set() && last_request.elapsed() > limits.silence =>
            {
                outcome =
                    Err(Error::Refused("the coordinator sent no request for too long".into()));
                break;
            }
            Err(mpsc::RecvTimeoutError::Timeout) if !stop.is_set() => continue,
            Err(_) => break,
        };
        measured += u64::from(matches!(request, Request::Measure { .. }));
        let answer = handle(request, &mut subjects, limits, &stop).unwrap_or_else(|error| {
            Response::Failed {
                unreachable: matches!(error, Error::Unreachable(_)),
                corrupt: matches!(error, Error::Corrupt(_)),
                why: error.with_hint(),
            }
        });
        outcome = channel.send(&answer, "the coordinator");
        last_request = Instant::now();
        if outcome.is_err() {
            break;
        }
    }
    active.store(false, Ordering::Relaxed);
    channel.shut_down();
    for mut subject in subjects.into_values() {
        outcome = outcome.and(subject.clean());
    }
    outcome.map(|()| measured)
}

fn receive_requests(
    mut receiver: Receiver,
    stop: &StopFlag,
    active: &Arc<AtomicBool>,
) -> mpsc::Receiver<Request> {
    let (stop_on_disconnect, active_until_disconnect, (sender, requests)) =
        (stop.clone(), active.clone(), mpsc::channel());
    std::thread::spawn(move || {
        while let Ok(Some(request)) = receiver.receive::<Request>("the coordinator") {
            if sender.send(request).is_err() {
                break;
            }
        }
        active_until_disconnect.store(false, Ordering::Relaxed);
        stop_on_disconnect.set();
    });
    requests
}

fn handle(
    request: Request,
    subjects: &mut HashMap<u32, NfsSubject>,
    limits: Limits,
    stop: &StopFlag,
) -> Result<Response, Error> {
    let unknown = || Error::Input("unknown subject".into());
    Ok(match request {
        Request::Open { number, options } => {
            if subjects.len() >= limits.subjects
                || options.sessions > limits.sessions
                || options.connections > 64
                || options.slots > 1024
            {
                return Err(Error::Refused("the request exceeds this agent's limits".into()));
            }
            // Other nodes of the run use the same directory.
            let options = crate::nfs::NfsOptions { server_cpu: None, ..*options };
            let subject = NfsSubject::connect(options, stop)?;
            let about = subject.info();
            subjects.insert(number, subject);
            let machine = Box::new(crate::machine::Machine::this());
            Response::Opened {
                about,
                machine,
                node: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            }
        }
        Request::Prepare { number, case } => {
            check_limits(&case, limits)?;
            subjects.get_mut(&number).ok_or_else(unknown)?.prepare(&case)?;
            Response::Done
        }
        Request::Ready => Response::Done,
        Request::Measure { number, case } => {
            check_limits(&case, limits)?;
            Response::Measured {
                sample: Box::new(subjects.get_mut(&number).ok_or_else(unknown)?.measure(&case)?),
            }
        }
        Request::Tidy { number } => {
            subjects.get_mut(&number).ok_or_else(unknown)?.tidy()?;
            Response::Done
        }
        Request::Clean { number } => {
            subjects.remove(&number).ok_or_else(unknown)?.clean()?;
            Response::Done
        }
    })
}

fn check_limits(case: &Case, limits: Limits) -> Result<(), Error> {
    let (bytes, seconds) = match case {
        Case::Put(copy) | Case::Get(copy) => (copy.files.saturating_mul(copy.len), 0.0),
        Case::Load(load) => (load.file_len, load.seconds),
        Case::Metadata { seconds, .. }
        | Case::Getattr { seconds, .. }
        | Case::Connect { seconds, .. } => (0, *seconds),
        Case::Audit { .. }
        | Case::Changes { .. }
        | Case::Read(_)
        | Case::Compile { .. }
        | Case::Build
        | Case::Primitive { .. }
        | Case::Replay { .. } => {
            return Err(Error::Refused("an agent measures only NFS servers".into()));
        }
    };
    let sane = match case {
        Case::Load(load) => {
            load.block > 0
                && load.block % crate::content::PAGE_LEN as u32 == 0
                && load.block <= 1 << 20
                && u64::from(load.block) <= load.file_len
                && load.read_percent <= 100
                && load.rate.is_none_or(|rate| rate > 0.0 && rate.is_finite())
        }
        Case::Put(copy) | Case::Get(copy) => copy.streams > 0 && copy.depth > 0 && copy.len > 0,
        _ => true,
    };
    let right = sane
        && bytes <= limits.bytes
        && (0.0..=limits.seconds).contains(&seconds)
        && (1..=1024).contains(&case.depth());
    if right {
        Ok(())
    } else {
        Err(Error::Refused("the request exceeds this agent's limits".into()))
    }
}

const PROOF_TIMEOUT: Duration = Duration::from_secs(10);
/// Each connection costs a thread.
const UNAUTHENTICATED_MAX: usize = 128;
const UNAUTHENTICATED_PER_ADDRESS_MAX: usize = 16;
const CLEANUP_WAIT_MAX: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::SocketAddr;

    use super::super::Credential;
    use super::*;

    const TOKEN: &[u8] = b"a secret of some length";

    fn coordinate(at: SocketAddr) -> Result<Channel, Error> {
        Channel::connect(at, &Credential::Token(TOKEN.to_vec()), &StopFlag::default())
    }

    fn with_an_agent(silence: Duration, work: impl FnOnce(SocketAddr)) -> Vec<String> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let (at, stop, log_lines) =
            (listener.local_addr().expect("a port"), StopFlag::default(), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            let log =
                |line| log_lines.lock().expect("no thread panicked with the lock held").push(line);
            let limits = Limits { silence, ..Limits::default() };
            let agent = scope.spawn({
                let (stop, listener) = (stop.clone(), &listener);
                move || serve(listener, &Acceptor::Token(TOKEN.to_vec()), limits, &stop, &log)
            });
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(at)));
            stop.set();
            agent.join().expect("the thread ends").expect("the listener works");
            done.unwrap_or_else(|fault| std::panic::resume_unwind(fault));
        });
        log_lines.into_inner().expect("no thread panicked with the lock held")
    }

    #[test]
    fn second_coordinator_is_refused_until_first_is_done() {
        with_an_agent(Duration::from_secs(3600), |at| {
            let first = coordinate(at).expect("the token is correct");
            let second = coordinate(at).err().map(|error| error.to_string());
            assert!(
                second.as_ref().is_some_and(|why| why.contains("another coordinator")),
                "{second:?}"
            );
            drop(first);
            coordinate(at).expect("the agent is free");
        });
    }

    #[test]
    fn unauthenticated_peers_do_not_block_agent() {
        with_an_agent(Duration::from_secs(3600), |at| {
            let _silent: Vec<TcpStream> = (0..UNAUTHENTICATED_PER_ADDRESS_MAX - 1)
                .map(|_| TcpStream::connect(at).expect("the peer listens"))
                .collect();
            coordinate(at).expect("the token is correct");
        });
        with_an_agent(Duration::from_secs(3600), |at| {
            let mut silent: Vec<TcpStream> = (0..=UNAUTHENTICATED_PER_ADDRESS_MAX)
                .map(|_| TcpStream::connect(at).expect("the peer listens"))
                .collect();
            assert_eq!(
                silent[UNAUTHENTICATED_PER_ADDRESS_MAX]
                    .read(&mut [0])
                    .expect("the connection is closed"),
                0
            );
        });
    }

    #[test]
    fn unauthenticated_connections_are_limited_by_address() {
        let (handshakes, address) = (PendingHandshakes::default(), |text: &str| {
            text.parse::<IpAddr>().expect("an address")
        });
        let mut places: Vec<HandshakePermit> = (0..UNAUTHENTICATED_PER_ADDRESS_MAX)
            .map(|_| handshakes.admit(address("2001:db8::1")).expect("the buffer has room"))
            .collect();
        assert!(
            handshakes.admit(address("2001:db8::ffff:2")).is_none()
                && handshakes.admit(address("2001:db8:0:1::1")).is_some()
        );
        places.pop();
        assert!(handshakes.admit(address("2001:db8::ffff:2")).is_some());
    }

    #[test]
    fn silent_coordinator_loses_agent() {
        let log_lines = with_an_agent(Duration::from_millis(100), |at| {
            let _frozen = coordinate(at).expect("the token is correct");
            let begun = Instant::now();
            let mut next = coordinate(at);
            while next.is_err() && begun.elapsed() < Duration::from_secs(60) {
                next = coordinate(at);
            }
            assert!(next.is_ok(), "{:?}", next.err());
        });
        assert!(
            log_lines.iter().any(|line| line.contains("no request for too long")),
            "{log_lines:?}"
        );
    }
}
