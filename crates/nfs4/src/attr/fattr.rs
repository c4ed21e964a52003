//! The packed form of attributes (`fattr4`): a bitmap, and the values of its attributes one after
//! another in ascending order.

use vouch_xdr::{Error, Reader, Writer};

use crate::{Attributes, Bitmap, Status, Wire};

/// Longest run of values: a full list of ACL entries with names of usual length.
pub const ATTR_VALUES_LEN_MAX: usize = 512 * 1024;

/// Attributes as they came: which, and their values still packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fattr<'a> {
    /// Which attributes.
    pub mask: Bitmap,
    /// Their values.
    pub values: &'a [u8],
}

impl<'a> Fattr<'a> {
    /// The values. An error if one is of an attribute that isn't known, since nobody can tell how
    /// long it is.
    pub fn attributes(&self) -> Result<Attributes<'a>, Error> {
        if self.mask.has_beyond() {
            return Err(Error::Invalid("attribute number"));
        }
        let mut r = Reader::new(self.values);
        let attributes = Attributes::decode_values(self.mask, &mut r)?;
        r.finish()?;
        Ok(attributes)
    }

    /// What a client asks to be set, by a server that supports `supported`. RFC 8881, section 5.5:
    /// an attribute that isn't supported is ATTRNOTSUPP; one that can't be set is INVAL; values
    /// that can't be read are BADXDR.
    pub fn settings(&self, supported: Bitmap) -> Result<Attributes<'a>, Status> {
        if !self.mask.minus(supported).is_empty() {
            return Err(Status::ATTRNOTSUPP);
        }
        if !self.mask.minus(Attributes::SETTABLE).is_empty() {
            return Err(Status::INVAL);
        }
        self.attributes().map_err(|_| Status::BADXDR)
    }

    /// The values that VERIFY and NVERIFY compare, by a server that supports `supported`. RFC 8881,
    /// section 18.30.3: those that can only be set, and rdattr_error, are INVAL.
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
    /// Appends as a `fattr4` the attributes of `wanted` that have a value here, in ascending order.
    pub fn encode(&self, wanted: Bitmap, w: &mut Writer) {
        let mask = self.present(wanted);
        mask.encode(w);
        let start = w.begin_opaque();
        self.encode_values(mask, w);
        w.end_opaque(start);
    }
}
