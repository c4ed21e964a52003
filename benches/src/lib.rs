//! What the replica benchmarks share: a published tree to serve, the servers as processes, a load
//! generator that costs little, and the words for the machine. Every answer of a replica is checked
//! while it is measured: the first to a request by its hashes, the others by comparison with the
//! first.

pub mod bare;
pub mod kernel_audit;
pub mod load;
pub mod nfs;
pub mod process;
pub mod rpc;
pub mod tree;

use std::fmt::Display;

/// Ends the program with one line if something that the measurement needs fails. Unwinds rather
/// than exits, so that the servers that were started end too: one left behind would spoil every
/// measurement after it.
pub trait OrStop<T> {
    /// The value, or the end.
    fn or_stop(self, doing: impl Display) -> T;
}

impl<T, E: Display> OrStop<T> for Result<T, E> {
    fn or_stop(self, doing: impl Display) -> T {
        self.unwrap_or_else(|error| {
            eprintln!("{doing}: {error}");
            std::panic::resume_unwind(Box::new("a measurement ended early"))
        })
    }
}

/// The middle one of some measurements.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// One line about the machine: a figure is worth nothing without it.
pub fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo").lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1).map(str::to_owned));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let load = read("/proc/loadavg");
    let load: Vec<_> = load.split(' ').take(3).collect();
    let kernel = read("/proc/sys/kernel/osrelease");
    format!(
        "{cores} cores of {}, Linux {}, load and server share them over loopback; load average at the start {}",
        cpu.unwrap_or_else(|| "an unknown CPU".into()),
        kernel.trim().split('-').next().unwrap_or_default(),
        load.join(" ")
    )
}
