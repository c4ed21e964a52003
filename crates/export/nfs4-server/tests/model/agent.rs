use std::collections::HashMap;
use std::sync::Arc;

use vouch_nfs4::op::{self, Args, CreateSessionFlags, ExchangeIdFlags, Results, SequenceFlags};
use vouch_nfs4::{
    Bytes, CallbackSec, ClientId, ClientOwner, CreateSeq, List, NetAddr, OwnerSeq, SessionId,
    SlotId, SlotSeq, StateProtect, Status, Verifier, cb,
};
use vouch_nfs4_server::Connection;

use crate::driver::{Driver, LEASE_MS};
use crate::wire;

pub(crate) const SLOTS: usize = 4;

#[derive(Clone)]
struct SentCall {
    xid: u32,
    body: Vec<u8>,
    reply: Vec<u8>,
    at_ms: u64,
    cached: bool,
}

pub(crate) enum CallOutcome {
    Done(Status, Vec<Results<'static>>),
    Lost,
}

pub(crate) struct Agent {
    pub(crate) name: &'static str,
    pub(crate) number: u16,
    pub(crate) minor: u32,
    pub(crate) boot_verifier: u8,
    pub(crate) connection: Arc<Connection>,
    pub(crate) id: ClientId,
    pub(crate) last_renewal_ms: u64,
    pub(crate) flags: SequenceFlags,
    session: Option<SessionId>,
    slots: [SlotSeq; SLOTS],
    last: [Option<SentCall>; SLOTS],
    xid: u32,
    owner_seqids: HashMap<Vec<u8>, OwnerSeq>,
    cb_seqs: HashMap<u32, SlotSeq>,
}

/// An owner's seqid stays (RFC 7530 §9.1.7).
const SEQID_KEPT: [Status; 7] = [
    Status::STALE_CLIENTID,
    Status::STALE_STATEID,
    Status::BAD_STATEID,
    Status::BAD_SEQID,
    Status::BADXDR,
    Status::RESOURCE,
    Status::NOFILEHANDLE,
];

impl Agent {
    pub(crate) fn new(name: &'static str, number: u16, minor: u32, driver: &mut Driver) -> Self {
        Agent {
            name,
            number,
            minor,
            boot_verifier: 1,
            connection: driver.connect(),
            id: ClientId(0),
            last_renewal_ms: 0,
            flags: SequenceFlags(0),
            session: None,
            slots: [SlotSeq(0); SLOTS],
            last: Default::default(),
            xid: u32::from(number) << 24,
            owner_seqids: HashMap::new(),
            cb_seqs: HashMap::new(),
        }
    }

    pub(crate) fn verifier(&self) -> [u8; 8] {
        [self.boot_verifier; 8]
    }

    pub(crate) fn record_key(&self) -> Vec<u8> {
        [&[u8::from(self.minor > 0)], self.name.as_bytes()].concat()
    }

    pub(crate) fn callback_port(&self) -> u16 {
        1024 + self.number
    }

    pub(crate) fn seq(&self, owner: &[u8]) -> OwnerSeq {
        self.owner_seqids.get(owner).copied().unwrap_or(OwnerSeq(5))
    }

    pub(crate) fn advance_seqid(&mut self, owner: &[u8], status: Status) {
        if self.minor == 0 && !SEQID_KEPT.contains(&status) {
            let next = self.seq(owner).next();
            self.owner_seqids.insert(owner.to_vec(), next);
        }
    }

    pub(crate) fn call(
        &mut self,
        driver: &mut Driver,
        slot: usize,
        cached: bool,
        ops: &[Args<'_>],
    ) -> CallOutcome {
        self.xid += 1;
        let mut all = Vec::new();
        if self.minor > 0 {
            let Some(session) = self.session else { return CallOutcome::Lost };
            let highest_slot = SlotId(SLOTS as u32 - 1);
            let (slot, seq) = (SlotId(slot as u32), self.slots[slot].next());
            all.push(Args::Sequence(op::SequenceArgs {
                session,
                seq,
                slot,
                highest_slot,
                cache_this: cached,
            }));
        }
        all.extend_from_slice(ops);
        let body = wire::compound(self.minor, &all);
        let reply =
            driver.call(&self.connection, self.xid, &body).expect("a new call gets a reply");
        let (status, mut list) = wire::results(&reply);
        let changes = ops.iter().any(|op| changes_state(op));
        let sent = SentCall {
            xid: self.xid,
            body,
            reply,
            at_ms: driver.now_ms,
            cached: if self.minor > 0 { cached } else { changes },
        };
        if self.minor == 0 {
            self.last[0] = Some(sent);
            return match status {
                Status::STALE_CLIENTID | Status::EXPIRED | Status::STALE_STATEID => {
                    CallOutcome::Lost
                }
                _ => self.answered(driver, status, list),
            };
        }
        match list.remove(0) {
            Results::Sequence(Ok(ok)) => {
                self.slots[slot] = ok.seq;
                self.flags = ok.flags;
                self.last[slot] = Some(sent);
                self.answered(driver, status, list)
            }
            Results::Sequence(Err(Status::BADSESSION)) => CallOutcome::Lost,
            other => panic!("SEQUENCE: {other:?}"),
        }
    }

    fn answered(
        &mut self,
        driver: &Driver,
        status: Status,
        list: Vec<Results<'static>>,
    ) -> CallOutcome {
        self.last_renewal_ms = driver.now_ms;
        CallOutcome::Done(status, list)
    }

    pub(crate) fn renew_lease(&mut self, driver: &mut Driver) -> bool {
        let renew = [Args::Renew(op::RenewArgs { client: self.id })];
        let called = self.call(driver, 0, false, if self.minor > 0 { &[] } else { &renew });
        match called {
            CallOutcome::Done(Status::OK | Status::CB_PATH_DOWN, _) => true,
            CallOutcome::Lost => false,
            CallOutcome::Done(status, _) => panic!("{}: {status:?}", self.name),
        }
    }

    pub(crate) fn register(&mut self, driver: &mut Driver) -> bool {
        self.last = Default::default();
        self.slots = [SlotSeq(0); SLOTS];
        let before = std::mem::replace(&mut self.id, ClientId(0));
        let known =
            if self.minor > 0 { self.register_41(driver) } else { self.register_40(driver) };
        let same = known && before == self.id;
        if !same {
            self.owner_seqids.clear();
        }
        self.last_renewal_ms = driver.now_ms;
        same
    }

    fn send(&mut self, driver: &mut Driver, ops: &[Args<'_>]) -> Results<'static> {
        self.xid += 1;
        let reply = driver
            .call(&self.connection, self.xid, &wire::compound(self.minor, ops))
            .expect("a new call gets a reply");
        wire::results(&reply).1.pop().expect("each operation has a result")
    }

    fn register_41(&mut self, driver: &mut Driver) -> bool {
        let args = op::ExchangeIdArgs {
            owner: ClientOwner {
                verifier: Verifier(self.verifier()),
                id: Bytes(self.name.as_bytes()),
            },
            flags: ExchangeIdFlags(0),
            state_protect: StateProtect::None,
            impl_id: None,
        };
        let Results::ExchangeId(Ok(ok)) = self.send(driver, &[Args::ExchangeId(args)]) else {
            panic!("EXCHANGE_ID")
        };
        (self.id, self.cb_seqs) = (ok.client, HashMap::new());
        let attrs = op::ChannelAttrs {
            header_pad_size: 0,
            request_len_max: 65_536,
            response_len_max: 65_536,
            response_cached_len_max: 4096,
            operations_max: 32,
            requests_max: SLOTS as u32,
            rdma_ird: None,
        };
        let args = op::CreateSessionArgs {
            client: ok.client,
            seq: CreateSeq(ok.seq.0),
            flags: CreateSessionFlags::CONN_BACK_CHAN,
            fore: attrs,
            back: attrs,
            callback_program: 0x4000_0000,
            sec_parms: List(vec![CallbackSec::None]),
        };
        let made = self.send(driver, &[Args::CreateSession(args.clone())]);
        let Results::CreateSession(Ok(session)) = &made else { panic!("{made:?}") };
        assert_eq!(
            made,
            self.send(driver, &[Args::CreateSession(args)]),
            "a retried CREATE_SESSION gets the same reply"
        );
        self.session = Some(session.session);
        ok.flags.contains(ExchangeIdFlags::CONFIRMED_R)
    }

    fn register_40(&mut self, driver: &mut Driver) -> bool {
        let port = self.callback_port();
        let address = format!("127.0.0.1.{}.{}", port >> 8, port & 255);
        let args = op::SetclientidArgs {
            client: ClientOwner {
                verifier: Verifier(self.verifier()),
                id: Bytes(self.name.as_bytes()),
            },
            callback: op::CallbackClient {
                program: 0x4000_0000,
                location: NetAddr { netid: Bytes(b"tcp"), address: Bytes(address.as_bytes()) },
            },
            callback_ident: u32::from(self.number),
        };
        let Results::Setclientid(Ok(ok)) = self.send(driver, &[Args::Setclientid(args)]) else {
            panic!("SETCLIENTID")
        };
        self.id = ok.client;
        let args = op::SetclientidConfirmArgs { client: ok.client, confirm: ok.confirm };
        let Results::SetclientidConfirm(Ok(())) =
            self.send(driver, &[Args::SetclientidConfirm(args)])
        else {
            panic!("SETCLIENTID_CONFIRM")
        };
        true
    }

    pub(crate) fn replay(
        &mut self,
        driver: &mut Driver,
        slot: usize,
        fresh_xid: bool,
    ) -> Option<(Vec<u8>, Vec<u8>)> {
        let sent = self.last[if self.minor > 0 { slot } else { 0 }].clone()?;
        let v40 = self.minor == 0;
        if v40 && (!sent.cached || driver.now_ms - sent.at_ms > 100_000) {
            return None;
        }
        let (first, list) = wire::results(&sent.reply);
        // In 4.0 a new xid with the same seqid is a retry too, if the seqid advanced.
        let owners = matches!(
            list.last(),
            Some(Results::Open(_) | Results::Close(_) | Results::Lock(_) | Results::Locku(_))
        );
        let xid = match v40 && fresh_xid {
            true if !first.is_ok()
                || !owners
                || driver.now_ms >= self.last_renewal_ms + LEASE_MS =>
            {
                return None;
            }
            true => {
                self.xid += 1;
                self.xid
            }
            false => sent.xid,
        };
        let again = driver.call(&self.connection, xid, &sent.body).expect("a retry gets a reply");
        if !v40 {
            match wire::results(&again) {
                (Status::BADSESSION, _) => return None,
                (Status::RETRY_UNCACHED_REP, list) => {
                    assert!(!sent.cached, "the reply was not cached: {list:?}");
                    self.last_renewal_ms = driver.now_ms;
                    return None;
                }
                _ => {}
            }
        }
        if !v40 || xid != sent.xid {
            self.last_renewal_ms = driver.now_ms;
        }
        Some((sent.reply, again))
    }

    pub(crate) fn reconnect(&mut self, driver: &mut Driver) {
        driver.disconnect(&self.connection);
        self.connection = driver.connect();
    }

    pub(crate) fn connect_to_restarted(&mut self, driver: &mut Driver) {
        self.connection = driver.connect();
    }

    pub(crate) fn bind(&mut self, driver: &mut Driver) {
        if let Some(session) = self.session.filter(|_| self.minor > 0) {
            let args =
                op::BindConnArgs { session, dir: op::ChannelDirClient::BackOrBoth, rdma: false };
            let bound = self.send(driver, &[Args::BindConnToSession(args)]);
            assert!(
                matches!(bound, Results::BindConnToSession(Ok(_) | Err(Status::BADSESSION))),
                "{bound:?}"
            );
        }
    }

    pub(crate) fn end_session(&mut self, driver: &mut Driver) {
        if let Some(session) = self.session.take() {
            let ended =
                self.send(driver, &[Args::DestroySession(op::DestroySessionArgs { session })]);
            assert_eq!(ended, Results::DestroySession(Ok(())));
        }
    }

    pub(crate) fn check_cb_seq(&mut self, args: &cb::CbSequenceArgs) -> Result<(), Status> {
        let last = self.cb_seqs.entry(args.slot.0).or_default();
        match args.seq == last.next() || args.seq == *last {
            true => *last = args.seq,
            false => return Err(Status::SEQ_MISORDERED),
        }
        Ok(())
    }

    pub(crate) fn has_session(&self) -> bool {
        self.session.is_some()
    }
}

fn changes_state(op: &Args<'_>) -> bool {
    matches!(
        op,
        Args::Open(_)
            | Args::OpenConfirm(_)
            | Args::Close(_)
            | Args::Lock(_)
            | Args::Locku(_)
            | Args::Write(_)
            | Args::Delegreturn(_)
    )
}
