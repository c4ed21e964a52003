//! XDR, the External Data Representation (RFC 4506): a bounded [`Reader`] and a [`Writer`].
//!
//! Owns the encoding of integers, opaques and counts. Knows nothing of any protocol, does no I/O,
//! and never allocates by a length that the input names: what it returns borrows from the input.

mod reader;
mod writer;

pub use reader::{Error, Reader};
pub use writer::Writer;

/// A value with one XDR form.
pub trait Xdr: Sized {
    /// Appends the value's XDR form.
    fn encode(&self, w: &mut Writer);

    /// Reads one value from the front of `r`; what follows it stays unread.
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error>;

    /// The value's XDR form alone.
    fn to_xdr(&self) -> Vec<u8> {
        let mut w = Writer::new();
        self.encode(&mut w);
        w.into_bytes()
    }

    /// Reads a value that must fill `bytes` to the end.
    fn from_xdr(bytes: &[u8]) -> Result<Self, Error> {
        let mut r = Reader::new(bytes);
        let value = Self::decode(&mut r)?;
        r.finish()?;
        Ok(value)
    }
}

/// Length of the zero padding after `len` bytes of opaque data (RFC 4506, section 3).
pub const fn pad_len(len: usize) -> usize {
    len.wrapping_neg() & 3
}
