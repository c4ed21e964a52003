//! How a client introduces itself: EXCHANGE_ID, CREATE_SESSION, RECLAIM_COMPLETE (RFC 8881,
//! sections 18.35, 18.36 and 18.51), or SETCLIENTID and its confirmation (RFC 7530, section 16.33).
//! Bytes and values only.

use vouch_nfs4::op::{
    Args, BindConnArgs, CallbackClient, ChannelAttrs, ChannelDirClient, CreateSessionArgs, CreateSessionFlags, CreateSessionOk,
    ExchangeIdArgs, ExchangeIdFlags, Op, ReclaimCompleteArgs, Results, SetclientidArgs, SetclientidConfirmArgs,
};
use vouch_nfs4::{
    Bitmap, Bytes, CallbackSec, ClientId, ClientOwner, CreateSeq, List, NetAddr, SessionId, StateProtect, StateProtectOps,
    StateProtectReply, Status, Verifier,
};

use crate::{CallKind, CallbackSecurity, Core, Error, ReplyBody};

/// Who the client is and what it asks for.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Its name.
    pub owner: Vec<u8>,
    /// Its life: another one drops the state of the one before.
    pub verifier: Verifier,
    /// Slots to ask for.
    pub slots: u32,
    /// Longest request and reply to ask for.
    pub message_len_max: u32,
    /// Longest reply that the server is to keep.
    pub cached_len_max: u32,
    /// Slots of the back channel.
    pub back_slots: u32,
    /// The callback program; with 4.0 also where callbacks go.
    pub callback_program: u32,
    /// Network and universal address of callbacks (4.0).
    pub callback_address: (String, String),
    /// What the server shall prove its callbacks by (4.1). If there is none, [`crate::Client`] and
    /// [`crate::Pipeline`] offer the context of their calls.
    pub callback_security: Option<CallbackSecurity>,
    /// Whether to end reclaims at once (4.1): a client that has nothing to reclaim.
    pub reclaim_complete: bool,
}

impl Identity {
    /// A client of this name and life.
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
        }
    }
}

/// What the next call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    ExchangeId,
    CreateSession(ClientId, CreateSeq),
    ReclaimComplete,
    SetClientId,
    Confirm(ClientId, Verifier),
    Done,
}

/// The calls that introduce a client, one after another.
#[derive(Debug)]
pub struct Handshake {
    stage: Stage,
    client: ClientId,
    session: Option<CreateSessionOk>,
    /// Whether state protection is asked for; once it is introduced, whether it is granted.
    with_state_protection: bool,
    /// Whether to do without proof of callbacks where the server refuses it, and whether that is
    /// so.
    is_callback_security_optional: bool,
    is_callback_security_refused: bool,
    /// What the server says it is.
    server: Option<String>,
}

/// What nobody but the one who introduces the client shall do: what Linux asks for.
const ENFORCED: Bitmap =
    Bitmap::of(&[Op::BIND_CONN_TO_SESSION.0, Op::EXCHANGE_ID.0, Op::CREATE_SESSION.0, Op::DESTROY_SESSION.0, Op::DESTROY_CLIENTID.0]);

impl Handshake {
    /// From the start.
    pub const fn new(minor: u32) -> Self {
        let stage = match minor {
            0 => Stage::SetClientId,
            _ => Stage::ExchangeId,
        };
        Self {
            stage,
            client: ClientId(0),
            session: None,
            with_state_protection: false,
            is_callback_security_optional: false,
            is_callback_security_refused: false,
            server: None,
        }
    }

    /// Asks for state protection by the credential of these calls (SP4_MACH_CRED, RFC 8881, section
    /// 2.10.8.3), and does without where the server refuses it. For calls that can't be altered
    /// on their way ([`Core::has_integrity`]); from then on each connection is to be bound before
    /// it carries calls of the session.
    #[must_use]
    pub const fn with_state_protection(mut self, with_state_protection: bool) -> Self {
        self.with_state_protection = with_state_protection;
        self
    }

    /// Does without proof of callbacks ([`Identity::callback_security`]) where the server can't give
    /// it: a context that nobody has chosen for that is no reason to fail.
    #[must_use]
    pub const fn callback_security_optional(mut self, optional: bool) -> Self {
        self.is_callback_security_optional = optional;
        self
    }

    /// Whether callbacks prove nothing because the server refused.
    pub const fn is_callback_security_refused(&self) -> bool {
        self.is_callback_security_refused
    }

    /// Whether the client is introduced.
    pub fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// The client's number, once it is known.
    pub const fn client(&self) -> ClientId {
        self.client
    }

    /// The session, once there is one.
    pub const fn session(&self) -> Option<&CreateSessionOk> {
        self.session.as_ref()
    }

    /// Name and version of the server's software, if it tells (`eir_server_impl_id`); up to 100
    /// characters, and nobody's word but its own.
    pub fn server(&self) -> Option<&str> {
        self.server.as_deref()
    }

    /// The next call's operation.
    pub fn request<'a>(&self, identity: &'a Identity) -> Option<(CallKind, Args<'a>)> {
        let owner = ClientOwner { verifier: identity.verifier, id: Bytes(&identity.owner) };
        Some(match self.stage {
            Stage::ExchangeId => (
                CallKind::Sessionless,
                Args::ExchangeId(ExchangeIdArgs {
                    owner,
                    flags: ExchangeIdFlags::USE_NON_PNFS,
                    state_protect: match self.with_state_protection {
                        // All calls are by one credential, so there is nothing that the machine has to be allowed for others.
                        true => StateProtect::MachineCred(StateProtectOps { must_enforce: ENFORCED, must_allow: Bitmap::EMPTY }),
                        false => StateProtect::None,
                    },
                    impl_id: None,
                }),
            ),
            Stage::CreateSession(client, seq) => {
                (CallKind::Sessionless, Args::CreateSession(create_session(identity, !self.is_callback_security_refused, client, seq)))
            }
            Stage::ReclaimComplete => (CallKind::Session { cache: true }, Args::ReclaimComplete(ReclaimCompleteArgs { one_fs: false })),
            Stage::SetClientId => {
                let (netid, address) = &identity.callback_address;
                let location = NetAddr { netid: Bytes(netid.as_bytes()), address: Bytes(address.as_bytes()) };
                let callback = CallbackClient { program: identity.callback_program, location };
                (CallKind::Sessionless, Args::Setclientid(SetclientidArgs { client: owner, callback, callback_ident: 1 }))
            }
            Stage::Confirm(client, confirm) => {
                (CallKind::Sessionless, Args::SetclientidConfirm(SetclientidConfirmArgs { client, confirm }))
            }
            Stage::Done => return None,
        })
    }

    /// Takes the answer to the call.
    pub fn accept(&mut self, identity: &Identity, mut reply: ReplyBody<'_>, core: &mut Core) -> Result<(), Error> {
        let result = reply.next_result()?;
        self.stage = match (self.stage, result) {
            (Stage::ExchangeId, Results::ExchangeId(Ok(ok))) => {
                self.client = ok.client;
                let text = ok
                    .impl_id
                    .map(|impl_id| String::from_utf8_lossy(impl_id.name.0).chars().filter(|c| !c.is_control()).take(100).collect());
                self.server = text.filter(|text: &String| !text.is_empty());
                self.with_state_protection = matches!(ok.state_protect, StateProtectReply::MachineCred(_));
                Stage::CreateSession(ok.client, ok.seq)
            }
            // A server that has no state protection says so in various ways; what else was wrong it says again.
            (Stage::ExchangeId, Results::ExchangeId(Err(_))) if self.with_state_protection => {
                self.with_state_protection = false;
                Stage::ExchangeId
            }
            (Stage::CreateSession(..), Results::CreateSession(Ok(ok))) => {
                if ok.fore.requests_max == 0 || ok.fore.operations_max < 2 {
                    return Err(Error::Mismatch("a session of no use"));
                }
                core.set_session(&ok);
                core.set_state_protected(self.with_state_protection);
                self.session = Some(ok);
                match identity.reclaim_complete {
                    true => Stage::ReclaimComplete,
                    false => Stage::Done,
                }
            }
            // Anew from the first call, whose answer tells the number of the next: whether that of a refused one counts is told
            // differently.
            (Stage::CreateSession(..), Results::CreateSession(Err(status)))
                if self.is_callback_security_optional
                    && !self.is_callback_security_refused
                    && identity.callback_security.is_some()
                    && is_about_security(status) =>
            {
                self.is_callback_security_refused = true;
                Stage::ExchangeId
            }
            // The server may remember it from before.
            (Stage::ReclaimComplete, Results::ReclaimComplete(Ok(()) | Err(Status::COMPLETE_ALREADY))) => Stage::Done,
            (Stage::SetClientId, Results::Setclientid(Ok(ok))) => {
                self.client = ok.client;
                Stage::Confirm(ok.client, ok.confirm)
            }
            (Stage::Confirm(..), Results::SetclientidConfirm(Ok(()))) => Stage::Done,
            (_, result) => {
                return Err(match result.status() {
                    Status::OK => Error::Mismatch("the result is of another operation"),
                    status => Error::Refused { op: result.op(), status },
                });
            }
        };
        Ok(())
    }
}

/// The operation that adds a connection to a session, for calls and, if the server likes,
/// callbacks.
pub(crate) const fn bind(session: SessionId) -> Args<'static> {
    Args::BindConnToSession(BindConnArgs { session, dir: ChannelDirClient::ForeOrBoth, rdma: false })
}

/// What servers say that know no callbacks under RPCSEC_GSS (RFC 8881, section 18.36.3:
/// ENCR_ALG_UNSUPP). A server that is busy is none of them.
pub(crate) const fn is_about_security(status: Status) -> bool {
    matches!(status, Status::ENCR_ALG_UNSUPP | Status::NOTSUPP | Status::INVAL | Status::BADXDR | Status::SERVERFAULT)
}

fn create_session(identity: &Identity, proven: bool, client: ClientId, seq: CreateSeq) -> CreateSessionArgs<'_> {
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
        sec_parms: List(vec![identity.callback_security.as_ref().filter(|_| proven).map_or(CallbackSec::None, CallbackSecurity::offer)]),
    }
}
