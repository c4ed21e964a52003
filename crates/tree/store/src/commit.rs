//! Packs first, then segments, then the names of both, then the manifest: all that a manifest names
//! is durable before it.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;
use vouch_tree::statement::OFFERED_LEN_MAX;
use vouch_xdr::Xdr as _;

use crate::index::{Entry, Index, Position, Run, merge};
use crate::manifest::{self, Manifest, Revision, SegmentMeta};
use crate::pack_stream::{PackStream, Unsynced};
use crate::retention::Retention;
use crate::segment::{Segment, SegmentWriter};
use crate::writer::{NewRevision, RunIndex, Writer};
use crate::{Error, FrameSink, PutCounts, Result};

pub(crate) type RetainFn<'a> = dyn Fn(Position, &Entry) -> Result<bool> + 'a;

pub(crate) struct Sweep<'a> {
    /// `None` keeps all.
    pub(crate) retains: Option<&'a RetainFn<'a>>,
    pub(crate) packs: HashSet<u32>,
}

impl Writer {
    /// On return the revision is durable and complete; readers see it at their next refresh.
    ///
    /// # Errors
    ///
    /// [`Error::RevisionOrder`], [`Error::Incomplete`] and [`Error::Limit`] change nothing. After
    /// others the writer is unusable.
    pub fn commit(&self, revision: NewRevision) -> Result<PutCounts> {
        self.commit_revisions(None, revision)
    }

    /// Readers see both at once. `earlier` follows the newest one.
    pub fn commit_after(&self, earlier: Revision, revision: NewRevision) -> Result<PutCounts> {
        self.commit_revisions(Some(earlier), revision)
    }

    fn commit_revisions(
        &self,
        earlier: Option<Revision>,
        revision: NewRevision,
    ) -> Result<PutCounts> {
        self.check_unbroken()?;
        check_limits(&revision)?;
        let mut committed = self.committed.lock();
        let newest = committed.revisions.last().map(|r| r.number);
        if let Some(newest) =
            newest.filter(|newest| revision.number <= *newest && !revision.supersedes)
        {
            return Err(Error::RevisionOrder { newest, offered: revision.number });
        }
        for handle in revision
            .companions
            .iter()
            .chain([&revision.fsinfo])
            .chain(earlier.iter().map(|earlier| &earlier.fsinfo))
        {
            if !self.contains(handle)? {
                return Err(Error::Incomplete { number: revision.number, handle: *handle });
            }
        }
        let mut next = committed.clone();
        let NewRevision {
            number,
            start,
            fsinfo,
            signed,
            tag,
            companions,
            keep,
            supersedes,
            evidence,
        } = revision;
        // Earlier evidence needs the certificate of the earlier head.
        let evidence = evidence.map(Arc::from).or_else(|| next.evidence().cloned());
        if supersedes {
            next.revisions.retain(|r| r.number < number);
        }
        for tag in [&tag, &earlier.as_ref().and_then(|earlier| earlier.tag.clone())] {
            next.revisions
                .iter_mut()
                .filter(|r| tag.is_some() && r.tag == *tag)
                .for_each(|r| r.tag = None);
        }
        next.revisions.extend(earlier);
        next.head = Some(Arc::from(signed));
        if let Some(evidence) = evidence {
            next.set_evidence(&evidence);
        }
        next.companions = companions;
        next.revisions.push(Revision { number, start, fsinfo, tag });
        if let Some(keep) = keep {
            Retention::from(keep).apply(&mut next.revisions);
        }
        check_limit("kept revisions", next.revisions.len(), manifest::REVISION_COUNT_MAX)?;
        self.write_generation(&mut committed, next, None)?;
        Ok(self.counts.take())
    }

    /// Without a new revision: a killed run need not repeat these frames.
    pub fn checkpoint(&self) -> Result<()> {
        self.check_unbroken()?;
        let mut committed = self.committed.lock();
        let next = committed.clone();
        self.write_generation(&mut committed, next, None)
    }

    /// The statements are sent to clients instead of earlier ones. The evidence of the log stays.
    pub fn set_statements(&self, statements: Vec<Vec<u8>>) -> Result<()> {
        self.check_unbroken()?;
        // The evidence has a place of its own.
        check_limit("statements", statements.len(), manifest::STATEMENT_COUNT_MAX - 1)?;
        for statement in &statements {
            check_limit("bytes of a statement", statement.len(), manifest::STATEMENT_LEN_MAX)?;
        }
        let mut committed = self.committed.lock();
        let mut next = committed.clone();
        next.set_key_statements(statements);
        self.write_generation(&mut committed, next, None)
    }

    /// False if no revision has the tag. The next `keep` that reaches the revision drops it.
    pub fn drop_tag(&self, tag: &str) -> Result<bool> {
        self.check_unbroken()?;
        let mut committed = self.committed.lock();
        let mut next = committed.clone();
        let Some(revision) = next.revisions.iter_mut().find(|r| r.tag.as_deref() == Some(tag))
        else {
            return Ok(false);
        };
        revision.tag = None;
        self.write_generation(&mut committed, next, None)?;
        Ok(true)
    }

    /// Keeps the tagged revisions and those of the policy. A collection frees the space of the
    /// others.
    pub fn retain(&self, policy: impl Into<Retention>) -> Result<usize> {
        self.check_unbroken()?;
        let mut committed = self.committed.lock();
        let mut next = committed.clone();
        policy.into().apply(&mut next.revisions);
        let dropped = committed.revisions.len() - next.revisions.len();
        if dropped > 0 {
            self.write_generation(&mut committed, next, None)?;
        }
        Ok(dropped)
    }

    pub(crate) fn write_generation(
        &self,
        committed: &mut Manifest,
        mut next: Manifest,
        sweep: Option<&Sweep<'_>>,
    ) -> Result<()> {
        let mut streams = self.streams.each_ref().map(|stream| stream.lock());
        let obsolete = self.break_on_error(self.make_durable(&mut streams, &mut next, sweep))?;
        next.generation += 1;
        next.next_pack = self.file_factory.next_pack.load(Ordering::Relaxed);
        next.next_segment = self.file_factory.next_segment.load(Ordering::Relaxed);
        self.break_on_error(self.sync_log_dirs())?;
        self.break_on_error(self.record_garbage(committed, &next))?;
        let is_final = next.is_signed_after(committed);
        self.break_on_error(next.write(
            &self.file_factory.layout,
            &*self.file_factory.disk,
            is_final,
        ))?;
        self.note_committed(committed, &next);
        self.follow_log(committed, &next);
        self.remove_obsolete(committed, sweep, &obsolete);
        *committed = next;
        Ok(())
    }

    fn make_durable(
        &self,
        streams: &mut [MutexGuard<'_, PackStream>; 2],
        next: &mut Manifest,
        sweep: Option<&Sweep<'_>>,
    ) -> Result<Vec<Arc<Segment>>> {
        let file_factory = &self.file_factory;
        let mut sealed = Vec::new();
        let mut unsynced = std::mem::take(&mut *self.unsynced_log.lock());
        for stream in streams.iter_mut() {
            stream.seal(file_factory)?;
            unsynced.extend(stream.take_unsynced());
            sealed.append(&mut stream.sealed);
        }
        let has_packs = !sealed.is_empty();
        check_limit("packs", next.packs.len() + sealed.len(), manifest::PACK_COUNT_MAX)?;
        next.packs.append(&mut sealed);
        next.packs.sort_by_key(|pack| pack.id);
        let mut fresh: Vec<Entry> =
            streams.iter().flat_map(|stream| stream.fresh_entries()).collect();
        fresh.sort_unstable_by_key(|entry| entry.handle);
        let old = self.index.read().clone();
        next.packs.retain(|pack| sweep.is_none_or(|sweep| !sweep.packs.contains(&pack.id)));
        let obsolete = match sweep.and_then(|sweep| sweep.retains) {
            Some(retains) => self.replace_segments(&fresh, 0, retains)?,
            None if fresh.is_empty() => Vec::new(),
            None => {
                self.replace_segments(&fresh, old.index.merge_from(0, fresh.len()), &|_, _| {
                    Ok(true)
                })?
            }
        };
        streams.iter_mut().for_each(|stream| stream.fresh.clear());
        unsynced.append(&mut self.unsynced_segments()?);
        Unsynced::sync_all(&unsynced)?;
        if has_packs {
            file_factory
                .disk
                .sync_dir(&file_factory.layout.packs())
                .map_err(Error::io("sync", &file_factory.layout.packs()))?;
        }
        self.name_segments(next)?;
        Ok(obsolete)
    }

    /// Those that the manifest names are durable already.
    fn unsynced_segments(&self) -> Result<Vec<Unsynced>> {
        let file_factory = &self.file_factory;
        let index = self.index.read();
        let segments = index.index.segments.iter().skip(index.committed).map(|segment| {
            let path = file_factory.layout.segment(segment.id());
            let file = file_factory.disk.reopen(&path).map_err(Error::io("sync", &path))?;
            Ok(Unsynced { path, file })
        });
        segments.collect()
    }

    fn name_segments(&self, next: &mut Manifest) -> Result<()> {
        let file_factory = &self.file_factory;
        let mut index = self.index.write();
        let segments = &index.index.segments;
        let metas: Vec<_> =
            segments.iter().map(|s| SegmentMeta { id: s.id(), count: s.len() as u64 }).collect();
        if metas != next.segments {
            file_factory
                .disk
                .sync_dir(&file_factory.layout.index())
                .map_err(Error::io("sync", &file_factory.layout.index()))?;
            next.segments = metas;
        }
        let committed = segments.len();
        *index = Arc::new(RunIndex {
            index: index.index.clone(),
            committed,
            version: index.version + 1,
        });
        Ok(())
    }

    /// Moves committed packs of a bucket to the cache.
    fn note_committed(&self, before: &Manifest, now: &Manifest) {
        let Some(bucket) = self.file_factory.layout.bucket() else { return };
        let known: HashSet<u32> = before.packs.iter().map(|pack| pack.id).collect();
        for pack in now.packs.iter().filter(|pack| !known.contains(&pack.id)) {
            let path = self.file_factory.layout.pack(pack.class, pack.id);
            if let Err(error) = bucket.note_committed(&path) {
                tracing::warn!(path = %path.display(), %error, "a pack could not be moved to the cache");
            }
        }
    }

    /// Removes replaced segments that no manifest has named; of a bucket, local copies of all.
    fn remove_obsolete(
        &self,
        committed: &Manifest,
        sweep: Option<&Sweep<'_>>,
        obsolete: &[Arc<Segment>],
    ) {
        let file_factory = &self.file_factory;
        let is_bucket = file_factory.layout.bucket().is_some();
        let was_named = |id: u32| committed.segments.iter().any(|segment| segment.id == id);
        for segment in obsolete.iter().filter(|segment| is_bucket || !was_named(segment.id())) {
            let path = file_factory.layout.segment(segment.id());
            if let Err(error) = file_factory.disk.remove(&path) {
                tracing::warn!(path = %path.display(), %error, "an old file could not be removed");
            }
        }
        if let Some(sweep) = sweep {
            self.files.retain(|id| !sweep.packs.contains(&id));
        }
    }

    /// Moves new records to a segment, to bound memory. The caller holds the stream's lock.
    pub(crate) fn spill(&self, stream: &mut PackStream) -> Result<()> {
        let mut fresh = stream.fresh_entries();
        fresh.sort_unstable_by_key(|entry| entry.handle);
        let one_at_a_time = self.index_edit.lock();
        let old = self.index.read().clone();
        let replaced = self.replace_segments(
            &fresh,
            old.index.merge_from(old.committed, fresh.len()),
            &|_, _| Ok(true),
        )?;
        drop(one_at_a_time);
        stream.fresh.clear();
        for segment in replaced {
            let path = self.file_factory.layout.segment(segment.id());
            self.file_factory.disk.remove(&path).map_err(Error::io("remove", &path))?;
        }
        Ok(())
    }

    fn replace_segments(
        &self,
        fresh: &[Entry],
        keep: usize,
        retains: &RetainFn<'_>,
    ) -> Result<Vec<Arc<Segment>>> {
        let file_factory = &self.file_factory;
        let old = self.index.read().clone();
        let mut segments = old.index.segments.clone();
        let replaced = segments.split_off(keep);
        // Later readers trust the copy: verify first.
        replaced.iter().try_for_each(|segment| segment.verify())?;
        let mut runs: Vec<Run<'_>> = replaced.iter().map(|segment| Run::Segment(segment)).collect();
        runs.push(Run::Fresh(fresh));
        let id = file_factory.take_number(&file_factory.next_segment)?;
        let path = file_factory.layout.segment(id);
        let mut out = SegmentWriter::create(&*file_factory.disk, &path)?;
        let of_fresh = replaced.len();
        merge(&runs, &mut out, |run, at, entry| {
            if run == of_fresh {
                Ok(true)
            } else {
                retains(Position { segment: keep + run, at }, entry)
            }
        })?;
        if out.count() == 0 {
            file_factory.disk.remove(&path).map_err(Error::io("remove", &path))?;
        } else {
            out.finish()?;
            segments.push(Arc::new(Segment::open(&path, id)?));
        }
        let committed = old.committed.min(keep);
        let index = Index { segments };
        *self.index.write() = Arc::new(RunIndex { index, committed, version: old.version + 1 });
        Ok(replaced)
    }
}

fn check_limits(revision: &NewRevision) -> Result<()> {
    check_limit("bytes of a signed fsinfo", revision.signed.len(), manifest::HEAD_LEN_MAX)?;
    check_limit(
        "bytes of a tag",
        revision.tag.as_ref().map_or(0, String::len),
        manifest::TAG_LEN_MAX,
    )?;
    if let Some(evidence) = &revision.evidence {
        check_limit("bytes of evidence", evidence.to_xdr().len(), OFFERED_LEN_MAX)?;
    }
    check_limit("companions", revision.companions.len(), manifest::COMPANION_COUNT_MAX)
}

pub(crate) fn check_limit(what: &'static str, found: usize, max: usize) -> Result<()> {
    if found > max {
        Err(Error::Limit { what, found: found as u64, max: max as u64 })
    } else {
        Ok(())
    }
}
