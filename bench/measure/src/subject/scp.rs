//! To a host, or to a private sshd of this machine.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{ChildProcess, CpuMeter, Sshd, SubjectInfo};
use crate::case::{Content, Copy};
use crate::content::Pages;
use crate::{Case, Error, Sample, StopFlag, Subject, cpu};

pub struct ScpSubject {
    label: String,
    host: String,
    options: Vec<String>,
    server: Option<Sshd>,
    stop: StopFlag,
    pages: Pages,
    local: tempfile::TempDir,
    remote: Option<String>,
    made: HashMap<(u64, u64, Content), (PathBuf, Option<String>)>,
    rounds: u64,
}

impl ScpSubject {
    pub fn begin(label: String, host: Option<&str>, stop: &StopFlag) -> Result<Self, Error> {
        let local = tempfile::tempdir().map_err(Error::io("temporary directory"))?;
        let mut options =
            vec!["-o".into(), "BatchMode=yes".into(), "-o".into(), "LogLevel=ERROR".into()];
        let (host, server) = match host {
            Some(host) => (host.to_owned(), None),
            None => {
                let server = Sshd::start(local.path())?;
                options.extend(server.options());
                options.extend(["-F".to_owned(), "/dev/null".to_owned()]);
                ("127.0.0.1".to_owned(), Some(server))
            }
        };
        let (stop, pages) = (stop.clone(), Pages::new());
        let mut subject = Self {
            label,
            host,
            options,
            server,
            stop,
            pages,
            local,
            remote: None,
            made: HashMap::new(),
            rounds: 0,
        };
        let made = subject.ssh("mktemp -d \"${TMPDIR:-/tmp}/vouch-bench-XXXXXXXX\"")?;
        let directory = made.trim().to_owned();
        if !directory.contains("vouch-bench-") || directory.contains(char::is_whitespace) {
            return Err(Error::Refused(format!(
                "{}: mktemp printed no directory: {directory:?}",
                subject.host
            )));
        }
        subject.remote = Some(directory);
        Ok(subject)
    }

    fn ssh(&self, command: &str) -> Result<String, Error> {
        let mut program = Command::new("ssh");
        program
            .args(&self.options)
            .arg(&self.host)
            .arg(command)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let output = ChildProcess::output(&mut program, &self.stop, STOP_TIMEOUT)
            .map_err(|error| Error::Program(format!("ssh: {error}")))?;
        let output =
            output.ok_or_else(|| Error::Unreachable(format!("scp://{}: no answer", self.host)))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(Error::Unreachable(format!(
                "scp://{}: {}",
                self.host,
                String::from_utf8_lossy(&output.stderr).trim()
            ))),
        }
    }

    /// Files on this machine are synced within the measured time.
    fn scp(
        &self,
        from: &str,
        to: &str,
        copy: &Copy,
        stores: Option<&Path>,
    ) -> Result<Sample, Error> {
        let server = self.server.as_ref().map(Sshd::cpu);
        let meter = CpuMeter::start(server.as_ref(), server.is_some())?;
        let (start, before) = (Instant::now(), cpu::children_s());
        let mut command = Command::new("scp");
        command
            .args(&self.options)
            .args(["-q", "-r", from, to])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = ChildProcess::start(&mut command)
            .map_err(|error| Error::Program(format!("scp: {error}")))?;
        let status = super::child_process::wait(&mut child, &self.stop)
            .map_err(|error| Error::Program(format!("scp: {error}")))?;
        let programs = cpu::children_s() - before;
        if let Some(there) = stores.filter(|_| status.success() && !self.stop.is_set()) {
            for number in 0..copy.files {
                let path = there.join(format!("file{number:06}"));
                fs::File::open(&path)
                    .and_then(|file| file.sync_all())
                    .map_err(Error::file(&path))?;
            }
        }
        let mut sample = Sample { seconds: start.elapsed().as_secs_f64(), ..Sample::default() };
        // ssh encrypts on one thread. scp takes an eighth of the CPU time of both.
        sample.busy(programs * 7.0 / 8.0 / sample.seconds);
        if self.stop.is_set() {
            return Err(Error::Interrupted);
        }
        if !status.success() {
            let mut stderr = String::new();
            let _ = child
                .stderr
                .take()
                .map(|mut err| std::io::Read::read_to_string(&mut err, &mut stderr));
            return Err(Error::Program(format!("scp: {}", stderr.trim())));
        }
        (sample.bytes, sample.operations) = (copy.files * copy.len, copy.files);
        meter.end(&mut sample)?;
        Ok(sample)
    }

    fn create_files(&mut self, copy: &Copy) -> Result<PathBuf, Error> {
        let key = (copy.files, copy.len, copy.content);
        if let Some((path, _)) = self.made.get(&key) {
            return Ok(path.clone());
        }
        let directory = self.local.path().join(format!("from-{}", self.made.len()));
        fs::create_dir(&directory).map_err(Error::file(&directory))?;
        let mut data = vec![0; copy.len as usize];
        for number in 0..copy.files {
            self.pages.fill(copy.content, number, 0, &mut data);
            let path = directory.join(format!("file{number:06}"));
            fs::write(&path, &data).map_err(Error::file(&path))?;
        }
        self.made.insert(key, (directory.clone(), None));
        Ok(directory)
    }

    fn put(&mut self, copy: &Copy) -> Result<Sample, Error> {
        let from = self.create_files(copy)?;
        self.rounds += 1;
        let remote = self
            .remote
            .clone()
            .ok_or_else(|| Error::NotFound("the working directory was removed".into()))?;
        let there = format!("{remote}/put-{}", self.rounds);
        let (_, old) = self
            .made
            .get_mut(&(copy.files, copy.len, copy.content))
            .expect("the entry was just created");
        if let Some(old) = old.replace(there.clone()) {
            self.ssh(&format!("rm -rf -- '{old}'"))?;
        }
        self.scp(
            &from.display().to_string(),
            &format!("{}:{there}", self.host),
            copy,
            self.server.is_some().then(|| Path::new(&there)),
        )
    }

    fn get(&mut self, copy: &Copy) -> Result<Sample, Error> {
        let made = self
            .made
            .get(&(copy.files, copy.len, copy.content))
            .and_then(|(_, there)| there.clone());
        let there = made.ok_or_else(|| Error::NotFound("there is no copy to read".into()))?;
        let back = self.local.path().join("back");
        let sample =
            self.scp(&format!("{}:{there}", self.host), &back.display().to_string(), copy, None);
        let right = sample.is_err() || self.matches_copy(&back, copy);
        let removed = fs::remove_dir_all(&back).map_err(Error::file(&back));
        let sample = sample?;
        removed?;
        if right { Ok(sample) } else { Err(Error::Corrupt(format!("scp://{}", self.host))) }
    }

    fn matches_copy(&self, directory: &Path, copy: &Copy) -> bool {
        (0..copy.files).all(|number| {
            let bytes = fs::read(directory.join(format!("file{number:06}")));
            bytes.is_ok_and(|bytes| {
                bytes.len() as u64 == copy.len
                    && self.pages.matches(copy.content, number, 0, &bytes)
            })
        })
    }
}

impl Subject for ScpSubject {
    fn info(&self) -> SubjectInfo {
        let server =
            if self.server.is_some() { "a private sshd on loopback" } else { "the host's sshd" };
        let stored = match self.server {
            Some(_) => "copied files are synced one by one within the measured time",
            None => "copied files are in the host's page cache, and may not be on disk",
        };
        let back = "files copied back are written to this machine".to_owned();
        let clock = "measured time excludes generating and comparing data".to_owned();
        let details = vec![
            format!("{server}, scp -r with its own choice of cipher"),
            stored.to_owned(),
            back,
            clock,
        ];
        SubjectInfo {
            label: self.label.clone(),
            target: format!("scp://{}", self.host),
            sec: None,
            details,
        }
    }

    fn unsupported(&self, case: &Case) -> Option<String> {
        (!matches!(case, Case::Put(_) | Case::Get(_))).then(|| "scp only copies files".into())
    }

    fn stored(&self, case: &Case) -> Option<&'static str> {
        (matches!(case, Case::Put(_)) && self.server.is_none())
            .then_some("in the host's page cache")
    }

    fn prepare(&mut self, case: &Case) -> Result<(), Error> {
        match case {
            Case::Put(copy) => self.create_files(copy).map(drop),
            Case::Get(copy)
                if !self
                    .made
                    .get(&(copy.files, copy.len, copy.content))
                    .is_some_and(|(_, there)| there.is_some()) =>
            {
                self.put(copy).map(drop)
            }
            _ => Ok(()),
        }
    }

    fn measure(&mut self, case: &Case) -> Result<Sample, Error> {
        match case {
            Case::Put(copy) => self.put(copy),
            Case::Get(copy) => self.get(copy),
            _ => Err(Error::Input("scp only copies files".into())),
        }
    }

    fn tidy(&mut self) -> Result<(), Error> {
        for (path, there) in self.made.drain().map(|(_, made)| made).collect::<Vec<_>>() {
            fs::remove_dir_all(&path).map_err(Error::file(&path))?;
            if let Some(there) = there {
                self.ssh(&format!("rm -rf -- '{there}'"))?;
            }
        }
        Ok(())
    }

    fn place(&self) -> Option<String> {
        self.remote.as_ref().map(|remote| format!("{}:{remote}", self.host))
    }

    fn clean(&mut self) -> Result<(), Error> {
        self.remote
            .take()
            .map_or(Ok(()), |remote| self.ssh(&format!("rm -rf -- '{remote}'")).map(drop))
    }
}

impl Drop for ScpSubject {
    fn drop(&mut self) {
        let _ = self.clean();
    }
}

const STOP_TIMEOUT: Duration = Duration::from_secs(10);
