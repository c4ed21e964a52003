//! Reads a layer: a tar archive in the formats ustar, GNU and PAX, with sparse files. The fields of a
//! header are parsed by the crate `tar`. Its reader is not used: it allocates extension headers by
//! their stated length, and splits binary attributes at line ends.

use std::io::{self, Read};

use tar::{EntryType, Header};
use vouch_tree::Timestamp;

use crate::error::LayerError;

/// Names and values.
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// An entry without its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    /// As in the archive, without a slash at its end.
    pub(crate) path: Vec<u8>,
    pub(crate) kind: ItemKind,
    pub(crate) mode: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mtime: Timestamp,
    pub(crate) xattrs: Pairs,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ItemKind {
    /// Its size; the data is read from the layer.
    File(u64),
    HardLink(Vec<u8>),
    Symlink(Vec<u8>),
    Directory,
    Fifo,
    CharDevice(u32, u32),
    BlockDevice(u32, u32),
}

/// Reads the data of the last item by [`Read`].
pub(crate) struct Layer<R> {
    input: R,
    /// Bytes of the current entry in the archive, and its padding.
    stored: u64,
    padding: u64,
    /// Of a sparse file: offset and length of data, in reverse order.
    segments: Vec<(u64, u64)>,
    at: u64,
    size: u64,
}

/// Headers that change the next entry.
#[derive(Default)]
struct Extension {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    pax: Pairs,
}

impl Extension {
    fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.pax.iter().rev().find(|(name, _)| name == key).map(|(_, value)| &value[..])
    }

    fn number<T: std::str::FromStr>(&self, key: &[u8]) -> Result<Option<T>, LayerError> {
        self.get(key).map(|value| parse(value).ok_or(LayerError::Malformed("number"))).transpose()
    }
}

impl<R: Read> Layer<R> {
    pub(crate) const fn new(input: R) -> Self {
        Self { input, stored: 0, padding: 0, segments: Vec::new(), at: 0, size: 0 }
    }

    pub(crate) const fn input(&self) -> &R {
        &self.input
    }

    /// The next entry; `None` at the end of the archive.
    pub(crate) fn next_item(&mut self) -> Result<Option<Item>, LayerError> {
        let mut extension = Extension::default();
        loop {
            self.skip()?;
            let Some(header) = self.header()? else { return Ok(None) };
            let kind = header.entry_type();
            let size = header.entry_size().map_err(|_| LayerError::Malformed("size"))?;
            if kind.is_pax_global_extensions() {
                self.begin(size)?;
                continue;
            }
            if kind.is_gnu_longname() {
                extension.path = Some(self.long_name(size)?);
            } else if kind.is_gnu_longlink() {
                extension.link = Some(self.long_name(size)?);
            } else if kind.is_pax_local_extensions() {
                extension.pax = pax_records(&self.extension(size)?)?;
            } else {
                return self.item(&header, &extension).map(Some);
            }
        }
    }

    fn item(&mut self, header: &Header, extension: &Extension) -> Result<Item, LayerError> {
        let bad = LayerError::Malformed;
        let mut path = match extension.get(b"GNU.sparse.name").or(extension.get(b"path")) {
            Some(path) => path.to_vec(),
            None => extension.path.clone().unwrap_or_else(|| header.path_bytes().into_owned()),
        };
        let kind = self.kind(header, extension, path.ends_with(b"/"))?;
        while path.len() > 1 && path.ends_with(b"/") {
            path.pop();
        }
        let fields = header.as_old();
        let id = |pax: Option<u64>, value: io::Result<u64>, field: &[u8]| {
            let id = pax.or_else(|| or_blank(value, field));
            id.and_then(|id| u32::try_from(id).ok()).ok_or(bad("owner"))
        };
        let mode = or_blank(header.mode().map(u64::from), &fields.mode).ok_or(bad("mode"))?;
        let mtime = match extension.get(b"mtime") {
            Some(text) => timestamp(text).ok_or(bad("time"))?,
            None => {
                let s = or_blank(header.mtime(), &fields.mtime).ok_or(bad("time"))?;
                Timestamp { s: s.cast_signed(), ns: 0 }
            }
        };
        Ok(Item {
            path,
            kind,
            mode: (mode & 0o7777) as u16,
            uid: id(extension.number(b"uid")?, header.uid(), &fields.uid)?,
            gid: id(extension.number(b"gid")?, header.gid(), &fields.gid)?,
            mtime,
            xattrs: xattrs(extension)?,
        })
    }

    /// Only files have data, whatever the size of others says, as for Go's archive/tar.
    fn kind(
        &mut self,
        header: &Header,
        extension: &Extension,
        is_directory_name: bool,
    ) -> Result<ItemKind, LayerError> {
        let bad = LayerError::Malformed;
        let link = || {
            let long = extension.get(b"linkpath").or(extension.link.as_deref());
            let link =
                long.map(<[u8]>::to_vec).or_else(|| header.link_name_bytes().map(Into::into));
            link.ok_or(bad("link"))
        };
        let device = |part: io::Result<Option<u32>>| part.ok().flatten().ok_or(bad("device"));
        let devices = || -> Result<(u32, u32), LayerError> {
            Ok((device(header.device_major())?, device(header.device_minor())?))
        };
        Ok(match header.entry_type() {
            EntryType::Regular | EntryType::Continuous if is_directory_name => ItemKind::Directory,
            kind @ (EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse) => {
                let size = header.entry_size().map_err(|_| bad("size"))?;
                self.begin(extension.number(b"size")?.unwrap_or(size))?;
                match kind {
                    EntryType::GNUSparse => self.gnu_sparse(header)?,
                    _ => self.pax_sparse(extension)?,
                }
                ItemKind::File(self.size)
            }
            EntryType::Link => ItemKind::HardLink(link()?),
            EntryType::Symlink => ItemKind::Symlink(link()?),
            EntryType::Directory => ItemKind::Directory,
            EntryType::Fifo => ItemKind::Fifo,
            EntryType::Char => {
                devices().map(|(major, minor)| ItemKind::CharDevice(major, minor))?
            }
            EntryType::Block => {
                devices().map(|(major, minor)| ItemKind::BlockDevice(major, minor))?
            }
            _ => return Err(LayerError::Unsupported("type of entry")),
        })
    }

    fn header(&mut self) -> Result<Option<Header>, LayerError> {
        let mut header = Header::new_old();
        let mut len = 0;
        while len < BLOCK_LEN {
            match self.input.read(&mut header.as_mut_bytes()[len..])? {
                0 if len == 0 => return Ok(None),
                0 => return Err(LayerError::Malformed("end")),
                read => len += read,
            }
        }
        let bytes = header.as_bytes();
        if bytes.iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        let sum = |bytes: &[u8]| bytes.iter().map(|&byte| u32::from(byte)).sum::<u32>();
        let found = sum(&bytes[..148]) + 8 * u32::from(b' ') + sum(&bytes[156..]);
        if header.cksum().ok() != Some(found) {
            return Err(LayerError::Malformed("checksum"));
        }
        Ok(Some(header))
    }

    fn begin(&mut self, stored: u64) -> Result<(), LayerError> {
        if stored > i64::MAX.cast_unsigned() - BLOCK_LEN as u64 {
            return Err(LayerError::Malformed("size"));
        }
        self.stored = stored;
        self.padding = stored.next_multiple_of(BLOCK_LEN as u64) - stored;
        (self.segments, self.at, self.size) = (vec![(0, stored)], 0, stored);
        Ok(())
    }

    /// The rest of the current entry.
    fn skip(&mut self) -> Result<(), LayerError> {
        let left = self.stored + self.padding;
        let skipped = io::copy(&mut (&mut self.input).take(left), &mut io::sink())?;
        (self.stored, self.padding) = (0, 0);
        if skipped == left { Ok(()) } else { Err(LayerError::Malformed("end")) }
    }

    fn extension(&mut self, size: u64) -> Result<Vec<u8>, LayerError> {
        if size > EXTENSION_LEN_MAX {
            return Err(LayerError::TooLarge("extension header", EXTENSION_LEN_MAX));
        }
        self.begin(size)?;
        let mut bytes = vec![0; size as usize];
        self.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn long_name(&mut self, size: u64) -> Result<Vec<u8>, LayerError> {
        let mut name = self.extension(size)?;
        name.truncate(name.iter().position(|&byte| byte == 0).unwrap_or(name.len()));
        Ok(name)
    }

    /// Segments follow each other, within the size, and their lengths are those of the stored data.
    fn set_segments(&mut self, mut segments: Vec<(u64, u64)>, size: u64) -> Result<(), LayerError> {
        let mut end = 0;
        let mut stored = 0_u64;
        for (offset, len) in &segments {
            if *offset < end {
                return Err(LayerError::Malformed("sparse file"));
            }
            end = offset.checked_add(*len).ok_or(LayerError::Malformed("sparse file"))?;
            stored = stored.saturating_add(*len);
        }
        if end > size || stored != self.stored || size > SIZE_MAX {
            return Err(LayerError::Malformed("sparse file"));
        }
        segments.reverse();
        (self.segments, self.size) = (segments, size);
        Ok(())
    }

    fn gnu_sparse(&mut self, header: &Header) -> Result<(), LayerError> {
        let bad = |_| LayerError::Malformed("sparse file");
        let gnu = header.as_gnu().ok_or(LayerError::Malformed("sparse file"))?;
        let size = gnu.real_size().map_err(bad)?;
        let mut segments = Vec::new();
        for part in gnu.sparse.iter().filter(|part| !part.is_empty()) {
            segments.push((part.offset().map_err(bad)?, part.length().map_err(bad)?));
        }
        let mut has_more = gnu.is_extended();
        while has_more {
            let mut block = tar::GnuExtSparseHeader::new();
            self.input.read_exact(block.as_mut_bytes())?;
            for part in block.sparse.iter().filter(|part| !part.is_empty()) {
                segments.push((part.offset().map_err(bad)?, part.length().map_err(bad)?));
            }
            if segments.len() > SEGMENTS_MAX {
                return Err(LayerError::TooLarge("sparse file", SEGMENTS_MAX as u64));
            }
            has_more = block.is_extended();
        }
        self.set_segments(segments, size)
    }

    /// PAX 1.0: a map in decimal lines, padded to a block, precedes the data.
    fn pax_sparse(&mut self, extension: &Extension) -> Result<(), LayerError> {
        let Some(major) = extension.get(b"GNU.sparse.major") else {
            let is_older = extension.pax.iter().any(|(key, _)| key.starts_with(b"GNU.sparse."));
            let older = LayerError::Unsupported("sparse file of PAX 0.0 or 0.1");
            return if is_older { Err(older) } else { Ok(()) };
        };
        if major != b"1" || extension.get(b"GNU.sparse.minor") != Some(b"0") {
            return Err(LayerError::Unsupported("version of a sparse file"));
        }
        let size = extension
            .number(b"GNU.sparse.realsize")?
            .ok_or(LayerError::Malformed("sparse file"))?;
        let mut len = 0;
        let count: usize = self.decimal(&mut len)?;
        if count > SEGMENTS_MAX {
            return Err(LayerError::TooLarge("sparse file", SEGMENTS_MAX as u64));
        }
        let mut segments = Vec::new();
        for _ in 0..count {
            segments.push((self.decimal(&mut len)?, self.decimal(&mut len)?));
        }
        let pad = len.next_multiple_of(BLOCK_LEN) - len;
        self.read_exact(&mut [0; BLOCK_LEN][..pad])?;
        self.at = 0;
        self.set_segments(segments, size)
    }

    fn decimal<T: std::str::FromStr>(&mut self, len: &mut usize) -> Result<T, LayerError> {
        let (mut digits, mut byte) = (Vec::new(), [0]);
        loop {
            self.read_exact(&mut byte)?;
            *len += 1;
            match byte[0] {
                b'\n' => break,
                digit if digits.len() < 20 => digits.push(digit),
                _ => return Err(LayerError::Malformed("sparse file")),
            }
        }
        parse(&digits).ok_or(LayerError::Malformed("sparse file"))
    }
}

impl<R: Read> Read for Layer<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.segments.last().is_some_and(|(offset, len)| self.at >= offset + len) {
            self.segments.pop();
        }
        let (next, end) = match self.segments.last() {
            Some((offset, len)) => (*offset, offset + len),
            None => (self.size, self.size),
        };
        let is_data = self.at >= next && next < end;
        let room = if is_data { end - self.at } else { next.saturating_sub(self.at) };
        let len = usize::try_from(room).unwrap_or(usize::MAX).min(buffer.len());
        if !is_data {
            buffer[..len].fill(0);
            self.at += len as u64;
            return Ok(len);
        }
        let read = self.input.read(&mut buffer[..len])?;
        self.at += read as u64;
        self.stored -= read as u64;
        Ok(read)
    }
}

/// Records `LENGTH KEY=VALUE\n`; values are any bytes (POSIX, pax Extended Header).
pub(crate) fn pax_records(mut bytes: &[u8]) -> Result<Pairs, LayerError> {
    let bad = || LayerError::Malformed("extension header");
    let mut records = Vec::new();
    while !bytes.is_empty() && bytes[0] != 0 {
        let space = bytes.iter().position(|&byte| byte == b' ').ok_or_else(bad)?;
        let len: usize = parse(&bytes[..space]).ok_or_else(bad)?;
        let record = bytes.get(space + 1..len).ok_or_else(bad)?;
        let record = record.strip_suffix(b"\n").ok_or_else(bad)?;
        let equals = record.iter().position(|&byte| byte == b'=').ok_or_else(bad)?;
        records.push((record[..equals].to_vec(), record[equals + 1..].to_vec()));
        bytes = &bytes[len..];
    }
    Ok(records)
}

fn xattrs(extension: &Extension) -> Result<Pairs, LayerError> {
    let mut pairs = Vec::new();
    for (key, value) in &extension.pax {
        let Some(name) = key.strip_prefix(b"SCHILY.xattr.") else { continue };
        if name.is_empty()
            || name.len() > vouch_tree::xattr::NAME_LEN_MAX
            || name.contains(&0)
            || value.len() > vouch_tree::xattr::VALUE_LEN_MAX
        {
            return Err(LayerError::Malformed("extended attribute"));
        }
        pairs.push((name.to_vec(), value.clone()));
    }
    Ok(pairs)
}

/// Decimal seconds, maybe negative, with a fraction.
fn timestamp(text: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(text).ok()?;
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let s: i64 = seconds.parse().ok()?;
    if !fraction.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let ns: u32 = digits.parse().ok()?;
    Some(match (seconds.starts_with('-'), ns) {
        (true, 1..) => Timestamp { s: s.checked_sub(1)?, ns: 1_000_000_000 - ns },
        _ => Timestamp { s, ns },
    })
}

/// A field of spaces and NUL is 0, as for Go's archive/tar.
fn or_blank(value: io::Result<u64>, field: &[u8]) -> Option<u64> {
    let is_blank = field.iter().all(|byte| matches!(byte, 0 | b' '));
    value.ok().or(is_blank.then_some(0))
}

fn parse<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

const BLOCK_LEN: usize = 512;

/// Attributes of a file come in one such header (64 KiB for each on Linux).
const EXTENSION_LEN_MAX: u64 = 1 << 20;

const SEGMENTS_MAX: usize = 1 << 16;

/// Of a sparse file.
const SIZE_MAX: u64 = 1 << 60;

#[cfg(test)]
mod tests;
