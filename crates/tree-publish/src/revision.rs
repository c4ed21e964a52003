//! A publication from start to end.

use std::time::Instant;

use vouch_tree::fsinfo::TAG_LEN_MAX;
use vouch_tree::time_text::Utc;
use vouch_tree::{BlockHandle, FrameKind, Fsinfo, SignedFsinfo, frame};
use vouch_tree_store::{FrameSink as _, NewRevision, PutCounts, Writer};
use vouch_xdr::Xdr as _;

use crate::cache::Cache;
use crate::error::Error;
use crate::frames::Frames;
use crate::options::{Options, Progress, Signer, Summary};
use crate::walk::{Found, Walk, opaque_components};

/// Blocks, and uses its own threads. Repeatable after an error: stored frames serve the next run.
pub fn publish(writer: &Writer, signer: &Signer<'_>, options: &Options, progress: &Progress) -> Result<Summary, Error> {
    let began = Instant::now();
    let before = Head::read(writer)?;
    if *options.name.hostid() != writer.hostid() {
        return Err(Error::Option(format!("the name {} is not of this database, whose HOSTID is {}", options.name, writer.hostid())));
    }
    check_options(options)?;
    check_key(writer, signer, options, before.as_ref())?;
    let cache = Cache::open(&writer.publisher_dir()?, before.as_ref().map(|head| &head.handle), options.rehash);
    let frames = Frames::new(writer, options.level);
    let found = Walk::run(frames, options, progress, &cache, identity_of(writer))?;
    if progress.is_stopped() {
        return Err(Error::Stopped);
    }
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
    let (handle, counts) = commit(writer, signer, options, &fsinfo)?;
    cache.commit(&handle, found.counts.directories);
    Ok(summary(writer, signer, options, progress, &fsinfo, found, counts, began))
}

struct Head {
    fsinfo: Fsinfo,
    cert_serial: u64,
    handle: BlockHandle,
}

impl Head {
    fn read(writer: &Writer) -> Result<Option<Self>, Error> {
        let (Some(bytes), Some(last)) = (writer.head(), writer.revisions().pop()) else { return Ok(None) };
        let signed = SignedFsinfo::from_xdr(&bytes).map_err(Error::Head)?;
        let fsinfo = signed.unverified().map_err(Error::Head)?;
        Ok(Some(Self { fsinfo, cert_serial: signed.cert().serial, handle: last.fsinfo }))
    }
}

pub fn check_options(options: &Options) -> Result<(), Error> {
    opaque_components(options)?;
    if options.tag.as_ref().is_some_and(|tag| tag.is_empty() || tag.len() > TAG_LEN_MAX || tag.chars().any(char::is_control)) {
        return Err(Error::Option(format!("a tag has 1 to {TAG_LEN_MAX} bytes and no control characters")));
    }
    if options.duration_s == 0 {
        return Err(Error::Option("a revision must be valid for a second at least".to_owned()));
    }
    if options.keep == Some(0) {
        return Err(Error::Option("at least one revision is kept".to_owned()));
    }
    if !(0..=LEVEL_MAX).contains(&options.level) {
        return Err(Error::Option(format!("the level of compression is 0 to {LEVEL_MAX}")));
    }
    Ok(())
}

fn check_key(writer: &Writer, signer: &Signer<'_>, options: &Options, before: Option<&Head>) -> Result<(), Error> {
    if let Some(reason) = writer.revocation() {
        return Err(Error::Revoked { reason });
    }
    let cert = &signer.cert;
    let start = options.start;
    if !cert.is_signed_by(&writer.hostid()) {
        return Err(Error::Key(format!("the signing key's certificate is not by the root key of {}", writer.hostid())));
    }
    if signer.key.public() != cert.signing {
        return Err(Error::Key("the signing key differs from the key in its certificate".to_owned()));
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
        if start < head.fsinfo.start && !options.clock_was_ahead {
            return Err(Error::Clock { revision: head.fsinfo.revision, start: head.fsinfo.start, now: start });
        }
    }
    Ok(())
}

fn commit(writer: &Writer, signer: &Signer<'_>, options: &Options, fsinfo: &Fsinfo) -> Result<(BlockHandle, PutCounts), Error> {
    let signed = SignedFsinfo::sign(fsinfo, signer.key, signer.cert).to_xdr();
    let stored = frame::build(FrameKind::Fsinfo, &signed, 0);
    let handle = writer.iv().handle_of(&stored);
    writer.put(&handle, &stored)?;
    let counts = writer.commit(NewRevision {
        number: fsinfo.revision,
        start: i64::try_from(fsinfo.start).unwrap_or(i64::MAX),
        fsinfo: handle,
        signed,
        tag: options.tag.clone(),
        companions: vouch_tree_store::companions(writer, &fsinfo.root)?,
        keep: options.keep,
        supersedes: false,
    })?;
    Ok((handle, counts))
}

fn identity_of(writer: &Writer) -> Option<(u64, u64)> {
    let stat = rustix::fs::stat(writer.path()).ok()?;
    Some((stat.st_dev, stat.st_ino))
}

#[allow(clippy::too_many_arguments, reason = "the checksum of the publication")]
fn summary(
    writer: &Writer,
    signer: &Signer<'_>,
    options: &Options,
    progress: &Progress,
    fsinfo: &Fsinfo,
    found: Found,
    put: PutCounts,
    began: Instant,
) -> Summary {
    use std::sync::atomic::Ordering::Relaxed;
    let mut skipped = found.skipped;
    skipped.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    Summary {
        name: options.name.clone(),
        revision: fsinfo.revision,
        expires: fsinfo.end().min(signer.cert.not_after),
        counts: found.counts,
        new_bytes: put.new_bytes,
        shared_bytes: put.shared_bytes,
        new_frames: put.new_frames,
        shared_frames: put.shared_frames,
        files_read: progress.files_read.load(Relaxed),
        bytes_read: progress.bytes_read(),
        reread: progress.reread.load(Relaxed),
        adopted_bytes: writer.adopted().new_bytes,
        skipped,
        skipped_count: found.skipped_count,
        elapsed: began.elapsed(),
    }
}

const LEVEL_MAX: i32 = 19;
