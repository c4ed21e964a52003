//! A client: its session or its owners' numbers, and how it comes to the server and back.

use std::collections::HashMap;
use std::sync::Arc;

use vouch_nfs4::op::{self, Args, CreateSessionFlags, ExchangeIdFlags, Results, SequenceFlags};
use vouch_nfs4::{
    Bytes, CallbackSec, ClientId, ClientOwner, CreateSeq, List, NetAddr, OwnerSeq, SessionId, SlotId, SlotSeq, StateProtect, Status,
    Verifier, cb,
};
use vouch_nfs4_server::Connection;

use crate::net::{LEASE_MS, Net};
use crate::wire;

pub(crate) const SLOTS: usize = 4;

/// A call that was answered.
#[derive(Clone)]
struct Sent {
    xid: u32,
    body: Vec<u8>,
    reply: Vec<u8>,
    at_ms: u64,
    /// In 4.1, whether the reply was to be kept; in 4.0, whether the call changed something.
    kept: bool,
}

/// What a call came to.
pub(crate) enum Called {
    /// Results without that of SEQUENCE.
    Done(Status, Vec<Results<'static>>),
    /// There is no such session or client any more.
    Lost,
}

/// A client.
pub(crate) struct Agent {
    pub(crate) name: &'static str,
    pub(crate) number: u16,
    pub(crate) minor: u32,
    pub(crate) life: u8,
    pub(crate) connection: Arc<Connection>,
    pub(crate) id: ClientId,
    /// When it was last heard of.
    pub(crate) heard_ms: u64,
    /// What the last SEQUENCE said.
    pub(crate) flags: SequenceFlags,
    session: Option<SessionId>,
    slots: [SlotSeq; SLOTS],
    last: [Option<Sent>; SLOTS],
    xid: u32,
    seqs: HashMap<Vec<u8>, OwnerSeq>,
    /// The last numbers of the back channel's slots.
    back: HashMap<u32, SlotSeq>,
}

/// Statuses after which an owner's number stays (RFC 7530, section 9.1.7).
const UNMOVED: [Status; 7] = [
    Status::STALE_CLIENTID,
    Status::STALE_STATEID,
    Status::BAD_STATEID,
    Status::BAD_SEQID,
    Status::BADXDR,
    Status::RESOURCE,
    Status::NOFILEHANDLE,
];

impl Agent {
    pub(crate) fn new(name: &'static str, number: u16, minor: u32, net: &mut Net) -> Self {
        Agent {
            name,
            number,
            minor,
            life: 1,
            connection: net.connect(),
            id: ClientId(0),
            heard_ms: 0,
            flags: SequenceFlags(0),
            session: None,
            slots: [SlotSeq(0); SLOTS],
            last: Default::default(),
            // Clients of one machine must not be taken for one another.
            xid: u32::from(number) << 24,
            seqs: HashMap::new(),
            back: HashMap::new(),
        }
    }

    pub(crate) fn verifier(&self) -> [u8; 8] {
        [self.life; 8]
    }

    /// Key of its recovery record.
    pub(crate) fn record_key(&self) -> Vec<u8> {
        [&[u8::from(self.minor > 0)], self.name.as_bytes()].concat()
    }

    /// Where the server of 4.0 calls it back.
    pub(crate) fn callback_port(&self) -> u16 {
        1024 + self.number
    }

    /// An owner's next number.
    pub(crate) fn seq(&self, owner: &[u8]) -> OwnerSeq {
        self.seqs.get(owner).copied().unwrap_or(OwnerSeq(5))
    }

    /// An owner's call was answered so.
    pub(crate) fn count(&mut self, owner: &[u8], status: Status) {
        if self.minor == 0 && !UNMOVED.contains(&status) {
            let next = self.seq(owner).next();
            self.seqs.insert(owner.to_vec(), next);
        }
    }

    /// Sends operations: on a slot of the session, or as they are in 4.0.
    pub(crate) fn call(&mut self, net: &mut Net, slot: usize, kept: bool, ops: &[Args<'_>]) -> Called {
        self.xid += 1;
        let mut all = Vec::new();
        if self.minor > 0 {
            let Some(session) = self.session else { return Called::Lost };
            let highest_slot = SlotId(SLOTS as u32 - 1);
            let (slot, seq) = (SlotId(slot as u32), self.slots[slot].next());
            all.push(Args::Sequence(op::SequenceArgs { session, seq, slot, highest_slot, cache_this: kept }));
        }
        all.extend_from_slice(ops);
        let body = wire::compound(self.minor, &all);
        let reply = net.call(&self.connection, self.xid, &body).expect("a new call is answered");
        let (status, mut list) = wire::results(&reply);
        let changes = ops.iter().any(|op| changes(op));
        let sent = Sent { xid: self.xid, body, reply, at_ms: net.now_ms, kept: if self.minor > 0 { kept } else { changes } };
        if self.minor == 0 {
            self.last[0] = Some(sent);
            return match status {
                Status::STALE_CLIENTID | Status::EXPIRED | Status::STALE_STATEID => Called::Lost,
                _ => self.heard(net, status, list),
            };
        }
        match list.remove(0) {
            Results::Sequence(Ok(ok)) => {
                self.slots[slot] = ok.seq;
                self.flags = ok.flags;
                self.last[slot] = Some(sent);
                self.heard(net, status, list)
            }
            Results::Sequence(Err(Status::BADSESSION)) => Called::Lost,
            other => panic!("SEQUENCE: {other:?}"),
        }
    }

    fn heard(&mut self, net: &Net, status: Status, list: Vec<Results<'static>>) -> Called {
        self.heard_ms = net.now_ms;
        Called::Done(status, list)
    }

    /// Calls the server without asking for anything. False if it doesn't know the client any more.
    pub(crate) fn hello(&mut self, net: &mut Net) -> bool {
        let renew = [Args::Renew(op::RenewArgs { client: self.id })];
        let called = self.call(net, 0, false, if self.minor > 0 { &[] } else { &renew });
        match called {
            Called::Done(Status::OK | Status::CB_PATH_DOWN, _) => true,
            Called::Lost => false,
            Called::Done(status, _) => panic!("{}: {status:?}", self.name),
        }
    }

    /// Introduces itself. True if the server has what it held: it is the client that it was.
    pub(crate) fn introduce(&mut self, net: &mut Net) -> bool {
        self.last = Default::default();
        self.slots = [SlotSeq(0); SLOTS];
        let before = std::mem::replace(&mut self.id, ClientId(0));
        let known = if self.minor > 0 { self.introduce_41(net) } else { self.introduce_40(net) };
        let same = known && before == self.id;
        if !same {
            self.seqs.clear();
        }
        self.heard_ms = net.now_ms;
        same
    }

    fn bare(&mut self, net: &mut Net, ops: &[Args<'_>]) -> Results<'static> {
        self.xid += 1;
        let reply = net.call(&self.connection, self.xid, &wire::compound(self.minor, ops)).expect("a new call is answered");
        wire::results(&reply).1.pop().expect("each operation has a result")
    }

    fn introduce_41(&mut self, net: &mut Net) -> bool {
        let args = op::ExchangeIdArgs {
            owner: ClientOwner { verifier: Verifier(self.verifier()), id: Bytes(self.name.as_bytes()) },
            flags: ExchangeIdFlags(0),
            state_protect: StateProtect::None,
            impl_id: None,
        };
        let Results::ExchangeId(Ok(ok)) = self.bare(net, &[Args::ExchangeId(args)]) else { panic!("EXCHANGE_ID") };
        (self.id, self.back) = (ok.client, HashMap::new());
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
        let made = self.bare(net, &[Args::CreateSession(args.clone())]);
        let Results::CreateSession(Ok(session)) = &made else { panic!("{made:?}") };
        assert_eq!(made, self.bare(net, &[Args::CreateSession(args)]), "CREATE_SESSION again is answered the same");
        self.session = Some(session.session);
        ok.flags.contains(ExchangeIdFlags::CONFIRMED_R)
    }

    fn introduce_40(&mut self, net: &mut Net) -> bool {
        let port = self.callback_port();
        let address = format!("127.0.0.1.{}.{}", port >> 8, port & 255);
        let args = op::SetclientidArgs {
            client: ClientOwner { verifier: Verifier(self.verifier()), id: Bytes(self.name.as_bytes()) },
            callback: op::CallbackClient {
                program: 0x4000_0000,
                location: NetAddr { netid: Bytes(b"tcp"), address: Bytes(address.as_bytes()) },
            },
            callback_ident: u32::from(self.number),
        };
        let Results::Setclientid(Ok(ok)) = self.bare(net, &[Args::Setclientid(args)]) else { panic!("SETCLIENTID") };
        self.id = ok.client;
        let args = op::SetclientidConfirmArgs { client: ok.client, confirm: ok.confirm };
        let Results::SetclientidConfirm(Ok(())) = self.bare(net, &[Args::SetclientidConfirm(args)]) else { panic!("SETCLIENTID_CONFIRM") };
        true
    }

    /// Sends the last call of a slot again. The first reply and the second, if the second must be
    /// the first.
    pub(crate) fn replay(&mut self, net: &mut Net, slot: usize, fresh_xid: bool) -> Option<(Vec<u8>, Vec<u8>)> {
        let sent = self.last[if self.minor > 0 { slot } else { 0 }].clone()?;
        let v40 = self.minor == 0;
        if v40 && (!sent.kept || net.now_ms - sent.at_ms > 100_000) {
            return None;
        }
        let (first, list) = wire::results(&sent.reply);
        // Another call with the same number of an owner is a retry as well; but only what the owner was
        // counted for.
        let owners = matches!(list.last(), Some(Results::Open(_) | Results::Close(_) | Results::Lock(_) | Results::Locku(_)));
        let xid = match v40 && fresh_xid {
            true if !first.is_ok() || !owners || net.now_ms >= self.heard_ms + LEASE_MS => return None,
            true => {
                self.xid += 1;
                self.xid
            }
            false => sent.xid,
        };
        let again = net.call(&self.connection, xid, &sent.body).expect("an answered call is answered again");
        if !v40 {
            match wire::results(&again) {
                (Status::BADSESSION, _) => return None,
                (Status::RETRY_UNCACHED_REP, list) => {
                    assert!(!sent.kept, "what was to be kept was kept: {list:?}");
                    self.heard_ms = net.now_ms;
                    return None;
                }
                _ => {}
            }
        }
        if !v40 || xid != sent.xid {
            self.heard_ms = net.now_ms;
        }
        Some((sent.reply, again))
    }

    /// Its connection breaks, and it makes a new one.
    pub(crate) fn reconnect(&mut self, net: &mut Net) {
        net.disconnect(&self.connection);
        self.connection = net.connect();
    }

    /// The server is another: nothing is connected any more.
    pub(crate) fn cut_off(&mut self, net: &mut Net) {
        self.connection = net.connect();
    }

    /// Binds its connection to both channels.
    pub(crate) fn bind(&mut self, net: &mut Net) {
        if let Some(session) = self.session.filter(|_| self.minor > 0) {
            let args = op::BindConnArgs { session, dir: op::ChannelDirClient::BackOrBoth, rdma: false };
            let bound = self.bare(net, &[Args::BindConnToSession(args)]);
            assert!(matches!(bound, Results::BindConnToSession(Ok(_) | Err(Status::BADSESSION))), "{bound:?}");
        }
    }

    /// Ends its session.
    pub(crate) fn end_session(&mut self, net: &mut Net) {
        if let Some(session) = self.session.take() {
            let ended = self.bare(net, &[Args::DestroySession(op::DestroySessionArgs { session })]);
            assert_eq!(ended, Results::DestroySession(Ok(())));
        }
    }

    /// What it answers to a CB_SEQUENCE: a number is taken once.
    pub(crate) fn back_turn(&mut self, args: &cb::CbSequenceArgs) -> Result<(), Status> {
        let last = self.back.entry(args.slot.0).or_default();
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

fn changes(op: &Args<'_>) -> bool {
    matches!(
        op,
        Args::Open(_) | Args::OpenConfirm(_) | Args::Close(_) | Args::Lock(_) | Args::Locku(_) | Args::Write(_) | Args::Delegreturn(_)
    )
}
