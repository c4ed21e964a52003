//! Locks, share reservations, and clients that lose them.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use vouch_bench::Error;
use vouch_nfs4::op::*;
use vouch_nfs4::{Name, Stateid, Status};
use vouch_nfs4_client::{Client, Lock, OpenFile};

use super::{Seen, Worker, no_delegation};
use crate::client::{self, Answer, Delegations, answer, is_later, refused};
use crate::history::{Call, Outcome};
use crate::model::LOCK_BYTES;

/// The next instance of a client. A recorded client that does not come back would keep the server in
/// its grace period.
async fn returns<F: Future<Output = Result<Client, Error>>>(connect: impl Fn(u64) -> F) -> bool {
    for _ in 0..100 {
        if let Ok(client) = connect(2).await {
            let _ = tokio::time::timeout(Duration::from_secs(5), client.close()).await;
            return true;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    false
}

#[derive(Default)]
pub(crate) struct HeldState {
    lock_file: Option<OpenFile>,
    locks: Vec<HeldLock>,
    open: Option<HeldOpen>,
    /// For COPY, CLONE, ALLOCATE and DEALLOCATE: the source and the file.
    pub(super) ranges: Option<(OpenFile, OpenFile)>,
}

struct HeldLock {
    owner: u16,
    write: bool,
    /// First byte and length.
    parts: Vec<(u8, u8)>,
    lock: Lock,
}

struct HeldOpen {
    owner: u16,
    access: u8,
    deny: u8,
    file: OpenFile,
}

/// Of an open.
enum Reclaim {
    Done,
    /// No right server refuses it.
    WronglyRefused,
    Lost,
}

fn lock_name(owner: u16) -> String {
    format!("lock {owner}")
}

const fn lock_type(write: bool, waits: bool) -> LockType {
    match (write, waits) {
        (false, false) => LockType::Read,
        (true, false) => LockType::Write,
        (false, true) => LockType::ReadWait,
        (true, true) => LockType::WriteWait,
    }
}

impl Worker {
    const fn next_owner(&mut self) -> u16 {
        self.owners += self.stride;
        self.owners
    }

    /// The state may be gone at the server, now or later.
    fn drop_owner(&self, object: &str, owner: u16) {
        let seen = Seen::new(Call::Drop { owner }, Outcome::Unknown);
        self.record(object, 0, false, seen);
    }

    fn drop_locks(&mut self) {
        for held in std::mem::take(&mut self.state.locks) {
            self.drop_owner("lock", held.owner);
        }
        self.state.lock_file = None;
    }

    /// A server that restarted, or ended the lease, gives the client another id. The client reclaims
    /// its opens and locks. Other state of the earlier client ended at an unknown time.
    pub(super) async fn recover(&mut self) {
        while std::mem::replace(&mut self.id, self.client.id()) != self.client.id() {
            self.reclaim_share().await;
            self.state.ranges = None;
            if self.reclaim_locks().await.is_none() {
                self.drop_locks();
            }
            self.end_reclaims().await;
        }
    }

    /// Until then the server refuses new opens and locks of this client.
    pub(crate) async fn end_reclaims(&self) {
        for _ in 0..100 {
            match answer(&self.client, client::end_reclaims(&self.client).await).await {
                Answer::Status(status) if is_later(status) => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                // By now it may be another client id, with reclaims of its own.
                Answer::Lost if self.client.id() == self.id => {}
                Answer::Ok(()) | Answer::Status(_) | Answer::Lost => return,
            }
        }
    }

    async fn reclaim_open(&self, file: &mut OpenFile) -> Reclaim {
        while let Err(error) = self.client.reclaim_open(file).await {
            match error.status() {
                Some(Status::DELAY) => tokio::time::sleep(Duration::from_millis(20)).await,
                Some(status) if self.is_wrong(status) => return Reclaim::WronglyRefused,
                _ => return Reclaim::Lost,
            }
        }
        Reclaim::Done
    }

    /// After a wrong refusal the open counts as held.
    async fn reclaim_share(&mut self) {
        let Some(mut open) = self.state.open.take() else { return };
        let start = self.now();
        match self.reclaim_open(&mut open.file).await {
            Reclaim::Done => {
                let HeldOpen { owner, access, deny, .. } = open;
                let call = Call::Open { owner, access, deny, reclaim: true };
                self.record("share", start, true, Seen::new(call, Outcome::Done));
                self.state.open = Some(open);
            }
            Reclaim::WronglyRefused => {}
            Reclaim::Lost => self.drop_owner("share", open.owner),
        }
    }

    /// `None`: the locks may be gone, and the server was right.
    async fn reclaim_locks(&mut self) -> Option<()> {
        let mut file = self.state.lock_file.take()?;
        if self.state.locks.is_empty() {
            return None;
        }
        match self.reclaim_open(&mut file).await {
            Reclaim::Done => {}
            Reclaim::WronglyRefused => {
                self.state.locks.clear();
                return Some(());
            }
            Reclaim::Lost => return None,
        }
        let mut locks = std::mem::take(&mut self.state.locks);
        let (mut is_refused, mut is_lost) = (false, false);
        for held in &mut locks {
            for (first, len) in held.parts.clone() {
                let start = self.now();
                let (owner, write) = (held.owner, held.write);
                let (name, kind) = (lock_name(owner), lock_type(write, false));
                let (offset, length) = (first.into(), len.into());
                let name = name.as_bytes();
                let sent = self.client.reclaim_lock(&mut file, name, kind, offset, length).await;
                let call = Call::Lock { owner, write, first, len, reclaim: true, waits: false };
                match sent {
                    Ok(lock) => {
                        self.record("lock", start, true, Seen::new(call, Outcome::Done));
                        held.lock = lock;
                    }
                    Err(error) => {
                        match error.status().is_some_and(|status| self.is_wrong(status)) {
                            true => is_refused = true,
                            false => is_lost = true,
                        }
                    }
                }
            }
        }
        if is_lost || !is_refused {
            (self.state.locks, self.state.lock_file) = (locks, Some(file));
        }
        (!is_lost).then_some(())
    }

    /// RFC 8881 §8.4.2.1: within a lease after its last call before the restart, a client comes in
    /// time. The server must not have granted its locks to others, so that they count as held.
    fn is_wrong(&self, refusal: Status) -> bool {
        let last_ok = Duration::from_nanos(self.last_ok.load(Relaxed));
        let comes_in_time = self.lease.is_some_and(|lease| self.start.elapsed() < last_ok + lease);
        let is_refusal = matches!(
            refusal,
            Status::NO_GRACE
                | Status::RECLAIM_BAD
                | Status::RECLAIM_CONFLICT
                | Status::DENIED
                | Status::SHARE_DENIED
        );
        comes_in_time && is_refusal
    }

    async fn open_lock_file(&mut self) -> Option<()> {
        if self.state.lock_file.is_none() {
            let access = no_delegation(&self.client, ShareAccess::BOTH);
            let directory = self.objects.directory;
            let opened = self.client.open(&directory, b"lock", access, None).await;
            match answer(&self.client, opened).await {
                Answer::Ok(file) => self.state.lock_file = Some(file),
                Answer::Status(_) | Answer::Lost => return None,
            }
        }
        Some(())
    }

    pub(super) async fn lock_call(&mut self) {
        let held = self.state.locks.len();
        match self.rng.below(10) {
            0..4 if held > 0 => self.unlock_call(None).await,
            4..6 if held > 0 => self.unlock_part_call().await,
            6 if held > 0 && self.client.minor() > 0 => {
                let HeldLock { owner, write, parts, .. } = &self.state.locks[0];
                let (owner, write, (first, len)) = (*owner, !write, parts[0]);
                if parts.len() == 1 {
                    self.new_lock_call((owner, write, false), first, len).await;
                }
            }
            _ if held < 2 => {
                let owner = self.next_owner();
                let first = self.rng.below(LOCK_BYTES as u64) as u8;
                let len = 1 + self.rng.below(LOCK_BYTES as u64 - u64::from(first)) as u8;
                let write = self.rng.percent(60);
                let waits = self.waits && self.rng.percent(50);
                let attempts = if waits { 1 + self.rng.below(8) } else { 1 };
                for _ in 0..attempts {
                    if !self.new_lock_call((owner, write, waits), first, len).await {
                        return;
                    }
                    self.await_lock().await;
                }
            }
            _ => self.unlock_call(None).await,
        }
    }

    /// Until the server calls, or some time.
    async fn await_lock(&mut self) {
        for _ in 0..1 + self.rng.below(20) {
            tokio::time::sleep(Duration::from_millis(1)).await;
            if std::mem::take(&mut self.delegations.lock().is_lock_free) {
                return;
            }
        }
    }

    /// True if another owner has the range.
    async fn new_lock_call(
        &mut self,
        (owner, write, waits): (u16, bool, bool),
        first: u8,
        len: u8,
    ) -> bool {
        if self.open_lock_file().await.is_none() {
            return false;
        }
        let Some(file) = &mut self.state.lock_file else { return false };
        let start = self.start.elapsed().as_nanos() as u64;
        let (name, kind) = (lock_name(owner), lock_type(write, waits));
        let (offset, length) = (first.into(), len.into());
        let sent = self.client.lock(file, name.as_bytes(), kind, offset, length).await;
        let call = Call::Lock { owner, write, first, len, reclaim: false, waits };
        match answer(&self.client, sent).await {
            Answer::Ok(Ok(lock)) => {
                self.record("lock", start, true, Seen::new(call, Outcome::Done));
                self.state.locks.retain(|held| held.owner != owner);
                let parts = vec![(first, len)];
                self.state.locks.push(HeldLock { owner, write, parts, lock });
            }
            Answer::Ok(Err(_)) => {
                self.record("lock", start, true, Seen::new(call, Outcome::Denied));
                return true;
            }
            Answer::Status(status) if is_later(status) => {}
            Answer::Status(_) | Answer::Lost => {
                self.record("lock", start, false, Seen::new(call, Outcome::Unknown));
                self.drop_owner("lock", owner);
                self.drop_locks();
            }
        }
        false
    }

    async fn unlock_part_call(&mut self) {
        let (first, len) = self.state.locks[0].parts[0];
        if len < 3 {
            return self.unlock_call(None).await;
        }
        let from = first + 1 + self.rng.below(u64::from(len) - 2) as u8;
        self.unlock_call(Some((from, 1))).await;
    }

    /// Of all bytes, or of a part of the first range.
    async fn unlock_call(&mut self, part: Option<(u8, u8)>) {
        if self.state.locks.is_empty() || self.state.lock_file.is_none() {
            return;
        }
        let mut held = self.state.locks.remove(0);
        let Some(file) = &self.state.lock_file else { return };
        let (first, len) = part.unwrap_or_else(|| {
            let (last, last_len) = held.parts[held.parts.len() - 1];
            (held.parts[0].0, last + last_len - held.parts[0].0)
        });
        let start = self.now();
        let sent = self.client.unlock(file, &mut held.lock, first.into(), len.into()).await;
        let call = Call::Unlock { owner: held.owner, first, len };
        match answer(&self.client, sent).await {
            Answer::Ok(()) => {
                self.record("lock", start, true, Seen::new(call, Outcome::Done));
                if part.is_some() {
                    let (begin, whole) = held.parts[0];
                    let rest = [(begin, first - begin), (first + len, begin + whole - first - len)];
                    held.parts.splice(0..1, rest);
                    self.state.locks.push(held);
                }
            }
            Answer::Status(_) | Answer::Lost => {
                self.record("lock", start, false, Seen::new(call, Outcome::Unknown));
                self.drop_owner("lock", held.owner);
                self.drop_locks();
            }
        }
    }

    pub(super) async fn open_call(&mut self) {
        if self.rng.percent(30) {
            return self.use_call().await;
        }
        if self.state.open.is_some() {
            return self.close_share().await;
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
        let call = Call::Open { owner, access, deny, reclaim: false };
        match answer(&self.client, sent).await {
            Answer::Ok(file) => {
                self.record("share", start, true, Seen::new(call, Outcome::Done));
                self.state.open = Some(HeldOpen { owner, access, deny, file });
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

    async fn close_share(&mut self) {
        let Some(HeldOpen { owner, file, .. }) = self.state.open.take() else { return };
        let start = self.now();
        let sent = self.client.close_file(file).await;
        let is_closed = matches!(answer(&self.client, sent).await, Answer::Ok(()));
        let outcome = if is_closed { Outcome::Done } else { Outcome::Unknown };
        self.record("share", start, is_closed, Seen::new(Call::Close { owner }, outcome));
        if !is_closed {
            // The server may have lost the open before.
            self.drop_owner("share", owner);
        }
    }

    async fn use_call(&mut self) {
        let file = self.objects.shared;
        let writes = self.rng.percent(50);
        let send = |client: Client| async move {
            match writes {
                true => client::write(
                    &client,
                    (&file, Stateid::ANONYMOUS),
                    0,
                    b"shared",
                    StableHow::Unstable,
                )
                .await
                .map(drop),
                false => client::read(&client, &file, 0, 8).await.map(drop),
            }
        };
        let call = Call::Use { access: if writes { 2 } else { 1 } };
        self.call("share", call, send, |(), call| Seen::new(call, Outcome::Done)).await;
    }

    /// Another client locks a range and vanishes. Its lock ends when the client returns as a new
    /// instance, or some time after its lease.
    pub(super) async fn lost_client_call(&mut self) {
        let owner = self.next_owner();
        let name = format!("vouch consistency {} {owner} {}", self.id.0, self.number);
        let connect =
            |instance| (self.connect)(self.number, name.clone(), instance, Delegations::default());
        let Ok(lost) = connect(1).await else { return };
        let access = no_delegation(&lost, ShareAccess::BOTH);
        let Ok(mut file) = lost.open(&self.objects.directory, b"lock", access, None).await else {
            return;
        };
        let start = self.now();
        let (first, len) = (self.rng.below(LOCK_BYTES as u64) as u8, 1);
        let sent = lost.lock(&mut file, b"lost", LockType::Write, first.into(), len.into()).await;
        let call = Call::Lock { owner, write: true, first, len, reclaim: false, waits: false };
        let outcome = match sent {
            Ok(Ok(_)) => Outcome::Done,
            Ok(Err(_)) => Outcome::Denied,
            Err(_) => Outcome::Unknown,
        };
        let has_reply = outcome != Outcome::Unknown;
        self.record("lock", start, has_reply, Seen::new(call, outcome));
        drop(lost);
        let start = self.now();
        let is_ended = match self.short_lease.filter(|_| self.rng.percent(50)) {
            Some(lease) => {
                tokio::time::sleep(2 * lease + Duration::from_secs(1)).await;
                true
            }
            None => returns(connect).await,
        };
        let outcome = if is_ended { Outcome::Done } else { Outcome::Unknown };
        self.record("lock", start, is_ended, Seen::new(Call::Drop { owner }, outcome));
    }

    pub(super) async fn close_all(&mut self) {
        while !self.state.locks.is_empty() && self.state.lock_file.is_some() {
            self.unlock_call(None).await;
        }
        self.close_share().await;
        let ranges = self.state.ranges.take().map(|(one, other)| [one, other]);
        for file in ranges.into_iter().flatten().chain(self.state.lock_file.take()) {
            let sent = self.client.close_file(file).await;
            let _ = answer(&self.client, sent).await;
        }
    }
}
