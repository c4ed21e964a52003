//! CPU time of this process, of a server, and of the machine.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Error;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerCpu {
    Process(u32),
    Cgroup(PathBuf),
    /// URL of a Prometheus page with `process_cpu_seconds_total`.
    Metrics(String),
}

impl std::str::FromStr for ServerCpu {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(pid) = text.strip_prefix("pid:") {
            return pid
                .parse()
                .map(Self::Process)
                .map_err(|_| format!("{pid}: not a process number"));
        }
        if let Some(path) = text.strip_prefix("cgroup:") {
            return Ok(Self::Cgroup(path.into()));
        }
        match text.starts_with("http://") {
            true => Ok(Self::Metrics(text.to_owned())),
            false => Err(format!(
                "{text}: write pid:NUMBER, cgroup:DIRECTORY or http://HOST:PORT/metrics"
            )),
        }
    }
}

impl ServerCpu {
    pub fn seconds(&self) -> Result<f64, Error> {
        match self {
            Self::Process(pid) => process_s(*pid)
                .ok_or_else(|| Error::NotFound(format!("process {pid}: no such process"))),
            Self::Cgroup(path) => {
                let file = path.join("cpu.stat");
                let text = fs::read_to_string(&file).map_err(Error::file(&file))?;
                let used = text
                    .lines()
                    .find_map(|line| line.strip_prefix("usage_usec ")?.trim().parse::<f64>().ok());
                used.map(|us| us / 1e6)
                    .ok_or_else(|| Error::Input(format!("{}: no usage_usec", file.display())))
            }
            Self::Metrics(url) => metrics_s(url),
        }
    }

    pub fn is_local(&self) -> bool {
        match self {
            Self::Process(_) | Self::Cgroup(_) => true,
            Self::Metrics(url) => {
                let host = url
                    .strip_prefix("http://")
                    .and_then(|rest| rest.split('/').next())
                    .unwrap_or_default();
                let address = host.to_socket_addrs().ok().and_then(|mut all| all.next());
                address.is_some_and(|address| is_local(address.ip()))
            }
        }
    }

    /// Prefers a listener at exactly this local address to a wildcard listener.
    pub fn listening_at(address: SocketAddr) -> Option<Self> {
        if !is_local(address.ip()) {
            return None;
        }
        let text: String = ["/proc/net/tcp", "/proc/net/tcp6"]
            .map(|table| fs::read_to_string(table).unwrap_or_default())
            .concat();
        let mut listeners: Vec<(SocketAddr, String)> = text.lines().filter_map(listener).collect();
        listeners.retain(|(at, _)| {
            at.port() == address.port() && (at.ip() == address.ip() || at.ip().is_unspecified())
        });
        let exact = listeners.iter().any(|(at, _)| at.ip() == address.ip());
        listeners.retain(|(at, _)| !exact || at.ip() == address.ip());
        let inodes: Vec<String> =
            listeners.into_iter().map(|(_, inode)| format!("socket:[{inode}]")).collect();
        let processes = fs::read_dir("/proc")
            .ok()?
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        processes.filter(|pid| *pid != std::process::id()).find_map(|pid| {
            let holds = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten().any(|entry| {
                fs::read_link(entry.path())
                    .is_ok_and(|link| inodes.iter().any(|inode| link.as_os_str() == inode.as_str()))
            });
            holds.then_some(Self::Process(pid))
        })
    }
}

fn listener(line: &str) -> Option<(SocketAddr, String)> {
    let fields: Vec<_> = line.split_whitespace().collect();
    let (ip, port) = fields.get(1)?.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let words: Vec<[u8; 4]> = (0..ip.len() / 8)
        .map(|at| {
            ip.get(at * 8..at * 8 + 8)
                .and_then(|word| u32::from_str_radix(word, 16).ok())
                .map(u32::to_ne_bytes)
        })
        .collect::<Option<_>>()?;
    let ip: IpAddr = match words[..] {
        [word] => word.into(),
        [a, b, c, d] => {
            let bytes: [u8; 16] = [a, b, c, d].concat().try_into().ok()?;
            IpAddr::from(bytes).to_canonical()
        }
        _ => return None,
    };
    (fields.get(3) == Some(&"0A"))
        .then(|| Some((SocketAddr::new(ip, port), (*fields.get(9)?).to_owned())))?
}

/// Kernel threads are children of kthreadd: a program of the same name does not match.
pub(crate) fn kernel_thread(name: &str) -> Option<u32> {
    let processes = fs::read_dir("/proc")
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    processes
        .filter(|pid| {
            is_kernel_thread(
                &fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default(),
                name,
            )
        })
        .min()
}

fn is_kernel_thread(stat: &str, name: &str) -> bool {
    let named = stat.split_once(" (").and_then(|(_, rest)| rest.rsplit_once(") "));
    named.is_some_and(|(comm, rest)| comm == name && rest.split_whitespace().nth(1) == Some("2"))
}

pub(crate) fn own_s() -> f64 {
    seconds_of(rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime))
}

pub(crate) fn thread_s() -> f64 {
    seconds_of(rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime))
}

pub(crate) fn children_s() -> f64 {
    stat("self").map_or(0.0, |fields| (fields.child_user + fields.child_system) / ticks_a_second())
}

pub(crate) fn machine_s() -> Option<(f64, f64)> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let values: Vec<f64> = text
        .lines()
        .next()?
        .split_whitespace()
        .skip(1)
        .take(8)
        .filter_map(|value| value.parse().ok())
        .collect();
    let [user, nice, system, idle, waiting, hard, soft, stolen] = values[..] else { return None };
    let busy = user + nice + system + hard + soft + stolen;
    Some((busy / ticks_a_second(), (busy + idle + waiting) / ticks_a_second()))
}

fn seconds_of(time: rustix::time::Timespec) -> f64 {
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn ticks_a_second() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

struct Stat {
    child_user: f64,
    child_system: f64,
}

fn stat(who: &str) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{who}/stat")).ok()?;
    // The name in parentheses may hold anything. cutime is the 16th field (proc(5)).
    let fields: Vec<f64> = text
        .rsplit(')')
        .next()?
        .split_whitespace()
        .skip(13)
        .take(2)
        .filter_map(|field| field.parse().ok())
        .collect();
    let [child_user, child_system] = fields[..] else { return None };
    Some(Stat { child_user, child_system })
}

/// Of a process and its children, living or ended. Ended children are counted in clock ticks, all
/// others in nanoseconds.
fn process_s(pid: u32) -> Option<f64> {
    let own = clock_s(pid)?;
    let children: f64 = children_of(pid).into_iter().filter_map(process_s).sum();
    let ended = stat(&pid.to_string())
        .map_or(0.0, |stat| (stat.child_user + stat.child_system) / ticks_a_second());
    Some(own + children + ended)
}

fn children_of(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists =
        tasks.map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
    lists
        .flat_map(|list| {
            list.split_whitespace().filter_map(|child| child.parse().ok()).collect::<Vec<_>>()
        })
        .collect()
}

fn clock_s(pid: u32) -> Option<f64> {
    let clock =
        nix::time::clock_getcpuclockid(nix::unistd::Pid::from_raw(pid.cast_signed())).ok()?;
    let time = clock.now().ok()?;
    Some(time.tv_sec() as f64 + time.tv_nsec() as f64 / 1e9)
}

fn metrics_s(url: &str) -> Result<f64, Error> {
    let bad = || Error::Input(format!("{url}: write http://HOST:PORT/metrics"));
    let (host, path) =
        url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).ok_or_else(bad)?;
    let unreachable = |error: std::io::Error| Error::Unreachable(format!("{url}: {error}"));
    let address = host.to_socket_addrs().map_err(unreachable)?.next().ok_or_else(bad)?;
    let mut stream = TcpStream::connect_timeout(&address, METRICS_TIMEOUT).map_err(unreachable)?;
    stream.set_read_timeout(Some(METRICS_TIMEOUT)).map_err(unreachable)?;
    write!(stream, "GET /{path} HTTP/1.0\r\nHost: {host}\r\n\r\n").map_err(unreachable)?;
    let mut text = String::new();
    stream.take(PAGE_LEN_MAX).read_to_string(&mut text).map_err(unreachable)?;
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix("process_cpu_seconds_total ")?.trim().parse().ok());
    value.ok_or_else(|| Error::NotFound(format!("{url}: no process_cpu_seconds_total")))
}

pub fn is_local(address: IpAddr) -> bool {
    address.is_loopback() || std::net::UdpSocket::bind((address, 0)).is_ok()
}

const METRICS_TIMEOUT: Duration = Duration::from_secs(10);
const PAGE_LEN_MAX: u64 = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_thread_is_child_of_kthreadd() {
        let of = |line| is_kernel_thread(line, "kauditd");
        assert!(of("36 (kauditd) S 2 0 0 0 -1 2129984 0"));
        assert!(!of("36 (kauditd) S 1 36 36 0 -1 4194304 0"));
        assert!(!of("36 (x) S 2 (kauditd) S 2 0"));
        assert!(!of(""));
        assert_eq!(kernel_thread("no such thread"), None);
    }

    #[test]
    fn parses_cpu_sources() {
        assert_eq!("pid:17".parse(), Ok(ServerCpu::Process(17)));
        assert_eq!(
            "cgroup:/sys/fs/cgroup/x".parse(),
            Ok(ServerCpu::Cgroup("/sys/fs/cgroup/x".into()))
        );
        assert!(["pid:x", "ftp://x"].iter().all(|text| text.parse::<ServerCpu>().is_err()));
        let local = |text: &str| text.parse::<ServerCpu>().expect("a source").is_local();
        assert!(
            local("pid:1")
                && local("cgroup:/x")
                && local("http://127.0.0.1:9/metrics")
                && local("http://[::1]:9/metrics")
        );
        // An address for documentation (RFC 5737).
        assert!(!local("http://192.0.2.1:9/metrics"));
    }

    #[test]
    fn own_time_agrees_with_process_clock() {
        let process = || clock_s(std::process::id()).expect("this process exists");
        let (own, before) = (own_s(), process());
        let mut state = 1;
        while own_s() - own < 0.3 {
            (0..100_000).for_each(|_| state = crate::content::mix(state));
        }
        assert!(state != 0);
        let (own, process) = (own_s() - own, process() - before);
        assert!(process >= own * 0.5 - 0.05, "{process} of {own}");
    }

    #[test]
    fn process_clock_counts_ended_threads() {
        let so_far = || clock_s(std::process::id()).expect("this process exists");
        for _ in 0..3 {
            let before = so_far();
            let worked = std::thread::spawn(|| {
                let (start, mut state) = (thread_s(), 1);
                while thread_s() - start < 0.002 {
                    state = crate::content::mix(state);
                }
                assert!(state != 0);
                thread_s() - start
            });
            let worked = worked.join().expect("the thread ends");
            assert!(so_far() - before >= worked, "{} of {worked}", so_far() - before);
        }
    }

    #[test]
    fn finds_children_of_all_threads() {
        let (told, hears) = std::sync::mpsc::channel();
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
            told.send(child.id()).expect("a waiter exists");
            let _ = ends.recv();
            let _ = child.kill();
            let _ = child.wait();
        });
        let child = hears.recv().expect("a child");
        let found = children_of(std::process::id());
        drop(end);
        thread.join().expect("the thread ends");
        assert!(found.contains(&child), "{child} of {found:?}");
    }

    #[test]
    fn parses_listening_address() {
        let line = |at: &str, state: &str| {
            format!(
                "   0: {at} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000     0        0 4711 1"
            )
        };
        let word = |bytes: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(bytes));
        let v4 = format!("{}:0801", word([127, 0, 0, 2]));
        assert_eq!(
            listener(&line(&v4, "0A")),
            Some((SocketAddr::from(([127, 0, 0, 2], 2049)), "4711".into()))
        );
        assert_eq!(listener(&line(&v4, "01")), None);
        let mapped = format!(
            "{}{}{}{}:0801",
            word([0; 4]),
            word([0; 4]),
            word([0, 0, 255, 255]),
            word([127, 0, 0, 2])
        );
        assert_eq!(
            listener(&line(&mapped, "0A")),
            Some((SocketAddr::from(([127, 0, 0, 2], 2049)), "4711".into()))
        );
        assert_eq!(listener("  sl  local_address rem_address   st"), None);
    }

    #[test]
    fn prefers_listener_at_exact_address() {
        let listen = |at: &str, port: u16| {
            let mut child = std::process::Command::new("python3")
                .args(["-c", "import socket,sys\ns=socket.create_server((sys.argv[1],int(sys.argv[2])))\nprint(s.getsockname()[1],flush=True)\nsys.stdin.read()"])
                .args([at, &port.to_string()])
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .expect("python3 is installed");
            let mut line = String::new();
            std::io::BufRead::read_line(
                &mut std::io::BufReader::new(child.stdout.take().expect("piped")),
                &mut line,
            )
            .expect("a port");
            (child, line.trim().parse::<u16>().expect("a port"))
        };
        let (mut one, port) = listen("127.0.0.3", 0);
        let (mut two, _) = listen("127.0.0.4", port);
        let at = |ip: [u8; 4]| ServerCpu::listening_at(SocketAddr::from((ip, port)));
        let found = (at([127, 0, 0, 3]), at([127, 0, 0, 4]), at([127, 0, 0, 5]));
        let pids = (one.id(), two.id());
        for child in [&mut one, &mut two] {
            drop(child.stdin.take());
            let _ = child.wait();
        }
        assert_eq!(
            found,
            (Some(ServerCpu::Process(pids.0)), Some(ServerCpu::Process(pids.1)), None)
        );
    }

    #[test]
    fn machine_time_is_busy_and_idle() {
        let (busy, had) = machine_s().expect("/proc/stat");
        assert!(busy > 0.0 && had >= busy);
    }
}
