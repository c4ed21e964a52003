//! Layers as zstd:chunked: the content of each file is a frame of its own, and behind the last one a table of
//! contents says where. Clients that know it fetch only the files that they lack; for others the layer is
//! tar+zstd. Equal directories give equal bytes, with one version of the library of zstd.
//!
//! ```text
//! frame    tar headers and padding      ┐ for each file
//! frame    content of the file          ┘ with content
//! skippable frame    table of contents: JSON, compressed
//! skippable frame    tar-split: all bytes of the archive but contents, as lines of JSON, compressed
//! skippable frame    footer: places and lengths of the two, "GNUlInUx"
//! ```
//!
//! Source: the package `chunked` of containers/storage, and tar-split of vbatts.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use data_encoding::BASE64;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use vouch_tree::xattr::Xattrs;
use vouch_tree::{Content, Inode};
use zstd::stream::raw::{Encoder, InBuffer, Operation as _, OutBuffer};

use crate::config::{Descriptor, LAYER_TYPE};
use crate::digest::Sha256Digest;
use crate::error::Error;
use crate::tar_writer::BLOCK_LEN;

/// An entry of the table of contents. `None`: no reader would understand it, and the layer gets no table.
pub(crate) type Described = Option<Map<String, Value>>;

/// Attributes as the tar header has them.
pub(crate) fn describe(
    path: &[u8],
    inode: &Inode,
    xattrs: &Xattrs,
    link: Option<&[u8]>,
) -> Described {
    let (kind, size, target) = match (&inode.content, link) {
        (_, Some(link)) => ("hardlink", 0, link),
        (Content::Regular { blob, .. }, _) => ("reg", blob.size, &b""[..]),
        (Content::Directory { .. }, _) => ("dir", 0, &b""[..]),
        (Content::Symlink(target), _) => ("symlink", 0, &target[..]),
        (Content::Fifo, _) => ("fifo", 0, &b""[..]),
        (Content::CharDevice(_), _) => ("char", 0, &b""[..]),
        (Content::BlockDevice(_), _) => ("block", 0, &b""[..]),
        (Content::Socket, _) => return None,
    };
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(str::to_owned);
    let name = text(path)? + if kind == "dir" { "/" } else { "" };
    let nanoseconds = i32::try_from(inode.mtime.ns).ok()?;
    let time = jiff::Timestamp::new(inode.mtime.s, nanoseconds).ok()?.to_string();
    // Years of four digits (RFC 3339).
    if time.starts_with('-') {
        return None;
    }
    let mut entry = Map::new();
    let mut put = |key: &str, value: Value| entry.insert(key.to_owned(), value);
    put("type", json!(kind));
    put("name", json!(name));
    if !target.is_empty() {
        put("linkName", json!(text(target)?));
    }
    put("mode", json!(inode.mode));
    put("size", json!(size));
    put("uid", json!(inode.uid));
    put("gid", json!(inode.gid));
    put("modtime", json!(time));
    if let Content::CharDevice(device) | Content::BlockDevice(device) = &inode.content {
        put("devMajor", json!(device.major));
        put("devMinor", json!(device.minor));
    }
    // Readers of PAX headers end a key at its first `=`.
    if link.is_none() && xattrs.pairs().iter().any(|(name, _)| name.contains(&b'=')) {
        return None;
    }
    if link.is_none() && !xattrs.pairs().is_empty() {
        let pairs = xattrs
            .pairs()
            .iter()
            .map(|(name, value)| Some((text(name)?, json!(BASE64.encode(value)))));
        put("xattrs", Value::Object(pairs.collect::<Option<_>>()?));
    }
    Some(entry)
}

/// A layer that is written.
pub(crate) struct LayerWriter {
    path: PathBuf,
    plain: Sha256,
    frames: Frames<Hashed>,
    /// `None` once an entry can't stand in the table.
    table: Option<Table>,
    file: Option<OpenFile>,
}

/// The file whose content is written.
struct OpenFile {
    described: Described,
    size: u64,
    offset: u64,
    digest: Sha256,
    checksum: crc::Digest<'static, u64>,
}

/// Table of contents and tar-split so far, compressed.
struct Table {
    entries: Frames<Vec<u8>>,
    entries_len: u64,
    split: Frames<Vec<u8>>,
    split_len: u64,
    split_count: u64,
    /// Bytes of the archive since the last entry.
    segment: Vec<u8>,
}

impl LayerWriter {
    pub(crate) fn new(dir: &Path) -> Result<Self, Error> {
        let path = dir.join("layer.partial");
        let file = File::create_new(&path).map_err(Error::io(path.display()))?;
        let hashed = Hashed { file: BufWriter::new(file), hash: Sha256::new(), len: 0 };
        let table = Table::new().map_err(Error::io("zstd"))?;
        let frames = Frames::new(hashed).map_err(Error::io("zstd"))?;
        Ok(Self { path, plain: Sha256::new(), frames, table: Some(table), file: None })
    }

    /// Begins an entry with `size` bytes of content.
    pub(crate) fn begin(
        &mut self,
        header: &[u8],
        described: Described,
        size: u64,
    ) -> io::Result<()> {
        self.plain.update(header);
        self.frames.write_all(header)?;
        if described.is_none() {
            self.table = None;
        }
        if let Some(table) = &mut self.table {
            table.segment.extend_from_slice(header);
        }
        let mut offset = 0;
        if size > 0 {
            self.frames.end_frame()?;
            offset = self.frames.out.len;
        }
        let (digest, checksum) = (Sha256::new(), CRC64.digest());
        self.file = Some(OpenFile { described, size, offset, digest, checksum });
        Ok(())
    }

    pub(crate) fn content(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.plain.update(bytes);
        if let Some(file) = &mut self.file
            && self.table.is_some()
        {
            file.digest.update(bytes);
            file.checksum.update(bytes);
        }
        self.frames.write_all(bytes)
    }

    /// Ends the entry.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        let Some(OpenFile { described, size, offset, digest, checksum }) = self.file.take() else {
            return Ok(());
        };
        if size > 0 {
            self.frames.end_frame()?;
        }
        let padding = (size.next_multiple_of(BLOCK_LEN as u64) - size) as usize;
        if let (Some(table), Some(mut entry)) = (&mut self.table, described) {
            let mut sum = Vec::new();
            if size > 0 {
                let digest = Sha256Digest(digest.finalize().into());
                entry.insert("digest".to_owned(), json!(digest.to_string()));
                entry.insert("offset".to_owned(), json!(offset));
                entry.insert("endOffset".to_owned(), json!(self.frames.out.len));
                sum = checksum.finalize().to_be_bytes().to_vec();
            }
            table.add(entry, size, &sum)?;
            table.segment.extend_from_slice(&ZEROS[..padding]);
            if table.entries_len.max(table.split_len) > TABLE_LEN_MAX {
                self.table = None;
            }
        }
        self.plain.update(&ZEROS[..padding]);
        self.frames.write_all(&ZEROS[..padding])
    }

    /// The layer and its `diff_id`.
    pub(crate) fn finish(mut self, dir: &Path) -> Result<(Descriptor, Sha256Digest), Error> {
        let failed = || Error::io(dir.display());
        let annotations = self.finish_frames().map_err(failed())?;
        let Hashed { mut file, hash, len } = self.frames.out;
        file.flush().map_err(failed())?;
        let digest = Sha256Digest(hash.finalize().into());
        std::fs::rename(&self.path, dir.join(digest.path())).map_err(failed())?;
        let diff_id = Sha256Digest(self.plain.finalize().into());
        let mut layer = Descriptor::new(LAYER_TYPE, digest, len);
        layer.annotations.extend(annotations);
        Ok((layer, diff_id))
    }

    fn finish_frames(&mut self) -> io::Result<Vec<(String, String)>> {
        let end = [0; 2 * BLOCK_LEN];
        self.plain.update(end);
        self.frames.write_all(&end)?;
        self.frames.end_frame()?;
        let Some(mut table) = self.table.take() else { return Ok(Vec::new()) };
        table.segment.extend_from_slice(&end);
        let (table, lengths) = table.finish()?;
        let out = &mut self.frames.out;
        let mut places = [0; 2];
        for (place, bytes) in places.iter_mut().zip(&table) {
            *place = out.len + SKIPPABLE_HEADER_LEN;
            skippable(out, bytes)?;
        }
        let [toc, split] = [0, 1].map(|n| (places[n], table[n].len() as u64, lengths[n]));
        let footer = [toc.0, toc.1, toc.2, TABLE_KIND, split.0, split.1, split.2];
        let mut bytes: Vec<u8> = footer.iter().flat_map(|number| number.to_le_bytes()).collect();
        bytes.extend(FOOTER_MAGIC);
        skippable(out, &bytes)?;
        let key = |name: &str| format!("io.github.containers.zstd-chunked.{name}");
        Ok(vec![
            (key("manifest-checksum"), Sha256Digest::of(&table[0]).to_string()),
            (key("manifest-position"), format!("{}:{}:{}:{TABLE_KIND}", toc.0, toc.1, toc.2)),
            (key("tarsplit-position"), format!("{}:{}:{}", split.0, split.1, split.2)),
        ])
    }
}

impl Table {
    fn new() -> io::Result<Self> {
        let mut table = Self {
            entries: Frames::new(Vec::new())?,
            entries_len: 0,
            split: Frames::new(Vec::new())?,
            split_len: 0,
            split_count: 0,
            segment: Vec::new(),
        };
        table.write_entries(br#"{"version":1,"entries":["#)?;
        Ok(table)
    }

    fn write_entries(&mut self, text: &[u8]) -> io::Result<()> {
        self.entries_len += text.len() as u64;
        self.entries.write_all(text)
    }

    fn write_split(&mut self, mut line: Value) -> io::Result<()> {
        line["position"] = json!(self.split_count);
        let text = format!("{line}\n");
        self.split_count += 1;
        self.split_len += text.len() as u64;
        self.split.write_all(text.as_bytes())
    }

    fn write_segment(&mut self) -> io::Result<()> {
        let segment = std::mem::take(&mut self.segment);
        self.write_split(json!({"type": SEGMENT, "payload": BASE64.encode(&segment)}))
    }

    fn add(&mut self, entry: Map<String, Value>, size: u64, sum: &[u8]) -> io::Result<()> {
        self.write_segment()?;
        let name = entry["name"].clone();
        let sum = if sum.is_empty() { Value::Null } else { json!(BASE64.encode(sum)) };
        let is_first = self.split_count == 1;
        self.write_split(json!({"type": FILE, "name": name, "size": size, "payload": sum}))?;
        if !is_first {
            self.write_entries(b",")?;
        }
        self.write_entries(Value::Object(entry).to_string().as_bytes())
    }

    /// Table of contents and tar-split, compressed, and their lengths before.
    fn finish(mut self) -> io::Result<([Vec<u8>; 2], [u64; 2])> {
        self.write_segment()?;
        self.split.end_frame()?;
        let digest = Sha256Digest::of(&self.split.out);
        self.write_entries(format!(r#"],"tarSplitDigest":"{digest}"}}"#).as_bytes())?;
        self.entries.end_frame()?;
        Ok(([self.entries.out, self.split.out], [self.entries_len, self.split_len]))
    }
}

/// Frames of zstd, one after the other.
struct Frames<W> {
    encoder: Encoder<'static>,
    out: W,
    buffer: Box<[u8]>,
    is_open: bool,
}

impl<W: Write> Frames<W> {
    fn new(out: W) -> io::Result<Self> {
        let (encoder, buffer) = (Encoder::new(LEVEL)?, vec![0; BUFFER_LEN].into());
        Ok(Self { encoder, out, buffer, is_open: false })
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut input = InBuffer::around(bytes);
        while input.pos() < bytes.len() {
            self.is_open = true;
            let mut output = OutBuffer::around(&mut self.buffer[..]);
            self.encoder.run(&mut input, &mut output)?;
            self.out.write_all(output.as_slice())?;
        }
        Ok(())
    }

    /// An empty frame is none.
    fn end_frame(&mut self) -> io::Result<()> {
        while self.is_open {
            let mut output = OutBuffer::around(&mut self.buffer[..]);
            self.is_open = self.encoder.finish(&mut output, true)? > 0;
            self.out.write_all(output.as_slice())?;
        }
        self.encoder.reinit()
    }
}

fn skippable(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let len = u32::try_from(bytes.len())
        .map_err(|_| io::Error::other("the table of contents is longer than 4 GiB"))?;
    out.write_all(&SKIPPABLE_MAGIC.to_le_bytes())?;
    out.write_all(&len.to_le_bytes())?;
    out.write_all(bytes)
}

struct Hashed {
    file: BufWriter<File>,
    hash: Sha256,
    len: u64,
}

impl Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = self.file.write(bytes)?;
        self.hash.update(&bytes[..len]);
        self.len += len as u64;
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

static ZEROS: [u8; BLOCK_LEN] = [0; BLOCK_LEN];

const LEVEL: i32 = 3;

const BUFFER_LEN: usize = 64 << 10;

/// podman reads no longer ones.
const TABLE_LEN_MAX: u64 = 150 << 20;

/// RFC 8878, section 3.1.2.
const SKIPPABLE_MAGIC: u32 = 0x184D_2A50;

/// Magic and length.
const SKIPPABLE_HEADER_LEN: u64 = 8;

/// "CRFS": a table of contents in JSON.
const TABLE_KIND: u64 = 1;

const FOOTER_MAGIC: [u8; 8] = *b"GNUlInUx";

/// Types of lines of tar-split.
const FILE: u32 = 1;
const SEGMENT: u32 = 2;

static CRC64: crc::Crc<u64> = crc::Crc::<u64>::new(&crc::CRC_64_GO_ISO);

#[cfg(test)]
mod tests {
    use serde_json::from_slice;
    use vouch_tree::{Blob, BlobBody, Timestamp};

    use super::*;
    use crate::tar_writer;

    fn numbers(layer: &Descriptor, key: &str) -> Vec<usize> {
        let text = &layer.annotations[&format!("io.github.containers.zstd-chunked.{key}")];
        text.split(':').map(|number| number.parse().unwrap()).collect()
    }

    fn unpacked(bytes: &[u8]) -> Vec<u8> {
        zstd::decode_all(bytes).unwrap()
    }

    /// A layer of these files, and an entry that no table can describe if asked.
    fn layer(files: &[(&str, Vec<u8>)], is_odd: bool) -> (Descriptor, Sha256Digest, Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("blobs/sha256")).unwrap();
        let mut writer = LayerWriter::new(dir.path()).unwrap();
        let mut add = |path: &[u8], content: &[u8]| {
            // Only the size is looked at.
            let blob = Blob { size: content.len() as u64, body: BlobBody::Hole };

            let inode = Inode {
                uid: 7,
                gid: 8,
                mtime: Timestamp { s: 1_700_000_000, ns: 5 },
                ..Inode::new(0o640, Content::Regular { blob, space: 0 })
            };
            let xattrs = Xattrs::default();
            let header = tar_writer::header(path, &inode, &xattrs, None).unwrap();
            let described = describe(path, &inode, &xattrs, None);
            writer.begin(&header, described, content.len() as u64).unwrap();
            content.chunks(1000).for_each(|part| writer.content(part).unwrap());
            writer.end().unwrap();
        };
        files.iter().for_each(|(path, content)| add(path.as_bytes(), content));
        if is_odd {
            add(b"\xff", b"odd");
        }
        let (layer, diff_id) = writer.finish(dir.path()).unwrap();
        let bytes = std::fs::read(dir.path().join(layer.digest.path())).unwrap();
        (layer, diff_id, bytes)
    }

    #[test]
    fn table_leads_to_each_file_and_tar_split_to_the_archive() {
        let noise: Vec<u8> = (0..200_000_u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
        let files = [("empty", Vec::new()), ("dir/small", b"small\n".to_vec()), ("large", noise)];
        let (layer, diff_id, bytes) = layer(&files, false);
        assert!(layer.media_type.ends_with("tar+zstd") && layer.size == bytes.len() as u64);
        let tar = unpacked(&bytes);
        assert_eq!(Sha256Digest::of(&tar), diff_id);

        let &[at, len, plain_len, 1] = &*numbers(&layer, "manifest-position") else { panic!() };
        let checksum = &layer.annotations["io.github.containers.zstd-chunked.manifest-checksum"];
        assert_eq!(*checksum, Sha256Digest::of(&bytes[at..at + len]).to_string());
        let toc = unpacked(&bytes[at..at + len]);
        assert_eq!(toc.len(), plain_len);
        let toc: Value = from_slice(&toc).unwrap();
        let entries = toc["entries"].as_array().unwrap();
        for (entry, (name, content)) in entries.iter().zip(&files) {
            assert_eq!((&entry["name"], &entry["type"]), (&json!(name), &json!("reg")));
            assert_eq!(entry["modtime"], "2023-11-14T22:13:20.000000005Z");
            if content.is_empty() {
                assert!(entry.get("digest").is_none());
                continue;
            }
            let place = |key: &str| entry[key].as_u64().unwrap() as usize;
            assert_eq!(unpacked(&bytes[place("offset")..place("endOffset")]), *content);
            assert_eq!(entry["digest"], Sha256Digest::of(content).to_string());
        }
        assert_eq!(entries.len(), files.len());

        let &[at, len, plain_len] = &*numbers(&layer, "tarsplit-position") else { panic!() };
        assert_eq!(toc["tarSplitDigest"], Sha256Digest::of(&bytes[at..at + len]).to_string());
        let split = unpacked(&bytes[at..at + len]);
        assert_eq!(split.len(), plain_len);
        let mut again = Vec::new();
        for (position, line) in split.split_inclusive(|&b| b == b'\n').enumerate() {
            let line: Value = from_slice(line).unwrap();
            assert_eq!(line["position"], position);
            let payload =
                line["payload"].as_str().map(|text| BASE64.decode(text.as_bytes()).unwrap());
            if line["type"] == SEGMENT {
                again.extend(payload.unwrap());
                continue;
            }
            let (_, content) = files.iter().find(|(name, _)| line["name"] == *name).unwrap();
            let sum = CRC64.checksum(content).to_be_bytes().to_vec();
            assert_eq!(payload, (!content.is_empty()).then_some(sum));
            again.extend(content);
        }
        assert!(again == tar);
        assert!(bytes.ends_with(&FOOTER_MAGIC));
        // Go's hash/crc64 with the table ISO.
        assert_eq!(CRC64.checksum(b"123456789"), 0xb909_56c7_75a4_1001);
    }

    #[test]
    fn layer_without_a_table_is_tar_and_zstd() {
        let (layer, diff_id, bytes) = layer(&[("a", b"a".to_vec())], true);
        assert!(layer.annotations.is_empty());
        assert_eq!(Sha256Digest::of(&unpacked(&bytes)), diff_id);
    }
}
