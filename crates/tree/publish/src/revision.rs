//! A publication from start to end.

use std::sync::atomic::Ordering;
use std::time::Instant;

use vouch_tree::blob::INLINE_LEN_MAX;
use vouch_tree::fsinfo::{MESSAGE_XATTR, TAG_LEN_MAX};
use vouch_tree::time_text::Utc;
use vouch_tree::xattr::Xattrs;
use vouch_tree::{
    Blob, BlobBody, BlockHandle, Content, Counts, FrameKind, Fsinfo, Inode, SignedFsinfo, frame,
};
use vouch_tree_store::{FrameSink as _, NewRevision, Pending, PutCounts, Revision, Writer};
use vouch_xdr::Xdr as _;

use crate::cache::Cache;
use crate::error::Error;
use crate::frames::Frames;
use crate::log::LogPublisher;
use crate::options::{DeletionMax, Options, Progress, RefusePrivate, Signer, Summary};
use crate::plan::Plan;
use crate::printable::printable;
use crate::walk::{Walk, WalkResult};

/// Blocks, and uses its own threads. Repeatable after an error: stored frames serve the next run.
pub fn publish(
    writer: &Writer,
    signer: &Signer<'_>,
    options: &Options,
    progress: &Progress,
) -> Result<Summary, Error> {
    publish_found(writer, signer, options, progress, true, |frames, plan, cache| {
        Walk::run(frames, plan, progress, cache)
    })
}

/// Publishes the tree that `find` stores.
pub(crate) fn publish_found<E: From<Error>>(
    writer: &Writer,
    signer: &Signer<'_>,
    options: &Options,
    progress: &Progress,
    has_cache: bool,
    find: impl FnOnce(Frames<'_>, &Plan<'_>, &Cache) -> Result<WalkResult, E>,
) -> Result<Summary, E> {
    let began = Instant::now();
    let log = options.log.as_deref();
    if !options.is_dry_run {
        settle_pending(writer, log)?;
    }
    let before = Head::read(writer)?;
    if *options.name.hostid() != writer.hostid() {
        return Err(Error::Option(format!(
            "the name {} is not of this database, whose HOSTID is {}",
            options.name,
            writer.hostid()
        ))
        .into());
    }
    let plan = Plan::new(options)?;
    check_key(writer, signer, options.start, options.clock_was_ahead, before.as_ref())?;
    check_log(writer, signer, log, options.start)?;
    let is_new = options.is_dry_run && !writer.path().join("publisher").exists();
    let cache = match has_cache && !is_new {
        false => Cache::none(),
        true => Cache::open(
            &writer.publisher_dir().map_err(Error::from)?,
            before.as_ref().map(|head| &head.handle),
            options.rehash,
        ),
    };
    let frames = Frames::new(writer, options.level, options.is_dry_run);
    let previous = before.as_ref().and_then(|head| match &head.fsinfo.root.content {
        Content::Directory { top, .. } => *top,
        _ => None,
    });
    let refuses_private = match options.refuse_private {
        RefusePrivate::Never => false,
        RefusePrivate::First => before.is_none(),
        RefusePrivate::Always => true,
    };
    let plan = Plan { database: identity_of(writer), previous, refuses_private, ..plan };
    let mut found = find(frames, &plan, &cache)?;
    if progress.is_stopped() {
        return Err(Error::Stopped.into());
    }
    if let (true, Some(example)) = (refuses_private, found.private_example.clone()) {
        return Err(Error::PrivateFiles { example, count: found.private_count }.into());
    }
    check_deleted(options, &found.counts, before.as_ref())?;
    found.counts.with_xattrs -= u64::from(found.root.xattrs.size > 0);
    set_message(&mut found.root, options.message.as_deref())?;
    found.counts.with_xattrs += u64::from(found.root.xattrs.size > 0);
    let deleted_files = before
        .as_ref()
        .map_or(0, |head| files_of(&head.fsinfo.counts).saturating_sub(files_of(&found.counts)));
    let fsinfo = Fsinfo {
        hostid: writer.hostid(),
        revision: before.as_ref().map_or(1, |head| head.fsinfo.revision + 1),
        start: options.start,
        duration_s: options.duration_s,
        iv: writer.iv(),
        root: found.root.clone(),
        previous: before.as_ref().map(|head| head.handle),
        counts: found.counts,
        tag: options.tag.clone().unwrap_or_default(),
    };
    let (put, is_visible) = match found.counted {
        Some(counted) => (counted, true),
        None => {
            let committed = commit(writer, signer, &fsinfo, options.keep, None, log)?;
            cache.commit(&committed.handle, found.counts.directories);
            (committed.counts, committed.is_visible)
        }
    };
    found.skipped.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    Ok(Summary {
        name: options.name.clone(),
        revision: fsinfo.revision,
        is_visible,
        expires: fsinfo.end().min(signer.cert.not_after),
        counts: found.counts,
        new_bytes: put.new_bytes,
        shared_bytes: put.shared_bytes,
        new_frames: put.new_frames,
        shared_frames: put.shared_frames,
        files_read: progress.files_read.load(Ordering::Relaxed),
        bytes_read: progress.bytes_read(),
        reread: progress.reread.load(Ordering::Relaxed),
        adopted_bytes: writer.adopted().new_bytes,
        skipped: found.skipped,
        skipped_count: found.skipped_count,
        private_count: found.private_count,
        private_example: found.private_example,
        deleted_files,
        end_wanted: Some(fsinfo.end()).filter(|end| *end > signer.cert.not_after),
        elapsed: began.elapsed(),
    })
}

fn files_of(counts: &Counts) -> u64 {
    counts.files + counts.symlinks + counts.others
}

fn check_deleted(options: &Options, now: &Counts, before: Option<&Head>) -> Result<(), Error> {
    let (Some(head), Some(max)) = (before, options.deletion_max) else { return Ok(()) };
    let (before, left) = (files_of(&head.fsinfo.counts), files_of(now));
    let deleted = before.saturating_sub(left);
    let is_too_many = match max {
        DeletionMax::Files(max) => deleted > max,
        DeletionMax::Percent(max) => {
            (deleted >= DELETED_COUNT_MIN || left == 0)
                && u128::from(deleted) * 100 > u128::from(before) * u128::from(max)
        }
    };
    if is_too_many {
        let path = printable(options.source.as_os_str().as_encoded_bytes());
        return Err(Error::Deleted { path, deleted, before, revision: head.fsinfo.revision });
    }
    Ok(())
}

/// Replaces the message that the root has: the source may be a copy of a published tree.
pub(crate) fn set_message(root: &mut Inode, message: Option<&str>) -> Result<(), Error> {
    let BlobBody::Inline(bytes) = &root.xattrs.body else {
        let too_many = "the directory has too many extended attributes for a message";
        return if message.is_some() { Err(Error::Option(too_many.to_owned())) } else { Ok(()) };
    };
    let old = if bytes.is_empty() {
        Xattrs::new(Vec::new())
    } else {
        Xattrs::from_xdr(bytes).map_err(Error::Head)?
    };
    let mut pairs: Vec<_> =
        old.pairs().iter().filter(|(name, _)| name != MESSAGE_XATTR).cloned().collect();
    pairs.extend(message.map(|message| (MESSAGE_XATTR.to_vec(), message.as_bytes().to_vec())));
    let bytes = if pairs.is_empty() { Vec::new() } else { Xattrs::new(pairs).to_xdr() };
    if bytes.len() > INLINE_LEN_MAX {
        return Err(Error::Option(
            "the message and the extended attributes of the directory are too long together"
                .to_owned(),
        ));
    }
    root.xattrs = Blob { size: bytes.len() as u64, body: BlobBody::Inline(bytes) };
    Ok(())
}

pub(crate) struct Head {
    pub(crate) fsinfo: Fsinfo,
    cert_serial: u64,
    pub(crate) handle: BlockHandle,
}

impl Head {
    pub(crate) fn read(writer: &Writer) -> Result<Option<Self>, Error> {
        let (Some(bytes), Some(last)) = (writer.head(), writer.revisions().pop()) else {
            return Ok(None);
        };
        let signed = SignedFsinfo::from_xdr(&bytes).map_err(Error::Head)?;
        let fsinfo = signed.unverified().map_err(Error::Head)?;
        Ok(Some(Self { fsinfo, cert_serial: signed.cert().serial, handle: last.fsinfo }))
    }
}

pub(crate) fn check_tag(tag: &str) -> Result<(), Error> {
    if tag.is_empty() || tag.len() > TAG_LEN_MAX || tag.chars().any(char::is_control) {
        return Err(Error::Option(format!(
            "a tag has 1 to {TAG_LEN_MAX} bytes and no control characters"
        )));
    }
    Ok(())
}

pub(crate) fn check_message(message: &str) -> Result<(), Error> {
    if message.is_empty()
        || message.len() > MESSAGE_LEN_MAX
        || message.chars().any(char::is_control)
    {
        return Err(Error::Option(format!(
            "a message has 1 to {MESSAGE_LEN_MAX} bytes and no control characters"
        )));
    }
    Ok(())
}

pub(crate) fn check_key(
    writer: &Writer,
    signer: &Signer<'_>,
    start: u64,
    clock_was_ahead: bool,
    before: Option<&Head>,
) -> Result<(), Error> {
    if let Some(reason) = writer.revocation() {
        return Err(Error::Revoked { reason });
    }
    let cert = &signer.cert;
    if !cert.is_signed_by(&writer.hostid()) {
        return Err(Error::Key(format!(
            "the signing key's certificate is not by the root key of {}",
            writer.hostid()
        )));
    }
    if signer.key.public() != cert.signing {
        return Err(Error::Key(
            "the signing key differs from the key in its certificate".to_owned(),
        ));
    }
    if start < cert.not_before || start >= cert.not_after {
        return Err(Error::Key(format!(
            "the signing key's certificate is valid from {} to {}, and the time is {}; certify a signing key with the root key",
            Utc(cert.not_before),
            Utc(cert.not_after),
            Utc(start)
        )));
    }
    if let Some(head) = before {
        if cert.serial < head.cert_serial {
            return Err(Error::Key(format!(
                "certificate {} has replaced certificate {} of this signing key",
                head.cert_serial, cert.serial
            )));
        }
        if start < head.fsinfo.start && !clock_was_ahead {
            return Err(Error::Clock {
                revision: head.fsinfo.revision,
                start: head.fsinfo.start,
                now: start,
            });
        }
    }
    Ok(())
}

/// A revision that a killed run has left, or that was held.
pub(crate) fn settle_pending(writer: &Writer, log: Option<&LogPublisher>) -> Result<(), Error> {
    match log {
        Some(log) => log.settle_pending(writer),
        // The check of the log's key follows.
        None => Ok(()),
    }
}

/// A revision outside the log would be refused by readers who demand the log.
pub(crate) fn check_log(
    writer: &Writer,
    signer: &Signer<'_>,
    log: Option<&LogPublisher>,
    now: u64,
) -> Result<(), Error> {
    let serial = signer.cert.serial;
    let has_demand =
        |log: &LogPublisher| log.cert.policy().is_some() && log.cert.serial() >= serial;
    if signer.cert.is_witnessed && !log.is_some_and(has_demand) {
        return Err(Error::Key(format!(
            "the signing key's certificate {serial} demands witnesses, and the key directory has no log.cert of that number; use files from one run of `vouch certify`"
        )));
    }
    let is_together =
        |log: &LogPublisher| log.cert.signing_cert().is_none_or(|signing| *signing == signer.cert);
    match log {
        Some(log) if !is_together(log) => Err(Error::Key(format!(
            "log.cert belongs to another certificate than the signing key's, {serial}; use files from one run of `vouch certify`"
        ))),
        Some(log) => log.check(writer, now),
        None if writer.evidence()?.is_some() || writer.pending()?.is_some() => Err(Error::Key(
            "this tree has a log of its revisions, and the key directory has no log.key and log.cert; bring them, or make new ones with `vouch certify`".to_owned(),
        )),
        None => Ok(()),
    }
}

/// `earlier`: an older revision of the same commit, and its signed fsinfo.
pub(crate) fn commit(
    writer: &Writer,
    signer: &Signer<'_>,
    fsinfo: &Fsinfo,
    keep: Option<usize>,
    earlier: Option<(Revision, Vec<u8>)>,
    log: Option<&LogPublisher>,
) -> Result<Committed, Error> {
    let (handle, signed) = put_signed(writer, signer, fsinfo)?;
    let append = |log: &LogPublisher| {
        let earlier = earlier.iter().map(|(_, signed)| &signed[..]);
        let revisions: Vec<&[u8]> = earlier.chain([&signed[..]]).collect();
        log.append(writer, &revisions, fsinfo.start)
    };
    let evidence = log.map(append).transpose()?.map(Box::new);
    let revision = NewRevision {
        number: fsinfo.revision,
        start: i64::try_from(fsinfo.start).unwrap_or(i64::MAX),
        fsinfo: handle,
        signed,
        tag: Some(fsinfo.tag.clone()).filter(|tag| !tag.is_empty()),
        companions: vouch_tree_store::companions(writer, &fsinfo.root)?,
        keep,
        supersedes: false,
        evidence,
    };
    let pending = Pending { revision, earlier: earlier.map(|(earlier, _)| earlier) };
    let (counts, is_visible) = match log {
        Some(log) => log.commit(writer, pending)?,
        None => (writer.commit_pending(pending)?, true),
    };
    Ok(Committed { handle, counts, is_visible })
}

/// A commit of [`commit`].
pub(crate) struct Committed {
    pub(crate) handle: BlockHandle,
    pub(crate) counts: PutCounts,
    /// False: it waits for witnesses.
    pub(crate) is_visible: bool,
}

pub(crate) fn put_signed(
    writer: &Writer,
    signer: &Signer<'_>,
    fsinfo: &Fsinfo,
) -> Result<(BlockHandle, Vec<u8>), Error> {
    let signed = SignedFsinfo::sign(fsinfo, signer.key, signer.cert.clone()).to_xdr();
    let stored = frame::build(FrameKind::Fsinfo, &signed, 0);
    let handle = writer.iv().handle_of(&stored);
    writer.put(&handle, &stored)?;
    Ok((handle, signed))
}

fn identity_of(writer: &Writer) -> Option<(u64, u64)> {
    let stat = rustix::fs::stat(writer.path()).ok()?;
    Some((stat.st_dev, stat.st_ino))
}

/// Fewer deleted files are no accident.
const DELETED_COUNT_MIN: u64 = 10;

const MESSAGE_LEN_MAX: usize = 512;
