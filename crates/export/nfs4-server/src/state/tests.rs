mod callbacks;
mod clients;
mod delegations;
mod exports;
mod grace;
mod locks;
mod model;
mod opens;
mod quota;
mod sessions;
mod v40;
mod v40_principals;
mod work_limits;

use std::sync::Arc;

use vouch_nfs4::op::{
    ChannelAttrs, CreateSessionArgs, CreateSessionFlags, CreateSessionOk, ExchangeIdArgs,
    ExchangeIdFlags, SequenceArgs, ShareAccess, ShareDeny,
};
use vouch_nfs4::{
    Bytes, ClientId, ClientOwner, CreateSeq, List, SessionId, SlotId, SlotSeq, StateProtect,
    Stateid, Status, Verifier,
};

use vouch_vfs::{Home, SystemId};

use super::client::exchange_id::ExchangedId;
use super::copy::record::CopyProgress;
use super::*;
use crate::{ConnectionId, ExportId, Flavour, Limits, Principal};

pub(super) const LEASE_MS: u64 = 90_000;

pub(super) type Handle = Arc<()>;

pub(super) struct Fixture {
    pub(super) state: State<Handle>,
    pub(super) now: u64,
    pub(super) handle: Handle,
    pub(super) effects: Vec<StateEffect<Handle>>,
    connections: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub(super) client: ClientKey,
    pub(super) id: ClientId,
    pub(super) session: SessionId,
    pub(super) connection: ConnectionId,
    pub(super) seq: SlotSeq,
}

pub(super) fn config() -> StateConfig {
    StateConfig {
        lease_ms: LEASE_MS,
        grace_ms: LEASE_MS,
        boot: 1,
        delegations: DelegationPolicy::OnReuse,
        limits: Limits::default(),
    }
}

pub(super) fn user(uid: u32) -> Principal {
    Principal::Sys { uid, gid: uid, gids: Arc::from([]) }
}

pub(super) fn gss(name: &str) -> Principal {
    Principal::Gss { name: name.into() }
}

pub(super) fn sys(principal: &Principal) -> Credential<'_> {
    Credential { principal, flavour: Flavour::Sys, address: [127, 0, 0, 1].into(), machine: None }
}

pub(super) fn file_through(export: u32, number: u8) -> FileKey {
    let home = Home { system: SystemId::of_device(0, 1), own_from: 1 };
    FileKey::new(ExportId(export), vouch_vfs::FileId::new(&[export as u8, number]).unwrap(), home)
}

pub(super) fn file(number: u8) -> FileKey {
    file_through(1 + u32::from(number / OTHER_EXPORT), number % OTHER_EXPORT)
}

pub(super) const OTHER_EXPORT: u8 = 128;

pub(super) const TERMS: Terms =
    Terms { flavour: Flavour::Sys, reserved_port: true, transport: crate::Transport::Clear };

pub(super) fn share(access: u32, deny: u32) -> Share {
    Share::new(ShareAccess(access), ShareDeny(deny)).unwrap()
}

pub(super) fn channel() -> ChannelAttrs {
    ChannelAttrs {
        header_pad_size: 0,
        request_len_max: 65_536,
        response_len_max: 65_536,
        response_cached_len_max: 4096,
        operations_max: 16,
        requests_max: 8,
        rdma_ird: None,
    }
}

pub(super) fn exchange_id_args(name: &'static str, boot: u8) -> ExchangeIdArgs<'static> {
    ExchangeIdArgs {
        owner: ClientOwner { verifier: Verifier([boot; 8]), id: Bytes(name.as_bytes()) },
        flags: ExchangeIdFlags(0),
        state_protect: StateProtect::None,
        impl_id: None,
    }
}

pub(super) fn session_args(client: ClientId, seq: CreateSeq) -> CreateSessionArgs<'static> {
    CreateSessionArgs {
        client,
        seq,
        flags: CreateSessionFlags::CONN_BACK_CHAN,
        fore: channel(),
        back: channel(),
        callback_program: 0x4000_0000,
        sec_parms: List(vec![]),
    }
}

pub(super) fn open_call<'a>(
    peer: &Peer,
    owner: &'a [u8],
    number: u8,
    share: Share,
) -> OpenCall<'a> {
    OpenCall {
        may_delegate: true,
        client: peer.client,
        owner,
        file: file(number),
        share,
        claim: Claim::New,
        want: Want::Unstated,
        extensions: DelegationExtensions::default(),
        truncate: false,
        terms: TERMS,
        opener: None,
    }
}

pub(super) fn directory_call(peer: &Peer, number: u8) -> DirectoryCall<'static> {
    let (client, directory) = (peer.client, file(number));
    DirectoryCall { client, directory, terms: TERMS, opener: None }
}

impl Fixture {
    pub(super) fn new() -> Self {
        Self::with_config(config(), &[])
    }

    pub(super) fn with_limits(set: impl FnOnce(&mut Limits)) -> Self {
        let mut config = config();
        set(&mut config.limits);
        Self::with_config(config, &[])
    }

    pub(super) fn with_peers<const N: usize>(names: [&'static str; N]) -> (Self, [Peer; N]) {
        let mut fixture = Self::new();
        let peers = names.map(|name| fixture.peer(name));
        (fixture, peers)
    }

    pub(super) fn begin(&mut self, peer: &Peer, slot: u32, seq: u32, cache_this: bool) -> Turn {
        match self.sequence_on(peer, slot, SlotSeq(seq), cache_this) {
            Ok(Sequenced::New(turn)) => turn,
            other => panic!("not a new request: {other:?}"),
        }
    }

    pub(super) fn with_config(config: StateConfig, records: &[RecoveryRecord]) -> Self {
        let state = State::new(config, records, [7; 32], 0);
        Fixture { state, now: 0, handle: Arc::new(()), effects: Vec::new(), connections: 0 }
    }

    pub(super) fn new_connection(&mut self) -> ConnectionId {
        self.connections += 1;
        ConnectionId(self.connections)
    }

    pub(super) fn exchange_id(
        &mut self,
        name: &'static str,
        boot: u8,
        uid: u32,
    ) -> Result<ExchangedId, Status> {
        self.state.exchange_id(&exchange_id_args(name, boot), sys(&user(uid)), self.now)
    }

    pub(super) fn reclaiming_peer(&mut self, name: &'static str, boot: u8) -> Peer {
        let exchanged = self.exchange_id(name, boot, 0).unwrap();
        self.confirm(&exchanged, sys(&user(0))).unwrap()
    }

    pub(super) fn confirm(
        &mut self,
        exchanged: &ExchangedId,
        by: Credential<'_>,
    ) -> Result<Peer, Status> {
        let connection = self.new_connection();
        let ok = self.state.create_session(
            &session_args(exchanged.client, exchanged.seq),
            connection,
            by,
            self.now,
        )?;
        Ok(self.peer_of(exchanged, ok.session, connection))
    }

    pub(super) fn peer_of(
        &self,
        exchanged: &ExchangedId,
        session: SessionId,
        connection: ConnectionId,
    ) -> Peer {
        let client = self.state.client_by_id(exchanged.client).unwrap();
        Peer { client, id: exchanged.client, session, connection, seq: SlotSeq(0) }
    }

    pub(super) fn peer(&mut self, name: &'static str) -> Peer {
        let peer = self.reclaiming_peer(name, 1);
        self.state.reclaim_complete(peer.client, false).unwrap();
        peer
    }

    pub(super) fn sequence_on(
        &mut self,
        peer: &Peer,
        slot: u32,
        seq: SlotSeq,
        cache_this: bool,
    ) -> Result<Sequenced, Status> {
        self.sequence_from([127, 0, 0, 1].into(), peer, slot, seq, cache_this)
    }

    pub(super) fn sequence_from(
        &mut self,
        address: std::net::IpAddr,
        peer: &Peer,
        slot: u32,
        seq: SlotSeq,
        cache_this: bool,
    ) -> Result<Sequenced, Status> {
        let args = SequenceArgs {
            session: peer.session,
            seq,
            slot: SlotId(slot),
            highest_slot: SlotId(slot),
            cache_this,
        };
        self.sequence_with(address, peer, &args)
    }

    pub(super) fn sequence_with(
        &mut self,
        address: std::net::IpAddr,
        peer: &Peer,
        args: &SequenceArgs,
    ) -> Result<Sequenced, Status> {
        let call = SequenceCall {
            args,
            connection: peer.connection,
            address,
            request_len: 100,
            operations: 2,
            fingerprint: 1,
        };
        self.state.sequence(&call, self.now)
    }

    pub(super) fn renew_lease(
        &mut self,
        peer: &mut Peer,
    ) -> Result<vouch_nfs4::op::SequenceFlags, Status> {
        let seq = peer.seq.next();
        match self.sequence_on(peer, 0, seq, false)? {
            Sequenced::New(turn) => {
                peer.seq = seq;
                self.state.finish(&turn, None, self.now);
                Ok(turn.ok.flags)
            }
            other => panic!("not a new request: {other:?}"),
        }
    }

    pub(super) fn advance(&mut self, ms: u64) {
        self.now += ms;
        while self.state.tick(self.now) <= self.now {}
    }

    pub(super) fn open_as(
        &mut self,
        peer: &Peer,
        owner: &str,
        number: u8,
        share: Share,
        claim: Claim,
        want: Want,
    ) -> Result<Opened, Status> {
        self.open_by(&OpenCall { claim, want, ..open_call(peer, owner.as_bytes(), number, share) })
    }

    pub(super) fn open_by(&mut self, call: &OpenCall<'_>) -> Result<Opened, Status> {
        let plan = self.state.check_open(call, self.now)?;
        self.state.open(call, self.handle.clone(), plan.union, self.now)
    }

    pub(super) fn open(
        &mut self,
        peer: &Peer,
        number: u8,
        access: u32,
        deny: u32,
    ) -> Result<Stateid, Status> {
        self.open_as(peer, "owner", number, share(access, deny), Claim::New, Want::Unstated)
            .map(|opened| opened.stateid)
    }

    pub(super) fn lock(
        &mut self,
        peer: &Peer,
        open: &Stateid,
        owner: &str,
        number: u8,
        range: (u64, u64),
        mode: Mode,
    ) -> Result<Stateid, LockError> {
        self.lock_call(peer, open, owner, number, range, mode, false, false)
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of LOCK")]
    pub(super) fn lock_call(
        &mut self,
        peer: &Peer,
        open: &Stateid,
        owner: &str,
        number: u8,
        range: (u64, u64),
        mode: Mode,
        wait: bool,
        reclaim: bool,
    ) -> Result<Stateid, LockError> {
        let by = LockBy::New { open, owner: owner.as_bytes(), seq: vouch_nfs4::OwnerSeq(0) };
        let range = Range::new(range.0, range.1)?;
        let call = LockCall {
            client: Some(peer.client),
            file: file(number),
            by,
            range,
            mode,
            wait,
            reclaim,
        };
        self.state.lock(&call, self.now)
    }

    pub(super) fn unlock(
        &mut self,
        peer: &Peer,
        lock: &Stateid,
        number: u8,
        range: (u64, u64),
    ) -> Result<Stateid, Status> {
        self.state.unlock(
            Some(peer.client),
            lock,
            &file(number),
            Range::new(range.0, range.1)?,
            self.now,
        )
    }

    pub(super) fn io<'p>(
        &mut self,
        by: impl Into<Option<&'p Peer>>,
        stateid: &Stateid,
        number: u8,
        io: Io,
    ) -> Result<IoGrant<Handle>, Status> {
        self.state.io(by.into().map(|peer| peer.client), stateid, &file(number), io, self.now)
    }

    pub(super) fn close<'p>(
        &mut self,
        by: impl Into<Option<&'p Peer>>,
        stateid: &Stateid,
        number: u8,
    ) -> Result<Stateid, Status> {
        self.state.close(by.into().map(|peer| peer.client), stateid, &file(number), self.now)
    }

    pub(super) fn recall_for_access<'p>(
        &mut self,
        number: u8,
        by: impl Into<Option<&'p Peer>>,
        access: AccessWithoutOpen,
    ) -> Result<(), Status> {
        let client = by.into().map(|peer| peer.client);
        self.state.recall_for_access(&file(number), client, access, self.now)
    }

    pub(super) fn return_delegation(
        &mut self,
        by: &Peer,
        stateid: &Stateid,
        number: u8,
    ) -> Result<(), Status> {
        self.state.return_delegation(Some(by.client), stateid, &file(number), self.now)
    }

    /// An exclusive lock, or a place among those that wait for it.
    pub(super) fn wait_for_lock(
        &mut self,
        peer: &Peer,
        open: &Stateid,
        owner: &str,
        number: u8,
        range: (u64, u64),
    ) -> Result<Stateid, LockError> {
        self.lock_call(peer, open, owner, number, range, Mode::Exclusive, true, false)
    }

    /// By root.
    pub(super) fn create_session(
        &mut self,
        args: &CreateSessionArgs<'_>,
        connection: ConnectionId,
    ) -> Result<CreateSessionOk, Status> {
        self.state.create_session(args, connection, sys(&user(0)), self.now)
    }

    pub(super) fn callbacks(&mut self) -> Vec<OutgoingCallback> {
        let effects = self.state.take_effects();
        let callbacks = effects.iter().filter_map(|effect| match effect {
            StateEffect::Callback(callback) => Some((**callback).clone()),
            _ => None,
        });
        let callbacks = callbacks.collect();
        self.effects.extend(effects);
        callbacks
    }

    pub(super) fn answer(&mut self, callback: &OutgoingCallback, status: Status) {
        let answer = CallbackAnswer::Answered {
            sequence: Status::OK,
            highest_slot: None,
            status,
            attributes: None,
        };
        self.state.callback_done(callback.id, answer, self.now);
    }

    pub(super) fn open_files(&mut self) -> usize {
        self.effects.clear();
        self.state.take_effects();
        Arc::strong_count(&self.handle) - 1
    }
}
