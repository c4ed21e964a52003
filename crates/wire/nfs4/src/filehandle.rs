//! Opaque bytes, stored inline so that a copy needs no allocation.

use vouch_xdr::{Error, Reader, Writer};

use crate::Wire;

/// RFC 8881, `NFS4_FHSIZE`.
pub const FILEHANDLE_LEN_MAX: usize = 128;

/// `nfs_fh4`.
#[derive(Clone, Copy)]
pub struct Filehandle {
    len: u8,
    bytes: [u8; FILEHANDLE_LEN_MAX],
}

impl Filehandle {
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let len =
            u8::try_from(bytes.len()).ok().filter(|&len| usize::from(len) <= FILEHANDLE_LEN_MAX)?;
        let mut all = [0; FILEHANDLE_LEN_MAX];
        all[..bytes.len()].copy_from_slice(bytes);
        Some(Self { len, bytes: all })
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl<'a> Wire<'a> for Filehandle {
    #[inline]
    fn decode(r: &mut Reader<'a>) -> Result<Self, Error> {
        let bytes = r.opaque(FILEHANDLE_LEN_MAX)?;
        Ok(Self::new(bytes).expect("the reader refuses longer filehandles"))
    }

    #[inline]
    fn encode(&self, w: &mut Writer) {
        w.opaque(self.as_bytes());
    }

    #[cfg(test)]
    fn sample(s: &mut crate::sample::Sampler) -> Self {
        Self::new(s.bytes(FILEHANDLE_LEN_MAX)).unwrap()
    }
}

impl PartialEq for Filehandle {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Filehandle {}

impl std::hash::Hash for Filehandle {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl std::fmt::Debug for Filehandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Filehandle(")?;
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}
