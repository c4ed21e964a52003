//! Calls (RFC 5531 §9, `call_body`).

use vouch_xdr::{Error, Reader, Writer};

use crate::{AuthStat, CALL, Denied, OpaqueAuth, RPC_VERSION, Reply, ReplyBody};

/// A call message (`call_body`), borrowed from its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call<'a> {
    /// Relates the reply to the call.
    pub xid: u32,
    /// The program's number, such as 100003 for NFS.
    pub program: u32,
    /// The program's version.
    pub version: u32,
    /// 0 does nothing (RFC 5531 §12.1).
    pub procedure: u32,
    /// The caller's credential.
    pub cred: OpaqueAuth<'a>,
    /// Its verifier.
    pub verf: OpaqueAuth<'a>,
    /// The arguments in XDR, not parsed.
    pub args: &'a [u8],
}

/// Errors in a record, always the peer's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the variants mean")]
pub enum CallError {
    #[error("RPC message is not a call: type {0}")]
    NotACall(u32),
    #[error("RPC version {version} is not supported")]
    RpcVersion { xid: u32, version: u32 },
    #[error("RPC credential can't be read: {source}")]
    Credential { xid: u32, source: Error },
    #[error("RPC verifier can't be read: {source}")]
    Verifier { xid: u32, source: Error },
    #[error("RPC call can't be read: {0}")]
    Header(#[from] Error),
}

impl CallError {
    /// The reply to this error. `None`: close the stream.
    pub const fn reply(&self) -> Option<Reply<'static>> {
        let (xid, denied) = match *self {
            Self::NotACall(_) | Self::Header(_) => return None,
            // RFC 5531 §9: another RPC version is answered with the supported range.
            Self::RpcVersion { xid, .. } => {
                (xid, Denied::RpcMismatch { low: RPC_VERSION, high: RPC_VERSION })
            }
            Self::Credential { xid, .. } => (xid, Denied::AuthError(AuthStat::BAD_CRED)),
            Self::Verifier { xid, .. } => (xid, Denied::AuthError(AuthStat::BAD_VERF)),
        };
        Some(Reply { xid, body: ReplyBody::Denied(denied) })
    }
}

impl<'a> Call<'a> {
    /// Decodes a whole record. The arguments are the rest after the verifier.
    pub fn decode(record: &'a [u8]) -> Result<Self, CallError> {
        let mut r = Reader::new(record);
        let xid = r.u32()?;
        match r.u32()? {
            CALL => {}
            other => return Err(CallError::NotACall(other)),
        }
        match r.u32()? {
            RPC_VERSION => {}
            version => return Err(CallError::RpcVersion { xid, version }),
        }
        let (program, version, procedure) = (r.u32()?, r.u32()?, r.u32()?);
        let cred =
            OpaqueAuth::decode(&mut r).map_err(|source| CallError::Credential { xid, source })?;
        let verf =
            OpaqueAuth::decode(&mut r).map_err(|source| CallError::Verifier { xid, source })?;
        Ok(Self { xid, program, version, procedure, cred, verf, args: r.rest() })
    }

    /// Without a credential.
    pub const fn new(
        xid: u32,
        (program, version): (u32, u32),
        procedure: u32,
        args: &'a [u8],
    ) -> Self {
        let (cred, verf) = (OpaqueAuth::NONE, OpaqueAuth::NONE);
        Self { xid, program, version, procedure, cred, verf, args }
    }

    /// Appends the message without a record mark.
    pub fn encode(&self, w: &mut Writer) {
        for word in [self.xid, CALL, RPC_VERSION, self.program, self.version, self.procedure] {
            w.u32(word);
        }
        self.cred.encode(w);
        self.verf.encode(w);
        w.raw(self.args);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Flavor;

    /// A call as in RFC 5531 §9: NULL of the port mapper, AUTH_NONE.
    const GOLDEN: [u8; 44] = [
        0x12, 0x34, 0x56, 0x78, // xid
        0, 0, 0, 0, // CALL
        0, 0, 0, 2, // rpcvers
        0, 1, 0x86, 0xa0, // prog 100000
        0, 0, 0, 2, // vers
        0, 0, 0, 0, // proc
        0, 0, 0, 0, 0, 0, 0, 0, // cred AUTH_NONE
        0, 0, 0, 0, 0, 0, 0, 0, // verf AUTH_NONE
        0, 0, 0, 9, // arguments
    ];

    fn golden() -> Call<'static> {
        Call::new(0x1234_5678, (100_000, 2), 0, &[0, 0, 0, 9])
    }

    #[test]
    fn call_golden_bytes() {
        let mut w = Writer::new();
        golden().encode(&mut w);
        assert_eq!(w.as_bytes(), GOLDEN);
        assert_eq!(Call::decode(&GOLDEN), Ok(golden()));
    }

    #[test]
    fn faulty_calls_are_answered_and_other_messages_are_not() {
        let error = |at: usize, byte: u8| {
            let mut bytes = GOLDEN;
            bytes[at] = byte;
            Call::decode(&bytes).unwrap_err()
        };
        // RFC 5531 §9: RPC_MISMATCH { low, high }.
        assert_eq!(error(11, 3), CallError::RpcVersion { xid: 0x1234_5678, version: 3 });
        assert_eq!(
            error(11, 3).reply().unwrap().body,
            ReplyBody::Denied(Denied::RpcMismatch { low: 2, high: 2 })
        );
        // RFC 5531 §8.2: a body has at most 400 bytes.
        assert_eq!(
            error(30, 0x7f).reply().unwrap().body,
            ReplyBody::Denied(Denied::AuthError(AuthStat::BAD_CRED))
        );
        for kind in [1, 2] {
            assert_eq!(error(7, kind).reply(), None);
        }
    }

    #[test]
    fn truncation_anywhere_is_an_error() {
        for len in 0..GOLDEN.len() - 4 {
            assert!(Call::decode(&GOLDEN[..len]).is_err(), "{len}");
        }
    }

    proptest::proptest! {
        #[test]
        fn call_round_trips(words: [u32; 4], flavor: u32, cred in proptest::collection::vec(0u8.., 0..=400),
                             verf in proptest::collection::vec(0u8.., 0..=400), args: Vec<[u8; 4]>) {
            let call = Call {
                xid: words[0], program: words[1], version: words[2], procedure: words[3],
                cred: OpaqueAuth { flavor: Flavor(flavor), body: &cred },
                verf: OpaqueAuth { flavor: Flavor(flavor ^ 1), body: &verf },
                args: args.as_flattened(),
            };
            let mut w = Writer::new();
            call.encode(&mut w);
            proptest::prop_assert_eq!(Call::decode(w.as_bytes()), Ok(call));
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            if let Err(error) = Call::decode(&bytes) {
                let _ = error.reply();
            }
        }
    }
}
