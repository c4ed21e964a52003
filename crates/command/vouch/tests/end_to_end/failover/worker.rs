//! A client with opens and a contended lock. It checks that no acknowledged change is lost, and
//! that no lock is granted twice.

use std::sync::atomic::AtomicUsize;

use vouch_nfs4::op::LockType;
use vouch_nfs4::{ClientId, Filehandle, Status, Verifier};
use vouch_nfs4_client::{Config, Identity, Lock, OpenFile, Plain};
use vouch_oncrpc::AuthSys;

use super::audited_operations::AuditedOperations;
use super::pauses::FirstSuccesses;
use crate::prelude::*;

/// The NFS service of all heads.
pub(super) struct Service {
    /// Clients connect to this address, which moves from head to head.
    pub(super) address: SocketAddr,
    /// The lease epoch of the head that has the address.
    pub(super) epoch: AtomicU64,
}

/// Shared by all workers of a run.
#[derive(Default)]
pub(super) struct Ledger {
    /// The worker that holds the lock, counted from 1; 0 for none.
    holder: AtomicUsize,
    /// Changed under the lock only.
    counter: AtomicU64,
    pub(super) granted: AtomicU64,
    pub(super) granted_twice: AtomicU64,
    /// Increments that a later reader did not find.
    pub(super) lost: AtomicU64,
    pub(super) stop: AtomicBool,
}

#[derive(Clone)]
struct Files {
    directory: Filehandle,
    own: OpenFile,
    shared: OpenFile,
}

pub(super) struct Worker {
    pub(super) number: usize,
    service: Arc<Service>,
    ledger: Arc<Ledger>,
    client: Client,
    /// The head's epoch that the client has last recovered with.
    epoch: u64,
    opened_by: ClientId,
    files: Files,
    lock: Option<Lock>,
    pub(super) acknowledged: u64,
    pub(super) progress: Arc<AtomicU64>,
    /// First acknowledged change, and first new lock, in each epoch.
    pub(super) first_changes: FirstSuccesses,
    pub(super) first_locks: FirstSuccesses,
}

impl Worker {
    pub(super) async fn connect(
        number: usize,
        service: Arc<Service>,
        ledger: Arc<Ledger>,
    ) -> Worker {
        let epoch = service.epoch.load(Ordering::SeqCst);
        let (client, files) = loop {
            match open_files(service.address, number).await {
                Ok(opened) => break opened,
                Err(_) => tokio::time::sleep(RETRY).await,
            }
        };
        Worker {
            number,
            service,
            ledger,
            opened_by: client.id(),
            client,
            epoch,
            files,
            lock: None,
            acknowledged: 0,
            progress: Arc::default(),
            first_changes: FirstSuccesses::default(),
            first_locks: FirstSuccesses::default(),
        }
    }

    pub(super) async fn work(mut self) -> Worker {
        while !self.ledger.stop.load(Ordering::SeqCst) {
            self.append().await;
            self.create_file().await;
            self.increment_under_lock().await;
        }
        self
    }

    async fn append(&mut self) {
        let number = self.acknowledged;
        self.until_done(|client, files| async move {
            write(&client, &files.own, number * RECORD_LEN, number).await
        })
        .await;
        self.change_acknowledged();
    }

    async fn create_file(&mut self) {
        let name = created_name(self.number, self.acknowledged);
        self.until_done(|client, files| {
            let name = name.clone();
            async move {
                let mode = Attributes { mode: Some(0o644), ..Attributes::default() };
                let file = client
                    .open(&files.directory, name.as_bytes(), ShareAccess::BOTH, Some(&mode))
                    .await?;
                client.close_file(file).await
            }
        })
        .await;
        self.change_acknowledged();
    }

    async fn increment_under_lock(&mut self) {
        let owner = owner(self.number);
        let lock = loop {
            let owner = owner.clone();
            let requested = self
                .until_done(|client, mut files| {
                    let owner = owner.clone();
                    async move {
                        client.lock(&mut files.shared, &owner, LockType::Write, 0, RECORD_LEN).await
                    }
                })
                .await;
            match requested {
                Ok(lock) => break lock,
                Err(_) => tokio::time::sleep(LOCK_POLL).await,
            }
        };
        let expected = self.ledger.begin_turn(self.number);
        self.first_locks.note(self.epoch);
        self.lock = Some(lock);
        let (bytes, _) = self
            .until_done(|client, files| async move {
                client.read(&files.shared, 0, RECORD_LEN as u32).await
            })
            .await;
        let found = bytes.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        if found != expected {
            self.ledger.lost.fetch_add(1, Ordering::SeqCst);
        }
        self.until_done(|client, files| async move {
            write(&client, &files.shared, 0, expected + 1).await
        })
        .await;
        self.change_acknowledged();
        self.ledger.end_turn(expected + 1);
        let opened_by = self.opened_by;
        let Some(mut lock) = self.lock.take() else { return };
        // After a takeover nothing is left to unlock.
        while self.opened_by == opened_by {
            let unlocked = self.client.unlock(&self.files.shared, &mut lock, 0, RECORD_LEN);
            match self.unless_moved(unlocked).await {
                Some(Ok(())) => return,
                Some(Err(error)) if error.status() == Some(Status::DELAY) => {
                    tokio::time::sleep(RETRY).await
                }
                Some(Err(error)) if !means_restart(&error) => {
                    panic!("worker {} cannot unlock: {error}", self.number)
                }
                _ => self.recover().await,
            }
        }
    }

    fn change_acknowledged(&mut self) {
        self.acknowledged += 1;
        self.progress.fetch_add(1, Ordering::SeqCst);
        self.first_changes.note(self.epoch);
    }

    /// Returns `None` after a takeover. Until then the client waits, as over TCP: the server could
    /// execute a call twice that the client sends again in another session.
    async fn unless_moved<T>(
        &self,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Option<Result<T, Error>> {
        tokio::pin!(call);
        loop {
            match tokio::time::timeout(RETRY, &mut call).await {
                Ok(result) => return Some(result),
                Err(_) if self.service.epoch.load(Ordering::SeqCst) != self.epoch => return None,
                Err(_) => {}
            }
        }
    }

    async fn until_done<T, F: Future<Output = Result<T, Error>>>(
        &mut self,
        mut operation: impl FnMut(Client, Files) -> F,
    ) -> T {
        loop {
            let call = operation(self.client.clone(), self.files.clone());
            match self.unless_moved(call).await {
                Some(Ok(value)) => return value,
                Some(Err(error))
                    if matches!(error.status(), Some(Status::GRACE | Status::DELAY)) =>
                {
                    tokio::time::sleep(RETRY).await
                }
                Some(Err(error)) if !means_restart(&error) => {
                    panic!("worker {}: {error}", self.number)
                }
                _ => self.recover().await,
            }
        }
    }

    async fn recover(&mut self) {
        for attempt in 1.. {
            let epoch = self.service.epoch.load(Ordering::SeqCst);
            // A slow machine gets more time at each attempt.
            match tokio::time::timeout(RECOVERY_STEP * attempt, self.try_recover()).await {
                Ok(Ok(())) => {
                    self.epoch = epoch;
                    return;
                }
                Ok(Err(error)) if is_loss_of_state(&error) => {
                    panic!("worker {} cannot reclaim: {error}", self.number)
                }
                _ => tokio::time::sleep(RETRY).await,
            }
        }
    }

    async fn try_recover(&mut self) -> Result<(), Error> {
        let client = connect(self.service.address, self.number).await?;
        if client.id() != self.opened_by {
            client.reclaim_open(&mut self.files.own).await?;
            client
                .reclaim_lock(
                    &mut self.files.own,
                    &holder(self.number),
                    LockType::Write,
                    0,
                    RECORD_LEN,
                )
                .await?;
            client.reclaim_open(&mut self.files.shared).await?;
            if let Some(lock) = &mut self.lock {
                *lock = client
                    .reclaim_lock(
                        &mut self.files.shared,
                        &owner(self.number),
                        LockType::Write,
                        0,
                        RECORD_LEN,
                    )
                    .await?;
            }
            self.opened_by = client.id();
        }
        self.client = client;
        complete_reclaims(&self.client).await
    }
}

/// Counts the lost changes of a client, and its changes without an audit record. The client has
/// made `acknowledged` changes, numbered from 0: an append to its own file, a creation and an
/// increment in each turn.
pub(super) fn missing(
    client: usize,
    acknowledged: u64,
    data: &Path,
    audited: &AuditedOperations,
) -> Missing {
    let own = fs::read(data.join(own_name(client))).unwrap_or_default();
    let has_record = |number: &u64| {
        let at = (number * RECORD_LEN) as usize;
        own.get(at..at + 8) == Some(&number.to_be_bytes()[..])
    };
    let numbers =
        |of_turn: u64| (0..acknowledged).filter(move |number| number % CHANGES == of_turn);
    let created = || numbers(1).map(|number| created_name(client, number));
    let records = numbers(0).filter(|number| !has_record(number)).count();
    let files = created().filter(|name| !data.join(name).exists()).count();
    let unrecorded = numbers(0)
        .filter(|number| !audited.written.contains(&(own_name(client), (number + 1) * RECORD_LEN)))
        .count();
    let audit_records =
        created().filter(|name| !audited.opened.contains(name)).count() + unrecorded;
    Missing { changes: records + files, audit_records }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Missing {
    pub(super) changes: usize,
    pub(super) audit_records: usize,
}

impl Ledger {
    /// For the client that got the lock. Returns the value that the shared file must have.
    pub(super) fn begin_turn(&self, client: usize) -> u64 {
        let before = self.holder.swap(client + 1, Ordering::SeqCst);
        if before != 0 {
            self.granted_twice.fetch_add(1, Ordering::SeqCst);
        }
        self.granted.fetch_add(1, Ordering::SeqCst);
        self.counter.load(Ordering::SeqCst)
    }

    /// The new value is acknowledged, and the lock still held.
    pub(super) fn end_turn(&self, value: u64) {
        self.counter.store(value, Ordering::SeqCst);
        self.holder.store(0, Ordering::SeqCst);
    }

    /// Increments that were lost, with the last one.
    pub(super) fn lost_increments(&self, data: &Path) -> usize {
        let shared = fs::read(data.join("shared")).unwrap_or_default();
        let is_last_there =
            shared.get(..8) == Some(&self.counter.load(Ordering::SeqCst).to_be_bytes()[..]);
        self.lost.load(Ordering::SeqCst) as usize + usize::from(!is_last_there)
    }
}

async fn open_files(address: SocketAddr, number: usize) -> Result<(Client, Files), Error> {
    let client = connect(address, number).await?;
    complete_reclaims(&client).await?;
    let directory = client.walk(b"export").await?.handle;
    // Clients that are other users write to the shared file and lock the others.
    let mode = Attributes { mode: Some(0o666), ..Attributes::default() };
    let mut own = client
        .open(&directory, own_name(number).as_bytes(), ShareAccess::BOTH, Some(&mode))
        .await?;
    // Until the end of the run.
    client
        .lock(&mut own, &holder(number), LockType::Write, 0, RECORD_LEN)
        .await?
        .map_err(|_| Error::Lost)?;
    let shared = client.open(&directory, b"shared", ShareAccess::BOTH, Some(&mode)).await?;
    Ok((client, Files { directory, own, shared }))
}

/// An earlier attempt may have done it.
async fn complete_reclaims(client: &Client) -> Result<(), Error> {
    match client.reclaim_complete().await {
        Err(error) if error.status() == Some(Status::COMPLETE_ALREADY) => Ok(()),
        completed => completed,
    }
}

async fn connect(address: SocketAddr, number: usize) -> Result<Client, Error> {
    let identity =
        Identity::new(format!("failover worker {number}").into_bytes(), Verifier([7; 8]));
    let identity = Identity { reclaim_complete: false, ..identity };
    Client::connect(Config::new(address, 2, identity, Plain::sys(&AuthSys::default()))).await
}

async fn write(client: &Client, file: &OpenFile, offset: u64, number: u64) -> Result<(), Error> {
    let mut record = [0; RECORD_LEN as usize];
    record[..8].copy_from_slice(&number.to_be_bytes());
    match client.write(file, offset, &record, StableHow::FileSync).await? {
        (count, ..) if u64::from(count) == RECORD_LEN => Ok(()),
        _ => Err(Error::Lost),
    }
}

fn means_restart(error: &Error) -> bool {
    let statuses = [Status::BADSESSION, Status::DEADSESSION, Status::STALE_CLIENTID];
    error.status().map_or(!matches!(error, Error::Mismatch(_) | Error::Unreadable(_)), |status| {
        statuses.contains(&status)
    })
}

fn is_loss_of_state(error: &Error) -> bool {
    let statuses = [
        Status::NO_GRACE,
        Status::RECLAIM_BAD,
        Status::RECLAIM_CONFLICT,
        Status::DENIED,
        Status::STALE,
    ];
    error.status().is_some_and(|status| statuses.contains(&status))
}

fn own_name(worker: usize) -> String {
    format!("own-{worker}")
}

fn created_name(worker: usize, number: u64) -> String {
    format!("created-{worker}-{number}")
}

fn owner(worker: usize) -> Vec<u8> {
    format!("owner {worker}").into_bytes()
}

fn holder(worker: usize) -> Vec<u8> {
    format!("holder {worker}").into_bytes()
}

const RECORD_LEN: u64 = 64;

/// Changes of one turn of [`Worker::work`].
const CHANGES: u64 = 3;

const RETRY: Duration = Duration::from_millis(20);
const LOCK_POLL: Duration = Duration::from_millis(30);
const RECOVERY_STEP: Duration = Duration::from_secs(2);
