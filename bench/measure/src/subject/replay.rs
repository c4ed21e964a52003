//! From many clients. Each has one connection and one call in flight.

use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::{CpuMeter, SubjectInfo};
use crate::cpu::{self, ServerCpu};
use crate::{Case, Error, Latency, Sample, StopFlag, Subject};

pub(crate) enum ReplyCheck {
    /// Equal to the first answer to this call (BLAKE3).
    Same,
    /// As long as the first answer: the cost without checks.
    Length,
    /// A function accepts call and answer, both as records: the cost of a verifying client.
    Checked(AnswerCheck),
}

pub(crate) type AnswerCheck = Box<dyn Fn(&[u8], &[u8]) -> bool + Send + Sync>;

pub(crate) struct ReplaySubject {
    label: String,
    address: SocketAddr,
    calls: Vec<Vec<u8>>,
    check: ReplyCheck,
    first: Vec<OnceLock<(Option<blake3::Hash>, usize)>>,
    server_cpu: Option<ServerCpu>,
    stop: StopFlag,
}

impl ReplaySubject {
    pub(crate) fn new(
        label: String,
        address: SocketAddr,
        calls: Vec<Vec<u8>>,
        server_cpu: Option<ServerCpu>,
        stop: &StopFlag,
    ) -> Self {
        let first = calls.iter().map(|_| OnceLock::new()).collect();
        Self {
            label,
            address,
            calls,
            check: ReplyCheck::Same,
            first,
            server_cpu,
            stop: stop.clone(),
        }
    }

    #[must_use]
    pub(crate) fn with_check(self, check: ReplyCheck) -> Self {
        Self { check, ..self }
    }

    fn accepts(
        &self,
        call: &[u8],
        answer: &[u8],
        first: &OnceLock<(Option<blake3::Hash>, usize)>,
    ) -> bool {
        let hash = match &self.check {
            ReplyCheck::Same => Some(blake3::hash(answer)),
            ReplyCheck::Length => None,
            ReplyCheck::Checked(check) => return check(call, answer),
        };
        let found = (hash, answer.len());
        *first.get_or_init(|| found) == found
    }

    fn client(&self, end: Instant, latency: &mut Latency) -> Result<u64, Error> {
        let lost = |error: std::io::Error| Error::Unreachable(format!("{}: {error}", self.address));
        let mut stream = TcpStream::connect_timeout(&self.address, ANSWER_TIMEOUT).map_err(lost)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(lost)?;
        stream.set_nodelay(true).map_err(lost)?;
        let (mut answer, mut bytes) = (Vec::new(), 0);
        for (call, first) in self.calls.iter().zip(&self.first) {
            let begun = Instant::now();
            if begun >= end || self.stop.is_set() {
                break;
            }
            answer.clear();
            stream.write_all(call).map_err(lost)?;
            record(&mut stream, &mut answer).map_err(lost)?;
            bytes += answer.len() as u64;
            let believed = self.accepts(call, &answer, first);
            latency.record(begun.elapsed().as_nanos() as u64);
            if !believed {
                return Err(Error::Corrupt(self.label.clone()));
            }
        }
        Ok(bytes)
    }
}

pub(super) fn record(stream: &mut impl Read, answer: &mut Vec<u8>) -> std::io::Result<()> {
    loop {
        let mut mark = [0; 4];
        stream.read_exact(&mut mark)?;
        answer.extend(mark);
        let (last, len) = (mark[0] & 0x80 != 0, (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize);
        let at = answer.len();
        if at + len > ANSWER_LEN_MAX {
            return Err(std::io::Error::new(
                std::io::ErrorKind::InvalidData,
                "the answer is too long",
            ));
        }
        answer.resize(at + len, 0);
        stream.read_exact(&mut answer[at..])?;
        if last {
            return Ok(());
        }
    }
}

impl Subject for ReplaySubject {
    fn info(&self) -> SubjectInfo {
        let again = "one at a time, and again on a new connection";
        let detail = match self.check {
            ReplyCheck::Same => {
                let count = self.calls.len();
                format!(
                    "{count} calls of a client without a cache, {again}; each answer is compared with the first by its hash"
                )
            }
            ReplyCheck::Length => {
                format!("the calls of a client without a cache, {again}; answers are not verified")
            }
            ReplyCheck::Checked(_) => {
                format!("the calls of a client without a cache, {again}; each answer is verified")
            }
        };
        let details = vec![detail];
        SubjectInfo {
            label: self.label.clone(),
            target: self.address.to_string(),
            sec: None,
            details,
        }
    }

    fn unsupported(&self, case: &Case) -> Option<String> {
        (!matches!(case, Case::Replay { .. })).then(|| "this subject measures only replays".into())
    }

    fn prepare(&mut self, _case: &Case) -> Result<(), Error> {
        if self.calls.is_empty() {
            Err(Error::NotFound("no calls were recorded".into()))
        } else {
            Ok(())
        }
    }

    fn measure(&mut self, case: &Case) -> Result<Sample, Error> {
        let Case::Replay { clients, seconds } = case else {
            return Err(Error::Input("this subject measures only replays".into()));
        };
        let meter = CpuMeter::start(self.server_cpu.as_ref(), self.server_cpu.is_some())?;
        let start = Instant::now();
        let end = start + Duration::from_secs_f64(*seconds);
        let sum = Mutex::new((Sample::default(), Ok(())));
        std::thread::scope(|scope| {
            for _ in 0..*clients {
                scope.spawn(|| {
                    let (mut latency, mut bytes, mut outcome) = (Latency::new(), 0, Ok(()));
                    while Instant::now() < end && !self.stop.is_set() && outcome.is_ok() {
                        outcome = self.client(end, &mut latency).map(|more| bytes += more);
                    }
                    let mut sum = sum.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    sum.0.operations += latency.count();
                    sum.0.bytes += bytes;
                    sum.0.latency.merge(&latency);
                    sum.0.busy(cpu::thread_s());
                    if outcome.is_err() {
                        sum.1 = outcome;
                    }
                });
            }
        });
        let (mut sample, outcome) =
            sum.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        sample.seconds = start.elapsed().as_secs_f64();
        sample.others.iter_mut().for_each(|(_, busiest)| *busiest /= sample.seconds);
        meter.end(&mut sample)?;
        outcome?;
        if self.stop.is_set() { Err(Error::Interrupted) } else { Ok(sample) }
    }

    fn tidy(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn clean(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
const ANSWER_LEN_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::subject::RecordingProxy;

    fn echo(right: usize) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("a port");
        let answered = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                let answered = answered.clone();
                std::thread::spawn(move || {
                    let mut call = Vec::new();
                    while record(&mut stream, &mut call).is_ok() {
                        if answered.fetch_add(1, std::sync::atomic::Ordering::Relaxed) >= right {
                            call[5] ^= 1;
                        }
                        stream.write_all(&call).expect("the client waits for it");
                        call.clear();
                    }
                });
            }
        });
        address
    }

    fn call(text: &[u8]) -> Vec<u8> {
        let mark = 0x8000_0000 | text.len() as u32;
        [&mark.to_be_bytes()[..], text].concat()
    }

    #[test]
    fn recorded_calls_are_replayed_by_many_clients() {
        let server = echo(usize::MAX);
        let recorder = RecordingProxy::begin(server).expect("loopback");
        let mut client = TcpStream::connect(recorder.address()).expect("the relay");
        let (calls, mut answer) = (vec![call(b"a first call"), call(b"and a second")], Vec::new());
        for call in &calls {
            client.write_all(call).expect("the relay accepts the connection");
            record(&mut client, &mut answer).expect("an answer");
        }
        assert_eq!(recorder.calls(), calls);
        assert_eq!(answer, calls.concat());
        let mut subject =
            ReplaySubject::new("echo".into(), server, recorder.calls(), None, &StopFlag::default());
        let sample = subject.measure(&Case::Replay { clients: 4, seconds: 0.2 }).expect("answers");
        assert!(sample.operations >= 8 && sample.bytes == sample.operations * 16, "{sample:?}");
    }

    #[test]
    fn answers_are_checked_as_configured() {
        let calls = || vec![call(b"a call and more")];
        let case = Case::Replay { clients: 1, seconds: 20.0 };
        let checked = ReplyCheck::Checked(Box::new(|call, answer| call == answer));
        let mut subject =
            ReplaySubject::new("echo".into(), echo(10), calls(), None, &StopFlag::default())
                .with_check(checked);
        let outcome = subject.measure(&case);
        assert!(matches!(outcome, Err(Error::Corrupt(_))), "{outcome:?}");
        let case = Case::Replay { clients: 1, seconds: 0.2 };
        let mut subject =
            ReplaySubject::new("echo".into(), echo(10), calls(), None, &StopFlag::default())
                .with_check(ReplyCheck::Length);
        let sample = subject.measure(&case).expect("bytes that nobody looks at");
        assert!(sample.operations > 10, "{sample:?}");
    }

    #[test]
    fn detects_different_answer() {
        let server = echo(10);
        let mut subject = ReplaySubject::new(
            "echo".into(),
            server,
            vec![call(b"a call and more")],
            None,
            &StopFlag::default(),
        );
        let outcome = subject.measure(&Case::Replay { clients: 1, seconds: 20.0 });
        assert!(matches!(outcome, Err(Error::Corrupt(_))), "{outcome:?}");
    }
}
