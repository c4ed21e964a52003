use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::child_process::wait;
use super::{CpuMeter, SubjectInfo, compile};
use crate::case::{Content, Order, Read};
use crate::content::{Pages, mix, shuffled};
use crate::cpu::ServerCpu;
use crate::{Case, Error, Sample, StopFlag, Subject};

/// Drops the subject's caches. Returns the CPU source of the FUSE daemon, if there is one.
pub(crate) type DropCaches = Box<dyn FnMut() -> Result<Option<ServerCpu>, Error> + Send>;

pub(crate) struct ReadSubject {
    about: SubjectInfo,
    directory: PathBuf,
    forget: DropCaches,
    server_cpu: Option<ServerCpu>,
    build: Option<String>,
    pages: Pages,
    stop: StopFlag,
    rounds: u64,
}

pub(crate) fn prepare(directory: &Path, reads: &[Read]) -> Result<(), Error> {
    let pages = Pages::new();
    for read in reads {
        let own = directory.join(name(read));
        if own.exists() {
            continue;
        }
        fs::create_dir(&own).map_err(Error::file(&own))?;
        let mut data = vec![0; read.len as usize];
        for number in 0..read.files {
            pages.fill(read.content, number, 0, &mut data);
            let path = own.join(format!("file{number:06}"));
            fs::write(&path, &data).map_err(Error::file(&path))?;
        }
    }
    Ok(())
}

pub(crate) const PROJECT: &str = "project";

fn name(read: &Read) -> String {
    let what = if read.content == Content::Zeros { "zeros" } else { "random" };
    format!("{}-{}-{what}", read.files, read.len)
}

impl ReadSubject {
    pub(crate) fn new(
        about: SubjectInfo,
        directory: PathBuf,
        forget: DropCaches,
        server_cpu: Option<ServerCpu>,
        stop: &StopFlag,
    ) -> Self {
        Self {
            about,
            directory,
            forget,
            server_cpu,
            build: None,
            pages: Pages::new(),
            stop: stop.clone(),
            rounds: 0,
        }
    }

    /// Command for [`Case::Build`]. Its working directory is empty and local; `$SRC` is the
    /// subject's [`PROJECT`].
    #[must_use]
    pub(crate) fn with_build(self, build: Option<String>) -> Self {
        Self { build, ..self }
    }

    fn build(&self) -> Result<(), Error> {
        let command = self
            .build
            .as_deref()
            .ok_or_else(|| Error::Input("there is no build command".into()))?;
        let objects = tempfile::tempdir().map_err(Error::io("temporary directory"))?;
        let mut log = tempfile::tempfile().map_err(Error::io("temporary file"))?;
        let clone = || log.try_clone().map_err(Error::io("temporary file"));
        let child = Command::new("sh")
            .args(["-e", "-c", command])
            .env("SRC", self.directory.join(PROJECT))
            .current_dir(objects.path())
            .stdin(Stdio::null())
            .stdout(clone()?)
            .stderr(clone()?)
            .spawn();
        let status =
            wait(&mut child.map_err(Error::io("sh"))?, &self.stop).map_err(Error::io("sh"))?;
        if status.success() || self.stop.is_set() {
            return Ok(());
        }
        let mut text = Vec::new();
        log.rewind()
            .and_then(|()| log.read_to_end(&mut text))
            .map_err(Error::io("temporary file"))?;
        let text = String::from_utf8_lossy(&text);
        Err(Error::Program(format!(
            "the build command failed: {}",
            text.trim().lines().last().unwrap_or("no output")
        )))
    }

    fn read(&self, read: &Read, sample: &mut Sample) -> io::Result<bool> {
        let directory = self.directory.join(name(read));
        let mut block = vec![0; (read.block as usize).min(read.len as usize)];
        for number in 0..read.files {
            let path = directory.join(format!("file{number:06}"));
            let mut begun = Instant::now();
            let mut file = File::open(&path)?;
            let blocks = read.len.div_ceil(block.len() as u64);
            for at in 0..blocks {
                let at = if read.order == Order::Random {
                    shuffled(at, blocks, mix(self.rounds) ^ number)
                } else {
                    at
                };
                let offset = at * block.len() as u64;
                let len = (block.len() as u64).min(read.len - offset) as usize;
                match read.order {
                    Order::Random => file.read_exact_at(&mut block[..len], offset)?,
                    Order::Sequential => file.read_exact(&mut block[..len])?,
                }
                sample.latency.record(begun.elapsed().as_nanos() as u64);
                if !self.pages.matches(read.content, number, offset, &block[..len]) {
                    return Ok(false);
                }
                sample.bytes += len as u64;
                sample.operations += 1;
                begun = Instant::now();
            }
            if self.stop.is_set() {
                break;
            }
        }
        Ok(true)
    }
}

impl Subject for ReadSubject {
    fn info(&self) -> SubjectInfo {
        self.about.clone()
    }

    fn unsupported(&self, case: &Case) -> Option<String> {
        match case {
            Case::Read(_) => None,
            Case::Compile { .. } if compile::is_installed() => None,
            Case::Compile { .. } => Some("a C compiler is not installed (cc)".into()),
            Case::Build if self.build.is_some() => None,
            Case::Build => Some("there is no build command".into()),
            _ => Some("this subject is read-only".into()),
        }
    }

    fn prepare(&mut self, _case: &Case) -> Result<(), Error> {
        Ok(())
    }

    fn measure(&mut self, case: &Case) -> Result<Sample, Error> {
        let helper = (self.forget)()?;
        self.rounds += 1;
        let meter = CpuMeter::start(self.server_cpu.as_ref(), self.server_cpu.is_some())?
            .with_helper(helper)?;
        let mut sample = Sample::default();
        let start = Instant::now();
        let right = match case {
            Case::Read(read) => {
                self.read(read, &mut sample).map_err(Error::file(&self.directory))?
            }
            Case::Build => self.build().map(|()| true)?,
            Case::Compile { parts, jobs } => {
                compile::run(&self.directory, *parts, *jobs, &self.stop, &mut sample)?
            }
            _ => return Err(Error::Input("this subject is read-only".into())),
        };
        sample.seconds = start.elapsed().as_secs_f64();
        meter.end(&mut sample)?;
        match right {
            _ if self.stop.is_set() => Err(Error::Interrupted),
            true => Ok(sample),
            false => Err(Error::Corrupt(self.about.label.clone())),
        }
    }

    fn tidy(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn clean(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_reads_the_subject_and_reports_its_last_line() {
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir(directory.path().join(PROJECT)).expect("a directory");
        fs::write(directory.path().join(PROJECT).join("source"), "text").expect("a file");
        let subject = |build: &str| {
            let about = SubjectInfo {
                label: "local".into(),
                target: "x".into(),
                sec: None,
                details: Vec::new(),
            };
            ReadSubject::new(
                about,
                directory.path().into(),
                Box::new(|| Ok(None)),
                None,
                &StopFlag::default(),
            )
            .with_build(Some(build.to_owned()))
        };
        let sample = subject("cp $SRC/source object; test text = $(cat object)")
            .measure(&Case::Build)
            .expect("a build");
        assert!(sample.seconds > 0.0);
        let failed = subject("echo first; echo last >&2; false").measure(&Case::Build);
        assert!(
            matches!(&failed, Err(Error::Program(why)) if why.ends_with("failed: last")),
            "{failed:?}"
        );
        assert_eq!(
            fs::read_dir(directory.path()).expect("a directory").count(),
            1,
            "objects are elsewhere"
        );
    }
}
