//! Unpacks the layers of an image into the merged view, and stores data of files as it is read.

use std::io::{self, BufRead as _, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use sha2::{Digest as _, Sha256};
use vouch_tree::inode::{DeviceNumber, SYMLINK_LEN_MAX};
use vouch_tree::{Blob, Content, Inode, Timestamp};
use vouch_tree_publish::{Assembly, AssemblyError};

use crate::config::CONFIG_NAME;
use crate::digest::Sha256Digest;
use crate::error::{Error, LayerError};
use crate::layer::{Item, ItemKind, Layer};
use crate::merge::{Merged, NodeIndex, printable};
use crate::source::Image;

/// Stores the image's tree. `len_max` bounds the uncompressed layers together.
pub fn unpack(image: &Image, len_max: u64, into: &Assembly<'_>) -> Result<Inode, Error> {
    let mut unpacking =
        Unpacking { into, merged: Merged::new(), small: Vec::new(), small_len: 0, left: len_max };
    let mut left = len_max;
    for (number, layer) in image.layers.iter().enumerate() {
        unpacking.merged.begin_layer();
        let failed = |source| layer_error(number, source);
        let compressed = Hashing::new(image.open_layer(layer)?, u64::MAX);
        let mut tar = Hashing::new(Decompressor::new(compressed).map_err(failed)?, left);
        let unpacked = unpacking.layer(&mut tar, number);
        if unpacking.left == 0 || tar.left == 0 {
            return Err(Error::TooLarge(len_max));
        }
        unpacked?;
        let (diff_id, rest, compressed) = tar.finish().map_err(failed)?;
        left = rest;
        let (digest, ..) = compressed.into_inner().finish().map_err(failed)?;
        if layer.digest.is_some_and(|stated| stated != digest) || layer.diff_id != diff_id {
            return Err(Error::Digest(format!("layer {number}")));
        }
    }
    unpacking.store_small(image.layers.len())?;
    let config = image.config_file();
    let content = unpacking.into.file(config.len() as u64, &mut config.as_slice());
    let content = content.map_err(|source| file_error(0, CONFIG_NAME, source))?;
    let inode = inode(0o444, (0, 0), Timestamp::default(), Blob::empty(), content);
    unpacking
        .merged
        .put(CONFIG_NAME, inode)
        .map_err(|source| Error::Layer { number: 0, source })?;
    Ok(unpacking.merged.store(into)?)
}

struct Unpacking<'a> {
    into: &'a Assembly<'a>,
    merged: Merged,
    /// Small files that wait, and their bytes together.
    small: Vec<(NodeIndex, Vec<u8>)>,
    small_len: usize,
    /// Bytes of files that the image may still have: sparse ones are longer than their layer.
    left: u64,
}

impl Unpacking<'_> {
    fn layer(&mut self, tar: &mut impl Read, number: usize) -> Result<(), Error> {
        let failed = |source| Error::Layer { number, source };
        let mut layer = Layer::new(tar);
        while let Some(item) = layer.next_item().map_err(failed)? {
            let xattrs = self.into.xattrs(item.xattrs.clone())?;
            if let Some((node, size)) = apply(&mut self.merged, &item, xattrs).map_err(failed)? {
                self.file(&mut layer, &item, node, size, number)?;
            }
            if self.left == 0 {
                break;
            }
        }
        Ok(())
    }

    fn file(
        &mut self,
        layer: &mut Layer<impl Read>,
        item: &Item,
        node: NodeIndex,
        size: u64,
        number: usize,
    ) -> Result<(), Error> {
        self.left = self.left.saturating_sub(size);
        if self.left == 0 {
            return Ok(());
        }
        if size > SMALL_LEN_MAX {
            let content = self.into.file(size, layer);
            let content = content.map_err(|source| file_error(number, &item.path, source))?;
            self.merged.set_content(node, content);
            return Ok(());
        }
        let mut bytes = vec![0; size as usize];
        layer.read_exact(&mut bytes).map_err(|source| layer_error(number, source))?;
        self.small_len += bytes.len();
        self.small.push((node, bytes));
        if self.small_len > WAITING_LEN_MAX || self.small.len() > WAITING_COUNT_MAX {
            self.store_small(number)?;
        }
        Ok(())
    }

    fn store_small(&mut self, number: usize) -> Result<(), Error> {
        self.small_len = 0;
        let (nodes, bytes): (Vec<_>, Vec<_>) = self.small.drain(..).unzip();
        let contents = self.into.files(&bytes);
        let contents = contents.map_err(|source| file_error(number, b"a small file", source))?;
        for (node, content) in nodes.into_iter().zip(contents) {
            self.merged.set_content(node, content);
        }
        Ok(())
    }
}

/// Applies an entry; a file whose data follows is returned with its size.
pub(crate) fn apply(
    merged: &mut Merged,
    item: &Item,
    xattrs: Blob,
) -> Result<Option<(NodeIndex, u64)>, LayerError> {
    if merged.whiteout(&item.path)? {
        return Ok(None);
    }
    let device = |major, minor| DeviceNumber { major, minor };
    let mut size = 0;
    let content = match &item.kind {
        ItemKind::HardLink(target) => return merged.link(&item.path, target).map(|()| None),
        ItemKind::File(len) => {
            size = *len;
            Content::Regular { blob: Blob::empty(), space: 0 }
        }
        ItemKind::Symlink(target)
            if target.is_empty() || target.len() > SYMLINK_LEN_MAX || target.contains(&0) =>
        {
            let why = "the target of the symbolic link is empty or too long";
            return Err(LayerError::Entry { path: printable(&item.path), why });
        }
        ItemKind::Symlink(target) => Content::Symlink(target.clone()),
        ItemKind::Directory => {
            Content::Directory { entries: 0, subdirs: 0, opaque: false, top: None }
        }
        ItemKind::Fifo => Content::Fifo,
        ItemKind::CharDevice(major, minor) => Content::CharDevice(device(*major, *minor)),
        ItemKind::BlockDevice(major, minor) => Content::BlockDevice(device(*major, *minor)),
    };
    let inode = inode(item.mode, (item.uid, item.gid), item.mtime, xattrs, content);
    let node = merged.put(&item.path, inode)?;
    Ok((size > 0).then_some((node, size)))
}

fn inode(
    mode: u16,
    (uid, gid): (u32, u32),
    mtime: Timestamp,
    xattrs: Blob,
    content: Content,
) -> Inode {
    Inode { mode, uid, gid, mtime, nlink: 1, link_group: 0, xattrs, content }
}

fn file_error(number: usize, path: &[u8], source: AssemblyError) -> Error {
    match source {
        AssemblyError::Publish(error) => error.into(),
        source => Error::File { number, path: printable(path), source },
    }
}

fn layer_error(number: usize, source: io::Error) -> Error {
    Error::Layer { number, source: source.into() }
}

/// Hashes all that is read, which has a limit.
struct Hashing<R> {
    input: R,
    hash: Sha256,
    left: u64,
}

impl<R: Read> Hashing<R> {
    fn new(input: R, left: u64) -> Self {
        Self { input, hash: Sha256::new(), left }
    }

    /// Reads to the end.
    fn finish(mut self) -> io::Result<(Sha256Digest, u64, R)> {
        io::copy(&mut self, &mut io::sink())?;
        Ok((Sha256Digest(self.hash.finalize().into()), self.left, self.input))
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.input.read(buffer)?;
        self.hash.update(&buffer[..len]);
        self.left = self.left.saturating_sub(len as u64);
        if self.left == 0 { Err(io::Error::other("larger than the limit")) } else { Ok(len) }
    }
}

/// By the first bytes: media types of archives are missing or wrong. zstd:chunked is zstd.
pub(crate) enum Decompressor<R: Read> {
    Plain(BufReader<R>),
    Gzip(Box<MultiGzDecoder<BufReader<R>>>),
    Zstd(zstd::Decoder<'static, BufReader<R>>),
}

impl<R: Read> Decompressor<R> {
    pub(crate) fn new(input: R) -> io::Result<Self> {
        let mut input = BufReader::with_capacity(BUFFER_LEN, input);
        let start = input.fill_buf()?;
        Ok(if start.starts_with(&[0x1f, 0x8b]) {
            Self::Gzip(Box::new(MultiGzDecoder::new(input)))
        } else if start.starts_with(&zstd::zstd_safe::MAGICNUMBER.to_le_bytes()) {
            Self::Zstd(zstd::Decoder::with_buffer(input)?)
        } else {
            Self::Plain(input)
        })
    }

    pub(crate) const fn is_plain(&self) -> bool {
        matches!(self, Self::Plain(_))
    }

    fn into_inner(self) -> R {
        match self {
            Self::Plain(input) => input.into_inner(),
            Self::Gzip(input) => input.into_inner().into_inner(),
            Self::Zstd(input) => input.finish().into_inner(),
        }
    }
}

impl<R: Read> Read for Decompressor<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(input) => input.read(buffer),
            Self::Gzip(input) => input.read(buffer),
            Self::Zstd(input) => input.read(buffer),
        }
    }
}

const BUFFER_LEN: usize = 256 << 10;

/// Larger files are cut for all threads.
const SMALL_LEN_MAX: u64 = 512 << 10;

const WAITING_LEN_MAX: usize = 8 << 20;

const WAITING_COUNT_MAX: usize = 4096;
