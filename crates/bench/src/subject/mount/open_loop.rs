//! Load on a mounted directory that is due at a time: whoever is free takes the next call, and what
//! waits is late. Each write is another than the one before, so that a read tells whether it is
//! there.

use std::fs::File;
use std::io::{self, Write as _};
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{BLOCK_LEN, Did, MountSubject};
use crate::case::{Content, Load, Order};
use crate::content::{mix, shuffled};
use crate::page_versions::{self, Block, PageVersions, in_flight_max};
use crate::{Error, Sample, cpu};

impl MountSubject {
    /// The file that is read and written.
    pub(super) fn lay_out(&mut self, len: u64) -> Result<(), Error> {
        let path = self.own()?.join("due");
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

    /// The load. Each seed has another order of blocks.
    pub(super) fn due(&self, load: &Load, rate: f64, seed: u64) -> Result<Sample, Error> {
        let path = self.own()?.join("due");
        if !self.direct {
            self.make_ready([path.as_path()])?;
        }
        let file = File::options().read(true).write(true).custom_flags(self.flags()).open(&path).map_err(Error::file(&path))?;
        let seed = mix(seed);
        let (blocks, block_len) = (page_versions::blocks(load), u64::from(load.block));
        let depth = in_flight_max(load);
        let (start, next, end) = (Instant::now(), AtomicU64::new(0), Duration::from_secs_f64(load.seconds));
        let (unsent, last) = (AtomicU64::new(0), Mutex::new(Vec::new()));
        let mut sample = self.threads(depth, |latency, _| {
            // Half of the system's slack would be told as the server's latency; a thread that can't have less
            // is late by it.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
            let mut memory = aligned(load.block);
            let data = memory.data();
            let mut did = Did::default();
            let mut wrote = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let due = Duration::from_secs_f64(at as f64 / rate);
                if due >= end || self.stop.is_set() {
                    last.lock().unwrap_or_else(std::sync::PoisonError::into_inner).append(&mut wrote);
                    return Ok(did);
                }
                if start.elapsed() >= end {
                    latency.record((end - due).as_nanos() as u64);
                    unsent.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                did.waited_s += wait(start + due, spun(rate));
                let place = if load.order == Order::Random { shuffled(at, blocks, seed) } else { at % blocks };
                let writes = mix(at ^ seed.rotate_left(32)) % 100 >= u64::from(load.read_percent);
                let number = if load.read_percent == 100 {
                    self.check(&file, data, PageVersions::share(place, block_len)).map(|()| place)?
                } else {
                    self.one(&file, data, (place, block_len, blocks), writes)?
                };
                latency.record((start.elapsed().saturating_sub(due)).as_nanos() as u64);
                did.bytes += block_len;
                if writes && wrote.len() < SAMPLE {
                    wrote.push(number);
                }
            }
        })?;
        // It lasts as long as it was to, also if the last call came back early.
        sample.seconds = sample.seconds.max(load.seconds);
        sample.depth = (depth < load.depth).then_some(depth);
        sample.unsent = unsent.load(Ordering::Relaxed);
        sample.operations -= sample.unsent;
        if load.read_percent == 0 {
            // Else a file system that loses all would be the fastest.
            let mut memory = aligned(load.block);
            for number in last.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
                self.check(&file, memory.data(), PageVersions::share(number, block_len)).map_err(|error| match error.kind() {
                    io::ErrorKind::InvalidData => Error::Corrupt(path.display().to_string()),
                    _ => Error::file(&path)(error),
                })?;
            }
        }
        Ok(sample)
    }

    /// A read of a block.
    fn check(&self, file: &File, data: &mut [u8], block: Block) -> io::Result<()> {
        file.read_exact_at(data, block.offset()).and_then(|()| match self.written.holds(&self.pages, FILE, block, data) {
            true => Ok(()),
            false => Err(io::ErrorKind::InvalidData.into()),
        })
    }

    /// A read or a write of a block of that length, of so many; of which it was at last.
    fn one(&self, file: &File, data: &mut [u8], (number, len, blocks): (u64, u64, u64), writes: bool) -> io::Result<u64> {
        let (number, block) = self.written.take(number, len, blocks);
        let outcome = if writes {
            self.written.fill(&self.pages, FILE, block, data);
            file.write_all_at(data, block.offset())
        } else {
            self.check(file, data, block)
        };
        match &outcome {
            Ok(()) if writes => self.written.wrote(block),
            Err(_) if writes => self.written.doubt(block),
            _ => {}
        }
        self.written.give_back(block);
        outcome.map(|()| number)
    }
}

/// Memory of whole pages, as O_DIRECT wants it.
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

/// Waits until then, the last of it awake: who sleeps is woken late, and that would be told as
/// latency. CPU seconds that it took.
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

/// How long is waited awake: of all calls together no more than a tenth of a CPU, which the server
/// may need.
fn spun(rate: f64) -> Duration {
    Duration::from_secs_f64((0.1 / rate).min(AWAKE_S))
}

/// The file's number.
const FILE: u64 = u64::MAX;
/// What a thread of an idle machine is woken late by.
const AWAKE_S: f64 = 100e-6;
/// Blocks of each thread that are read back after a load that only writes.
const SAMPLE: usize = 64;

#[cfg(test)]
mod tests {
    use super::super::DSYNC;
    use super::super::tests::begin;
    use super::*;
    use crate::{Case, Subject};

    #[test]
    fn a_load_that_is_due_at_a_time_waits_for_what_it_writes_where_the_cache_is_in_the_way() {
        let at = tempfile::tempdir().expect("a directory");
        for (warm, flags) in [(false, DSYNC), (true, 0)] {
            let mut subject = begin(at.path(), warm);
            // As of a file system without O_DIRECT.
            subject.direct = false;
            assert_eq!(subject.flags(), flags);
            let (order, read_percent) = (Order::Random, 50);
            let load = |rate| Case::Load(Load { order, block: 4096, read_percent, depth: 2, rate, seconds: 0.2, file_len: 1 << 20 });
            // fio's say how far the steps of the others go: they wait likewise.
            match subject.unsupported(&load(None)) {
                Some(why) => println!("skipped in part: {why}"),
                None => {
                    subject.prepare(&load(None)).expect("a file");
                    assert!(subject.measure(&load(None)).expect("fio takes it").operations > 0);
                }
            }
            let load = load(Some(100.0));
            subject.prepare(&load).expect("a file");
            let sample = subject.measure(&load).expect("what was written is read");
            assert_eq!(sample.operations + sample.unsent, 20);
            assert_eq!(sample.latency.count(), 20);
            assert!(sample.seconds >= 0.2, "{}", sample.seconds);
            assert_eq!(subject.info().details.iter().any(|detail| detail.contains("O_DSYNC")), !warm);
            subject.clean().expect("it is removed");
        }
    }

    #[test]
    fn nobody_begins_early_and_waiting_awake_takes_a_tenth_of_a_cpu_at_most() {
        for ms in [0, 1, 5] {
            let until = Instant::now() + Duration::from_millis(ms);
            let took = wait(until, Duration::from_micros(100));
            assert!(Instant::now() >= until && took >= 0.0);
        }
        assert_eq!(spun(10.0), Duration::from_micros(100));
        assert!((spun(100_000.0).as_secs_f64() * 100_000.0 - 0.1).abs() < 1e-3);
    }

    #[test]
    fn threads_of_a_load_are_woken_without_slack() {
        let slack = std::thread::spawn(|| {
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
            rustix::thread::current_timer_slack()
        });
        assert_eq!(slack.join().expect("it ends").expect("the system tells"), 1);
    }

    #[test]
    fn writes_that_are_lost_are_found_out() {
        let at = tempfile::tempdir().expect("a directory");
        let mut subject = begin(at.path(), true);
        let load = |read_percent| {
            Case::Load(Load {
                order: Order::Random,
                block: 8192,
                read_percent,
                depth: 2,
                rate: Some(400.0),
                seconds: 0.2,
                file_len: 1 << 18,
            })
        };
        subject.prepare(&load(0)).expect("a file");
        let file = subject.own().expect("it is there").join("due");
        let before = std::fs::read(&file).expect("it is there");
        assert!(subject.measure(&load(0)).expect("what was written is read").operations > 0);
        assert!(subject.measure(&load(100)).expect("what was written is read").operations > 0);
        std::fs::write(&file, before).expect("our own file");
        let lost = subject.measure(&load(100));
        assert!(matches!(lost, Err(Error::Corrupt(_))), "{lost:?}");
        subject.clean().expect("it is removed");
    }
}
