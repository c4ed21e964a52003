//! Sets of attribute or operation numbers. Three inline words hold all defined numbers.

use vouch_xdr::{Error, Reader, Writer};

use crate::Wire;

/// Accepted by the decoder: a newer peer can send more than three words.
pub(crate) const BITMAP_WORDS_MAX: usize = 256;

/// Numbers below 96 (`bitmap4`), and a flag for received numbers of 96 or more.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Bitmap {
    words: [u32; 3],
    has_unknown: bool,
}

impl Bitmap {
    pub const EMPTY: Self = Self { words: [0; 3], has_unknown: false };

    /// Panics (in a constant: at compile time) if a number is 96 or more.
    pub const fn of(numbers: &[u32]) -> Self {
        let mut set = Self::EMPTY;
        let mut at = 0;
        while at < numbers.len() {
            set = set.with(numbers[at]);
            at += 1;
        }
        set
    }

    /// Panics as [`Bitmap::of`].
    pub const fn with(mut self, number: u32) -> Self {
        self.words[(number / 32) as usize] |= 1 << (number % 32);
        self
    }

    pub const fn without(mut self, number: u32) -> Self {
        if number < 96 {
            self.words[(number / 32) as usize] &= !(1 << (number % 32));
        }
        self
    }

    pub const fn has(&self, number: u32) -> bool {
        number < 96 && self.words[(number / 32) as usize] & (1 << (number % 32)) != 0
    }

    pub(crate) const fn has_unknown_bits(&self) -> bool {
        self.has_unknown
    }

    pub const fn is_empty(&self) -> bool {
        self.words[0] | self.words[1] | self.words[2] == 0 && !self.has_unknown
    }

    pub const fn and(self, other: Self) -> Self {
        let (a, b) = (self.words, other.words);
        Self {
            words: [a[0] & b[0], a[1] & b[1], a[2] & b[2]],
            has_unknown: self.has_unknown && other.has_unknown,
        }
    }

    pub const fn or(self, other: Self) -> Self {
        let (a, b) = (self.words, other.words);
        Self {
            words: [a[0] | b[0], a[1] | b[1], a[2] | b[2]],
            has_unknown: self.has_unknown || other.has_unknown,
        }
    }

    /// The flag for numbers of 96 or more stays.
    pub const fn minus(self, other: Self) -> Self {
        let (a, b) = (self.words, other.words);
        Self { words: [a[0] & !b[0], a[1] & !b[1], a[2] & !b[2]], has_unknown: self.has_unknown }
    }

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
                Some(known) => *known = word,
                None => set.has_unknown |= word != 0,
            }
        }
        Ok(set)
    }

    /// Omits zero words at the end, and numbers of 96 or more.
    #[inline]
    fn encode(&self, w: &mut Writer) {
        let count = self.words.iter().rposition(|&word| word != 0).map_or(0, |at| at + 1);
        w.count(count);
        self.words[..count].iter().for_each(|&word| w.u32(word));
    }

    #[cfg(test)]
    fn sample(s: &mut crate::sample::Sampler) -> Self {
        Self { words: std::array::from_fn(|_| s.number() as u32), has_unknown: false }
    }
}

impl std::fmt::Debug for Bitmap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut set = f.debug_set();
        set.entries(self.iter());
        if self.has_unknown {
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
        // RFC 8881 §3.3.7.
        let mut w = Writer::new();
        Bitmap::of(&[1, 4, 33]).encode(&mut w);
        assert_eq!(w.as_bytes(), [0, 0, 0, 2, 0, 0, 0, 0x12, 0, 0, 0, 2]);
        let mut r = Reader::new(w.as_bytes());
        assert_eq!(Bitmap::decode(&mut r).unwrap().iter().collect::<Vec<_>>(), [1, 4, 33]);
    }

    #[test]
    fn accepts_unknown_words_and_refuses_too_many() {
        let mut w = Writer::new();
        w.count(4);
        [0, 0, 0, 8].iter().for_each(|&word| w.u32(word));
        let set = Bitmap::decode(&mut Reader::new(w.as_bytes())).unwrap();
        assert!(set.has_unknown_bits() && !set.is_empty() && set.iter().next().is_none());
        let many = [0, 0, 1, 1, 0, 0, 0, 0];
        assert_eq!(
            Bitmap::decode(&mut Reader::new(&many)),
            Err(Error::TooLong { len: 257, max: BITMAP_WORDS_MAX })
        );
    }
}
