//! Clients that may reclaim after a restart (RFC 8881 §8.4.2.1). Format: docs/formats/recovery.md.

use vouch_nfs4::{OPAQUE_LIMIT, Verifier};
use vouch_xdr::{Error, Reader, Writer};

use crate::access::network::Network;
use crate::state::client::credential::Family;
use crate::state::client::principal::ClientPrincipal;

const VERSION: u32 = 3;
const VERSION_2: u32 = 2;
const VERSION_1: u32 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryRecord {
    pub family: Family,
    pub owner: Vec<u8>,
    pub verifier: Verifier,
    pub revoked: bool,
    pub creator: ClientPrincipal,
    pub from: Option<Network>,
}

impl RecoveryRecord {
    pub fn key(family: Family, owner: &[u8]) -> Vec<u8> {
        let mut key = Vec::with_capacity(1 + owner.len());
        key.push(family as u8);
        key.extend_from_slice(owner);
        key
    }

    /// The inverse of [`RecoveryRecord::key`].
    pub fn of_key(key: &[u8]) -> (Family, &[u8]) {
        let (&family, owner) = key.split_first().expect("a key begins with its family");
        (if family == Family::V40 as u8 { Family::V40 } else { Family::V41 }, owner)
    }

    pub fn to_bytes(&self) -> (Vec<u8>, Vec<u8>) {
        let mut w = Writer::new();
        w.u32(VERSION);
        w.bool(self.revoked);
        w.opaque_fixed(&self.verifier.0);
        match &self.creator {
            ClientPrincipal::Unknown => w.u32(0),
            ClientPrincipal::Nobody => w.u32(1),
            ClientPrincipal::Sys => w.u32(2),
            ClientPrincipal::Proven { name, protected } => {
                w.u32(3);
                w.opaque_fixed(name);
                w.bool(*protected);
            }
        }
        match &self.from {
            None => w.u32(0),
            Some(Network::V4(address)) => {
                w.u32(4);
                w.opaque_fixed(address);
            }
            Some(Network::V6(half)) => {
                w.u32(6);
                w.opaque_fixed(half);
            }
        }
        (Self::key(self.family, &self.owner), w.into_bytes())
    }

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
        if !matches!(version, VERSION_1 | VERSION_2 | VERSION) {
            return Err(unknown("recovery record", version));
        }
        let revoked = r.bool()?;
        let verifier = Verifier(r.opaque_fixed()?);
        let creator = match version {
            VERSION_1 => ClientPrincipal::Unknown,
            _ => match r.u32()? {
                0 => ClientPrincipal::Unknown,
                1 => ClientPrincipal::Nobody,
                2 => ClientPrincipal::Sys,
                3 => ClientPrincipal::Proven { name: r.opaque_fixed()?, protected: r.bool()? },
                other => return Err(unknown("creator of a recovery record", other)),
            },
        };
        let from = match version {
            VERSION_1 | VERSION_2 => None,
            _ => match r.u32()? {
                0 => None,
                4 => Some(Network::V4(r.opaque_fixed()?)),
                6 => Some(Network::V6(r.opaque_fixed()?)),
                other => return Err(unknown("address of a recovery record", other)),
            },
        };
        Ok(RecoveryRecord { family, owner: owner.to_vec(), verifier, revoked, creator, from })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(creator: ClientPrincipal, from: Option<Network>) -> RecoveryRecord {
        RecoveryRecord {
            family: Family::V41,
            owner: b"host".to_vec(),
            verifier: Verifier([7; 8]),
            revoked: true,
            creator,
            from,
        }
    }

    #[test]
    fn record_round_trips() {
        let proven = ClientPrincipal::Proven { name: [5; 32], protected: true };
        let (v4, v6) = (Network::V4([192, 0, 2, 1]), Network::V6([0x20, 1, 0xd, 0xb8, 0, 0, 0, 9]));
        for creator in
            [ClientPrincipal::Unknown, ClientPrincipal::Nobody, ClientPrincipal::Sys, proven]
        {
            for from in [None, Some(v4), Some(v6)] {
                let record = record(creator, from);
                let (key, value) = record.to_bytes();
                assert_eq!(RecoveryRecord::from_bytes(&key, &value), Ok(record));
                for len in 0..value.len() {
                    assert!(RecoveryRecord::from_bytes(&key, &value[..len]).is_err());
                }
                assert!(RecoveryRecord::from_bytes(b"", &value).is_err());
                assert!(RecoveryRecord::from_bytes(b"\x02x", &value).is_err());
            }
        }
        let head = |creator: u8| {
            [&b"\0\0\0\x03\0\0\0\x01\x07\x07\x07\x07\x07\x07\x07\x07\0\0\0"[..], &[creator]]
                .concat()
        };
        let bytes = |creator, from| record(creator, from).to_bytes();
        assert_eq!(
            bytes(proven, None),
            (b"\x01host".to_vec(), [&head(3)[..], &[5; 32], b"\0\0\0\x01\0\0\0\0"].concat())
        );
        assert_eq!(
            bytes(ClientPrincipal::Sys, Some(v4)).1,
            [&head(2)[..], b"\0\0\0\x04\xc0\0\x02\x01"].concat()
        );
        assert_eq!(
            bytes(ClientPrincipal::Nobody, Some(v6)).1,
            [&head(1)[..], b"\0\0\0\x06\x20\x01\x0d\xb8\0\0\0\x09"].concat()
        );
    }

    #[test]
    fn earlier_record_versions_are_readable() {
        let value = b"\0\0\0\x01\0\0\0\0\x07\x07\x07\x07\x07\x07\x07\x07";
        let first = RecoveryRecord::from_bytes(b"\0host", value).unwrap();
        assert_eq!(
            (first.family, first.revoked, first.verifier, first.creator),
            (Family::V40, false, Verifier([7; 8]), ClientPrincipal::Unknown)
        );
        let value = b"\0\0\0\x02\0\0\0\x01\x07\x07\x07\x07\x07\x07\x07\x07\0\0\0\x02";
        assert_eq!(
            RecoveryRecord::from_bytes(b"\x01host", value),
            Ok(record(ClientPrincipal::Sys, None))
        );
        assert!(
            RecoveryRecord::from_bytes(
                b"\0host",
                b"\0\0\0\x04\0\0\0\0\x07\x07\x07\x07\x07\x07\x07\x07"
            )
            .is_err()
        );
    }
}
