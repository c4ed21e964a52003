//! The server's machine: its process, its disk, its clock.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;
use tokio::time::Instant;
use vouch_consistency::Rng;
use vouch_nfs4_server::testing::{self, time_at};
use vouch_nfs4_server::{
    CallbackId, CallbackTo, Connection, ConnectionId, Effect, Flavour, Job, JobProgress, Limits,
    Now, Principal, Progress, Recovered, Reply, ReplyKind, Request, Server, Unreachable,
};
use vouch_vfs::Blocking;
use vouch_vfs::memory::MemoryFs;

/// Record mark and RPC header.
pub(crate) const HEAD_LEN: usize = 28;

#[derive(Clone)]
pub(crate) struct World {
    machine: Arc<Mutex<Machine>>,
    /// Calls, jobs and connections of the running process.
    tasks: Arc<Mutex<JoinSet<()>>>,
}

struct Machine {
    rng: Rng,
    is_faulty: bool,
    start: Instant,
    clock_offset_ms: u64,
    files: Arc<MemoryFs>,
    /// `None` while the process is down.
    server: Option<Arc<Server>>,
    boot: u64,
    records: Records,
    connections: BTreeMap<ConnectionId, UnboundedSender<Vec<u8>>>,
    callbacks: BTreeMap<(ConnectionId, u32), CallbackId>,
    /// Clients without a network.
    apart: Vec<u16>,
    ports: u16,
}

/// Recovery records: those on the disk, and changes that are on their way there.
#[derive(Default)]
struct Records {
    stored: BTreeMap<Vec<u8>, Record>,
    /// `None` removes.
    queue: Vec<(Vec<u8>, Option<Record>)>,
}

/// The boot that wrote it, and its value.
type Record = (u64, Vec<u8>);

impl Records {
    /// The disk keeps the order.
    fn store(&mut self, count: usize) {
        for (key, value) in self.queue.drain(..count) {
            match value {
                Some(value) => drop(self.stored.insert(key, value)),
                None => drop(self.stored.remove(&key)),
            }
        }
    }
}

/// A call that has begun.
pub(crate) struct Running {
    compound: vouch_nfs4_server::Compound,
    blocking: Blocking,
    persists: bool,
}

pub(crate) enum Step {
    Reply(Option<Reply>, bool),
    Blocked,
    Down,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let files = MemoryFs::new();
        files.keep_disk();
        files.set_slow_sync(true);
        files.set_random_blocking(rng.next() | 1);
        let world = Self {
            machine: Arc::new(Mutex::new(Machine {
                rng,
                is_faulty: false,
                start: Instant::now(),
                clock_offset_ms: 0,
                files: Arc::new(files),
                server: None,
                boot: 7,
                records: Records::default(),
                connections: BTreeMap::new(),
                callbacks: BTreeMap::new(),
                apart: Vec::new(),
                ports: 700,
            })),
            tasks: Arc::default(),
        };
        world.boot();
        world
    }

    pub(crate) fn begin_faults(&self) {
        self.machine.lock().is_faulty = true;
    }

    /// Waits as long as a message or a disk takes: mostly little, sometimes long.
    pub(crate) async fn pause(&self) {
        let micros = {
            let machine = &mut *self.machine.lock();
            match (machine.is_faulty, machine.rng.below(100)) {
                (false, _) => 10,
                (true, 0..60) => machine.rng.below(500),
                (true, 60..97) => machine.rng.below(5_000),
                (true, _) => machine.rng.below(300_000),
            }
        };
        tokio::time::sleep(Duration::from_micros(micros)).await;
    }

    /// Ends with the process.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock();
        while let Some(ended) = tasks.try_join_next() {
            ended.expect("no task of the server panics");
        }
        tasks.spawn(task);
    }

    pub(crate) fn is_apart(&self, client: u16) -> bool {
        self.machine.lock().apart.contains(&client)
    }

    pub(crate) fn set_apart(&self, client: u16, apart: bool) {
        let mut machine = self.machine.lock();
        machine.apart.retain(|other| *other != client);
        if apart {
            machine.apart.push(client);
        }
    }

    pub(crate) fn is_call_repeated(&self) -> bool {
        let machine = &mut *self.machine.lock();
        machine.is_faulty && machine.rng.percent(2)
    }

    pub(crate) fn set_capacity(&self, bytes: u64) {
        self.machine.lock().files.set_capacity(bytes);
    }

    /// The clock of the wall, which leases do not use, jumps.
    pub(crate) fn jump_clock(&self, ms: u64) {
        self.machine.lock().clock_offset_ms = ms;
    }

    /// `None` if nothing listens.
    pub(crate) fn connection_opened(
        &self,
        client: u16,
        out: UnboundedSender<Vec<u8>>,
    ) -> Option<Arc<Connection>> {
        let machine = &mut *self.machine.lock();
        let server = machine.server.as_ref()?;
        machine.ports = machine.ports.checked_add(1).unwrap_or(700);
        let peer = SocketAddr::from(([192, 0, 2, 2 + client as u8 % 100], machine.ports));
        let connection = server.connection_opened(peer);
        machine.connections.insert(connection.id(), out);
        Some(connection)
    }

    pub(crate) fn connection_closed(&self, connection: &Connection) {
        let effects = {
            let machine = &mut *self.machine.lock();
            machine.connections.remove(&connection.id());
            let now = machine.now();
            machine.server.as_ref().map(|server| server.connection_closed(connection, now))
        };
        self.apply_effects(effects.unwrap_or_default());
        let unanswered = {
            let callbacks = &mut self.machine.lock().callbacks;
            let is_here = |(to, _): &(ConnectionId, u32)| *to == connection.id();
            let (here, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
                std::mem::take(callbacks).into_iter().partition(|(key, _)| is_here(key));
            *callbacks = others;
            here
        };
        unanswered.into_values().for_each(|id| self.callback_failed(id));
    }

    /// Some connection breaks.
    pub(crate) fn cut(&self) {
        let machine = &mut *self.machine.lock();
        let count = machine.connections.len() as u64;
        if count > 0 {
            let at = machine.rng.below(count) as usize;
            let id = machine.connections.keys().nth(at).copied();
            // The connection's tasks end without their channel.
            id.map(|id| machine.connections.remove(&id));
        }
    }

    pub(crate) fn begin(
        &self,
        connection: &Arc<Connection>,
        xid: u32,
        body: &[u8],
    ) -> Option<Running> {
        let machine = &mut *self.machine.lock();
        let request = Request {
            connection: connection.clone(),
            xid,
            principal: Principal::Sys { uid: 0, gid: 0, gids: [].into() },
            flavour: Flavour::Sys,
            enctype: None,
            body: Bytes::copy_from_slice(body),
            reply: vec![0; HEAD_LEN],
            reply_tail_len: 0,
            spans_allowed: false,
        };
        let now = machine.now();
        let compound = machine.server.as_ref()?.begin(request, now);
        Some(Running { compound, blocking: Blocking::Forbidden, persists: false })
    }

    /// Runs until the call waits for the disk or ends. A reply says whether records must be stored
    /// before it leaves.
    pub(crate) fn step(&self, call: &mut Running) -> Step {
        let Some(server) = self.machine.lock().server.clone() else { return Step::Down };
        let result = call.compound.run(&server, call.blocking);
        call.persists |=
            result.effects.iter().any(|effect| matches!(effect, Effect::Persist { .. }));
        self.apply_effects(result.effects);
        match result.progress {
            Progress::Blocked(_) => {
                call.blocking = Blocking::Allowed;
                Step::Blocked
            }
            Progress::Done(reply) => {
                let all = reply.as_ref().is_some_and(|reply| reply.kind != ReplyKind::Plain);
                Step::Reply(reply, call.persists || all)
            }
        }
    }

    pub(crate) fn store_records(&self) {
        let records = &mut self.machine.lock().records;
        records.store(records.queue.len());
    }

    /// A reply to a callback.
    pub(crate) fn callback_answered(&self, connection: &Connection, xid: u32, record: &[u8]) {
        let effects = {
            let machine = &mut *self.machine.lock();
            let id = machine.callbacks.remove(&(connection.id(), xid));
            let now = machine.now();
            id.zip(machine.server.as_ref())
                .map(|(id, server)| server.callback_reply(id, Ok(record), now))
        };
        self.apply_effects(effects.unwrap_or_default());
    }

    fn apply_effects(&self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Callback { id, to, xid, record, timeout_ms, .. } => {
                    self.send_callback(id, to, xid, record, Duration::from_millis(timeout_ms))
                }
                Effect::Persist { key, value, .. } => {
                    let machine = &mut *self.machine.lock();
                    machine.records.queue.push((key, Some((machine.boot, value))));
                }
                Effect::Forget { key, .. } => {
                    self.machine.lock().records.queue.push((key, None));
                }
                Effect::GraceEnded => {
                    let machine = &mut *self.machine.lock();
                    machine.records.store(machine.records.queue.len());
                    let boot = machine.boot;
                    machine.records.stored.retain(|_, (written, _)| *written == boot);
                }
                Effect::Disconnect(id) => drop(self.machine.lock().connections.remove(&id)),
                Effect::Background(job) => self.spawn(self.clone().run_job(job)),
                Effect::AddressMismatch { .. }
                | Effect::RecallOverdue { .. }
                | Effect::NameConflict { .. }
                | Effect::ClientEnded { .. } => {}
            }
        }
    }

    fn send_callback(
        &self,
        id: CallbackId,
        to: CallbackTo,
        xid: u32,
        record: Vec<u8>,
        timeout: Duration,
    ) {
        let machine = &mut *self.machine.lock();
        let world = self.clone();
        if let CallbackTo::Connection(connection) = to
            && let Some(out) = machine.connections.get(&connection)
        {
            let mark = record.len() as u32 | 1 << 31;
            let _ = out.send([&mark.to_be_bytes()[..], &record].concat());
            machine.callbacks.insert((connection, xid), id);
            self.spawn(async move {
                tokio::time::sleep(timeout).await;
                if world.machine.lock().callbacks.remove(&(connection, xid)).is_some() {
                    world.callback_failed(id);
                }
            });
        } else {
            self.spawn(async move { world.callback_failed(id) });
        }
    }

    fn callback_failed(&self, id: CallbackId) {
        let effects = {
            let machine = self.machine.lock();
            let now = machine.now();
            let server = machine.server.as_ref();
            server.map(|server| server.callback_reply(id, Err(Unreachable::Peer), now))
        };
        self.apply_effects(effects.unwrap_or_default());
    }

    async fn run_job(self, mut job: Job) {
        loop {
            self.pause().await;
            let (server, now) = {
                let machine = self.machine.lock();
                (machine.server.clone(), machine.now())
            };
            let Some(server) = server else { return };
            if let JobProgress::Done(effects) = job.step(&server, now) {
                drop(server);
                return self.apply_effects(effects);
            }
        }
    }

    pub(crate) async fn ticks(self) {
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let effects = {
                let machine = self.machine.lock();
                let now = machine.now();
                machine.server.as_ref().map(|server| server.tick(now).effects)
            };
            self.apply_effects(effects.unwrap_or_default());
        }
    }

    /// The process ends at once. Without power the disk keeps only what was written out, or a part
    /// of the rest.
    pub(crate) async fn crash(&self, is_power_cut: bool) {
        {
            let machine = &mut *self.machine.lock();
            machine.server = None;
            machine.connections.clear();
            machine.callbacks.clear();
        }
        self.end_tasks().await;
        let machine = &mut *self.machine.lock();
        let kept = machine.rng.below(machine.records.queue.len() as u64 + 1) as usize;
        machine.records.store(kept);
        machine.records.queue.clear();
        if is_power_cut {
            let Machine { files, rng, .. } = machine;
            files.crash(|| rng.percent(50));
        }
    }

    async fn end_tasks(&self) {
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        tasks.abort_all();
        while let Some(ended) = tasks.join_next().await {
            assert!(ended.is_ok() || ended.is_err_and(|error| error.is_cancelled()));
        }
    }

    pub(crate) fn boot(&self) {
        let machine = &mut *self.machine.lock();
        machine.boot += 1;
        let records = machine
            .records
            .stored
            .iter()
            .map(|(key, (_, value))| (key.clone(), value.clone()))
            .collect();
        let (now, recovered) = (machine.now(), Recovered { records });
        let server =
            testing::server(&machine.files, machine.boot, Limits::default(), recovered, now);
        server.never_await_holders();
        machine.server = Some(Arc::new(server));
    }

    pub(crate) async fn stop(&self) {
        self.end_tasks().await;
    }
}

impl Machine {
    fn now(&self) -> Now {
        let ms = 1_000 + self.start.elapsed().as_millis() as u64;
        Now { wall: time_at(ms + self.clock_offset_ms).wall, ..time_at(ms) }
    }
}
