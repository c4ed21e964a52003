//! Flavours of SECINFO, credentials of callbacks, state protection.

use vouch_xdr::{Error, Reader, Writer};

use crate::macros::{wire_copy, wire_enum, wire_struct, wire_union};
use crate::{Bitmap, Bytes, List, Wire};

/// AUTH_NONE, AUTH_SYS, and three services of several mechanisms.
pub const SEC_PARMS_MAX: usize = 32;
/// In DER.
const OID_LEN_MAX: usize = 256;
/// RFC 2203 sets no limit, but a credential has at most 400 bytes.
const GSS_HANDLE_LEN_MAX: usize = 400;

wire_enum! {
    pub enum GssService = "rpc_gss_svc_t" {
        None = 1,
        Integrity = 2,
        Privacy = 3,
    }
}

wire_copy! {
    pub struct GssInfo<'a> {
        pub oid: Bytes<'a, OID_LEN_MAX>,
        pub qop: u32,
        pub service: GssService,
    }
}

/// `secinfo4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecInfo<'a> {
    Flavor(u32),
    Gss(GssInfo<'a>),
}

const AUTH_NONE: u32 = 0;
const AUTH_SYS: u32 = 1;
const RPCSEC_GSS: u32 = 6;

impl<'a> Wire<'a> for SecInfo<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(match r.u32()? {
            RPCSEC_GSS => Self::Gss(GssInfo::decode(r)?),
            flavor => Self::Flavor(flavor),
        })
    }

    fn encode(&self, w: &mut Writer) {
        match self {
            Self::Flavor(flavor) => w.u32(*flavor),
            Self::Gss(info) => {
                w.u32(RPCSEC_GSS);
                info.encode(w);
            }
        }
    }

    #[cfg(test)]
    fn sample(s: &mut crate::sample::Sampler) -> Self {
        match bool::sample(s) {
            true => Self::Flavor(1),
            false => Self::Gss(GssInfo::sample(s)),
        }
    }
}

wire_struct! {
    pub struct SysCred<'a> {
        pub stamp: u32,
        pub machine_name: Bytes<'a, 255>,
        pub uid: u32,
        pub gid: u32,
        pub gids: List<u32, 16>,
    }
}

wire_copy! {
    pub struct GssCallbackHandles<'a> {
        pub service: GssService,
        pub from_server: Bytes<'a, GSS_HANDLE_LEN_MAX>,
        pub from_client: Bytes<'a, GSS_HANDLE_LEN_MAX>,
    }
}

/// `callback_sec_parms4`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallbackSec<'a> {
    None,
    Sys(SysCred<'a>),
    Gss(GssCallbackHandles<'a>),
}

impl<'a> Wire<'a> for CallbackSec<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, Error> {
        match r.u32()? {
            AUTH_NONE => Ok(Self::None),
            AUTH_SYS => SysCred::decode(r).map(Self::Sys),
            RPCSEC_GSS => GssCallbackHandles::decode(r).map(Self::Gss),
            value => Err(Error::Unknown { what: "callback_sec_parms4", value }),
        }
    }

    fn encode(&self, w: &mut Writer) {
        match self {
            Self::None => w.u32(AUTH_NONE),
            Self::Sys(cred) => {
                w.u32(AUTH_SYS);
                cred.encode(w);
            }
            Self::Gss(handles) => {
                w.u32(RPCSEC_GSS);
                handles.encode(w);
            }
        }
    }

    #[cfg(test)]
    fn sample(s: &mut crate::sample::Sampler) -> Self {
        match s.below(3) {
            0 => Self::None,
            1 => Self::Sys(SysCred::sample(s)),
            _ => Self::Gss(GssCallbackHandles::sample(s)),
        }
    }
}

wire_struct! {
    #[derive(Copy, Default)]
    pub struct StateProtectOps { pub must_enforce: Bitmap, pub must_allow: Bitmap }

    /// `ssv_sp_parms4`.
    pub struct SsvParms<'a> {
        pub ops: StateProtectOps,
        pub hash_algs: List<Bytes<'a, OID_LEN_MAX>, 16>,
        pub encr_algs: List<Bytes<'a, OID_LEN_MAX>, 16>,
        pub window: u32,
        pub gss_handles: u32,
    }
}

wire_union! {
    pub enum StateProtect<'a> = "state_protect_how4" {
        0 => None,
        1 => MachineCred(ops: StateProtectOps),
        2 => Ssv(parms: SsvParms<'a>),
    }
}

wire_struct! {
    /// `ssv_prot_info4`.
    pub struct SsvInfo<'a> {
        pub ops: StateProtectOps,
        pub hash_alg: u32,
        pub encr_alg: u32,
        pub ssv_len: u32,
        pub window: u32,
        pub handles: List<Bytes<'a, GSS_HANDLE_LEN_MAX>, 16>,
    }
}

wire_union! {
    pub enum StateProtectReply<'a> = "state_protect_how4" {
        0 => None,
        1 => MachineCred(ops: StateProtectOps),
        2 => Ssv(info: SsvInfo<'a>),
    }
}
