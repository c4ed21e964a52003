use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Machine {
    pub cpu: String,
    pub cores: usize,
    pub crypto: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub governor: Option<String>,
    pub memory: u64,
    pub kernel: String,
    pub system: String,
    pub load: String,
    pub network: Vec<String>,
    pub versions: Vec<String>,
}

/// The file that is written first gets the scattered pages of fragmented memory. Its subject comes
/// out slower, by 1.12 to 1.24 for reads of 8 KiB. Without the right to compact memory, nothing is done.
pub fn compact_memory() {
    let _ = fs::write("/proc/sys/vm/compact_memory", "1");
}

impl Machine {
    pub fn this() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let cpuinfo = read("/proc/cpuinfo");
        let field = |name: &str| {
            let line = cpuinfo
                .lines()
                .find(|line| line.split(':').next().is_some_and(|key| key.trim() == name));
            line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
        };
        let flags = field("flags").or_else(|| field("Features")).unwrap_or_default();
        let crypto = CRYPTO
            .iter()
            .filter(|wanted| flags.split(' ').any(|flag| flag == **wanted))
            .map(|flag| (*flag).to_owned())
            .collect();
        let governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
        let kib = read("/proc/meminfo").lines().find_map(|line| {
            line.strip_prefix("MemTotal:")?.trim().split(' ').next()?.parse::<u64>().ok()
        });
        let release = read("/etc/os-release");
        let system = release
            .lines()
            .find_map(|line| line.strip_prefix("PRETTY_NAME="))
            .unwrap_or("unknown")
            .trim_matches('"')
            .to_owned();
        Self {
            cpu: field("model name")
                .or_else(|| field("Processor"))
                .unwrap_or_else(|| "unknown".into()),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            crypto,
            governor: (!governor.is_empty()).then_some(governor),
            memory: kib.unwrap_or(0) * 1024,
            kernel: read("/proc/sys/kernel/osrelease"),
            system,
            load: read("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" "),
            network: network(),
            versions: vec![format!("vouch {}", env!("CARGO_PKG_VERSION"))],
        }
    }

    pub fn with_version(&mut self, program: &str, option: &str) {
        let Ok(output) = Command::new(program).arg(option).output() else { return };
        let printed = [output.stdout, output.stderr].concat();
        let line = String::from_utf8_lossy(&printed).lines().next().unwrap_or_default().to_owned();
        if !line.is_empty() && !self.versions.contains(&line) {
            self.versions.push(line);
        }
    }

    pub fn brief(&self) -> String {
        format!(
            "{} × {}, {}, Linux {}",
            self.cores,
            self.cpu,
            if self.crypto.is_empty() {
                "no crypto instructions".into()
            } else {
                self.crypto.join(" ")
            },
            self.kernel
        )
    }
}

pub(crate) fn mount_of(directory: &std::path::Path) -> Option<String> {
    let whole = directory.canonicalize().ok()?;
    let table = fs::read_to_string("/proc/self/mounts").ok()?;
    let found = table.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let (source, at, kind, options) =
            (fields.next()?, fields.next()?.replace("\\040", " "), fields.next()?, fields.next()?);
        whole.starts_with(&at).then(|| (at.len(), format!("{source} type {kind} ({options})")))
    });
    found.max_by_key(|(len, _)| *len).map(|(_, text)| text)
}

pub fn route_to(address: SocketAddr) -> Option<String> {
    let socket =
        std::net::UdpSocket::bind(if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }).ok()?;
    socket.connect(address).ok()?;
    let from = socket.local_addr().ok()?.ip();
    Some(if from.is_loopback() {
        "loopback".into()
    } else {
        format!("from {from} to {}", address.ip())
    })
}

fn network() -> Vec<String> {
    let mut interfaces: Vec<String> = fs::read_dir("/sys/class/net")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let read = |name: &str| {
                fs::read_to_string(entry.path().join(name)).ok().map(|text| text.trim().to_owned())
            };
            let up = read("operstate").is_some_and(|state| state == "up" || state == "unknown");
            let name = entry.file_name().to_string_lossy().into_owned();
            let mtu = read("mtu").unwrap_or_default();
            let speed = read("speed")
                .filter(|speed| !speed.starts_with('-'))
                .map(|speed| format!(", {speed} Mbit/s"))
                .unwrap_or_default();
            up.then(|| format!("{name}: MTU {mtu}{speed}"))
        })
        .collect();
    interfaces.sort();
    interfaces
}

/// CPU features that select cipher and hash code.
const CRYPTO: [&str; 14] = [
    "aes",
    "vaes",
    "pclmulqdq",
    "vpclmulqdq",
    "sha_ni",
    "ssse3",
    "avx2",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "pmull",
    "sha1",
    "sha2",
    "sha512",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn describes_this_machine() {
        let machine = Machine::this();
        assert!(
            machine.cores > 0 && machine.memory > 0 && !machine.kernel.is_empty(),
            "{machine:?}"
        );
        assert!(machine.network.iter().any(|line| line.starts_with("lo:")), "{machine:?}");
        assert!(
            mount_of(std::path::Path::new("/proc/self"))
                .is_some_and(|text| text.contains("type proc"))
        );
    }
}
