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
}
