//! Names that clients see: client ids, session ids, the `other` of stateids. Of each it can be told
//! whether it was given in this life of the server.

use std::hash::{DefaultHasher, Hash, Hasher};

use vouch_nfs4::{ClientId, SessionId, Stateid, Verifier};
use vouch_vfs::{FileId, Home};

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

/// A file as it was reached. Two are equal if they are of one file, whatever exports it was reached
/// by: who opens or locks it by one of them meets those who do by another.
#[derive(Clone, Copy, Debug)]
pub struct FileKey {
    /// The export that it was reached by: what a filehandle names, and what rights are of.
    pub export: ExportId,
    /// The file there.
    pub file: FileId,
    home: Home,
}

impl FileKey {
    /// The file of this export, which lies there.
    pub fn new(export: ExportId, file: FileId, home: Home) -> Self {
        FileKey { export, file, home }
    }

    /// What tells it from all other files.
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

/// One life of the server, in which stateids are given. Their `other` is a word of this life, and
/// place and generation sent through a permutation of the 64-bit numbers under a key of this life:
/// in 4.0, without sessions, who can name what another holds can end it, so nobody can guess it.
/// Tens of nanoseconds a call.
#[derive(Clone, Copy)]
pub(super) struct Boot {
    life: u32,
    key: [u64; 2],
}

impl Boot {
    /// From a number that differs at each start, and a seed of nobody's knowledge. The word is
    /// neither all zeros nor all ones, so that no stateid of ours is a special one.
    pub(super) fn new(number: u64, seed: &[u8; 32]) -> Self {
        let mut what = *b"stateids\0\0\0\0\0\0\0\0";
        what[8..].copy_from_slice(&number.to_be_bytes());
        let key = blake3::keyed_hash(seed, &what);
        let word = |at: usize| u64::from_be_bytes(std::array::from_fn(|byte| key.as_bytes()[at + byte]));
        Boot { life: ((number ^ (number >> 32)) as u32).clamp(1, u32::MAX - 1), key: [word(0), word(8)] }
    }

    /// The `other` of a stateid.
    #[inline]
    pub(super) fn other(self, key: StateKey) -> [u8; 12] {
        let mut other = [0; 12];
        other[..4].copy_from_slice(&self.life.to_be_bytes());
        let hidden = permuted(joined(key.index(), key.generation()), |round, half| self.mix(round, half));
        other[4..].copy_from_slice(&hidden.to_be_bytes());
        other
    }

    /// What a stateid names; none if it is of another life.
    #[inline]
    pub(super) fn key(self, stateid: &Stateid) -> Option<StateKey> {
        let word = |at: usize| u32::from_be_bytes([stateid.other[at], stateid.other[at + 1], stateid.other[at + 2], stateid.other[at + 3]]);
        if word(0) != self.life {
            return None;
        }
        let (index, generation) = halves(restored(joined(word(4), word(8)), |round, half| self.mix(round, half)));
        Some(StateKey::new(index, generation))
    }

    /// SipHash of the key and this.
    #[inline]
    fn mix(self, round: u8, half: u32) -> u32 {
        let mut hasher = DefaultHasher::new();
        self.key.into_iter().for_each(|word| hasher.write_u64(word));
        hasher.write_u64(u64::from(round) << 32 | u64::from(half));
        hasher.finish() as u32
    }
}

/// Client ids: the numbers from 1 on, each sent through a permutation of the 64-bit numbers under a
/// key of this life. So none comes twice in a life; one of an earlier life is told, but for a
/// chance of as many in 2^64 as were given; and nobody can guess another's.
pub(super) struct ClientNumbers {
    key: [u8; 32],
    count: u64,
}

impl ClientNumbers {
    /// Of one life. `seed`: of nobody's knowledge; `boot`: another in each life, so that a seed
    /// that came twice would do no harm.
    pub(super) fn new(seed: &[u8; 32], boot: u64) -> Self {
        let mut what = *b"client ids\0\0\0\0\0\0\0\0";
        what[10..].copy_from_slice(&boot.to_be_bytes());
        ClientNumbers { key: *blake3::keyed_hash(seed, &what).as_bytes(), count: 0 }
    }

    /// The next one.
    pub(super) fn give(&mut self) -> ClientId {
        self.count += 1;
        ClientId(permuted(self.count, |round, half| self.mix(round, half)))
    }

    /// Whether a client id was given in this life. O(1), and not for every call: it costs some
    /// hashes.
    pub(super) fn gave(&self, id: ClientId) -> bool {
        (1..=self.count).contains(&restored(id.0, |round, half| self.mix(round, half)))
    }

    fn mix(&self, round: u8, half: u32) -> u32 {
        let [a, b, c, d] = half.to_be_bytes();
        let hash = blake3::keyed_hash(&self.key, &[round, a, b, c, d]);
        u32::from_be_bytes(std::array::from_fn(|at| hash.as_bytes()[at]))
    }
}

/// Of the Feistel network: four make it look random also to one who sees both ways (Luby and
/// Rackoff, 1988).
const ROUNDS: u8 = 4;

/// Another number for each.
#[inline]
fn permuted(number: u64, mix: impl Fn(u8, u32) -> u32) -> u64 {
    let (left, right) = (0..ROUNDS).fold(halves(number), |(left, right), round| (right, left ^ mix(round, right)));
    joined(left, right)
}

/// The number that was made into this one.
#[inline]
fn restored(number: u64, mix: impl Fn(u8, u32) -> u32) -> u64 {
    let (left, right) = (0..ROUNDS).rev().fold(halves(number), |(left, right), round| (right ^ mix(round, left), left));
    joined(left, right)
}

fn halves(number: u64) -> (u32, u32) {
    ((number >> 32) as u32, number as u32)
}

fn joined(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
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

    /// An id for the session at this place. The place is no secret, the rest can't be guessed by
    /// another client.
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
    fn client_ids_are_none_twice_are_told_from_those_of_another_life_and_follow_no_order() {
        let (mut now, mut before) = (ClientNumbers::new(&[7; 32], 2), ClientNumbers::new(&[7; 32], 1));
        let ids: Vec<ClientId> = (0..1000).map(|_| now.give()).collect();
        let others: Vec<ClientId> = (0..1000).map(|_| before.give()).collect();
        assert_eq!(ids.iter().collect::<std::collections::HashSet<_>>().len(), ids.len());
        assert!(ids.iter().all(|&id| now.gave(id) && !before.gave(id)) && others.iter().all(|&id| before.gave(id) && !now.gave(id)));
        let next = before.give();
        assert!(before.gave(next) && !ClientNumbers::new(&[7; 32], 1).gave(next));
        // Neither half tells the next one's: of neighbours about half of the bits differ.
        for pair in ids.windows(2) {
            let differ = pair[0].0 ^ pair[1].0;
            assert!(halves(differ).0 != 0 && halves(differ).1 != 0 && (8..=56).contains(&differ.count_ones()), "{differ:x}");
        }
    }

    #[test]
    fn stateids_of_another_life_are_told() {
        let (now, before) = (Boot::new(7, &[7; 32]), Boot::new(8, &[7; 32]));
        let key = StateKey::new(3, 5);
        let stateid = Stateid { seq: vouch_nfs4::StateSeq(1), other: now.other(key) };
        assert_eq!(now.key(&stateid), Some(key));
        assert_eq!(before.key(&stateid), None);
        for boot in [0, u64::MAX, 1 << 32, u64::from(u32::MAX)] {
            let stateid = Stateid { other: Boot::new(boot, &[7; 32]).other(StateKey::new(0, 0)), ..stateid };
            assert!(!stateid.is_special());
        }
    }

    #[test]
    fn stateids_follow_no_order_and_neighbours_of_one_name_nothing() {
        let (boot, another) = (Boot::new(7, &[7; 32]), Boot::new(7, &[8; 32]));
        let hidden = |boot: Boot, key| u64::from_be_bytes(boot.other(key)[4..].try_into().unwrap());
        let all: Vec<u64> = (0..1000).map(|index| hidden(boot, StateKey::new(index, 1))).collect();
        for pair in all.windows(2) {
            let differ = pair[0] ^ pair[1];
            assert!(halves(differ).0 != 0 && halves(differ).1 != 0 && (8..=56).contains(&differ.count_ones()), "{differ:x}");
        }
        // What a table of a thousand has given out, from one of them: a counter would be found at once.
        for guess in (1..10_000).flat_map(|step| [all[500].wrapping_add(step), all[500].wrapping_sub(step)]) {
            let mut stateid = Stateid { seq: vouch_nfs4::StateSeq(1), other: boot.other(StateKey::new(0, 1)) };
            stateid.other[4..].copy_from_slice(&guess.to_be_bytes());
            let key = boot.key(&stateid).expect("it is of this life");
            assert!(key.index() >= 1000 || key.generation() > 1000);
        }
        assert_ne!(all[0], hidden(another, StateKey::new(0, 1)));
    }
}
