//! One client of a history: chooses its calls by the seed, sends them, and records each.

mod attributes;
mod delegations;
mod directories;
mod state;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use vouch_nfs4::op::*;
use vouch_nfs4::{ClientId, Filehandle, Name, Stateid, Verifier};
use vouch_nfs4_client::{Client, Error as CallError};

use crate::client::{self, Answer, Delegations, answer, is_later, refused};
use crate::history::{Call, Operation, Outcome, volatile_name};
use crate::model::{CELLS, NAMES};
use crate::rng::Rng;
use crate::run::Connect;
pub(crate) use attributes::{FIRST_MODE, SOURCE};
pub(crate) use state::HeldState;

#[derive(Clone)]
pub(crate) struct Objects {
    pub(crate) names: Filehandle,
    pub(crate) base: Filehandle,
    pub(crate) base_id: u64,
    pub(crate) file: Filehandle,
    pub(crate) shared: Filehandle,
    pub(crate) delegated: Filehandle,
    pub(crate) attributes: Filehandle,
    pub(crate) listed: Filehandle,
    pub(crate) directory: Filehandle,
    /// Directories that clients have made to cache their names, by name.
    pub(crate) cached: Arc<Mutex<Vec<(String, Filehandle)>>>,
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
    pub(crate) state: HeldState,
    /// Next lock or open owner: no two clients use the same.
    pub(crate) owners: u16,
    pub(crate) stride: u16,
    pub(crate) delegations: Delegations,
    pub(crate) connect: Connect,
    /// Some of its locks wait for others.
    pub(crate) waits: bool,
    /// The lease of the server, if it is short enough to wait for its end.
    pub(crate) short_lease: Option<Duration>,
    pub(crate) lease: Option<Duration>,
    /// Begin of the newest call that was answered, with the client id that the locks have.
    pub(crate) last_ok: AtomicU64,
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
        let operation = self.operation(object, start, has_reply, seen);
        self.log.lock().push(operation);
    }

    fn operation(&self, object: &str, start: u64, has_reply: bool, seen: Seen) -> Operation {
        Operation {
            id: 0,
            client: self.number,
            object: object.into(),
            start,
            end: has_reply.then(|| self.now()),
            call: seen.call,
            outcome: seen.outcome,
            change: seen.change,
            verifier: seen.verifier,
        }
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
                    if self.client.id() == self.id {
                        self.last_ok.fetch_max(start, Relaxed);
                    }
                    return true;
                }
                Answer::Status(status) if is_later(status) => {
                    if !self.may_repeat(begun) {
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

    /// With another client id, the server waits for the reclaims first.
    fn may_repeat(&self, begun: Instant) -> bool {
        begun.elapsed() < LATER_MAX && self.client.id() == self.id
    }

    pub(crate) async fn one_call(&mut self) {
        self.recover().await;
        match self.rng.below(100) {
            0..26 => self.file_call().await,
            26..52 => self.names_call().await,
            52..64 => self.lock_call().await,
            64..75 => self.open_call().await,
            75..84 => self.delegation_call().await,
            84..87 => self.directory_call().await,
            87..92 if self.client.minor() == 2 => self.xattr_call().await,
            87..96 => self.attribute_call().await,
            96..99 if self.client.minor() == 2 => self.range_call().await,
            96..99 => self.file_call().await,
            _ if self.client.minor() > 0 => self.lost_client_call().await,
            _ => {}
        }
    }

    async fn read_cell(&self, object: &str, file: Filehandle, cell: u8) -> bool {
        let offset = u64::from(cell) * CELL_LEN;
        let send = |client: Client| async move {
            client::read(&client, &file, offset, CELL_LEN as u32).await
        };
        let call = Call::Read { cell, cached: false };
        self.call(object, call, send, |data, call| Seen::new(call, content(&data))).await
    }

    async fn write_cell(&mut self, object: &str, file: Filehandle, cell: u8) {
        let value = self.new_value();
        let how = match self.rng.percent(50) {
            true => StableHow::FileSync,
            false => StableHow::Unstable,
        };
        let (offset, data) = (u64::from(cell) * CELL_LEN, value.to_be_bytes());
        let send = |client: Client| async move {
            client::write(&client, (&file, Stateid::ANONYMOUS), offset, &data, how).await
        };
        let call = Call::Write { cell, value, stable: false };
        self.call(object, call, send, |(stable, verifier), _| Seen {
            verifier: Some(verifier),
            ..Seen::new(Call::Write { cell, value, stable }, Outcome::Done)
        })
        .await;
    }

    async fn truncate_file(&self, object: &str, file: Filehandle, cells: u8) {
        let size = u64::from(cells) * CELL_LEN;
        let send = |client: Client| async move { client::truncate(&client, &file, size).await };
        let call = Call::Truncate { cells };
        self.call(object, call, send, |(), call| Seen::new(call, Outcome::Done)).await;
    }

    /// Size and change attribute.
    async fn size_call(&self, object: &str, file: Filehandle) {
        let send = |client: Client| async move { client::attributes(&client, &file).await };
        self.call(object, Call::Size, send, |(change, size), call| Seen {
            change,
            ..Seen::new(call, Outcome::Value(size.div_ceil(CELL_LEN)))
        })
        .await;
    }

    /// Unique in the history.
    const fn new_value(&mut self) -> u64 {
        self.rng.next() >> 16 | 1
    }

    async fn file_call(&mut self) {
        let file = self.objects.file;
        let cell = self.rng.below(CELLS as u64) as u8;
        match self.rng.below(10) {
            0..3 => {
                self.write_cell("file", file, cell).await;
            }
            3..7 => {
                self.read_cell("file", file, cell).await;
            }
            7 => {
                let cells = self.rng.below(CELLS as u64 + 1) as u8;
                self.truncate_file("file", file, cells).await;
            }
            8 => self.size_call("file", file).await,
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
        let choice = self.rng.below(13);
        self.names_call_in("names", self.objects.names, choice).await;
    }

    async fn names_call_in(&mut self, object: &str, directory: Filehandle, choice: u64) {
        let name = self.rng.below(NAMES as u64) as u8;
        let text = volatile_name(name);
        let bytes = text.as_bytes();
        match choice {
            0 | 1 => {
                let how = CreateVerifier(self.rng.next());
                let send =
                    |client: Client| async move { how.create(&client, &directory, bytes).await };
                let call = Call::Create { name };
                self.call(object, call, send, |(), call| Seen::new(call, Outcome::Done)).await;
            }
            2 => {
                let send =
                    |client: Client| async move { client.mkdir(&directory, bytes, 0o777).await };
                let call = Call::Mkdir { name };
                self.call(object, call, send, |_, call| Seen::new(call, Outcome::Done)).await;
            }
            3 => {
                let base = self.objects.base;
                let send =
                    |client: Client| async move { client.link(&base, &directory, bytes).await };
                let call = Call::Link { name, file: self.objects.base_id };
                self.call(object, call, send, |(), call| Seen::new(call, Outcome::Done)).await;
            }
            4 | 5 => {
                let to = (name + 1 + self.rng.below(NAMES as u64 - 1) as u8) % NAMES as u8;
                let new = volatile_name(to);
                let new = new.as_bytes();
                let send = |client: Client| async move {
                    client.rename(&directory, bytes, &directory, new).await
                };
                let call = Call::Rename { from: name, to };
                self.call(object, call, send, |(), call| Seen::new(call, Outcome::Done)).await;
            }
            6 | 7 => {
                let send = |client: Client| async move { client.remove(&directory, bytes).await };
                let call = Call::Remove { name };
                self.call(object, call, send, |(), call| Seen::new(call, Outcome::Done)).await;
            }
            8 | 9 => {
                let text = &text;
                let send =
                    |client: Client| async move { client::lookup(&client, &directory, text).await };
                let call = Call::Lookup { name, cached: false };
                self.call(object, call, send, |id, call| Seen::new(call, Outcome::Value(id))).await;
            }
            10 => {
                let send = |client: Client| async move {
                    client::list(&client, &directory, LIST_PAGE).await
                };
                self.call(object, Call::List, send, |names, call| {
                    Seen::new(call, Outcome::Names(names))
                })
                .await;
            }
            11 => {
                let base = self.objects.base;
                let send = |client: Client| async move { client::links(&client, &base).await };
                let call = Call::Links { file: self.objects.base_id };
                self.call(object, call, send, |links, call| {
                    Seen::new(call, links.map_or(Outcome::Unknown, Outcome::Value))
                })
                .await;
            }
            _ => {
                let send =
                    |client: Client| async move { client::attributes(&client, &directory).await };
                self.call(object, Call::Change, send, |(change, _), call| Seen {
                    change,
                    ..Seen::new(call, Outcome::Done)
                })
                .await;
            }
        }
    }

    pub(crate) async fn notice_restart(&mut self) {
        let sent = client::attributes(&self.client, &self.objects.file).await;
        let _ = answer(&self.client, sent).await;
        self.recover().await;
    }

    pub(crate) async fn finish(&mut self) {
        self.recover().await;
        self.close_all().await;
    }
}

fn content(data: &[u8]) -> Outcome {
    match <[u8; 8]>::try_from(data) {
        Ok(data) => Outcome::Value(u64::from_be_bytes(data)),
        Err(_) if data.is_empty() => Outcome::Absent,
        Err(_) => Outcome::Value(PARTIAL),
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
