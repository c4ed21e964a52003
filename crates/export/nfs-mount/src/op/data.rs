//! READ, WRITE and COMMIT.

use std::sync::Arc;

use rustix::io::Errno;
use vouch_nfs4::op::{Args, CommitArgs, Op, ReadArgs, Results, StableHow, WriteArgs};
use vouch_nfs4::{Bytes, Verifier};

use crate::attributes::WANTED;
use crate::error::{self, Result};
use crate::fuse::{Record, Request, WRITE_HEAD_LEN};
use crate::inode::Inode;
use crate::mount::{Mount, skip};
use crate::open_file::OpenFile;
use crate::write_buffer::{Added, Extent, Step};

impl Mount {
    /// Replies to the kernel itself, so that the data is copied once less.
    pub(crate) async fn read(self: &Arc<Self>, request: &Request) -> Result<()> {
        let mut fields = request.fields();
        let file = self.file(fields.u64().ok_or(Errno::INVAL)?)?;
        let offset = fields.u64().ok_or(Errno::INVAL)?;
        let len = fields.u32().ok_or(Errno::INVAL)?;
        file.check()?;
        if let Some(content) = file.take_content(self.changes()) {
            let start = content.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
            let end = content.len().min(start.saturating_add(len as usize));
            self.device.reply(request.header.unique, &content[start..end]);
            return Ok(());
        }
        // The kernel has no page for a range that it asks for: written data may be only here.
        self.flush(&file.inode, false).await?;
        let mut all = Vec::new();
        loop {
            let at = offset + all.len() as u64;
            let count = (len - all.len() as u32).min(self.options.io_len_max);
            let reply = self
                .call(&file.caller, |c| {
                    let args = ReadArgs { stateid: file.stateid(), offset: at, count };
                    c.putfh(&file.inode.handle).op(&Args::Read(args))
                })
                .await?;
            let mut results = reply.results();
            skip(&mut results, &[Op::PUTFH])?;
            let Results::Read(Ok(ok)) = results.next_ok().map_err(|error| error::errno(&error))?
            else {
                return Err(Errno::IO);
            };
            let data = &ok.data.0[..ok.data.len().min(count as usize)];
            let is_last = ok.eof || data.is_empty() || all.len() + data.len() >= len as usize;
            if is_last && all.is_empty() {
                self.device.reply(request.header.unique, data);
                return Ok(());
            }
            all.extend_from_slice(data);
            if is_last {
                self.device.reply(request.header.unique, &all);
                return Ok(());
            }
        }
    }

    pub(crate) async fn write(self: &Arc<Self>, request: Request) -> Result<Record> {
        let mut fields = request.fields();
        let file = self.file(fields.u64().ok_or(Errno::INVAL)?)?;
        let offset = fields.u64().ok_or(Errno::INVAL)?;
        let len = fields.u32().ok_or(Errno::INVAL)?;
        file.check()?;
        let bytes = request.into_bytes();
        if bytes.len() != WRITE_HEAD_LEN + len as usize {
            return Err(Errno::INVAL);
        }
        let permit = self.reserve(bytes.len()).await?;
        let mut extent = Extent::new(file.clone(), offset, bytes, WRITE_HEAD_LEN, permit);
        self.mark_dirty(&file.inode);
        loop {
            let progress = file.inode.writes.progress();
            tokio::pin!(progress);
            progress.as_mut().enable();
            match file.inode.writes.add(extent, self.options.io_len_max as usize) {
                Added::Kept => break,
                Added::Send(full) => {
                    self.send_later(full);
                    break;
                }
                Added::Displaced(other, again) => {
                    self.send_later(other);
                    extent = again;
                }
                Added::Overlaps(again) => {
                    progress.await;
                    extent = again;
                }
            }
        }
        if file.is_direct {
            self.flush(&file.inode, true).await?;
            file.inode.writes.take_error()?;
        }
        Ok(Record::default().u32(len).u32(0))
    }

    fn send_later(self: &Arc<Self>, extent: Extent) {
        let mount = self.clone();
        tokio::spawn(async move {
            let inode = extent.file.inode.clone();
            let outcome = mount.put(&extent, StableHow::Unstable).await;
            inode.writes.sent(extent, outcome);
        });
    }

    /// Waits until the server has all written data, with `commit` durably. Errors of the data are
    /// left for the caller of fsync(2) and close(2).
    pub(crate) async fn flush(self: &Arc<Self>, inode: &Arc<Inode>, commit: bool) -> Result<()> {
        loop {
            let progress = inode.writes.progress();
            tokio::pin!(progress);
            progress.as_mut().enable();
            match inode.writes.step(commit) {
                Step::Clean => return Ok(()),
                Step::Wait => progress.await,
                Step::Send(extent) => self.send_later(extent),
                // In tasks: a flush that is given up must not lose the data.
                Step::SendStable(extent) => {
                    let (mount, inode) = (self.clone(), inode.clone());
                    tokio::spawn(async move {
                        let outcome = mount.put(&extent, StableHow::FileSync).await;
                        inode.writes.sent(extent, outcome);
                    });
                }
                Step::Commit(list) => {
                    let (mount, inode) = (self.clone(), inode.clone());
                    tokio::spawn(async move {
                        let outcome = mount.commit(&inode, list).await;
                        inode.writes.committed(outcome);
                    });
                }
            }
        }
    }

    /// Returns the write verifier if the data is not durable yet.
    async fn put(self: &Arc<Self>, extent: &Extent, stable: StableHow) -> Result<Option<Verifier>> {
        let (file, mut done) = (&extent.file, 0);
        let (mut verifier, mut is_stable) = (None, true);
        while done < extent.data().len() {
            file.check()?;
            let rest = &extent.data()[done..];
            let data = &rest[..rest.len().min(self.options.io_len_max as usize)];
            let offset = extent.offset + done as u64;
            let reply = self
                .call(&file.caller, |c| {
                    let stateid = file.stateid();
                    let args = WriteArgs { stateid, offset, stable, data: Bytes(data) };
                    let c = c.putfh(&file.inode.handle).op(&Args::Write(args));
                    if stable == StableHow::FileSync { c.getattr(WANTED) } else { c }
                })
                .await?;
            let mut results = reply.results();
            skip(&mut results, &[Op::PUTFH])?;
            let Results::Write(Ok(ok)) = results.next_ok().map_err(|error| error::errno(&error))?
            else {
                return Err(Errno::IO);
            };
            if ok.count == 0 {
                return Err(Errno::IO);
            }
            done += (ok.count as usize).min(data.len());
            is_stable &= ok.committed == StableHow::FileSync;
            if verifier.is_some_and(|known| known != ok.verifier) && !is_stable {
                // The server has restarted between two parts.
                (done, verifier, is_stable) = (0, None, true);
                continue;
            }
            verifier = Some(ok.verifier);
            if stable == StableHow::FileSync {
                let known = self.converter.next(&mut results)?;
                file.inode.writes.mark_written();
                self.note(&file.inode, &known, file.inode.writes.take_written());
            }
        }
        Ok(verifier.filter(|_| !is_stable))
    }

    async fn commit(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        list: Vec<(Extent, Verifier)>,
    ) -> Result<()> {
        let Some((first, _)) = list.first() else { return Ok(()) };
        let caller = first.file.caller.clone();
        let args = Args::Commit(CommitArgs { offset: 0, count: 0 });
        let is_own = inode.writes.take_written();
        let reply =
            self.call(&caller, |c| c.putfh(&inode.handle).op(&args).getattr(WANTED)).await?;
        let mut results = reply.results();
        skip(&mut results, &[Op::PUTFH])?;
        let Results::Commit(Ok(ok)) = results.next_ok().map_err(|error| error::errno(&error))?
        else {
            return Err(Errno::IO);
        };
        let known = self.converter.next(&mut results)?;
        self.note(inode, &known, is_own);
        for (extent, verifier) in &list {
            if *verifier != ok.verifier {
                self.put(extent, StableHow::FileSync).await?;
            }
        }
        Ok(())
    }

    /// Makes data durable that the server has copied.
    pub(crate) async fn commit_copied(
        self: &Arc<Self>,
        file: &Arc<OpenFile>,
        verifier: Verifier,
    ) -> Result<()> {
        let args = Args::Commit(CommitArgs { offset: 0, count: 0 });
        let reply = self.call(&file.caller, |c| c.putfh(&file.inode.handle).op(&args)).await?;
        let mut results = reply.results();
        skip(&mut results, &[Op::PUTFH])?;
        match results.next_ok().map_err(|error| error::errno(&error))? {
            Results::Commit(Ok(ok)) if ok.verifier == verifier => Ok(()),
            // The server has restarted and lost it; nothing here can send it again.
            _ => Err(Errno::IO),
        }
    }
}
