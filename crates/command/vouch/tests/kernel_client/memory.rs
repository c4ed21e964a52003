//! The whole memory of a guest, as this machine sees it: User-Mode Linux has it in an unlinked file.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::guest::Network;

pub(crate) struct GuestMemory {
    /// The file, by a descriptor of the guest's kernel.
    path: PathBuf,
    /// The guest's working directory.
    job: PathBuf,
}

impl GuestMemory {
    /// Waits until the guest of this network has booted.
    pub(crate) fn of(network: &Network) -> GuestMemory {
        let end = Instant::now() + Duration::from_secs(120);
        loop {
            if let Some(found) = processes().find_map(|pid| Self::of_process(&pid, network)) {
                return found;
            }
            assert!(Instant::now() < end, "no guest runs");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn of_process(process: &std::path::Path, network: &Network) -> Option<GuestMemory> {
        let line = std::fs::read_to_string(process.join("cmdline")).ok()?;
        let device = format!("ifname={},", network.device());
        let job = line.split('\0').find_map(|word| word.strip_prefix("JOB="))?.into();
        let mut files =
            std::fs::read_dir(process.join("fd")).ok()?.flatten().map(|file| file.path());
        let is_memory = |path: &PathBuf| {
            let is_unlinked = std::fs::read_link(path)
                .is_ok_and(|to| to.to_string_lossy().ends_with(" (deleted)"));
            is_unlinked
                && std::fs::metadata(path).is_ok_and(|metadata| metadata.len() >= MEMORY_LEN_MIN)
        };
        line.contains(&device)
            .then(|| files.find(is_memory))
            .flatten()
            .map(|path| GuestMemory { path, job })
    }

    /// Waits until the guest's script has written this line. The guest has a time limit.
    pub(crate) fn wait_for(&self, line: &str) {
        let output = || std::fs::read_to_string(self.job.join("out")).unwrap_or_default();
        while !output().lines().any(|found| found == line) {
            assert!(self.path.exists(), "the guest does not say {line:?}: {}", output());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Creates a file in the guest's working directory, for which its script waits.
    pub(crate) fn create(&self, name: &str) {
        std::fs::write(self.job.join(name), "").expect("a file");
    }

    /// The bytes that follow each occurrence of `pattern`, without repetitions.
    pub(crate) fn after(&self, pattern: &[u8], len: usize) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        self.scan(pattern, len, |bytes| found.push(bytes[pattern.len()..].to_vec()));
        found.sort();
        found.dedup();
        found
    }

    pub(crate) fn count(&self, pattern: &[u8]) -> usize {
        let mut count = 0;
        self.scan(pattern, 0, |_| count += 1);
        count
    }

    /// Calls `found` with each occurrence and the `more` bytes behind it.
    fn scan(&self, pattern: &[u8], more: usize, mut found: impl FnMut(&[u8])) {
        let mut file = File::open(&self.path).expect("the guest's memory");
        let whole = pattern.len() + more;
        let (mut buffer, mut kept) = (vec![0; CHUNK_LEN], 0);
        file.seek(SeekFrom::Start(0)).expect("a file");
        loop {
            let count = file.read(&mut buffer[kept..]).expect("the guest's memory");
            if count == 0 {
                return;
            }
            let filled = kept + count;
            let starts = memchr::memmem::find_iter(&buffer[..filled], pattern);
            starts.filter(|at| at + whole <= filled).for_each(|at| found(&buffer[at..at + whole]));
            // An occurrence that is not complete is found with the next bytes.
            kept = (whole - 1).min(filled);
            buffer.copy_within(filled - kept..filled, 0);
        }
    }
}

fn processes() -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir("/proc").expect("proc").flatten().map(|entry| entry.path())
}

const CHUNK_LEN: usize = 8 << 20;
/// No other unlinked file of the guest's kernel has this length.
const MEMORY_LEN_MIN: u64 = 256 << 20;
