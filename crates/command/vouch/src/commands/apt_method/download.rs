//! One file, from the tree to the place that apt names.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::SystemTime;

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256, Sha512};
use vouch_daemon::printable::printable;
use vouch_gateway::ContentDate;
use vouch_tree::Content;

use super::address::Address;
use super::message::Message;
use super::send;
use crate::exit::{At as _, Failure, Outcome};
use crate::tree_path::OpenTree;

pub(super) async fn download(mut tree: OpenTree, address: &Address, request: &Message) -> Outcome {
    let uri = request.field("URI").unwrap_or_default();
    let target = request.field("Filename").unwrap_or_default();
    let inode = tree.follow(&address.path).await?.1;
    let Content::Regular { blob, .. } = &inode.content else {
        return Err(Failure::not_found(printable(&address.path), "is not a file"));
    };
    let size = blob.size.to_string();
    let date = ContentDate::of_file(&inode, SystemTime::now());
    let date_text = date.map(httpdate::fmt_http_date).unwrap_or_default();
    let mut known = vec![("URI", uri), ("Size", &size)];
    if date.is_some() {
        known.push(("Last-Modified", &date_text));
    }
    let is_at = |text: &str| date.is_some() && httpdate::parse_http_date(text).ok() == date;
    if request.field("Last-Modified").is_some_and(is_at) {
        let done = Message::new("201 URI Done").fields(&known);
        return send(&done.fields(&[("Filename", target), ("IMS-Hit", "true")]));
    }
    let limit = request.field("Maximum-Size").and_then(|limit| limit.parse::<u64>().ok());
    if limit.is_some_and(|limit| limit > 0 && blob.size > limit) {
        let why = format!("has {size} bytes, more than apt expects");
        return Err(Failure::input(printable(&address.path), why).cure("run apt-get update"));
    }

    let mut written = Target::open(target, date, blob.size).at(target)?;
    let resumed = written.len.to_string();
    let start = Message::new("200 URI Start").fields(&known);
    send(&if written.len > 0 { start.fields(&[("Resume-Point", &resumed)]) } else { start })?;
    let file = tree.tree.open_file(blob.clone());
    while written.len < blob.size {
        let bytes = file.read(written.len, STEP).await?;
        if bytes.is_empty() {
            return Err(Failure::input(printable(&address.path), "ends before its size"));
        }
        written.append(&bytes).at(target)?;
    }
    let (sha256, sha512) = written.hashes();
    send(&Message::new("201 URI Done").fields(&known).fields(&[
        ("Filename", target),
        ("SHA256-Hash", &sha256),
        ("SHA512-Hash", &sha512),
    ]))
}

/// A file of apt that may hold the beginning of a download.
struct Target {
    file: File,
    len: u64,
    date: Option<SystemTime>,
    sha256: Sha256,
    sha512: Sha512,
}

impl Target {
    /// A beginning of `date` is kept: other content has another date.
    fn open(path: &str, date: Option<SystemTime>, size: u64) -> io::Result<Self> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o644)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
            .open(path)?;
        let metadata = file.metadata()?;
        let is_beginning =
            date.is_some() && metadata.modified().ok() == date && metadata.len() <= size;
        let mut target = Self {
            file: file.try_clone()?,
            len: 0,
            date,
            sha256: Sha256::new(),
            sha512: Sha512::new(),
        };
        if !is_beginning {
            file.set_len(0)?;
            return Ok(target);
        }
        let mut buffer = vec![0; STEP];
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                len => target.hash(&buffer[..len]),
            }
        }
        file.seek(SeekFrom::Start(target.len))?;
        Ok(target)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.hash(bytes);
        // apt ends methods at any time; the next run goes on from here.
        self.date.map_or(Ok(()), |date| self.file.set_modified(date))
    }

    fn hash(&mut self, bytes: &[u8]) {
        self.len += bytes.len() as u64;
        self.sha256.update(bytes);
        self.sha512.update(bytes);
    }

    fn hashes(self) -> (String, String) {
        (HEXLOWER.encode(&self.sha256.finalize()), HEXLOWER.encode(&self.sha512.finalize()))
    }
}

/// One leaf is not copied. The client reads ahead by itself.
const STEP: usize = vouch_tree::LEAF_LEN_MAX;
