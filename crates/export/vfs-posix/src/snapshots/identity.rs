//! The bytes of identities that have to do with snapshots, beside those of `handle.rs`.
//!
//! | bytes | content |
//! |---|---|
//! | 1 | 5: a `.snapshot` directory; 6: a file in a snapshot; 7: a snapshot's directory as an entry of `.snapshot` |
//! | 8 | number of the snapshot, big-endian; absent in form 5 |
//! | … | form 5: identity of the directory that shows `.snapshot`; others: identity within the snapshot |

use vouch_vfs::{FILE_ID_LEN_MAX, FileId};

use crate::handle::{IN_SNAPSHOT, SNAPSHOT_ENTRY, SNAPSHOT_LIST};

/// Bytes before the identity within the snapshot.
pub(super) const WITHIN_FROM: usize = 9;

pub(super) enum SnapshotOrLive {
    Live,
    /// The `.snapshot` of this directory.
    List(FileId),
    Within(Within),
}

#[derive(Clone, Copy)]
pub(super) struct Within {
    pub(super) number: u64,
    pub(super) id: FileId,
    /// Reached as an entry of `.snapshot`, so the client sees a mount point there.
    pub(super) is_entry: bool,
}

impl SnapshotOrLive {
    /// Malformed bytes count as live, where they are refused.
    pub(super) fn of(id: &FileId) -> SnapshotOrLive {
        let place = match id.as_bytes().split_first() {
            Some((&SNAPSHOT_LIST, directory)) => FileId::new(directory).map(SnapshotOrLive::List),
            Some((&kind @ (IN_SNAPSHOT | SNAPSHOT_ENTRY), rest)) => within(kind, rest),
            _ => None,
        };
        place.unwrap_or(SnapshotOrLive::Live)
    }
}

fn within(kind: u8, rest: &[u8]) -> Option<SnapshotOrLive> {
    let (number, id) = rest.split_first_chunk()?;
    Some(SnapshotOrLive::Within(Within {
        number: u64::from_be_bytes(*number),
        id: FileId::new(id)?,
        is_entry: kind == SNAPSHOT_ENTRY,
    }))
}

/// None if the directory's identity is too long.
pub(super) fn list_of(directory: &FileId) -> Option<FileId> {
    joined(&[&[SNAPSHOT_LIST], directory.as_bytes()])
}

impl Within {
    /// None if the identity within the snapshot is too long.
    pub(super) fn id(&self) -> Option<FileId> {
        let kind = if self.is_entry { SNAPSHOT_ENTRY } else { IN_SNAPSHOT };
        joined(&[&[kind], &self.number.to_be_bytes(), self.id.as_bytes()])
    }
}

fn joined(parts: &[&[u8]]) -> Option<FileId> {
    let mut bytes = [0; FILE_ID_LEN_MAX];
    let mut len = 0;
    for part in parts {
        bytes.get_mut(len..len + part.len())?.copy_from_slice(part);
        len += part.len();
    }
    FileId::new(&bytes[..len])
}

/// A file number that no file system uses: they count up from small numbers. Below 2^63, for
/// clients with signed file numbers.
pub(super) fn virtual_number(id: &FileId) -> u64 {
    word(blake3::hash(id.as_bytes())) >> 2 | 1 << 62
}

pub(super) fn word(hash: blake3::Hash) -> u64 {
    u64::from_be_bytes(*hash.as_bytes().first_chunk().expect("a BLAKE3 hash has 32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_round_trip_and_malformed_ones_are_not_of_snapshots() {
        let inner = FileId::new(&[1, 0, 0, 0, 1, 7]).expect("short");
        let list = list_of(&inner).expect("short");
        assert!(matches!(SnapshotOrLive::of(&list), SnapshotOrLive::List(of) if of == inner));
        for is_entry in [true, false] {
            let id = Within { number: u64::MAX - 1, id: inner, is_entry }.id().expect("short");
            let SnapshotOrLive::Within(read) = SnapshotOrLive::of(&id) else {
                panic!("not in a snapshot")
            };
            assert_eq!((read.number, read.id, read.is_entry), (u64::MAX - 1, inner, is_entry));
            assert_eq!(&id.as_bytes()[WITHIN_FROM..], inner.as_bytes());
        }
        for bytes in [&b""[..], &[1, 2], &[6], &[7, 0, 0, 0]] {
            assert!(
                matches!(
                    SnapshotOrLive::of(&FileId::new(bytes).expect("short")),
                    SnapshotOrLive::Live
                ),
                "{bytes:?}"
            );
        }
        let longest = FileId::new(&[1; FILE_ID_LEN_MAX]).expect("the limit");
        assert!(
            list_of(&longest).is_none()
                && Within { number: 1, id: longest, is_entry: false }.id().is_none()
        );
    }
}
