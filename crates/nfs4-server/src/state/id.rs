//! Names that clients see: client ids, session ids, the `other` of stateids. Each carries the server's life, so that one of an earlier life is told.

use vouch_nfs4::{ClientId, SessionId, Stateid, Verifier};
use vouch_vfs::FileId;

use super::slab::{SlabKey, slab_key};
use crate::ExportId;

slab_key! {
    /// A client's record, for as long as it is there.
    pub struct ClientKey;
    /// A session.
    pub struct SessionKey;
    /// An open, a lock owner's locks of a file, a delegation or a copy.
    pub struct StateKey;
    /// An open owner or a lock owner.
    pub struct OwnerKey;
    /// A file that has state.
    pub(super) struct FileRef;
    /// A callback under way.
    pub(super) struct CallbackKey;
}

/// A file across all exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileKey {
    /// Its export.
    pub export: ExportId,
    /// The file there.
    pub file: FileId,
}

/// One life of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Boot(u32);

impl Boot {
    /// From a number that differs at each start. Neither all zeros nor all ones, so that no stateid of ours is a special one.
    pub(super) fn new(number: u64) -> Self {
        Boot(((number ^ (number >> 32)) as u32).clamp(1, u32::MAX - 1))
    }

    /// The client id with this number.
    pub(super) fn client_id(self, number: u32) -> ClientId {
        ClientId(u64::from(self.0) << 32 | u64::from(number))
    }

    /// Whether a client id was given in this life.
    pub(super) fn gave(self, id: ClientId) -> bool {
        (id.0 >> 32) as u32 == self.0
    }

    /// The `other` of a stateid.
    #[inline]
    pub(super) fn other(self, key: StateKey) -> [u8; 12] {
        let mut other = [0; 12];
        other[..4].copy_from_slice(&self.0.to_be_bytes());
        other[4..8].copy_from_slice(&key.index().to_be_bytes());
        other[8..].copy_from_slice(&key.generation().to_be_bytes());
        other
    }

    /// What a stateid names; none if it is of another life.
    #[inline]
    pub(super) fn key(self, stateid: &Stateid) -> Option<StateKey> {
        let word = |at: usize| u32::from_be_bytes([stateid.other[at], stateid.other[at + 1], stateid.other[at + 2], stateid.other[at + 3]]);
        (word(0) == self.0).then(|| StateKey::new(word(4), word(8)))
    }
}

/// Where a session is, by its id; whether it is there and has this id is for the caller to see.
#[inline]
pub(super) fn session_index(id: &SessionId) -> u32 {
    u32::from_be_bytes([id.0[0], id.0[1], id.0[2], id.0[3]])
}

/// Bytes that nobody can guess, from the seed.
pub(super) struct Random {
    seed: [u8; 32],
    count: u64,
}

impl Random {
    pub(super) fn new(seed: [u8; 32]) -> Self {
        Random { seed, count: 0 }
    }

    fn next(&mut self) -> [u8; 32] {
        self.count += 1;
        *blake3::keyed_hash(&self.seed, &self.count.to_be_bytes()).as_bytes()
    }

    /// An id for the session at this place. The place is no secret, the rest can't be guessed by another client.
    pub(super) fn session_id(&mut self, key: SessionKey) -> SessionId {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&key.index().to_be_bytes());
        id[4..].copy_from_slice(&self.next()[..12]);
        SessionId(id)
    }

    /// A verifier.
    pub(super) fn verifier(&mut self) -> Verifier {
        let bytes = self.next();
        Verifier(std::array::from_fn(|at| bytes[at]))
    }

    /// A number.
    pub(super) fn number(&mut self) -> u64 {
        u64::from_be_bytes(self.verifier().0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stateids_of_another_life_are_told() {
        let (now, before) = (Boot::new(7), Boot::new(8));
        let key = StateKey::new(3, 5);
        let stateid = Stateid { seq: vouch_nfs4::StateSeq(1), other: now.other(key) };
        assert_eq!(now.key(&stateid), Some(key));
        assert_eq!(before.key(&stateid), None);
        for boot in [0, u64::MAX, 1 << 32, u64::from(u32::MAX)] {
            let stateid = Stateid { other: Boot::new(boot).other(StateKey::new(0, 0)), ..stateid };
            assert!(!stateid.is_special());
        }
    }
}
