//! Table 1 of the SFS read-only paper: where the time of a read goes.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::case::{Case, Read};
use crate::cpu::ServerCpu;
use crate::subject::{
    ClosureSubject, DropCaches, Measurement, ReadSubject, ReplaySubject, ReplyCheck, SubjectInfo,
};
use crate::{Error, Sample, StopFlag, Subject};

use super::PublishedTree;
use super::mounted::Mounted;

#[derive(Default)]
struct Spent {
    mount: Option<ServerCpu>,
    cpu_s: f64,
    requests: u64,
}

impl PublishedTree {
    /// The parts of the time of a read.
    pub fn breakdown(&self, read: Read, stop: &StopFlag) -> Result<Vec<Box<dyn Subject>>, Error> {
        let (replica, calls) = (self.replica()?, self.calls_of(self.replica()?, read, stop)?);
        let spent: Arc<Mutex<Spent>> = Arc::default();
        let part = |label: &str, detail: &str, measure: Measurement| -> Box<dyn Subject> {
            let about = SubjectInfo {
                label: label.into(),
                target: self.name.clone(),
                sec: None,
                details: vec![detail.into()],
            };
            Box::new(ClosureSubject::new(about, measure))
        };
        let at = self.place("whole read")?;
        let mut mounted = Mounted::tree(
            &self.program,
            self.options(&self.replica.address, "state-whole"),
            &self.name,
            None,
            &at,
            false,
        );
        mounted.renew()?;
        let started = spent.clone();
        let forget: DropCaches = Box::new(move || {
            let mount = mounted.renew()?;
            let (cpu_s, requests) = counters(mount.as_ref())?;
            *started.lock().unwrap_or_else(PoisonError::into_inner) =
                Spent { mount: mount.clone(), cpu_s, requests };
            Ok(mount)
        });
        let about = SubjectInfo {
            label: "whole read".into(),
            target: self.name.clone(),
            sec: None,
            details: Vec::new(),
        };
        let mut reader = ReadSubject::new(
            about,
            at,
            forget,
            Some(ServerCpu::Process(self.replica.child.id())),
            stop,
        );
        let ended = spent.clone();
        let whole: Measurement = Box::new(move |case| {
            let sample = reader.measure(case)?;
            let mut spent = ended.lock().unwrap_or_else(PoisonError::into_inner);
            let (cpu_s, requests) = counters(spent.mount.as_ref())?;
            (spent.cpu_s, spent.requests) =
                (cpu_s - spent.cpu_s, requests.saturating_sub(spent.requests));
            Ok(sample)
        });

        let at = self.place("round trips")?;
        let mut warm = Mounted::tree(
            &self.program,
            self.options(&self.replica.address, "state-trips"),
            &self.name,
            None,
            &at,
            true,
        );
        warm.renew()?;
        let counted = spent.clone();
        let trips: Measurement = Box::new(move |_| {
            let _mounted = &warm;
            round_trips(&at, counted.lock().unwrap_or_else(PoisonError::into_inner).requests)
        });
        let computation: Measurement = Box::new(move |_| {
            let Spent { cpu_s, requests, .. } =
                *spent.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(Sample {
                seconds: cpu_s.max(1e-9),
                operations: requests,
                client_cpu_s: Some(cpu_s),
                ..Sample::default()
            })
        });
        let count = calls.len() as u64;
        let server = Some(ServerCpu::Process(self.replica.child.id()));
        let mut replay = ReplaySubject::new("replica".into(), replica, calls, server, stop)
            .with_check(ReplyCheck::Length);
        let answers: Measurement = Box::new(move |_| {
            let sample = replay.measure(&Case::Replay { clients: 1, seconds: REPLAY_S })?;
            let passes = sample.operations as f64 / count as f64;
            Ok(Sample {
                seconds: sample.seconds / passes.max(1e-9),
                operations: count,
                ..Sample::default()
            })
        });
        Ok(vec![
            part("whole read", "a new mount without any cache", whole),
            part(
                "kernel and mount",
                "as many round trips that the mount answers at once (statfs) as requests of the read",
                trips,
            ),
            part(
                "client's computation",
                "CPU time of the mount during the read, on all cores",
                computation,
            ),
            part(
                "replica and network",
                "the calls of the read, one after the other, not verified",
                answers,
            ),
        ])
    }
}

fn counters(mount: Option<&ServerCpu>) -> Result<(f64, u64), Error> {
    let Some(ServerCpu::Process(pid)) = mount else {
        return Err(Error::NotFound("the mount has no process".into()));
    };
    let file = format!("/proc/{pid}/io");
    let text = fs::read_to_string(&file).map_err(Error::io(&file))?;
    let reads = text.lines().find_map(|line| line.strip_prefix("syscr: ")?.trim().parse().ok());
    let reads = reads.ok_or_else(|| Error::NotFound(format!("{file}: no count of reads")))?;
    Ok((ServerCpu::Process(*pid).seconds()?, reads))
}

/// The kernel sends each statfs to the mount and keeps no answer.
fn round_trips(mount: &Path, count: u64) -> Result<Sample, Error> {
    let trip =
        || rustix::fs::statfs(mount).map(drop).map_err(|error| Error::file(mount)(error.into()));
    trip()?;
    let begun = Instant::now();
    (0..count).try_for_each(|_| trip())?;
    Ok(Sample {
        seconds: begun.elapsed().as_secs_f64().max(1e-9),
        operations: count,
        ..Sample::default()
    })
}

const REPLAY_S: f64 = 0.5;
