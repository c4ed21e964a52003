//! SEQUENCE, connection binding and session end (RFC 8881 §2.10.3 and 18.46).

use super::record::{Bound, SequenceCall, Sequenced, Turn};
use std::collections::BTreeSet;
use std::net::IpAddr;

use vouch_nfs4::op::SequenceOk;
use vouch_nfs4::op::{
    BackchannelCtlArgs, BindConnArgs, BindConnOk, ChannelDirClient, ChannelDirServer,
};
use vouch_nfs4::{SessionId, Status};

use crate::access::network::Network;
use crate::state::client::credential::Credential;
use crate::state::client::record::Protection;
use crate::state::id::{ClientKey, SessionKey, session_index};
use crate::state::limits::{
    CONNECTIONS_PER_SESSION_MAX, REPLY_CACHE_PRESSURE_SHARE, SESSIONS_PER_CONNECTION_MAX,
    SLOTS_UNDER_PRESSURE,
};
use crate::state::quota::Source;
use crate::state::session::slots::{self, SlotAnswer};
use vouch_nfs4::op::Op;

use crate::ConnectionId;
use crate::state::tables::State;

impl<F: Clone> State<F> {
    pub(in crate::state) fn session_by_id(&mut self, id: &SessionId) -> Option<SessionKey> {
        self.sessions
            .at_mut(session_index(id))
            .filter(|(_, session)| session.id == *id)
            .map(|(key, _)| key)
    }

    /// O(1); allocates only for the first use of a slot.
    pub(crate) fn sequence(
        &mut self,
        call: &SequenceCall<'_>,
        now: u64,
    ) -> Result<Sequenced, Status> {
        let args = call.args;
        let lease_ms = self.config.lease_ms;
        let (key, session) = self
            .sessions
            .at_mut(session_index(&args.session))
            .filter(|(_, session)| session.id == args.session)
            .ok_or(Status::BADSESSION)?;
        let client_key = session.client;
        // Contexts end silently; the next SEQUENCE must report it (§18.46.3).
        if session.back.life.is_some() && session.back.context(lease_ms) != session.context {
            self.refresh_paths(client_key);
        }
        if self.sessions[key].last != call.connection {
            self.bind_fore_channel(key, call)?;
            self.sessions[key].last = call.connection;
        }
        let session = &mut self.sessions[key];
        // §18.46.3: before the slot is checked.
        if call.operations > session.fore.operations_max {
            return Err(Status::TOO_MANY_OPS);
        }
        if call.request_len > session.fore.request_len_max as usize {
            return Err(Status::REQ_TOO_BIG);
        }
        let turn = session.slots.check_request(
            args.slot,
            args.seq,
            args.highest_slot,
            call.fingerprint,
        )?;
        let source_key = session.source_key;
        let promised =
            if args.cache_this { session.fore.response_cached_len_max as usize } else { 0 };
        let more = promised + session.slots.growth(args.slot);
        // Room for the reply is reserved now, so that the limit is never exceeded.
        if more > 0 && turn == slots::Turn::New && more > self.reply_room(source_key) {
            self.latest_ms = self.latest_ms.max(now);
            if !self.make_room_for_replies(source_key, Some(key), more) {
                // The slot's number stays, and the client repeats the call (§15.1.1.3).
                return Err(Status::DELAY);
            }
        }
        let room = self.reply_room(source_key);
        let begun = self.begin_slot(key, call)?;
        self.clients[client_key].renew(now);
        self.adjust_slots(key, args.slot, room);
        Ok(self.sequenced(key, call, begun, promised))
    }

    fn sequenced(
        &mut self,
        key: SessionKey,
        call: &SequenceCall<'_>,
        begun: SlotAnswer,
        promised: usize,
    ) -> Sequenced {
        let args = call.args;
        let session = &self.sessions[key];
        let client = &mut self.clients[session.client];
        let ok = SequenceOk {
            session: args.session,
            seq: args.seq,
            slot: args.slot,
            highest_slot: session.slots.highest(),
            target_highest_slot: session.slots.target(),
            flags: client.flags | session.flags,
        };
        match begun {
            SlotAnswer::New => {
                client.running += 1;
                self.reply_cache_reserved += promised;
                self.sources.reserve(session.source_key, promised);
                Sequenced::New(Turn {
                    client: session.client,
                    session: key,
                    ok,
                    response_len_max: session.fore.response_len_max,
                    response_cached_len_max: session.fore.response_cached_len_max,
                    cache_this: args.cache_this,
                    source_key: session.source_key,
                })
            }
            SlotAnswer::Replay(reply) => Sequenced::Replay(reply),
            SlotAnswer::Uncached => Sequenced::Uncached(ok),
        }
    }

    /// Without state protection, the first SEQUENCE on a connection binds it to the fore channel
    /// (§2.10.3.1).
    fn bind_fore_channel(
        &mut self,
        key: SessionKey,
        call: &SequenceCall<'_>,
    ) -> Result<(), Status> {
        let session = &mut self.sessions[key];
        let client_key = session.client;
        let client = self.clients.get(client_key).expect("a client is removed after its sessions");
        let is_protected = client.v41().is_some_and(|v41| v41.protection != Protection::None);
        if let Some(bound) =
            session.connections.iter_mut().find(|bound| bound.connection == call.connection)
        {
            if is_protected && !bound.fore {
                return Err(Status::CONN_NOT_BOUND_TO_SESSION);
            }
            bound.fore = true;
            return Ok(());
        }
        if is_protected {
            return Err(Status::CONN_NOT_BOUND_TO_SESSION);
        }
        if self
            .connections
            .get(&call.connection)
            .is_some_and(|bound| bound.len() >= SESSIONS_PER_CONNECTION_MAX)
        {
            return Ok(());
        }
        if session.connections.len() >= CONNECTIONS_PER_SESSION_MAX {
            let oldest = session.connections.iter().position(|bound| !bound.back).unwrap_or(0);
            let old = session.connections.remove(oldest);
            if let Some(sessions) = self.connections.get_mut(&old.connection) {
                sessions.retain(|&other| other != key);
            }
        }
        session.connections.push(Bound {
            connection: call.connection,
            address: call.address,
            fore: true,
            back: false,
        });
        self.connections.entry(call.connection).or_default().push(key);
        self.update_client_address(client_key);
        Ok(())
    }

    fn begin_slot(
        &mut self,
        key: SessionKey,
        call: &SequenceCall<'_>,
    ) -> Result<SlotAnswer, Status> {
        let session = &mut self.sessions[key];
        let before = session.slots.held_len();
        let begun = session.slots.begin(
            call.args.slot,
            call.args.seq,
            call.args.highest_slot,
            call.fingerprint,
        );
        let after = session.slots.held_len();
        self.reply_cache_len = self.reply_cache_len + after - before;
        let held = &mut self.sources.usage_mut(session.source_key).cached_len;
        *held = *held + after - before;
        begun
    }

    /// Grants more slots to a client that uses the last one, and fewer if no memory is left. A highest
    /// slot that it only names is not enough: nfs-rs 0.8 always names its last one, and takes no
    /// more slots than it asked for.
    fn adjust_slots(&mut self, key: SessionKey, used: vouch_nfs4::SlotId, room: usize) {
        let limits = &self.config.limits;
        let slots = &mut self.sessions[key].slots;
        let uses_all = used == slots.highest() && used.0 + 1 < limits.slots_per_session_max;
        // §2.10.6.1.
        if uses_all && room >= limits.reply_cache_len_max / REPLY_CACHE_PRESSURE_SHARE {
            slots.grow((slots.highest().0 + 1).saturating_mul(2).min(limits.slots_per_session_max));
        }
        if room == 0 {
            slots.shrink(SLOTS_UNDER_PRESSURE);
        }
    }

    /// Caches `reply` on request or if it is short. Does nothing if the session is gone.
    pub(crate) fn finish(&mut self, turn: &Turn, reply: Option<&[u8]>, now: u64) {
        if let Some(client) = self.clients.get_mut(turn.client) {
            client.running = client.running.saturating_sub(1);
            client.renewed_ms = client.renewed_ms.max(now);
        }
        if turn.cache_this {
            self.reply_cache_reserved -= turn.response_cached_len_max as usize;
            self.sources.unreserve(turn.source_key, turn.response_cached_len_max as usize);
        }
        let room = self.reply_room(turn.source_key);
        if let Some(session) = self.sessions.get_mut(turn.session) {
            let len_max = session.fore.response_cached_len_max as usize;
            let reply = reply
                .filter(|reply| reply.len() <= len_max && (turn.cache_this || reply.len() <= room));
            let before = session.slots.held_len();
            session.slots.finish(turn.ok.slot, turn.ok.seq, reply);
            let after = session.slots.held_len();
            self.reply_cache_len = self.reply_cache_len + after - before;
            let held = &mut self.sources.usage_mut(turn.source_key).cached_len;
            *held = *held + after - before;
        }
    }

    pub(crate) fn bind_connection(
        &mut self,
        args: &BindConnArgs,
        connection: ConnectionId,
        credential: Credential<'_>,
    ) -> Result<BindConnOk, Status> {
        let key = self.session_by_id(&args.session).ok_or(Status::BADSESSION)?;
        let client = self.sessions[key].client;
        self.check_may_manage(client, Op::BIND_CONN_TO_SESSION, credential)?;
        if self.connections.get(&connection).is_some_and(|bound| {
            bound.len() >= SESSIONS_PER_CONNECTION_MAX && !bound.contains(&key)
        }) {
            return Err(Status::DELAY);
        }
        let callbacks = self.sessions[key].back.credential.is_some();
        let (fore, back, dir) = match args.dir {
            ChannelDirClient::Fore => (true, false, ChannelDirServer::Fore),
            ChannelDirClient::Back if !callbacks => return Err(Status::INVAL),
            ChannelDirClient::ForeOrBoth | ChannelDirClient::BackOrBoth if !callbacks => {
                (true, false, ChannelDirServer::Fore)
            }
            ChannelDirClient::Back => (false, true, ChannelDirServer::Back),
            ChannelDirClient::ForeOrBoth | ChannelDirClient::BackOrBoth => {
                (true, true, ChannelDirServer::Both)
            }
        };
        self.bind(key, Bound { connection, address: credential.address, fore, back });
        self.update_client_address(client);
        self.refresh_paths(client);
        self.send_queued_callbacks(client);
        Ok(BindConnOk { session: args.session, dir, rdma: false })
    }

    /// Above the limit, drops the oldest connection.
    pub(in crate::state) fn bind(&mut self, key: SessionKey, bound: Bound) {
        let session = &mut self.sessions[key];
        session.fault &= !bound.back;
        if let Some(old) =
            session.connections.iter_mut().find(|old| old.connection == bound.connection)
        {
            *old = bound;
        } else {
            if session.connections.len() >= CONNECTIONS_PER_SESSION_MAX {
                let old = session.connections.remove(0);
                self.forget_binding(old.connection, key);
            }
            self.sessions[key].connections.push(bound);
            self.connections.entry(bound.connection).or_default().push(key);
        }
        self.sessions[key].last = ConnectionId(0);
    }

    fn forget_binding(&mut self, connection: ConnectionId, key: SessionKey) {
        if let Some(sessions) = self.connections.get_mut(&connection) {
            sessions.retain(|&other| other != key);
            if sessions.is_empty() {
                self.connections.remove(&connection);
            }
        }
    }

    pub(crate) fn backchannel_ctl(
        &mut self,
        turn: &Turn,
        args: &BackchannelCtlArgs<'_>,
        credential: Credential<'_>,
    ) -> Result<(), Status> {
        self.check_may_manage(turn.client, Op::BACKCHANNEL_CTL, credential)?;
        self.sessions.get(turn.session).ok_or(Status::DEADSESSION)?;
        // NOENT for unusable contexts (§18.33.3). The previous credential stays.
        let credential =
            crate::state::session::create_session::callback_credential(&args.sec_parms)
                .ok_or(Status::NOENT)?;
        let life = self.life_of(Some(&credential));
        let back = &mut self.sessions[turn.session].back;
        back.program = args.program;
        (back.credential, back.life) = (Some(credential), life);
        // Callbacks that waited for a valid context continue.
        self.refresh_paths(turn.client);
        self.send_queued_callbacks(turn.client);
        Ok(())
    }

    pub(crate) fn connection_closed(&mut self, connection: ConnectionId) {
        let mut clients = BTreeSet::new();
        for key in self.connections.remove(&connection).unwrap_or_default() {
            let session = &mut self.sessions[key];
            session.connections.retain(|bound| bound.connection != connection);
            if session.last == connection {
                session.last = ConnectionId(0);
            }
            clients.insert(session.client);
        }
        for client in clients {
            self.refresh_paths(client);
            self.update_client_address(client);
        }
    }

    /// Updates the client's address from its connections, because a session id identifies the
    /// client: to that of EXCHANGE_ID, which the client would use after a restart, else to the last
    /// known one.
    pub(in crate::state) fn update_client_address(&mut self, key: ClientKey) {
        let client = &self.clients[key];
        let sessions = client.v41().into_iter().flat_map(|v41| &v41.sessions);
        let bound = sessions.flat_map(|&session| {
            self.sessions[session].connections.iter().map(|bound| bound.address)
        });
        let rank = |address: &IpAddr| {
            let network = Network::of(*address);
            (client.source == Source::Network(network), network == Network::of(client.address))
        };
        let Some(address) = bound.max_by_key(rank) else { return };
        self.move_to(key, address);
    }

    /// The quota stays with the first source.
    pub(in crate::state) fn move_to(&mut self, key: ClientKey, address: IpAddr) {
        let client = &mut self.clients[key];
        if Network::of(address) != Network::of(client.address) {
            client.address = address;
            if client.recorded {
                self.record(key, false);
            }
        }
    }

    pub(crate) fn destroy_session(
        &mut self,
        id: &SessionId,
        connection: ConnectionId,
        credential: Credential<'_>,
    ) -> Result<(), Status> {
        let key = self.session_by_id(id).ok_or(Status::BADSESSION)?;
        let session = &self.sessions[key];
        let client = session.client;
        // §18.37.3.
        if !session.connections.iter().any(|bound| bound.connection == connection) {
            return Err(Status::CONN_NOT_BOUND_TO_SESSION);
        }
        self.check_may_manage(client, Op::DESTROY_SESSION, credential)?;
        self.remove_session(key);
        self.refresh_paths(client);
        self.send_queued_callbacks(client);
        Ok(())
    }

    /// Callbacks in progress return to the client's queue when they end.
    pub(in crate::state) fn remove_session(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.remove(key, crate::state::slab::Ended::Freed) else {
            return;
        };
        self.reply_cache_len -= session.slots.held_len();
        let held = self.sources.usage_mut(session.source_key);
        held.cached_len -= session.slots.held_len();
        held.sessions -= 1;
        for bound in session.connections {
            self.forget_binding(bound.connection, key);
        }
        if let Some(v41) = self.clients.get_mut(session.client).and_then(|client| client.v41_mut())
        {
            v41.sessions.retain(|&other| other != key);
        }
    }
}
