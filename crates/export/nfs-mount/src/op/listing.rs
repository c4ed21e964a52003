//! READDIR. The kernel asks for a page at a time, the server is asked for more.

use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;
use vouch_nfs4::attr::FileType;
use vouch_nfs4::op::{AccessArgs, Args, Op, ReaddirArgs, Results};
use vouch_nfs4::{Attributes, Bitmap, Cookie, Filehandle, Verifier};

use super::attributes::access_bits;
use crate::attributes::{Known, WANTED, type_bits};
use crate::caller::Caller;
use crate::error::{self, Result};
use crate::fuse::{Entry, FOPEN_CACHE_DIR, FOPEN_KEEP_CACHE, Listing, Record, Request};
use crate::inode::Inode;
use crate::mount::{Mount, skip};

/// One open directory.
#[derive(Debug)]
pub(crate) struct Directory {
    inode: Arc<Inode>,
    caller: Caller,
    batch: Mutex<Batch>,
}

/// Entries of one READDIR.
#[derive(Debug, Default, Clone)]
struct Batch {
    /// Cookie before the first entry.
    after: u64,
    entries: Arc<Vec<Item>>,
    verifier: Verifier,
    is_last: bool,
}

#[derive(Debug)]
struct Item {
    name: Box<[u8]>,
    cookie: u64,
    kind: FileType,
    ino: u64,
    file: Option<(Filehandle, Known)>,
}

impl Mount {
    pub(crate) async fn opendir(self: &Arc<Self>, request: &Request) -> Result<Record> {
        let inode = self.inodes.get(request.header.node)?;
        let caller = self.callers.of(&request.header);
        let access = Args::Access(AccessArgs { access: access_bits(4, true) });
        let reply =
            self.call(&caller, |c| c.putfh(&inode.handle).op(&access).getattr(WANTED)).await?;
        let mut results = reply.results();
        skip(&mut results, &[Op::PUTFH])?;
        match results.next_ok().map_err(|error| error::errno(&error))? {
            Results::Access(Ok(ok)) if !ok.access.is_empty() => {}
            _ => return Err(Errno::ACCESS),
        }
        let known = self.converter.next(&mut results)?;
        inode.note(&known, &self.options.times, false);
        // A user without the right to list must not read another's list.
        let keep = if inode.keep_cache(known.change) { FOPEN_KEEP_CACHE } else { 0 };
        let number = self.session.next_file();
        let directory = Directory { inode, caller, batch: Mutex::default() };
        self.directories.lock().insert(number, Arc::new(directory));
        Ok(Record::default().u64(number).u32(keep | FOPEN_CACHE_DIR).u32(0))
    }

    pub(crate) fn releasedir(&self, request: &Request) -> Result<Record> {
        let number = request.fields().u64().ok_or(Errno::INVAL)?;
        self.directories.lock().remove(&number);
        Ok(Record::default())
    }

    pub(crate) async fn readdir(self: &Arc<Self>, request: &Request, plus: bool) -> Result<Record> {
        let mut fields = request.fields();
        let (number, mut at) =
            (fields.u64().ok_or(Errno::INVAL)?, fields.u64().ok_or(Errno::INVAL)?);
        let len = fields.u32().ok_or(Errno::INVAL)?;
        let directory = self.directories.lock().get(&number).cloned().ok_or(Errno::BADF)?;
        let mut listing = Listing::new(len as usize);
        // NFS has no entries for these, and never uses the cookies 1 and 2 (RFC 8881 §18.23.3).
        let ino = directory.inode.ino();
        let without_file = plus.then(Entry::default);
        for (cookie, name) in [(1, &b"."[..]), (2, b"..")] {
            let entry = without_file.as_ref();
            if at < cookie && !listing.push(name, (ino, DT_DIR), cookie, entry) {
                return Ok(Record::default().raw(listing.as_bytes()));
            }
            at = at.max(cookie);
        }
        let mut cookie = if at == 2 { 0 } else { at };
        loop {
            let (batch, from) = self.batch(&directory, cookie, plus).await?;
            for item in &batch.entries[from..] {
                if !self.push(&directory, item, &mut listing, plus) {
                    return Ok(Record::default().raw(listing.as_bytes()));
                }
                cookie = item.cookie;
            }
            if batch.is_last || !listing.as_bytes().is_empty() && batch.entries.len() > from {
                return Ok(Record::default().raw(listing.as_bytes()));
            }
        }
    }

    fn push(
        self: &Arc<Self>,
        directory: &Directory,
        item: &Item,
        listing: &mut Listing,
        plus: bool,
    ) -> bool {
        let kind = type_bits(item.kind) >> 12;
        if !plus {
            return listing.push(&item.name, (item.ino, kind), item.cookie, None);
        }
        let place = Some((directory.inode.node, &*item.name));
        let found = item.file.as_ref().map(|(handle, known)| {
            let inode = self.inodes.insert(handle, known, place);
            let is_dirty = inode.writes.is_dirty();
            let is_own = !is_dirty && inode.writes.take_written();
            (inode.node, is_dirty, self.entry(&inode, known, &directory.inode, is_own))
        });
        // Without a node the kernel takes the name alone: the server lacks written data.
        let entry = match found {
            Some((_, false, entry)) => entry,
            _ => Entry::default(),
        };
        let is_in = listing.push(&item.name, (item.ino, kind), item.cookie, Some(&entry));
        if let Some((node, is_dirty, _)) = found
            && (is_dirty || !is_in)
        {
            self.inodes.forget(node, 1);
        }
        is_in
    }

    /// The batch with the entry after `cookie`, and its position.
    async fn batch(
        self: &Arc<Self>,
        directory: &Directory,
        cookie: u64,
        plus: bool,
    ) -> Result<(Batch, usize)> {
        let known = directory.batch.lock().clone();
        if !known.entries.is_empty() {
            if known.after == cookie {
                return Ok((known, 0));
            }
            let found = known.entries.iter().position(|item| item.cookie == cookie);
            match found.map(|at| at + 1) {
                Some(from) if from < known.entries.len() || known.is_last => {
                    return Ok((known, from));
                }
                _ => {}
            }
        }
        let verifier = if cookie == 0 { Verifier::default() } else { known.verifier };
        let batch = self.read_batch(directory, cookie, verifier, plus).await?;
        *directory.batch.lock() = batch.clone();
        Ok((batch, 0))
    }

    async fn read_batch(
        self: &Arc<Self>,
        directory: &Directory,
        cookie: u64,
        verifier: Verifier,
        plus: bool,
    ) -> Result<Batch> {
        let args = Args::Readdir(ReaddirArgs {
            cookie: Cookie(cookie),
            verifier,
            dir_count: BATCH_LEN / 4,
            max_count: BATCH_LEN,
            wanted: if plus { WANTED.or(WITH_HANDLE) } else { PLAIN },
        });
        let handle = &directory.inode.handle;
        let reply = self.call(&directory.caller, |c| c.putfh(handle).op(&args)).await?;
        let mut results = reply.results();
        skip(&mut results, &[Op::PUTFH])?;
        let Results::Readdir(Ok(ok)) = results.next_ok().map_err(|error| error::errno(&error))?
        else {
            return Err(Errno::IO);
        };
        let mut entries = Vec::new();
        for entry in ok.entries.iter() {
            let attributes = entry.attrs.attributes().map_err(|_| Errno::IO)?;
            entries.push(self.item(entry.name.0, entry.cookie, &attributes)?);
        }
        if entries.is_empty() && !ok.eof {
            return Err(Errno::IO);
        }
        let entries = Arc::new(entries);
        Ok(Batch { after: cookie, entries, verifier: ok.verifier, is_last: ok.eof })
    }

    fn item(&self, name: &[u8], cookie: Cookie, from: &Attributes<'_>) -> Result<Item> {
        // A name with a slash would confuse each program.
        vouch_nfs4::Component::parse(name).map_err(|_| Errno::IO)?;
        let known = self.converter.convert(from);
        let kind = from.file_type.unwrap_or(FileType::Regular);
        let ino = known.map_or(from.fileid.unwrap_or(cookie.0), |known| known.attr.ino);
        let file = from.filehandle.filter(|_| from.change.is_some()).zip(known);
        Ok(Item { name: name.into(), cookie: cookie.0, kind, ino, file })
    }
}

const DT_DIR: u32 = 4;

/// Of one READDIR.
const BATCH_LEN: u32 = 128 * 1024;

const PLAIN: Bitmap = Bitmap::of(&[1, 8, 11, 20]);
const WITH_HANDLE: Bitmap = Bitmap::of(&[11, 19]);
