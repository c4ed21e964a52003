//! CREATE_SESSION (RFC 8881 §18.36).

use std::net::IpAddr;
use std::sync::Arc;

use vouch_nfs4::op::{
    ChannelAttrs, CreateSessionArgs, CreateSessionFlags, CreateSessionOk, SequenceFlags,
};
use vouch_nfs4::{CallbackSec, GssService, SessionId, Status};

use crate::state::client::credential::Credential;
use crate::state::client::record::{BackContext, BackParms, Lease, NameRecords};
use crate::state::effect::CallbackCredential;
use crate::state::id::ClientKey;
use crate::state::limits::{
    BACK_SLOTS_MAX, CALLBACK_LEN_MIN, MESSAGE_LEN_MIN, REPLY_CACHE_PRESSURE_SHARE,
    SESSIONS_PER_CONNECTION_MAX, SLOTS_UNDER_PRESSURE,
};
use crate::state::quota::SourceKey;
use crate::state::session::record::{Bound, Session};
use crate::state::session::slots::SlotTable;
use crate::{CallbackContext, Flavour};
use vouch_nfs4::op::Op;

use crate::ConnectionId;
use crate::state::tables::State;

impl<F: Clone> State<F> {
    /// Phases of §18.36.4.
    pub(crate) fn create_session(
        &mut self,
        args: &CreateSessionArgs<'_>,
        connection: ConnectionId,
        credential: Credential<'_>,
        now: u64,
    ) -> Result<CreateSessionOk, Status> {
        // Phase 1.
        let key = self.client_by_id(args.client).ok_or(Status::STALE_CLIENTID)?;
        let client = &self.clients[key];
        let (next, last) =
            client.v41().map(|v41| (v41.next, v41.last)).ok_or(Status::STALE_CLIENTID)?;
        // Phase 3, before phase 2: a cached reply reveals a session id. The creating principal
        // confirms a client; the managing principal may use a confirmed one.
        if !client.confirmed && !client.principal.same_user(credential.principal) {
            return Err(self.note_name_conflict(key, credential.address));
        }
        self.enforce(key, Op::CREATE_SESSION, credential)?;
        if !self.clients[key].client_principal().admits(credential) {
            return Err(self.note_name_conflict(key, credential.address));
        }
        self.check_name(key, credential)?;
        self.check_confirmation(key, credential)?;
        // Phase 2. The last number again is a retry.
        if args.seq.next() == next {
            return last.ok_or(Status::SEQ_MISORDERED);
        }
        if args.seq != next {
            return Err(Status::SEQ_MISORDERED);
        }
        self.latest_ms = self.latest_ms.max(now);
        let made = self.make_session(key, args, connection, credential.address)?;
        self.update_client_address(key);
        let client = &mut self.clients[key];
        client.renew(now);
        let v41 = client.v41_mut().expect("the client used 4.1 before");
        v41.next = v41.next.next();
        v41.last = Some(made);
        self.refresh_paths(key);
        self.send_queued_callbacks(key);
        Ok(made)
    }

    /// That of the COMPOUND that created the session (§2.10.2; Linux finds the session by it).
    pub(crate) fn note_minor_version(&mut self, id: &SessionId, minor: u32) {
        if let Some(key) = self.session_by_id(id) {
            self.sessions[key].back.minor = minor;
        }
    }

    fn make_session(
        &mut self,
        key: ClientKey,
        args: &CreateSessionArgs<'_>,
        connection: ConnectionId,
        address: IpAddr,
    ) -> Result<CreateSessionOk, Status> {
        if args.flags.0 > 7 {
            return Err(Status::INVAL);
        }
        let source_key = self.clients[key].source_key;
        let fore = self.negotiate_fore(&args.fore, source_key)?;
        let requested = args.flags.contains(CreateSessionFlags::CONN_BACK_CHAN);
        let back = negotiate_back(&args.back, requested)?;
        let credential = callback_credential(&args.sec_parms);
        // The reply's flag says whether the connection carries callbacks (§18.36.3).
        let wants_back = requested && credential.is_some();
        let client = &self.clients[key];
        let sessions = client.v41().map_or(0, |v41| v41.sessions.len());
        let bound = self.connections.get(&connection).map_or(0, Vec::len);
        if sessions >= self.config.limits.sessions_per_client_max
            || bound >= SESSIONS_PER_CONNECTION_MAX
        {
            return Err(Status::NOSPC);
        }
        if !self.make_room_for_session(source_key) {
            return Err(Status::NOSPC);
        }
        let client = &self.clients[key];
        if !client.confirmed {
            let (family, owner) = (client.family(), client.owner.clone());
            if let NameRecords { confirmed: Some(old), .. } = self.named(family, &owner) {
                match vouch_vfs::mutant("state-of-former-instance-lives") {
                    true => self.names(family).entry(owner).or_default().confirmed = None,
                    false => self.replace(old),
                }
            }
            self.confirm_record(key);
            self.clients[key].lease = Lease::Active;
        }
        let life = self.life_of(credential.as_ref());
        let parms =
            BackParms { minor: 1, attrs: back, program: args.callback_program, credential, life };
        let random = &mut self.random;
        let session = self.sessions.insert_with(|session| Session {
            id: random.session_id(session),
            client: key,
            source_key,
            fore,
            back: parms,
            slots: SlotTable::new(fore.requests_max),
            connections: Vec::new(),
            last: ConnectionId(0),
            back_slots: Vec::new(),
            back_slots_max: back.requests_max,
            flags: SequenceFlags(0),
            context: BackContext::Lasts,
            fault: false,
        });
        self.sources.usage_mut(source_key).sessions += 1;
        self.bind(session, Bound { connection, address, fore: true, back: wants_back });
        self.clients[key].v41_mut().expect("the client used 4.1 before").sessions.push(session);
        let flags =
            if wants_back { CreateSessionFlags::CONN_BACK_CHAN } else { CreateSessionFlags(0) };
        Ok(CreateSessionOk { session: self.sessions[session].id, seq: args.seq, flags, fore, back })
    }

    /// Errors: TOOSMALL for unusable values (§18.36.3).
    fn negotiate_fore(
        &self,
        wanted: &ChannelAttrs,
        source_key: SourceKey,
    ) -> Result<ChannelAttrs, Status> {
        if wanted.request_len_max < MESSAGE_LEN_MIN || wanted.response_len_max < MESSAGE_LEN_MIN {
            return Err(Status::TOOSMALL);
        }
        if wanted.requests_max == 0 || wanted.operations_max == 0 {
            return Err(Status::INVAL);
        }
        let limits = &self.config.limits;
        let slots_max = match self.reply_room(source_key)
            < limits.reply_cache_len_max / REPLY_CACHE_PRESSURE_SHARE
        {
            true => SLOTS_UNDER_PRESSURE,
            false => limits.slots_per_session_max,
        };
        let response_len_max = wanted.response_len_max.min(limits.message_len_max);
        Ok(ChannelAttrs {
            header_pad_size: 0,
            request_len_max: wanted.request_len_max.min(limits.message_len_max),
            response_len_max,
            response_cached_len_max: wanted
                .response_cached_len_max
                .min(limits.cached_reply_len_max)
                .min(response_len_max),
            operations_max: wanted.operations_max.min(limits.operations_max),
            requests_max: wanted.requests_max.min(slots_max),
            rdma_ird: None,
        })
    }
}

const NO_CHANNEL: ChannelAttrs = ChannelAttrs {
    header_pad_size: 0,
    request_len_max: 0,
    response_len_max: 0,
    response_cached_len_max: 0,
    operations_max: 0,
    requests_max: 0,
    rdma_ird: None,
};

/// Keeps the client's values if they suffice for a recall.
fn negotiate_back(wanted: &ChannelAttrs, wants_back: bool) -> Result<ChannelAttrs, Status> {
    let small = wanted.request_len_max < CALLBACK_LEN_MIN
        || wanted.response_len_max < CALLBACK_LEN_MIN
        || wanted.operations_max < 2;
    let offered = wants_back || *wanted != NO_CHANNEL;
    if offered && small {
        return Err(Status::TOOSMALL);
    }
    Ok(ChannelAttrs {
        header_pad_size: 0,
        requests_max: wanted.requests_max.min(BACK_SLOTS_MAX),
        rdma_ird: None,
        ..*wanted
    })
}

/// None if all are unusable. Prefers RPCSEC_GSS (the server's choice, §18.36.3).
pub(in crate::state) fn callback_credential(
    offers: &[CallbackSec<'_>],
) -> Option<CallbackCredential> {
    if offers.is_empty() {
        return Some(CallbackCredential::None);
    }
    let proven = offers.iter().find_map(|offer| match offer {
        CallbackSec::Gss(handles) if !handles.from_server.0.is_empty() => {
            Some(CallbackCredential::Gss(Arc::new(CallbackContext {
                flavour: match handles.service {
                    GssService::None => Flavour::Krb5,
                    GssService::Integrity => Flavour::Krb5i,
                    GssService::Privacy => Flavour::Krb5p,
                },
                from_server: handles.from_server.0.into(),
                from_client: handles.from_client.0.into(),
            })))
        }
        _ => None,
    });
    let named = || {
        offers.iter().find_map(|offer| match offer {
            CallbackSec::None => Some(CallbackCredential::None),
            CallbackSec::Sys(sys) => Some(CallbackCredential::Sys {
                uid: sys.uid,
                gid: sys.gid,
                machine: sys.machine_name.0.into(),
            }),
            CallbackSec::Gss(_) => None,
        })
    };
    proven.or_else(named)
}
