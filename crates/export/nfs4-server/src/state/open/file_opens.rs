//! Indexed by share mode and client: no scan of all opens for a conflict.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, RangeInclusive};

use crate::ExportId;
use crate::state::id::{ClientKey, StateKey};
use crate::state::limits::OPENS_PER_FILE_MAX;
use crate::state::open::share::{Share, ShareCounts};
use crate::state::quota::{SourceKey, within_share};

#[derive(Default)]
pub(in crate::state) struct FileOpens {
    all: BTreeSet<Row>,
    shares: ShareCounts,
    of_source: Option<BTreeMap<SourceKey, usize>>,
}

#[derive(Clone, Copy)]
pub(in crate::state) struct Opener {
    pub(in crate::state) source_key: SourceKey,
    pub(in crate::state) client: ClientKey,
    pub(in crate::state) export: ExportId,
}

const COUNTED_LEN: usize = OPENS_PER_FILE_MAX / 2;

impl FileOpens {
    pub(in crate::state) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(in crate::state) fn shares(&self) -> &ShareCounts {
        &self.shares
    }

    pub(in crate::state) fn insert(&mut self, key: StateKey, by: Opener, share: Share) {
        self.all.insert((share.code(), by.client, by.export, key));
        self.shares.add(share);
        if let Some(counts) = &mut self.of_source {
            *counts.entry(by.source_key).or_default() += 1;
        }
    }

    pub(in crate::state) fn remove(&mut self, key: StateKey, by: Opener, share: Share) {
        self.all.remove(&(share.code(), by.client, by.export, key));
        self.shares.remove(share);
        if let Some(counts) = &mut self.of_source {
            count_down(counts, &by.source_key);
        }
        if self.all.len() < COUNTED_LEN / 2 {
            self.of_source = None;
        }
    }

    pub(in crate::state) fn has_room(
        &mut self,
        source: SourceKey,
        source_of: impl Fn(ClientKey) -> SourceKey,
    ) -> bool {
        let all = self.all.len();
        if all < COUNTED_LEN {
            return true;
        }
        let counts = self.of_source.get_or_insert_with(|| {
            let mut counts = BTreeMap::new();
            self.all
                .iter()
                .for_each(|&(_, client, ..)| *counts.entry(source_of(client)).or_default() += 1);
            counts
        });
        within_share(counts.get(&source).copied().unwrap_or(0), 1, all, OPENS_PER_FILE_MAX)
    }

    pub(in crate::state) fn with(
        &self,
        fits: impl Fn(Share) -> bool,
    ) -> impl Iterator<Item = StateKey> {
        Share::all()
            .filter(move |&share| fits(share))
            .flat_map(|share| self.all.range(range_of(share)).map(|&(.., key)| key))
    }

    pub(in crate::state) fn of(
        &self,
        client: ClientKey,
        export: ExportId,
        fits: impl Fn(Share) -> bool,
    ) -> impl Iterator<Item = StateKey> {
        Share::all().filter(move |&share| fits(share)).flat_map(move |share| {
            let range = (share.code(), client, export, StateKey::FIRST)
                ..=(share.code(), client, export, StateKey::LAST);
            self.all.range(range).map(|&(.., key)| key)
        })
    }

    /// May repeat a client. O(log n) for each.
    pub(in crate::state) fn clients(
        &self,
        fits: impl Fn(Share) -> bool,
    ) -> impl Iterator<Item = ClientKey> {
        Share::all().filter(move |&share| fits(share)).flat_map(move |share| {
            let code = share.code();
            let last = move |client| (code, client, ExportId(u32::MAX), StateKey::LAST);
            let mut from = Bound::Included((code, ClientKey::FIRST, ExportId(0), StateKey::FIRST));
            std::iter::from_fn(move || {
                let &(_, client, ..) =
                    self.all.range((from, Bound::Included(last(ClientKey::LAST)))).next()?;
                from = Bound::Excluded(last(client));
                Some(client)
            })
        })
    }

    pub(in crate::state) fn are_all_of(
        &self,
        client: ClientKey,
        export: ExportId,
        fits: impl Fn(Share) -> bool,
    ) -> bool {
        Share::all().filter(|&share| fits(share)).all(|share| {
            let mut range = self.all.range(range_of(share));
            let is_own = |&(_, other, by, _): &Row| (other, by) == (client, export);
            range.next().is_none_or(is_own) && range.next_back().is_none_or(is_own)
        })
    }
}

type Row = (u8, ClientKey, ExportId, StateKey);

fn range_of(share: Share) -> RangeInclusive<Row> {
    (share.code(), ClientKey::FIRST, ExportId(0), StateKey::FIRST)
        ..=(share.code(), ClientKey::LAST, ExportId(u32::MAX), StateKey::LAST)
}

pub(in crate::state) fn count_down<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    let count = counts.get_mut(key).expect("each removal follows an insertion");
    *count -= 1;
    if *count == 0 {
        counts.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::state::quota::{Source, SourceTable};
    use crate::state::slab::SlabKey as _;

    fn share(number: u8) -> Share {
        Share::all().nth(number.into()).expect("there are twelve")
    }

    proptest! {
        #[test]
        fn index_agrees_with_scan(steps in prop::collection::vec((0u8..4, 0u32..3, 0u32..2, 0u8..12), 1..60), wanted in 0u8..12) {
            let mut sources = SourceTable::new(crate::state::hash::Seed(1));
            let source_key = sources.add_client(&Source::Principal("one".into()));
            let (mut opens, mut model) = (FileOpens::default(), Vec::new());
            for (number, (action, client, export, code)) in steps.into_iter().enumerate() {
                let by = Opener { source_key, client: ClientKey::new(client, 0), export: ExportId(export) };
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
    fn source_can_refill_its_share_after_closing() {
        let mut sources = SourceTable::new(crate::state::hash::Seed(1));
        let source_key = sources.add_client(&Source::Principal("one".into()));
        let by = Opener { source_key, client: ClientKey::new(1, 0), export: ExportId(1) };
        let mut opens = FileOpens::default();
        let mut held = 0;
        let mut fill = |opens: &mut FileOpens| {
            while opens.has_room(source_key, |_| source_key) {
                opens.insert(StateKey::new(held, 0), by, share(0));
                held += 1;
            }
            held
        };
        let most = fill(&mut opens);
        assert!(
            (OPENS_PER_FILE_MAX / 5 * 4..=OPENS_PER_FILE_MAX / 5 * 4 + 4)
                .contains(&(most as usize)),
            "{most}"
        );
        (0..most).for_each(|number| opens.remove(StateKey::new(number, 0), by, share(0)));
        assert!(opens.of_source.is_none() && opens.is_empty());
        assert_eq!(fill(&mut opens), most * 2);
    }
}
