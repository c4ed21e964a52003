//! Generational: a lookup is one index and one comparison, and keys are never reused.

use std::collections::VecDeque;
use std::marker::PhantomData;

/// Free slots kept before reuse, so that the end of recent entries is known.
const VACANT_COUNT_MIN: usize = 256;

pub(super) trait SlabKey: Copy {
    fn new(index: u32, generation: u32) -> Self;
    fn index(self) -> u32;
    fn generation(self) -> u32;
}

macro_rules! slab_key {
    ($( $(#[$meta:meta])* $vis:vis struct $name:ident; )*) => { $(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        $vis struct $name {
            index: u32,
            generation: u32,
        }

        #[allow(dead_code, reason = "not every key type is used in ranges")]
        impl $name {
            pub(super) const FIRST: Self = Self { index: 0, generation: 0 };
            pub(super) const LAST: Self = Self { index: u32::MAX, generation: u32::MAX };
        }

        impl $crate::state::slab::SlabKey for $name {
            #[inline]
            fn new(index: u32, generation: u32) -> Self {
                Self { index, generation }
            }

            #[inline]
            fn index(self) -> u32 {
                self.index
            }

            #[inline]
            fn generation(self) -> u32 {
                self.generation
            }
        }
    )* };
}
pub(super) use slab_key;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Freed,
    Expired,
    Revoked,
}

struct SlabEntry<T> {
    generation: u32,
    ended: Ended,
    value: Option<T>,
}

pub(super) struct Slab<K, T> {
    places: Vec<SlabEntry<T>>,
    vacant: VecDeque<u32>,
    key: PhantomData<K>,
}

impl<K: SlabKey, T> Slab<K, T> {
    pub(super) fn new() -> Self {
        Slab { places: Vec::new(), vacant: VecDeque::new(), key: PhantomData }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len() - self.vacant.len()
    }

    pub(super) fn insert_with(&mut self, make: impl FnOnce(K) -> T) -> K {
        if self.vacant.len() > VACANT_COUNT_MIN {
            let index = self.vacant.pop_front().expect("the length was checked above");
            let place = &mut self.places[index as usize];
            let key = K::new(index, place.generation);
            place.value = Some(make(key));
            return key;
        }
        let index =
            u32::try_from(self.places.len()).expect("limits keep tables far below 2^32 entries");
        let key = K::new(index, 1);
        self.places.push(SlabEntry { generation: 1, ended: Ended::Freed, value: Some(make(key)) });
        key
    }

    pub(super) fn insert(&mut self, value: T) -> K {
        self.insert_with(|_| value)
    }

    #[inline]
    pub(super) fn get(&self, key: K) -> Option<&T> {
        let place = self.places.get(key.index() as usize)?;
        if place.generation != key.generation() {
            return None;
        }
        place.value.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: K) -> Option<&mut T> {
        let place = self.places.get_mut(key.index() as usize)?;
        if place.generation != key.generation() {
            return None;
        }
        place.value.as_mut()
    }

    #[inline]
    pub(super) fn at_mut(&mut self, index: u32) -> Option<(K, &mut T)> {
        let place = self.places.get_mut(index as usize)?;
        let key = K::new(index, place.generation);
        place.value.as_mut().map(|value| (key, value))
    }

    pub(super) fn remove(&mut self, key: K, ended: Ended) -> Option<T> {
        let place = self.places.get_mut(key.index() as usize)?;
        if place.generation != key.generation() {
            return None;
        }
        let value = place.value.take()?;
        place.generation = place.generation.checked_add(1).unwrap_or(1);
        place.ended = ended;
        self.vacant.push_back(key.index());
        Some(value)
    }

    /// Puts another value under a key removed just now.
    ///
    /// # Panics
    ///
    /// If the slot has been used since.
    pub(super) fn revive(&mut self, key: K, value: T) -> K {
        assert_eq!(
            self.vacant.pop_back(),
            Some(key.index()),
            "the slot was reused since the removal"
        );
        let place = &mut self.places[key.index() as usize];
        place.generation = key.generation();
        place.value = Some(value);
        key
    }

    pub(super) fn how_ended(&self, key: K) -> Option<Ended> {
        let place = self.places.get(key.index() as usize)?;
        let last = key.generation().checked_add(1).unwrap_or(1);
        (place.value.is_none() && place.generation == last).then_some(place.ended)
    }

    pub(super) fn part(&self, from: usize, count: usize) -> Option<impl Iterator<Item = (K, &T)>> {
        let places = self
            .places
            .get(from..from.saturating_add(count).min(self.places.len()))
            .filter(|places| !places.is_empty())?;
        Some(places.iter().enumerate().filter_map(move |(index, place)| {
            let value = place.value.as_ref()?;
            Some((K::new((from + index) as u32, place.generation), value))
        }))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (K, &T)> {
        self.places.iter().enumerate().filter_map(|(index, place)| {
            let value = place.value.as_ref()?;
            Some((K::new(index as u32, place.generation), value))
        })
    }
}

impl<K: SlabKey, T> std::ops::Index<K> for Slab<K, T> {
    type Output = T;

    #[inline]
    fn index(&self, key: K) -> &T {
        self.get(key).expect("a referenced entry exists")
    }
}

impl<K: SlabKey, T> std::ops::IndexMut<K> for Slab<K, T> {
    #[inline]
    fn index_mut(&mut self, key: K) -> &mut T {
        self.get_mut(key).expect("a referenced entry exists")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    slab_key! {
        struct Name;
    }

    #[test]
    fn key_is_never_reused_and_end_is_kept() {
        let mut slab = Slab::<Name, u32>::new();
        let first = slab.insert(1);
        assert_eq!(slab.remove(first, Ended::Expired), Some(1));
        assert_eq!((slab.get(first), slab.how_ended(first)), (None, Some(Ended::Expired)));
        for round in 0..2000 {
            let key = slab.insert(round);
            assert_ne!(key, first);
            assert_eq!(slab.get(first), None);
            slab.remove(key, Ended::Freed);
        }
        assert_eq!((slab.len(), slab.how_ended(first)), (0, None));
        assert!(slab.places.len() <= VACANT_COUNT_MIN + 2);
    }
}
