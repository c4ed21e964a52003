use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use vouch_tree::protocol::{GetDataArgs, Procedure};

use super::stream_connection::StreamConnection;
use crate::connector::{Link, LocalReplica, TakeFrame, TransportError};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallFailure {
    Unconnected(String),
    Closed(String),
    Garbage(String),
    Declined(String),
}

impl std::fmt::Display for CallFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Unconnected(why) | Self::Closed(why) | Self::Garbage(why) | Self::Declined(why)) =
            self;
        f.write_str(why)
    }
}

pub(super) type CallResult = Result<Bytes, CallFailure>;

#[derive(Clone)]
pub(crate) enum Connection {
    Stream(StreamConnection),
    Local(Arc<LocalConnection>),
}

impl Connection {
    pub(crate) fn start(link: Link, first_xid: u32) -> Self {
        match link {
            Link::Stream(stream) => Self::Stream(StreamConnection::start(stream, first_xid)),
            Link::Local(replica) => Self::Local(Arc::new(LocalConnection::new(replica))),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        match self {
            Self::Stream(connection) => connection.is_open(),
            Self::Local(connection) => !connection.is_closed.load(Ordering::Acquire),
        }
    }

    pub(crate) fn received(&self) -> u64 {
        match self {
            Self::Stream(connection) => connection.received(),
            Self::Local(connection) => connection.replica.received(),
        }
    }

    pub(crate) fn close(&self, why: &str) {
        match self {
            Self::Stream(connection) => connection.close(why),
            Self::Local(connection) => connection.close(why),
        }
    }

    /// Arguments and results are XDR. The caller bounds the time.
    pub(crate) async fn call(&self, procedure: Procedure, args: &[u8]) -> CallResult {
        match self {
            Self::Stream(connection) => connection.call(procedure, args).await,
            Self::Local(connection) => connection
                .until_closed(connection.replica.call(procedure, args))
                .await
                .map(Bytes::from),
        }
    }

    /// Passes each result to `take` as it arrives, in the order of the handles. The caller bounds
    /// the time.
    pub(crate) async fn call_data(
        &self,
        args: &GetDataArgs,
        take: &mut TakeFrame<'_>,
    ) -> Result<(), CallFailure> {
        match self {
            Self::Stream(connection) => connection.call_data(args, take).await,
            Self::Local(connection) => {
                connection.until_closed(connection.replica.data(args, take)).await
            }
        }
    }
}

pub(crate) struct LocalConnection {
    replica: Arc<dyn LocalReplica>,
    is_closed: AtomicBool,
    closed: Notify,
    reason: Mutex<String>,
}

impl LocalConnection {
    fn new(replica: Arc<dyn LocalReplica>) -> Self {
        Self {
            replica,
            is_closed: AtomicBool::new(false),
            closed: Notify::new(),
            reason: Mutex::default(),
        }
    }

    fn close(&self, why: &str) {
        why.clone_into(&mut self.reason.lock());
        self.is_closed.store(true, Ordering::Release);
        self.closed.notify_waiters();
    }

    async fn until_closed<T>(
        &self,
        call: impl Future<Output = Result<T, TransportError>>,
    ) -> Result<T, CallFailure> {
        let closed = self.closed.notified();
        let failure = || CallFailure::Closed(self.reason.lock().clone());
        if self.is_closed.load(Ordering::Acquire) {
            return Err(failure());
        }
        tokio::select! {
            biased;
            result = call => result.map_err(|error| CallFailure::Declined(error.to_string())),
            () = closed => Err(failure()),
        }
    }
}
