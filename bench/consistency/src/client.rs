//! Single calls of the workload, and what their statuses mean.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use vouch_bench::Error;
use vouch_bench::target::{NfsTarget, Sec, TlsFiles};
use vouch_nfs4::attr::ChangeAttrType;
use vouch_nfs4::op::*;
use vouch_nfs4::{
    Ace, AceFlags, AceMask, AceType, Acl, Attributes, Bitmap, Bytes, ChangeId, Fattr, Filehandle,
    Name, Stateid, Status, Verifier, Wire as _, cb,
};
use vouch_nfs4_client::{CallbackHandler, Client, Config, Error as CallError, Identity, Reply};
use vouch_xdr::{Reader, Writer};

use crate::history::Outcome;

#[derive(Debug, Clone)]
pub struct Server {
    pub target: NfsTarget,
    pub sec: Sec,
    pub service: Option<String>,
    pub tls: Option<TlsFiles>,
    pub minor: u32,
}

/// State of one client that its callbacks change.
pub type Delegations = Arc<Mutex<DelegationState>>;

#[derive(Debug, Default)]
pub struct DelegationState {
    /// Stateids that the server has recalled.
    pub(crate) recalled: HashSet<[u8; 12]>,
    /// The file under a write delegation.
    pub(crate) written: Option<CachedFile>,
    /// The server has called for a lock that waits.
    pub(crate) is_lock_free: bool,
}

/// Attributes as the client's cache has them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CachedFile {
    pub(crate) handle: Filehandle,
    pub(crate) size: u64,
    pub(crate) change: ChangeId,
}

struct Callbacks {
    delegations: Delegations,
    attributes: Writer,
}

impl CallbackHandler for Callbacks {
    fn callback<'a>(&'a mut self, args: &cb::Args<'_>) -> cb::Results<'a> {
        let mut delegations = self.delegations.lock();
        match args {
            cb::Args::Recall(args) => {
                delegations.recalled.insert(args.stateid.other);
                cb::Results::Recall(Ok(()))
            }
            cb::Args::Getattr(args) => {
                let written = delegations.written.filter(|file| file.handle == args.handle);
                let Some(CachedFile { size, change, .. }) = written else {
                    return cb::Results::Getattr(Err(Status::BADHANDLE));
                };
                let attributes =
                    Attributes { size: Some(size), change: Some(change), ..Attributes::default() };
                self.attributes.truncate(0);
                attributes.encode(args.wanted, &mut self.attributes);
                let attrs = Fattr::decode(&mut Reader::new(self.attributes.as_bytes()));
                cb::Results::Getattr(match attrs {
                    Ok(attrs) => Ok(cb::CbGetattrOk { attrs }),
                    Err(_) => Err(Status::SERVERFAULT),
                })
            }
            cb::Args::NotifyLock(_) => {
                delegations.is_lock_free = true;
                cb::Results::NotifyLock(Ok(()))
            }
            args => cb::Results::failure(args.op(), Status::NOTSUPP),
        }
    }
}

impl Server {
    pub(crate) async fn connect(
        &self,
        address: SocketAddr,
        name: &str,
        instance: u64,
        delegations: Delegations,
    ) -> Result<Client, Error> {
        let server = self.clone();
        let credentials = move || {
            let (service, tls) = (server.service.as_deref(), server.tls.as_ref());
            vouch_bench::nfs::credentials(&server.target, server.sec, service, tls)
        };
        let made = tokio::task::spawn_blocking(credentials.clone()).await;
        let (tls, protection) = made.map_err(|error| Error::Program(error.to_string()))??;
        let mut config = config(address, self.minor, name, instance, delegations);
        config.protection = protection;
        config.tls = tls;
        if self.sec.service().is_some() {
            config.renewal =
                Some(Arc::new(move || Ok(credentials().map(|(_, protection)| protection)?)));
        }
        connect(config).await.map_err(Error::nfs(self.target.to_string()))
    }
}

/// Of a client of the workload, with AUTH_SYS.
pub fn config(
    address: SocketAddr,
    minor: u32,
    name: &str,
    instance: u64,
    delegations: Delegations,
) -> Config {
    let mut identity = Identity::new(name, Verifier(instance.to_be_bytes()));
    // After a restart, the worker reclaims its locks first.
    identity.reclaim_complete = false;
    let mut config = Config::new(address, minor, identity, vouch_nfs4_client::Plain::none());
    config.callbacks = Box::new(Callbacks { delegations, attributes: Writer::new() });
    config
}

pub async fn connect(config: Config) -> Result<Client, CallError> {
    let client = Client::connect(config).await?;
    // In a grace period the server may refuse it; then new state waits for the end.
    let _ = end_reclaims(&client).await;
    Ok(client)
}

pub(crate) async fn end_reclaims(client: &Client) -> Result<(), CallError> {
    if client.minor() == 0 {
        return Ok(());
    }
    match client.reclaim_complete().await {
        Err(CallError::Refused { status: Status::COMPLETE_ALREADY, .. }) => Ok(()),
        result => result,
    }
}

/// Reply of a call, or how it failed.
pub(crate) enum Answer<T> {
    Ok(T),
    Status(Status),
    Lost,
}

pub(crate) async fn answer<T>(client: &Client, result: Result<T, CallError>) -> Answer<T> {
    match result {
        Ok(value) => Answer::Ok(value),
        Err(CallError::Refused { status, .. }) if !is_recovery(status) => Answer::Status(status),
        Err(_) => {
            for _ in 0..100 {
                if client.renew().await.is_ok() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Answer::Lost
        }
    }
}

pub(crate) const fn is_recovery(status: Status) -> bool {
    matches!(
        status,
        Status::BADSESSION | Status::DEADSESSION | Status::STALE_CLIENTID | Status::EXPIRED
    )
}

/// Not executed: the client repeats the call.
pub(crate) const fn is_later(status: Status) -> bool {
    matches!(status, Status::DELAY | Status::GRACE)
}

pub(crate) fn refused(status: Status) -> Outcome {
    match status {
        Status::NOENT | Status::NOXATTR => Outcome::NotFound,
        Status::EXIST | Status::NOTDIR | Status::ISDIR | Status::NOTEMPTY => Outcome::Exists,
        Status::DENIED | Status::SHARE_DENIED | Status::LOCKED => Outcome::Denied,
        status => Outcome::Failed(status.to_string()),
    }
}

/// Content of one cell, None beyond the end.
pub(crate) async fn read(
    client: &Client,
    file: &Filehandle,
    offset: u64,
    count: u32,
) -> Result<Vec<u8>, CallError> {
    let args = ReadArgs { stateid: Stateid::ANONYMOUS, offset, count };
    let reply = client.compound().putfh(file).op(&Args::Read(args)).send().await?;
    match reply.result_after(&[Op::PUTFH])? {
        Results::Read(Ok(ok)) => Ok(ok.data.to_vec()),
        _ => Err(CallError::Mismatch("expected the result of READ")),
    }
}

pub(crate) async fn write(
    client: &Client,
    (file, stateid): (&Filehandle, Stateid),
    offset: u64,
    data: &[u8],
    stable: StableHow,
) -> Result<(bool, u64), CallError> {
    let args = WriteArgs { stateid, offset, stable, data: Bytes(data) };
    let reply = client.compound().cached().putfh(file).op(&Args::Write(args)).send().await?;
    match reply.result_after(&[Op::PUTFH])? {
        Results::Write(Ok(ok)) if ok.count as usize == data.len() => {
            Ok((ok.committed != StableHow::Unstable, u64::from_be_bytes(ok.verifier.0)))
        }
        _ => Err(CallError::Mismatch("expected the result of WRITE")),
    }
}

pub(crate) async fn commit(client: &Client, file: &Filehandle) -> Result<u64, CallError> {
    let args = CommitArgs { offset: 0, count: 0 };
    let reply = client.compound().putfh(file).op(&Args::Commit(args)).send().await?;
    match reply.result_after(&[Op::PUTFH])? {
        Results::Commit(Ok(ok)) => Ok(u64::from_be_bytes(ok.verifier.0)),
        _ => Err(CallError::Mismatch("expected the result of COMMIT")),
    }
}

pub(crate) async fn truncate(
    client: &Client,
    file: &Filehandle,
    size: u64,
) -> Result<(), CallError> {
    set(client, file, &Attributes { size: Some(size), ..Attributes::default() }).await
}

async fn set(
    client: &Client,
    file: &Filehandle,
    attributes: &Attributes<'_>,
) -> Result<(), CallError> {
    let compound = client.compound().cached().putfh(file);
    let reply = compound.setattr(Stateid::ANONYMOUS, attributes).send().await?;
    reply.results().skip(&[Op::PUTFH, Op::SETATTR])
}

pub(crate) async fn set_mode(
    client: &Client,
    file: &Filehandle,
    mode: u64,
) -> Result<(), CallError> {
    set(client, file, &Attributes { mode: Some(mode as u32), ..Attributes::default() }).await
}

/// Sets a list with one named entry, of the user `uid`.
pub(crate) async fn set_acl(client: &Client, file: &Filehandle, uid: u64) -> Result<(), CallError> {
    let uid = uid.to_string();
    let (read, both) = (AceMask::READ_DATA, AceMask::READ_DATA | AceMask::WRITE_DATA);
    let entries = [("OWNER@", both), (&*uid, both), ("GROUP@", read), ("EVERYONE@", read)];
    let entries = entries.map(|(who, mask)| Ace {
        kind: AceType::ALLOW,
        flags: AceFlags(0),
        mask,
        who: Bytes(who.as_bytes()),
    });
    let acl = Acl(entries.to_vec().into());
    set(client, file, &Attributes { acl: Some(acl), ..Attributes::default() }).await
}

async fn get<T>(
    client: &Client,
    file: &Filehandle,
    wanted: &[u32],
    read: impl FnOnce(&Attributes<'_>) -> T,
) -> Result<T, CallError> {
    let reply = client.compound().putfh(file).getattr(Bitmap::of(wanted)).send().await?;
    read_attributes(&reply, &[Op::PUTFH], read)
}

fn read_attributes<T>(
    reply: &Reply,
    after: &[Op],
    read: impl FnOnce(&Attributes<'_>) -> T,
) -> Result<T, CallError> {
    match reply.result_after(after)? {
        Results::Getattr(Ok(ok)) => Ok(read(&ok.attrs.attributes()?)),
        _ => Err(CallError::Mismatch("expected the result of GETATTR")),
    }
}

pub(crate) async fn mode(client: &Client, file: &Filehandle) -> Result<Option<u64>, CallError> {
    get(client, file, &[33], |attributes| attributes.mode.map(u64::from)).await
}

/// The user of the only named entry.
pub(crate) async fn acl(client: &Client, file: &Filehandle) -> Result<Option<u64>, CallError> {
    let user = |who: &[u8]| std::str::from_utf8(who).ok()?.split('@').next()?.parse().ok();
    get(client, file, &[12], |attributes| {
        attributes.acl.as_ref()?.0.iter().find_map(|entry| user(entry.who.0))
    })
    .await
}

/// Names of the file.
pub(crate) async fn links(client: &Client, file: &Filehandle) -> Result<Option<u64>, CallError> {
    get(client, file, &[35], |attributes| attributes.numlinks.map(u64::from)).await
}

pub(crate) async fn lease_s(client: &Client, file: &Filehandle) -> Result<Option<u32>, CallError> {
    get(client, file, &[10], |attributes| attributes.lease_time_s).await
}

/// Change attribute and size.
pub(crate) async fn attributes(
    client: &Client,
    file: &Filehandle,
) -> Result<(Option<u64>, u64), CallError> {
    get(client, file, &[3, 4], |attributes| {
        (attributes.change.map(|change| change.0), attributes.size.unwrap_or(0))
    })
    .await
}

/// File id of a name.
pub(crate) async fn lookup(
    client: &Client,
    directory: &Filehandle,
    name: &str,
) -> Result<u64, CallError> {
    let reply = client
        .compound()
        .putfh(directory)
        .op(&Args::Lookup(LookupArgs { name: Name(name.as_bytes()) }))
        .getattr(Bitmap::of(&[20]))
        .send()
        .await?;
    read_attributes(&reply, &[Op::PUTFH, Op::LOOKUP], |found| found.fileid.unwrap_or(0))
}

/// Notifications are not requested. `None`: not granted.
pub(crate) async fn get_dir_delegation(
    client: &Client,
    directory: &Filehandle,
) -> Result<Option<Stateid>, CallError> {
    let delay = vouch_nfs4::Time { seconds: 0, nanoseconds: 0 };
    let args = GetDirDelegationArgs {
        signal: false,
        notifications: Bitmap::EMPTY,
        child_delay: delay,
        dir_delay: delay,
        child_attrs: Bitmap::EMPTY,
        dir_attrs: Bitmap::EMPTY,
    };
    let compound = client.compound().cached().putfh(directory);
    let reply = compound.op(&Args::GetDirDelegation(args)).send().await?;
    match reply.result_after(&[Op::PUTFH])? {
        Results::GetDirDelegation(Ok(GetDirDelegationReply::Granted(ok))) => Ok(Some(ok.stateid)),
        Results::GetDirDelegation(Ok(GetDirDelegationReply::Unavailable(_))) => Ok(None),
        _ => Err(CallError::Mismatch("expected the result of GET_DIR_DELEGATION")),
    }
}

pub(crate) async fn return_delegation(
    client: &Client,
    file: &Filehandle,
    stateid: Stateid,
) -> Result<(), CallError> {
    let args = DelegreturnArgs { stateid };
    let reply = client.compound().cached().putfh(file).op(&Args::Delegreturn(args)).send().await?;
    reply.results().skip(&[Op::PUTFH, Op::DELEGRETURN])
}

/// Names in pages of `max_count` bytes, so that a listing needs several calls.
pub(crate) async fn list(
    client: &Client,
    directory: &Filehandle,
    max_count: u32,
) -> Result<Vec<String>, CallError> {
    let (mut cookie, mut verifier, mut names) =
        (vouch_nfs4::Cookie(0), Verifier::default(), Vec::new());
    loop {
        let wanted = Bitmap::of(&[20]);
        let args = ReaddirArgs { cookie, verifier, dir_count: max_count, max_count, wanted };
        let reply = client.compound().putfh(directory).op(&Args::Readdir(args)).send().await?;
        let Results::Readdir(Ok(ok)) = reply.result_after(&[Op::PUTFH])? else {
            return Err(CallError::Mismatch("expected the result of READDIR"));
        };
        let before = names.len();
        for entry in ok.entries.iter() {
            names.push(String::from_utf8_lossy(entry.name.0).into_owned());
            cookie = entry.cookie;
        }
        if ok.eof {
            return Ok(names);
        }
        if names.len() == before || names.len() > 10_000 {
            return Err(CallError::Mismatch("the directory listing does not end"));
        }
        verifier = ok.verifier;
    }
}

/// The server says that change attributes only grow.
pub(crate) async fn changes_grow(client: &Client, file: &Filehandle) -> Result<bool, CallError> {
    let kind = get(client, file, &[79], |attributes| attributes.change_attr_type).await?;
    Ok(kind == Some(ChangeAttrType::MONOTONIC_INCR))
}
