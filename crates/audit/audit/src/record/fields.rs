use super::RecordError;

pub(super) struct FieldEncoder<'o> {
    pub(super) out: &'o mut [u8],
    pub(super) len: usize,
    pub(super) presence: u32,
    pub(super) bit: u32,
}

impl FieldEncoder<'_> {
    #[inline]
    pub(super) fn number(&mut self, number: Option<u64>) {
        if let Some(number) = number {
            self.presence |= 1 << self.bit;
            self.varint(number);
        }
        self.bit += 1;
    }

    #[inline]
    pub(super) fn text(&mut self, text: &[u8], len_max: usize) {
        if !text.is_empty() {
            let text = &text[..text.len().min(len_max)];
            self.presence |= 1 << self.bit;
            self.varint(text.len() as u64);
            self.bytes(text);
        }
        self.bit += 1;
    }

    #[inline]
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.out[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    #[inline]
    pub(super) fn varint(&mut self, mut number: u64) {
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

    pub(super) fn varint(&mut self) -> Result<u64, RecordError> {
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

    pub(super) fn number(&mut self) -> Result<Option<u64>, RecordError> {
        if self.present() { self.varint().map(Some) } else { Ok(None) }
    }

    pub(super) fn small(&mut self) -> Result<Option<u32>, RecordError> {
        self.number()?.map(u32::try_from).transpose().map_err(|_| RecordError::Unknown("a number"))
    }

    pub(super) fn text(&mut self) -> Result<&'a [u8], RecordError> {
        if !self.present() {
            return Ok(b"");
        }
        let len = usize::try_from(self.varint()?).map_err(|_| RecordError::Cut)?;
        let (text, rest) = self.rest.split_at_checked(len).ok_or(RecordError::Cut)?;
        self.rest = rest;
        if text.is_empty() { Err(RecordError::Unknown("an empty string")) } else { Ok(text) }
    }
}
