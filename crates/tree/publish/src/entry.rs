//! Stat, compare with the record, read what is new.

use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rayon::Scope;
use rustix::fs::FileType;
use vouch_tree::inode::{DeviceNumber, SYMLINK_LEN_MAX};
use vouch_tree::{BlockHandle, Content, Timestamp};

use crate::attributes::{Attributes, Fingerprint, now};
use crate::error::{Error, FileError};
use crate::file::{Batch, Group, LargeContent, SMALL_LEN_MAX, read_group, read_small};
use crate::links::{Claim, Name, Read, link_group};
use crate::listing::Listing;
use crate::node::{DirectorySnapshot, Node};
use crate::pages::{Outcome, Slot};
use crate::previous::{PreviousBlob, PreviousFile};
use crate::printable::printable;
use crate::walk::{REPEAT_COUNT_MAX, Walk, inode};
use crate::xattrs::{self, FileOrName};

enum Step {
    Done(Outcome),
    Later,
    Directory(Arc<Node>),
}

#[derive(Debug)]
struct Target {
    node: Arc<Node>,
    index: usize,
    repeats: u32,
    claimed: Option<(u64, u64)>,
}

#[derive(Debug)]
struct LargeFile {
    target: Target,
    file: OwnedFd,
    attributes: Attributes,
    racy: bool,
    pending: AtomicUsize,
    previous: PreviousBlob,
    progress: Mutex<LargeProgress>,
}

#[derive(Debug)]
struct LargeProgress {
    content: LargeContent,
    batch: Option<Batch>,
    leaves: Vec<Option<BlockHandle>>,
    error: Option<FileError>,
}

impl LargeFile {
    fn previous_file<'a>(&'a self, listing: &'a Listing) -> PreviousFile<'a> {
        PreviousFile {
            node: &self.target.node,
            name: listing.name(self.target.index),
            blob: &self.previous,
        }
    }
}

impl Walk<'_> {
    pub(crate) fn chunk_job<'s>(&'s self, scope: &Scope<'s>, node: Arc<Node>, chunk: Range<usize>) {
        self.chunk(scope, &node, chunk);
        if node.complete() {
            self.drive(scope, node);
        }
    }

    pub(crate) fn chunk<'s>(
        &'s self,
        scope: &Scope<'s>,
        node: &Arc<Node>,
        mut chunk: Range<usize>,
    ) {
        let snapshot = node.snapshot();
        let open = match node.directory(&self.descriptors) {
            Ok(open) => open,
            Err(FileError::Vanished) => return node.set_vanished(),
            Err(error) => return self.fail(error.at(&node.path(None))),
        };
        let now = self.as_of(now());
        let mut outcomes = Vec::with_capacity(chunk.len());
        let mut directories = Vec::new();
        let mut read_len = 0;
        while let Some(index) = chunk.next() {
            if self.is_stopped() {
                return;
            }
            match self.entry(scope, node, &snapshot, open.as_fd(), index, now, &mut read_len) {
                Ok(Step::Done(outcome)) => outcomes.push((index, outcome)),
                Ok(Step::Later) => {}
                Ok(Step::Directory(child)) => directories.push(child),
                Err(error) => outcomes
                    .push((index, self.leave_out(node, snapshot.listing.name(index), error))),
            }
            // Share half of the rest if it is real work.
            if read_len >= SHARE_LEN && chunk.len() >= 2 {
                let middle = chunk.start + chunk.len() / 2;
                let rest = middle..chunk.end;
                chunk.end = middle;
                read_len = 0;
                node.expect(1);
                let node = node.clone();
                scope.spawn(move |scope| self.chunk_job(scope, node, rest));
            }
        }
        node.deliver(outcomes);
        node.expect(directories.len());
        for child in directories.into_iter().rev() {
            scope.spawn(move |scope| self.directory(scope, child));
        }
    }

    #[allow(clippy::too_many_arguments, reason = "what a chunk knows, handed to its inner loop")]
    fn entry<'s>(
        &'s self,
        scope: &Scope<'s>,
        node: &Arc<Node>,
        snapshot: &DirectorySnapshot,
        dir: BorrowedFd<'_>,
        index: usize,
        now: Timestamp,
        read_len: &mut u64,
    ) -> Result<Step, FileError> {
        let name = snapshot.listing.name(index);
        let attributes = Attributes::of_name(dir, name, self.alias)?;
        self.check_public(&attributes, || node.path(Some(name)))?;
        if attributes.is_directory() {
            if self.plan.database == Some(attributes.identity()) {
                return Err(
                    Error::DatabaseInside { path: printable(&node.path(Some(name))) }.into()
                );
            }
            let closed = self.plan.options.one_file_system && attributes.dev != self.root_dev;
            return Ok(Step::Directory(Arc::new(Node::child(
                node, index, name, attributes, closed,
            ))));
        }
        self.progress.files.fetch_add(1, Ordering::Relaxed);
        let is_regular = attributes.file_type() == FileType::RegularFile;
        if is_regular {
            self.progress.bytes.fetch_add(attributes.size, Ordering::Relaxed);
            if node.is_private() || !attributes.is_readable_by_others() {
                node.count_private();
                self.private_example.get_or_init(|| printable(&node.path(Some(name))));
                if self.plan.refuses_private {
                    return Ok(Step::Done(Outcome::SKIPPED));
                }
            }
        }
        let print = attributes.fingerprint(self.frames.iv(), name, &[]);
        if !attributes.is_racy(now)
            && snapshot.earlier.as_ref().is_some_and(|earlier| earlier.contains(index, &print))
        {
            return Ok(Step::Done(Outcome { slot: Slot::Same, print }));
        }
        let mut target = Target { node: node.clone(), index, repeats: 0, claimed: None };
        if attributes.is_linked() {
            let wait = || {
                node.expect(1);
                Name { node: node.clone(), index }
            };
            match self.links.claim(&attributes, wait) {
                Claim::Known(read) => return Ok(Step::Done(self.outcome(name, &read))),
                Claim::Waits => return Ok(Step::Later),
                Claim::Read => target.claimed = Some(attributes.identity()),
            }
        }
        if is_regular {
            *read_len += attributes.size.min(SMALL_LEN_MAX) + READ_COST_LEN;
        }
        let claimed = target.claimed;
        match self.read(scope, target, dir, name, attributes) {
            Ok(Some(read)) => Ok(Step::Done(self.settle(scope, name, claimed, read))),
            Ok(None) => Ok(Step::Later),
            Err(error) => {
                self.abandon(scope, claimed, &error);
                Err(error)
            }
        }
    }

    /// Repeats while the file changes. `None`: a job delivers the result.
    fn read<'s>(
        &'s self,
        scope: &Scope<'s>,
        mut target: Target,
        dir: BorrowedFd<'_>,
        name: &[u8],
        mut attributes: Attributes,
    ) -> Result<Option<Read>, FileError> {
        loop {
            if attributes.is_directory() {
                return Err(FileError::Vanished);
            }
            let now = now();
            if let Some(wait) = until_next_tick(&attributes, now) {
                std::thread::sleep(wait);
                attributes = Attributes::of_name(dir, name, self.alias)?;
                if attributes.is_directory() {
                    return Err(FileError::Vanished);
                }
            }
            let racy = attributes.is_racy(self.as_of(now));
            if attributes.file_type() == FileType::RegularFile && attributes.size > SMALL_LEN_MAX {
                let file = self.descriptors.file(dir, name)?;
                let content = LargeContent::new(attributes.size);
                let progress = Mutex::new(LargeProgress {
                    content,
                    batch: None,
                    leaves: Vec::new(),
                    error: None,
                });
                target.node.expect(1);
                let (pending, previous) = (AtomicUsize::new(0), PreviousBlob::default());
                let job = LargeFile { target, file, attributes, racy, pending, previous, progress };
                scope.spawn(move |scope| self.large_step(scope, Arc::new(job)));
                return Ok(None);
            }
            match self.read_at_once(&target.node, dir, name, &attributes) {
                Ok((xattrs, content)) => {
                    let inode = inode(
                        &attributes,
                        link_group(self.frames.iv(), &attributes),
                        xattrs,
                        content,
                    );
                    return Ok(Some(Read { inode, attributes, racy }));
                }
                Err(FileError::Changed) if target.repeats < REPEAT_COUNT_MAX => {
                    target.repeats += 1;
                    self.progress.reread.fetch_add(1, Ordering::Relaxed);
                    attributes = Attributes::of_name(dir, name, self.alias)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn read_at_once(
        &self,
        node: &Node,
        dir: BorrowedFd<'_>,
        name: &[u8],
        before: &Attributes,
    ) -> Result<(vouch_tree::Blob, Content), FileError> {
        let number = DeviceNumber { major: before.rdev.0, minor: before.rdev.1 };
        let content = match before.file_type() {
            FileType::RegularFile => {
                let file = self.descriptors.file(dir, name)?;
                let memory = PreviousBlob::default();
                // With a record of the directory, only files that have changed are read.
                let previous = node.has_previous_pages_only().then_some(PreviousFile {
                    node,
                    name,
                    blob: &memory,
                });
                let (blob, space) = read_small(&self.frames, file.as_fd(), before.size, previous)?;
                let xattrs = xattrs::read(&self.frames, FileOrName::Open(file.as_fd()))?;
                if Attributes::of_fd(file.as_fd(), self.alias)? != *before {
                    return Err(FileError::Changed);
                }
                self.progress.files_read.fetch_add(1, Ordering::Relaxed);
                self.progress.bytes_read.fetch_add(blob.size, Ordering::Relaxed);
                return Ok((xattrs, Content::Regular { blob, space }));
            }
            FileType::Symlink => {
                let target =
                    rustix::fs::readlinkat(dir, name, Vec::new()).map_err(|error| match error {
                        rustix::io::Errno::INVAL => FileError::Changed,
                        error => FileError::system("read the link")(error),
                    })?;
                let target = target.into_bytes();
                if target.is_empty() || target.len() > SYMLINK_LEN_MAX {
                    return Err(FileError::Unsupported(
                        "is a link with a target that is empty or longer than 4,095 bytes",
                    ));
                }
                Content::Symlink(target)
            }
            FileType::Fifo => Content::Fifo,
            FileType::Socket => Content::Socket,
            FileType::CharacterDevice => Content::CharDevice(number),
            FileType::BlockDevice => Content::BlockDevice(number),
            FileType::Directory | FileType::Unknown => {
                return Err(FileError::Unsupported("is of an unknown type"));
            }
        };
        let xattrs = xattrs::read(&self.frames, FileOrName::Named(dir, name))?;
        if Attributes::of_name(dir, name, self.alias)? != *before {
            return Err(FileError::Changed);
        }
        Ok((xattrs, content))
    }

    fn large_step<'s>(&'s self, scope: &Scope<'s>, job: Arc<LargeFile>) {
        let listing = job.target.node.snapshot().listing;
        let previous = Some(job.previous_file(&listing));
        let result = loop {
            if self.is_stopped() {
                return;
            }
            let mut progress = job.progress.lock();
            let LargeProgress { content, batch, leaves, error } = &mut *progress;
            if let Some(error) = error.take() {
                break Err(error);
            }
            if let Some(done) = batch.take()
                && let Err(error) = content.append_batch(&self.frames, &done, previous, leaves)
            {
                break Err(error.into());
            }
            let next = match content.next_batch(job.file.as_fd()) {
                Ok(Some(next)) => next,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            let groups = next.groups.clone();
            *leaves = vec![None; next.leaf_count()];
            *batch = Some(next);
            if groups.is_empty() {
                continue;
            }
            drop(progress);
            job.pending.store(groups.len(), Ordering::Release);
            for group in groups.into_iter().rev() {
                let job = job.clone();
                scope.spawn(move |scope| self.group_job(scope, job, group));
            }
            return;
        };
        let result = result.and_then(|()| self.large_end(&job));
        let LargeFile { target, .. } = &*job;
        let target = Target { node: target.node.clone(), ..*target };
        self.large_deliver(scope, target, result);
    }

    fn group_job<'s>(&'s self, scope: &Scope<'s>, job: Arc<LargeFile>, group: Group) {
        if self.is_stopped() {
            return;
        }
        let mut handles = vec![None; group.count];
        let listing = job.target.node.snapshot().listing;
        let previous = Some(job.previous_file(&listing));
        let result = read_group(
            &self.frames,
            job.file.as_fd(),
            job.attributes.size,
            &group,
            previous,
            &mut handles,
        );
        self.progress
            .bytes_read
            .fetch_add(group.len(job.attributes.size) as u64, Ordering::Relaxed);
        {
            let mut progress = job.progress.lock();
            match result {
                Ok(()) => {
                    progress.leaves[group.at..group.at + group.count].copy_from_slice(&handles)
                }
                Err(error) => progress.error = Some(error),
            }
        }
        if job.pending.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.large_step(scope, job);
        }
    }

    fn large_end(&self, job: &LargeFile) -> Result<Read, FileError> {
        let content = std::mem::replace(&mut job.progress.lock().content, LargeContent::new(0));
        let listing = job.target.node.snapshot().listing;
        let (blob, space) = content.finish(&self.frames, Some(job.previous_file(&listing)))?;
        let xattrs = xattrs::read(&self.frames, FileOrName::Open(job.file.as_fd()))?;
        if Attributes::of_fd(job.file.as_fd(), self.alias)? != job.attributes {
            return Err(FileError::Changed);
        }
        self.progress.files_read.fetch_add(1, Ordering::Relaxed);
        let group = link_group(self.frames.iv(), &job.attributes);
        Ok(Read {
            inode: inode(&job.attributes, group, xattrs, Content::Regular { blob, space }),
            attributes: job.attributes,
            racy: job.racy,
        })
    }

    fn large_deliver<'s>(
        &'s self,
        scope: &Scope<'s>,
        mut target: Target,
        result: Result<Read, FileError>,
    ) {
        let (node, index, claimed) = (target.node.clone(), target.index, target.claimed);
        let listing = node.snapshot().listing;
        let name = listing.name(index);
        let result = match result {
            Err(FileError::Changed) if target.repeats < REPEAT_COUNT_MAX => {
                target.repeats += 1;
                self.progress.reread.fetch_add(1, Ordering::Relaxed);
                let again = node.directory(&self.descriptors).and_then(|open| {
                    let attributes = Attributes::of_name(open.as_fd(), name, self.alias)?;
                    self.read(scope, target, open.as_fd(), name, attributes)
                });
                match again {
                    Ok(Some(read)) => Ok(read),
                    Ok(None) => {
                        // The repeated job may have delivered.
                        if node.complete() {
                            self.drive(scope, node);
                        }
                        return;
                    }
                    Err(error) => Err(error),
                }
            }
            result => result,
        };
        let outcome = match result {
            Ok(read) => self.settle(scope, name, claimed, read),
            Err(error) => {
                self.abandon(scope, claimed, &error);
                self.leave_out(&node, name, error)
            }
        };
        node.deliver([(index, outcome)]);
        if node.complete() {
            self.drive(scope, node);
        }
    }

    fn settle<'s>(
        &'s self,
        scope: &Scope<'s>,
        name: &[u8],
        claimed: Option<(u64, u64)>,
        read: Read,
    ) -> Outcome {
        let Some(identity) = claimed else { return self.outcome(name, &read) };
        let read = Arc::new(read);
        let same = read.attributes.identity() == identity;
        for waiting in self.links.settle(identity, same.then_some(&read)) {
            let outcome = if same {
                self.outcome(waiting.node.snapshot().listing.name(waiting.index), &read)
            } else {
                waiting.node.set_vanished();
                Outcome::SKIPPED
            };
            self.deliver_waiting(scope, waiting, outcome);
        }
        self.outcome(name, &read)
    }

    fn abandon<'s>(&'s self, scope: &Scope<'s>, claimed: Option<(u64, u64)>, error: &FileError) {
        let Some(identity) = claimed else { return };
        for waiting in self.links.settle(identity, None) {
            let listing = waiting.node.snapshot().listing;
            let name = listing.name(waiting.index);
            let error = match error {
                FileError::Vanished => FileError::Vanished,
                _ => FileError::Unsupported("is a hard link of a file that could not be read"),
            };
            let outcome = self.leave_out(&waiting.node, name, error);
            self.deliver_waiting(scope, waiting, outcome);
        }
    }

    fn deliver_waiting<'s>(&'s self, scope: &Scope<'s>, waiting: Name, outcome: Outcome) {
        waiting.node.deliver([(waiting.index, outcome)]);
        if waiting.node.complete() {
            scope.spawn(move |scope| self.drive(scope, waiting.node));
        }
    }

    fn outcome(&self, name: &[u8], read: &Read) -> Outcome {
        let print = if read.racy {
            Fingerprint::UNTRUSTED
        } else {
            read.attributes.fingerprint(self.frames.iv(), name, &[])
        };
        Outcome { slot: Slot::New(Box::new(read.inode.clone())), print }
    }
}

/// A change during reading then gets a newer timestamp.
fn until_next_tick(attributes: &Attributes, now: Timestamp) -> Option<Duration> {
    let since_ns = (i128::from(now.s) - i128::from(attributes.ctime.s)) * 1_000_000_000
        + i128::from(now.ns)
        - i128::from(attributes.ctime.ns);
    let left = TICK_NS - since_ns;
    (since_ns >= 0 && left > 0).then(|| Duration::from_nanos(left as u64))
}

/// Longer than a kernel tick (100 Hz).
const TICK_NS: i128 = 20_000_000;

/// Bytes read before a chunk shares its rest.
const SHARE_LEN: u64 = 1 << 20;

/// Cost of an open, in bytes.
const READ_COST_LEN: u64 = 8 << 10;
