//! File data that tells where it belongs: each page begins with its number and ends with the
//! complement, noise in between.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use crate::{OrStop as _, tree};

/// Bytes of a page.
pub const PAGE_LEN: usize = 4096;

/// Writes a file of so many pages.
pub fn make(path: &Path, pages: u64) {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path).or_stop(path.display()));
    let mut page = tree::noise(PAGE_LEN, 5);
    for number in 0..pages {
        stamp(&mut page, number);
        out.write_all(&page).or_stop(path.display());
    }
    out.flush().or_stop(path.display());
}

/// Gives pages their numbers, from `first` on.
pub fn stamp(pages: &mut [u8], first: u64) {
    for (page, number) in pages.chunks_exact_mut(PAGE_LEN).zip(first..) {
        page[..8].copy_from_slice(&number.to_le_bytes());
        page[PAGE_LEN - 8..].copy_from_slice(&(!number).to_le_bytes());
    }
}

/// Whether these are the pages from `first` on.
pub fn are(pages: &[u8], first: u64) -> bool {
    let (chunks, rest) = pages.as_chunks::<PAGE_LEN>();
    let stamped = |page: &[u8; PAGE_LEN], number: u64| page[..8] == number.to_le_bytes() && page[PAGE_LEN - 8..] == (!number).to_le_bytes();
    rest.is_empty() && chunks.iter().zip(first..).all(|(page, number)| stamped(page, number))
}

/// Whether a file is whole, byte by byte.
pub fn verify(path: &Path, pages: u64) -> bool {
    let bytes = std::fs::read(path).or_stop(path.display());
    let noise = tree::noise(PAGE_LEN, 5);
    let middle = 8..PAGE_LEN - 8;
    bytes.len() as u64 == pages * PAGE_LEN as u64
        && are(&bytes, 0)
        && bytes.chunks_exact(PAGE_LEN).all(|page| page[middle.clone()] == noise[middle.clone()])
}
