//! Who takes the places for clients, so that whoever fills the table costs himself only: records by where they come from, and by what would be lost with them. Counts and
//! orders; what becomes of a record is decided in `room`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::client::Credential;
use super::hash::{Map, Seed};
use super::id::ClientKey;
use crate::Principal;

/// Where a record comes from, as far as that can't be chosen at will: the principal where it is proven, else the network that one host may have for itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Origin {
    V4([u8; 4]),
    /// The first half of the address: a host picks the other as it likes (RFC 4291, section 2.5.1).
    V6([u8; 8]),
    Principal(Arc<str>),
}

impl Origin {
    pub(super) fn of(credential: &Credential<'_>) -> Self {
        match (credential.principal, credential.address.to_canonical()) {
            (Principal::Gss { name }, _) => Origin::Principal(name.clone()),
            (_, IpAddr::V4(address)) => Origin::V4(address.octets()),
            (_, IpAddr::V6(address)) => Origin::V6(*address.octets().first_chunk().expect("an address has 16 bytes")),
        }
    }
}

/// Of which worth a record is that may go to make room; those that hold something and were heard of within the lease may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worth {
    /// It has only introduced itself.
    Unconfirmed,
    /// It holds nothing: what goes is made anew by the client without anybody's noticing.
    Idle,
    /// It holds something, and was silent for a lease.
    Courtesy,
}

const WORTHS: usize = 3;

/// A place in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) worth: Worth,
    number: u64,
}

/// The records that may go, by worth and origin, in the order in which they were listed.
pub(super) struct Places {
    /// All records.
    origins: Map<Origin, usize>,
    lists: [Lists; WORTHS],
    numbers: u64,
}

struct Lists {
    of: Map<Origin, BTreeMap<u64, ClientKey>>,
    /// Origins by how many they have.
    ranks: BTreeSet<(usize, Origin)>,
    total: usize,
}

impl Places {
    pub(super) fn new(hasher: Seed) -> Self {
        let lists = || Lists { of: Map::with_hasher(hasher), ranks: BTreeSet::new(), total: 0 };
        Places { origins: Map::with_hasher(hasher), lists: std::array::from_fn(|_| lists()), numbers: 0 }
    }

    /// A record is made.
    pub(super) fn enter(&mut self, origin: &Origin) {
        *self.origins.entry(origin.clone()).or_default() += 1;
    }

    /// A record is gone; it has been struck off before.
    pub(super) fn leave(&mut self, origin: &Origin) {
        if let Some(count) = self.origins.get_mut(origin) {
            *count -= 1;
            if *count == 0 {
                self.origins.remove(origin);
            }
        }
    }

    /// All records of an origin.
    pub(super) fn of(&self, origin: &Origin) -> usize {
        self.origins.get(origin).copied().unwrap_or_default()
    }

    /// Lists a record behind all others of its worth and origin. O(log n).
    pub(super) fn list(&mut self, worth: Worth, origin: &Origin, key: ClientKey) -> Listed {
        self.numbers += 1;
        let number = self.numbers;
        self.lists[worth as usize].change(origin, |list| list.insert(number, key));
        Listed { worth, number }
    }

    /// Strikes a record off. O(log n).
    pub(super) fn strike(&mut self, listed: Listed, origin: &Origin) {
        self.lists[listed.worth as usize].change(origin, |list| list.remove(&listed.number));
    }

    /// How many of this worth there are.
    pub(super) fn total(&self, worth: Worth) -> usize {
        self.lists[worth as usize].total
    }

    /// How many of this worth an origin has.
    pub(super) fn listed(&self, worth: Worth, origin: &Origin) -> usize {
        self.lists[worth as usize].of.get(origin).map_or(0, BTreeMap::len)
    }

    /// The origin that has the most of this worth, and how many.
    pub(super) fn most(&self, worth: Worth) -> Option<(Origin, usize)> {
        self.lists[worth as usize].ranks.last().map(|(count, origin)| (origin.clone(), *count))
    }

    /// The records of this worth and origin, the first listed first.
    pub(super) fn first(&self, worth: Worth, origin: &Origin) -> impl Iterator<Item = ClientKey> {
        self.lists[worth as usize].of.get(origin).into_iter().flat_map(|list| list.values().copied())
    }
}

impl Lists {
    fn change(&mut self, origin: &Origin, act: impl FnOnce(&mut BTreeMap<u64, ClientKey>) -> Option<ClientKey>) {
        let list = self.of.entry(origin.clone()).or_default();
        let before = list.len();
        act(list);
        let after = list.len();
        if after == 0 {
            self.of.remove(origin);
        }
        if before == after {
            return;
        }
        self.total = self.total + after - before;
        self.ranks.remove(&(before, origin.clone()));
        if after > 0 {
            self.ranks.insert((after, origin.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::slab::SlabKey as _;
    use super::*;

    fn key(number: u32) -> ClientKey {
        ClientKey::new(number, 0)
    }

    #[test]
    fn lists_tell_who_has_most_and_in_which_order() {
        let mut places = Places::new(Seed(1));
        let (one, two) = (Origin::V4([192, 0, 2, 1]), Origin::V4([192, 0, 2, 2]));
        assert_eq!(places.most(Worth::Idle), None);
        let first = places.list(Worth::Idle, &one, key(1));
        places.list(Worth::Idle, &two, key(2));
        places.list(Worth::Idle, &two, key(3));
        assert_eq!(places.most(Worth::Idle), Some((two.clone(), 2)));
        places.list(Worth::Idle, &one, key(4));
        places.list(Worth::Idle, &one, key(5));
        assert_eq!(places.first(Worth::Idle, &one).collect::<Vec<_>>(), [key(1), key(4), key(5)]);
        assert_eq!((places.most(Worth::Idle), places.total(Worth::Idle)), (Some((one.clone(), 3)), 5));
        places.strike(first, &one);
        places.strike(first, &one);
        assert_eq!((places.listed(Worth::Idle, &one), places.total(Worth::Idle), places.total(Worth::Courtesy)), (2, 4, 0));
        places.enter(&one);
        places.leave(&one);
        assert_eq!((places.of(&one), places.origins.len()), (0, 0));
    }

    #[test]
    fn a_host_is_one_origin_whatever_half_of_its_address_it_picks() {
        let none = Principal::None;
        let of = |address: &str| Origin::of(&Credential { address: address.parse().unwrap(), ..super::super::tests::sys(&none) });
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1:2:3"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        let machine = Principal::Gss { name: "nfs/a@B".into() };
        assert_eq!(Origin::of(&super::super::tests::sys(&machine)), Origin::Principal("nfs/a@B".into()));
    }
}
