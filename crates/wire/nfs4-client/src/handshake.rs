//! EXCHANGE_ID, CREATE_SESSION, RECLAIM_COMPLETE (RFC 8881 §18.35, 18.36 and 18.51), or SETCLIENTID
//! and SETCLIENTID_CONFIRM (RFC 7530 §16.33). No I/O.

use std::net::IpAddr;

use vouch_nfs4::op::{
    Args, BindConnArgs, CallbackClient, ChannelAttrs, ChannelDirClient, CreateSessionArgs,
    CreateSessionFlags, CreateSessionOk, ExchangeIdArgs, ExchangeIdFlags, Op, ReclaimCompleteArgs,
    Results, SetclientidArgs, SetclientidConfirmArgs,
};
use vouch_nfs4::{
    Bitmap, Bytes, CallbackSec, ClientId, ClientOwner, CreateSeq, List, NetAddr, SessionId,
    StateProtect, StateProtectOps, StateProtectReply, Status, Verifier,
};

use crate::{CallKind, CallbackSecurity, Core, Error, ReplyBody};

/// Identity of a client, with the session parameters that it requests.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Unique among the server's clients, and the same after a restart.
    pub owner: Vec<u8>,
    /// A new verifier makes the server discard the state of the previous instance.
    pub verifier: Verifier,
    /// Requested calls in progress.
    pub slots: u32,
    /// Requested, of requests and replies.
    pub message_len_max: u32,
    /// Requested, of cached replies.
    pub cached_len_max: u32,
    /// Callbacks that may be in progress.
    pub back_slots: u32,
    /// RPC program of callbacks.
    pub callback_program: u32,
    /// Network identifier and universal address (4.0).
    pub callback_address: (String, String),
    /// 4.1.
    pub callback_security: Option<CallbackSecurity>,
    /// Ends reclaims during the handshake (4.1), for a client without state to reclaim.
    pub reclaim_complete: bool,
    /// Address of this machine from which a [`Pipeline`](crate::Pipeline) connects.
    pub source: Option<IpAddr>,
}

impl Identity {
    /// An identity with default session parameters.
    pub fn new(owner: impl Into<Vec<u8>>, verifier: Verifier) -> Self {
        Self {
            owner: owner.into(),
            verifier,
            slots: 64,
            message_len_max: 1024 * 1024 + 4096,
            cached_len_max: 4096,
            back_slots: 4,
            callback_program: 0x4000_0000,
            callback_address: ("tcp".into(), "0.0.0.0.0.0".into()),
            callback_security: None,
            reclaim_complete: true,
            source: None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    ExchangeId,
    CreateSession(ClientId, CreateSeq),
    ReclaimComplete,
    SetClientId,
    Confirm(ClientId, Verifier),
    Done,
}

/// The calls by which a client gets its id and session.
#[derive(Debug)]
pub struct Handshake {
    stage: Stage,
    client: ClientId,
    session: Option<CreateSessionOk>,
    is_protected: bool,
    /// Continues without authenticated callbacks if the server refuses them.
    is_callback_security_optional: bool,
    is_callback_security_refused: bool,
    server: Option<String>,
}

/// Reserved for the client's own credential, as by Linux.
const ENFORCED: Bitmap = Bitmap::of(&[
    Op::BIND_CONN_TO_SESSION.0,
    Op::EXCHANGE_ID.0,
    Op::CREATE_SESSION.0,
    Op::DESTROY_SESSION.0,
    Op::DESTROY_CLIENTID.0,
]);

impl Handshake {
    /// Begins a handshake of this minor version.
    pub const fn new(minor: u32) -> Self {
        let stage = match minor {
            0 => Stage::SetClientId,
            _ => Stage::ExchangeId,
        };
        Self {
            stage,
            client: ClientId(0),
            session: None,
            is_protected: false,
            is_callback_security_optional: false,
            is_callback_security_refused: false,
            server: None,
        }
    }

    /// Requests SP4_MACH_CRED (RFC 8881 §2.10.8.3), and continues without it if the server refuses.
    /// The calls must have integrity ([`Core::has_integrity`]). Afterwards each connection must be
    /// bound to the session before use.
    #[must_use]
    pub(crate) const fn with_state_protection(mut self, requested: bool) -> Self {
        self.is_protected = requested;
        self
    }

    /// Continues without authenticated callbacks ([`Identity::callback_security`]) if the server
    /// refuses them.
    #[must_use]
    pub const fn callback_security_optional(mut self, optional: bool) -> Self {
        self.is_callback_security_optional = optional;
        self
    }

    /// The server refused authenticated callbacks.
    pub const fn is_callback_security_refused(&self) -> bool {
        self.is_callback_security_refused
    }

    /// Whether calls can be sent.
    pub fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// The id that the server has given.
    pub const fn client(&self) -> ClientId {
        self.client
    }

    /// The session as the server has granted it (4.1).
    pub const fn session(&self) -> Option<&CreateSessionOk> {
        self.session.as_ref()
    }

    /// Name and version of the server's software (`eir_server_impl_id`), at most 100 characters,
    /// not verified.
    pub fn server(&self) -> Option<&str> {
        self.server.as_deref()
    }

    /// The next call.
    pub fn request<'a>(&self, identity: &'a Identity) -> Option<(CallKind, Args<'a>)> {
        let owner = ClientOwner { verifier: identity.verifier, id: Bytes(&identity.owner) };
        Some(match self.stage {
            Stage::ExchangeId => (
                CallKind::Sessionless,
                Args::ExchangeId(ExchangeIdArgs {
                    owner,
                    flags: ExchangeIdFlags::USE_NON_PNFS,
                    state_protect: match self.is_protected {
                        true => StateProtect::MachineCred(StateProtectOps {
                            must_enforce: ENFORCED,
                            must_allow: Bitmap::EMPTY,
                        }),
                        false => StateProtect::None,
                    },
                    impl_id: None,
                }),
            ),
            Stage::CreateSession(client, seq) => (
                CallKind::Sessionless,
                Args::CreateSession(create_session(
                    identity,
                    !self.is_callback_security_refused,
                    client,
                    seq,
                )),
            ),
            Stage::ReclaimComplete => (
                CallKind::Session { cache: true },
                Args::ReclaimComplete(ReclaimCompleteArgs { one_fs: false }),
            ),
            Stage::SetClientId => {
                let (netid, address) = &identity.callback_address;
                let location =
                    NetAddr { netid: Bytes(netid.as_bytes()), address: Bytes(address.as_bytes()) };
                let callback = CallbackClient { program: identity.callback_program, location };
                (
                    CallKind::Sessionless,
                    Args::Setclientid(SetclientidArgs {
                        client: owner,
                        callback,
                        callback_ident: 1,
                    }),
                )
            }
            Stage::Confirm(client, confirm) => (
                CallKind::Sessionless,
                Args::SetclientidConfirm(SetclientidConfirmArgs { client, confirm }),
            ),
            Stage::Done => return None,
        })
    }

    /// Takes the reply to the last call.
    pub fn accept(
        &mut self,
        identity: &Identity,
        mut reply: ReplyBody<'_>,
        core: &mut Core,
    ) -> Result<(), Error> {
        let result = reply.next_result()?;
        self.stage = match (self.stage, result) {
            (Stage::ExchangeId, Results::ExchangeId(Ok(ok))) => {
                self.client = ok.client;
                let text = ok.impl_id.map(|impl_id| {
                    String::from_utf8_lossy(impl_id.name.0)
                        .chars()
                        .filter(|c| !c.is_control())
                        .take(100)
                        .collect()
                });
                self.server = text.filter(|text: &String| !text.is_empty());
                self.is_protected = matches!(ok.state_protect, StateProtectReply::MachineCred(_));
                Stage::CreateSession(ok.client, ok.seq)
            }
            // Servers without state protection return various errors. Other errors will occur
            // again.
            (Stage::ExchangeId, Results::ExchangeId(Err(_))) if self.is_protected => {
                self.is_protected = false;
                Stage::ExchangeId
            }
            (Stage::CreateSession(..), Results::CreateSession(Ok(ok))) => {
                if ok.fore.requests_max == 0 || ok.fore.operations_max < 2 {
                    return Err(Error::Mismatch("the session is too small"));
                }
                core.set_session(&ok);
                core.set_state_protected(self.is_protected);
                self.session = Some(ok);
                match identity.reclaim_complete {
                    true => Stage::ReclaimComplete,
                    false => Stage::Done,
                }
            }
            // With EXCHANGE_ID again: servers differ in whether a refused CREATE_SESSION advances
            // the sequence number.
            (Stage::CreateSession(..), Results::CreateSession(Err(status)))
                if self.is_callback_security_optional
                    && !self.is_callback_security_refused
                    && identity.callback_security.is_some()
                    && is_security_refusal(status) =>
            {
                self.is_callback_security_refused = true;
                Stage::ExchangeId
            }
            (
                Stage::ReclaimComplete,
                Results::ReclaimComplete(Ok(()) | Err(Status::COMPLETE_ALREADY)),
            ) => Stage::Done,
            (Stage::SetClientId, Results::Setclientid(Ok(ok))) => {
                self.client = ok.client;
                Stage::Confirm(ok.client, ok.confirm)
            }
            (Stage::Confirm(..), Results::SetclientidConfirm(Ok(()))) => Stage::Done,
            (_, result) => {
                return Err(match result.status() {
                    Status::OK => Error::Mismatch("result of another operation"),
                    status => Error::Refused { op: result.op(), status },
                });
            }
        };
        Ok(())
    }
}

pub(crate) const fn bind(session: SessionId) -> Args<'static> {
    Args::BindConnToSession(BindConnArgs {
        session,
        dir: ChannelDirClient::ForeOrBoth,
        rdma: false,
    })
}

/// The server lacks RPCSEC_GSS callbacks: ENCR_ALG_UNSUPP (RFC 8881 §18.36.3), or others.
pub(crate) const fn is_security_refusal(status: Status) -> bool {
    matches!(
        status,
        Status::ENCR_ALG_UNSUPP
            | Status::NOTSUPP
            | Status::INVAL
            | Status::BADXDR
            | Status::SERVERFAULT
    )
}

fn create_session(
    identity: &Identity,
    authenticated: bool,
    client: ClientId,
    seq: CreateSeq,
) -> CreateSessionArgs<'_> {
    let channel = |requests_max, len_max, cached_len_max, operations_max| ChannelAttrs {
        header_pad_size: 0,
        request_len_max: len_max,
        response_len_max: len_max,
        response_cached_len_max: cached_len_max,
        operations_max,
        requests_max,
        rdma_ird: None,
    };
    CreateSessionArgs {
        client,
        seq,
        flags: CreateSessionFlags::CONN_BACK_CHAN,
        fore: channel(identity.slots, identity.message_len_max, identity.cached_len_max, 64),
        back: channel(identity.back_slots, 4096, 4096, 16),
        callback_program: identity.callback_program,
        sec_parms: List(vec![
            identity
                .callback_security
                .as_ref()
                .filter(|_| authenticated)
                .map_or(CallbackSec::None, CallbackSecurity::offer),
        ]),
    }
}
