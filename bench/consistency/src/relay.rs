//! A TCP relay between the clients and the server that makes faults: it cuts connections before or
//! after a call reaches the server, holds them silent, delays records, and repeats calls. It
//! forwards whole RPC records; under TLS it sees only bytes, and makes the other faults.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use crate::history::Fault;
use crate::rng::Rng;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The connection ends before a call is forwarded, or instead of a reply.
    Cut,
    /// No byte passes for a while, then the connection ends.
    Silent,
    Delay,
    /// A call is sent twice.
    Repeat,
}

impl Kind {
    pub const ALL: [Self; 4] = [Self::Cut, Self::Silent, Self::Delay, Self::Repeat];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Cut => "cut",
            Self::Silent => "silent",
            Self::Delay => "delay",
            Self::Repeat => "repeat",
        }
    }
}

impl std::str::FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or_else(|| format!("{text}: not one of cut, silent, delay, repeat"))
    }
}

pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    server: SocketAddr,
    kinds: Vec<Kind>,
    is_tls: bool,
    /// Faults happen only while a workload runs.
    is_active: AtomicBool,
    rng: Mutex<Rng>,
    start: Mutex<Instant>,
    faults: Mutex<Vec<Fault>>,
}

impl Relay {
    pub(crate) async fn start(
        server: SocketAddr,
        kinds: Vec<Kind>,
        is_tls: bool,
        seed: u64,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            server,
            kinds,
            is_tls,
            is_active: false.into(),
            rng: Mutex::new(Rng(seed)),
            start: Mutex::new(Instant::now()),
            faults: Mutex::default(),
        });
        let accepting = shared.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, accepting.clone()));
            }
        });
        Ok(Self { address, shared })
    }

    pub(crate) fn begin(&self, start: Instant, seed: u64) {
        *self.shared.start.lock() = start;
        *self.shared.rng.lock() = Rng(seed);
        self.shared.faults.lock().clear();
        self.shared.is_active.store(true, Ordering::Relaxed);
    }

    pub(crate) fn end(&self) -> Vec<Fault> {
        self.shared.is_active.store(false, Ordering::Relaxed);
        std::mem::take(&mut self.shared.faults.lock())
    }
}

impl Shared {
    fn choose(&self) -> Option<(Kind, u64)> {
        if !self.is_active.load(Ordering::Relaxed) || self.kinds.is_empty() {
            return None;
        }
        let mut rng = self.rng.lock();
        // One record of 40 has a fault.
        let kind = self.kinds[rng.below(self.kinds.len() as u64) as usize];
        let amount = rng.below(20) + 1;
        (rng.below(40) == 0).then_some((kind, amount))
    }

    fn record(&self, kind: Kind, begun: Instant) {
        let start = *self.start.lock();
        let at = |time: Instant| time.saturating_duration_since(start).as_nanos() as u64;
        let (start, end) = (at(begun), at(Instant::now()));
        self.faults.lock().push(Fault { kind: kind.name().into(), start, end });
    }
}

async fn serve(client: TcpStream, shared: Arc<Shared>) -> std::io::Result<()> {
    let server = TcpStream::connect(shared.server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (client_in, client_out) = client.into_split();
    let (server_in, server_out) = server.into_split();
    // Both directions end with the first: dropping the halves closes the connections.
    tokio::select! {
        ended = forward(client_in, server_out, &shared, true) => ended,
        ended = forward(server_in, client_out, &shared, false) => ended,
    }
}

async fn forward(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &Shared,
    to_server: bool,
) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    loop {
        read(&mut from, &mut bytes, shared.is_tls).await?;
        if bytes.is_empty() {
            return Ok(());
        }
        let begun = Instant::now();
        match shared.choose() {
            Some((Kind::Cut, _)) => {
                shared.record(Kind::Cut, begun);
                return Ok(());
            }
            Some((Kind::Silent, amount)) => {
                tokio::time::sleep(Duration::from_millis(amount * 5)).await;
                shared.record(Kind::Silent, begun);
                return Ok(());
            }
            Some((Kind::Delay, amount)) => {
                tokio::time::sleep(Duration::from_millis(amount)).await;
                shared.record(Kind::Delay, begun);
            }
            Some((Kind::Repeat, _)) if to_server && !shared.is_tls => {
                to.write_all(&bytes).await?;
                shared.record(Kind::Repeat, begun);
            }
            _ => {}
        }
        to.write_all(&bytes).await?;
    }
}

/// One RPC record with its marks, or under TLS what has arrived; nothing at the end.
async fn read(from: &mut OwnedReadHalf, bytes: &mut Vec<u8>, is_tls: bool) -> std::io::Result<()> {
    bytes.clear();
    if is_tls {
        bytes.resize(RECORD_LEN_MAX.min(64 * 1024), 0);
        let n = from.read(bytes).await?;
        bytes.truncate(n);
        return Ok(());
    }
    loop {
        let mut mark = [0; 4];
        match from.read_exact(&mut mark).await {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                bytes.clear();
                return Ok(());
            }
            other => other?,
        };
        let word = u32::from_be_bytes(mark);
        let (len, at) = ((word & !LAST_FRAGMENT) as usize, bytes.len() + mark.len());
        if at + len > RECORD_LEN_MAX {
            return Err(std::io::Error::other("the record is too long"));
        }
        bytes.extend_from_slice(&mark);
        bytes.resize(at + len, 0);
        from.read_exact(&mut bytes[at..]).await?;
        if word & LAST_FRAGMENT != 0 {
            return Ok(());
        }
    }
}

const LAST_FRAGMENT: u32 = 1 << 31;
const RECORD_LEN_MAX: usize = 4 << 20;
