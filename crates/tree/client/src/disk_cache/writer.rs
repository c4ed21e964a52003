use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::oneshot;
use vouch_tree::BlockHandle;

use super::segment::{Disk, RECORD_HEAD_LEN, Span, encode_record};
use super::segment_index::{OpenSegment, SegmentIndex};

const PAUSE: Duration = Duration::from_secs(30);

/// More than a usual batch: only the first one of a segment is longer.
const CAPACITY_MAX: usize = 4 << 20;

pub(crate) enum WriteCommand {
    Keep { handle: BlockHandle, stored: Bytes },
    Flush(oneshot::Sender<()>),
}

#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    records: Vec<(BlockHandle, Span)>,
}

impl Batch {
    fn add(&mut self, handle: &BlockHandle, frame: &[u8]) {
        let offset = (self.bytes.len() + RECORD_HEAD_LEN) as u32;
        encode_record(handle, frame, &mut self.bytes);
        self.records.push((*handle, Span { offset, len: frame.len() as u32 }));
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(CAPACITY_MAX);
        self.records.clear();
    }
}

pub(crate) fn run(
    index: &SegmentIndex,
    disk: &dyn Disk,
    queue: &Receiver<WriteCommand>,
    queued_bytes: &AtomicU64,
) {
    let mut open: Option<OpenSegment> = None;
    let mut paused_until: Option<Instant> = None;
    // Its memory is used again: new memory costs as much as the copy.
    let mut batch = Batch::default();
    while let Ok(first) = queue.recv() {
        let (mut flushed, mut next) = (Vec::new(), Some(first));
        while let Some(command) = next {
            match command {
                WriteCommand::Keep { handle, stored } => {
                    queued_bytes.fetch_sub(stored.len() as u64, Ordering::Relaxed);
                    if !index.contains(&handle) {
                        batch.add(&handle, &stored);
                    }
                }
                WriteCommand::Flush(done) => flushed.push(done),
            }
            next = if (batch.bytes.len() as u64) < index.batch_len_max() {
                queue.try_recv().ok()
            } else {
                None
            };
        }
        if paused_until.is_some_and(|until| Instant::now() < until) {
            batch.clear();
        }
        if !batch.records.is_empty() {
            match write(index, disk, &mut open, &mut batch) {
                Ok(()) => paused_until = None,
                Err(error) => {
                    tracing::warn!(
                        "disk cache: {error}; storing no frames for {} s",
                        PAUSE.as_secs()
                    );
                    paused_until = Some(Instant::now() + PAUSE);
                    if error.kind() != std::io::ErrorKind::TimedOut {
                        index.shrink();
                    }
                    open = None;
                }
            }
            batch.clear();
        }
        for done in flushed {
            let _ = done.send(());
        }
    }
    if let Some(open) = &open {
        index.close_segment(open);
    }
}

fn write(
    index: &SegmentIndex,
    disk: &dyn Disk,
    open: &mut Option<OpenSegment>,
    batch: &mut Batch,
) -> std::io::Result<()> {
    let (len, count) = (batch.bytes.len() as u64, batch.records.len());
    if let Some(full) = open.take_if(|open| !index.has_room(open, len, count)) {
        index.close_segment(&full);
    }
    let target = match open {
        Some(target) => target,
        None => open.insert(index.start_segment(&mut |handle, frame| batch.add(handle, &frame))?),
    };
    disk.write_at(&target.file, &batch.bytes, target.len)?;
    let start = target.len as u32;
    let records = batch
        .records
        .drain(..)
        .map(|(handle, span)| (handle, Span { offset: start + span.offset, ..span }))
        .collect();
    index.add_records(target, records, target.len + batch.bytes.len() as u64);
    Ok(())
}
