//! An agent: accepts coordinators, one after the other, and measures for them within its limits. Touches no file of its node.

use std::collections::HashMap;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use super::wire::{Acceptor, Line};
use super::{Answer, Ask};
use crate::nfs::NfsSubject;
use crate::{Case, Error, Stop, Subject};

/// What a coordinator may ask for at most.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of a file, or of all files of a copy.
    pub bytes: u64,
    /// Seconds of a case.
    pub seconds: f64,
    /// Servers at a time.
    pub subjects: usize,
    /// Sessions of each.
    pub sessions: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 1 << 40, seconds: 3600.0, subjects: 64, sessions: 1024 }
    }
}

/// Serves coordinators until somebody asks to stop; tells `log` what happens. One at a time: two would spoil each other's figures.
///
/// # Errors
/// Those of the listener.
pub fn serve(listener: &TcpListener, acceptor: &Acceptor, limits: Limits, stop: &Stop, log: &dyn Fn(String)) -> Result<(), Error> {
    listener.set_nonblocking(true).map_err(Error::io("the listener"))?;
    while !stop.asked() {
        match listener.accept() {
            Ok((stream, peer)) => {
                log(format!("{peer}: connected"));
                match stream
                    .set_nonblocking(false)
                    .map_err(Error::io("a connection"))
                    .and_then(|()| coordinator(stream, acceptor, limits, stop))
                {
                    Ok(cases) => log(format!("{peer}: done, {cases} measurements")),
                    Err(error) => log(format!("{peer}: {error}")),
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(50)),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted || error.kind() == std::io::ErrorKind::ConnectionAborted => {}
            Err(error) => return Err(Error::io("the listener")(error)),
        }
    }
    Ok(())
}

/// One coordinator, to its end; how much was measured.
fn coordinator(stream: TcpStream, acceptor: &Acceptor, limits: Limits, ended: &Stop) -> Result<u64, Error> {
    let mut line = Line::accept(stream, acceptor, PROOF_WITHIN, ended)?;
    line.without_hurry();
    let (mut line, mut receiver) = line.part()?;
    // A coordinator that hangs up in the middle of a measurement ends it.
    let stop = Stop::default();
    let (gone, (sender, asks)) = (stop.clone(), mpsc::channel());
    std::thread::spawn(move || {
        while let Ok(Some(ask)) = receiver.receive::<Ask>("the coordinator") {
            if sender.send(ask).is_err() {
                return;
            }
        }
        gone.ask();
    });
    let mut subjects: HashMap<u32, NfsSubject> = HashMap::new();
    let (mut measured, mut outcome) = (0, Ok(()));
    loop {
        if ended.asked() {
            stop.ask();
        }
        let ask = match asks.recv_timeout(Duration::from_millis(200)) {
            Ok(ask) => ask,
            Err(mpsc::RecvTimeoutError::Timeout) if !stop.asked() => continue,
            Err(_) => break,
        };
        measured += u64::from(matches!(ask, Ask::Measure { .. }));
        let answer = answer(ask, &mut subjects, limits, &stop).unwrap_or_else(|error| Answer::Failed {
            unreachable: matches!(error, Error::Unreachable(_)),
            corrupt: matches!(error, Error::Corrupt(_)),
            why: error.with_cure(),
        });
        outcome = line.send(&answer, "the coordinator");
        if outcome.is_err() {
            break;
        }
    }
    for mut subject in subjects.into_values() {
        outcome = outcome.and(subject.clean());
    }
    outcome.map(|()| measured)
}

fn answer(ask: Ask, subjects: &mut HashMap<u32, NfsSubject>, limits: Limits, stop: &Stop) -> Result<Answer, Error> {
    let unknown = || Error::Input("no such subject".into());
    Ok(match ask {
        Ask::Open { number, options } => {
            if subjects.len() >= limits.subjects || options.sessions > limits.sessions || options.connections > 64 || options.slots > 1024 {
                return Err(Error::Refused("more than this agent does".into()));
            }
            // Other nodes of the same run work in the same directory.
            let options = crate::nfs::NfsOptions { server_cpu: None, ..*options };
            let subject = NfsSubject::connect(options, stop)?;
            let about = subject.about();
            subjects.insert(number, subject);
            let machine = Box::new(crate::machine::Machine::here());
            Answer::Opened { about, machine, node: rustix::system::uname().nodename().to_string_lossy().into_owned() }
        }
        Ask::Prepare { number, case } => {
            within(&case, limits)?;
            subjects.get_mut(&number).ok_or_else(unknown)?.prepare(&case)?;
            Answer::Done
        }
        Ask::Ready => Answer::Done,
        Ask::Measure { number, case } => {
            within(&case, limits)?;
            Answer::Measured { sample: Box::new(subjects.get_mut(&number).ok_or_else(unknown)?.measure(&case)?) }
        }
        Ask::Tidy { number } => {
            subjects.get_mut(&number).ok_or_else(unknown)?.tidy()?;
            Answer::Done
        }
        Ask::Clean { number } => {
            subjects.remove(&number).ok_or_else(unknown)?.clean()?;
            Answer::Done
        }
    })
}

fn within(case: &Case, limits: Limits) -> Result<(), Error> {
    let (bytes, seconds) = match case {
        Case::Put(copy) | Case::Get(copy) => (copy.files.saturating_mul(copy.len), 0.0),
        Case::Load(load) => (load.file_len, load.seconds),
        Case::Metadata { seconds, .. } | Case::Getattr { seconds, .. } | Case::Connect { seconds, .. } => (0, *seconds),
        Case::Audit { .. } | Case::Changes { .. } | Case::Read(_) | Case::Compile { .. } | Case::Replay { .. } => {
            return Err(Error::Refused("an agent measures NFS servers alone".into()));
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
    let right = sane && bytes <= limits.bytes && (0.0..=limits.seconds).contains(&seconds) && (1..=1024).contains(&case.depth());
    if right { Ok(()) } else { Err(Error::Refused("more than this agent does".into())) }
}

/// How long a coordinator may take to prove that it may be one: meanwhile no other is heard.
const PROOF_WITHIN: Duration = Duration::from_secs(10);
