//! fio makes closed-loop loads, threads of this process all others.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::fuse_daemon::Daemon;
use super::{CpuMeter, SubjectInfo, fio};
use crate::case::{Content, Copy, Load};
use crate::content::{Pages, mix};
use crate::cpu::{self, ServerCpu};
use crate::page_versions::PageVersions;
use crate::{Case, Error, Latency, Sample, StopFlag, Subject, machine};

mod cache;
mod open_loop;

#[derive(Debug, Clone)]
pub struct MountOptions {
    pub label: String,
    pub directory: PathBuf,
    pub warm: bool,
    /// The run uses no other mount or server on this machine, so that all caches may be dropped.
    pub alone: bool,
    pub server_cpu: Option<ServerCpu>,
    pub client_cpu: Option<ServerCpu>,
    pub not_empty: bool,
}

#[derive(Default)]
struct ThreadTotals {
    bytes: u64,
    /// Waiting for due calls, which does not count as the client's CPU time.
    waited_s: f64,
}

pub struct MountSubject {
    options: MountOptions,
    stop: StopFlag,
    pages: Pages,
    dir: Option<PathBuf>,
    direct: bool,
    fio: bool,
    daemon: Daemon,
    written: PageVersions,
    large: HashMap<bool, u64>,
    copies: HashMap<(u64, u64, Content), PathBuf>,
    rounds: u64,
}

impl MountSubject {
    pub fn begin(options: MountOptions, stop: &StopFlag) -> Result<Self, Error> {
        let at = &options.directory;
        let foreign = fs::read_dir(at)
            .map_err(Error::file(at))?
            .flatten()
            .any(|entry| !entry.file_name().to_string_lossy().starts_with(crate::nfs::PREFIX));
        if foreign && !options.not_empty {
            return Err(Error::NotEmpty(at.display().to_string()));
        }
        let (dir, direct) = directory_in(at, |dir| {
            let probe = dir.join("probe");
            fs::write(&probe, [0; 4096]).map_err(Error::file(&probe))?;
            let direct = !options.warm
                && File::options().read(true).write(true).custom_flags(DIRECT).open(&probe).is_ok();
            fs::remove_file(&probe).map_err(Error::file(&probe))?;
            Ok(direct)
        })?;
        let (stop, pages, dir, fio) = (stop.clone(), Pages::new(), Some(dir), fio::is_installed());
        let daemon = options
            .client_cpu
            .clone()
            .map_or_else(|| Daemon::for_directory(&options.directory), Daemon::Found);
        let (written, large, copies) = (PageVersions::new(0), HashMap::new(), HashMap::new());
        Ok(Self {
            options,
            stop,
            pages,
            dir,
            direct,
            fio,
            daemon,
            written,
            large,
            copies,
            rounds: 0,
        })
    }

    fn working_directory(&self) -> Result<PathBuf, Error> {
        self.dir.clone().ok_or_else(|| Error::NotFound("the working directory was removed".into()))
    }

    /// O_DIRECT, or else O_DSYNC.
    const fn flags(&self) -> i32 {
        match (self.direct, self.options.warm) {
            (true, _) => DIRECT,
            (false, true) => 0,
            (false, false) => DSYNC,
        }
    }

    fn put(&mut self, copy: &Copy) -> Result<Sample, Error> {
        self.rounds += 1;
        let directory = self.working_directory()?.join(format!("put-{}", self.rounds));
        if let Some(old) =
            self.copies.insert((copy.files, copy.len, copy.content), directory.clone())
        {
            fs::remove_dir_all(&old).map_err(Error::file(&old))?;
        }
        fs::create_dir(&directory).map_err(Error::file(&directory))?;
        let pages = self.pages.clone();
        let block = vec![0; BLOCK_LEN.min(copy.len as usize)];
        self.for_each_file(copy, move |number| {
            let path = directory.join(format!("file{number:06}"));
            let mut file = File::create_new(&path)?;
            let (mut at, mut block) = (0, block.clone());
            while at < copy.len {
                let len = BLOCK_LEN.min((copy.len - at) as usize);
                pages.fill(copy.content, number, at, &mut block[..len]);
                file.write_all(&block[..len])?;
                at += len as u64;
            }
            file.sync_all()?;
            Ok(true)
        })
    }

    fn get(&mut self, copy: &Copy) -> Result<Sample, Error> {
        let found = self.copies.get(&(copy.files, copy.len, copy.content)).cloned();
        let directory = found.ok_or_else(|| Error::NotFound("there is no copy to read".into()))?;
        let paths: Vec<PathBuf> =
            (0..copy.files).map(|number| directory.join(format!("file{number:06}"))).collect();
        self.prepare_cache(paths.iter().map(PathBuf::as_path))?;
        let pages = self.pages.clone();
        self.for_each_file(copy, |number| {
            let mut file = File::open(&paths[number as usize])?;
            let (mut at, mut block) = (0, vec![0; BLOCK_LEN.min(copy.len as usize)]);
            while at < copy.len {
                let len = BLOCK_LEN.min((copy.len - at) as usize);
                file.read_exact(&mut block[..len])?;
                if !pages.matches(copy.content, number, at, &block[..len]) {
                    return Ok(false);
                }
                at += len as u64;
            }
            Ok(true)
        })
    }

    /// Several files at once. False means wrong data.
    fn for_each_file(
        &self,
        copy: &Copy,
        each: impl Fn(u64) -> io::Result<bool> + Sync,
    ) -> Result<Sample, Error> {
        let next = AtomicU64::new(0);
        let sample = self.threads(copy.streams, |latency, _| {
            let mut bytes = 0;
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= copy.files || self.stop.is_set() {
                    return Ok(ThreadTotals { bytes, waited_s: 0.0 });
                }
                let start = Instant::now();
                if !each(number)? {
                    return Err(io::Error::from(io::ErrorKind::InvalidData));
                }
                latency.record(start.elapsed().as_nanos() as u64);
                bytes += copy.len;
            }
        })?;
        Ok(sample)
    }

    fn metadata(&self, depth: u32, seconds: f64) -> Result<Sample, Error> {
        let directory = self.working_directory()?.join("repository");
        let (start, time) = (Instant::now(), Duration::from_secs_f64(seconds));
        self.threads(depth, |latency, thread| {
            let _ = fs::remove_file(directory.join(format!("tmp_obj-{thread}")));
            let (temporary, permanent) = (
                directory.join(format!("tmp_obj-{thread}")),
                directory.join(format!("obj-{thread}")),
            );
            let mut seed = mix(thread + 1);
            let mut timed = |step: &mut dyn FnMut() -> io::Result<()>| {
                let start = Instant::now();
                step()?;
                latency.record(start.elapsed().as_nanos() as u64);
                io::Result::Ok(())
            };
            while start.elapsed() < time && !self.stop.is_set() {
                for _ in 0..10 {
                    seed = mix(seed);
                    timed(&mut || {
                        fs::symlink_metadata(
                            directory.join(format!("file{:06}", seed % METADATA_FILES)),
                        )
                        .map(drop)
                    })?;
                }
                let mut object = None;
                timed(&mut || File::create_new(&temporary).map(|file| object = Some(file)))?;
                timed(&mut || {
                    object.as_mut().map_or(Ok(()), |file| {
                        file.write_all(&[b'o'; 300]).and_then(|()| file.sync_all())
                    })
                })?;
                timed(&mut || {
                    drop(object.take());
                    Ok(())
                })?;
                timed(&mut || fs::rename(&temporary, &permanent))?;
                timed(&mut || fs::remove_file(&permanent))?;
            }
            Ok(ThreadTotals::default())
        })
    }

    fn getattr(&self, depth: u32, seconds: f64) -> Result<Sample, Error> {
        let (dir, start, time) =
            (self.working_directory()?, Instant::now(), Duration::from_secs_f64(seconds));
        self.threads(depth, |latency, _| {
            while start.elapsed() < time && !self.stop.is_set() {
                let start = Instant::now();
                fs::symlink_metadata(&dir)?;
                latency.record(start.elapsed().as_nanos() as u64);
            }
            Ok(ThreadTotals::default())
        })
    }

    fn threads(
        &self,
        count: u32,
        each: impl Fn(&mut Latency, u64) -> io::Result<ThreadTotals> + Sync,
    ) -> Result<Sample, Error> {
        let meter = self.meter()?;
        let start = Instant::now();
        let sum = Mutex::new((Sample::default(), None, 0.0));
        std::thread::scope(|scope| {
            for thread in 0..u64::from(count) {
                let (each, sum) = (&each, &sum);
                scope.spawn(move || {
                    let mut latency = Latency::new();
                    let outcome = each(&mut latency, thread);
                    let mut sum = sum.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    sum.0.operations += latency.count();
                    sum.0.latency.merge(&latency);
                    match outcome {
                        Ok(totals) => {
                            sum.0.bytes += totals.bytes;
                            sum.0.busy(cpu::thread_s() - totals.waited_s);
                            sum.2 += totals.waited_s;
                        }
                        Err(error) => sum.1 = Some(error),
                    }
                });
            }
        });
        let (mut sample, fault, waited_s) =
            sum.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        sample.seconds = start.elapsed().as_secs_f64();
        // Seconds to shares of a CPU.
        sample.others.iter_mut().for_each(|(_, busiest)| *busiest /= sample.seconds);
        meter.end(&mut sample)?;
        sample.client_cpu_s = sample.client_cpu_s.map(|client| (client - waited_s).max(0.0));
        match fault {
            _ if self.stop.is_set() => Err(Error::Interrupted),
            Some(error) if error.kind() == io::ErrorKind::InvalidData => {
                Err(Error::Corrupt(self.options.directory.display().to_string()))
            }
            Some(error) => Err(Error::file(&self.options.directory)(error)),
            None => Ok(sample),
        }
    }

    fn meter(&self) -> Result<CpuMeter<'_>, Error> {
        let server = self.options.server_cpu.as_ref();
        let meter = CpuMeter::start(server, server.is_some_and(ServerCpu::is_local))?;
        Ok(match &self.daemon {
            Daemon::None => meter,
            Daemon::Found(daemon) => meter.with_helper(Some(daemon.clone()))?,
            Daemon::Hidden | Daemon::Kernel => meter.with_unknown_client_cpu(true),
        })
    }

    fn make_large(&mut self, load: &Load) -> Result<(), Error> {
        let (dir, is_open_loop) = (self.working_directory()?, load.rate.is_some());
        if self.large.get(&is_open_loop).is_some_and(|len| *len >= load.file_len) {
            return Ok(());
        }
        match is_open_loop {
            true => self.create_file(load.file_len)?,
            false => fio::lay_out(&dir.join("large"), load.file_len, &self.stop)?,
        }
        self.large.insert(is_open_loop, load.file_len);
        Ok(())
    }

    fn make_metadata_files(&self) -> Result<(), Error> {
        let directory = self.working_directory()?.join("repository");
        if directory.exists() {
            return Ok(());
        }
        fs::create_dir(&directory).map_err(Error::file(&directory))?;
        let made = (0..METADATA_FILES).try_for_each(|number| {
            let path = directory.join(format!("file{number:06}"));
            fs::write(&path, [b'f'; 100]).map_err(Error::file(&path))
        });
        if made.is_err() {
            // Removed later, because an incomplete directory must not be used.
            let aside = self.working_directory()?.join(format!("repository-{}", self.rounds));
            let _ = fs::remove_dir_all(&directory).or_else(|_| fs::rename(&directory, &aside));
        }
        made
    }
}

fn directory_in<T>(
    at: &Path,
    try_it: impl FnOnce(&Path) -> Result<T, Error>,
) -> Result<(PathBuf, T), Error> {
    let dir = tempfile::Builder::new()
        .prefix(crate::nfs::PREFIX)
        .tempdir_in(at)
        .map_err(Error::file(at))?;
    let result = try_it(dir.path())?;
    Ok((dir.keep(), result))
}

impl Subject for MountSubject {
    fn info(&self) -> SubjectInfo {
        let MountOptions { label, directory, .. } = &self.options;
        let daemon = match self.daemon {
            Daemon::None => None,
            Daemon::Found(_) => Some("client CPU includes the mount's FUSE daemon".to_owned()),
            Daemon::Hidden => Some("client CPU excludes the mount's FUSE daemon, which was not found; use --client-cpu LABEL=pid:N".to_owned()),
            Daemon::Kernel => Some(
                "client CPU excludes kernel threads (rpciod, kworkers), which do part of a network file system's work and cryptography; the share of other processes is unknown".to_owned(),
            ),
        };
        let stored = "copies and metadata objects are on stable storage (fsync)".to_owned();
        let clock = "measured time includes generating and comparing data; latencies of copies are of whole files".to_owned();
        let checked = "loads by fio: reads are verified by checksums, which detect no lost write; a mixed load is not verified while it runs; after each load that writes, the whole file is read and verified".to_owned();
        let details = machine::mount_of(directory)
            .into_iter()
            .chain([self.cache(), stored, clock, checked])
            .chain(daemon)
            .collect();
        SubjectInfo {
            label: label.clone(),
            target: directory.display().to_string(),
            sec: None,
            details,
        }
    }

    fn unsupported(&self, case: &Case) -> Option<String> {
        match case {
            Case::Connect { .. }
            | Case::Audit { .. }
            | Case::Changes { .. }
            | Case::Read(_)
            | Case::Compile { .. }
            | Case::Build
            | Case::Primitive { .. }
            | Case::Replay { .. } => Some(OTHER_WORK.into()),
            Case::Load(Load { rate: None, .. }) if !self.fio => Some("fio is not installed".into()),
            _ => None,
        }
    }

    fn stored(&self, case: &Case) -> Option<&'static str> {
        match case {
            Case::Load(load) if load.read_percent < 100 => match self.flags() {
                DSYNC => None,
                DIRECT => Some("O_DIRECT, not synced"),
                _ => Some("in the page cache"),
            },
            _ => None,
        }
    }

    fn prepare(&mut self, case: &Case) -> Result<(), Error> {
        match case {
            Case::Load(load) => self.make_large(load),
            Case::Metadata { .. } => self.make_metadata_files(),
            Case::Get(copy) if !self.copies.contains_key(&(copy.files, copy.len, copy.content)) => {
                self.put(copy).map(drop)
            }
            _ => Ok(()),
        }
    }

    fn measure(&mut self, case: &Case) -> Result<Sample, Error> {
        match case {
            Case::Put(copy) => self.put(copy),
            Case::Get(copy) => self.get(copy),
            Case::Load(load) => match load.rate {
                Some(rate) => {
                    self.rounds += 1;
                    self.open_loop(load, rate, self.rounds)
                }
                None => {
                    self.rounds += 1;
                    let file = self.working_directory()?.join("large");
                    if self.options.warm || !self.direct {
                        self.prepare_cache([file.as_path()])?;
                    }
                    let how = fio::How {
                        direct: self.direct,
                        durable: self.flags() == DSYNC,
                        warm: self.options.warm,
                        // fio's default seed would repeat the same blocks in each run.
                        seed: self.rounds,
                    };
                    let meter = self.meter()?;
                    let (mut sample, cpu) = fio::load(&file, load, how, &self.stop)?;
                    meter.end_with_load(&mut sample, cpu)?;
                    if load.read_percent < 100 {
                        fio::verify(&file, load.file_len, &self.stop)?;
                    }
                    Ok(sample)
                }
            },
            Case::Metadata { depth, seconds } => self.metadata(*depth, *seconds),
            Case::Getattr { depth, seconds } => self.getattr(*depth, *seconds),
            Case::Connect { .. }
            | Case::Audit { .. }
            | Case::Changes { .. }
            | Case::Read(_)
            | Case::Compile { .. }
            | Case::Build
            | Case::Primitive { .. }
            | Case::Replay { .. } => Err(Error::Input(OTHER_WORK.into())),
        }
    }

    fn tidy(&mut self) -> Result<(), Error> {
        self.copies.drain().try_for_each(|(_, directory)| {
            fs::remove_dir_all(&directory).map_err(Error::file(&directory))
        })
    }

    fn place(&self) -> Option<String> {
        self.dir.as_ref().map(|dir| dir.display().to_string())
    }

    fn clean(&mut self) -> Result<(), Error> {
        self.dir.take().map_or(Ok(()), |dir| fs::remove_dir_all(&dir).map_err(Error::file(&dir)))
    }
}

impl Drop for MountSubject {
    fn drop(&mut self) {
        let _ = self.clean();
    }
}

const OTHER_WORK: &str = "mounted directories do not support this case";
const BLOCK_LEN: usize = 1 << 20;
const METADATA_FILES: u64 = 1000;
const DIRECT: i32 = rustix::fs::OFlags::DIRECT.bits().cast_signed();
const DSYNC: i32 = rustix::fs::OFlags::DSYNC.bits().cast_signed();

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn begin(at: &Path, warm: bool) -> MountSubject {
        let options = MountOptions {
            label: "a".into(),
            directory: at.to_owned(),
            warm,
            alone: false,
            server_cpu: None,
            client_cpu: None,
            not_empty: true,
        };
        MountSubject::begin(options, &StopFlag::default()).expect("a directory")
    }

    #[test]
    fn unusable_directory_is_removed() {
        let at = tempfile::tempdir().expect("a directory");
        let full = |dir: &Path| {
            fs::write(dir.join("probe"), b"part").map_err(Error::file(dir))?;
            Err::<(), _>(Error::file(dir)(io::ErrorKind::StorageFull.into()))
        };
        assert!(matches!(directory_in(at.path(), full), Err(Error::Io { .. })));
        assert_eq!(fs::read_dir(at.path()).expect("the file exists").count(), 0);
        let (dir, ()) = directory_in(at.path(), |_| Ok(())).expect("a directory");
        assert!(dir.is_dir());
    }
}
