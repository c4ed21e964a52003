//! Opens a trail and recovers from a crash.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::lost_count::{self, LostCount};
use super::quarantine::{self, QuarantineFile};
use super::recovery_steps::RecoveryStep;
use super::segment_buffer::SegmentBuffer;
use super::segment_scan::SegmentScan;
use super::{Log, LogError, Options, WithPath as _};
use crate::chain::Chain;
use crate::frame::{Header, Kind};
use crate::record::{Act, Class, Record};
use crate::trail::disk::Lock;
use crate::trail::files::{self, KEY_FILE, SegmentFile, segments};
use crate::trail::{Disk, Segment};

/// What opening a trail found and repaired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// No closing seal: the program or the machine crashed.
    pub was_unclosed: bool,
    /// Quarantined bytes that no record names yet, from this start or from an interrupted one.
    pub quarantined: Vec<QuarantineFile>,
    /// Sequence numbers of the records without a seal. Only the chain protects them, and anyone can
    /// compute it.
    pub unsealed: Option<(u64, u64)>,
}

impl Recovery {
    /// Bytes in quarantine.
    pub fn torn_len(&self) -> u64 {
        self.quarantined.iter().map(|quarantined| quarantined.len).sum()
    }
}

fn lock_directories(
    disk: &dyn Disk,
    directory: &Path,
    key: Option<&Path>,
) -> Result<Vec<Lock>, LogError> {
    let of_key = key
        .and_then(Path::parent)
        .filter(|parent| !parent.as_os_str().is_empty() && *parent != directory);
    let lock = |path: &Path| match disk.lock(path) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(LogError::Busy { path: path.to_owned() })
        }
        other => other.with_path(path),
    };
    std::iter::once(directory).chain(of_key).map(lock).collect()
}

impl Log {
    /// The key must exist. Recovers and closes an unclosed trail first.
    pub fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        options: Options,
        now_ns: u64,
    ) -> Result<(Log, Recovery), LogError> {
        let key_path = options.key.clone().unwrap_or_else(|| directory.join(KEY_FILE));
        let locks = lock_directories(&*disk, directory, options.key.as_deref())?;
        let (key, new_key) = files::recover_key(&*disk, &key_path).with_path(&key_path)?;
        let mut recovery = Recovery::default();
        let mut log = Log {
            disk,
            directory: directory.to_owned(),
            key_path,
            options,
            key,
            buffers: VecDeque::new(),
            chain: Chain::START,
            next_seq: 1,
            pending_seal: None,
            closed: Vec::new(),
            recovery_steps: VecDeque::new(),
            recovery_error: None,
            reported_gap: None,
            _locks: locks,
        };
        if let Some(key) = new_key {
            log.run_or_queue(RecoveryStep::ReplaceKey(key))?;
        }
        let lost = lost_count::read(&log.directory);
        let mut quarantined_files = quarantine::list(directory).with_path(directory)?;
        // An interrupted start may have renamed these files without a sync.
        if !quarantined_files.is_empty() {
            log.run_or_queue(RecoveryStep::SyncDirectory)?;
        }
        let (number, is_reported) =
            log.resume_last(&mut quarantined_files, &mut recovery, lost.as_ref(), now_ns)?;
        if number == 1 && log.key.epoch() != 0 {
            return Err(LogError::Key { key: log.key.epoch(), required: 0 });
        }
        if number == 1 {
            recovery.quarantined = quarantined_files;
        }
        // An interrupted start may have quarantined a new segment.
        recovery.was_unclosed |= !recovery.quarantined.is_empty();
        log.start_segment(number, now_ns);
        if !is_reported {
            log.append_recovery_records(&recovery, lost.as_ref(), now_ns);
        }
        // The loss counts as reported once its record is durable.
        if log.run_unless_full(Log::sync)? || !lost_count::is_complete(&log.directory) {
            log.run_or_queue(RecoveryStep::ResetLostCount)?;
        }
        Ok((log, recovery))
    }

    fn resume_last(
        &mut self,
        quarantined_files: &mut Vec<QuarantineFile>,
        recovery: &mut Recovery,
        lost: Option<&LostCount>,
        now_ns: u64,
    ) -> Result<(u64, bool), LogError> {
        let mut files = segments(&self.directory).with_path(&self.directory)?;
        while let Some(file) = files.pop() {
            let Some(closed) = self.resume(&file, files.last(), quarantined_files, recovery)?
            else {
                continue;
            };
            let number = file.number + 1;
            if !closed {
                recovery.was_unclosed = true;
                self.append_recovery_records(recovery, lost, now_ns);
                self.append_seal(Kind::Close, now_ns);
                if self.run_unless_full(Log::sync)? {
                    self.buffers.clear();
                }
            }
            let last = self.buffers.is_empty().then_some(file);
            self.closed =
                files.into_iter().chain(last).filter(|file| !file.is_compressed).collect();
            return Ok((number, !closed));
        }
        Ok((1, false))
    }

    fn resume(
        &mut self,
        file: &SegmentFile,
        previous: Option<&SegmentFile>,
        quarantined_files: &mut Vec<QuarantineFile>,
        recovery: &mut Recovery,
    ) -> Result<Option<bool>, LogError> {
        let bytes = Segment::open(file).and_then(|segment| segment.load()).with_path(&file.path)?;
        let scan = SegmentScan::of(&bytes);
        let Some(header) = &scan.header else {
            self.quarantine_headless(file, bytes, previous, quarantined_files)?;
            recovery.was_unclosed = true;
            return Ok(None);
        };
        if header.trail != self.key.trail() {
            return Err(LogError::Damaged {
                path: file.path.clone(),
                reason: "the segment and the key belong to different trails",
            });
        }
        self.resume_key(file, &scan, header, &bytes)?;
        (self.chain, self.next_seq) = (scan.chain, scan.next_seq);
        let sealed = scan.seal.as_ref().map_or(header.first_seq, |seal| seal.next_seq);
        if !scan.is_closed && scan.next_seq > sealed {
            recovery.unsealed = Some((sealed, scan.next_seq - 1));
        }
        recovery.quarantined =
            quarantine::unreported(quarantined_files, file.number, &scan, previous);
        let torn = &bytes[scan.len..];
        if !torn.is_empty() {
            self.quarantine_torn(file, &scan, torn, quarantined_files, recovery)?;
        }
        let is_closed = scan.is_closed;
        if !is_closed {
            let begun_ns = header.time_ns;
            self.append_to(file, scan, begun_ns)?;
        }
        Ok(Some(is_closed))
    }

    fn resume_key(
        &mut self,
        file: &SegmentFile,
        scan: &SegmentScan,
        header: &Header,
        bytes: &[u8],
    ) -> Result<(), LogError> {
        let (required, public) = scan
            .seal
            .as_ref()
            .map_or((header.epoch, header.public), |seal| (seal.epoch + 1, seal.next));
        let next = (self.key.epoch() + 1 == required).then(|| self.key.next());
        if next.is_some() {
            self.key = self.key.next();
        }
        if self.key.epoch() != required || self.key.public() != public {
            return Err(LogError::Key { key: self.key.epoch(), required });
        }
        // A seal is durable if the key advanced past it. The rest may exist only in the page cache.
        let from = if next.is_some() { 0 } else { scan.sealed_len };
        if !file.is_compressed && from < scan.len {
            self.run_or_queue(RecoveryStep::Rewrite {
                segment: file.path.clone(),
                bytes: bytes[from..scan.len].to_vec(),
                from: from as u64,
            })?;
        }
        if let Some(next) = next {
            self.run_or_queue(RecoveryStep::ReplaceKey(next))?;
        }
        if let Some(seal) = &scan.seal {
            self.run_or_queue(RecoveryStep::WriteCheckpoint(seal.clone()))?;
        }
        Ok(())
    }

    fn append_to(
        &mut self,
        file: &SegmentFile,
        scan: SegmentScan,
        begun_ns: u64,
    ) -> Result<(), LogError> {
        let open = self.disk.open(&file.path).with_path(&file.path)?;
        self.buffers.push_back(SegmentBuffer {
            number: file.number,
            file: Some(open),
            is_name_unsynced: false,
            is_dirty: true,
            pending_offset: scan.len as u64,
            pending: Vec::new(),
            written: 0,
            tree: scan.tree,
            begun_ns,
            unsealed_ns: None,
            is_closed: false,
        });
        Ok(())
    }

    fn quarantine_headless(
        &mut self,
        file: &SegmentFile,
        bytes: Vec<u8>,
        previous: Option<&SegmentFile>,
        quarantined_files: &mut Vec<QuarantineFile>,
    ) -> Result<(), LogError> {
        if file.is_compressed {
            return Err(LogError::Damaged {
                path: file.path.clone(),
                reason: "not a segment of an audit trail",
            });
        }
        let reported = quarantine::names_in_segment(previous);
        let is_known = quarantined_files.iter().any(|quarantined| {
            quarantined.segment == file.number && !reported.contains(&quarantined.name)
        });
        if bytes.is_empty() && is_known {
            self.run_or_queue(RecoveryStep::RemoveEmpty(file.path.clone()))?;
        } else {
            let name =
                quarantine::add_file(quarantined_files, &reported, file.number, bytes.len() as u64);
            if !bytes.is_empty() {
                self.run_or_queue(RecoveryStep::Rewrite {
                    segment: file.path.clone(),
                    bytes,
                    from: 0,
                })?;
            }
            self.run_or_queue(RecoveryStep::Quarantine {
                segment: file.path.clone(),
                quarantined: self.directory.join(name),
            })?;
        }
        Ok(())
    }

    fn quarantine_torn(
        &mut self,
        file: &SegmentFile,
        scan: &SegmentScan,
        torn: &[u8],
        quarantined_files: &mut Vec<QuarantineFile>,
        recovery: &mut Recovery,
    ) -> Result<(), LogError> {
        if scan.is_closed || file.is_compressed {
            return Err(LogError::Damaged {
                path: file.path.clone(),
                reason: "bytes follow the closing seal",
            });
        }
        // An interrupted start may have quarantined these bytes without truncating the segment.
        let name =
            quarantine::find_with_bytes(&recovery.quarantined, &self.directory, file.number, torn)
                .unwrap_or_else(|| {
                    let name = quarantine::add_file(
                        quarantined_files,
                        &scan.reported_names,
                        file.number,
                        torn.len() as u64,
                    );
                    recovery.quarantined.extend(quarantined_files.last().cloned());
                    name
                });
        let quarantined = self.directory.join(name);
        self.run_or_queue(RecoveryStep::CutTorn {
            segment: file.path.clone(),
            quarantined,
            bytes: torn.to_vec(),
            len: scan.len as u64,
        })
    }

    fn append_recovery_records(
        &mut self,
        recovery: &Recovery,
        lost: Option<&LostCount>,
        now_ns: u64,
    ) {
        let resumed = self.next_seq;
        if recovery.was_unclosed {
            let unsealed = match recovery.unsealed {
                Some((first, last)) => format!("records {first} to {last} had no seal"),
                None => "no record lacked a seal".into(),
            };
            for detail in quarantine::recovery_details(
                &format!("the trail had no end; {unsealed}; "),
                &recovery.quarantined,
            ) {
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
            let reported = self.append_record(&Record {
                time_ns: now_ns,
                class: Class::Gap,
                gap: Some(count),
                open_ns: Some(now_ns.saturating_sub(lost.since_ns)),
                detail: b"the disk refused them at the last stop",
                ..Record::default()
            });
            self.reported_gap = Some((reported, count, lost.since_ns));
            // Stored before the record can reach the disk, so that the loss is reported once.
            let gaps = lost.gaps.iter().copied().filter(|(seq, _)| *seq < resumed).collect();
            if let Err(error) = self.store_lost_count(&LostCount {
                next_seq: resumed,
                unnumbered: count,
                since_ns: lost.since_ns,
                gaps,
                report_seq: reported,
            }) {
                tracing::warn!(%error, "could not store that lost audit records were reported; they may be reported twice");
            }
        }
    }
}
