//! Replies (RFC 5531 §9, `reply_body`).

use vouch_xdr::{Error, Reader, Writer};

use crate::{OpaqueAuth, REPLY};

/// A reply message (`reply_body`), borrowed from its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply<'a> {
    /// That of the call.
    pub xid: u32,
    /// Accepted or denied.
    pub body: ReplyBody<'a>,
}

/// RFC 5531 §9, `reply_stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of RFC 5531")]
pub enum ReplyBody<'a> {
    Accepted { verf: OpaqueAuth<'a>, outcome: Accepted<'a> },
    Denied(Denied),
}

/// RFC 5531 §9, `accept_stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of RFC 5531")]
pub enum Accepted<'a> {
    Success(&'a [u8]),
    ProgUnavail,
    ProgMismatch { low: u32, high: u32 },
    ProcUnavail,
    GarbageArgs,
    SystemErr,
}

/// RFC 5531 §9, `rejected_reply`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of RFC 5531")]
pub enum Denied {
    RpcMismatch { low: u32, high: u32 },
    AuthError(AuthStat),
}

/// RFC 5531 §9, `auth_stat`; any value is possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AuthStat(pub u32);

impl AuthStat {
    /// `AUTH_OK`.
    pub const OK: Self = Self(0);
    /// The seal is broken.
    pub const BAD_CRED: Self = Self(1);
    /// The client must begin a new session.
    pub const REJECTED_CRED: Self = Self(2);
    /// The seal is broken.
    pub const BAD_VERF: Self = Self(3);
    /// Another flavour may be accepted.
    pub const TOO_WEAK: Self = Self(5);
    /// `AUTH_FAILED`: for reasons without a code of their own.
    pub const FAILED: Self = Self(7);
    /// No credentials for the user, or unknown context (RFC 2203 §5.3.3.3).
    pub const RPCSEC_GSS_CRED_PROBLEM: Self = Self(13);
    /// A new context is needed (RFC 2203 §5.3.3.3).
    pub const RPCSEC_GSS_CTX_PROBLEM: Self = Self(14);
}

impl<'a> Reply<'a> {
    /// An accepted reply whose verifier is empty.
    pub const fn accepted(xid: u32, outcome: Accepted<'a>) -> Self {
        Self { xid, body: ReplyBody::Accepted { verf: OpaqueAuth::NONE, outcome } }
    }

    /// A denied reply.
    pub const fn denied(xid: u32, denied: Denied) -> Self {
        Self { xid, body: ReplyBody::Denied(denied) }
    }

    /// Writes no record mark. To write results in place, give [`Accepted::Success`] an empty slice
    /// and append them.
    pub fn encode(&self, w: &mut Writer) {
        w.u32(self.xid);
        w.u32(REPLY);
        match self.body {
            ReplyBody::Accepted { verf, outcome } => {
                w.u32(0);
                verf.encode(w);
                outcome.encode(w);
            }
            ReplyBody::Denied(Denied::RpcMismatch { low, high }) => {
                [1, 0, low, high].into_iter().for_each(|word| w.u32(word))
            }
            ReplyBody::Denied(Denied::AuthError(stat)) => {
                [1, 1, stat.0].into_iter().for_each(|word| w.u32(word))
            }
        }
    }

    /// Decodes a whole record. The results are the rest after the status; nothing may follow any
    /// other outcome.
    pub fn decode(record: &'a [u8]) -> Result<Self, Error> {
        let mut r = Reader::new(record);
        let xid = r.u32()?;
        match r.u32()? {
            REPLY => {}
            value => return Err(Error::Unknown { what: "RPC message type of a reply", value }),
        }
        let body = match r.u32()? {
            0 => {
                let verf = OpaqueAuth::decode(&mut r)?;
                ReplyBody::Accepted { verf, outcome: Accepted::decode(r)? }
            }
            1 => ReplyBody::Denied(Denied::decode(r)?),
            value => return Err(Error::Unknown { what: "RPC reply status", value }),
        };
        Ok(Self { xid, body })
    }
}

impl<'a> Accepted<'a> {
    fn encode(&self, w: &mut Writer) {
        match *self {
            Self::Success(results) => {
                w.u32(0);
                w.raw(results);
            }
            Self::ProgUnavail => w.u32(1),
            Self::ProgMismatch { low, high } => {
                [2, low, high].into_iter().for_each(|word| w.u32(word))
            }
            Self::ProcUnavail => w.u32(3),
            Self::GarbageArgs => w.u32(4),
            Self::SystemErr => w.u32(5),
        }
    }

    fn decode(mut r: Reader<'a>) -> Result<Self, Error> {
        let outcome = match r.u32()? {
            0 => return Ok(Self::Success(r.rest())),
            1 => Self::ProgUnavail,
            2 => Self::ProgMismatch { low: r.u32()?, high: r.u32()? },
            3 => Self::ProcUnavail,
            4 => Self::GarbageArgs,
            5 => Self::SystemErr,
            value => return Err(Error::Unknown { what: "RPC accept status", value }),
        };
        r.finish()?;
        Ok(outcome)
    }
}

impl Denied {
    fn decode(mut r: Reader<'_>) -> Result<Self, Error> {
        let denied = match r.u32()? {
            0 => Self::RpcMismatch { low: r.u32()?, high: r.u32()? },
            1 => Self::AuthError(AuthStat(r.u32()?)),
            value => return Err(Error::Unknown { what: "RPC reject status", value }),
        };
        r.finish()?;
        Ok(denied)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Flavor;

    fn bytes(reply: &Reply<'_>) -> Vec<u8> {
        let mut w = Writer::new();
        reply.encode(&mut w);
        w.into_bytes()
    }

    #[test]
    fn success_golden_bytes() {
        // RFC 5531 §9: xid, REPLY, MSG_ACCEPTED, verf, SUCCESS, results.
        let reply = Reply::accepted(0x0102_0304, Accepted::Success(&[0, 0, 0, 9]));
        let golden =
            [1, 2, 3, 4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
        assert_eq!(bytes(&reply), golden);
        assert_eq!(Reply::decode(&golden), Ok(reply));
    }

    #[test]
    fn every_outcome_has_its_number() {
        // RFC 5531 §9: accept_stat 1 to 5, reject_stat 0 and 1, auth_stat; RFC 2203 §5.3.3.3: 13
        // and 14.
        let words = |reply: Reply<'static>| {
            let bytes = bytes(&reply);
            assert_eq!(Reply::decode(&bytes), Ok(reply));
            let words: Vec<u32> =
                bytes.chunks(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect();
            words[2..].to_vec()
        };
        let accepted = |outcome| words(Reply::accepted(7, outcome));
        assert_eq!(accepted(Accepted::ProgUnavail), [0, 0, 0, 1]);
        assert_eq!(accepted(Accepted::ProgMismatch { low: 1, high: 3 }), [0, 0, 0, 2, 1, 3]);
        assert_eq!(accepted(Accepted::ProcUnavail), [0, 0, 0, 3]);
        assert_eq!(accepted(Accepted::GarbageArgs), [0, 0, 0, 4]);
        assert_eq!(accepted(Accepted::SystemErr), [0, 0, 0, 5]);
        let denied = |denied| words(Reply::denied(7, denied));
        assert_eq!(denied(Denied::RpcMismatch { low: 2, high: 2 }), [1, 0, 2, 2]);
        assert_eq!(denied(Denied::AuthError(AuthStat::TOO_WEAK)), [1, 1, 5]);
        assert_eq!(denied(Denied::AuthError(AuthStat::RPCSEC_GSS_CRED_PROBLEM)), [1, 1, 13]);
        assert_eq!(denied(Denied::AuthError(AuthStat::RPCSEC_GSS_CTX_PROBLEM)), [1, 1, 14]);
    }

    #[test]
    fn bytes_after_a_failure_and_calls_are_refused() {
        let mut reply = bytes(&Reply::accepted(7, Accepted::ProcUnavail));
        reply.extend_from_slice(&[0; 4]);
        assert_eq!(Reply::decode(&reply), Err(Error::Trailing(4)));
        assert!(Reply::decode(&[0; 28]).is_err(), "a call");
    }

    proptest::proptest! {
        #[test]
        fn success_round_trips(xid: u32, flavor: u32, verf in proptest::collection::vec(0u8.., 0..=400), results: Vec<[u8; 4]>) {
            let verf = OpaqueAuth { flavor: Flavor(flavor), body: &verf };
            let reply = Reply { xid, body: ReplyBody::Accepted { verf, outcome: Accepted::Success(results.as_flattened()) } };
            let encoded = bytes(&reply);
            proptest::prop_assert_eq!(Reply::decode(&encoded), Ok(reply));
        }

        #[test]
        fn decoded_reply_encodes_to_same_bytes(words in proptest::collection::vec(0u32..4, 3..12)) {
            let bytes_in: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            if let Ok(reply) = Reply::decode(&bytes_in) {
                proptest::prop_assert_eq!(bytes(&reply), bytes_in);
            }
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            let _ = Reply::decode(&bytes);
        }
    }
}
