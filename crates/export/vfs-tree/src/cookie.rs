//! An entry's number and 31 bits of its name's hash: the hash recognizes the entry after changes.
//! So cookies survive new revisions and restarts without stored state.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cookie {
    pub(crate) number: u64,
    pub(crate) hash: u32,
}

impl Cookie {
    pub(crate) fn after(number: u64, name: &[u8]) -> Option<Self> {
        (number < NUMBER_MAX).then(|| Cookie { number, hash: hash(name) })
    }

    pub(crate) const fn of(value: u64) -> Option<Self> {
        let number = value >> HASH_BITS;
        if number == 0 || number > NUMBER_MAX {
            None
        } else {
            Some(Cookie { number: number - 1, hash: (value & HASH_MASK) as u32 })
        }
    }

    pub(crate) const fn value(self) -> u64 {
        (self.number + 1) << HASH_BITS | self.hash as u64
    }

    pub(crate) fn fits(self, name: &[u8]) -> bool {
        self.hash == hash(name)
    }
}

fn hash(name: &[u8]) -> u32 {
    let hash = blake3::hash(name);
    let word = hash.as_bytes().first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
    word & HASH_MASK as u32
}

const HASH_BITS: u32 = 31;
const HASH_MASK: u64 = (1 << HASH_BITS) - 1;
const NUMBER_MAX: u64 = u32::MAX as u64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_round_trip_and_others_are_refused() {
        for number in [0, 1, 99_999, NUMBER_MAX - 1] {
            let cookie = Cookie::after(number, b"name").unwrap();
            assert_eq!(Cookie::of(cookie.value()), Some(cookie));
            assert!(cookie.value() >= 1 << HASH_BITS && cookie.value() < 1 << 63);
            assert!(cookie.fits(b"name") && !cookie.fits(b"nome"));
        }
        assert_eq!(Cookie::after(NUMBER_MAX, b"name"), None);
        for value in [0, 1, 2, HASH_MASK, 1 << 63, u64::MAX] {
            assert_eq!(Cookie::of(value), None);
        }
    }
}
