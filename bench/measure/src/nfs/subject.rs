//! An NFS server under one flavour as a subject.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use vouch_nfs4::Filehandle;
use vouch_nfs4_client::Error as CallError;

use super::calls::Opened;
use super::large_file::{BLOCK_LEN, ReadWriteMix, WholeFile};
use super::metadata::{Getattr, GitMetadata};
use super::session::SessionOptions;
use super::small_files::{self, FileAction, SmallFiles};
use super::{Pace, Session, Tally};
use crate::case::{Content, Copy, Load};
use crate::content::{Pages, mix};
use crate::cpu::ServerCpu;
use crate::page_versions::{PageVersions, in_flight_max};
use crate::sample::BUSIEST;
use crate::subject::{CpuMeter, SubjectInfo};
use crate::target::{NfsTarget, Sec, TlsFiles};
use crate::{Case, Error, Sample, StopFlag, Subject};

mod file_reads;
mod metadata_files;

#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub struct NfsOptions {
    pub label: String,
    pub target: NfsTarget,
    pub sec: Sec,
    /// None uses `nfs@HOST`.
    pub service: Option<String>,
    pub tls: Option<TlsFiles>,
    pub sessions: usize,
    pub connections: usize,
    pub slots: usize,
    pub server_cpu: Option<ServerCpu>,
    pub not_empty: bool,
}

pub struct NfsSubject {
    options: NfsOptions,
    stop: StopFlag,
    pages: Pages,
    pub(super) sessions: Vec<Session>,
    root: Filehandle,
    name: String,
    directory: Option<Filehandle>,
    local: bool,
    large: Option<(u64, Vec<(Opened, u64)>)>,
    written: Arc<PageVersions>,
    metadata_files: Option<Filehandle>,
    copies: HashMap<Key, (String, Filehandle)>,
    rounds: u64,
    old: Vec<String>,
}

type Key = (u64, u64, Content);

impl NfsSubject {
    pub fn connect(options: NfsOptions, stop: &StopFlag) -> Result<Self, Error> {
        let session = SessionOptions {
            target: options.target.clone(),
            sec: options.sec,
            service: options.service.clone(),
            tls: options.tls.clone(),
            connections: options.connections.max(1),
            slots: options.slots,
            source: None,
        };
        let mut sessions = (0..options.sessions.max(1))
            .map(|_| Session::connect(session.clone(), stop))
            .collect::<Result<Vec<_>, _>>()?;
        let root = sessions[0].walk(&options.target.path, stop)?;
        let foreign = sessions[0]
            .list(&root, stop)?
            .into_iter()
            .find(|(name, _)| !name.starts_with(PREFIX.as_bytes()));
        if foreign.is_some() && !options.not_empty {
            return Err(Error::NotEmpty(options.target.to_string()));
        }
        let mut random = [0; 6];
        getrandom::fill(&mut random)
            .map_err(|error| Error::Input(format!("randomness: {error}")))?;
        let name = format!("{PREFIX}{}", data_encoding::HEXLOWER.encode(&random));
        let directory = sessions[0].mkdir(&root, &name, stop)?;
        // Waits for the end of a grace period.
        let probe = sessions[0]
            .open(&directory, b"probe", true, stop)
            .and_then(|probe| sessions[0].close(probe, stop));
        if let Err(error) = probe {
            sessions[0].remove_all(&root, name.as_bytes(), stop)?;
            return Err(error);
        }
        let directory = Some(directory);
        let address = options.target.address()?;
        let local = address.ip().is_loopback() || ServerCpu::listening_at(address).is_some();
        let (stop, pages) = (stop.clone(), Pages::new());
        let (large, metadata_files, copies) = (None, None, HashMap::new());
        Ok(Self {
            options,
            stop,
            pages,
            sessions,
            root,
            name,
            directory,
            local,
            large,
            metadata_files,
            copies,
            rounds: 0,
            old: Vec::new(),
            written: Arc::new(PageVersions::new(0)),
        })
    }

    fn directory(&self) -> Result<Filehandle, Error> {
        self.directory.ok_or_else(|| Error::NotFound("the working directory was removed".into()))
    }

    fn put(&mut self, copy: &Copy) -> Result<Sample, Error> {
        let working_dir = self.directory()?;
        self.rounds += 1;
        let name = format!("put-{}", self.rounds);
        let key = (copy.files, copy.len, copy.content);
        if let Some((old, _)) = self.copies.remove(&key) {
            match copy.files * copy.len > KEPT_LEN {
                true => self.sessions[0].remove_all(&working_dir, old.as_bytes(), &self.stop)?,
                // Removed later, because some file systems are slow after many removals.
                false => self.old.push(old),
            }
        }
        let directory = self.sessions[0].mkdir(&working_dir, &name, &self.stop)?;
        let measured = self.transfer(copy, directory, true);
        match &measured {
            Ok(_) => drop(self.copies.insert(key, (name, directory))),
            Err(Error::Nfs { .. } | Error::Refused(_))
                if self.sessions[0]
                    .remove_all(&working_dir, name.as_bytes(), &self.stop)
                    .is_ok() => {}
            Err(_) => self.old.push(name),
        }
        measured
    }

    fn copied(&self, copy: &Copy) -> Result<Filehandle, Error> {
        let found =
            self.copies.get(&(copy.files, copy.len, copy.content)).map(|(_, directory)| *directory);
        found.ok_or_else(|| Error::NotFound("there is no copy to read".into()))
    }

    fn get(&mut self, copy: &Copy) -> Result<Sample, Error> {
        let directory = self.copied(copy)?;
        self.transfer(copy, directory, false)
    }

    fn transfer(
        &mut self,
        copy: &Copy,
        directory: Filehandle,
        writes: bool,
    ) -> Result<Sample, Error> {
        let (pages, stop) = (self.pages.clone(), self.stop.clone());
        let whole = *copy;
        self.on_all_sessions(copy.files, move |_, files, session| {
            if whole.len <= BLOCK_LEN.min(session.data_len_max() as u64) {
                let action = if writes { FileAction::Create } else { FileAction::Read };
                let count = files.end - files.start;
                let mut work = SmallFiles::new(&pages, directory, files, &whole, action);
                let tally = session.complete(&mut work, whole.streams as usize, &stop)?;
                let done = tally.operations;
                return require_complete(tally, done, count, "files", session, &stop);
            }
            let start = std::time::Instant::now();
            let mut sum = Tally::default();
            for number in files {
                let file = session.open(&directory, &small_files::name(number), writes, &stop)?;
                let mut work = WholeFile::new(
                    &pages,
                    file,
                    number,
                    whole.content,
                    whole.len,
                    writes,
                    whole.depth as usize,
                )
                .within(session.data_len_max());
                let tally = session.complete(&mut work, whole.depth as usize, &stop)?;
                let bytes = tally.bytes;
                let tally = match require_complete(
                    tally,
                    bytes,
                    whole.len,
                    "bytes of a file",
                    session,
                    &stop,
                ) {
                    Err(error @ Error::Nfs { .. }) => {
                        let _ = session.close(file, &stop);
                        return Err(error);
                    }
                    tally => tally?,
                };
                if writes {
                    session.commit(file, &stop)?;
                }
                session.close(file, &stop)?;
                sum.add(&Tally { operations: 1, ..tally });
            }
            sum.seconds = start.elapsed().as_secs_f64();
            Ok(sum)
        })
    }

    fn changes(&mut self, files: u64, depth: u32) -> Result<Sample, Error> {
        let working_dir = self.directory()?;
        self.rounds += 1;
        let name = format!("changes-{}", self.rounds);
        let directory = self.sessions[0].mkdir(&working_dir, &name, &self.stop)?;
        self.old.push(name);
        let (pages, stop) = (self.pages.clone(), self.stop.clone());
        let line =
            Copy { files, len: LINE_LEN, content: Content::Random, streams: depth, depth: 1 };
        self.on_all_sessions(files, move |_, share, session| {
            let mut sum = Tally::default();
            for action in [FileAction::Create, FileAction::Append] {
                let mut work = SmallFiles::new(&pages, directory, share.clone(), &line, action);
                sum.add(&session.complete(&mut work, depth as usize, &stop)?);
            }
            let count = 3 * (share.end - share.start);
            sum.add(&session.remove_files(
                directory,
                share.map(small_files::name),
                depth as usize,
                &stop,
            )?);
            // Missing work would make the rest look fast.
            let done = sum.operations;
            let mut sum = require_complete(sum, done, count, "changes", session, &stop)?;
            sum.operations /= 3;
            Ok(sum)
        })
    }

    fn load(&mut self, load: &Load) -> Result<Sample, Error> {
        let opens = self.large_file_opens()?;
        let (pages, stop, wanted) = (self.pages.clone(), self.stop.clone(), load.depth);
        let load = Load { depth: in_flight_max(load), ..*load };
        self.rounds += 1;
        let (seed, sessions, whole) = (self.rounds, self.sessions.len(), load.depth);
        let (written, last) = (self.written.clone(), Mutex::new(Vec::new()));
        let mut sample = self.on_all_sessions(sessions as u64, |at, _, session| {
            let depth = share_of(load.depth, at, sessions);
            if depth == 0 {
                return Ok(Tally::default());
            }
            if load.block as usize > session.data_len_max() {
                return Err(Error::Input(format!(
                    "blocks of {} bytes: the server takes {} in a call; raise its limit (Linux: /proc/fs/nfsd/max_block_size) or use smaller --blocks",
                    load.block,
                    session.data_len_max()
                )));
            }
            let load = Load { depth, ..load };
            let pace = load.rate.map_or(Pace::Closed, |rate| {
                Pace::Open(rate * f64::from(depth) / f64::from(whole))
            });
            let mut work = ReadWriteMix::new(
                &pages,
                opens[at],
                LARGE_NUMBER,
                load,
                mix(seed * 1000 + at as u64),
                &written,
            );
            let tally = session.run(
                &mut work,
                depth as usize,
                pace,
                Some(Duration::from_secs_f64(load.seconds)),
                &stop,
            )?;
            last.lock().unwrap_or_else(PoisonError::into_inner).extend(work.recent_writes());
            Ok(tally)
        })?;
        if load.depth < wanted {
            sample.depth.get_or_insert(load.depth);
        }
        let mut last = last.into_inner().unwrap_or_else(PoisonError::into_inner);
        if load.read_percent == 0 && !last.is_empty() {
            last.sort_unstable();
            last.dedup();
            self.read_back(&load, last)?;
        }
        Ok(sample)
    }

    /// After a load that only writes: a server that loses data would be the fastest.
    fn read_back(&mut self, load: &Load, blocks: Vec<u64>) -> Result<(), Error> {
        let (written, stop) = (self.written.clone(), self.stop.clone());
        let (load, count) =
            (Load { depth: load.depth.min(MAKE_DEPTH as u32), ..*load }, blocks.len() as u64);
        let mut left = READ_BACKS_MAX;
        loop {
            let open = self.large_file_opens()?[0];
            let mut work = ReadWriteMix::new(&self.pages, open, LARGE_NUMBER, load, 0, &written)
                .read_back_only(blocks.clone());
            let session = &mut self.sessions[0];
            let tally = session.run(&mut work, load.depth as usize, Pace::Closed, None, &stop)?;
            left -= 1;
            // A server that drops calls may drop these too.
            if tally.unanswered == 0 || left == 0 || stop.is_set() {
                let done = tally.operations;
                return require_complete(tally, done, count, "written blocks", session, &stop)
                    .map(drop);
            }
        }
    }

    fn large_file_opens(&mut self) -> Result<Vec<Opened>, Error> {
        let (working_dir, stop) = (self.directory()?, self.stop.clone());
        let Some((_, opens)) = &mut self.large else {
            return Err(Error::NotFound("the large file does not exist".into()));
        };
        for (session, (open, reconnects)) in self.sessions.iter_mut().zip(opens.iter_mut()) {
            if session.ensure_connected(&stop)? != *reconnects {
                *open = session.open(&working_dir, LARGE, true, &stop)?;
                *reconnects = session.ensure_connected(&stop)?;
            }
        }
        Ok(opens.iter().map(|(open, _)| *open).collect())
    }

    fn metadata(&mut self, depth: u32, seconds: f64) -> Result<Sample, Error> {
        let directory = self.metadata_files.ok_or_else(|| {
            Error::NotFound("the files for metadata operations do not exist".into())
        })?;
        self.rounds += 1;
        let (stop, sessions, seed) = (self.stop.clone(), self.sessions.len(), self.rounds);
        self.on_all_sessions(sessions as u64, move |at, _, session| {
            let depth = share_of(depth, at, sessions) as usize;
            if depth == 0 {
                return Ok(Tally::default());
            }
            let mut work = GitMetadata::new(
                directory,
                METADATA_FILES,
                at,
                depth,
                mix(seed * 1000 + at as u64),
            );
            let tally = session.run(
                &mut work,
                depth,
                Pace::Closed,
                Some(Duration::from_secs_f64(seconds)),
                &stop,
            )?;
            session.close_all(work.opens(), &stop);
            Ok(tally)
        })
    }

    fn getattr(&mut self, depth: u32, seconds: f64) -> Result<Sample, Error> {
        let (handle, stop, sessions) = (self.directory()?, self.stop.clone(), self.sessions.len());
        self.on_all_sessions(sessions as u64, move |at, _, session| {
            let depth = share_of(depth, at, sessions) as usize;
            if depth == 0 {
                return Ok(Tally::default());
            }
            session.run(
                &mut Getattr { handle },
                depth,
                Pace::Closed,
                Some(Duration::from_secs_f64(seconds)),
                &stop,
            )
        })
    }

    fn on_all_sessions(
        &mut self,
        count: u64,
        run: impl Fn(usize, Range<u64>, &mut Session) -> Result<Tally, Error> + Sync,
    ) -> Result<Sample, Error> {
        let meter = CpuMeter::start(self.options.server_cpu.as_ref(), self.local)?;
        let sessions = self.sessions.len() as u64;
        let share = |at: u64| count * at / sessions..count * (at + 1) / sessions;
        let tallies: Vec<Result<Tally, Error>> = if sessions == 1 {
            vec![run(0, 0..count, &mut self.sessions[0])]
        } else {
            std::thread::scope(|scope| {
                let started: Vec<_> = (0u64..)
                    .zip(&mut self.sessions)
                    .map(|(at, session)| {
                        let run = &run;
                        scope.spawn(move || run(at as usize, share(at), session))
                    })
                    .collect();
                started
                    .into_iter()
                    .map(|thread| {
                        thread
                            .join()
                            .unwrap_or_else(|_| Err(Error::Program("a thread panicked".into())))
                    })
                    .collect()
            })
        };
        let mut sample = Sample::default();
        let mut busiest: f64 = 0.0;
        let (mut fewer, mut in_flight) = (false, 0);
        for tally in tallies {
            let tally = tally?;
            sample.seconds = sample.seconds.max(tally.seconds);
            sample.bytes += tally.bytes;
            sample.operations += tally.operations;
            sample.errors += tally.errors;
            sample.unanswered += tally.unanswered;
            sample.unsent += tally.unsent;
            fewer |= tally.depth.is_some();
            in_flight += tally.depth.unwrap_or(tally.lanes);
            sample.latency.merge(&tally.latency);
            busiest = busiest.max(tally.thread_s / tally.seconds.max(1e-9));
        }
        sample.depth = fewer.then_some(in_flight);
        sample.others.push((BUSIEST.into(), busiest));
        meter.end(&mut sample)?;
        if self.stop.is_set() { Err(Error::Interrupted) } else { Ok(sample) }
    }

    fn make_large(&mut self, len: u64) -> Result<(), Error> {
        if self.large.as_ref().is_some_and(|(there, _)| *there >= len) {
            return Ok(());
        }
        let (working_dir, stop) = (self.directory()?, self.stop.clone());
        if let Some((_, opens)) = self.large.take() {
            self.sessions
                .iter_mut()
                .zip(opens)
                .filter(|(session, (_, reconnects))| session.reconnects() == *reconnects)
                .try_for_each(|(session, (open, _))| session.close(open, &stop))?;
        }
        let first = &mut self.sessions[0];
        let file = first.open(&working_dir, LARGE, true, &stop)?;
        let mut work =
            WholeFile::new(&self.pages, file, LARGE_NUMBER, Content::Random, len, true, MAKE_DEPTH)
                .within(first.data_len_max());
        let made = first.complete(&mut work, MAKE_DEPTH, &stop).and_then(|tally| {
            let bytes = tally.bytes;
            require_complete(tally, bytes, len, "bytes of a file", first, &stop)?;
            first.commit(file, &stop)
        });
        if let Err(error) = made {
            let _ = first.close(file, &stop);
            return Err(error);
        }
        let others = self.sessions[1..]
            .iter_mut()
            .map(|session| session.open(&working_dir, LARGE, true, &stop));
        let opens = std::iter::once(Ok(file)).chain(others).collect::<Result<Vec<_>, _>>()?;
        let reconnects = self.sessions.iter().map(Session::reconnects);
        self.large = Some((len, opens.into_iter().zip(reconnects).collect()));
        self.written = Arc::new(PageVersions::new(len));
        Ok(())
    }
}

impl Subject for NfsSubject {
    fn info(&self) -> SubjectInfo {
        let NfsOptions { label, target, sec, sessions, connections, .. } = &self.options;
        let stored = "copies and metadata objects are on stable storage (FILE_SYNC, or COMMIT before CLOSE); loads write UNSTABLE without COMMIT";
        let clock = "measured time includes generating and comparing data; latencies are of calls, three for a small file";
        let how = format!(
            "NFSv4.1 from user space, {sessions} session(s) of {connections} connection(s) share the calls in flight"
        );
        let found = self.sessions.first().map(Session::server_details).unwrap_or_default();
        let details = std::iter::once(how)
            .chain(found)
            .chain([stored.to_owned(), clock.to_owned()])
            .collect();
        SubjectInfo {
            label: label.clone(),
            target: target.to_string(),
            sec: Some(sec.to_string()),
            details,
        }
    }

    fn unsupported(&self, case: &Case) -> Option<String> {
        match case {
            Case::Connect { .. } => Some("an NFS session is not opened for a single file".into()),
            Case::Compile { .. } | Case::Build => {
                Some("an NFS session is no mount, which a compiler needs".into())
            }
            Case::Audit { .. } | Case::Primitive { .. } | Case::Replay { .. } => {
                Some(OTHER_WORK.into())
            }
            _ => None,
        }
    }

    fn stored(&self, case: &Case) -> Option<&'static str> {
        stored(case)
    }

    fn prepare(&mut self, case: &Case) -> Result<(), Error> {
        match case {
            Case::Load(load) => self.make_large(load.file_len),
            Case::Metadata { .. } => self.make_metadata_files(),
            Case::Get(copy) => self.put_if_missing(copy),
            Case::Read(read) => self.put_if_missing(&file_reads::copy_of(read)),
            _ => Ok(()),
        }
    }

    fn measure(&mut self, case: &Case) -> Result<Sample, Error> {
        match case {
            Case::Put(copy) => self.put(copy),
            Case::Get(copy) => self.get(copy),
            Case::Load(load) => self.load(load),
            Case::Metadata { depth, seconds } => self.metadata(*depth, *seconds),
            Case::Getattr { depth, seconds } => self.getattr(*depth, *seconds),
            Case::Changes { files, depth } => self.changes(*files, *depth),
            Case::Read(read) => self.read(read),
            Case::Connect { .. }
            | Case::Audit { .. }
            | Case::Compile { .. }
            | Case::Build
            | Case::Primitive { .. }
            | Case::Replay { .. } => Err(Error::Input(OTHER_WORK.into())),
        }
    }

    fn tidy(&mut self) -> Result<(), Error> {
        let working_dir = self.directory()?;
        let old: Vec<String> =
            self.old.drain(..).chain(self.copies.drain().map(|(_, (name, _))| name)).collect();
        old.iter().try_for_each(|name| {
            self.sessions[0].remove_all(&working_dir, name.as_bytes(), &self.stop)
        })
    }

    fn place(&self) -> Option<String> {
        self.directory.map(|_| format!("{} in {}", self.name, self.options.target))
    }

    fn clean(&mut self) -> Result<(), Error> {
        if self.directory.take().is_none() {
            return Ok(());
        }
        if let Some((_, opens)) = self.large.take() {
            // The open then ends with the lease.
            let stop = self.stop.for_cleanup();
            for (session, (open, _)) in self.sessions.iter_mut().zip(opens) {
                if session.close(open, &stop).is_err() && stop.must_hurry() {
                    break;
                }
            }
        }
        self.sessions[0].remove_all(&self.root, self.name.as_bytes(), &self.stop)
    }
}

pub(crate) const fn share_of(depth: u32, at: usize, of: usize) -> u32 {
    depth / of as u32 + (at < depth as usize % of) as u32
}

pub(crate) fn stored(case: &Case) -> Option<&'static str> {
    matches!(case, Case::Load(load) if load.read_percent < 100).then_some("UNSTABLE, no COMMIT")
}

fn require_complete(
    tally: Tally,
    done: u64,
    of: u64,
    what: &str,
    session: &Session,
    stop: &StopFlag,
) -> Result<Tally, Error> {
    if stop.is_set() {
        return Err(Error::Interrupted);
    }
    if done >= of {
        return Ok(tally);
    }
    let what = format!("{}: {done} of {of} {what}", session.target());
    Err(match tally.refusal {
        Some((op, status)) => Error::nfs(what)(CallError::Refused { op, status }),
        None => Error::Refused(format!("{what}, and no answer to the other calls")),
    })
}

pub(crate) const PREFIX: &str = "vouch-bench-";
const OTHER_WORK: &str = "NFS subjects do not support this case";
const LARGE: &[u8] = b"large";
const LARGE_NUMBER: u64 = u64::MAX;
/// As in the index of a medium-sized repository.
const METADATA_FILES: u64 = 1000;
const MAKE_DEPTH: usize = 8;
/// Read-back attempts on a server that drops calls.
const READ_BACKS_MAX: u32 = 5;
const LINE_LEN: u64 = 64;
/// Larger copies are removed before the next one, because the disk may be small.
const KEPT_LEN: u64 = 64 << 20;
