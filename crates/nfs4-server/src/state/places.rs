//! Who takes the places for clients, so that whoever fills the table costs himself only: records by
//! where they come from, and by what would be lost with them. Counts and orders; what becomes of a
//! record is decided in `room`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::client::Credential;
use super::hash::{Map, Seed};
use super::id::ClientKey;
use super::limits::ORIGIN_SHARE;
use super::looks::{Gates, Looks, Scarce};
use crate::Principal;
use crate::access::network::Network;

/// Where a record comes from, as far as that can't be chosen at will: the principal where it is
/// proven, else the network that one host may have for itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Origin {
    Network(Network),
    Principal(Arc<str>),
}

impl Origin {
    pub(super) fn of(credential: &Credential<'_>) -> Self {
        match credential.principal {
            Principal::Gss { name } => Origin::Principal(name.clone()),
            _ => Origin::Network(Network::of(credential.address)),
        }
    }
}

/// Of which worth a record is that may go to make room; those that hold something and were heard of
/// within the lease may not.
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

/// Where it is told what an origin holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place(u32);

/// What the clients of one origin hold together.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// None where nobody is.
    origin: Option<Origin>,
    clients: usize,
    pub(super) sessions: usize,
    pub(super) opens: usize,
    pub(super) owners: usize,
    /// Byte ranges locked, and files with lock owners.
    pub(super) locks: usize,
    /// Bytes of slots and of kept replies.
    pub(super) kept_len: usize,
    /// Bytes promised to compounds under way, whose replies are to be kept: the last client may go
    /// before them.
    promised_len: usize,
    /// How often it has looked for room.
    gates: Gates,
}

impl Held {
    /// Bytes kept and promised.
    pub(super) fn cache_len(&self) -> usize {
        self.kept_len + self.promised_len
    }
}

/// Whether one who has `own` may have `more` of something of which `max` may be had and all have
/// `all`: no more than so many times what is left.
pub(super) fn fits(own: usize, more: usize, all: usize, max: usize) -> bool {
    let left = max.saturating_sub(all);
    more <= left && own.saturating_add(more) <= left.saturating_mul(ORIGIN_SHARE)
}

/// Whether one client that has `own` may have one more, of what is left to its origin, which has
/// `of_origin`: clients behind one address are others to each other as well.
pub(super) fn fits_client(own: usize, of_origin: usize, all: usize, max: usize) -> bool {
    let left = max.saturating_sub(all);
    let left = left.min(left.saturating_mul(ORIGIN_SHARE).saturating_sub(of_origin));
    own < left.saturating_mul(ORIGIN_SHARE)
}

/// How many more [`fits_client`] lets one client have, if nobody else takes any: with each of them
/// there is one less left for all, and for its origin.
pub(super) fn left_to_client(own: usize, of_origin: usize, all: usize, max: usize) -> usize {
    const SHARE: usize = ORIGIN_SHARE;
    let left = max.saturating_sub(all);
    let of_all = left.saturating_mul(SHARE).saturating_sub(own).div_ceil(SHARE + 1);
    let of_origins = left.saturating_mul(SHARE * SHARE).saturating_sub(SHARE * of_origin + own);
    of_all.min(of_origins.div_ceil(SHARE * SHARE + SHARE + 1))
}

/// The records that may go, by worth and origin, in the order in which they were listed; and what
/// each origin holds.
pub(super) struct Places {
    origins: Map<Origin, Place>,
    held: Vec<Held>,
    vacant: Vec<Place>,
    lists: [Lists; WORTHS],
    numbers: u64,
    looks: Looks,
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
        Places {
            origins: Map::with_hasher(hasher),
            held: Vec::new(),
            vacant: Vec::new(),
            lists: std::array::from_fn(|_| lists()),
            numbers: 0,
            looks: Looks::default(),
        }
    }

    /// A record is made.
    pub(super) fn enter(&mut self, origin: &Origin) -> Place {
        let place = match self.origins.get(origin) {
            Some(&place) => place,
            None => {
                let place = self.vacant.pop().unwrap_or_else(|| {
                    self.held.push(Held::default());
                    Place(u32::try_from(self.held.len() - 1).expect("there are no more origins than clients"))
                });
                self.origins.insert(origin.clone(), place);
                let held = self.at(place);
                (held.origin, held.gates) = (Some(origin.clone()), Gates::default());
                place
            }
        };
        self.at(place).clients += 1;
        place
    }

    /// A record is gone; it has been struck off before, and holds nothing.
    pub(super) fn leave(&mut self, place: Place) {
        self.at(place).clients -= 1;
        self.settle(place);
    }

    /// A reply is to be kept.
    #[inline]
    pub(super) fn promise(&mut self, place: Place, len: usize) {
        self.at(place).promised_len += len;
    }

    /// It has been kept or dropped.
    #[inline]
    pub(super) fn redeem(&mut self, place: Place, len: usize) {
        self.at(place).promised_len -= len;
        self.settle(place);
    }

    #[inline]
    fn settle(&mut self, place: Place) {
        let held = self.at(place);
        if held.clients == 0
            && held.promised_len == 0
            && let Some(origin) = held.origin.take()
        {
            debug_assert!(held.sessions + held.opens + held.owners + held.locks + held.kept_len == 0, "what a client holds goes before it");
            self.origins.remove(&origin);
            self.vacant.push(place);
        }
    }

    /// What an origin holds.
    #[inline]
    pub(super) fn at(&mut self, place: Place) -> &mut Held {
        &mut self.held[place.0 as usize]
    }

    /// See [`Places::at`].
    #[inline]
    pub(super) fn holds(&self, place: Place) -> &Held {
        &self.held[place.0 as usize]
    }

    /// Whether this origin may have room looked for now. If so, [`Places::looked`] is to be told
    /// how it went.
    pub(super) fn may_look(&mut self, place: Place, scarce: Scarce, now: u64) -> bool {
        self.looks.may(&mut self.held[place.0 as usize].gates, scarce, now)
    }

    /// Room was looked for.
    pub(super) fn looked(&mut self, place: Place, scarce: Scarce, found: bool, now: u64) {
        self.at(place).gates.looked(scarce, found, now);
    }

    /// All records of an origin.
    pub(super) fn of(&self, origin: &Origin) -> usize {
        self.origins.get(origin).map_or(0, |&place| self.holds(place).clients)
    }

    /// The origin that holds the most by this measure. O(n) in origins.
    pub(super) fn richest(&self, what: impl Fn(&Held) -> usize) -> Option<Place> {
        self.origins.values().copied().max_by_key(|&place| what(self.holds(place)))
    }

    /// Of the origins that have records of this worth, the one that holds the most by this measure.
    /// O(n) in those.
    pub(super) fn richest_of(&self, worth: Worth, what: impl Fn(&Held) -> usize) -> Option<(Origin, usize)> {
        let amount = |origin: &Origin| self.origins.get(origin).map_or(0, |&place| what(self.holds(place)));
        self.lists[worth as usize].of.keys().map(|origin| (amount(origin), origin)).max().map(|(most, origin)| (origin.clone(), most))
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
        let (one, two) = (Origin::Network(Network::V4([192, 0, 2, 1])), Origin::Network(Network::V4([192, 0, 2, 2])));
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
        let place = places.enter(&one);
        assert_eq!((places.enter(&one), places.of(&one)), (place, 2));
        places.leave(place);
        // A reply that was promised is remembered beyond the last client.
        places.promise(place, 10);
        places.leave(place);
        assert_ne!(places.enter(&two), place);
        places.redeem(place, 10);
        assert_eq!((places.of(&one), places.origins.len()), (0, 1));
        assert_eq!(places.enter(&one), place);
    }

    #[test]
    fn a_share_is_four_times_what_is_left() {
        assert!(fits(3, 1, 4, 5) && !fits(4, 1, 4, 5) && !fits(0, 1, 5, 5) && fits(0, 1, 0, 1));
    }

    #[test]
    fn a_host_is_one_origin_whatever_half_of_its_address_it_picks() {
        let none = Principal::None;
        let of = |address: &str| Origin::of(&Credential { address: address.parse().unwrap(), ..super::super::tests::sys(&none) });
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1:2:3"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        let shown = |address: &str| Network::of(address.parse().unwrap()).to_string();
        assert_eq!((shown("192.0.2.1"), shown("2001:db8:0:1::7")), ("192.0.2.1".to_owned(), "2001:db8:0:1::/64".to_owned()));
        let machine = Principal::Gss { name: "nfs/a@B".into() };
        assert_eq!(Origin::of(&super::super::tests::sys(&machine)), Origin::Principal("nfs/a@B".into()));
    }

    #[test]
    fn what_is_left_to_a_client_is_what_it_gets() {
        for (own, others_of_origin, others) in
            [(0, 0, 0), (3, 0, 0), (0, 20, 0), (7, 10, 30), (60, 0, 0), (0, 0, 99), (0, 79, 0), (77, 0, 0)]
        {
            let gets = (0..100)
                .take_while(|more| {
                    let (own, of_origin) = (own + more, own + others_of_origin + more);
                    let all = of_origin + others;
                    fits(of_origin, 1, all, 100) && fits_client(own, of_origin, all, 100)
                })
                .count();
            let of_origin = own + others_of_origin;
            assert_eq!(left_to_client(own, of_origin, of_origin + others, 100), gets, "{own}, {others_of_origin}, {others}");
        }
    }
}
