//! Identifiers that clients see. The server can tell whether it issued an id since its start.

use std::hash::{DefaultHasher, Hash, Hasher};

use vouch_nfs4::{ClientId, SessionId, Stateid, Verifier};
use vouch_vfs::{FileId, Home, SystemId};

use super::slab::{SlabKey, slab_key};
use crate::ExportId;

slab_key! {
    pub(crate) struct ClientKey;
    pub(crate) struct SessionKey;
    pub(crate) struct StateKey;
    pub(crate) struct OwnerKey;
    pub(super) struct FileRef;
    pub(super) struct CallbackKey;
}

/// Opens and locks conflict across exports: equality ignores the export.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileKey {
    pub export: ExportId,
    pub file: FileId,
    home: Home,
}

impl FileKey {
    pub(crate) fn new(export: ExportId, file: FileId, home: Home) -> Self {
        FileKey { export, file, home }
    }

    /// Files of published trees are never written.
    pub(crate) fn is_of_tree(&self) -> bool {
        self.home.system.tree_number().is_some()
    }

    pub(crate) fn system(&self) -> SystemId {
        self.home.system
    }

    fn own(&self) -> &[u8] {
        let bytes = self.file.as_bytes();
        &bytes[self.home.own_from.min(bytes.len())..]
    }
}

impl PartialEq for FileKey {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.home.system == other.home.system && self.own() == other.own()
    }
}

impl Eq for FileKey {}

impl Hash for FileKey {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.home.system.hash(state);
        self.own().hash(state);
    }
}

/// Issues stateids. The `other` field is an instance word and the state's key under a keyed 64-bit
/// permutation: in 4.0 a guessed stateid could end another client's state.
#[derive(Clone, Copy)]
pub(super) struct StateidIssuer {
    life: u32,
    key: [u64; 2],
}

impl StateidIssuer {
    /// `number` differs at each start. The instance word is never all zeros or ones: no stateid is
    /// special.
    pub(super) fn new(number: u64, seed: &[u8; 32]) -> Self {
        let mut what = *b"stateids\0\0\0\0\0\0\0\0";
        what[8..].copy_from_slice(&number.to_be_bytes());
        let key = blake3::keyed_hash(seed, &what);
        let word =
            |at: usize| u64::from_be_bytes(std::array::from_fn(|byte| key.as_bytes()[at + byte]));
        StateidIssuer {
            life: ((number ^ (number >> 32)) as u32).clamp(1, u32::MAX - 1),
            key: [word(0), word(8)],
        }
    }

    #[inline]
    pub(super) fn other(self, key: StateKey) -> [u8; 12] {
        let mut other = [0; 12];
        other[..4].copy_from_slice(&self.life.to_be_bytes());
        let hidden =
            permuted(joined(key.index(), key.generation()), |round, half| self.mix(round, half));
        other[4..].copy_from_slice(&hidden.to_be_bytes());
        other
    }

    #[inline]
    pub(super) fn key(self, stateid: &Stateid) -> Option<StateKey> {
        let word = |at: usize| {
            u32::from_be_bytes([
                stateid.other[at],
                stateid.other[at + 1],
                stateid.other[at + 2],
                stateid.other[at + 3],
            ])
        };
        if word(0) != self.life {
            return None;
        }
        let (index, generation) =
            halves(restored(joined(word(4), word(8)), |round, half| self.mix(round, half)));
        Some(StateKey::new(index, generation))
    }

    /// The `other` field of a client's layouts of a file. Its instance word differs from that of all
    /// other stateids.
    pub(super) fn layout(self, client: ClientId, file: &FileKey) -> [u8; 12] {
        let mut hasher = DefaultHasher::new();
        self.key.into_iter().for_each(|word| hasher.write_u64(word));
        (client.0, file.export, file.file).hash(&mut hasher);
        let mut other = [0; 12];
        other[..4].copy_from_slice(&(!self.life).to_be_bytes());
        other[4..].copy_from_slice(&hasher.finish().to_be_bytes());
        other
    }

    #[inline]
    fn mix(self, round: u8, half: u32) -> u32 {
        let mut hasher = DefaultHasher::new();
        self.key.into_iter().for_each(|word| hasher.write_u64(word));
        hasher.write_u64(u64::from(round) << 32 | u64::from(half));
        hasher.finish() as u32
    }
}

/// Issues client ids: numbers from 1 under a keyed 64-bit permutation, unique in one instance and
/// unpredictable.
pub(super) struct ClientNumbers {
    key: [u8; 32],
    count: u64,
}

impl ClientNumbers {
    /// `seed`: secret; `boot`: differs at each start.
    pub(super) fn new(seed: &[u8; 32], boot: u64) -> Self {
        let mut what = *b"client ids\0\0\0\0\0\0\0\0";
        what[10..].copy_from_slice(&boot.to_be_bytes());
        ClientNumbers { key: *blake3::keyed_hash(seed, &what).as_bytes(), count: 0 }
    }

    pub(super) fn issue(&mut self) -> ClientId {
        self.count += 1;
        ClientId(permuted(self.count, |round, half| self.mix(round, half)))
    }

    /// O(1), but costs several hashes.
    pub(super) fn has_issued(&self, id: ClientId) -> bool {
        (1..=self.count).contains(&restored(id.0, |round, half| self.mix(round, half)))
    }

    fn mix(&self, round: u8, half: u32) -> u32 {
        let [a, b, c, d] = half.to_be_bytes();
        let hash = blake3::keyed_hash(&self.key, &[round, a, b, c, d]);
        u32::from_be_bytes(std::array::from_fn(|at| hash.as_bytes()[at]))
    }
}

/// Four Feistel rounds resist an attacker who sees both directions (Luby and Rackoff, 1988).
const ROUNDS: u8 = 4;

#[inline]
fn permuted(number: u64, mix: impl Fn(u8, u32) -> u32) -> u64 {
    let (left, right) =
        (0..ROUNDS).fold(halves(number), |(left, right), round| (right, left ^ mix(round, right)));
    joined(left, right)
}

#[inline]
fn restored(number: u64, mix: impl Fn(u8, u32) -> u32) -> u64 {
    let (left, right) = (0..ROUNDS)
        .rev()
        .fold(halves(number), |(left, right), round| (right ^ mix(round, left), left));
    joined(left, right)
}

fn halves(number: u64) -> (u32, u32) {
    ((number >> 32) as u32, number as u32)
}

fn joined(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

/// The caller checks that the session at this index has this id.
#[inline]
pub(super) fn session_index(id: &SessionId) -> u32 {
    u32::from_be_bytes([id.0[0], id.0[1], id.0[2], id.0[3]])
}

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

    pub(super) fn session_id(&mut self, key: SessionKey) -> SessionId {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&key.index().to_be_bytes());
        id[4..].copy_from_slice(&self.next()[..12]);
        SessionId(id)
    }

    pub(super) fn verifier(&mut self) -> Verifier {
        let bytes = self.next();
        Verifier(std::array::from_fn(|at| bytes[at]))
    }

    pub(super) fn number(&mut self) -> u64 {
        u64::from_be_bytes(self.verifier().0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_ids_are_unique_unordered_and_bound_to_instance() {
        let (mut now, mut before) =
            (ClientNumbers::new(&[7; 32], 2), ClientNumbers::new(&[7; 32], 1));
        let ids: Vec<ClientId> = (0..1000).map(|_| now.issue()).collect();
        let others: Vec<ClientId> = (0..1000).map(|_| before.issue()).collect();
        assert_eq!(ids.iter().collect::<std::collections::HashSet<_>>().len(), ids.len());
        assert!(
            ids.iter().all(|&id| now.has_issued(id) && !before.has_issued(id))
                && others.iter().all(|&id| before.has_issued(id) && !now.has_issued(id))
        );
        let next = before.issue();
        assert!(before.has_issued(next) && !ClientNumbers::new(&[7; 32], 1).has_issued(next));
        for pair in ids.windows(2) {
            let differ = pair[0].0 ^ pair[1].0;
            assert!(
                halves(differ).0 != 0
                    && halves(differ).1 != 0
                    && (8..=56).contains(&differ.count_ones()),
                "{differ:x}"
            );
        }
    }

    #[test]
    fn stateids_of_other_instances_are_recognised() {
        let (now, before) = (StateidIssuer::new(7, &[7; 32]), StateidIssuer::new(8, &[7; 32]));
        let key = StateKey::new(3, 5);
        let stateid = Stateid { seq: vouch_nfs4::StateSeq(1), other: now.other(key) };
        assert_eq!(now.key(&stateid), Some(key));
        assert_eq!(before.key(&stateid), None);
        for boot in [0, u64::MAX, 1 << 32, u64::from(u32::MAX)] {
            let stateid = Stateid {
                other: StateidIssuer::new(boot, &[7; 32]).other(StateKey::new(0, 0)),
                ..stateid
            };
            assert!(!stateid.is_special());
        }
    }

    #[test]
    fn stateids_are_unordered_and_neighbours_are_invalid() {
        let (boot, another) = (StateidIssuer::new(7, &[7; 32]), StateidIssuer::new(7, &[8; 32]));
        let hidden =
            |boot: StateidIssuer, key| u64::from_be_bytes(boot.other(key)[4..].try_into().unwrap());
        let all: Vec<u64> = (0..1000).map(|index| hidden(boot, StateKey::new(index, 1))).collect();
        for pair in all.windows(2) {
            let differ = pair[0] ^ pair[1];
            assert!(
                halves(differ).0 != 0
                    && halves(differ).1 != 0
                    && (8..=56).contains(&differ.count_ones()),
                "{differ:x}"
            );
        }
        for guess in
            (1..10_000).flat_map(|step| [all[500].wrapping_add(step), all[500].wrapping_sub(step)])
        {
            let mut stateid =
                Stateid { seq: vouch_nfs4::StateSeq(1), other: boot.other(StateKey::new(0, 1)) };
            stateid.other[4..].copy_from_slice(&guess.to_be_bytes());
            let key = boot.key(&stateid).expect("the record is of this run");
            assert!(key.index() >= 1000 || key.generation() > 1000);
        }
        assert_ne!(all[0], hidden(another, StateKey::new(0, 1)));
    }
}
