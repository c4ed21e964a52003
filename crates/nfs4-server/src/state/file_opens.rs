//! The opens of one file, by what they allow and deny, and by client: who is in somebody's way, and
//! what one client has, is found without a look at the others' opens. Once there are many, how many
//! are whose: one origin gets its share of those that one file may have, and one client of that.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, RangeInclusive};

use super::id::{ClientKey, StateKey};
use super::limits::OPENS_PER_FILE_MAX;
use super::places::{Place, fits, fits_client};
use super::share::{Share, ShareCounts};
use crate::ExportId;

/// A file's opens.
#[derive(Default)]
pub(super) struct FileOpens {
    /// By the code of their shares, clients and exports.
    all: BTreeSet<Row>,
    shares: ShareCounts,
    crowd: Option<Box<Crowd>>,
}

/// How many are whose.
#[derive(Default)]
struct Crowd {
    of_origin: BTreeMap<Place, usize>,
    of_client: BTreeMap<ClientKey, usize>,
}

/// Whose an open is.
#[derive(Clone, Copy)]
pub(super) struct Opener {
    pub(super) place: Place,
    pub(super) client: ClientKey,
    pub(super) export: ExportId,
}

/// From so many opens on it is counted whose they are; with fewer, anybody's share is larger than
/// all of them.
const CROWD_LEN: usize = OPENS_PER_FILE_MAX / 2;

impl FileOpens {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// How many hold each right and each denial.
    pub(super) fn shares(&self) -> &ShareCounts {
        &self.shares
    }

    pub(super) fn insert(&mut self, key: StateKey, by: Opener, share: Share) {
        self.all.insert((share.code(), by.client, by.export, key));
        self.shares.add(share);
        if let Some(crowd) = &mut self.crowd {
            crowd.enter(by.place, by.client);
        }
    }

    pub(super) fn remove(&mut self, key: StateKey, by: Opener, share: Share) {
        self.all.remove(&(share.code(), by.client, by.export, key));
        self.shares.remove(share);
        if let Some(crowd) = &mut self.crowd {
            count_down(&mut crowd.of_origin, &by.place);
            count_down(&mut crowd.of_client, &by.client);
        }
        // Not at the number at which it is made, or one that comes and goes would have them counted each
        // time.
        if self.all.len() < CROWD_LEN / 2 {
            self.crowd = None;
        }
    }

    /// Whether this client may have one more. `place_of`: where a client comes from.
    pub(super) fn has_room(&mut self, client: ClientKey, place_of: impl Fn(ClientKey) -> Place) -> bool {
        let all = self.all.len();
        if all < CROWD_LEN {
            return true;
        }
        let crowd = self.crowd.get_or_insert_with(|| {
            let mut crowd = Box::<Crowd>::default();
            self.all.iter().for_each(|&(_, client, ..)| crowd.enter(place_of(client), client));
            crowd
        });
        let of_origin = crowd.of_origin.get(&place_of(client)).copied().unwrap_or(0);
        let of_client = crowd.of_client.get(&client).copied().unwrap_or(0);
        fits(of_origin, 1, all, OPENS_PER_FILE_MAX) && fits_client(of_client, of_origin, all, OPENS_PER_FILE_MAX)
    }

    /// Those with such shares. O(log n) for the first of each.
    pub(super) fn with(&self, fits: impl Fn(Share) -> bool) -> impl Iterator<Item = StateKey> {
        Share::all().filter(move |&share| fits(share)).flat_map(|share| self.all.range(range_of(share)).map(|&(.., key)| key))
    }

    /// Those of this client by this export with such shares. O(log n) for the first.
    pub(super) fn of(&self, client: ClientKey, export: ExportId, fits: impl Fn(Share) -> bool) -> impl Iterator<Item = StateKey> {
        Share::all().filter(move |&share| fits(share)).flat_map(move |share| {
            let range = (share.code(), client, export, StateKey::FIRST)..=(share.code(), client, export, StateKey::LAST);
            self.all.range(range).map(|&(.., key)| key)
        })
    }

    /// The clients that have such; one may be told more than once. O(log n) for each.
    pub(super) fn clients(&self, fits: impl Fn(Share) -> bool) -> impl Iterator<Item = ClientKey> {
        Share::all().filter(move |&share| fits(share)).flat_map(move |share| {
            let code = share.code();
            let last = move |client| (code, client, ExportId(u32::MAX), StateKey::LAST);
            let mut from = Bound::Included((code, ClientKey::FIRST, ExportId(0), StateKey::FIRST));
            std::iter::from_fn(move || {
                let &(_, client, ..) = self.all.range((from, Bound::Included(last(ClientKey::LAST)))).next()?;
                from = Bound::Excluded(last(client));
                Some(client)
            })
        })
    }

    /// Whether all that have such shares are this client's, by this export. O(log n).
    pub(super) fn are_all_of(&self, client: ClientKey, export: ExportId, fits: impl Fn(Share) -> bool) -> bool {
        Share::all().filter(|&share| fits(share)).all(|share| {
            let mut range = self.all.range(range_of(share));
            let is_own = |&(_, other, by, _): &Row| (other, by) == (client, export);
            // They lie in order: between two of one client and export lie no others'.
            range.next().is_none_or(is_own) && range.next_back().is_none_or(is_own)
        })
    }
}

type Row = (u8, ClientKey, ExportId, StateKey);

/// All with this share.
fn range_of(share: Share) -> RangeInclusive<Row> {
    (share.code(), ClientKey::FIRST, ExportId(0), StateKey::FIRST)..=(share.code(), ClientKey::LAST, ExportId(u32::MAX), StateKey::LAST)
}

impl Crowd {
    fn enter(&mut self, place: Place, client: ClientKey) {
        *self.of_origin.entry(place).or_default() += 1;
        *self.of_client.entry(client).or_default() += 1;
    }
}

fn count_down<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    let count = counts.get_mut(key).expect("who goes has come");
    *count -= 1;
    if *count == 0 {
        counts.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::places::Places;
    use super::super::slab::SlabKey as _;
    use super::*;

    fn share(number: u8) -> Share {
        Share::all().nth(number.into()).expect("there are twelve")
    }

    proptest! {
        /// Each question is answered as by a look at all.
        #[test]
        fn what_is_found_is_what_a_look_at_all_finds(steps in prop::collection::vec((0u8..4, 0u32..3, 0u32..2, 0u8..12), 1..60), wanted in 0u8..12) {
            let mut places = Places::new(super::super::hash::Seed(1));
            let place = places.enter(&super::super::places::Origin::Principal("one".into()));
            let (mut opens, mut model) = (FileOpens::default(), Vec::new());
            for (number, (action, client, export, code)) in steps.into_iter().enumerate() {
                let by = Opener { place, client: ClientKey::new(client, 0), export: ExportId(export) };
                if action > 0 {
                    let key = StateKey::new(number as u32, 0);
                    opens.insert(key, by, share(code));
                    model.push((key, by, share(code)));
                } else if !model.is_empty() {
                    let (key, by, share) = model.swap_remove(number % model.len());
                    opens.remove(key, by, share);
                }
                let wanted = share(wanted);
                let fits = |other: Share| wanted.conflicts(other);
                let fitting = || model.iter().filter(|(.., share)| fits(*share));
                let sorted = |keys: &mut dyn Iterator<Item = StateKey>| keys.collect::<BTreeSet<_>>();
                prop_assert_eq!(sorted(&mut opens.with(fits)), sorted(&mut fitting().map(|(key, ..)| *key)));
                let mut own = fitting().filter(|(_, other, _)| (other.client, other.export) == (by.client, by.export)).map(|(key, ..)| *key);
                prop_assert_eq!(sorted(&mut opens.of(by.client, by.export, fits)), sorted(&mut own));
                let clients: BTreeSet<ClientKey> = opens.clients(fits).collect();
                prop_assert_eq!(clients, fitting().map(|(_, by, _)| by.client).collect());
                prop_assert!(opens.clients(fits).count() <= 3 * Share::all().count());
                let all = fitting().all(|(_, other, _)| (other.client, other.export) == (by.client, by.export));
                prop_assert_eq!(opens.are_all_of(by.client, by.export, fits), all);
                prop_assert_eq!((opens.is_empty(), opens.shares().conflicts(wanted)), (model.is_empty(), fitting().next().is_some()));
            }
        }
    }

    #[test]
    fn who_comes_when_many_were_there_is_counted_as_well() {
        let mut places = Places::new(super::super::hash::Seed(1));
        let place = places.enter(&super::super::places::Origin::Principal("one".into()));
        let by = Opener { place, client: ClientKey::new(1, 0), export: ExportId(1) };
        let mut opens = FileOpens::default();
        let mut held = 0;
        let mut fill = |opens: &mut FileOpens| {
            while opens.has_room(by.client, |_| place) {
                opens.insert(StateKey::new(held, 0), by, share(0));
                held += 1;
            }
            held
        };
        let most = fill(&mut opens);
        assert!((OPENS_PER_FILE_MAX / 3 * 2..OPENS_PER_FILE_MAX / 5 * 4).contains(&(most as usize)), "{most}");
        // They go, and come again: as many.
        (0..most).for_each(|number| opens.remove(StateKey::new(number, 0), by, share(0)));
        assert!(opens.crowd.is_none() && opens.is_empty());
        assert_eq!(fill(&mut opens), most * 2);
    }
}
