//! `fattr4`: a bitmap, then the values in ascending order of attribute number.

use vouch_xdr::{Error, Reader, Writer};

use crate::{Attributes, Bitmap, Status, Wire};

/// A full access control list with names of usual length.
pub(crate) const ATTR_VALUES_LEN_MAX: usize = 512 * 1024;

/// As received; the values are not decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fattr<'a> {
    pub mask: Bitmap,
    pub values: &'a [u8],
}

impl<'a> Fattr<'a> {
    /// Fails on an unknown attribute, because its length is unknown.
    pub fn attributes(&self) -> Result<Attributes<'a>, Error> {
        if self.mask.has_unknown_bits() {
            return Err(Error::Invalid("attribute number"));
        }
        let mut r = Reader::new(self.values);
        let attributes = Attributes::decode_values(self.mask, &mut r)?;
        r.finish()?;
        Ok(attributes)
    }

    /// ATTRNOTSUPP for an unsupported attribute, INVAL for a read-only one (RFC 8881 §5.5), BADXDR
    /// for undecodable values.
    pub fn settings(&self, supported: Bitmap) -> Result<Attributes<'a>, Status> {
        if !self.mask.minus(supported).is_empty() {
            return Err(Status::ATTRNOTSUPP);
        }
        if !self.mask.minus(Attributes::SETTABLE).is_empty() {
            return Err(Status::INVAL);
        }
        self.attributes().map_err(|_| Status::BADXDR)
    }

    /// For VERIFY and NVERIFY. INVAL for write-only attributes and rdattr_error (RFC 8881
    /// §18.30.3).
    pub fn comparison(&self, supported: Bitmap) -> Result<Attributes<'a>, Status> {
        if !self.mask.minus(supported).is_empty() {
            return Err(Status::ATTRNOTSUPP);
        }
        if !self.mask.and(Attributes::NOT_COMPARABLE).is_empty() {
            return Err(Status::INVAL);
        }
        self.attributes().map_err(|_| Status::BADXDR)
    }
}

impl<'a> Wire<'a> for Fattr<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(Self { mask: Bitmap::decode(r)?, values: r.opaque(ATTR_VALUES_LEN_MAX)? })
    }

    fn encode(&self, w: &mut Writer) {
        self.mask.encode(w);
        w.opaque(self.values);
    }

    #[cfg(test)]
    fn sample(s: &mut crate::sample::Sampler) -> Self {
        Self { mask: Bitmap::sample(s), values: s.bytes(200) }
    }
}

impl Attributes<'_> {
    pub fn encode(&self, wanted: Bitmap, w: &mut Writer) {
        let mask = self.present(wanted);
        mask.encode(w);
        let start = w.begin_opaque();
        self.encode_values(mask, w);
        w.end_opaque(start);
    }
}
