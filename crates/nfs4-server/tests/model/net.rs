//! What a driver does around the server: connections, time, effects, and a recovery store that
//! survives the server.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes as Buffer;
use vouch_nfs4_server::state::RecoveryRecord;
use vouch_nfs4_server::testing::{self, at};
use vouch_nfs4_server::{
    CallbackId, CallbackTo, Connection, Effect, Flavour, JobProgress, Limits, Now, Principal, Progress, Recovered, Request, Server,
    Unreachable,
};
use vouch_vfs::Patience;
use vouch_vfs::memory::MemoryFs;

pub(crate) use vouch_nfs4_server::testing::LEASE_MS;

/// Room that a driver leaves for its headers.
const HEAD_LEN: usize = 28;

/// A callback that the server has sent.
pub(crate) struct Called {
    pub(crate) id: CallbackId,
    pub(crate) to: CallbackTo,
    pub(crate) record: Vec<u8>,
}

/// The server in its surroundings.
pub(crate) struct Net {
    pub(crate) server: Server,
    pub(crate) files: Arc<MemoryFs>,
    pub(crate) now_ms: u64,
    pub(crate) boot: u64,
    /// Callbacks that nobody has answered yet.
    pub(crate) called: Vec<Called>,
    /// Value of each recovery record, and the start that it was written in.
    records: BTreeMap<Vec<u8>, (u64, Vec<u8>)>,
    ports: u16,
    tick_due_ms: u64,
}

fn start(files: &Arc<MemoryFs>, boot: u64, now: Now, recovered: Recovered) -> Server {
    testing::server(files, boot, Limits::default(), recovered, now)
}

impl Net {
    pub(crate) fn new() -> Self {
        let (files, now_ms, boot) = (Arc::new(MemoryFs::new()), 1_000, 7);
        let server = start(&files, boot, at(now_ms), Recovered::default());
        Net { server, files, now_ms, boot, called: Vec::new(), records: BTreeMap::new(), ports: 700, tick_due_ms: 0 }
    }

    pub(crate) fn now(&self) -> Now {
        at(self.now_ms)
    }

    pub(crate) fn connect(&mut self) -> Arc<Connection> {
        self.ports = self.ports.wrapping_add(1);
        self.server.connection_opened(SocketAddr::from(([127, 0, 0, 1], self.ports)))
    }

    pub(crate) fn disconnect(&mut self, connection: &Connection) {
        let effects = self.server.connection_closed(connection, self.now());
        self.carry(effects);
    }

    /// Sends the bytes of a COMPOUND; the reply's bytes, if there is one.
    pub(crate) fn call(&mut self, connection: &Arc<Connection>, xid: u32, body: &[u8]) -> Option<Vec<u8>> {
        let request = Request {
            connection: connection.clone(),
            xid,
            principal: Principal::Sys { uid: 0, gid: 0, gids: [].into() },
            flavour: Flavour::Sys,
            enctype: None,
            body: Buffer::copy_from_slice(body),
            reply: vec![0; HEAD_LEN],
            reply_tail_len: 0,
            spans_allowed: false,
        };
        let mut compound = self.server.begin(request, self.now());
        let mut patience = Patience::None;
        loop {
            let progress = compound.run(&self.server, patience);
            let effects = compound.take_effects();
            self.carry(effects);
            match progress {
                Progress::Done(reply) => return reply.map(|reply| reply.bytes[HEAD_LEN..].to_vec()),
                Progress::Blocked => {
                    assert_eq!(patience, Patience::None, "with patience nothing blocks");
                    patience = Patience::Any;
                }
            }
        }
    }

    /// The client's answer to a callback.
    pub(crate) fn answer(&mut self, id: CallbackId, answer: Result<&[u8], Unreachable>) {
        let effects = self.server.callback_reply(id, answer, self.now());
        self.carry(effects);
    }

    fn carry(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Callback { id, to, record, .. } => self.called.push(Called { id, to, record }),
                Effect::Persist { key, value, .. } => drop(self.records.insert(key, (self.boot, value))),
                Effect::Forget { key, .. } => drop(self.records.remove(&key)),
                Effect::GraceEnded => {
                    let boot = self.boot;
                    self.records.retain(|_, (written, _)| *written == boot);
                }
                Effect::Elsewhere { .. } => panic!("all call from one host"),
                Effect::Disconnect(_) => panic!("nobody here breaks the protocol"),
                Effect::Background(mut job) => while !matches!(job.step(&self.server, self.now()), JobProgress::Done(_)) {},
            }
        }
    }

    /// Time passes, with the ticks that the server asks for.
    pub(crate) fn pass(&mut self, ms: u64) {
        let until = self.now_ms + ms;
        loop {
            let tick = self.server.tick(self.now());
            self.tick_due_ms = tick.next_due_ms;
            self.carry(tick.effects);
            if self.now_ms == until {
                return;
            }
            self.now_ms = tick.next_due_ms.clamp(self.now_ms + 1, until);
        }
    }

    /// The server is killed and starts again: what it had in memory is gone, connections and
    /// callbacks with it.
    pub(crate) fn restart(&mut self) {
        self.boot += 1;
        self.called.clear();
        self.now_ms += 1;
        let records = self.records.iter().map(|(key, (_, value))| (key.clone(), value.clone())).collect();
        self.server = start(&self.files, self.boot, self.now(), Recovered { records });
    }

    /// Whether there is a record that lets the client of this key and life reclaim.
    pub(crate) fn recorded(&self, key: &[u8], life: [u8; 8]) -> bool {
        let record = self.records.get(key).and_then(|(_, value)| RecoveryRecord::from_bytes(key, value).ok());
        record.is_some_and(|record| !record.revoked && record.verifier.0 == life)
    }

    pub(crate) fn records(&self) -> usize {
        self.records.len()
    }
}
