//! Names and bytes of a log's files (C2SP tlog-tiles): the checkpoint, tiles of hashes, and bundles
//! of entries.

use crate::merkle::{Hash, TREE_SIZE_MAX};

/// Hashes of a full tile, and entries of a full bundle.
pub const TILE_WIDTH: usize = 256;

/// Bytes of a full tile.
pub const TILE_LEN: usize = TILE_WIDTH * 32;

/// Longest entry, in bytes: its length has 16 bits.
pub const ENTRY_LEN_MAX: usize = 65_535;

/// Tiles of higher levels do not exist in trees below [`TREE_SIZE_MAX`].
pub const LEVEL_MAX: u8 = 7;

/// Path of the checkpoint, below the log's prefix.
pub const CHECKPOINT_PATH: &str = "checkpoint";

/// The kind of a file below `tile/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TileKind {
    /// Hashes of one level: those of entries are at level 0.
    Hashes(u8),
    /// The entries themselves.
    Entries,
}

/// A tile or bundle, and how much of it there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TileId {
    /// Hashes or entries.
    pub kind: TileKind,
    /// Number within the level.
    pub index: u64,
    /// Hashes or entries in it, 1 to 256.
    pub width: u16,
}

impl TileId {
    /// The path below the log's prefix.
    pub fn path(&self) -> String {
        let mut path = match self.kind {
            TileKind::Hashes(level) => format!("tile/{level}/"),
            TileKind::Entries => "tile/entries/".to_owned(),
        };
        let digits = format!("{:03}", self.index);
        let digits = format!("{}{digits}", "0".repeat((3 - digits.len() % 3) % 3));
        let groups = digits.len() / 3;
        for group in 0..groups {
            let last = group + 1 == groups;
            path += if last { "" } else { "x" };
            path += &digits[group * 3..group * 3 + 3];
            path += if last { "" } else { "/" };
        }
        if usize::from(self.width) < TILE_WIDTH {
            path += &format!(".p/{}", self.width);
        }
        path
    }

    /// `None` unless it is exactly what [`Self::path`] writes.
    pub fn parse(path: &str) -> Option<Self> {
        let (kind, rest) = path.strip_prefix("tile/")?.split_once('/')?;
        let kind = match kind {
            "entries" => TileKind::Entries,
            level => TileKind::Hashes(level.parse().ok().filter(|&level| level <= LEVEL_MAX)?),
        };
        let (number, width) = match rest.split_once(".p/") {
            Some((number, width)) => (number, width.parse().ok()?),
            None => (rest, TILE_WIDTH as u16),
        };
        let mut index = 0u64;
        for group in number.split('/') {
            let digits = group.strip_prefix('x').unwrap_or(group);
            index = index.checked_mul(1000)?.checked_add(digits.parse().ok()?)?;
        }
        let id = Self { kind, index, width };
        // One spelling each: this also refuses signs, zeros in front and widths of 0 and over 256.
        ((1..=256).contains(&width) && index <= TREE_SIZE_MAX / 256 && id.path() == path)
            .then_some(id)
    }

    /// True if a tree of `size` entries has all of it.
    pub fn is_in_tree(&self, size: u64) -> bool {
        let level = if let TileKind::Hashes(level) = self.kind { level } else { 0 };
        self.index * TILE_WIDTH as u64 + u64::from(self.width) <= hashes_at_level(size, level)
    }

    /// Bytes of the file at most.
    pub fn len_max(&self) -> usize {
        match self.kind {
            TileKind::Hashes(_) => usize::from(self.width) * 32,
            TileKind::Entries => usize::from(self.width) * (2 + ENTRY_LEN_MAX),
        }
    }
}

/// Hashes at `level` of a tree of `size` entries: the complete subtrees of 256^level entries.
pub fn hashes_at_level(size: u64, level: u8) -> u64 {
    size >> (8 * u32::from(level))
}

/// Files that a tree of `new` entries has and one of `old` entries has not, in the order in which a
/// writer stores them. Full files and the newest partial ones.
pub fn new_files(old: u64, new: u64) -> impl Iterator<Item = TileId> {
    let kinds = (0..=LEVEL_MAX).map(TileKind::Hashes).chain([TileKind::Entries]);
    kinds.flat_map(move |kind| {
        let level = if let TileKind::Hashes(level) = kind { level } else { 0 };
        let (before, now) = (hashes_at_level(old, level), hashes_at_level(new, level));
        let full = (before / 256..now / 256).map(move |index| TileId { kind, index, width: 256 });
        let width = (now % 256) as u16;
        let partial = TileId { kind, index: now / 256, width };
        full.chain((width > 0 && now > before).then_some(partial))
    })
}

/// The hashes of a tile's bytes; `None` unless there are whole ones, 256 at most.
pub fn parse_hashes(bytes: &[u8]) -> Option<Vec<Hash>> {
    let (hashes, rest) = bytes.as_chunks::<32>();
    (rest.is_empty() && !hashes.is_empty() && hashes.len() <= TILE_WIDTH)
        .then(|| hashes.iter().map(|hash| Hash(*hash)).collect())
}

/// The entries of a bundle's bytes; `None` if it is cut, or has none or more than 256.
pub fn parse_entries(mut bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut entries = Vec::new();
    while let Some((len, rest)) = bytes.split_first_chunk::<2>() {
        if entries.len() == TILE_WIDTH {
            return None;
        }
        let (entry, rest) = rest.split_at_checked(u16::from_be_bytes(*len).into())?;
        entries.push(entry);
        bytes = rest;
    }
    (bytes.is_empty() && !entries.is_empty()).then_some(entries)
}
