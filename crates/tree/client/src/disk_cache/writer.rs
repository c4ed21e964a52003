use std::io::IoSlice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::oneshot;
use vouch_tree::BlockHandle;

use super::segment::{Disk, RECORD_HEAD_LEN, Span, encode_head};
use super::segment_index::{OpenSegment, SegmentIndex};

const PAUSE: Duration = Duration::from_secs(30);

pub(crate) enum WriteCommand {
    Keep { handle: BlockHandle, stored: Bytes },
    Flush(oneshot::Sender<()>),
}

/// The frames are not copied: the page cache gets them from the memory that they came in.
#[derive(Default)]
struct Batch {
    records: Vec<(BlockHandle, Span)>,
    parts: Vec<([u8; RECORD_HEAD_LEN], Bytes)>,
    len: u64,
}

impl Batch {
    fn add(&mut self, handle: &BlockHandle, frame: Bytes) {
        let offset = (self.len + RECORD_HEAD_LEN as u64) as u32;
        self.records.push((*handle, Span { offset, len: frame.len() as u32 }));
        self.len = u64::from(offset) + frame.len() as u64;
        self.parts.push((encode_head(handle, &frame), frame));
    }

    fn slices(&self) -> Vec<IoSlice<'_>> {
        self.parts
            .iter()
            .flat_map(|(head, frame)| [IoSlice::new(head), IoSlice::new(frame)])
            .collect()
    }

    fn clear(&mut self) {
        self.records.clear();
        self.parts.clear();
        self.len = 0;
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
    let mut batch = Batch::default();
    while let Ok(first) = queue.recv() {
        let (mut flushed, mut next) = (Vec::new(), Some(first));
        while let Some(command) = next {
            match command {
                WriteCommand::Keep { handle, stored } => {
                    queued_bytes.fetch_sub(stored.len() as u64, Ordering::Relaxed);
                    if !index.contains(&handle) {
                        batch.add(&handle, stored);
                    }
                }
                WriteCommand::Flush(done) => flushed.push(done),
            }
            next = if batch.len < index.batch_len_max() { queue.try_recv().ok() } else { None };
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
    let (len, count) = (batch.len, batch.records.len());
    if let Some(full) = open.take_if(|open| !index.has_room(open, len, count)) {
        index.close_segment(&full);
    }
    let target = match open {
        Some(target) => target,
        None => {
            open.insert(index.start_segment(&mut |handle, frame| batch.add(handle, frame.into()))?)
        }
    };
    disk.write_at(&target.file, &mut batch.slices(), target.len)?;
    let start = target.len as u32;
    let records = batch
        .records
        .drain(..)
        .map(|(handle, span)| (handle, Span { offset: start + span.offset, ..span }))
        .collect();
    index.add_records(target, records, target.len + batch.len);
    Ok(())
}
