use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use vouch_tree::blob::Indirect;
use vouch_tree::directory::InteriorPage;
use vouch_tree::{Blob, BlobBody, BlockHandle, Content, DirEntry, FrameKind, Fsinfo, Inode, frame};
use vouch_tree_store::{FrameSink, FrameSource, Writer};

use super::committed::CommittedRevision;
use super::{PullPhase, PullProgress};
use crate::frame::Frame;
use crate::traversal::{PendingFrame, Visitor};
use crate::{Error, Result};

#[derive(Debug, Clone)]
pub(crate) enum Counterpart {
    None,
    Directory(Arc<Inode>),
    Indirect(BlockHandle),
}

pub(crate) struct PullVisitor {
    writer: Arc<Writer>,
    committed: CommittedRevision,
    committed_root: Counterpart,
    visited: Mutex<HashSet<BlockHandle>>,
    pending_leaves: Mutex<HashSet<BlockHandle>>,
    frames: AtomicU64,
    bytes: AtomicU64,
    present: AtomicU64,
    waiting: AtomicU64,
}

impl PullVisitor {
    pub(crate) fn new(writer: Arc<Writer>, committed: Option<&Fsinfo>) -> Self {
        Self {
            committed: CommittedRevision::new(Arc::clone(&writer)),
            writer,
            committed_root: committed.map_or(Counterpart::None, |fsinfo| {
                Counterpart::Directory(Arc::new(fsinfo.root.clone()))
            }),
            visited: Mutex::default(),
            pending_leaves: Mutex::default(),
            frames: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            present: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
        }
    }

    pub(crate) fn first(&self, root: &Inode) -> Vec<PendingFrame<Counterpart>> {
        if let Counterpart::Directory(committed) = &self.committed_root
            && same_directory(committed, root)
            && committed.xattrs == root.xattrs
        {
            return Vec::new();
        }
        let xattrs = PendingFrame::blob(&root.xattrs, Counterpart::None);
        PendingFrame::directory(root, self.committed_root.clone())
            .into_iter()
            .chain(xattrs)
            .collect()
    }

    pub(crate) fn progress_now(&self, phase: PullPhase) -> PullProgress {
        let frames_done = self.frames.load(Ordering::Relaxed);
        PullProgress {
            phase,
            frames_done,
            frames_known: frames_done + self.waiting.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            frames_present: self.present.load(Ordering::Relaxed),
        }
    }

    fn must_visit(&self, work: &PendingFrame<Counterpart>) -> Result<bool> {
        if work.kind != FrameKind::Leaf {
            return Ok(self.visited.lock().insert(work.handle));
        }
        // A leaf is complete if it is present.
        if self.writer.contains(&work.handle)? {
            self.present.fetch_add(1, Ordering::Relaxed);
            return Ok(false);
        }
        Ok(self.pending_leaves.lock().insert(work.handle))
    }

    fn children_of_entry(
        &self,
        entry: &DirEntry,
        committed_dir: Option<&Inode>,
        found: &mut Vec<PendingFrame<Counterpart>>,
    ) -> Result<()> {
        let inode = &entry.inode;
        let names_frames = PendingFrame::directory(inode, ()).is_some()
            || blob_of(inode).top().is_some()
            || inode.xattrs.top().is_some();
        if !names_frames {
            return Ok(());
        }
        let committed = match committed_dir {
            Some(dir) => self.committed.lookup(dir, entry.name.as_bytes())?,
            None => None,
        };
        match &committed {
            Some(committed) if same_directory(committed, inode) => {}
            _ => {
                let counterpart = committed
                    .clone()
                    .filter(Inode::is_directory)
                    .map_or(Counterpart::None, |dir| Counterpart::Directory(Arc::new(dir)));
                found.extend(PendingFrame::directory(inode, counterpart));
            }
        }
        child_of_blob(blob_of(inode), committed.as_ref().map(blob_of), found);
        child_of_blob(&inode.xattrs, committed.as_ref().map(|committed| &committed.xattrs), found);
        Ok(())
    }

    fn children_of_interior(
        &self,
        page: &InteriorPage,
        committed_dir: Option<&Arc<Inode>>,
        found: &mut Vec<PendingFrame<Counterpart>>,
    ) -> Result<()> {
        for (index, child) in page.children().iter().enumerate() {
            let committed = match (committed_dir, page.page(index)) {
                (Some(dir), Some(pending_leaves)) => {
                    self.committed.has_page(dir, child.first.as_bytes(), &pending_leaves)?
                }
                _ => false,
            };
            if committed {
                self.present.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let counterpart = committed_dir
                .map_or(Counterpart::None, |dir| Counterpart::Directory(Arc::clone(dir)));
            found.push(PendingFrame::page_child(child, page.height(), counterpart));
        }
        Ok(())
    }

    fn children_of_indirect(
        &self,
        page: &Indirect,
        committed: Option<&BlockHandle>,
        found: &mut Vec<PendingFrame<Counterpart>>,
    ) -> Result<()> {
        let committed = match committed {
            Some(handle) => {
                self.committed.indirect(handle)?.filter(|committed| committed.depth == page.depth)
            }
            None => None,
        };
        for (index, child) in page.children.iter().enumerate() {
            let Some(child) = child else { continue };
            let counterpart = committed.as_ref().and_then(|committed| committed.child(index));
            if counterpart.as_ref() != Some(child) {
                found.push(PendingFrame::indirect_child(
                    page.child_kind(),
                    *child,
                    counterpart.map_or(Counterpart::None, Counterpart::Indirect),
                ));
            }
        }
        Ok(())
    }
}

impl Visitor for PullVisitor {
    type Context = Counterpart;

    const DECODES_LEAVES: bool = false;

    fn stored_frame(&self, work: &PendingFrame<Counterpart>) -> Result<Option<Bytes>> {
        if work.kind == FrameKind::Leaf {
            return Ok(None);
        }
        let Some(stored) = self.writer.get(&work.handle)? else { return Ok(None) };
        if let Err(error) = frame::verify(&self.writer.iv(), &work.handle, &stored) {
            return Err(Error::Damaged {
                what: format!("the database {}: {error}", self.writer.path().display()),
            });
        }
        self.present.fetch_add(1, Ordering::Relaxed);
        Ok(Some(Bytes::from(stored)))
    }

    fn fetched(&self, work: &PendingFrame<Counterpart>, stored: &Bytes) -> Result<()> {
        self.writer.put(&work.handle, stored)?;
        self.frames.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(stored.len() as u64, Ordering::Relaxed);
        if work.kind == FrameKind::Leaf {
            self.pending_leaves.lock().remove(&work.handle);
        }
        Ok(())
    }

    fn children(
        &self,
        work: &PendingFrame<Counterpart>,
        frame: &Frame,
    ) -> Result<Vec<PendingFrame<Counterpart>>> {
        let mut found = Vec::new();
        let committed_dir = match &work.context {
            Counterpart::Directory(dir) => Some(dir),
            _ => None,
        };
        match frame {
            Frame::DirLeaf(page) => {
                for entry in page.entries() {
                    self.children_of_entry(entry, committed_dir.map(|dir| &**dir), &mut found)?;
                }
            }
            Frame::DirInterior(page) => {
                self.children_of_interior(page, committed_dir, &mut found)?
            }
            Frame::Indirect(page) => match &work.context {
                Counterpart::Indirect(committed) => {
                    self.children_of_indirect(page, Some(committed), &mut found)?
                }
                _ => self.children_of_indirect(page, None, &mut found)?,
            },
            Frame::Leaf(_) | Frame::Fsinfo(_) => {}
        }
        let mut pending_leaves = Vec::with_capacity(found.len());
        for work in found {
            if self.must_visit(&work)? {
                pending_leaves.push(work);
            }
        }
        Ok(pending_leaves)
    }

    fn failed(&self, _: &PendingFrame<Counterpart>, error: Error) -> Result<()> {
        Err(error)
    }

    fn progress(&self, waiting: u64) {
        self.waiting.store(waiting, Ordering::Relaxed);
    }
}

fn child_of_blob(
    blob: &Blob,
    committed: Option<&Blob>,
    found: &mut Vec<PendingFrame<Counterpart>>,
) {
    if committed.is_some_and(|committed| committed.top().is_some() && committed.top() == blob.top())
    {
        return;
    }
    let counterpart = match (committed.map(|committed| &committed.body), &blob.body) {
        (Some(BlobBody::Tree { depth: committed_depth, top }), BlobBody::Tree { depth, .. })
            if committed_depth == depth =>
        {
            Counterpart::Indirect(*top)
        }
        _ => Counterpart::None,
    };
    found.extend(PendingFrame::blob(blob, counterpart));
}

fn blob_of(inode: &Inode) -> &Blob {
    static EMPTY: Blob = Blob::empty();
    match &inode.content {
        Content::Regular { blob, .. } => blob,
        _ => &EMPTY,
    }
}

fn same_directory(committed: &Inode, inode: &Inode) -> bool {
    match (&committed.content, &inode.content) {
        (Content::Directory { top: committed, .. }, Content::Directory { top, .. }) => {
            committed == top
        }
        _ => false,
    }
}
