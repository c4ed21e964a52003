//! A new session, and reclaims of opens and locks (RFC 8881 §8.4.2.1).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use vouch_nfs4::op::{Args, DelegationType, Op, OpenArgs, OpenClaim, OpenHow, Results, ShareDeny};
use vouch_nfs4::{Bytes, ClientId, OwnerSeq, StateOwner, Status};
use vouch_nfs4_client::Error;

use super::Session;
use crate::open_file::OpenFile;

impl Session {
    /// Returns when a recovery that began after generation `seen` is complete. The recovery goes on
    /// if the caller gives up.
    pub(super) async fn recover(self: &Arc<Self>, seen: u64) {
        let session = self.clone();
        let _ = tokio::spawn(async move {
            let _guard = session.recovering.lock().await;
            if session.generation.load(Ordering::Acquire) == seen {
                session.recover_alone().await;
                session.generation.fetch_add(1, Ordering::Release);
            }
        })
        .await;
    }

    async fn recover_alone(self: &Arc<Self>) {
        let mut is_reported = false;
        loop {
            match self.recover_once().await {
                Ok(()) if is_reported => return tracing::info!("the server answers again"),
                Ok(()) => return,
                Err(error) if !is_reported => {
                    is_reported = true;
                    tracing::warn!("the server does not answer: {error}; trying again");
                }
                Err(_) => {}
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn recover_once(self: &Arc<Self>) -> Result<(), Error> {
        let probe = self.client.compound().send();
        let is_usable =
            tokio::time::timeout(CONNECT_MAX, probe).await.is_ok_and(|sent| sent.is_ok());
        if !is_usable {
            tokio::time::timeout(CONNECT_MAX, self.client.renew())
                .await
                .unwrap_or(Err(Error::Lost))?;
        }
        let files: Vec<Arc<OpenFile>> = self.files.lock().values().cloned().collect();
        // An attempt before may have ended in the middle.
        let id = self.client.id();
        let is_new = *self.reclaimed.lock() != id;
        let mut missed = Vec::new();
        for file in files {
            let previous = OpenClaim::Previous(DelegationType::None);
            let is_held = match is_new {
                true => self.reopen(&file, previous).await? && self.relock(&file, true).await?,
                false => self.is_valid(&file).await?,
            };
            if !is_held {
                missed.push(file);
            }
        }
        if is_new {
            match self.client.reclaim_complete().await {
                Ok(()) | Err(Error::Refused { status: Status::COMPLETE_ALREADY, .. }) => {}
                Err(error) => return Err(error),
            }
            *self.reclaimed.lock() = id;
        }
        for file in missed {
            // The lease has expired: another client may have changed the file meanwhile.
            let is_open = self.reopen(&file, OpenClaim::Fh).await?;
            if !(is_open && self.relock(&file, false).await?) {
                tracing::warn!("file {}: an open or a lock is lost", file.inode.ino());
                file.set_lost();
            }
        }
        Ok(())
    }

    /// False if the server refuses.
    async fn reopen(&self, file: &OpenFile, claim: OpenClaim<'_>) -> Result<bool, Error> {
        loop {
            let owner = StateOwner { client: ClientId(0), owner: Bytes(&file.owner) };
            let args = Args::Open(OpenArgs {
                seq: OwnerSeq(0),
                access: file.access,
                deny: ShareDeny(0),
                owner,
                how: OpenHow::NoCreate,
                claim,
            });
            let compound = self.client.compound().cached().as_caller(file.caller.0.as_ref());
            let reply = compound.putfh(&file.inode.handle).op(&args).send().await?;
            match reply.status() {
                Status::DELAY | Status::GRACE => tokio::time::sleep(RETRY).await,
                Status::OK => {
                    let mut results = reply.results();
                    results.skip(&[Op::PUTFH])?;
                    let Results::Open(Ok(ok)) = results.next_ok()? else {
                        return Err(Error::Mismatch("expected the result of OPEN"));
                    };
                    file.set_stateid(ok.stateid);
                    return Ok(true);
                }
                status if is_session_error(status) => return Err(Error::Lost),
                _ => return Ok(false),
            }
        }
    }

    /// Locks the ranges again that were locked through this open. False if one is lost.
    async fn relock(&self, file: &OpenFile, reclaim: bool) -> Result<bool, Error> {
        let mut all = true;
        for (owner, ranges) in file.inode.locks.of_file(file.number) {
            file.inode.locks.forget_stateid(owner);
            for range in ranges {
                all &=
                    file.inode.locks.lock_once(&self.client, file, owner, range, reclaim).await?;
            }
        }
        Ok(all)
    }

    async fn is_valid(&self, file: &OpenFile) -> Result<bool, Error> {
        let args =
            vouch_nfs4::op::TestStateidArgs { stateids: vouch_nfs4::List(vec![file.stateid()]) };
        let reply = self.client.compound().op(&Args::TestStateid(args)).send().await?;
        match reply.results().next_ok()? {
            Results::TestStateid(Ok(ok)) => Ok(ok.statuses.0 == [Status::OK]),
            _ => Err(Error::Mismatch("expected the result of TEST_STATEID")),
        }
    }
}

const fn is_session_error(status: Status) -> bool {
    matches!(
        status,
        Status::BADSESSION
            | Status::DEADSESSION
            | Status::STALE_CLIENTID
            | Status::CONN_NOT_BOUND_TO_SESSION
    )
}

const RETRY: Duration = Duration::from_millis(500);
const CONNECT_MAX: Duration = Duration::from_secs(20);
