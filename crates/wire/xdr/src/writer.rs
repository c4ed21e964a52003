//! Writer that appends to a buffer in units of four bytes.

use crate::pad_len;

/// Collects XDR items in one buffer.
#[derive(Debug, Default, Clone)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// An empty buffer.
    pub const fn new() -> Self {
        Self { bytes: Vec::new() }
    }

    /// Reuses the allocation of `bytes`.
    pub const fn append_to(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    /// The finished bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The bytes so far.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Length of the bytes so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// True before the first item.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// RFC 4506 §4.2.
    pub fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// §4.1.
    pub fn i32(&mut self, value: i32) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// §4.5.
    pub fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// §4.5.
    pub fn i64(&mut self, value: i64) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// §4.4.
    pub fn bool(&mut self, value: bool) {
        self.u32(value.into());
    }

    /// Adds the padding (§4.9).
    pub fn opaque_fixed(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
        self.bytes.resize(self.bytes.len() + pad_len(value.len()), 0);
    }

    /// Adds length and padding (§4.10). Panics if `value` is 4 GiB or longer.
    pub fn opaque(&mut self, value: &[u8]) {
        self.count(value.len());
        self.opaque_fixed(value);
    }

    /// An element count (§4.13). Panics if `len` does not fit 32 bits.
    pub fn count(&mut self, len: usize) {
        self.u32(u32::try_from(len).expect("lengths are limited well below 4 GiB by their owners"));
    }

    /// §4.19.
    pub fn optional<T: ?Sized>(&mut self, value: Option<&T>, write: impl FnOnce(&mut Self, &T)) {
        self.bool(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }

    /// Appends bytes that are XDR already.
    pub fn raw(&mut self, xdr: &[u8]) {
        debug_assert_eq!(xdr.len() % 4, 0, "XDR comes in units of four bytes");
        self.bytes.extend_from_slice(xdr);
    }

    /// The caller appends the data to [`Self::bytes_mut`], and passes the result to
    /// [`Self::end_opaque`], which fills in length and padding.
    pub fn begin_opaque(&mut self) -> usize {
        self.u32(0);
        self.bytes.len()
    }

    /// Returns the length of the data since `start`. Panics if it is 4 GiB or longer.
    pub fn end_opaque(&mut self, start: usize) -> usize {
        let len = self.bytes.len() - start;
        self.set_u32(
            start - 4,
            u32::try_from(len).expect("lengths are limited well below 4 GiB by their owners"),
        );
        self.bytes.resize(self.bytes.len() + pad_len(len), 0);
        len
    }

    /// Overwrites four bytes at `at`, for a count or status known only now.
    pub fn set_u32(&mut self, at: usize, value: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }

    /// Drops what follows the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }

    /// For opaque data in place; its final length must be a multiple of four.
    pub fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opaque_in_place_equals_opaque_at_once() {
        for len in 0..9 {
            let data = vec![7; len];
            let (mut at_once, mut in_place) = (Writer::new(), Writer::new());
            at_once.opaque(&data);
            let start = in_place.begin_opaque();
            in_place.bytes_mut().extend_from_slice(&data);
            assert_eq!(in_place.end_opaque(start), len);
            assert_eq!(in_place.as_bytes(), at_once.as_bytes());
        }
    }

    #[test]
    fn written_bytes_can_be_set_and_truncated() {
        let mut w = Writer::new();
        w.u32(1);
        w.u32(2);
        w.set_u32(0, 9);
        w.truncate(4);
        assert_eq!(w.as_bytes(), [0, 0, 0, 9]);
    }
}
