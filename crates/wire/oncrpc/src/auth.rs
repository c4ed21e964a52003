//! Credentials and verifiers (RFC 5531 §8.2), and the flavours AUTH_NONE and AUTH_SYS.

use vouch_xdr::{Error, Reader, Writer, Xdr};

/// RFC 5531 §8.2: `opaque body<400>`.
pub const AUTH_BODY_LEN_MAX: usize = 400;
/// RFC 5531, appendix A: `string machinename<255>`.
pub(crate) const AUTH_SYS_NAME_LEN_MAX: usize = 255;
/// RFC 5531, appendix A: `unsigned int gids<16>`.
pub(crate) const AUTH_SYS_GIDS_MAX: usize = 16;

/// An authentication flavour (RFC 5531, 8.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flavor(pub u32);

impl Flavor {
    /// No authentication (RFC 5531 §10.1).
    pub const NONE: Self = Self(0);
    /// Unproven user and group ids (RFC 5531, appendix A).
    pub const SYS: Self = Self(1);
    /// Short form of AUTH_SYS (RFC 5531, appendix A).
    pub const SHORT: Self = Self(2);
    /// RPCSEC_GSS (RFC 2203).
    pub const RPCSEC_GSS: Self = Self(6);
    /// Probe for RPC-with-TLS (RFC 9289 §4.1).
    pub const TLS: Self = Self(7);
}

/// A credential or verifier (`opaque_auth`): at most 400 bytes of body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpaqueAuth<'a> {
    /// Says how to read the body.
    pub flavor: Flavor,
    /// At most [`AUTH_BODY_LEN_MAX`] bytes.
    pub body: &'a [u8],
}

impl<'a> OpaqueAuth<'a> {
    /// AUTH_NONE with an empty body (RFC 5531 §10.1).
    pub const NONE: OpaqueAuth<'static> = OpaqueAuth { flavor: Flavor::NONE, body: &[] };

    /// Refuses bodies over [`AUTH_BODY_LEN_MAX`].
    pub fn decode(r: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(Self { flavor: Flavor(r.u32()?), body: r.opaque(AUTH_BODY_LEN_MAX)? })
    }

    /// Appends the XDR form.
    pub fn encode(&self, w: &mut Writer) {
        debug_assert!(self.body.len() <= AUTH_BODY_LEN_MAX, "flavours keep within the RFC's limit");
        w.u32(self.flavor.0);
        w.opaque(self.body);
    }
}

/// Body of an AUTH_SYS credential (RFC 5531, appendix A, `authsys_parms`). Unproven.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuthSys {
    /// Chosen by the client; nothing depends on it.
    pub stamp: u32,
    /// Any bytes, at most 255.
    pub machine_name: Vec<u8>,
    /// The effective user id.
    pub uid: u32,
    /// The effective group id.
    pub gid: u32,
    /// At most 16.
    pub gids: Vec<u32>,
}

impl Xdr for AuthSys {
    fn encode(&self, w: &mut Writer) {
        debug_assert!(
            self.machine_name.len() <= AUTH_SYS_NAME_LEN_MAX
                && self.gids.len() <= AUTH_SYS_GIDS_MAX
        );
        w.u32(self.stamp);
        w.opaque(&self.machine_name);
        w.u32(self.uid);
        w.u32(self.gid);
        w.count(self.gids.len());
        self.gids.iter().for_each(|&gid| w.u32(gid));
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self {
            stamp: r.u32()?,
            machine_name: r.opaque(AUTH_SYS_NAME_LEN_MAX)?.to_vec(),
            uid: r.u32()?,
            gid: r.u32()?,
            gids: (0..r.count(AUTH_SYS_GIDS_MAX)?).map(|_| r.u32()).collect::<Result<_, _>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_of_400_bytes_is_the_longest() {
        // RFC 5531 §8.2: `opaque body<400>`.
        let read = |len: usize| {
            let mut w = Writer::new();
            w.u32(6);
            w.opaque(&vec![1; len]);
            OpaqueAuth::decode(&mut Reader::new(w.as_bytes()))
                .map(|auth| (auth.flavor, auth.body.len()))
        };
        assert_eq!(read(400), Ok((Flavor::RPCSEC_GSS, 400)));
        assert_eq!(read(401), Err(Error::TooLong { len: 401, max: 400 }));
    }

    #[test]
    fn auth_sys_golden_bytes() {
        // RFC 5531, appendix A.
        let sys = AuthSys {
            stamp: 1,
            machine_name: b"node7".to_vec(),
            uid: 1000,
            gid: 100,
            gids: vec![100, 27],
        };
        let bytes = [
            0, 0, 0, 1, // stamp
            0, 0, 0, 5, b'n', b'o', b'd', b'e', b'7', 0, 0, 0, // machinename
            0, 0, 3, 0xe8, // uid
            0, 0, 0, 100, // gid
            0, 0, 0, 2, 0, 0, 0, 100, 0, 0, 0, 27, // gids
        ];
        assert_eq!(sys.to_xdr(), bytes);
        assert_eq!(AuthSys::from_xdr(&bytes), Ok(sys));
    }

    #[test]
    fn auth_sys_limits_follow_the_rfc() {
        // RFC 5531, appendix A: `machinename<255>`, `gids<16>`.
        let at = |name_len: usize, gids: usize| {
            let mut w = Writer::new();
            w.u32(0);
            w.opaque(&vec![b'm'; name_len]);
            w.u32(0);
            w.u32(0);
            w.count(gids);
            (0..gids).for_each(|_| w.u32(7));
            AuthSys::from_xdr(w.as_bytes()).map(|_| ())
        };
        assert_eq!(at(255, 16), Ok(()));
        assert_eq!(at(256, 0), Err(Error::TooLong { len: 256, max: 255 }));
        assert_eq!(at(0, 17), Err(Error::TooLong { len: 17, max: 16 }));
    }

    proptest::proptest! {
        #[test]
        fn auth_sys_round_trips(stamp: u32, name in proptest::collection::vec(0u8.., 0..=255), uid: u32, gid: u32,
                                 gids in proptest::collection::vec(0u32.., 0..=16)) {
            let sys = AuthSys { stamp, machine_name: name, uid, gid, gids };
            proptest::prop_assert_eq!(AuthSys::from_xdr(&sys.to_xdr()), Ok(sys));
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            let _ = AuthSys::from_xdr(&bytes);
            let _ = OpaqueAuth::decode(&mut Reader::new(&bytes));
        }
    }
}
