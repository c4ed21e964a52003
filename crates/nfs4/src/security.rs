//! Security parameters in operations: flavours of SECINFO, credentials of callbacks, state
//! protection.

use vouch_xdr::{Error, Reader, Writer};

use crate::macros::{wire_enum, wire_struct, wire_union};
use crate::{Bitmap, Bytes, List, Wire};

/// Maximum number of flavours in one list: AUTH_NONE, AUTH_SYS, and three services of several
/// mechanisms.
pub const SEC_PARMS_MAX: usize = 32;
/// Maximum length of an object identifier in DER.
const OID_LEN_MAX: usize = 256;
/// Maximum length of a GSS context handle. RFC 2203 sets no limit, but a credential has at most 400
/// bytes.
const GSS_HANDLE_LEN_MAX: usize = 400;

wire_enum! {
    /// Protection of the body by RPCSEC_GSS (`rpc_gss_svc_t`).
    pub enum GssService = "rpc_gss_svc_t" {
        /// The header is authenticated: krb5.
        None = 1,
        /// The body is authenticated too: krb5i.
        Integrity = 2,
        /// The body is also encrypted: krb5p.
        Privacy = 3,
    }
}

wire_struct! {
    /// A GSS mechanism and service (`rpcsec_gss_info`).
    #[derive(Copy)]
    pub struct GssInfo<'a> {
        /// Object identifier of the mechanism, in DER.
        pub oid: Bytes<'a, OID_LEN_MAX>,
        /// Quality of protection.
        pub qop: u32,
        /// Protection service.
        pub service: GssService,
    }
}

/// A security flavour that a file accepts (`secinfo4`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecInfo<'a> {
    /// An RPC flavour by number.
    Flavor(u32),
    /// RPCSEC_GSS with a mechanism.
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
    /// AUTH_SYS credential (`authsys_parms`).
    pub struct SysCred<'a> {
        /// Arbitrary number chosen by the caller.
        pub stamp: u32,
        /// Name of the machine.
        pub machine_name: Bytes<'a, 255>,
        /// User ID.
        pub uid: u32,
        /// Group ID.
        pub gid: u32,
        /// Supplementary group IDs.
        pub gids: List<u32, 16>,
    }
}

wire_struct! {
    /// GSS contexts for callbacks (`gss_cb_handles4`).
    #[derive(Copy)]
    pub struct GssCallbackHandles<'a> {
        /// Protection service.
        pub service: GssService,
        /// Context handle of the server.
        pub from_server: Bytes<'a, GSS_HANDLE_LEN_MAX>,
        /// Context handle of the client.
        pub from_client: Bytes<'a, GSS_HANDLE_LEN_MAX>,
    }
}

/// Authentication of callbacks (`callback_sec_parms4`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallbackSec<'a> {
    /// No authentication.
    None,
    /// AUTH_SYS with this credential.
    Sys(SysCred<'a>),
    /// RPCSEC_GSS with these contexts.
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
    /// Protected operations, as sets of operation numbers (`state_protect_ops4`).
    #[derive(Copy, Default)]
    pub struct StateProtectOps {
        /// Operations that require the machine credential.
        pub must_enforce: Bitmap,
        /// Operations that the machine credential may perform for other users.
        pub must_allow: Bitmap,
    }
}

wire_struct! {
    /// Requested protection by a secret state verifier (`ssv_sp_parms4`).
    pub struct SsvParms<'a> {
        /// Protected operations.
        pub ops: StateProtectOps,
        /// Hash algorithms that the client supports.
        pub hash_algs: List<Bytes<'a, OID_LEN_MAX>, 16>,
        /// Ciphers that the client supports.
        pub encr_algs: List<Bytes<'a, OID_LEN_MAX>, 16>,
        /// Number of old secrets that stay valid.
        pub window: u32,
        /// Number of GSS contexts that the client wants.
        pub gss_handles: u32,
    }
}

wire_union! {
    /// Requested state protection (`state_protect4_a`).
    pub enum StateProtect<'a> = "state_protect_how4" {
        /// No protection.
        0 => None,
        /// Protection by the machine credential.
        1 => MachineCred(ops: StateProtectOps),
        /// Protection by a secret state verifier.
        2 => Ssv(parms: SsvParms<'a>),
    }
}

wire_struct! {
    /// Granted protection by a secret state verifier (`ssv_prot_info4`).
    pub struct SsvInfo<'a> {
        /// Protected operations.
        pub ops: StateProtectOps,
        /// Index of the hash algorithm in the client's list.
        pub hash_alg: u32,
        /// Index of the cipher in the client's list.
        pub encr_alg: u32,
        /// Length of the secret.
        pub ssv_len: u32,
        /// Number of old secrets that stay valid.
        pub window: u32,
        /// Handles of the GSS contexts.
        pub handles: List<Bytes<'a, GSS_HANDLE_LEN_MAX>, 16>,
    }
}

wire_union! {
    /// Granted state protection (`state_protect4_r`).
    pub enum StateProtectReply<'a> = "state_protect_how4" {
        /// No protection.
        0 => None,
        /// Protection by the machine credential.
        1 => MachineCred(ops: StateProtectOps),
        /// Protection by a secret state verifier.
        2 => Ssv(info: SsvInfo<'a>),
    }
}
