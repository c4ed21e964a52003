use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes as Buffer;
use vouch_nfs4_server::RecoveryRecord;
use vouch_nfs4_server::testing::{self, time_at};
use vouch_nfs4_server::{
    CallbackId, CallbackTo, Connection, Effect, Flavour, JobProgress, Limits, Now, Principal,
    Progress, Recovered, Request, RunResult, Server, Unreachable,
};
use vouch_vfs::Blocking;
use vouch_vfs::memory::MemoryFs;

pub(crate) use vouch_nfs4_server::testing::LEASE_MS;

const HEAD_LEN: usize = 28;

pub(crate) struct PendingCallback {
    pub(crate) id: CallbackId,
    pub(crate) to: CallbackTo,
    pub(crate) record: Vec<u8>,
}

pub(crate) struct Driver {
    pub(crate) server: Server,
    pub(crate) files: Arc<MemoryFs>,
    pub(crate) now_ms: u64,
    pub(crate) boot: u64,
    pub(crate) callbacks: Vec<PendingCallback>,
    records: BTreeMap<Vec<u8>, (u64, Vec<u8>)>,
    ports: u16,
}

fn start(files: &Arc<MemoryFs>, boot: u64, now: Now, recovered: Recovered) -> Server {
    testing::server(files, boot, Limits::default(), recovered, now)
}

impl Driver {
    pub(crate) fn new() -> Self {
        let (files, now_ms, boot) = (Arc::new(MemoryFs::new()), 1_000, 7);
        let server = start(&files, boot, time_at(now_ms), Recovered::default());
        Driver {
            server,
            files,
            now_ms,
            boot,
            callbacks: Vec::new(),
            records: BTreeMap::new(),
            ports: 700,
        }
    }

    pub(crate) fn now(&self) -> Now {
        time_at(self.now_ms)
    }

    pub(crate) fn connect(&mut self) -> Arc<Connection> {
        self.ports = self.ports.wrapping_add(1);
        self.server.connection_opened(SocketAddr::from(([127, 0, 0, 1], self.ports)))
    }

    pub(crate) fn disconnect(&mut self, connection: &Connection) {
        let effects = self.server.connection_closed(connection, self.now());
        self.apply_effects(effects);
    }

    pub(crate) fn call(
        &mut self,
        connection: &Arc<Connection>,
        xid: u32,
        body: &[u8],
    ) -> Option<Vec<u8>> {
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
        let mut blocking = Blocking::Forbidden;
        loop {
            let RunResult { effects, progress } = compound.run(&self.server, blocking);
            self.apply_effects(effects);
            match progress {
                Progress::Done(reply) => {
                    return reply.map(|reply| reply.bytes[HEAD_LEN..].to_vec());
                }
                Progress::Blocked(_) => {
                    assert_eq!(blocking, Blocking::Forbidden, "with blocking nothing blocks");
                    blocking = Blocking::Allowed;
                }
            }
        }
    }

    pub(crate) fn answer(&mut self, id: CallbackId, answer: Result<&[u8], Unreachable>) {
        let effects = self.server.callback_reply(id, answer, self.now());
        self.apply_effects(effects);
    }

    fn apply_effects(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Callback { id, to, record, .. } => {
                    self.callbacks.push(PendingCallback { id, to, record })
                }
                Effect::Persist { key, value, .. } => {
                    drop(self.records.insert(key, (self.boot, value)))
                }
                Effect::Forget { key, .. } => drop(self.records.remove(&key)),
                Effect::GraceEnded => {
                    let boot = self.boot;
                    self.records.retain(|_, (written, _)| *written == boot);
                }
                Effect::AddressMismatch { .. } => panic!("all clients have one address"),
                Effect::RecallOverdue { .. }
                | Effect::NameConflict { .. }
                | Effect::ClientEnded { .. } => {}
                Effect::Disconnect(_) => panic!("no client breaks the protocol"),
                Effect::Background(mut job) => {
                    while !matches!(job.step(&self.server, self.now()), JobProgress::Done(_)) {}
                }
            }
        }
    }

    pub(crate) fn advance(&mut self, ms: u64) {
        let until = self.now_ms + ms;
        loop {
            let tick = self.server.tick(self.now());
            self.apply_effects(tick.effects);
            if self.now_ms == until {
                return;
            }
            self.now_ms = tick.next_due_ms.clamp(self.now_ms + 1, until);
        }
    }

    pub(crate) fn restart(&mut self) {
        self.boot += 1;
        self.callbacks.clear();
        self.now_ms += 1;
        let records =
            self.records.iter().map(|(key, (_, value))| (key.clone(), value.clone())).collect();
        self.server = start(&self.files, self.boot, self.now(), Recovered { records });
    }

    pub(crate) fn is_recorded(&self, key: &[u8], boot_verifier: [u8; 8]) -> bool {
        let record = self
            .records
            .get(key)
            .and_then(|(_, value)| RecoveryRecord::from_bytes(key, value).ok());
        record.is_some_and(|record| !record.revoked && record.verifier.0 == boot_verifier)
    }

    pub(crate) fn records(&self) -> usize {
        self.records.len()
    }
}
