//! A free thread takes the next due call; a late start counts as latency. Each write has new
//! content.

use std::fs::File;
use std::io::{self, Write as _};
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{BLOCK_LEN, MountSubject, ThreadTotals};
use crate::case::{Content, Load, Order};
use crate::content::{mix, shuffled};
use crate::page_versions::{self, Block, PageVersions, in_flight_max};
use crate::{Error, Sample, cpu};

impl MountSubject {
    pub(super) fn create_file(&mut self, len: u64) -> Result<(), Error> {
        let path = self.working_directory()?.join("due");
        let mut file = File::create(&path).map_err(Error::file(&path))?;
        let mut block = vec![0; BLOCK_LEN];
        for at in (0..len).step_by(BLOCK_LEN) {
            let part = &mut block[..(len - at).min(BLOCK_LEN as u64) as usize];
            self.pages.fill(Content::Random, FILE, at, part);
            file.write_all(part).map_err(Error::file(&path))?;
        }
        file.sync_all().map_err(Error::file(&path))?;
        self.written = PageVersions::new(len);
        Ok(())
    }

    /// Each seed has another order of blocks.
    pub(super) fn open_loop(&self, load: &Load, rate: f64, seed: u64) -> Result<Sample, Error> {
        let path = self.working_directory()?.join("due");
        if !self.direct {
            self.prepare_cache([path.as_path()])?;
        }
        let file = File::options()
            .read(true)
            .write(true)
            .custom_flags(self.flags())
            .open(&path)
            .map_err(Error::file(&path))?;
        let seed = mix(seed);
        let (blocks, block_len) = (page_versions::blocks(load), u64::from(load.block));
        let depth = in_flight_max(load);
        let (start, next, end) =
            (Instant::now(), AtomicU64::new(0), Duration::from_secs_f64(load.seconds));
        let (unsent, last) = (AtomicU64::new(0), Mutex::new(Vec::new()));
        let mut sample = self.threads(depth, |latency, _| {
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
            let mut memory = aligned(load.block);
            let data = memory.data();
            let mut totals = ThreadTotals::default();
            let mut wrote = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let due = Duration::from_secs_f64(at as f64 / rate);
                if due >= end || self.stop.is_set() {
                    last.lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner)
                        .append(&mut wrote);
                    return Ok(totals);
                }
                if start.elapsed() >= end {
                    latency.record((end - due).as_nanos() as u64);
                    unsent.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                totals.waited_s += wait(start + due, spin_time(rate));
                let place = if load.order == Order::Random {
                    shuffled(at, blocks, seed)
                } else {
                    at % blocks
                };
                let writes = mix(at ^ seed.rotate_left(32)) % 100 >= u64::from(load.read_percent);
                let number = if load.read_percent == 100 {
                    self.check(&file, data, PageVersions::share(place, block_len))
                        .map(|()| place)?
                } else {
                    self.transfer_block(&file, data, (place, block_len, blocks), writes)?
                };
                latency.record((start.elapsed().saturating_sub(due)).as_nanos() as u64);
                totals.bytes += block_len;
                if writes && wrote.len() < SAMPLE {
                    wrote.push(number);
                }
            }
        })?;
        sample.seconds = sample.seconds.max(load.seconds);
        sample.depth = (depth < load.depth).then_some(depth);
        sample.unsent = unsent.load(Ordering::Relaxed);
        sample.operations -= sample.unsent;
        if load.read_percent == 0 {
            let written = last.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
            self.check_written(&file, &path, load.block, &written)?;
        }
        Ok(sample)
    }

    /// A file system that loses data would be the fastest.
    fn check_written(
        &self,
        file: &File,
        path: &Path,
        block: u32,
        written: &[u64],
    ) -> Result<(), Error> {
        let mut memory = aligned(block);
        for &number in written {
            self.check(file, memory.data(), PageVersions::share(number, u64::from(block)))
                .map_err(|error| match error.kind() {
                    io::ErrorKind::InvalidData => Error::Corrupt(path.display().to_string()),
                    _ => Error::file(path)(error),
                })?;
        }
        Ok(())
    }

    fn check(&self, file: &File, data: &mut [u8], block: Block) -> io::Result<()> {
        file.read_exact_at(data, block.offset()).and_then(|()| {
            match self.written.holds(&self.pages, FILE, block, data) {
                true => Ok(()),
                false => Err(io::ErrorKind::InvalidData.into()),
            }
        })
    }

    fn transfer_block(
        &self,
        file: &File,
        data: &mut [u8],
        (number, len, blocks): (u64, u64, u64),
        writes: bool,
    ) -> io::Result<u64> {
        let (number, block) = self.written.take(number, len, blocks);
        let outcome = if writes {
            self.written.fill(&self.pages, FILE, block, data);
            file.write_all_at(data, block.offset())
        } else {
            self.check(file, data, block)
        };
        match &outcome {
            Ok(()) if writes => self.written.acknowledge(block),
            Err(_) if writes => self.written.mark_unanswered(block),
            _ => {}
        }
        self.written.release(block);
        outcome.map(|()| number)
    }
}

struct Aligned {
    memory: Vec<u8>,
    len: usize,
}

fn aligned(len: u32) -> Aligned {
    Aligned { memory: vec![0; len as usize + 4096], len: len as usize }
}

impl Aligned {
    fn data(&mut self) -> &mut [u8] {
        let skip = self.memory.as_ptr().align_offset(4096);
        &mut self.memory[skip..skip + self.len]
    }
}

/// A sleeping thread wakes late. Returns CPU seconds.
fn wait(until: Instant, awake: Duration) -> f64 {
    if let Some(asleep) = until.saturating_duration_since(Instant::now()).checked_sub(awake) {
        std::thread::sleep(asleep);
    }
    let before = cpu::thread_s();
    while Instant::now() < until {
        std::hint::spin_loop();
    }
    cpu::thread_s() - before
}

/// At most a tenth of a CPU for all calls together, because the server may need it.
fn spin_time(rate: f64) -> Duration {
    Duration::from_secs_f64((0.1 / rate).min(WAKE_UP_DELAY_S))
}

const FILE: u64 = u64::MAX;
const WAKE_UP_DELAY_S: f64 = 100e-6;
const SAMPLE: usize = 64;

#[cfg(test)]
mod tests {
    use super::super::DSYNC;
    use super::super::tests::begin;
    use super::*;
    use crate::{Case, Subject};

    #[test]
    #[ignore = "needs fio"]
    fn load_without_direct_io_syncs_writes() {
        let at = tempfile::tempdir().expect("a directory");
        for (warm, flags) in [(false, DSYNC), (true, 0)] {
            let mut subject = begin(at.path(), warm);
            subject.direct = false;
            assert_eq!(subject.flags(), flags);
            let load = |rate| {
                Case::Load(Load { read_percent: 50, depth: 2, rate, seconds: 0.2, ..Load::READS })
            };
            subject.prepare(&load(None)).expect("a file");
            assert!(subject.measure(&load(None)).expect("fio is installed").operations > 0);
            let load = load(Some(100.0));
            subject.prepare(&load).expect("a file");
            let sample = subject.measure(&load).expect("written data is read");
            assert_eq!(sample.operations + sample.unsent, 20);
            assert_eq!(sample.latency.count(), 20);
            assert!(sample.seconds >= 0.2, "{}", sample.seconds);
            assert_eq!(
                subject.info().details.iter().any(|detail| detail.contains("O_DSYNC")),
                !warm
            );
            subject.clean().expect("removal succeeds");
        }
    }

    #[test]
    fn wait_is_never_early_and_spins_at_most_tenth() {
        for ms in [0, 1, 5] {
            let until = Instant::now() + Duration::from_millis(ms);
            let took = wait(until, Duration::from_micros(100));
            assert!(Instant::now() >= until && took >= 0.0);
        }
        assert_eq!(spin_time(10.0), Duration::from_micros(100));
        assert!((spin_time(100_000.0).as_secs_f64() * 100_000.0 - 0.1).abs() < 1e-3);
    }

    #[test]
    fn threads_have_minimal_timer_slack() {
        let slack = std::thread::spawn(|| {
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
            rustix::thread::current_timer_slack()
        });
        assert_eq!(slack.join().expect("the thread ends").expect("the system tells"), 1);
    }

    #[test]
    fn detects_lost_writes() {
        let at = tempfile::tempdir().expect("a directory");
        let mut subject = begin(at.path(), true);
        let load = |read_percent| {
            Case::Load(Load {
                block: 8192,
                read_percent,
                depth: 2,
                rate: Some(400.0),
                seconds: 0.2,
                file_len: 1 << 18,
                ..Load::READS
            })
        };
        subject.prepare(&load(0)).expect("a file");
        let file = subject.working_directory().expect("the file exists").join("due");
        let before = std::fs::read(&file).expect("the file exists");
        assert!(subject.measure(&load(0)).expect("written data is read").operations > 0);
        assert!(subject.measure(&load(100)).expect("written data is read").operations > 0);
        std::fs::write(&file, before).expect("own file is readable");
        let lost = subject.measure(&load(100));
        assert!(matches!(lost, Err(Error::Corrupt(_))), "{lost:?}");
        subject.clean().expect("removal succeeds");
    }
}
