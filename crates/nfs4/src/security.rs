//! Security as the operations carry it: flavours that SECINFO lists, credentials of callbacks,
//! protection of state. Proves nothing.

use vouch_xdr::{Error, Reader, Writer};

use crate::macros::{wire_enum, wire_struct, wire_union};
use crate::{Bitmap, Bytes, List, Wire};

/// Most flavours in one list: AUTH_NONE, AUTH_SYS, and three services of a few mechanisms.
pub const SEC_PARMS_MAX: usize = 32;
/// Longest object identifier in DER.
const OID_LEN_MAX: usize = 256;
/// Longest handle of a GSS context (RFC 2203 leaves it open; a credential has 400 bytes).
const GSS_HANDLE_LEN_MAX: usize = 400;

wire_enum! {
    /// What RPCSEC_GSS does to the body (`rpc_gss_svc_t`).
    pub enum GssService = "rpc_gss_svc_t" {
        /// Only the header is proven: krb5.
        None = 1,
        /// The body is proven: krb5i.
        Integrity = 2,
        /// The body is sealed: krb5p.
        Privacy = 3,
    }
}

wire_struct! {
    /// A mechanism and what it does (`rpcsec_gss_info`).
    #[derive(Copy)]
    pub struct GssInfo<'a> {
        /// The mechanism, in DER.
        pub oid: Bytes<'a, OID_LEN_MAX>,
        /// Quality of protection.
        pub qop: u32,
        /// The service.
        pub service: GssService,
    }
}

/// A flavour that a file may be reached by (`secinfo4`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecInfo<'a> {
    /// One of RPC's own, by number.
    Flavor(u32),
    /// RPCSEC_GSS.
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
    /// A user's numbers, unproven (`authsys_parms`).
    pub struct SysCred<'a> {
        /// Arbitrary.
        pub stamp: u32,
        /// The machine.
        pub machine_name: Bytes<'a, 255>,
        /// The user.
        pub uid: u32,
        /// The group.
        pub gid: u32,
        /// Other groups.
        pub gids: List<u32, 16>,
    }
}

wire_struct! {
    /// GSS contexts for callbacks (`gss_cb_handles4`).
    #[derive(Copy)]
    pub struct GssCallbackHandles<'a> {
        /// The service.
        pub service: GssService,
        /// The server's handle.
        pub from_server: Bytes<'a, GSS_HANDLE_LEN_MAX>,
        /// The client's.
        pub from_client: Bytes<'a, GSS_HANDLE_LEN_MAX>,
    }
}

/// How callbacks may be authenticated (`callback_sec_parms4`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallbackSec<'a> {
    /// Not at all.
    None,
    /// As this user.
    Sys(SysCred<'a>),
    /// By these contexts.
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
    /// Operations under protection, as sets of operation numbers (`state_protect_ops4`).
    #[derive(Copy, Default)]
    pub struct StateProtectOps {
        /// Those that only the machine's credential may do.
        pub must_enforce: Bitmap,
        /// Those that it may do for others.
        pub must_allow: Bitmap,
    }
}

wire_struct! {
    /// Protection by a shared secret, as asked for (`ssv_sp_parms4`).
    pub struct SsvParms<'a> {
        /// Which operations.
        pub ops: StateProtectOps,
        /// Hashes that the client has.
        pub hash_algs: List<Bytes<'a, OID_LEN_MAX>, 16>,
        /// Ciphers that the client has.
        pub encr_algs: List<Bytes<'a, OID_LEN_MAX>, 16>,
        /// How many versions of the secret live on.
        pub window: u32,
        /// How many contexts the client wants.
        pub gss_handles: u32,
    }
}

wire_union! {
    /// Protection of state, as asked for (`state_protect4_a`).
    pub enum StateProtect<'a> = "state_protect_how4" {
        /// None.
        0 => None,
        /// By the machine's credential.
        1 => MachineCred(ops: StateProtectOps),
        /// By a shared secret.
        2 => Ssv(parms: SsvParms<'a>),
    }
}

wire_struct! {
    /// Protection by a shared secret, as granted (`ssv_prot_info4`).
    pub struct SsvInfo<'a> {
        /// Which operations.
        pub ops: StateProtectOps,
        /// The hash, as an index of what was offered.
        pub hash_alg: u32,
        /// The cipher, likewise.
        pub encr_alg: u32,
        /// Length of the secret.
        pub ssv_len: u32,
        /// How many versions live on.
        pub window: u32,
        /// Contexts.
        pub handles: List<Bytes<'a, GSS_HANDLE_LEN_MAX>, 16>,
    }
}

wire_union! {
    /// Protection of state, as granted (`state_protect4_r`).
    pub enum StateProtectReply<'a> = "state_protect_how4" {
        /// None.
        0 => None,
        /// By the machine's credential.
        1 => MachineCred(ops: StateProtectOps),
        /// By a shared secret.
        2 => Ssv(info: SsvInfo<'a>),
    }
}
