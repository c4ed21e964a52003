//! Pages of a directory: kept while all entries are unchanged, rebuilt from the first change.

use std::sync::Arc;

use vouch_tree::directory::DirectoryBuilder;
use vouch_tree::{Content, Counts, FileName, Inode, PageRef};

use crate::attributes::Fingerprint;
use crate::cursor::Cursor;
use crate::error::Error;
use crate::frames::Frames;
use crate::listing::Listing;
use crate::previous::put_page;
use crate::record::{Earlier, Record};

#[derive(Debug)]
pub(crate) enum Slot {
    Same,
    New(Box<Inode>),
    Skipped,
}

#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) slot: Slot,
    pub(crate) print: Fingerprint,
}

impl Outcome {
    pub(crate) const SKIPPED: Self = Self { slot: Slot::Skipped, print: Fingerprint::UNTRUSTED };
}

/// Pages cannot be continued.
#[derive(Debug)]
pub(crate) enum PagesError {
    /// The record does not match the stored pages: continue without it.
    Mismatch,
    Fatal(Error),
}

impl From<Error> for PagesError {
    fn from(error: Error) -> Self {
        Self::Fatal(error)
    }
}

#[derive(Debug)]
pub(crate) struct Pages {
    earlier: Option<Arc<Earlier>>,
    previous: Option<PageRef>,
    prints: Vec<Fingerprint>,
    work: Work,
}

#[derive(Debug)]
enum Work {
    Same,
    Building(Box<Building>),
}

#[derive(Debug)]
struct Building {
    builder: DirectoryBuilder,
    cursor: Cursor,
    previous: Option<PageRef>,
    subdirs: u32,
    counts: Counts,
}

impl Pages {
    /// `previous`: pages whose frames are kept where the new ones are equal.
    pub(crate) fn new(
        earlier: Option<Arc<Earlier>>,
        previous: Option<PageRef>,
        len: usize,
    ) -> Self {
        Self { earlier, previous, prints: Vec::with_capacity(len), work: Work::Same }
    }

    pub(crate) fn push(
        &mut self,
        frames: &Frames<'_>,
        listing: &Listing,
        index: usize,
        outcome: Outcome,
    ) -> Result<(), PagesError> {
        if let Work::Same = self.work {
            let same = matches!(outcome.slot, Slot::Same)
                && self.earlier.as_ref().is_some_and(|e| e.is_at(index, &outcome.print));
            if same {
                self.prints.push(outcome.print);
                return Ok(());
            }
            self.begin_building(frames, listing, index)?;
        }
        let Work::Building(work) = &mut self.work else { return Ok(()) };
        let name = listing.name(index);
        let inode = match outcome.slot {
            Slot::Skipped => return Ok(()),
            Slot::New(inode) => *inode,
            Slot::Same => work.cursor.find(frames, name)?.ok_or(PagesError::Mismatch)?,
        };
        work.push(frames, name, inode)?;
        self.prints.push(outcome.print);
        Ok(())
    }

    pub(crate) fn finish(
        mut self,
        frames: &Frames<'_>,
        listing: &Listing,
        opaque: bool,
    ) -> Result<(Record, bool), PagesError> {
        if let Work::Same = self.work {
            if let Some(earlier) = &self.earlier
                && earlier.record.prints.len() == self.prints.len()
                && earlier.record.opaque == opaque
            {
                return Ok((earlier.record.clone(), true));
            }
            self.begin_building(frames, listing, self.prints.len())?;
        }
        let Work::Building(work) = self.work else { return Err(PagesError::Mismatch) };
        let top = work
            .builder
            .finish(&mut |kind, payload: &[u8]| put_page(frames, work.previous, kind, payload))?;
        Ok((
            Record { top, subdirs: work.subdirs, opaque, counts: work.counts, prints: self.prints },
            false,
        ))
    }

    fn begin_building(
        &mut self,
        frames: &Frames<'_>,
        listing: &Listing,
        len: usize,
    ) -> Result<(), PagesError> {
        let top = self.earlier.as_ref().and_then(|e| e.record.top);
        let (builder, cursor, previous) =
            (DirectoryBuilder::new(), Cursor::new(top), self.previous);
        let mut work =
            Box::new(Building { builder, cursor, previous, subdirs: 0, counts: Counts::default() });
        for index in 0..len {
            let name = listing.name(index);
            let inode = work.cursor.find(frames, name)?.ok_or(PagesError::Mismatch)?;
            work.push(frames, name, inode)?;
        }
        self.work = Work::Building(work);
        Ok(())
    }
}

impl Building {
    fn push(&mut self, frames: &Frames<'_>, name: &[u8], inode: Inode) -> Result<(), PagesError> {
        let name = FileName::parse(name).map_err(|_| PagesError::Mismatch)?;
        count_entry(&mut self.counts, &inode);
        self.subdirs = self.subdirs.saturating_add(u32::from(inode.is_directory()));
        let previous = self.previous;
        self.builder.push(name, inode, &mut |kind, payload: &[u8]| {
            put_page(frames, previous, kind, payload)
        })?;
        Ok(())
    }
}

pub(crate) fn count_entry(counts: &mut Counts, inode: &Inode) {
    match &inode.content {
        Content::Regular { blob, .. } => {
            counts.files += 1;
            counts.bytes = counts.bytes.saturating_add(blob.size);
        }
        Content::Directory { .. } => counts.directories += 1,
        Content::Symlink(_) => counts.symlinks += 1,
        Content::Fifo | Content::Socket | Content::CharDevice(_) | Content::BlockDevice(_) => {
            counts.others += 1
        }
    }
    counts.with_xattrs += u64::from(inode.xattrs.size > 0);
}
