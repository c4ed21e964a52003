//! Verified reading of a log: each tile is compared with the root hash of a checkpoint before a
//! proof or an entry is made from it. The belief in the checkpoint is the caller's part.

use std::collections::BTreeMap;
use std::io;

use crate::merkle::{Hash, TREE_SIZE_MAX, fold_complete, fold_edge, split};
use crate::tile::{
    LEVEL_MAX, TILE_WIDTH, TileId, TileKind, hashes_at_level, parse_entries, parse_hashes,
};

/// Full tiles in memory at most: 8 KiB each.
const CACHED_TILES_MAX: usize = 256;

/// The files of a log, wherever they are.
pub trait TileSource {
    /// The whole file at a path such as `tile/0/000`. A missing file is `NotFound`; one that is
    /// longer than `len_max` is an error, and is not read to its end.
    fn read(&self, path: &str, len_max: usize) -> io::Result<Vec<u8>>;
}

impl<S: TileSource + ?Sized> TileSource for &S {
    fn read(&self, path: &str, len_max: usize) -> io::Result<Vec<u8>> {
        (**self).read(path, len_max)
    }
}

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum ReadError {
    #[error("read {path} of the log: {error}")]
    Source { path: String, error: io::Error },
    #[error("{path} of the log has no {width} whole items: it is cut or damaged")]
    Malformed { path: String, width: u16 },
    #[error("{path} of the log does not match the root hash of the checkpoint")]
    Mismatch { path: String },
    #[error("the tiles at the end of the log do not give the root hash of the checkpoint")]
    Root,
    #[error("the log has {size} entries: {asked} is beyond")]
    Beyond { asked: u64, size: u64 },
}

/// Reads a log up to one checkpoint.
pub struct LogReader<S> {
    source: S,
    size: u64,
    /// Partial tiles by level, verified together: they are the right edge of the tree.
    edge: Vec<Vec<Hash>>,
    /// Verified full tiles.
    cached: BTreeMap<(u8, u64), Vec<Hash>>,
}

impl<S: TileSource> LogReader<S> {
    /// Reads the tiles at the tree's right edge, at most eight, and compares them with `root`.
    pub fn open(source: S, size: u64, root: Hash) -> Result<Self, ReadError> {
        if size > TREE_SIZE_MAX {
            return Err(ReadError::Beyond { asked: size, size: TREE_SIZE_MAX });
        }
        let mut reader = Self { source, size, edge: Vec::new(), cached: BTreeMap::new() };
        for level in 0..=LEVEL_MAX {
            let hashes = hashes_at_level(size, level);
            let width = (hashes % TILE_WIDTH as u64) as u16;
            let id = TileId { kind: TileKind::Hashes(level), index: hashes / 256, width };
            reader.edge.push(if width == 0 { Vec::new() } else { reader.read_hashes(id)? });
        }
        if reader.edge_root() == root { Ok(reader) } else { Err(ReadError::Root) }
    }

    /// Entries of the log.
    pub const fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn edge(&self) -> &[Vec<Hash>] {
        &self.edge
    }

    fn edge_root(&self) -> Hash {
        edge_root(&self.edge)
    }

    /// Hashes of entries `start` to the end of its tile.
    pub fn leaf_hashes(&mut self, index: u64) -> Result<&[Hash], ReadError> {
        self.check(index, self.size)?;
        Ok(&self.tile(0, index / 256)?[(index % 256) as usize..])
    }

    /// All entries of the bundle that holds `index`, and the number of the first one.
    pub fn bundle(&mut self, index: u64) -> Result<(u64, Vec<Vec<u8>>), ReadError> {
        let (first, bytes) = self.bundle_bytes(index)?;
        let entries = parse_entries(&bytes).unwrap_or_default();
        Ok((first, entries.into_iter().map(<[u8]>::to_vec).collect()))
    }

    /// The verified bytes of the bundle that holds `index`, as far as this tree has it, and the
    /// number of its first entry.
    pub(crate) fn bundle_bytes(&mut self, index: u64) -> Result<(u64, Vec<u8>), ReadError> {
        self.check(index, self.size)?;
        let hashes = self.tile(0, index / 256)?.to_vec();
        let id = TileId { kind: TileKind::Entries, index: index / 256, width: hashes.len() as u16 };
        let (id, mut bytes) = self.read_file(id)?;
        let entries = parse_entries(&bytes)
            .filter(|entries| entries.len() == usize::from(id.width))
            .ok_or_else(|| ReadError::Malformed { path: id.path(), width: id.width })?;
        if entries.iter().zip(&hashes).any(|(entry, hash)| Hash::leaf(entry) != *hash) {
            return Err(ReadError::Mismatch { path: id.path() });
        }
        let len = entries.iter().take(hashes.len()).map(|entry| 2 + entry.len()).sum();
        bytes.truncate(len);
        Ok((index / 256 * 256, bytes))
    }

    /// One entry. Reads its whole bundle.
    pub fn entry(&mut self, index: u64) -> Result<Vec<u8>, ReadError> {
        let (first, mut entries) = self.bundle(index)?;
        Ok(entries.swap_remove((index - first) as usize))
    }

    /// Root hash of the first `size` entries.
    pub fn root_at(&mut self, size: u64) -> Result<Hash, ReadError> {
        self.check(size, self.size.saturating_add(1))?;
        if size == 0 { Ok(Hash::EMPTY_TREE) } else { self.range(0, size) }
    }

    /// RFC 6962 §2.1.1: the proof that entry `index` is in the tree.
    pub fn inclusion_proof(&mut self, index: u64) -> Result<Vec<Hash>, ReadError> {
        self.check(index, self.size)?;
        let (mut low, mut high, mut siblings) = (0, self.size, Vec::new());
        while high - low > 1 {
            let middle = low + split(high - low);
            if index < middle {
                siblings.push((middle, high));
                high = middle;
            } else {
                siblings.push((low, middle));
                low = middle;
            }
        }
        siblings.into_iter().rev().map(|(low, high)| self.range(low, high)).collect()
    }

    /// RFC 6962 §2.1.2: the proof that the first `old` entries are a prefix of the tree.
    pub fn consistency_proof(&mut self, old: u64) -> Result<Vec<Hash>, ReadError> {
        self.check(old, self.size.saturating_add(1))?;
        if old == 0 || old == self.size {
            return Ok(Vec::new());
        }
        let (mut low, mut high, mut ranges) = (0, self.size, Vec::new());
        while old != high {
            let middle = low + split(high - low);
            if old <= middle {
                ranges.push((middle, high));
                high = middle;
            } else {
                ranges.push((low, middle));
                low = middle;
            }
        }
        // Where the old tree is this subtree, the verifier knows its root.
        if low != 0 {
            ranges.push((low, high));
        }
        ranges.into_iter().rev().map(|(low, high)| self.range(low, high)).collect()
    }

    fn check(&self, asked: u64, end: u64) -> Result<(), ReadError> {
        if asked < end { Ok(()) } else { Err(ReadError::Beyond { asked, size: self.size }) }
    }

    /// Root of the entries from `low` to `high`, a range that RFC 6962 makes by splitting.
    fn range(&mut self, low: u64, high: u64) -> Result<Hash, ReadError> {
        let mut edge = Vec::new();
        let mut start = low;
        while start < high {
            let height = 63 - (high - start).leading_zeros();
            edge.push(self.node(height, start >> height)?);
            start += 1 << height;
        }
        Ok(fold_edge(&edge))
    }

    /// Root of the complete subtree over entries `index << height` and following.
    fn node(&mut self, height: u32, index: u64) -> Result<Hash, ReadError> {
        let (level, within) = ((height / 8) as u8, height % 8);
        let first = index << within;
        let start = (first % 256) as usize;
        let hashes = self.tile(level, first / 256)?;
        Ok(fold_complete(&hashes[start..start + (1 << within)]))
    }

    /// The verified hashes of a tile, as far as this tree has them.
    fn tile(&mut self, level: u8, index: u64) -> Result<&[Hash], ReadError> {
        if index == hashes_at_level(self.size, level) / 256 {
            return Ok(&self.edge[usize::from(level)]);
        }
        if !self.cached.contains_key(&(level, index)) {
            let id = TileId { kind: TileKind::Hashes(level), index, width: TILE_WIDTH as u16 };
            let hashes = self.read_hashes(id)?;
            // At most seven levels up, the tile is one of the edge.
            let parent = self.tile(level + 1, index / 256)?[(index % 256) as usize];
            if fold_complete(&hashes) != parent {
                return Err(ReadError::Mismatch { path: id.path() });
            }
            if self.cached.len() >= CACHED_TILES_MAX {
                self.cached.clear();
            }
            self.cached.insert((level, index), hashes);
        }
        Ok(&self.cached[&(level, index)])
    }

    fn read_hashes(&self, id: TileId) -> Result<Vec<Hash>, ReadError> {
        let (found, bytes) = self.read_file(id)?;
        let mut hashes = parse_hashes(&bytes)
            .filter(|hashes| hashes.len() == usize::from(found.width))
            .ok_or_else(|| ReadError::Malformed { path: found.path(), width: found.width })?;
        hashes.truncate(id.width.into());
        Ok(hashes)
    }

    /// A partial file may be gone once the full one is there (C2SP tlog-tiles, "Partial Tiles").
    fn read_file(&self, id: TileId) -> Result<(TileId, Vec<u8>), ReadError> {
        let read = |id: TileId| self.source.read(&id.path(), id.len_max());
        let full = TileId { width: TILE_WIDTH as u16, ..id };
        match read(id) {
            Ok(bytes) => Ok((id, bytes)),
            Err(error) if id != full && error.kind() == io::ErrorKind::NotFound => {
                // The missing file is the one to name if neither is there.
                let bytes = read(full);
                bytes.map(|bytes| (full, bytes)).map_err(|_| error)
            }
            Err(error) => Err(error),
        }
        .map_err(|error| ReadError::Source { path: id.path(), error })
    }
}

/// Root of the tree with these partial tiles, level 0 first.
pub(crate) fn edge_root(edge: &[Vec<Hash>]) -> Hash {
    let mut subtrees = Vec::new();
    for hashes in edge.iter().rev() {
        let mut rest = &hashes[..];
        while !rest.is_empty() {
            let (complete, after) = rest.split_at(1 << rest.len().ilog2());
            subtrees.push(fold_complete(complete));
            rest = after;
        }
    }
    fold_edge(&subtrees)
}
