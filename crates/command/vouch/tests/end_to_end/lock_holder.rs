//! A client with an open file and a lock, which it reclaims from the next head after a takeover.
//! The Kerberos tests include this file by path.

use std::time::{Duration, Instant};

use vouch_nfs4::op::{LockType, ShareAccess, StableHow};
use vouch_nfs4::{Attributes, ClientId, Status};
use vouch_nfs4_client::{Client, Config, Error, Lock, OpenFile};

pub(crate) struct LockHolder {
    client: Client,
    opened_by: ClientId,
    file: OpenFile,
    lock: Lock,
    name: String,
}

impl LockHolder {
    /// Creates `name` in the export, locks it and writes to it.
    pub(crate) async fn connect(mut config: Config, name: String) -> Self {
        // Reclaims come before RECLAIM_COMPLETE.
        config.identity.reclaim_complete = false;
        let client = Client::connect(config).await.expect("the first head serves");
        complete_reclaims(&client).await;
        let root = client.walk(b"export").await.expect("the export").handle;
        let mode = Attributes { mode: Some(0o644), ..Attributes::default() };
        let mut file = client
            .open(&root, name.as_bytes(), ShareAccess::BOTH, Some(&mode))
            .await
            .expect("a new file");
        let lock = client
            .lock(&mut file, OWNER, LockType::Write, 0, LOCKED_LEN)
            .await
            .expect("an answer")
            .expect("nobody else locks");
        let holder = LockHolder { opened_by: client.id(), client, file, lock, name };
        holder.write(0, BEFORE).await;
        holder
    }

    /// Waits for the next head, and writes under the lock that it has reclaimed.
    pub(crate) async fn reclaim(&mut self) {
        let end = Instant::now() + TAKEOVER_MAX;
        while let Err(error) = self.client.renew().await {
            assert!(Instant::now() < end, "{}: no head takes over: {error}", self.name);
            tokio::time::sleep(RETRY).await;
        }
        assert_ne!(
            self.client.id(),
            self.opened_by,
            "{}: the next head knows nothing of the session",
            self.name
        );
        self.client
            .reclaim_open(&mut self.file)
            .await
            .unwrap_or_else(|error| panic!("{}, OPEN: {error}", self.name));
        let lock =
            self.client.reclaim_lock(&mut self.file, OWNER, LockType::Write, 0, LOCKED_LEN).await;
        self.lock = lock.unwrap_or_else(|error| panic!("{}, LOCK: {error}", self.name));
        complete_reclaims(&self.client).await;
        self.write(BEFORE.len() as u64, AFTER).await;
    }

    /// Another client gets the lock only when this one has released it.
    pub(crate) async fn release_to(mut self, rival: &Client) {
        let root = until_answered(|| rival.walk(b"export")).await.handle;
        let mut file =
            until_answered(|| rival.open(&root, self.name.as_bytes(), ShareAccess::BOTH, None))
                .await;
        let denied = rival
            .lock(&mut file, b"rival", LockType::Write, 0, LOCKED_LEN)
            .await
            .expect("an answer");
        assert!(denied.is_err(), "{}: the lock is granted twice", self.name);
        self.client
            .unlock(&self.file, &mut self.lock, 0, LOCKED_LEN)
            .await
            .expect("the lock was reclaimed");
        let granted = rival
            .lock(&mut file, b"rival", LockType::Write, 0, LOCKED_LEN)
            .await
            .expect("an answer");
        assert!(granted.is_ok(), "{}: the lock stays", self.name);
        let (bytes, _) = rival.read(&file, 0, 100).await.expect("the content");
        assert_eq!(bytes, [BEFORE, AFTER].concat(), "{}", self.name);
        self.client.close_file(self.file).await.expect("the file was reclaimed");
    }

    async fn write(&self, offset: u64, bytes: &[u8]) {
        let (count, ..) = self
            .client
            .write(&self.file, offset, bytes, StableHow::FileSync)
            .await
            .expect("a write");
        assert_eq!(count as usize, bytes.len());
    }
}

/// NFSv4.0 has no RECLAIM_COMPLETE.
async fn complete_reclaims(client: &Client) {
    if client.minor() > 0 {
        client.reclaim_complete().await.expect("reclaims end once");
    }
}

/// Calls again during the grace period.
pub(crate) async fn until_answered<T, F: Future<Output = Result<T, Error>>>(
    mut call: impl FnMut() -> F,
) -> T {
    loop {
        match call().await {
            Err(error) if matches!(error.status(), Some(Status::GRACE | Status::DELAY)) => {
                tokio::time::sleep(RETRY).await
            }
            result => return result.expect("an answer"),
        }
    }
}

const OWNER: &[u8] = b"holder";
const LOCKED_LEN: u64 = 100;
const BEFORE: &[u8] = b"before ";
const AFTER: &[u8] = b"after";
const RETRY: Duration = Duration::from_millis(20);
const TAKEOVER_MAX: Duration = Duration::from_secs(120);
