//! Reader that checks every length against the caller's limit and the remaining input.

use crate::pad_len;

/// Always the sender's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum Error {
    #[error("XDR ends {missing} bytes early")]
    Truncated { missing: usize },
    #[error("XDR length {len} is over the limit of {max}")]
    TooLong { len: usize, max: usize },
    #[error("XDR padding is not zero")]
    Padding,
    #[error("XDR boolean has the value {0}")]
    Bool(u32),
    #[error("XDR {what} has the unknown value {value}")]
    Unknown { what: &'static str, value: u32 },
    #[error("XDR {0} is not valid")]
    Invalid(&'static str),
    #[error("{0} bytes follow the end of the XDR")]
    Trailing(usize),
}

/// Reads XDR items from bytes that nobody has checked.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the first byte.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Bytes not read yet.
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The bytes not read yet; they stay unread.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Errors: bytes are left.
    pub const fn finish(self) -> Result<(), Error> {
        match self.rest.len() {
            0 => Ok(()),
            n => Err(Error::Trailing(n)),
        }
    }

    /// The next `len` bytes without padding. Fails if fewer are left.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Error> {
        match self.rest.split_at_checked(len) {
            Some((head, rest)) => {
                self.rest = rest;
                Ok(head)
            }
            None => Err(Error::Truncated { missing: len - self.rest.len() }),
        }
    }

    /// §4.2.
    pub fn u32(&mut self) -> Result<u32, Error> {
        self.fixed().map(u32::from_be_bytes)
    }

    /// §4.1.
    pub fn i32(&mut self) -> Result<i32, Error> {
        self.fixed().map(i32::from_be_bytes)
    }

    /// §4.5.
    pub fn u64(&mut self) -> Result<u64, Error> {
        self.fixed().map(u64::from_be_bytes)
    }

    /// §4.5.
    pub fn i64(&mut self) -> Result<i64, Error> {
        self.fixed().map(i64::from_be_bytes)
    }

    /// §4.4.
    pub fn bool(&mut self) -> Result<bool, Error> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Error::Bool(other)),
        }
    }

    /// With its padding (§4.9).
    pub fn opaque_fixed<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let bytes = self.fixed::<N>()?;
        self.padding(N)?;
        Ok(bytes)
    }

    /// At most `len_max` bytes (§4.10).
    pub fn opaque(&mut self, len_max: usize) -> Result<&'a [u8], Error> {
        let len = self.count(len_max)?;
        let bytes = self.take(len)?;
        self.padding(len)?;
        Ok(bytes)
    }

    /// At most `len_max` bytes of UTF-8 (§4.11).
    pub fn string(&mut self, len_max: usize) -> Result<&'a str, Error> {
        core::str::from_utf8(self.opaque(len_max)?).map_err(|_| Error::Invalid("string"))
    }

    /// Element count of an array (§4.13).
    pub fn count(&mut self, count_max: usize) -> Result<usize, Error> {
        let len = self.u32()? as usize;
        if len > count_max {
            return Err(Error::TooLong { len, max: count_max });
        }
        Ok(len)
    }

    /// A boolean, then the value if it is true (§4.19).
    pub fn optional<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        Ok(if self.bool()? { Some(read(self)?) } else { None })
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        match self.rest.split_first_chunk::<N>() {
            Some((head, rest)) => {
                self.rest = rest;
                Ok(*head)
            }
            None => Err(Error::Truncated { missing: N - self.rest.len() }),
        }
    }

    fn padding(&mut self, len: usize) -> Result<(), Error> {
        if self.take(pad_len(len))?.iter().any(|&b| b != 0) {
            return Err(Error::Padding);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Writer;

    #[test]
    fn malformed_values_are_refused() {
        assert_eq!(
            Reader::new(&[0xff; 8]).opaque(64),
            Err(Error::TooLong { len: 0xffff_ffff, max: 64 })
        );
        assert_eq!(Reader::new(&[0, 0, 0]).u32(), Err(Error::Truncated { missing: 1 }));
        for (bytes, opaque) in [
            (&[0, 0, 0, 5, 1, 2][..], Err(Error::Truncated { missing: 3 })),
            (&[0, 0, 0, 1, 7, 0, 0, 1], Err(Error::Padding)),
            (&[0, 0, 0, 1, 7, 0, 0, 0], Ok(&[7u8][..])),
        ] {
            assert_eq!(Reader::new(bytes).opaque(8), opaque, "{bytes:?}");
        }
        assert_eq!(Reader::new(&[0, 0, 0, 2]).bool(), Err(Error::Bool(2)));
        assert_eq!(Reader::new(&[1]).finish(), Err(Error::Trailing(1)));
    }

    proptest::proptest! {
        #[test]
        fn written_values_read_back(a: u32, b: i64, c: Vec<u8>, d: bool, e: [u8; 7], f: Option<u64>) {
            let mut w = Writer::new();
            w.u32(a); w.i64(b); w.opaque(&c); w.bool(d); w.opaque_fixed(&e);
            w.optional(f.as_ref(), |w, v| w.u64(*v));
            let bytes = w.into_bytes();
            proptest::prop_assert_eq!(bytes.len() % 4, 0);
            let mut r = Reader::new(&bytes);
            proptest::prop_assert_eq!(r.u32(), Ok(a));
            proptest::prop_assert_eq!(r.i64(), Ok(b));
            proptest::prop_assert_eq!(r.opaque(c.len()), Ok(&c[..]));
            proptest::prop_assert_eq!(r.bool(), Ok(d));
            proptest::prop_assert_eq!(r.opaque_fixed::<7>(), Ok(e));
            proptest::prop_assert_eq!(r.optional(Reader::u64), Ok(f));
            proptest::prop_assert_eq!(r.finish(), Ok(()));
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            let mut r = Reader::new(&bytes);
            let _ = r.opaque(100);
            let _ = r.optional(|r| r.string(10).map(str::len));
            let _ = r.opaque_fixed::<5>();
        }
    }

    /// script/prove raises the bounds.
    fn bound(small: usize, large: usize) -> usize {
        if std::env::var_os("VOUCH_PROVE").is_some() { large } else { small }
    }

    /// Results of the calls by RFC 4506, with the position behind: written with indexes alone.
    fn by_the_rfc(call: usize, input: &[u8], at: usize) -> Option<(Vec<u8>, usize)> {
        let word = |at: usize| {
            let bytes = input.get(at..at.checked_add(4)?)?;
            Some(bytes.iter().fold(0_usize, |word, byte| word << 8 | usize::from(*byte)))
        };
        let opaque = |at: usize, len: usize| {
            let end = at + len.div_ceil(4) * 4;
            let bytes = input.get(at..at + len)?.to_vec();
            let padding = input.get(at + len..end)?;
            padding.iter().all(|byte| *byte == 0).then_some((bytes, end))
        };
        match call {
            0 => Some((input.get(at..at + 4)?.to_vec(), at + 4)),
            1 => Some((input.get(at..at + 8)?.to_vec(), at + 8)),
            2 => (word(at)? < 2).then(|| (input[at + 3..at + 4].to_vec(), at + 4)),
            3 => opaque(at + 4, word(at).filter(|len| *len <= 5)?),
            4 => opaque(at, 3),
            5 => opaque(at + 4, word(at).filter(|len| *len <= 2)?)
                .filter(|(bytes, _)| std::str::from_utf8(bytes).is_ok()),
            6 => word(at).filter(|len| *len <= 2).map(|len| (vec![len as u8], at + 4)),
            7 => match word(at)? {
                0 => Some((vec![], at + 4)),
                1 => Some((input.get(at + 4..at + 8)?.to_vec(), at + 8)),
                _ => None,
            },
            _ => Some((input.get(at..at + 5)?.to_vec(), at + 5)),
        }
    }

    fn call(call: usize, r: &mut Reader<'_>) -> Option<Vec<u8>> {
        match call {
            0 => r.u32().ok().map(|word| word.to_be_bytes().to_vec()),
            1 => r.u64().ok().map(|word| word.to_be_bytes().to_vec()),
            2 => r.bool().ok().map(|value| vec![u8::from(value)]),
            3 => r.opaque(5).ok().map(<[u8]>::to_vec),
            4 => r.opaque_fixed::<3>().ok().map(|bytes| bytes.to_vec()),
            5 => r.string(2).ok().map(|text| text.as_bytes().to_vec()),
            6 => r.count(2).ok().map(|count| vec![count as u8]),
            7 => r
                .optional(Reader::u32)
                .ok()
                .map(|word| word.map_or(vec![], |word| word.to_be_bytes().to_vec())),
            _ => r.take(5).ok().map(<[u8]>::to_vec),
        }
    }

    /// All inputs up to a length from six bytes that matter, all pairs of calls.
    #[test]
    fn exhaustive_reads_follow_the_rfc_within_the_input() {
        const BYTES: [u8; 6] = [0, 1, 2, 3, 0x80, 0xff];
        for len in 0..=bound(6, 8) {
            for number in 0..BYTES.len().pow(len as u32) {
                let digit = |at| number / BYTES.len().pow(at) % BYTES.len();
                let input: Vec<u8> = (0..len as u32).map(|at| BYTES[digit(at)]).collect();
                for (first, second) in (0..81).map(|pair| (pair / 9, pair % 9)) {
                    let mut r = Reader::new(&input);
                    let mut at = 0;
                    for which in [first, second] {
                        let expected = by_the_rfc(which, &input, at);
                        let found = call(which, &mut r);
                        assert_eq!(
                            found,
                            expected.clone().map(|(bytes, _)| bytes),
                            "{input:x?} {first} {second}"
                        );
                        assert!(input.ends_with(r.rest()));
                        let Some((_, end)) = expected else { break };
                        assert_eq!(r.remaining(), len - end);
                        at = end;
                    }
                }
            }
        }
    }
}
