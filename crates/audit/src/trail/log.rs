//! The writing end of a trail: records become frames, frames become segments, segments are sealed. One thread's; never reads the clock, starts no thread, and decides
//! nothing about what to do when the disk refuses: what was appended stays here and is written at the next try, at the same place.

mod appending;
mod aside;
mod due;
mod found;
mod lost;
mod part;

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::disk::Lock;
use super::files::{self, CHECKPOINT, KEY, SegmentFile, segments};
use super::{Disk, Segment};
use crate::chain::Chain;
use crate::frame::{self, Header, Kind, MAGIC};
use crate::keys::Ratchet;
use crate::merkle::Frontier;
use crate::record::{Act, Class, Record};
use crate::seal::Seal;
pub use appending::Appending;
pub use aside::Aside;
use due::Step;
use found::Found;
pub use lost::{LOST, Lost};
use part::Part;

/// When segments end and seals are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// A segment of so many bytes is closed.
    pub len_max: u64,
    /// A segment of this age is closed, nanoseconds.
    pub age_ns_max: u64,
    /// Records wait at most so long for a seal, nanoseconds.
    pub seal_ns_max: u64,
}

impl Default for Rotation {
    fn default() -> Self {
        Rotation { len_max: 64 << 20, age_ns_max: 3600 * 1_000_000_000, seal_ns_max: 10 * 1_000_000_000 }
    }
}

/// How a trail is written.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// When segments end.
    pub rotation: Rotation,
    /// The boot of this machine.
    pub boot: [u8; 16],
    /// The key's file, if not in the trail's directory.
    pub key: Option<PathBuf>,
}

/// Why a trail can't be gone on with.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The disk's.
    #[error("{}: {source}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The key isn't the one that the trail's last seal names: the trail was cut, or the key changed.
    #[error(
        "the key is number {key}, and the trail's end wants number {wanted}: the trail was cut, or this is not its key; ask `vouch audit verify`, then begin another trail"
    )]
    Key {
        /// Epoch of the key.
        key: u64,
        /// Epoch that the trail wants.
        wanted: u64,
    },
    /// Somebody writes it.
    #[error("{}: another program writes this trail; one alone may: stop it, or name another directory", path.display())]
    Busy {
        /// Where.
        path: PathBuf,
    },
    /// What should be a segment isn't.
    #[error("{}: {what}", path.display())]
    Damaged {
        /// Where.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
}

/// What was found when a trail was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// The trail ended without a closing seal: the program or the machine had died.
    pub unclosed: bool,
    /// What was no frame any more and was put aside, by this start or by one that was killed before the trail had told of it.
    pub aside: Vec<Aside>,
    /// Records that had no seal yet, by their numbers: nothing but the chain, which anybody can compute, says that they are those that were written.
    pub unsealed: Option<(u64, u64)>,
}

impl Opened {
    /// Bytes that were put aside.
    pub fn torn_len(&self) -> u64 {
        self.aside.iter().map(|aside| aside.len).sum()
    }
}

/// A trail that is being written.
pub struct Log {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    key_path: PathBuf,
    options: Options,
    key: Ratchet,
    /// Those that are not durable yet, and last the one that is being written.
    parts: VecDeque<Part>,
    chain: Chain,
    next_seq: u64,
    /// A seal that is not known to be durable: the key that signed it is still there.
    unsettled: Option<Seal>,
    closed: Vec<SegmentFile>,
    /// What the start has left undone, and why: the disk had no room.
    due: VecDeque<Step>,
    refused: Option<LogError>,
    /// What the start has told as lost before: the number of the record, how many it stands for, and since when they are.
    told: Option<(u64, u64, u64)>,
    /// Others are kept from the directory, and from the key where it lies elsewhere, as long as this lives.
    _locks: Vec<Lock>,
}

impl Log {
    /// Goes on with a trail, or begins one, whose key must be there. A trail that was left without its end is closed first. Where the disk has no room ([`Log::refused`]), what must be
    /// written for that is kept in memory and written at the next try, as all that is appended.
    pub fn open(disk: Arc<dyn Disk>, directory: &Path, options: Options, now_ns: u64) -> Result<(Log, Opened), LogError> {
        let key_path = options.key.clone().unwrap_or_else(|| directory.join(KEY));
        let elsewhere = options.key.iter().filter_map(|key| key.parent());
        let locked = std::iter::once(directory).chain(elsewhere.filter(|parent| !parent.as_os_str().is_empty() && *parent != directory));
        let locks = locked
            .map(|path| match disk.lock(path) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(LogError::Busy { path: path.to_owned() }),
                other => other.at(path),
            })
            .collect::<Result<Vec<_>, _>>()?;
        let (key, beside) = files::settle_key(&*disk, &key_path).at(&key_path)?;
        let mut opened = Opened::default();
        let mut log = Log {
            disk,
            directory: directory.to_owned(),
            key_path,
            options,
            key,
            parts: VecDeque::new(),
            chain: Chain::START,
            next_seq: 1,
            unsettled: None,
            closed: Vec::new(),
            due: VecDeque::new(),
            refused: None,
            told: None,
            _locks: locks,
        };
        if let Some(key) = beside {
            log.take(Step::Key(key))?;
        }
        let (mut number, mut is_told) = (1, false);
        let lost = lost::read(&log.directory);
        let mut asides = aside::list(directory).at(directory)?;
        // A start that was killed may have renamed them, and no more: what is told must be there after the next loss of power.
        if !asides.is_empty() {
            log.take(Step::Names)?;
        }
        let mut files = segments(directory).at(directory)?;
        while let Some(file) = files.pop() {
            if let Some(closed) = log.resume(&file, files.last(), &mut asides, &mut opened)? {
                number = file.number + 1;
                if !closed {
                    opened.unclosed = true;
                    // Before the seal: once that is on the disk, what it had not sealed can't be seen any more.
                    log.tell(&opened, lost.as_ref(), now_ns);
                    is_told = true;
                    log.append_seal(Kind::Close, now_ns);
                    if log.try_now(Log::settle)? {
                        log.parts.clear();
                    }
                }
                // One whose end is not written yet is closed when it is.
                let last = log.parts.is_empty().then_some(file);
                log.closed = files.into_iter().chain(last).filter(|file| !file.packed).collect();
                break;
            }
        }
        if number == 1 && log.key.epoch() != 0 {
            return Err(LogError::Key { key: log.key.epoch(), wanted: 0 });
        }
        if number == 1 {
            opened.aside = asides;
        }
        // Of a segment that was being made: what there was of it may have been put aside by a start that was killed.
        opened.unclosed |= !opened.aside.is_empty();
        log.begin(number, now_ns);
        if !is_told {
            log.tell(&opened, lost.as_ref(), now_ns);
        }
        // What was lost before counts as told once the disk has the record of it.
        if log.try_now(Log::sync)? || !lost::is_made(&log.directory) {
            log.take(Step::Lost)?;
        }
        Ok((log, opened))
    }

    /// Takes up where a segment ends, which another may be before: whether it is closed. None if there is nothing of it, and it was put aside.
    fn resume(
        &mut self,
        file: &SegmentFile,
        before: Option<&SegmentFile>,
        asides: &mut Vec<Aside>,
        opened: &mut Opened,
    ) -> Result<Option<bool>, LogError> {
        let bytes = Segment::open(file).and_then(|segment| segment.load()).at(&file.path)?;
        let found = Found::of(&bytes);
        let Some(header) = &found.header else {
            if file.packed {
                return Err(LogError::Damaged { path: file.path.clone(), what: "is no segment of an audit trail" });
            }
            // It was being made when the power went. If it ever held a seal, the key is too far on for what lies before it, which is found next.
            let told = aside::told_in(before);
            let is_seen = asides.iter().any(|aside| aside.segment == file.number && !told.contains(&aside.name));
            // A file that is empty says no more than one that is put aside already: starts that find no room would leave one each.
            if bytes.is_empty() && is_seen {
                self.take(Step::Remove(file.path.clone()))?;
            } else {
                let name = aside::add(asides, &told, file.number, bytes.len() as u64);
                if !bytes.is_empty() {
                    self.take(Step::Again { segment: file.path.clone(), bytes, from: 0 })?;
                }
                self.take(Step::Aside { segment: file.path.clone(), aside: self.directory.join(name) })?;
            }
            opened.unclosed = true;
            return Ok(None);
        };
        if header.trail != self.key.trail() {
            return Err(LogError::Damaged { path: file.path.clone(), what: "belongs to another trail than the key" });
        }
        let (wanted, public) = found.seal.as_ref().map_or((header.epoch, header.public), |seal| (seal.epoch + 1, seal.next));
        // The seal was written, the key's step was not made.
        let next = (self.key.epoch() + 1 == wanted).then(|| self.key.next());
        if next.is_some() {
            self.key = self.key.next();
        }
        if self.key.epoch() != wanted || self.key.public() != public {
            return Err(LogError::Key { key: self.key.epoch(), wanted });
        }
        // A seal that the key has gone past is durable. All else here a program that was killed may have left in the system's memory alone:
        // neither the key nor the next seal must go past what the next loss of power takes away.
        let from = if next.is_some() { 0 } else { found.sealed_len };
        if !file.packed && from < found.len {
            self.take(Step::Again { segment: file.path.clone(), bytes: bytes[from..found.len].to_vec(), from: from as u64 })?;
        }
        if let Some(next) = next {
            self.take(Step::Key(next))?;
        }
        if let Some(seal) = &found.seal {
            self.take(Step::Checkpoint(seal.clone()))?;
        }
        (self.chain, self.next_seq) = (found.chain, found.next_seq);
        let sealed = found.seal.as_ref().map_or(header.first_seq, |seal| seal.next_seq);
        if !found.is_closed && found.next_seq > sealed {
            opened.unsealed = Some((sealed, found.next_seq - 1));
        }
        opened.aside = aside::untold(asides, file.number, &found, before);
        let torn = &bytes[found.len..];
        if !torn.is_empty() {
            if found.is_closed || file.packed {
                return Err(LogError::Damaged { path: file.path.clone(), what: "goes on after its end" });
            }
            // A start that was killed may have put them aside, and not cut them off.
            let name = aside::with_bytes(&opened.aside, &self.directory, file.number, torn).unwrap_or_else(|| {
                let name = aside::add(asides, &found.told, file.number, torn.len() as u64);
                opened.aside.extend(asides.last().cloned());
                name
            });
            let aside = self.directory.join(name);
            self.take(Step::Cut { segment: file.path.clone(), aside, bytes: torn.to_vec(), len: found.len as u64 })?;
        }
        if !found.is_closed {
            let open = self.disk.open(&file.path).at(&file.path)?;
            self.parts.push_back(Part {
                number: file.number,
                file: Some(open),
                is_unnamed: false,
                is_dirty: true,
                base: found.len as u64,
                pending: Vec::new(),
                written: 0,
                tree: found.tree,
                begun_ns: header.time_ns,
                unsealed_ns: None,
                is_closed: false,
            });
        }
        Ok(Some(found.is_closed))
    }

    fn begin(&mut self, number: u64, now_ns: u64) {
        // While a seal is unsettled, the key is still the one that signed it.
        let (epoch, public) = match &self.unsettled {
            Some(seal) => (seal.epoch + 1, seal.next),
            None => (self.key.epoch(), self.key.public()),
        };
        let header = Header {
            segment: number,
            first_seq: self.next_seq,
            time_ns: now_ns,
            boot: self.options.boot,
            trail: self.key.trail(),
            previous: self.chain.0,
            epoch,
            public,
        };
        let mut part = Part {
            number,
            file: None,
            is_unnamed: true,
            is_dirty: false,
            base: 0,
            pending: MAGIC.to_vec(),
            written: 0,
            tree: Frontier::default(),
            begun_ns: now_ns,
            unsealed_ns: None,
            is_closed: false,
        };
        part.tree.push(frame::append(&mut part.pending, Kind::Header, &header.encode(), &mut self.chain));
        self.parts.push_back(part);
    }

    /// Appends an encoded record, in memory, and gives it its sequence number. One that is too long for a frame can't be made by [`Record::encode`].
    pub fn append(&mut self, body: &mut [u8], now_ns: u64) -> u64 {
        self.appending().append(body, now_ns)
    }

    /// Encodes and appends a record.
    pub fn append_record(&mut self, record: &Record<'_>) -> u64 {
        let mut body = Vec::new();
        record.encode(&mut body);
        self.append(&mut body, record.time_ns)
    }

    /// How the trail had ended, if not as it should; and a gap of what the disk had not taken then, if there was any.
    fn tell(&mut self, opened: &Opened, lost: Option<&Lost>, now_ns: u64) {
        let resumed = self.next_seq;
        if opened.unclosed {
            let unsealed = match opened.unsealed {
                Some((first, last)) => format!("records {first} to {last} had no seal"),
                None => "no record lacked a seal".into(),
            };
            for detail in aside::tell(&format!("the trail had no end; {unsealed}; "), &opened.aside) {
                self.append_record(&Record {
                    time_ns: now_ns,
                    class: Class::Administrative,
                    operation: Act::Recovered as u16,
                    detail: detail.as_bytes(),
                    ..Record::default()
                });
            }
        }
        let Some(lost) = lost else { return };
        let count = lost.count(resumed);
        if count > 0 {
            let told = self.append_record(&Record {
                time_ns: now_ns,
                class: Class::Gap,
                gap: Some(count),
                open_ns: Some(now_ns.saturating_sub(lost.since_ns)),
                detail: b"the disk had not taken them when the trail ended the last time",
                ..Record::default()
            });
            self.told = Some((told, count, lost.since_ns));
            // Before the record can be on the disk: where it is, it is not told again. What the trail has until here may not be on the disk
            // either, and is lost with it then.
            let gaps = lost.gaps.iter().copied().filter(|(seq, _)| *seq < resumed).collect();
            if let Err(error) = self.keep_lost(&Lost { next_seq: resumed, more: count, since_ns: lost.since_ns, gaps, told }) {
                tracing::warn!(%error, "what the disk had not taken of the audit trail may be told twice");
            }
        }
    }

    /// Keeps for the next start what the disk has not taken, in a place that takes no room.
    pub fn keep_lost(&self, lost: &Lost) -> io::Result<()> {
        lost::keep(&*self.disk, &self.directory, lost)
    }

    /// The trail's directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Sequence number that the next record gets.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Bytes that the system has not taken yet.
    pub fn pending_len(&self) -> usize {
        self.parts.iter().map(|part| part.pending.len() - part.written).sum()
    }

    /// Bytes that are not known to be durable, and are kept in memory for as long.
    pub fn unsynced_len(&self) -> usize {
        self.parts.iter().map(|part| part.pending.len()).sum()
    }

    /// Segments that were closed and lie uncompressed, to be taken once.
    pub fn take_closed(&mut self) -> Vec<SegmentFile> {
        std::mem::take(&mut self.closed)
    }

    /// Hands all that was appended to the system: it outlives this process, not a power cut. It stays in memory until a sync, which each
    /// seal is, since a system that fails to sync may have forgotten it. After an error it can be tried again.
    pub fn write(&mut self) -> Result<(), LogError> {
        // Nothing of a segment may be on the disk before the end of the one before is durable: its header tells that the key may go on.
        if self.parts.len() > 1 {
            return self.sync();
        }
        self.catch_up()?;
        for part in &mut self.parts {
            part.write(&*self.disk, &self.directory)?;
        }
        Ok(())
    }

    /// Makes durable all that was appended. After an error it can be tried again: everything not known to be durable is written anew, since a system that failed to sync may
    /// have forgotten it.
    pub fn sync(&mut self) -> Result<(), LogError> {
        self.catch_up()?;
        for part in &mut self.parts {
            part.sync(&*self.disk, &self.directory)?;
        }
        self.settle_synced()
    }

    /// What is due by now: a seal, the next segment. Cheap when nothing is.
    pub fn maintain(&mut self, now_ns: u64) -> Result<(), LogError> {
        if self.unsettled.is_some() {
            self.settle()?;
        }
        let rotation = self.options.rotation;
        let part = self.parts.back().expect("one segment is always open");
        // A clock that was set back says nothing of how long ago it was: due.
        let due = |since: u64, max: u64| now_ns.checked_sub(since).is_none_or(|waited| waited >= max);
        let has_records = part.tree.count() > 1;
        if part.len() >= rotation.len_max || (has_records && due(part.begun_ns, rotation.age_ns_max)) {
            return self.rotate(now_ns);
        }
        if part.unsealed_ns.is_some_and(|since| due(since, rotation.seal_ns_max)) {
            self.append_seal(Kind::Checkpoint, now_ns);
            return self.settle();
        }
        Ok(())
    }

    /// Closes the segment and begins the next.
    pub fn rotate(&mut self, now_ns: u64) -> Result<(), LogError> {
        if self.unsettled.is_some() {
            self.settle()?;
        }
        let number = self.append_seal(Kind::Close, now_ns);
        self.begin(number + 1, now_ns);
        self.settle()
    }

    /// Ends the trail for now: all is durable and sealed.
    pub fn close(mut self, now_ns: u64) -> Result<(), LogError> {
        if self.unsettled.is_some() {
            self.settle()?;
        }
        self.append_seal(Kind::Close, now_ns);
        self.settle()
    }

    fn append_seal(&mut self, kind: Kind, now_ns: u64) -> u64 {
        assert!(self.unsettled.is_none(), "a key signs once");
        let part = self.parts.back_mut().expect("one segment is always open");
        let mut seal = Seal {
            trail: [0; 16],
            segment: part.number,
            epoch: 0,
            next_seq: self.next_seq,
            leaves: part.tree.count(),
            time_ns: now_ns,
            chain: self.chain.0,
            root: part.tree.root(),
            public: [0; 32],
            next: [0; 32],
            signature: [0; 64],
        };
        self.key.seal(&mut seal);
        frame::append(&mut part.pending, kind, &seal.encode(), &mut self.chain);
        part.unsealed_ns = None;
        part.is_closed = kind == Kind::Close;
        self.unsettled = Some(seal);
        part.number
    }

    fn settle(&mut self) -> Result<(), LogError> {
        self.sync()
    }

    /// Once a seal is durable, its key is destroyed; then the segments that are closed and durable are done with.
    fn settle_synced(&mut self) -> Result<(), LogError> {
        if let Some(seal) = &self.unsettled {
            let next = self.key.next();
            files::replace_key(&*self.disk, &self.key_path, &next).at(&self.key_path)?;
            self.key = next;
            let seal = seal.clone();
            self.unsettled = None;
            self.write_checkpoint(&seal)?;
        }
        while self.parts.len() > 1 && self.parts[0].is_closed {
            let part = self.parts.pop_front().expect("there are two");
            self.closed.push(SegmentFile::open(&self.directory, part.number));
        }
        Ok(())
    }

    fn write_checkpoint(&self, seal: &Seal) -> Result<(), LogError> {
        let path = self.directory.join(CHECKPOINT);
        files::replace_shared(&*self.disk, &path, &seal.encode()).at(&path)
    }
}

trait At<T> {
    fn at(self, path: &Path) -> Result<T, LogError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, path: &Path) -> Result<T, LogError> {
        self.map_err(|source| LogError::Io { path: path.to_owned(), source })
    }
}
