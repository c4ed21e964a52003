use std::net::IpAddr;

use super::RecordError;

/// An optional field: its encoding has a bit of its own, which tells whether it is present.
pub(super) trait Field<'a>: Sized {
    fn encode(&self, encoder: &mut FieldEncoder<'_>);
    fn decode(decoder: &mut FieldDecoder<'a>) -> Result<Self, RecordError>;
}

macro_rules! numbers {
    ($($type:ty, $what:literal;)*) => { $(
        impl Field<'_> for Option<$type> {
            #[inline]
            fn encode(&self, encoder: &mut FieldEncoder<'_>) {
                encoder.number(self.map(u64::from));
            }

            #[inline]
            fn decode(decoder: &mut FieldDecoder<'_>) -> Result<Self, RecordError> {
                let number = decoder.number()?;
                number.map(<$type>::try_from).transpose().map_err(|_| RecordError::Unknown($what))
            }
        }
    )* };
}

numbers! { u16, "a port"; u32, "a number"; }

impl Field<'_> for Option<u64> {
    #[inline]
    fn encode(&self, encoder: &mut FieldEncoder<'_>) {
        encoder.number(*self);
    }

    #[inline]
    fn decode(decoder: &mut FieldDecoder<'_>) -> Result<Self, RecordError> {
        decoder.number()
    }
}

/// Absent if it is 0.
impl<'a> Field<'a> for u32 {
    #[inline]
    fn encode(&self, encoder: &mut FieldEncoder<'_>) {
        encoder.number((*self != 0).then_some((*self).into()));
    }

    #[inline]
    fn decode(decoder: &mut FieldDecoder<'a>) -> Result<Self, RecordError> {
        Ok(Option::<u32>::decode(decoder)?.unwrap_or(0))
    }
}

impl<'a> Field<'a> for &'a [u8] {
    #[inline]
    fn encode(&self, encoder: &mut FieldEncoder<'_>) {
        encoder.text(self);
    }

    #[inline]
    fn decode(decoder: &mut FieldDecoder<'a>) -> Result<Self, RecordError> {
        decoder.text()
    }
}

impl Field<'_> for Option<IpAddr> {
    #[inline]
    fn encode(&self, encoder: &mut FieldEncoder<'_>) {
        match self {
            Some(IpAddr::V4(address)) => encoder.text(&address.octets()),
            Some(IpAddr::V6(address)) => encoder.text(&address.octets()),
            None => encoder.text(b""),
        }
    }

    #[inline]
    fn decode(decoder: &mut FieldDecoder<'_>) -> Result<Self, RecordError> {
        let bytes = decoder.text()?;
        Ok(match (<[u8; 4]>::try_from(bytes), <[u8; 16]>::try_from(bytes)) {
            (Ok(bytes), _) => Some(bytes.into()),
            (_, Ok(bytes)) => Some(bytes.into()),
            _ if bytes.is_empty() => None,
            _ => return Err(RecordError::Unknown("an address")),
        })
    }
}

pub(super) struct FieldEncoder<'o> {
    pub(super) out: &'o mut [u8],
    pub(super) len: usize,
    pub(super) presence: u32,
    pub(super) bit: u32,
}

impl FieldEncoder<'_> {
    #[inline]
    fn number(&mut self, number: Option<u64>) {
        if let Some(number) = number {
            self.presence |= 1 << self.bit;
            self.varint(number);
        }
        self.bit += 1;
    }

    #[inline]
    fn text(&mut self, text: &[u8]) {
        if !text.is_empty() {
            self.presence |= 1 << self.bit;
            self.varint(text.len() as u64);
            self.bytes(text);
        }
        self.bit += 1;
    }

    #[inline]
    pub(super) fn path(&mut self, path: &[u8], base: &[u8]) {
        let below = (!base.is_empty()).then(|| path.strip_prefix(base)).flatten().unwrap_or(b"");
        self.text(below);
        self.text(if below.is_empty() { path } else { b"" });
    }

    #[inline]
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.out[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    #[inline]
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.out[self.len] = number as u8 | 0x80;
            self.len += 1;
            number >>= 7;
        }
        self.out[self.len] = number as u8;
        self.len += 1;
    }
}

pub(super) struct FieldDecoder<'a> {
    pub(super) rest: &'a [u8],
    pub(super) presence: u32,
}

impl<'a> FieldDecoder<'a> {
    fn present(&mut self) -> bool {
        let present = self.presence & 1 == 1;
        self.presence >>= 1;
        present
    }

    pub(super) fn path(
        &mut self,
        export: &[u8],
        scratch: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], RecordError> {
        let (below, path) = (self.text()?, self.text()?);
        if below.is_empty() {
            return Ok(path);
        }
        if !path.is_empty() {
            return Err(RecordError::Unknown("two encodings of a path"));
        }
        scratch.clear();
        scratch.extend_from_slice(export);
        scratch.extend_from_slice(below);
        Ok(scratch)
    }

    fn varint(&mut self) -> Result<u64, RecordError> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or(RecordError::Cut)?;
            self.rest = rest;
            let part = u64::from(byte & 0x7f);
            // Each number has one encoding.
            if (shift == 63 && part > 1) || (shift > 0 && *byte == 0) {
                return Err(RecordError::Unknown("a number"));
            }
            number |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(RecordError::Unknown("a number"))
    }

    fn number(&mut self) -> Result<Option<u64>, RecordError> {
        if self.present() { self.varint().map(Some) } else { Ok(None) }
    }

    fn text(&mut self) -> Result<&'a [u8], RecordError> {
        if !self.present() {
            return Ok(b"");
        }
        let len = usize::try_from(self.varint()?).map_err(|_| RecordError::Cut)?;
        let (text, rest) = self.rest.split_at_checked(len).ok_or(RecordError::Cut)?;
        self.rest = rest;
        if text.is_empty() { Err(RecordError::Unknown("an empty string")) } else { Ok(text) }
    }
}
