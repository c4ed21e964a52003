//! Connect, request one small file, receive it, close. Every answer must equal the first.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::{CpuMeter, SubjectInfo};
use crate::cpu::{self, ServerCpu};
use crate::{Case, Error, Latency, Sample, StopFlag, Subject};

#[derive(Debug, Clone)]
pub(crate) enum Request {
    Records([Vec<Vec<u8>>; 2]),
    /// HTTP paths of one component and of three. The server closes the connection after the answer.
    Http([String; 2]),
    Https([String; 2]),
}

pub(crate) struct ConnectSubject {
    label: String,
    address: SocketAddr,
    name: Option<String>,
    request: Request,
    server_cpu: Option<ServerCpu>,
    stop: StopFlag,
    first: [Mutex<Option<Vec<u8>>>; 2],
}

impl ConnectSubject {
    pub(crate) fn new(
        label: String,
        address: SocketAddr,
        request: Request,
        server_cpu: Option<ServerCpu>,
        stop: &StopFlag,
    ) -> Self {
        let server_cpu = server_cpu.or_else(|| ServerCpu::listening_at(address));
        Self {
            label,
            address,
            name: None,
            request,
            server_cpu,
            stop: stop.clone(),
            first: Default::default(),
        }
    }

    #[must_use]
    pub(crate) fn named(self, host: &str) -> Self {
        let name = host.parse::<IpAddr>().is_err().then(|| host.to_owned());
        Self { name, ..self }
    }

    fn get(&self, path: &str) -> String {
        let standard = if matches!(self.request, Request::Https(_)) { 443 } else { 80 };
        let host = match &self.name {
            Some(name) if self.address.port() == standard => name.clone(),
            Some(name) => format!("{name}:{}", self.address.port()),
            None => self.address.to_string(),
        };
        format!("GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n")
    }

    fn sockets(&self, name: usize, time: Duration, sample: &mut Sample) -> Result<(), Error> {
        let requests = match &self.request {
            Request::Records(of_names) => of_names[name].clone(),
            Request::Http(paths) | Request::Https(paths) => {
                vec![self.get(&paths[name]).into_bytes()]
            }
        };
        let (start, sum) = (Instant::now(), Mutex::new((Latency::new(), None, 0.0_f64)));
        std::thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| {
                    let mut latency = Latency::new();
                    let mut fault = None;
                    while start.elapsed() < time && !self.stop.is_set() && fault.is_none() {
                        let begun = Instant::now();
                        fault = self.one_connection(name, &requests).err();
                        latency.record(begun.elapsed().as_nanos() as u64);
                    }
                    let mut sum = sum.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    sum.0.merge(&latency);
                    sum.1 = sum.1.take().or(fault);
                    sum.2 = sum.2.max(cpu::thread_s());
                });
            }
        });
        let (latency, fault, busiest) =
            sum.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        (sample.operations, sample.seconds, sample.latency) =
            (latency.count(), start.elapsed().as_secs_f64(), latency);
        sample.busy(busiest / sample.seconds);
        fault.map_or(Ok(()), Err)
    }

    fn one_connection(&self, name: usize, requests: &[Vec<u8>]) -> Result<(), Error> {
        let lost = |error: std::io::Error| Error::Unreachable(format!("{}: {error}", self.address));
        let mut stream = TcpStream::connect_timeout(&self.address, ANSWER_TIMEOUT).map_err(lost)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(lost)?;
        stream.set_nodelay(true).map_err(lost)?;
        let mut answer = Vec::new();
        if matches!(self.request, Request::Records(_)) {
            for request in requests {
                stream.write_all(request).map_err(lost)?;
                super::replay::record(&mut stream, &mut answer).map_err(lost)?;
            }
        } else {
            stream.write_all(&requests[0]).map_err(lost)?;
            stream.take(ANSWER_LEN_MAX.into()).read_to_end(&mut answer).map_err(lost)?;
            // The header holds the date.
            let body = answer.windows(4).position(|end| end == b"\r\n\r\n").map_or(0, |at| at + 4);
            if !answer.starts_with(b"HTTP/1.") || answer.get(9..12) != Some(b"200") {
                return Err(Error::NotFound(format!(
                    "{}: {}",
                    self.address,
                    String::from_utf8_lossy(&answer[..answer.len().min(40)]).trim()
                )));
            }
            answer.drain(..body);
        }
        let mut first = self.first[name].lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match first.as_ref() {
            None => *first = Some(answer),
            Some(first) if *first == answer => {}
            Some(_) => return Err(Error::Corrupt(self.label.clone())),
        }
        Ok(())
    }

    fn is_served(&self, path: &str) -> Result<(), Error> {
        let nameless =
            || self.is_answered(path, &format!("GET {path} HTTP/1.0\r\n\r\n"), &["-noservername"]);
        let Some(name) = &self.name else { return nameless() };
        self.is_answered(path, &self.get(path), &["-servername", name])?;
        nameless().map_err(|error| match error {
            Error::NotFound(why) => Error::NotFound(format!(
                "{why} without a host name (openssl s_time sends none), but the page with one"
            )),
            error => error,
        })
    }

    fn is_answered(&self, path: &str, request: &str, tells: &[&str]) -> Result<(), Error> {
        let program = |error: std::io::Error| Error::Program(format!("openssl s_client: {error}"));
        let mut command = Command::new("openssl");
        command
            .args([
                "s_client",
                "-quiet",
                "-no_ign_eof",
                "-tls1_3",
                "-connect",
                &self.address.to_string(),
            ])
            .args(tells);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(program)?;
        let stdin = child.stdin.take();
        let written =
            stdin.as_ref().map_or(Ok(()), |mut stdin| stdin.write_all(request.as_bytes()));
        let mut answers = child.stdout.take();
        let reader = std::thread::spawn(move || {
            let mut head = [0; HEAD_LEN];
            let mut len = 0;
            while let Some(n @ 1..) =
                answers.as_mut().and_then(|answers| answers.read(&mut head[len..]).ok())
            {
                len += n;
            }
            String::from_utf8_lossy(&head[..len]).into_owned()
        });
        let start = Instant::now();
        while !reader.is_finished() && start.elapsed() < ANSWER_TIMEOUT && !self.stop.is_set() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = child.kill();
        let _ = child.wait();
        drop(stdin);
        let head = reader.join().unwrap_or_default();
        written.map_err(program)?;
        match head.split(' ').nth(1) {
            _ if self.stop.is_set() => Err(Error::Interrupted),
            Some("200") => Ok(()),
            Some(_) => {
                Err(Error::NotFound(format!("https://{}{path}: {}", self.address, head.trim())))
            }
            None => Err(Error::Unreachable(format!("{}: no answer by TLS", self.address))),
        }
    }

    /// Full handshakes with one GET each. Returns connections, failed clients, and seconds.
    fn handshakes(&self, path: &str, time: Duration) -> Result<(u64, u64, f64), Error> {
        let seconds = time.as_secs().max(1);
        let started: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let mut command = Command::new("openssl");
                command.args([
                    "s_time",
                    "-new",
                    "-tls1_3",
                    "-www",
                    path,
                    "-time",
                    &seconds.to_string(),
                    "-connect",
                    &self.address.to_string(),
                ]);
                command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
            })
            .collect();
        let (mut count, mut failed) = (0, 0);
        let start = Instant::now();
        for child in started {
            let output = child
                .and_then(std::process::Child::wait_with_output)
                .map_err(|error| Error::Program(format!("openssl s_time: {error}")))?;
            match parse_count(output.status.success(), &String::from_utf8_lossy(&output.stdout)) {
                Some(those) => count += those,
                None => failed += 1,
            }
        }
        match count {
            0 => Err(Error::Unreachable(format!("{}: no handshake", self.address))),
            count => Ok((count, failed, start.elapsed().as_secs_f64())),
        }
    }
}

impl Subject for ConnectSubject {
    fn info(&self) -> SubjectInfo {
        let how = match self.request {
            Request::Records(_) => {
                "a connection, and the calls of a client without a cache that reads and verifies one file"
            }
            Request::Http(_) => "a connection, GET",
            Request::Https(_) => {
                "a connection, a full TLS 1.3 handshake and GET, by openssl s_time; answers are parse_count, not compared; a client with a failed connection counts as an error"
            }
        };
        let nameless = matches!(self.request, Request::Https(_)) && self.name.is_some();
        let details = std::iter::once(how)
            .chain(nameless.then_some("openssl s_time sends no host name (no SNI, no Host)"));
        let target = self
            .name
            .as_ref()
            .map_or_else(|| self.address.to_string(), |name| format!("{name} ({})", self.address));
        SubjectInfo {
            label: self.label.clone(),
            target,
            sec: None,
            details: details.map(str::to_owned).collect(),
        }
    }

    fn unsupported(&self, case: &Case) -> Option<String> {
        (!matches!(case, Case::Connect { .. }))
            .then(|| "this subject measures only connections".into())
    }

    fn prepare(&mut self, case: &Case) -> Result<(), Error> {
        let (Request::Https(paths), Case::Connect { depth, .. }) = (&self.request, case) else {
            return Ok(());
        };
        self.is_served(&paths[usize::from(*depth > 1)])
    }

    fn measure(&mut self, case: &Case) -> Result<Sample, Error> {
        let Case::Connect { depth, seconds } = case else {
            return Err(Error::Input("this subject measures only connections".into()));
        };
        let (name, time) = (usize::from(*depth > 1), Duration::from_secs_f64(*seconds));
        let meter = CpuMeter::start(
            self.server_cpu.as_ref(),
            matches!(self.server_cpu, Some(ServerCpu::Process(_) | ServerCpu::Cgroup(_))),
        )?;
        let mut sample = Sample::default();
        if let Request::Https(paths) = &self.request {
            let before = cpu::children_s();
            (sample.operations, sample.errors, sample.seconds) =
                self.handshakes(&paths[name], time)?;
            sample.busy((cpu::children_s() - before) / CLIENTS as f64 / sample.seconds);
        } else {
            self.sockets(name, time, &mut sample)?;
        }
        meter.end(&mut sample)?;
        if self.stop.is_set() { Err(Error::Interrupted) } else { Ok(sample) }
    }

    fn tidy(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn clean(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// `123 connections in 2 real seconds, …` after the line of user time. `openssl s_time` prints no
/// count after a failed connection.
fn parse_count(succeeded: bool, output: &str) -> Option<u64> {
    let line = output.lines().find(|line| line.contains("real seconds")).filter(|_| succeeded)?;
    line.split(' ').next()?.parse().ok()
}

const CLIENTS: usize = 4;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
const HEAD_LEN: usize = 12;
const ANSWER_LEN_MAX: u32 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::WebServer;

    #[test]
    fn failed_client_has_no_count() {
        let output = "12 connections in 0.05s; 240.00 connections/user sec, bytes read 60\n12 connections in 2 real seconds, 5 bytes read per connection\n";
        assert_eq!(parse_count(true, output), Some(12));
        assert_eq!(parse_count(false, output), None);
        assert_eq!(
            parse_count(true, "Collecting connection statistics for 1 seconds\n****ERROR\n"),
            None
        );
        assert_eq!(parse_count(false, ""), None);
    }

    #[test]
    fn request_names_host() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("a port");
        let server = std::thread::spawn(move || {
            let mut hosts = Vec::new();
            for stream in listener.incoming().take(2) {
                let (mut stream, mut bytes) = (stream.expect("a caller"), [0; 1024]);
                let n = stream.read(&mut bytes).expect("a request");
                hosts.push(String::from_utf8_lossy(&bytes[..n]).into_owned());
                stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nhello").expect("the peer listens");
            }
            hosts
        });
        let subject = |host: &str, request: Request| {
            ConnectSubject::new("http".into(), address, request, None, &StopFlag::default())
                .named(host)
        };
        let paths = || ["/a".to_owned(), "/b".to_owned()];
        for host in ["files.example", "127.0.0.1"] {
            let subject = subject(host, Request::Http(paths()));
            subject.one_connection(0, &[subject.get("/a").into_bytes()]).expect("it answers");
        }
        let hosts = server.join().expect("the thread ends");
        let host =
            |name: &str| format!("GET /a HTTP/1.0\r\nHost: {name}:{}\r\n\r\n", address.port());
        assert_eq!(hosts, [host("files.example"), host("127.0.0.1")]);
        let info = subject("files.example", Request::Https(paths())).info();
        assert!(
            info.target.starts_with("files.example (")
                && info.details.iter().any(|detail| detail.contains("no SNI")),
            "{info:?}"
        );
    }

    #[test]
    #[ignore = "needs nginx"]
    fn missing_page_over_tls_is_error() {
        let at = tempfile::tempdir().expect("a directory");
        let root = at.path().join("root");
        std::fs::create_dir(&root).expect("a directory");
        std::fs::write(root.join("small"), "small").expect("a file");
        let web = WebServer::start(at.path(), &root).expect("the packages nginx and openssl");
        let subject = |path: &str| {
            let request = Request::Https([path.into(), path.into()]);
            ConnectSubject::new("https".into(), web.https, request, None, &StopFlag::default())
        };
        let case = Case::Connect { depth: 1, seconds: 1.0 };
        subject("/small").prepare(&case).expect("the file exists");
        let missing = subject("/nowhere").prepare(&case);
        assert!(
            matches!(&missing, Err(Error::NotFound(why)) if why.contains("404")),
            "{missing:?}"
        );
    }
}
