//! The agent's socket for the prolog and epilog.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::sockopt::socket_peercred;

use super::Agent;
use super::jobs::CacheOwner;
use crate::Error;
use crate::channel::{Channel, ChannelError};
use crate::limits::{
    ANSWER_TIMEOUT, CONNECTION_TIMEOUT, LOCAL_CONNECTION_COUNT_MAX, REQUEST_LEN_MAX,
};
use crate::wire::{Reply, Request};

impl Agent {
    /// Serves until `is_stopped`.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn run(
        self: &Arc<Self>,
        socket: &UnixListener,
        is_stopped: impl Fn() -> bool + Send + Sync,
    ) -> Result<(), Error> {
        let failed = |source| Error::Io { path: "the agent's socket".into(), source };
        socket.set_nonblocking(true).map_err(failed)?;
        let count = Arc::new(AtomicUsize::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| self.maintain(&is_stopped));
            while !is_stopped() {
                let timeout = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
                let _ =
                    rustix::event::poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timeout));
                let Ok((connection, _)) = socket.accept() else { continue };
                if count.load(Ordering::Acquire) >= LOCAL_CONNECTION_COUNT_MAX {
                    tracing::warn!("too many prologs and epilogs at once; one is refused");
                    continue;
                }
                count.fetch_add(1, Ordering::AcqRel);
                let (agent, counted) = (self.clone(), count.clone());
                let started = std::thread::Builder::new().name("prolog".into()).spawn(move || {
                    if let Err(error) = agent.serve(connection) {
                        tracing::warn!("a prolog or epilog was not answered: {error}");
                    }
                    counted.fetch_sub(1, Ordering::AcqRel);
                });
                if let Err(error) = started {
                    count.fetch_sub(1, Ordering::AcqRel);
                    tracing::error!(%error, "no thread for a prolog");
                }
            }
            self.wake();
        });
        Ok(())
    }

    fn serve(&self, connection: UnixStream) -> Result<(), ChannelError> {
        connection.set_nonblocking(false)?;
        let peer = socket_peercred(&connection).map_err(io::Error::from)?.uid;
        let mut channel = Channel::plain(connection, CONNECTION_TIMEOUT);
        let (request, _) = channel.receive::<Request>(REQUEST_LEN_MAX)?;
        let is_allowed = peer.is_root() || peer == rustix::process::geteuid();
        let answered = match request {
            _ if !is_allowed => Err(Error::Refused(format!(
                "uid {} may not ask the agent; prologs run as root",
                peer.as_raw()
            ))),
            Request::Enter { job, uid } => self.enter(&job, uid).map(|()| Reply::Done),
            Request::EnterPod { job, token, owns_cache } => {
                self.enter_pod(&job, token, owns_cache).map(|()| match owns_cache {
                    true => Reply::Cache { path: self.places.path(&CacheOwner::Job(job)) },
                    false => Reply::Done,
                })
            }
            Request::Leave { job } => self.leave(&job, "ended on the node").map(|()| Reply::Done),
            _ => Err(Error::Refused("the agent takes prologs and epilogs only".into())),
        };
        let reply = match answered {
            Ok(reply) => reply,
            Err(Error::Refused(reason) | Error::NoAccount(reason)) => Reply::Refused { reason },
            Err(Error::Unavailable(reason)) => Reply::Unavailable { reason },
            Err(error) => Reply::Unavailable { reason: error.to_string() },
        };
        channel.set_deadline(ANSWER_TIMEOUT);
        channel.send(&reply, &[])
    }
}
