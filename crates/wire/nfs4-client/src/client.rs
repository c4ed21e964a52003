//! The asynchronous driver (tokio). After a lost connection, it repeats the calls in flight with
//! the same slot and sequence number.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, oneshot};
use vouch_nfs4::ClientId;
use vouch_nfs4::op::Args;
use vouch_oncrpc::{RECORD_MARK_LEN, RecordReader};
use vouch_xdr::Writer;

use crate::back_channel::is_call;
use crate::compound::EncodedOperations;
use crate::gss::needs_new_context;
use crate::record_buffer::fragment_len;
use crate::{
    BackChannel, CallKind, CallbackHandler, Compound, Core, Error, Identity, NoCallbacks,
    Protection, Renewal, Reply, TlsClient,
};

mod background;
mod callback_context;
mod connect;
mod receive;
mod resend;
mod shutdown;

use background::BackgroundTask;

/// A connection to the server, below TLS.
pub type Stream = Box<dyn Io>;

/// A stream that carries a connection.
pub trait Io: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

/// Connects to an address of the server.
pub type Connector = Arc<
    dyn Fn(SocketAddr) -> Pin<Box<dyn Future<Output = std::io::Result<Stream>> + Send>>
        + Send
        + Sync,
>;

impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin> Io for S {}

/// What a client connects to, and how.
pub struct Config {
    /// The server.
    pub address: SocketAddr,
    /// Other addresses of the same server. The connections of the session are spread over all
    /// addresses, and a connection moves to the next one if its address does not answer (session
    /// trunking, RFC 8881, section 2.10.5).
    pub trunk: Vec<SocketAddr>,
    /// 0, 1 or 2.
    pub minor: u32,
    /// Connections of the session (4.1).
    pub connections: usize,
    /// The client as the server knows it.
    pub identity: Identity,
    /// Another transport than TCP, such as a simulated network.
    pub connector: Option<Connector>,
    /// RPC-with-TLS, if the connections use it.
    pub tls: Option<TlsClient>,
    /// AUTH_SYS or RPCSEC_GSS of the calls.
    pub protection: Box<dyn Protection>,
    /// Called after the server has lost the security context.
    pub renewal: Option<Renewal>,
    /// Executes the server's callbacks.
    pub callbacks: Box<dyn CallbackHandler>,
    /// For one reconnection.
    pub reconnect_timeout: Duration,
    /// Bytes of a reply that are accepted.
    pub record_len_max: usize,
}

impl Config {
    /// One connection, no callbacks.
    pub fn new(
        address: SocketAddr,
        minor: u32,
        identity: Identity,
        protection: impl Protection + 'static,
    ) -> Self {
        let record_len_max = identity.message_len_max as usize + 4096;
        Self {
            address,
            trunk: Vec::new(),
            minor,
            connections: 1,
            identity,
            connector: None,
            tls: None,
            protection: Box::new(protection),
            renewal: None,
            callbacks: Box::new(NoCallbacks),
            reconnect_timeout: Duration::from_secs(10),
            record_len_max,
        }
    }
}

/// Clones share the session. Background tasks end with the last clone or at [`Client::close`].
#[derive(Clone)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    state: Mutex<State>,
    slot_free: Notify,
    /// Not empty. The connection `n` prefers the address `n` modulo their number.
    addresses: Vec<SocketAddr>,
    connector: Option<Connector>,
    tls: Option<TlsClient>,
    minor: u32,
    renewal: Option<Renewal>,
    reconnect_timeout: Duration,
    record_len_max: usize,
    pub(crate) owners: std::sync::atomic::AtomicU64,
}

struct State {
    core: Core,
    identity: Identity,
    client: ClientId,
    back: BackChannel,
    callbacks_use_call_context: bool,
    is_callback_context_stale: bool,
    next_offer_at: Option<Instant>,
    callbacks: Box<dyn CallbackHandler>,
    /// In the order of submission, in which they are repeated after a lost connection.
    pending: BTreeMap<u64, Pending>,
    denied_calls: Vec<u64>,
    /// See [`Completion::is_delayed`](crate::Completion::is_delayed).
    delayed_calls: Vec<u64>,
    is_waiting_for_delayed: bool,
    is_renewing_context: bool,
    /// No sequence numbers are left. The context is replaced after its calls in flight.
    is_context_exhausted: bool,
    connections: Vec<Connection>,
    next_token: u64,
    /// Transaction id of the call that destroys the last context.
    context_end: Option<(u32, oneshot::Sender<()>)>,
    is_closed: bool,
}

struct Connection {
    out: Writer,
    wake: Arc<Notify>,
    link: LinkState,
    task: Option<tokio::task::AbortHandle>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LinkState {
    Up,
    Connecting,
    Closed,
}

struct Pending {
    connection: usize,
    operations: EncodedOperations,
    denials: u8,
    repeats: u8,
    reply: oneshot::Sender<Result<Reply, Error>>,
}

impl Client {
    /// Registers the client and binds the other connections to its session.
    pub async fn connect(config: Config) -> Result<Self, Error> {
        let seed = u32::from_be_bytes(std::array::from_fn(|at| {
            config.identity.verifier.0[at] ^ config.identity.verifier.0[at + 4]
        }));
        let back = BackChannel::new(
            config.identity.callback_program,
            config.minor,
            config.identity.back_slots as usize,
        );
        let state = State {
            callbacks_use_call_context: config.minor > 0
                && config.identity.callback_security.is_none(),
            is_callback_context_stale: false,
            next_offer_at: None,
            core: Core::new(config.minor, config.protection, seed),
            identity: config.identity,
            client: ClientId(0),
            back,
            callbacks: config.callbacks,
            pending: BTreeMap::new(),
            denied_calls: Vec::new(),
            delayed_calls: Vec::new(),
            is_waiting_for_delayed: false,
            is_renewing_context: false,
            is_context_exhausted: false,
            connections: Vec::new(),
            next_token: 0,
            context_end: None,
            is_closed: false,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            slot_free: Notify::new(),
            addresses: std::iter::once(config.address).chain(config.trunk).collect(),
            connector: config.connector,
            tls: config.tls,
            minor: config.minor,
            renewal: config.renewal,
            reconnect_timeout: config.reconnect_timeout,
            record_len_max: config.record_len_max,
            owners: 0.into(),
        });
        let client = Self { shared };
        let mut first = client.shared.open_stream(0).await?;
        client.register(&mut first).await?;
        client.add_connection(first);
        for at in 1..config.connections.max(1) {
            let stream = client.shared.connect_to_session(at).await?;
            client.add_connection(stream);
        }
        Ok(client)
    }

    /// The id that the server has given.
    pub fn id(&self) -> ClientId {
        self.shared.state.lock().client
    }

    /// Only this client's credential may manage the client record and its sessions (SP4_MACH_CRED).
    pub fn is_protected(&self) -> bool {
        self.shared.state.lock().core.is_protected()
    }

    /// Minor version.
    pub fn minor(&self) -> u32 {
        self.shared.minor
    }

    /// Adds SEQUENCE in 4.1 and later.
    pub fn compound(&self) -> Compound<'_> {
        Compound::new(
            self,
            if self.shared.minor == 0 {
                CallKind::Sessionless
            } else {
                CallKind::Session { cache: false }
            },
        )
    }

    pub(crate) fn sessionless(&self) -> Compound<'_> {
        Compound::new(self, CallKind::Sessionless)
    }

    /// After BADSESSION or STALE_CLIENTID. The session is new, and the client identifier if the
    /// server restarted. Calls in flight fail. The caller must reclaim its state.
    pub async fn renew(&self) -> Result<(), Error> {
        let mut stream = self.shared.open_stream(0).await?;
        let lost = self.shared.state.lock().core.clear_session();
        self.shared.fail_calls(lost);
        let registered = self.register(&mut stream).await;
        if !self.shared.renew_context_after(&registered).await {
            registered?;
        } else {
            self.register(&mut stream).await?;
        }
        self.add_connection(stream);
        self.shared.start_task(&mut self.shared.state.lock());
        Ok(())
    }

    pub(crate) async fn call(&self, operations: EncodedOperations) -> Result<Reply, Error> {
        let mut operations = Some(operations);
        loop {
            let freed = self.shared.slot_free.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            let receiver = self.shared.submit(&mut operations)?;
            match receiver {
                Some(receiver) => return receiver.await.map_err(|_| Error::Lost)?,
                None => freed.await,
            }
        }
    }

    async fn register(&self, stream: &mut Stream) -> Result<(), Error> {
        let mut handshake = self.shared.state.lock().begin_handshake(self.shared.minor);
        while !handshake.is_done() {
            let call = self.shared.encode_call(|identity| handshake.request(identity))?;
            let accept = |state: &mut State, body: crate::ReplyBody<'_>| {
                let had_session = handshake.session().is_some();
                handshake.accept(&state.identity, body, &mut state.core)?;
                if let Some(session) = handshake.session().filter(|_| !had_session) {
                    state.back.set_session(session.session);
                }
                Ok(())
            };
            self.shared.exchange(stream, call, accept).await?;
        }
        let mut state = self.shared.state.lock();
        state.client = handshake.client();
        state.finish_handshake(&handshake);
        Ok(())
    }

    fn add_connection(&self, stream: Stream) {
        let wake = Arc::new(Notify::new());
        let mut state = self.shared.state.lock();
        let closed = state.connections.iter().position(|other| other.link == LinkState::Closed);
        let at = closed.unwrap_or(state.connections.len());
        let connection =
            Connection { out: Writer::new(), wake: wake.clone(), link: LinkState::Up, task: None };
        match closed {
            Some(at) => state.connections[at] = connection,
            None => state.connections.push(connection),
        }
        let task = tokio::spawn(run_connection(Arc::downgrade(&self.shared), at, stream, wake));
        state.connections[at].task = Some(task.abort_handle());
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.shut_down();
    }
}

impl Shared {
    fn shut_down(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.pending.clear();
        state
            .connections
            .drain(..)
            .filter_map(|connection| connection.task)
            .for_each(|task| task.abort());
        self.slot_free.notify_waiters();
    }

    fn fail_calls(&self, tokens: Vec<u64>) {
        let mut state = self.state.lock();
        for token in tokens {
            if let Some(pending) = state.pending.remove(&token) {
                let _ = pending.reply.send(Err(Error::Lost));
            }
        }
        self.slot_free.notify_waiters();
    }

    fn submit(
        self: &Arc<Self>,
        operations: &mut Option<EncodedOperations>,
    ) -> Result<Option<oneshot::Receiver<Result<Reply, Error>>>, Error> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let Some(EncodedOperations { kind, caller, .. }) = operations else {
            return Err(Error::Lost);
        };
        if state.is_closed
            || (matches!(kind, CallKind::Session { .. }) && state.core.session().is_none())
        {
            return Err(Error::Lost);
        }
        state.next_token += 1;
        let token = state.next_token;
        let total = state.connections.len();
        let Some(at) = (0..total)
            .map(|step| (token as usize + step) % total)
            .find(|&at| state.connections[at].link == LinkState::Up)
        else {
            let is_connecting =
                state.connections.iter().any(|connection| connection.link == LinkState::Connecting);
            return if is_connecting { Ok(None) } else { Err(Error::Lost) };
        };
        let out = &mut state.connections[at].out;
        let begun = state.core.begin_as(token, *kind, caller.as_deref(), out);
        if matches!(begun, Ok(None)) {
            return Ok(None);
        }
        let operations = operations.take().expect("a call is submitted only once");
        let sent = begun.and_then(|call| {
            let mut call = call.expect("there is a free slot");
            call.raw(out, &operations.bytes, operations.count);
            state.core.end(call, out)
        });
        let has_context = match sent {
            Ok(()) => true,
            Err(error) if needs_new_context(&error) && self.renewal.is_some() => false,
            Err(error) => return Err(error),
        };
        let (reply, receiver) = oneshot::channel();
        state
            .pending
            .insert(token, Pending { connection: at, operations, denials: 0, repeats: 0, reply });
        match has_context {
            true => state.connections[at].wake.notify_one(),
            false => {
                state.denied_calls.push(token);
                state.is_context_exhausted = true;
                self.start_task(state);
            }
        }
        Ok(Some(receiver))
    }

    fn encode_call<'a>(
        &self,
        request: impl FnOnce(&Identity) -> Option<(CallKind, Args<'_>)> + 'a,
    ) -> Result<Vec<u8>, Error> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let (kind, args) =
            request(&state.identity).ok_or(Error::Mismatch("the handshake is complete"))?;
        let mut w = Writer::new();
        let mut call = state.core.begin(0, kind, &mut w)?.ok_or(Error::Lost)?;
        call.op(&mut w, &args);
        state.core.end(call, &mut w)?;
        Ok(w.into_bytes())
    }

    /// Reads no byte after the reply: a call of the server may follow it.
    async fn exchange(
        &self,
        stream: &mut Stream,
        call: Vec<u8>,
        accept: impl FnOnce(&mut State, crate::ReplyBody<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        stream.write_all(&call).await?;
        stream.flush().await?;
        loop {
            let record = read_record(stream, self.record_len_max).await?;
            let mut out = Writer::new();
            {
                let mut guard = self.state.lock();
                let state = &mut *guard;
                if is_call(&record) {
                    state.back.answer(&record, &mut *state.callbacks, &mut out);
                } else if let Some(completion) = state.core.reply(&record, &mut Vec::new())? {
                    return accept(state, completion.outcome?);
                }
            }
            stream.write_all(out.as_bytes()).await?;
            stream.flush().await?;
        }
    }
}

async fn read_record(stream: &mut Stream, record_len_max: usize) -> Result<Vec<u8>, Error> {
    let mut reader = RecordReader::new(record_len_max);
    let mut bytes = [0; 4096];
    loop {
        let mut mark = [0; RECORD_MARK_LEN];
        stream.read_exact(&mut mark).await?;
        let mut record = reader.next(&mut &mark[..])?.map(Cow::into_owned);
        let mut left = fragment_len(mark);
        while left > 0 {
            let part = &mut bytes[..left.min(4096)];
            stream.read_exact(part).await?;
            left -= part.len();
            record = reader.next(&mut &*part)?.map(Cow::into_owned);
        }
        if let Some(record) = record {
            return Ok(record);
        }
    }
}

async fn run_connection(
    shared: std::sync::Weak<Shared>,
    at: usize,
    mut stream: Stream,
    wake: Arc<Notify>,
) {
    loop {
        let _ = transfer(&shared, at, &mut stream, &wake).await;
        let Some(client) = shared.upgrade() else { return };
        if let Some(connection) = client.state.lock().connections.get_mut(at) {
            connection.link = LinkState::Connecting;
        }
        let reconnected = tokio::time::timeout(client.reconnect_timeout, async {
            loop {
                match client.connect_to_session(at).await {
                    Ok(stream) => return Some(stream),
                    Err(Error::Refused { .. }) => return None,
                    failed if client.renew_context_after(&failed).await => {}
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        });
        match reconnected.await {
            Ok(Some(connected)) => {
                stream = connected;
                client.resume_connection(at);
                client.start_task(&mut client.state.lock());
                if client.state.lock().is_callback_context_stale {
                    tokio::spawn(
                        async move { Client { shared: client }.offer_call_context().await },
                    );
                }
            }
            _ => {
                client.close_connection(at);
                client.start_task(&mut client.state.lock());
                return;
            }
        }
    }
}

async fn transfer(
    shared: &std::sync::Weak<Shared>,
    at: usize,
    stream: &mut Stream,
    wake: &Notify,
) -> Result<(), Error> {
    let (mut input, mut output) = tokio::io::split(stream);
    let client = shared.upgrade().ok_or(Error::Lost)?;
    let mut reader = RecordReader::new(client.record_len_max);
    drop(client);
    let receive = async {
        let mut bytes = vec![0; 256 * 1024];
        let mut scratch = Vec::new();
        loop {
            let n = input.read(&mut bytes).await?;
            let client = shared.upgrade().ok_or(Error::Lost)?;
            if n == 0 {
                return Err::<(), Error>(Error::Lost);
            }
            let task = client.receive(at, &mut reader, &bytes[..n], &mut scratch)?;
            if task != BackgroundTask::None {
                tokio::spawn(Client { shared: client }.run_task(task));
            }
        }
    };
    let send = async {
        loop {
            wake.notified().await;
            let out = {
                let client = shared.upgrade().ok_or(Error::Lost)?;
                let mut state = client.state.lock();
                let connection = state.connections.get_mut(at).ok_or(Error::Lost)?;
                std::mem::take(&mut connection.out).into_bytes()
            };
            output.write_all(&out).await?;
            output.flush().await?;
        }
        #[expect(unreachable_code, reason = "names the error type of the block")]
        Ok::<(), Error>(())
    };
    tokio::select! { biased; ended = receive => ended, ended = send => ended }
}
