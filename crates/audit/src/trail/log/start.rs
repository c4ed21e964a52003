//! How a trail is taken up where it was left: what a start finds there, settles and tells.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::aside::{self, Aside};
use super::due::Step;
use super::found::Found;
use super::lost::{self, Lost};
use super::part::Part;
use super::{At as _, Log, LogError, Options};
use crate::chain::Chain;
use crate::frame::Kind;
use crate::record::{Act, Class, Record};
use crate::trail::files::{self, KEY, SegmentFile, segments};
use crate::trail::{Disk, Segment};

/// What was found when a trail was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// The trail ended without a closing seal: the program or the machine had died.
    pub unclosed: bool,
    /// What was no frame any more and was put aside, by this start or by one that was killed before
    /// the trail had told of it.
    pub aside: Vec<Aside>,
    /// Records that had no seal yet, by their numbers: nothing but the chain, which anybody can
    /// compute, says that they are those that were written.
    pub unsealed: Option<(u64, u64)>,
}

impl Opened {
    /// Bytes that were put aside.
    pub fn torn_len(&self) -> u64 {
        self.aside.iter().map(|aside| aside.len).sum()
    }
}

impl Log {
    /// Goes on with a trail, or begins one, whose key must be there. A trail that was left without
    /// its end is closed first. Where the disk has no room ([`Log::refused`]), what must be
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
        // A start that was killed may have renamed them, and no more: what is told must be there after the
        // next loss of power.
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
        // Of a segment that was being made: what there was of it may have been put aside by a start that
        // was killed.
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

    /// Takes up where a segment ends, which another may be before: whether it is closed. None if
    /// there is nothing of it, and it was put aside.
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
            // It was being made when the power went. If it ever held a seal, the key is too far on for what
            // lies before it, which is found next.
            let told = aside::told_in(before);
            let is_seen = asides.iter().any(|aside| aside.segment == file.number && !told.contains(&aside.name));
            // A file that is empty says no more than one that is put aside already: starts that find no room
            // would leave one each.
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
        // A seal that the key has gone past is durable. All else here a program that was killed may have
        // left in the system's memory alone: neither the key nor the next seal must go past what
        // the next loss of power takes away.
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

    /// How the trail had ended, if not as it should; and a gap of what the disk had not taken then,
    /// if there was any.
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
            // Before the record can be on the disk: where it is, it is not told again. What the trail has until
            // here may not be on the disk either, and is lost with it then.
            let gaps = lost.gaps.iter().copied().filter(|(seq, _)| *seq < resumed).collect();
            if let Err(error) = self.keep_lost(&Lost { next_seq: resumed, more: count, since_ns: lost.since_ns, gaps, told }) {
                tracing::warn!(%error, "what the disk had not taken of the audit trail may be told twice");
            }
        }
    }
}
