//! Bitmaps: sets of small numbers, of attributes and of operations. Kept inline in three words,
//! which hold all numbers that exist.

use vouch_xdr::{Error, Reader, Writer};

use crate::Wire;

/// Most words that are read. Three hold all that is defined; a peer that knows more may send more.
pub const BITMAP_WORDS_MAX: usize = 256;

/// A set of numbers below 96 (`bitmap4`), and whether others came along.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Bitmap {
    words: [u32; 3],
    beyond: bool,
}

impl Bitmap {
    /// The empty set.
    pub const EMPTY: Self = Self { words: [0; 3], beyond: false };

    /// The set of these numbers.
    ///
    /// # Panics
    /// If one is 96 or more; at compile time in constants.
    pub const fn of(numbers: &[u32]) -> Self {
        let mut set = Self::EMPTY;
        let mut at = 0;
        while at < numbers.len() {
            set = set.with(numbers[at]);
            at += 1;
        }
        set
    }

    /// The set with `number` added.
    ///
    /// # Panics
    /// If it is 96 or more; at compile time in constants.
    pub const fn with(mut self, number: u32) -> Self {
        self.words[(number / 32) as usize] |= 1 << (number % 32);
        self
    }

    /// The set without `number`.
    pub const fn without(mut self, number: u32) -> Self {
        if number < 96 {
            self.words[(number / 32) as usize] &= !(1 << (number % 32));
        }
        self
    }

    /// Whether `number` is in the set.
    pub const fn has(&self, number: u32) -> bool {
        number < 96 && self.words[(number / 32) as usize] & (1 << (number % 32)) != 0
    }

    /// Whether the set came with numbers of 96 or more, which nothing here knows.
    pub const fn has_beyond(&self) -> bool {
        self.beyond
    }

    /// Whether nothing is in the set.
    pub const fn is_empty(&self) -> bool {
        self.words[0] | self.words[1] | self.words[2] == 0 && !self.beyond
    }

    /// What is in both.
    pub const fn and(self, other: Self) -> Self {
        let (a, b) = (self.words, other.words);
        Self { words: [a[0] & b[0], a[1] & b[1], a[2] & b[2]], beyond: self.beyond && other.beyond }
    }

    /// What is in either.
    pub const fn or(self, other: Self) -> Self {
        let (a, b) = (self.words, other.words);
        Self { words: [a[0] | b[0], a[1] | b[1], a[2] | b[2]], beyond: self.beyond || other.beyond }
    }

    /// What is in this one and not in `other`. Numbers beyond stay.
    pub const fn minus(self, other: Self) -> Self {
        let (a, b) = (self.words, other.words);
        Self { words: [a[0] & !b[0], a[1] & !b[1], a[2] & !b[2]], beyond: self.beyond }
    }

    /// The numbers in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<> {
        let words = self.words;
        (0..3u32).flat_map(move |at| {
            let mut word = words[at as usize];
            std::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros())?;
                word &= word - 1;
                Some(at * 32 + bit)
            })
        })
    }
}

impl<'a> Wire<'a> for Bitmap {
    #[inline]
    fn decode(r: &mut Reader<'a>) -> Result<Self, Error> {
        let mut set = Self::EMPTY;
        for at in 0..r.count(BITMAP_WORDS_MAX)? {
            let word = r.u32()?;
            match set.words.get_mut(at) {
                Some(place) => *place = word,
                None => set.beyond |= word != 0,
            }
        }
        Ok(set)
    }

    /// Without zero words at the end. Numbers beyond are not written: they mean nothing here.
    #[inline]
    fn encode(&self, w: &mut Writer) {
        let count = self.words.iter().rposition(|&word| word != 0).map_or(0, |at| at + 1);
        w.count(count);
        self.words[..count].iter().for_each(|&word| w.u32(word));
    }

    #[cfg(test)]
    fn sample(s: &mut crate::sample::Sampler) -> Self {
        Self { words: std::array::from_fn(|_| s.number() as u32), beyond: false }
    }
}

impl std::fmt::Debug for Bitmap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut set = f.debug_set();
        set.entries(self.iter());
        if self.beyond {
            set.entry(&"…");
        }
        set.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bitmap_golden_bytes() {
        // RFC 8881, section 3.3.7: word n / 32, bit n % 32, the least significant first.
        let mut w = Writer::new();
        Bitmap::of(&[1, 4, 33]).encode(&mut w);
        assert_eq!(w.as_bytes(), [0, 0, 0, 2, 0, 0, 0, 0x12, 0, 0, 0, 2]);
        let mut r = Reader::new(w.as_bytes());
        assert_eq!(Bitmap::decode(&mut r).unwrap().iter().collect::<Vec<_>>(), [1, 4, 33]);
    }

    #[test]
    fn words_beyond_are_remembered_and_more_are_refused() {
        let mut w = Writer::new();
        w.count(4);
        [0, 0, 0, 8].iter().for_each(|&word| w.u32(word));
        let set = Bitmap::decode(&mut Reader::new(w.as_bytes())).unwrap();
        assert!(set.has_beyond() && !set.is_empty() && set.iter().next().is_none());
        let many = [0, 0, 1, 1, 0, 0, 0, 0];
        assert_eq!(Bitmap::decode(&mut Reader::new(&many)), Err(Error::TooLong { len: 257, max: BITMAP_WORDS_MAX }));
    }
}
