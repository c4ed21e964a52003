//! What must be known of a client after a restart: whether it held state, and may reclaim it (RFC 8881, section 8.4.2.1). Keeping it durable is the driver's.
//!
//! Key: family (1 byte: 0 is 4.0, 1 is 4.1 and later), then the client's name. Value, in XDR: version (1), revoked (bool), verifier (8 bytes).

use vouch_nfs4::{OPAQUE_LIMIT, Verifier};
use vouch_xdr::{Error, Reader, Writer};

use super::client::Family;

const VERSION: u32 = 1;

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryRecord {
    /// Which world's client.
    pub family: Family,
    /// Its name.
    pub owner: Vec<u8>,
    /// Its life.
    pub verifier: Verifier,
    /// Its state was taken away: it may not reclaim.
    pub revoked: bool,
}

impl RecoveryRecord {
    /// The key of a client's record.
    pub fn key(family: Family, owner: &[u8]) -> Vec<u8> {
        let mut key = Vec::with_capacity(1 + owner.len());
        key.push(family as u8);
        key.extend_from_slice(owner);
        key
    }

    /// Key and value.
    pub fn to_bytes(&self) -> (Vec<u8>, Vec<u8>) {
        let mut w = Writer::new();
        w.u32(VERSION);
        w.bool(self.revoked);
        w.opaque_fixed(&self.verifier.0);
        (Self::key(self.family, &self.owner), w.into_bytes())
    }

    /// From key and value as they were kept.
    pub fn from_bytes(key: &[u8], value: &[u8]) -> Result<Self, Error> {
        let unknown = |what, value: u32| Error::Unknown { what, value };
        let (&family, owner) = key.split_first().ok_or(unknown("recovery key", 0))?;
        let family = match family {
            0 => Family::V40,
            1 => Family::V41,
            other => return Err(unknown("recovery key", other.into())),
        };
        if owner.len() > OPAQUE_LIMIT {
            return Err(Error::TooLong { len: owner.len(), max: OPAQUE_LIMIT });
        }
        let mut r = Reader::new(value);
        match r.u32()? {
            VERSION => {}
            other => return Err(unknown("recovery record", other)),
        }
        let revoked = r.bool()?;
        let verifier = Verifier(r.opaque_fixed()?);
        Ok(RecoveryRecord { family, owner: owner.to_vec(), verifier, revoked })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_as_they_were_kept() {
        let record = RecoveryRecord { family: Family::V41, owner: b"host".to_vec(), verifier: Verifier([7; 8]), revoked: true };
        let (key, value) = record.to_bytes();
        assert_eq!((key.as_slice(), value.as_slice()), (&b"\x01host"[..], &b"\0\0\0\x01\0\0\0\x01\x07\x07\x07\x07\x07\x07\x07\x07"[..]));
        assert_eq!(RecoveryRecord::from_bytes(&key, &value), Ok(record));
        for len in 0..value.len() {
            assert!(RecoveryRecord::from_bytes(&key, &value[..len]).is_err());
        }
        assert!(RecoveryRecord::from_bytes(b"", &value).is_err());
        assert!(RecoveryRecord::from_bytes(b"\x02x", &value).is_err());
    }
}
