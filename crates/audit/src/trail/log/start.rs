//! Opens an existing trail: recovers from a crash, and reports what was found.

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

/// The state of a trail when it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// The trail had no closing seal: the program or the machine crashed.
    pub unclosed: bool,
    /// Quarantined bytes that no record names yet, from this start or from an interrupted one.
    pub aside: Vec<Aside>,
    /// Sequence numbers of the records without a seal. Only the chain protects them, and anyone can
    /// compute it.
    pub unsealed: Option<(u64, u64)>,
}

impl Opened {
    /// Returns the number of quarantined bytes.
    pub fn torn_len(&self) -> u64 {
        self.aside.iter().map(|aside| aside.len).sum()
    }
}

impl Log {
    /// Opens a trail, or starts a new one. The key must exist. A trail that was not closed is
    /// recovered and closed first. On a full disk ([`Log::refused`]), recovery stays in memory and
    /// is retried like all writes.
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
        // An interrupted start may have renamed these files without a sync, and the record must not
        // name files that a power cut removes.
        if !asides.is_empty() {
            log.take(Step::Names)?;
        }
        let mut files = segments(directory).at(directory)?;
        while let Some(file) = files.pop() {
            if let Some(closed) = log.resume(&file, files.last(), &mut asides, &mut opened)? {
                number = file.number + 1;
                if !closed {
                    opened.unclosed = true;
                    // The record precedes the seal, because the seal hides which records were
                    // unsealed.
                    log.tell(&opened, lost.as_ref(), now_ns);
                    is_told = true;
                    log.append_seal(Kind::Close, now_ns);
                    if log.try_now(Log::settle)? {
                        log.parts.clear();
                    }
                }
                // A segment whose end is not written yet is listed later.
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
        // An interrupted start may have quarantined a segment that was being created.
        opened.unclosed |= !opened.aside.is_empty();
        log.begin(number, now_ns);
        if !is_told {
            log.tell(&opened, lost.as_ref(), now_ns);
        }
        // The loss counts as reported once its record is on the disk.
        if log.try_now(Log::sync)? || !lost::is_made(&log.directory) {
            log.take(Step::Lost)?;
        }
        Ok((log, opened))
    }

    /// Resumes at the end of a segment; `before` is the previous one. Returns whether the segment
    /// is closed, or `None` if it has no header and was quarantined.
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
            // The crash came while the segment was created. If it ever held a seal, the key check
            // on the previous segment fails.
            let told = aside::told_in(before);
            let is_seen = asides.iter().any(|aside| aside.segment == file.number && !told.contains(&aside.name));
            // An empty file adds no information, and repeated starts on a full disk would leave one
            // each.
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
        // The seal was written, but the key was not replaced.
        let next = (self.key.epoch() + 1 == wanted).then(|| self.key.next());
        if next.is_some() {
            self.key = self.key.next();
        }
        if self.key.epoch() != wanted || self.key.public() != public {
            return Err(LogError::Key { key: self.key.epoch(), wanted });
        }
        // If the key has advanced past a seal, the seal is durable. Everything else may exist only
        // in the page cache of a killed process. It must be durable before the key or the next seal
        // advances.
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
            // An interrupted start may have quarantined these bytes without cutting them off.
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

    /// Appends the recovery record, and a gap record for records that were lost at the last end.
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
            // Stored before the record can reach the disk, so that the loss is not reported twice.
            // Unwritten gap records before this point would be lost as well.
            let gaps = lost.gaps.iter().copied().filter(|(seq, _)| *seq < resumed).collect();
            if let Err(error) = self.keep_lost(&Lost { next_seq: resumed, more: count, since_ns: lost.since_ns, gaps, told }) {
                tracing::warn!(%error, "what the disk had not taken of the audit trail may be told twice");
            }
        }
    }
}
