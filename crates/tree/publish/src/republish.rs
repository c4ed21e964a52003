//! A new revision with the content of a kept one: a rollback, or a tag that moves.

use std::sync::Arc;

use vouch_tree::{FrameKind, Fsinfo, SignedFsinfo};
use vouch_tree_store::{FrameSource as _, Revision, Writer};
use vouch_xdr::Xdr as _;

use crate::error::Error;
use crate::log::LogPublisher;
use crate::options::Signer;
use crate::revision::{
    Head, check_key, check_log, check_message, check_tag, commit, put_signed, set_message,
    settle_pending,
};

/// An old revision that becomes the newest.
#[derive(Debug, Clone)]
pub struct Republication {
    /// Revision whose content is signed again.
    pub of: u64,
    /// Seconds since 1970.
    pub start: u64,
    /// `None`: the newest revision's.
    pub duration_s: Option<u32>,
    /// A name for the new revision.
    pub tag: Option<String>,
    /// A message for the new revision.
    pub message: Option<String>,
    /// Only the tag moves: a second revision brings the newest content back at once.
    pub keeps_newest: bool,
    /// Appends the revision to the tree's log. A tree that has a log needs it.
    pub log: Option<Arc<LogPublisher>>,
}

/// The revision that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Republished {
    /// Has the content of the older revision, and the tag.
    pub revision: u64,
    /// The newest one now.
    pub newest: u64,
    /// First second after its validity, since 1970.
    pub expires: u64,
    /// False: it waits for witnesses.
    pub is_visible: bool,
}

/// Stores no content. The stat cache is void afterwards: the next publication reads every file.
pub fn republish(
    writer: &Writer,
    signer: &Signer<'_>,
    options: &Republication,
) -> Result<Republished, Error> {
    let log = options.log.as_deref();
    settle_pending(writer, log)?;
    let head = Head::read(writer)?.ok_or_else(|| Error::NoRevision(options.of.to_string()))?;
    check_key(writer, signer, options.start, false, Some(&head))?;
    check_log(writer, signer, log, options.start)?;
    if let Some(message) = &options.message {
        check_message(message)?;
    }
    if let Some(tag) = &options.tag {
        check_tag(tag)?;
    }
    let of = kept(writer, options.of)?;
    let mut first = Fsinfo {
        revision: head.fsinfo.revision + 1,
        start: options.start,
        duration_s: options.duration_s.unwrap_or(head.fsinfo.duration_s),
        previous: Some(head.handle),
        tag: options.tag.clone().unwrap_or_default(),
        ..of
    };
    if let Some(message) = &options.message {
        let had_xattrs = first.root.xattrs.size > 0;
        set_message(&mut first.root, Some(message))?;
        first.counts.with_xattrs += u64::from(!had_xattrs);
    }
    let expires = first.end().min(signer.cert.not_after);
    if !options.keeps_newest || options.of == head.fsinfo.revision {
        let is_visible = commit(writer, signer, &first, None, None, log)?.is_visible;
        let revision = first.revision;
        return Ok(Republished { revision, newest: revision, expires, is_visible });
    }
    let (handle, signed) = put_signed(writer, signer, &first)?;
    let start = i64::try_from(first.start).unwrap_or(i64::MAX);
    let earlier =
        Revision { number: first.revision, start, fsinfo: handle, tag: options.tag.clone() };
    let second = Fsinfo {
        revision: first.revision + 1,
        start: first.start,
        duration_s: first.duration_s,
        previous: Some(handle),
        tag: String::new(),
        ..head.fsinfo
    };
    let is_visible =
        commit(writer, signer, &second, None, Some((earlier, signed)), log)?.is_visible;
    let (revision, newest) = (first.revision, second.revision);
    Ok(Republished { revision, newest, expires, is_visible })
}

fn kept(writer: &Writer, number: u64) -> Result<Fsinfo, Error> {
    let missing = || Error::NoRevision(number.to_string());
    let revision = writer
        .revisions()
        .into_iter()
        .find(|revision| revision.number == number)
        .ok_or_else(missing)?;
    let stored = writer.get(&revision.fsinfo)?.ok_or_else(missing)?;
    let payload =
        vouch_tree::frame::open(&writer.iv(), &revision.fsinfo, FrameKind::Fsinfo, &stored)
            .map_err(|_| missing())?;
    SignedFsinfo::from_xdr(&payload).and_then(|signed| signed.unverified()).map_err(Error::Head)
}
