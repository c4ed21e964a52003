//! Wire format of RPCSEC_GSS: credential (RFC 2203 §5), and arguments and results of context
//! creation (§5.2).

use std::ops::Range;

use vouch_oncrpc::{AUTH_BODY_LEN_MAX, AuthStat};
use vouch_xdr::{Error, Reader, Writer, Xdr};

/// Number of a call in its context (RFC 2203 §5.3.1): detects repeated calls, and binds a reply to
/// its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GssSeq(pub u32);

impl GssSeq {
    /// First unusable number (RFC 2203 §5: `MAXSEQ`).
    pub const MAX: Self = Self(0x8000_0000);
}

/// RFC 2203 §5, `rpc_gss_proc_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Procedure {
    /// A call of the program.
    Data,
    /// The first call of a context.
    Init,
    /// A further exchange of tokens.
    ContinueInit,
    /// The end of the context.
    Destroy,
}

/// RFC 2203 §5, `rpc_gss_service_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// Only the header is protected.
    None,
    /// Bodies have a MIC.
    Integrity,
    /// Bodies are encrypted.
    Privacy,
}

/// RFC 2203 §5, `rpc_gss_cred_vers_1_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credential<'a> {
    /// What the call does with the context.
    pub procedure: Procedure,
    /// Meaningless during creation.
    pub seq: GssSeq,
    /// Protection of call and reply bodies; None during creation.
    pub service: Service,
    /// Empty in the first call.
    pub handle: &'a [u8],
}

/// A credential that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// Another version than 1.
    #[error("RPCSEC_GSS version {0} is not supported")]
    Version(u32),
    /// Its encoding is invalid.
    #[error("RPCSEC_GSS credential can't be read")]
    Unreadable,
}

impl CredentialError {
    /// RFC 2203 §5.1 for the version, §5.3.3.3 otherwise.
    pub(crate) const fn auth_stat(self) -> AuthStat {
        match self {
            Self::Version(_) => AuthStat::REJECTED_CRED,
            Self::Unreadable => AuthStat::BAD_CRED,
        }
    }
}

/// RFC 2203 §5, `RPCSEC_GSS_VERS_1`.
const VERSION: u32 = 1;

impl<'a> Credential<'a> {
    /// Refuses trailing bytes.
    pub fn decode(body: &'a [u8]) -> Result<Self, CredentialError> {
        let mut r = Reader::new(body);
        match r.u32() {
            Ok(VERSION) => {}
            Ok(version) => return Err(CredentialError::Version(version)),
            Err(_) => return Err(CredentialError::Unreadable),
        }
        let mut read = || {
            let procedure = match r.u32()? {
                0 => Procedure::Data,
                1 => Procedure::Init,
                2 => Procedure::ContinueInit,
                3 => Procedure::Destroy,
                value => return Err(Error::Unknown { what: "rpc_gss_proc_t", value }),
            };
            let seq = GssSeq(r.u32()?);
            let service = match r.u32()? {
                // RFC 2203 §5.2.2: number and service are ignored during creation.
                _ if matches!(procedure, Procedure::Init | Procedure::ContinueInit) => {
                    Service::None
                }
                1 => Service::None,
                2 => Service::Integrity,
                3 => Service::Privacy,
                value => return Err(Error::Unknown { what: "rpc_gss_service_t", value }),
            };
            Ok(Self { procedure, seq, service, handle: r.opaque(AUTH_BODY_LEN_MAX)? })
        };
        let credential = read().map_err(|_| CredentialError::Unreadable)?;
        r.finish().map_err(|_| CredentialError::Unreadable)?;
        Ok(credential)
    }

    /// Appends the body of the credential.
    pub fn encode(&self, w: &mut Writer) {
        w.u32(VERSION);
        w.u32(match self.procedure {
            Procedure::Data => 0,
            Procedure::Init => 1,
            Procedure::ContinueInit => 2,
            Procedure::Destroy => 3,
        });
        w.u32(self.seq.0);
        w.u32(match self.service {
            Service::None => 1,
            Service::Integrity => 2,
            Service::Privacy => 3,
        });
        w.opaque(self.handle);
    }

    /// Bytes of the encoded body.
    pub const fn len(&self) -> usize {
        20 + self.handle.len() + vouch_xdr::pad_len(self.handle.len())
    }

    /// Always false: a credential has a version.
    pub const fn is_empty(&self) -> bool {
        false
    }
}

/// Longest accepted token: an AP-REQ with authorization data of a user in hundreds of groups.
pub(crate) const TOKEN_LEN_MAX: usize = 64 * 1024;

/// RFC 2203 §5.2.2, `rpc_gss_init_arg`.
pub fn decode_init_args(args: &[u8]) -> Result<&[u8], Error> {
    let mut r = Reader::new(args);
    let token = r.opaque(TOKEN_LEN_MAX)?;
    r.finish()?;
    Ok(token)
}

/// RFC 2203 §5.2.3.1, `rpc_gss_init_res`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct InitResult {
    /// Empty after a failure.
    pub handle: Vec<u8>,
    /// GSS-API status.
    pub major: u32,
    /// Status of the mechanism.
    pub minor: u32,
    /// Calls that may be outstanding.
    pub window: u32,
    /// For the client's mechanism.
    pub token: Vec<u8>,
}

impl InitResult {
    /// RFC 2203, appendix A.
    pub(crate) const COMPLETE: u32 = 0;
    /// RFC 2203, appendix A.
    pub const CONTINUE_NEEDED: u32 = 1;
    /// `GSS_S_FAILURE` (RFC 2203, appendix A).
    pub const FAILURE: u32 = 13 << 16;
}

impl Xdr for InitResult {
    fn encode(&self, w: &mut Writer) {
        w.opaque(&self.handle);
        w.u32(self.major);
        w.u32(self.minor);
        w.u32(self.window);
        w.opaque(&self.token);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self {
            handle: r.opaque(AUTH_BODY_LEN_MAX)?.to_vec(),
            major: r.u32()?,
            minor: r.u32()?,
            window: r.u32()?,
            token: r.opaque(TOKEN_LEN_MAX)?.to_vec(),
        })
    }
}

/// RFC 2203 §5.3.2.2, `rpc_gss_integ_data`; refuses trailing bytes.
pub(crate) fn integrity_body(body: &[u8]) -> Result<(Range<usize>, Range<usize>), Error> {
    let mut r = Reader::new(body);
    let data = LENGTH_LEN..LENGTH_LEN + r.opaque(usize::MAX)?.len();
    let start = body.len() - r.remaining() + LENGTH_LEN;
    let checksum = start..start + r.opaque(CHECKSUM_LEN_MAX)?.len();
    r.finish()?;
    Ok((data, checksum))
}

/// RFC 2203 §5.3.2.3, `rpc_gss_priv_data`; refuses trailing bytes.
pub(crate) fn privacy_body(body: &[u8]) -> Result<Range<usize>, Error> {
    let mut r = Reader::new(body);
    let sealed = LENGTH_LEN..LENGTH_LEN + r.opaque(usize::MAX)?.len();
    r.finish()?;
    Ok(sealed)
}

pub(crate) const LENGTH_LEN: usize = 4;

/// Tokens of RFC 4121 have a header of 16 bytes and at most 24 more.
const CHECKSUM_LEN_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(credential: &Credential<'_>) -> Vec<u8> {
        let mut w = Writer::new();
        credential.encode(&mut w);
        assert_eq!(w.len(), credential.len());
        w.into_bytes()
    }

    #[test]
    fn credential_golden_bytes() {
        // RFC 2203 §5.
        let credential = Credential {
            procedure: Procedure::Destroy,
            seq: GssSeq(258),
            service: Service::Privacy,
            handle: b"ctx-1",
        };
        let golden = [
            0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 1, 2, 0, 0, 0, 3, 0, 0, 0, 5, b'c', b't', b'x', b'-',
            b'1', 0, 0, 0,
        ];
        assert_eq!(bytes(&credential), golden);
        assert_eq!(Credential::decode(&golden), Ok(credential));
    }

    #[test]
    fn other_versions_differ_from_undecodable_ones() {
        // RFC 2203 §5.1: AUTH_REJECTEDCRED for a version that is not supported.
        let credential = Credential {
            procedure: Procedure::Data,
            seq: GssSeq(1),
            service: Service::None,
            handle: b"",
        };
        let mut body = bytes(&credential);
        body[3] = 2;
        assert_eq!(Credential::decode(&body).unwrap_err().auth_stat(), AuthStat::REJECTED_CRED);
        body[3] = 1;
        for at in [7, 15] {
            let mut bad = body.clone();
            bad[at] = 9;
            assert_eq!(Credential::decode(&bad).unwrap_err().auth_stat(), AuthStat::BAD_CRED);
        }
        for len in 0..body.len() {
            assert_eq!(Credential::decode(&body[..len]), Err(CredentialError::Unreadable));
        }
        body.extend_from_slice(&[0; 4]);
        assert_eq!(Credential::decode(&body), Err(CredentialError::Unreadable));
    }

    #[test]
    fn creation_has_neither_service_nor_number() {
        // RFC 2203 §5.2.2.
        let body = |procedure: u32, service: u32| {
            [1, procedure, u32::MAX, service, 0].map(u32::to_be_bytes).concat()
        };
        for service in [0, 1, 3, 7, u32::MAX] {
            for (number, procedure) in [(1, Procedure::Init), (2, Procedure::ContinueInit)] {
                let credential = Credential {
                    procedure,
                    seq: GssSeq(u32::MAX),
                    service: Service::None,
                    handle: b"",
                };
                assert_eq!(Credential::decode(&body(number, service)), Ok(credential));
            }
            for number in [0, 3] {
                assert_eq!(
                    Credential::decode(&body(number, service)).is_ok(),
                    (1..=3).contains(&service)
                );
            }
        }
    }

    #[test]
    fn init_result_golden_bytes() {
        let result =
            InitResult { handle: vec![9], major: 1, minor: 2, window: 128, token: vec![7, 8] };
        let golden =
            [0, 0, 0, 1, 9, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 128, 0, 0, 0, 2, 7, 8, 0, 0];
        assert_eq!(result.to_xdr(), golden);
        assert_eq!(InitResult::from_xdr(&golden), Ok(result));
    }

    proptest::proptest! {
        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            let _ = Credential::decode(&bytes);
            let _ = InitResult::from_xdr(&bytes);
            let _ = decode_init_args(&bytes);
            let _ = integrity_body(&bytes);
            let _ = privacy_body(&bytes);
        }
    }
}
