//! XDR (RFC 4506): a bounded [`Reader`] and a [`Writer`]. No I/O. Never allocates by a length from
//! the input: results borrow from the input.

mod reader;
mod writer;

pub use reader::{Error, Reader};
pub use writer::Writer;

/// A type with an XDR form (RFC 4506).
pub trait Xdr: Sized {
    /// Appends the XDR form.
    fn encode(&self, w: &mut Writer);

    /// Decodes from the front of `r`.
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error>;

    /// The XDR form alone.
    fn to_xdr(&self) -> Vec<u8> {
        let mut w = Writer::new();
        self.encode(&mut w);
        w.into_bytes()
    }

    /// The value must fill `bytes`.
    fn from_xdr(bytes: &[u8]) -> Result<Self, Error> {
        let mut r = Reader::new(bytes);
        let value = Self::decode(&mut r)?;
        r.finish()?;
        Ok(value)
    }
}

/// Zero padding after `len` bytes of opaque data (RFC 4506 §3).
pub const fn pad_len(len: usize) -> usize {
    len.wrapping_neg() & 3
}
