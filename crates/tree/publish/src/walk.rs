//! Small jobs that never wait for each other. Chunks handle the entries of a directory in windows.
//! A subdirectory is a job whose result goes to its parent's window. Last in, first out: frames lie
//! in packs almost in reading order.

use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rayon::Scope;
use vouch_tree::{Content, Counts, Inode, Timestamp};
use vouch_tree_store::PutCounts;

use crate::attributes::{Attributes, DeviceAlias, Fingerprint, now};
use crate::cache::Cache;
use crate::descriptor::Descriptors;
use crate::error::{Error, FileError};
use crate::frames::Frames;
use crate::links::Links;
use crate::listing::Listing;
use crate::node::{DirectorySnapshot, Finished, Memory, Next, Node};
use crate::options::{OPAQUE_MARKER, Options, Progress, SKIPPED_COUNT_MAX, Skipped};
use crate::pages::{Outcome, PagesError, Slot};
use crate::plan::Plan;
use crate::printable::printable;
use crate::record::Earlier;
use crate::xattrs::{self, FileOrName};

pub(crate) struct Walk<'a> {
    pub(crate) frames: Frames<'a>,
    pub(crate) plan: &'a Plan<'a>,
    pub(crate) progress: &'a Progress,
    pub(crate) cache: &'a Cache,
    pub(crate) links: Links,
    pub(crate) descriptors: Descriptors,
    pub(crate) root_dev: u64,
    pub(crate) alias: DeviceAlias,
    pub(crate) private_example: OnceLock<String>,
    private_count: AtomicU64,
    totals: Mutex<Counts>,
    skipped: Mutex<Vec<Skipped>>,
    skipped_count: AtomicU64,
    failed: AtomicBool,
    error: Mutex<Option<Error>>,
    root: Mutex<Option<Inode>>,
}

pub(crate) struct WalkResult {
    pub(crate) root: Inode,
    pub(crate) counts: Counts,
    pub(crate) skipped: Vec<Skipped>,
    pub(crate) skipped_count: u64,
    /// Files that other users cannot read, and the path of one.
    pub(crate) private_count: u64,
    pub(crate) private_example: Option<String>,
    /// Of a dry run.
    pub(crate) counted: Option<PutCounts>,
}

impl<'a> Walk<'a> {
    pub(crate) fn run(
        frames: Frames<'a>,
        plan: &'a Plan<'a>,
        progress: &'a Progress,
        cache: &'a Cache,
    ) -> Result<WalkResult, Error> {
        let mut descriptors = Descriptors::new();
        let (root, attributes) = open_source(&mut descriptors, plan.options)?;
        let walk = Self {
            frames,
            plan,
            progress,
            cache,
            links: Links::default(),
            alias: descriptors.alias,
            descriptors,
            root_dev: attributes.dev,
            private_example: OnceLock::new(),
            private_count: AtomicU64::new(0),
            totals: Mutex::new(Counts { directories: 1, ..Counts::default() }),
            skipped: Mutex::default(),
            skipped_count: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            error: Mutex::new(None),
            root: Mutex::new(None),
        };
        if plan.database == Some(attributes.identity()) {
            return Err(Error::DatabaseInside { path: printable(root.name()) });
        }
        walk.check_public(&attributes, || root.name().to_vec())?;
        let threads = rayon::ThreadPoolBuilder::new()
            .num_threads(plan.options.threads)
            .thread_name(|n| format!("publish-{n}"))
            .build()
            .map_err(|e| Error::Threads(e.to_string()))?;
        threads.scope(|scope| walk.directory(scope, Arc::new(root)));
        drop(threads);
        if let Some(error) = walk.error.into_inner() {
            return Err(error);
        }
        let (counts, skipped_count) = (walk.totals.into_inner(), walk.skipped_count.into_inner());
        let root = walk.root.into_inner().ok_or(Error::Stopped)?;
        let (private_count, private_example) =
            (walk.private_count.into_inner(), walk.private_example.into_inner());
        let (skipped, counted) = (walk.skipped.into_inner(), walk.frames.counted());
        Ok(WalkResult {
            root,
            counts,
            skipped,
            skipped_count,
            private_count,
            private_example,
            counted,
        })
    }

    pub(crate) fn check_public(
        &self,
        attributes: &Attributes,
        path: impl FnOnce() -> Vec<u8>,
    ) -> Result<(), Error> {
        if self.plan.options.private.contains(&attributes.identity()) {
            let what = if attributes.is_directory() {
                "this is the directory of the keys"
            } else {
                "this is a private key"
            };
            return Err(Error::Private { path: printable(&path()), what });
        }
        Ok(())
    }

    pub(crate) fn directory<'s>(&'s self, scope: &Scope<'s>, node: Arc<Node>) {
        if self.is_stopped() {
            return;
        }
        match self.list(&node) {
            Ok(()) => self.drive(scope, node),
            Err(error) => {
                if let Some(above) = self.skip_directory(&node, error) {
                    self.drive(scope, above);
                }
            }
        }
    }

    pub(crate) fn drive<'s>(&'s self, scope: &Scope<'s>, mut node: Arc<Node>) {
        while !self.is_stopped() {
            let above = match node.advance(&self.frames) {
                Ok(Next::Window(window)) => {
                    let mut chunks: Vec<_> = window
                        .clone()
                        .step_by(CHUNK_LEN)
                        .map(|start| start..window.end.min(start + CHUNK_LEN))
                        .collect();
                    node.expect(chunks.len());
                    let first = chunks.remove(0);
                    for chunk in chunks.into_iter().rev() {
                        let node = node.clone();
                        scope.spawn(move |scope| self.chunk_job(scope, node, chunk));
                    }
                    self.chunk(scope, &node, first);
                    if !node.complete() {
                        return;
                    }
                    continue;
                }
                Ok(Next::Finish(finished)) => match self.finish(&node, *finished) {
                    Ok(Some(outcome)) => Self::deliver_to_parent(&node, outcome),
                    Ok(None) => match self.list(&node) {
                        Ok(()) => continue,
                        Err(error) => self.skip_directory(&node, error),
                    },
                    Err(error) => self.skip_directory(&node, error),
                },
                Err(PagesError::Mismatch) => {
                    tracing::warn!(
                        path = printable(&node.path(None)),
                        "the stat cache does not match the database; reading the directory again"
                    );
                    node.forget();
                    match self.list(&node) {
                        Ok(()) => continue,
                        Err(error) => self.skip_directory(&node, error),
                    }
                }
                Err(PagesError::Fatal(error)) => return self.fail(error),
            };
            match above {
                Some(above) => node = above,
                None => return,
            }
        }
    }

    fn deliver_to_parent(node: &Node, outcome: Outcome) -> Option<Arc<Node>> {
        let (parent, index) = node.parent()?;
        parent.deliver([(index, outcome)]);
        parent.complete().then(|| parent.clone())
    }

    fn skip_directory(&self, node: &Node, error: FileError) -> Option<Arc<Node>> {
        match node.parent() {
            Some((parent, _)) => {
                let outcome = self.leave_out(parent, node.name(), error);
                Self::deliver_to_parent(node, outcome)
            }
            None => {
                self.fail(error.at(node.name()));
                None
            }
        }
    }

    fn list(&self, node: &Node) -> Result<(), FileError> {
        let open = node.directory(&self.descriptors)?;
        let now = self.as_of(now());
        let attributes = Attributes::of_fd(open.as_fd(), self.alias)?;
        let mut listing =
            if node.closed { Listing::default() } else { Listing::read(open.as_fd())? };
        if !self.plan.exclusion.is_empty() {
            let needs_paths = self.plan.exclusion.needs_paths();
            let above = if needs_paths { node.relative_path() } else { Vec::new() };
            listing.retain(|name| !self.plan.exclusion.has(&above, name));
        }
        let opaque = listing.contains(OPAQUE_MARKER.as_bytes())
            || self.plan.opaque.iter().any(|components| node.is_at(components));
        let earlier = match node.memory() {
            Memory::Own(earlier) => Some(earlier),
            Memory::Nothing => None,
            Memory::Cache if node.is_repeated() => {
                self.cache.get_fresh(node.identity()).map(|r| Arc::new(Earlier::new(r)))
            }
            Memory::Cache if self.plan.options.rehash => None,
            Memory::Cache => self.cache.get(node.identity()).map(|r| Arc::new(Earlier::new(r))),
        };
        let previous = match (&earlier, node.parent()) {
            (Some(earlier), _) => earlier.record.top,
            (None, None) => self.plan.previous,
            (None, Some((parent, _))) => {
                match parent.previous_inode(&self.frames, node.name())?.map(|inode| inode.content) {
                    Some(Content::Directory { top, .. }) => top,
                    _ => None,
                }
            }
        };
        self.progress.dirs.fetch_add(1, Ordering::Relaxed);
        node.begin(DirectorySnapshot {
            attributes,
            racy: attributes.is_racy(now),
            opaque,
            listing: Arc::new(listing),
            earlier,
            previous,
        });
        Ok(())
    }

    /// `None`: the directory changed and is read again.
    fn finish(&self, node: &Node, finished: Finished) -> Result<Option<Outcome>, FileError> {
        let Finished { snapshot, record, same, vanished, repeats } = finished;
        let open = node.directory(&self.descriptors)?;
        let print =
            snapshot.attributes.fingerprint(self.frames.iv(), node.name(), &record.content_bytes());
        let above = node.parent().map(|(parent, index)| (parent.snapshot(), index));
        let is_same = above.is_some_and(|(snapshot, index)| {
            snapshot.earlier.is_some_and(|e| e.contains(index, &print))
        });
        let slot = if is_same {
            Slot::Same
        } else {
            let blob = xattrs::read(&self.frames, FileOrName::Open(open.as_fd()))?;
            Slot::New(Box::new(inode(&snapshot.attributes, 0, blob, record.content())))
        };
        if vanished || Attributes::of_fd(open.as_fd(), self.alias)? != snapshot.attributes {
            if repeats < REPEAT_COUNT_MAX {
                self.progress.reread.fetch_add(1, Ordering::Relaxed);
                node.repeat(record);
                return Ok(None);
            }
            // After the last attempt, a tolerant caller gets the latest state.
            let Some((parent, _)) = node.parent() else { return Err(FileError::Changed) };
            self.leave_out(parent, node.name(), FileError::Changed);
        }
        node.reopen_parent(&open, &self.descriptors);
        self.add(&record.counts);
        self.private_count.fetch_add(node.private_count(), Ordering::Relaxed);
        self.cache.put(node.identity(), &record, same);
        if node.parent().is_none() {
            if let Slot::New(inode) = &slot {
                self.add(&Counts {
                    with_xattrs: u64::from(inode.xattrs.size > 0),
                    ..Counts::default()
                });
                *self.root.lock() = Some((**inode).clone());
            }
            return Ok(Some(Outcome::SKIPPED));
        }
        Ok(Some(Outcome {
            slot,
            print: if snapshot.racy { Fingerprint::UNTRUSTED } else { print },
        }))
    }

    /// When the content that is read was current: a live file may have changed since the snapshot
    /// without showing it in its times.
    pub(crate) fn as_of(&self, now: Timestamp) -> Timestamp {
        match &self.plan.options.snapshot {
            Some(snapshot) => {
                Timestamp { s: snapshot.taken_s.unwrap_or(i64::MIN).min(now.s), ns: 0 }
            }
            None => now,
        }
    }

    fn add(&self, counts: &Counts) {
        *self.totals.lock() += counts;
    }

    /// The name is not published: vanished, skipped, or fatal.
    pub(crate) fn leave_out(&self, node: &Node, name: &[u8], error: FileError) -> Outcome {
        if matches!(error, FileError::Vanished) {
            node.set_vanished();
            return Outcome::SKIPPED;
        }
        let path = node.path(Some(name));
        let error = error.at(&path);
        if self.plan.options.skip_unreadable && error.is_skippable() {
            self.skipped_count.fetch_add(1, Ordering::Relaxed);
            let mut skipped = self.skipped.lock();
            if skipped.len() < SKIPPED_COUNT_MAX {
                skipped.push(Skipped { path: printable(&path), why: error.why() });
            }
        } else {
            self.fail(error);
        }
        Outcome::SKIPPED
    }

    pub(crate) fn fail(&self, error: Error) {
        self.error.lock().get_or_insert(error);
        self.failed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.failed.load(Ordering::Relaxed) || self.progress.is_stopped()
    }
}

pub(crate) fn inode(
    attributes: &Attributes,
    link_group: u64,
    xattrs: vouch_tree::Blob,
    content: Content,
) -> Inode {
    Inode {
        mode: attributes.permissions(),
        uid: attributes.uid,
        gid: attributes.gid,
        mtime: attributes.mtime,
        nlink: attributes.nlink,
        link_group,
        xattrs,
        content,
    }
}

fn open_source(
    descriptors: &mut Descriptors,
    options: &Options,
) -> Result<(Node, Attributes), Error> {
    use std::os::unix::ffi::OsStrExt as _;
    let path = options.source.canonicalize().map_err(|e| Error::source_dir(&options.source, e))?;
    let open = descriptors
        .directory(rustix::fs::CWD, path.as_os_str().as_bytes())
        .map_err(|e| Error::source_dir(&options.source, e))?;
    let attributes = |alias| {
        Attributes::of_fd(open.as_fd(), alias).map_err(|t| t.at(path.as_os_str().as_bytes()))
    };
    if let Some(snapshot) = &options.snapshot {
        descriptors.alias =
            DeviceAlias::new(attributes(DeviceAlias::default())?.dev, snapshot.live_device);
    }
    let attributes = attributes(descriptors.alias)?;
    // Without a trailing slash: names are appended.
    let name = options.source.as_os_str().as_bytes();
    let name = name.strip_suffix(b"/").unwrap_or(name);
    Ok((Node::root(name, open, attributes), attributes))
}

/// Entries of a job: worth its overhead, small enough to share.
const CHUNK_LEN: usize = 256;

pub(crate) const REPEAT_COUNT_MAX: u32 = 3;
