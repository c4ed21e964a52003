//! Appending to a log: from its right edge and new entries to the files to write.
//!
//! Writes nothing itself. The caller stores the files first and the checkpoint last; a reader of
//! the checkpoint before misses none of its files.

use crate::merkle::{Hash, TREE_SIZE_MAX};
use crate::reader::{LogReader, ReadError, TileSource, edge_root};
use crate::tile::{ENTRY_LEN_MAX, LEVEL_MAX, TILE_WIDTH, TileId, TileKind, hashes_at_level};

/// A file of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFile {
    /// Its name.
    pub id: TileId,
    /// Its whole content. A file is never replaced by other content.
    pub bytes: Vec<u8>,
}

/// Why an entry cannot be appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum AppendError {
    #[error("the entry has {0} bytes; a log takes {ENTRY_LEN_MAX}")]
    EntryLength(usize),
    #[error("the log is full")]
    Full,
}

/// Adds entries to a tree of hashes.
pub struct Appender {
    begin: u64,
    size: u64,
    /// Hashes of the last tile of each level, fewer than 256.
    edge: Vec<Vec<Hash>>,
    bundle: Vec<u8>,
    full: Vec<LogFile>,
}

impl Default for Appender {
    fn default() -> Self {
        Self::new()
    }
}

impl Appender {
    /// Begins a log.
    pub fn new() -> Self {
        let edge = vec![Vec::new(); usize::from(LEVEL_MAX) + 1];
        Self { begin: 0, size: 0, edge, bundle: Vec::new(), full: Vec::new() }
    }

    /// Continues a log after the entries that `reader` has verified.
    pub fn open<S: TileSource>(reader: &mut LogReader<S>) -> Result<Self, ReadError> {
        let size = reader.size();
        let mut bundle = Vec::new();
        if !size.is_multiple_of(TILE_WIDTH as u64) {
            bundle = reader.bundle_bytes(size - 1)?.1;
        }
        Ok(Self { begin: size, size, edge: reader.edge().to_vec(), bundle, full: Vec::new() })
    }

    /// Entries, new ones included.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Root hash, new entries included.
    pub fn root(&self) -> Hash {
        edge_root(&self.edge)
    }

    /// Adds an entry, and returns its number.
    pub fn push(&mut self, entry: &[u8]) -> Result<u64, AppendError> {
        if entry.len() > ENTRY_LEN_MAX {
            return Err(AppendError::EntryLength(entry.len()));
        }
        if self.size == TREE_SIZE_MAX {
            return Err(AppendError::Full);
        }
        push_entry(&mut self.bundle, entry);
        let index = self.size;
        self.size += 1;
        let mut hash = Hash::leaf(entry);
        for level in 0..=LEVEL_MAX {
            let hashes = &mut self.edge[usize::from(level)];
            hashes.push(hash);
            if hashes.len() < TILE_WIDTH {
                break;
            }
            hash = crate::merkle::fold_complete(hashes);
            let bytes = hashes.drain(..).flat_map(|hash| hash.0).collect();
            let number = hashes_at_level(self.size, level) / 256 - 1;
            let id = TileId { kind: TileKind::Hashes(level), index: number, width: 256 };
            self.full.push(LogFile { id, bytes });
            if level == 0 {
                let id = TileId { kind: TileKind::Entries, ..id };
                self.full.push(LogFile { id, bytes: std::mem::take(&mut self.bundle) });
            }
        }
        Ok(index)
    }

    /// The full files so far, for imports of many entries. [`Self::finish`] does not repeat them.
    pub fn take_full(&mut self) -> Vec<LogFile> {
        std::mem::take(&mut self.full)
    }

    /// All files that the tree needs beyond those of the tree before; none if nothing was added.
    pub fn finish(mut self) -> Vec<LogFile> {
        let mut files = self.take_full();
        for (level, hashes) in (0u8..).zip(&self.edge) {
            let count = hashes_at_level(self.size, level);
            // The same partial tile is there if the level has not grown.
            if !hashes.is_empty() && count != hashes_at_level(self.begin, level) {
                let kind = TileKind::Hashes(level);
                let id = TileId { kind, index: count / 256, width: hashes.len() as u16 };
                let bytes = hashes.iter().flat_map(|hash| hash.0).collect();
                files.push(LogFile { id, bytes });
                if level == 0 {
                    let id = TileId { kind: TileKind::Entries, ..id };
                    files.push(LogFile { id, bytes: std::mem::take(&mut self.bundle) });
                }
            }
        }
        files
    }
}

fn push_entry(bundle: &mut Vec<u8>, entry: &[u8]) {
    let len = u16::try_from(entry.len()).expect("each entry's length was checked");
    bundle.extend_from_slice(&len.to_be_bytes());
    bundle.extend_from_slice(entry);
}
