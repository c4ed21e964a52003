//! Decoded values borrow from the message. Lists grow with their elements, so a false count
//! allocates little.

use std::ops::Deref;

use vouch_xdr::{Error, Reader, Writer};

#[cfg(test)]
use crate::sample::Sampler;

/// Its parts may borrow from the message.
pub trait Wire<'a>: Sized {
    fn decode(r: &mut Reader<'a>) -> Result<Self, Error>;

    fn encode(&self, w: &mut Writer);

    #[cfg(test)]
    fn sample(s: &mut Sampler) -> Self;
}

/// Bytes of file data accepted by the decoder. Record and session limits are lower.
pub(crate) const IO_LEN_MAX: usize = 64 * 1024 * 1024;

/// Borrowed from the message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Bytes<'a, const MAX: usize>(pub &'a [u8]);

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct List<T, const MAX: usize>(pub Vec<T>);

impl<'a, const MAX: usize> Wire<'a> for Bytes<'a, MAX> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, Error> {
        r.opaque(MAX).map(Self)
    }

    fn encode(&self, w: &mut Writer) {
        debug_assert!(self.0.len() <= MAX, "senders obey the limits of receivers");
        w.opaque(self.0);
    }

    #[cfg(test)]
    fn sample(s: &mut Sampler) -> Self {
        Self(s.bytes(MAX))
    }
}

impl<const MAX: usize> Deref for Bytes<'_, MAX> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0
    }
}

impl<const MAX: usize> std::fmt::Debug for Bytes<'_, MAX> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.len() {
            0..=256 => write!(f, "\"{}\"", self.0.escape_ascii()),
            len => write!(f, "[{len} bytes]"),
        }
    }
}

impl<'a, T: Wire<'a>, const MAX: usize> Wire<'a> for List<T, MAX> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, Error> {
        let count = r.count(MAX)?;
        let mut list = Vec::new();
        for _ in 0..count {
            list.push(T::decode(r)?);
        }
        Ok(Self(list))
    }

    fn encode(&self, w: &mut Writer) {
        debug_assert!(self.0.len() <= MAX, "senders obey the limits of receivers");
        w.count(self.0.len());
        self.0.iter().for_each(|item| item.encode(w));
    }

    #[cfg(test)]
    fn sample(s: &mut Sampler) -> Self {
        Self((0..s.below(MAX.min(4) + 1)).map(|_| T::sample(s)).collect())
    }
}

impl<T, const MAX: usize> Deref for List<T, MAX> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T, const MAX: usize> Default for List<T, MAX> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// An array of at most one element has the same form (RFC 4506 §4.19).
impl<'a, T: Wire<'a>> Wire<'a> for Option<T> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, Error> {
        r.optional(T::decode)
    }

    fn encode(&self, w: &mut Writer) {
        w.optional(self.as_ref(), |w, value| value.encode(w));
    }

    #[cfg(test)]
    fn sample(s: &mut Sampler) -> Self {
        bool::sample(s).then(|| T::sample(s))
    }
}

impl<'a> Wire<'a> for () {
    fn decode(_: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(())
    }

    fn encode(&self, _: &mut Writer) {}

    #[cfg(test)]
    fn sample(_: &mut Sampler) -> Self {}
}

impl<'a, const N: usize> Wire<'a> for [u8; N] {
    fn decode(r: &mut Reader<'a>) -> Result<Self, Error> {
        r.opaque_fixed()
    }

    fn encode(&self, w: &mut Writer) {
        w.opaque_fixed(self);
    }

    #[cfg(test)]
    fn sample(s: &mut Sampler) -> Self {
        std::array::from_fn(|_| s.word() as u8)
    }
}

macro_rules! number {
    ($($t:ident)*) => { $(
        impl<'a> Wire<'a> for $t {
            fn decode(r: &mut Reader<'a>) -> Result<Self, Error> {
                r.$t()
            }

            fn encode(&self, w: &mut Writer) {
                w.$t(*self);
            }

            #[cfg(test)]
            fn sample(s: &mut Sampler) -> Self {
                s.number() as $t
            }
        }
    )* };
}

number!(u32 i32 u64 i64);

impl<'a> Wire<'a> for bool {
    fn decode(r: &mut Reader<'a>) -> Result<Self, Error> {
        r.bool()
    }

    fn encode(&self, w: &mut Writer) {
        w.bool(*self);
    }

    #[cfg(test)]
    fn sample(s: &mut Sampler) -> Self {
        s.word() & 1 == 1
    }
}
