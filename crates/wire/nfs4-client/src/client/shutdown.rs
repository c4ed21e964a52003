//! Destroys the session, the client identifier and the contexts at the server.

use std::time::Duration;

use tokio::sync::oneshot;
use vouch_nfs4::op::{Args, DestroyClientidArgs, DestroySessionArgs};

use super::{Client, LinkState, Shared, State};
use crate::Error;

const DESTROY_TIMEOUT: Duration = Duration::from_secs(1);

impl Client {
    /// Destroys the server's state of this client, and ends all tasks.
    pub async fn close(self) -> Result<(), Error> {
        let (session, client) = {
            let state = self.shared.state.lock();
            (state.core.session(), state.client)
        };
        let mut outcome = Ok(());
        if let Some(session) = session {
            let reply = self
                .sessionless()
                .op(&Args::DestroySession(DestroySessionArgs { session }))
                .send()
                .await;
            outcome = reply.and_then(|reply| reply.results().next_ok().map(drop));
            let reply = self
                .sessionless()
                .op(&Args::DestroyClientid(DestroyClientidArgs { client }))
                .send()
                .await;
            outcome = outcome.and(reply.and_then(|reply| reply.results().next_ok().map(drop)));
        }
        self.shared.destroy_context().await;
        self.shared.shut_down();
        outcome
    }
}

impl Shared {
    async fn destroy_context(&self) {
        let answered = {
            let mut state = self.state.lock();
            let Some(at) =
                state.connections.iter().position(|connection| connection.link == LinkState::Up)
            else {
                return;
            };
            let Some((xid, record)) = state.core.destroy_context() else { return };
            let (tell, answered) = oneshot::channel();
            state.context_end = Some((xid, tell));
            state.send(at, &record);
            answered
        };
        let _ = tokio::time::timeout(DESTROY_TIMEOUT, answered).await;
    }
}

impl State {
    pub(super) fn destroy_previous_context(&mut self, at: usize) {
        if let Some(record) = self.core.destroy_previous_context() {
            self.send(at, &record);
        }
    }

    pub(super) fn notice_context_end(&mut self, record: &[u8]) {
        if let Some((_, tell)) =
            self.context_end.take_if(|(xid, _)| record.first_chunk() == Some(&xid.to_be_bytes()))
        {
            let _ = tell.send(());
        }
    }

    fn send(&mut self, at: usize, record: &[u8]) {
        if let Some(connection) = self.connections.get_mut(at) {
            connection.out.raw(record);
            connection.wake.notify_one();
        }
    }
}
