//! What must be known of a client after a restart: whether it held state, and may reclaim it (RFC 8881, section 8.4.2.1), and who it was, so that nobody else does. Keeping it
//! durable is the driver's. The bytes are drawn in docs/formats/recovery.md.

use vouch_nfs4::{OPAQUE_LIMIT, Verifier};
use vouch_xdr::{Error, Reader, Writer};

use super::client::Family;
use super::maker::Maker;

const VERSION: u32 = 2;
/// Without the maker.
const VERSION_1: u32 = 1;

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
    /// Who introduced it: nobody else may reclaim.
    pub maker: Maker,
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
        match &self.maker {
            Maker::Unknown => w.u32(0),
            Maker::Nobody => w.u32(1),
            Maker::Sys => w.u32(2),
            Maker::Proven { name, protected } => {
                w.u32(3);
                w.opaque_fixed(name);
                w.bool(*protected);
            }
        }
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
        let version = r.u32()?;
        if !matches!(version, VERSION_1 | VERSION) {
            return Err(unknown("recovery record", version));
        }
        let revoked = r.bool()?;
        let verifier = Verifier(r.opaque_fixed()?);
        let maker = match version {
            VERSION_1 => Maker::Unknown,
            _ => match r.u32()? {
                0 => Maker::Unknown,
                1 => Maker::Nobody,
                2 => Maker::Sys,
                3 => Maker::Proven { name: r.opaque_fixed()?, protected: r.bool()? },
                other => return Err(unknown("maker of a recovery record", other)),
            },
        };
        Ok(RecoveryRecord { family, owner: owner.to_vec(), verifier, revoked, maker })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_as_they_were_kept() {
        let proven = Maker::Proven { name: [5; 32], protected: true };
        for maker in [Maker::Unknown, Maker::Nobody, Maker::Sys, proven] {
            let record = RecoveryRecord { family: Family::V41, owner: b"host".to_vec(), verifier: Verifier([7; 8]), revoked: true, maker };
            let (key, value) = record.to_bytes();
            assert_eq!(RecoveryRecord::from_bytes(&key, &value), Ok(record));
            for len in 0..value.len() {
                assert!(RecoveryRecord::from_bytes(&key, &value[..len]).is_err());
            }
            assert!(RecoveryRecord::from_bytes(b"", &value).is_err());
            assert!(RecoveryRecord::from_bytes(b"\x02x", &value).is_err());
        }
        let record =
            RecoveryRecord { family: Family::V41, owner: b"host".to_vec(), verifier: Verifier([7; 8]), revoked: true, maker: proven };
        let (key, value) = record.to_bytes();
        let head = b"\0\0\0\x02\0\0\0\x01\x07\x07\x07\x07\x07\x07\x07\x07\0\0\0\x03";
        assert_eq!((key, value), (b"\x01host".to_vec(), [&head[..], &[5; 32], b"\0\0\0\x01"].concat()));
    }

    // Those that a server kept which did not know makers yet.
    #[test]
    fn records_of_the_first_version_are_read() {
        let value = b"\0\0\0\x01\0\0\0\0\x07\x07\x07\x07\x07\x07\x07\x07";
        let record = RecoveryRecord::from_bytes(b"\0host", value).unwrap();
        assert_eq!((record.family, record.revoked, record.verifier, record.maker), (Family::V40, false, Verifier([7; 8]), Maker::Unknown));
        assert!(RecoveryRecord::from_bytes(b"\0host", b"\0\0\0\x03\0\0\0\0\x07\x07\x07\x07\x07\x07\x07\x07").is_err());
    }
}
