//! One client of a history: chooses its calls by the seed, sends them, and records each.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use vouch_nfs4::op::*;
use vouch_nfs4::{ClientId, Filehandle, Name, Verifier};
use vouch_nfs4_client::{Client, Error as CallError, Lock, OpenFile};

use crate::client::{self, Answer, answer, is_later, refused};
use crate::history::{Call, Operation, Outcome, volatile_name};
use crate::model::{CELLS, LOCK_BYTES, NAMES};
use crate::rng::Rng;

#[derive(Clone)]
pub(crate) struct Objects {
    pub(crate) names: Filehandle,
    pub(crate) base: Filehandle,
    pub(crate) base_id: u64,
    pub(crate) file: Filehandle,
    pub(crate) directory: Filehandle,
}

/// 4.0 has no such wish, and these clients no callbacks there.
pub(crate) fn no_delegation(client: &Client, access: ShareAccess) -> ShareAccess {
    if client.minor() == 0 { access } else { access | ShareAccess::WANT_NO_DELEG }
}

pub(crate) struct Worker {
    pub(crate) client: Client,
    pub(crate) id: ClientId,
    pub(crate) number: u16,
    pub(crate) rng: Rng,
    pub(crate) objects: Objects,
    pub(crate) start: Instant,
    pub(crate) log: Arc<Mutex<Vec<Operation>>>,
    pub(crate) lock: Option<(u16, u8, u8, Lock)>,
    pub(crate) lock_file: Option<OpenFile>,
    pub(crate) open: Option<(u16, OpenFile)>,
    /// Next lock or open owner: no two clients use the same.
    pub(crate) owners: u16,
    pub(crate) stride: u16,
}

/// A call and its outcome, before its interval is known.
struct Seen {
    call: Call,
    outcome: Outcome,
    change: Option<u64>,
    verifier: Option<u64>,
}

impl Seen {
    const fn new(call: Call, outcome: Outcome) -> Self {
        Self { call, outcome, change: None, verifier: None }
    }
}

impl Worker {
    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn record(&self, object: &str, start: u64, has_reply: bool, seen: Seen) {
        let end = has_reply.then(|| self.now());
        self.log.lock().push(Operation {
            id: 0,
            client: self.number,
            object: object.into(),
            start,
            end,
            call: seen.call,
            outcome: seen.outcome,
            change: seen.change,
            verifier: seen.verifier,
        });
    }

    /// Repeats the call after DELAY and GRACE. Its interval begins with the first attempt: a copy of
    /// the call may have been executing when DELAY was answered.
    async fn call<T, F: Future<Output = Result<T, CallError>>>(
        &self,
        object: &str,
        call: Call,
        mut send: impl FnMut(Client) -> F,
        read: impl FnOnce(T, Call) -> Seen,
    ) -> bool {
        let (begun, start) = (Instant::now(), self.now());
        loop {
            match answer(&self.client, send(self.client.clone()).await).await {
                Answer::Ok(value) => {
                    self.record(object, start, true, read(value, call));
                    return true;
                }
                Answer::Status(status) if is_later(status) => {
                    if begun.elapsed() > LATER_MAX {
                        self.record(object, start, false, Seen::new(call, Outcome::Unknown));
                        return false;
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Answer::Status(status) => {
                    self.record(object, start, true, Seen::new(call, refused(status)));
                    return false;
                }
                Answer::Lost => {
                    self.record(object, start, false, Seen::new(call, Outcome::Unknown));
                    return false;
                }
            }
        }
    }

    /// A server that restarted, or ended the lease, gives the client another id. The state of the
    /// earlier one ended at an unknown time.
    fn forget_lost_state(&mut self) {
        let id = self.client.id();
        if std::mem::replace(&mut self.id, id) == id {
            return;
        }
        if let Some((owner, ..)) = self.lock.take() {
            self.drop_owner("lock", owner);
        }
        if let Some((owner, _)) = self.open.take() {
            self.drop_owner("share", owner);
        }
        self.lock_file = None;
    }

    pub(crate) async fn one_call(&mut self) {
        self.forget_lost_state();
        match self.rng.below(10) {
            0..4 => self.file_call().await,
            4..8 => self.names_call().await,
            8 => self.lock_call().await,
            _ => self.open_call().await,
        }
    }

    async fn file_call(&mut self) {
        let file = self.objects.file;
        let cell = self.rng.below(CELLS as u64) as u8;
        let offset = u64::from(cell) * CELL_LEN;
        match self.rng.below(10) {
            0..3 => {
                // Unique in the history.
                let value = self.rng.next() >> 16 | 1;
                let how = match self.rng.percent(50) {
                    true => StableHow::FileSync,
                    false => StableHow::Unstable,
                };
                let data = value.to_be_bytes();
                let send = |client: Client| async move {
                    client::write(&client, &file, offset, &data, how).await
                };
                let call = Call::Write { cell, value, stable: false };
                self.call("file", call, send, |(stable, verifier), _| Seen {
                    verifier: Some(verifier),
                    ..Seen::new(Call::Write { cell, value, stable }, Outcome::Done)
                })
                .await;
            }
            3..7 => {
                let send = |client: Client| async move {
                    client::read(&client, &file, offset, CELL_LEN as u32).await
                };
                let call = Call::Read { cell, cached: false };
                self.call("file", call, send, |data, call| {
                    let outcome = match <[u8; 8]>::try_from(&data[..]) {
                        Ok(data) => Outcome::Value(u64::from_be_bytes(data)),
                        Err(_) if data.is_empty() => Outcome::Absent,
                        Err(_) => Outcome::Value(PARTIAL),
                    };
                    Seen::new(call, outcome)
                })
                .await;
            }
            7 => {
                let cells = self.rng.below(CELLS as u64 + 1) as u8;
                let size = u64::from(cells) * CELL_LEN;
                let send =
                    |client: Client| async move { client::truncate(&client, &file, size).await };
                let call = Call::Truncate { cells };
                self.call("file", call, send, |(), call| Seen::new(call, Outcome::Done)).await;
            }
            8 => {
                let send = |client: Client| async move { client::attributes(&client, &file).await };
                self.call("file", Call::Size, send, |(change, size), call| Seen {
                    change,
                    ..Seen::new(call, Outcome::Value(size.div_ceil(CELL_LEN)))
                })
                .await;
            }
            _ => {
                let send = |client: Client| async move { client::commit(&client, &file).await };
                self.call("file", Call::Commit, send, |verifier, call| Seen {
                    verifier: Some(verifier),
                    ..Seen::new(call, Outcome::Done)
                })
                .await;
            }
        }
    }

    async fn names_call(&mut self) {
        let directory = self.objects.names;
        let name = self.rng.below(NAMES as u64) as u8;
        let text = volatile_name(name);
        let bytes = text.as_bytes();
        match self.rng.below(12) {
            0 | 1 => {
                let how = CreateVerifier(self.rng.next());
                let send =
                    |client: Client| async move { how.create(&client, &directory, bytes).await };
                let call = Call::Create { name };
                self.call("names", call, send, |(), call| Seen::new(call, Outcome::Done)).await;
            }
            2 => {
                let send =
                    |client: Client| async move { client.mkdir(&directory, bytes, 0o777).await };
                let call = Call::Mkdir { name };
                self.call("names", call, send, |_, call| Seen::new(call, Outcome::Done)).await;
            }
            3 => {
                let base = self.objects.base;
                let send =
                    |client: Client| async move { client.link(&base, &directory, bytes).await };
                let call = Call::Link { name, file: self.objects.base_id };
                self.call("names", call, send, |(), call| Seen::new(call, Outcome::Done)).await;
            }
            4 | 5 => {
                let to = (name + 1 + self.rng.below(NAMES as u64 - 1) as u8) % NAMES as u8;
                let new = volatile_name(to);
                let new = new.as_bytes();
                let send = |client: Client| async move {
                    client.rename(&directory, bytes, &directory, new).await
                };
                let call = Call::Rename { from: name, to };
                self.call("names", call, send, |(), call| Seen::new(call, Outcome::Done)).await;
            }
            6 | 7 => {
                let send = |client: Client| async move { client.remove(&directory, bytes).await };
                let call = Call::Remove { name };
                self.call("names", call, send, |(), call| Seen::new(call, Outcome::Done)).await;
            }
            8 | 9 => {
                let text = &text;
                let send =
                    |client: Client| async move { client::lookup(&client, &directory, text).await };
                let call = Call::Lookup { name };
                self.call("names", call, send, |id, call| Seen::new(call, Outcome::Value(id)))
                    .await;
            }
            10 => {
                let send = |client: Client| async move {
                    client::list(&client, &directory, LIST_PAGE).await
                };
                self.call("names", Call::List, send, |names, call| {
                    Seen::new(call, Outcome::Names(names))
                })
                .await;
            }
            _ => {
                let send =
                    |client: Client| async move { client::attributes(&client, &directory).await };
                self.call("names", Call::Change, send, |(change, _), call| Seen {
                    change,
                    ..Seen::new(call, Outcome::Done)
                })
                .await;
            }
        }
    }

    const fn next_owner(&mut self) -> u16 {
        self.owners += self.stride;
        self.owners
    }

    /// The state may be gone at the server, now or later.
    fn drop_owner(&self, object: &str, owner: u16) {
        let seen = Seen::new(Call::Drop { owner }, Outcome::Unknown);
        self.record(object, 0, false, seen);
    }

    async fn lock_call(&mut self) {
        if let Some((owner, first, len, mut lock)) = self.lock.take() {
            let Some(file) = &self.lock_file else { return };
            let start = self.now();
            let sent = self.client.unlock(file, &mut lock, first.into(), len.into()).await;
            let call = Call::Unlock { owner, first, len };
            match answer(&self.client, sent).await {
                Answer::Ok(()) => {
                    self.record("lock", start, true, Seen::new(call, Outcome::Done));
                }
                Answer::Status(_) | Answer::Lost => {
                    self.record("lock", start, false, Seen::new(call, Outcome::Unknown));
                    self.drop_owner("lock", owner);
                    self.lock_file = None;
                }
            }
            return;
        }
        if self.lock_file.is_none() {
            let access = no_delegation(&self.client, ShareAccess::BOTH);
            let directory = self.objects.directory;
            let opened = self.client.open(&directory, b"lock", access, None).await;
            match answer(&self.client, opened).await {
                Answer::Ok(file) => self.lock_file = Some(file),
                Answer::Status(_) | Answer::Lost => return,
            }
        }
        let owner = self.next_owner();
        let first = self.rng.below(LOCK_BYTES as u64) as u8;
        let len = 1 + self.rng.below(LOCK_BYTES as u64 - u64::from(first)) as u8;
        let write = self.rng.percent(60);
        let kind = if write { LockType::Write } else { LockType::Read };
        let Some(file) = &mut self.lock_file else { return };
        let start = self.start.elapsed().as_nanos() as u64;
        let name = format!("lock {owner}");
        let sent = self.client.lock(file, name.as_bytes(), kind, first.into(), len.into()).await;
        let call = Call::Lock { owner, write, first, len, reclaim: false };
        match answer(&self.client, sent).await {
            Answer::Ok(Ok(lock)) => {
                self.record("lock", start, true, Seen::new(call, Outcome::Done));
                self.lock = Some((owner, first, len, lock));
            }
            Answer::Ok(Err(_)) => {
                self.record("lock", start, true, Seen::new(call, Outcome::Denied));
            }
            Answer::Status(status) if is_later(status) => {}
            Answer::Status(_) | Answer::Lost => {
                self.record("lock", start, false, Seen::new(call, Outcome::Unknown));
                self.drop_owner("lock", owner);
                self.lock_file = None;
            }
        }
    }

    async fn open_call(&mut self) {
        if let Some((owner, file)) = self.open.take() {
            let start = self.now();
            let sent = self.client.close_file(file).await;
            let answered = answer(&self.client, sent).await;
            let is_closed = matches!(answered, Answer::Ok(()));
            let outcome = if is_closed { Outcome::Done } else { Outcome::Unknown };
            self.record("share", start, is_closed, Seen::new(Call::Close { owner }, outcome));
            if !is_closed {
                // The server may have lost the open before.
                self.drop_owner("share", owner);
            }
            return;
        }
        let owner = self.next_owner();
        let access = 1 + self.rng.below(3) as u8;
        let deny = self.rng.below(4) as u8;
        let directory = self.objects.directory;
        let start = self.now();
        let wanted = match access {
            1 => ShareAccess::READ,
            2 => ShareAccess::WRITE,
            _ => ShareAccess::BOTH,
        };
        let wanted = no_delegation(&self.client, wanted);
        let claim = OpenClaim::Null(Name(b"share"));
        let sent = self
            .client
            .open_with(&directory, wanted, ShareDeny(deny.into()), OpenHow::NoCreate, claim)
            .await;
        let call = Call::Open { owner, access, deny };
        match answer(&self.client, sent).await {
            Answer::Ok(file) => {
                self.record("share", start, true, Seen::new(call, Outcome::Done));
                self.open = Some((owner, file));
            }
            Answer::Status(status) if is_later(status) => {}
            Answer::Status(status) => {
                self.record("share", start, true, Seen::new(call, refused(status)));
            }
            Answer::Lost => {
                self.record("share", start, false, Seen::new(call, Outcome::Unknown));
                self.drop_owner("share", owner);
            }
        }
    }

    pub(crate) async fn finish(&mut self) {
        self.forget_lost_state();
        if self.lock.is_some() {
            self.lock_call().await;
        }
        if self.open.is_some() {
            self.open_call().await;
        }
        if let Some(file) = self.lock_file.take() {
            let sent = self.client.close_file(file).await;
            let _ = answer(&self.client, sent).await;
        }
    }
}

#[derive(Clone, Copy)]
struct CreateVerifier(u64);

impl CreateVerifier {
    async fn create(
        self,
        client: &Client,
        directory: &Filehandle,
        name: &[u8],
    ) -> Result<(), CallError> {
        let verifier = Verifier(self.0.to_be_bytes());
        let how = OpenHow::Create(CreateHow::Exclusive(verifier));
        let access = no_delegation(client, ShareAccess::BOTH);
        let claim = OpenClaim::Null(Name(name));
        let file = client.open_with(directory, access, ShareDeny(0), how, claim).await?;
        // Its result does not matter: the file may be gone.
        let _ = client.close_file(file).await;
        Ok(())
    }
}

const CELL_LEN: u64 = 8;
/// Fewer bytes than a cell: no model permits it.
const PARTIAL: u64 = u64::MAX - 1;
/// Some ten entries.
const LIST_PAGE: u32 = 1024;
const LATER_MAX: Duration = Duration::from_secs(120);
