//! Zstd's seekable format: a reader can decode one record alone; `zstd -d` decodes the whole file.

use std::fs;
use std::io;

use super::Disk;
use super::files::{SegmentFile, TORN_EXTENSION};
use crate::frame::{MAGIC, parse};

const BLOCK_LEN: usize = 128 * 1024;
const LEVEL: i32 = 3;
/// contrib/seekable_format of zstd.
const SKIPPABLE: u32 = 0x184D_2A5E;
const SEEKABLE: u32 = 0x8F92_EAB1;
const FOOTER_LEN: usize = 9;

#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) at: u64,
    pub(super) len: usize,
    pub(super) uncompressed_offset: u64,
    pub(super) uncompressed_len: usize,
}

/// One of the two files is complete after a crash. Stops with `Interrupted` before writing if
/// `is_wanted` returns false.
pub(super) fn compress(
    disk: &dyn Disk,
    segment: &SegmentFile,
    is_wanted: &dyn Fn() -> bool,
) -> io::Result<SegmentFile> {
    let directory = segment.path.parent().unwrap_or(std::path::Path::new("."));
    let compressed = SegmentFile::compressed(directory, segment.number);
    let new = compressed.path.with_extension("zst.new");
    let bytes = pack(&fs::read(&segment.path)?, is_wanted)?;
    match disk.remove(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = disk.create(&new, false)?;
    file.write_at(&bytes, 0)?;
    file.sync()?;
    disk.rename(&new, &compressed.path)?;
    disk.sync_dir(directory)?;
    disk.remove(&segment.path)?;
    debug_assert!(!compressed.path.ends_with(TORN_EXTENSION));
    Ok(compressed)
}

fn pack(uncompressed: &[u8], is_wanted: &dyn Fn() -> bool) -> io::Result<Vec<u8>> {
    let mut compressor = zstd::bulk::Compressor::new(LEVEL)?;
    let mut out = Vec::new();
    let mut table = Vec::new();
    let mut at = 0;
    while at < uncompressed.len() {
        if !is_wanted() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let mut end = if at == 0 { MAGIC.len().min(uncompressed.len()) } else { at };
        while end < uncompressed.len() && end - at < BLOCK_LEN {
            end += parse(&uncompressed[end..])
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?
                .len();
        }
        let block = compressor.compress(&uncompressed[at..end])?;
        table.extend_from_slice(&(block.len() as u32).to_le_bytes());
        table.extend_from_slice(&((end - at) as u32).to_le_bytes());
        out.extend_from_slice(&block);
        at = end;
    }
    out.extend_from_slice(&SKIPPABLE.to_le_bytes());
    out.extend_from_slice(&((table.len() + FOOTER_LEN) as u32).to_le_bytes());
    let count = (table.len() / 8) as u32;
    out.extend_from_slice(&table);
    out.extend_from_slice(&count.to_le_bytes());
    out.push(0);
    out.extend_from_slice(&SEEKABLE.to_le_bytes());
    Ok(out)
}

pub(super) fn blocks(
    len: u64,
    read: impl Fn(u64, usize) -> io::Result<Vec<u8>>,
) -> io::Result<Vec<Block>> {
    let damaged = |reason: &str| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("the block table of the compressed segment is damaged: {reason}"),
        )
    };
    let footer_at =
        len.checked_sub(FOOTER_LEN as u64).ok_or_else(|| damaged("the file is too short"))?;
    let footer = read(footer_at, FOOTER_LEN)?;
    let word = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    if footer[4] != 0 || word(&footer[5..]) != SEEKABLE {
        return Err(damaged("the footer is missing"));
    }
    let table_len = u64::from(word(&footer)) * 8;
    let table_at = footer_at
        .checked_sub(table_len)
        .filter(|at| *at >= 8)
        .ok_or_else(|| damaged("the table is longer than the file"))?;
    let head = read(table_at - 8, 8)?;
    if word(&head) != SKIPPABLE || u64::from(word(&head[4..])) != table_len + FOOTER_LEN as u64 {
        return Err(damaged("the head is missing"));
    }
    let table = read(table_at, table_len as usize)?;
    let (mut at, mut uncompressed_offset) = (0u64, 0u64);
    let mut blocks = Vec::new();
    for entry in table.chunks_exact(8) {
        let (len, uncompressed_len) = (word(entry) as usize, word(&entry[4..]) as usize);
        if uncompressed_len > 2 * BLOCK_LEN {
            return Err(damaged("a block is too long"));
        }
        blocks.push(Block { at, len, uncompressed_offset, uncompressed_len });
        at += len as u64;
        uncompressed_offset += uncompressed_len as u64;
    }
    if at != table_at - 8 {
        return Err(damaged("the block lengths do not add up"));
    }
    Ok(blocks)
}

pub(super) fn unpack(bytes: &[u8], block: &Block) -> io::Result<Vec<u8>> {
    let uncompressed = zstd::bulk::decompress(bytes, block.uncompressed_len)?;
    if uncompressed.len() != block.uncompressed_len {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the length of a compressed block differs from its table entry",
        ));
    }
    Ok(uncompressed)
}
