use super::super::block_reads::BlockReads;
use super::super::{Tally, small_files};
use super::{MAKE_DEPTH, NfsSubject, require_complete};
use crate::case::{Copy, Read};
use crate::content::mix;
use crate::{Error, Sample};

impl NfsSubject {
    pub(super) fn put_if_missing(&mut self, copy: &Copy) -> Result<(), Error> {
        match self.copies.contains_key(&(copy.files, copy.len, copy.content)) {
            true => Ok(()),
            false => self.put(copy).map(drop),
        }
    }

    pub(super) fn read(&mut self, read: &Read) -> Result<Sample, Error> {
        if read.files > 1 { self.get(&copy_of(read)) } else { self.read_blocks(read) }
    }

    fn read_blocks(&mut self, read: &Read) -> Result<Sample, Error> {
        let directory = self.copied(&copy_of(read))?;
        self.rounds += 1;
        let (pages, stop, seed) = (self.pages.clone(), self.stop.clone(), mix(self.rounds));
        self.on_all_sessions(1, move |_, files, session| {
            if files.is_empty() {
                return Ok(Tally::default());
            }
            let file = session.open(&directory, &small_files::name(0), false, &stop)?;
            let mut work = BlockReads::new(&pages, file, *read, seed);
            let tally = session.complete(&mut work, 1, &stop)?;
            session.close(file, &stop)?;
            let bytes = tally.bytes;
            require_complete(tally, bytes, read.len, "bytes of a file", session, &stop)
        })
    }
}

pub(super) const fn copy_of(read: &Read) -> Copy {
    Copy {
        files: read.files,
        len: read.len,
        content: read.content,
        streams: 1,
        depth: MAKE_DEPTH as u32,
    }
}
