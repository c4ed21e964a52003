//! One client of the workload: its calls, with retries, and its recovery after a restart.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use vouch_bench::Error;
use vouch_bench::target::{NfsTarget, Sec, TlsFiles};
use vouch_nfs4::attr::ChangeAttrType;
use vouch_nfs4::op::*;
use vouch_nfs4::{Attributes, Bitmap, Bytes, Filehandle, Name, Stateid, Status, Verifier};
use vouch_nfs4_client::{Client, Config, Error as CallError, Identity, Reply};

use crate::history::Outcome;

#[derive(Debug, Clone)]
pub struct Server {
    pub target: NfsTarget,
    pub sec: Sec,
    pub service: Option<String>,
    pub tls: Option<TlsFiles>,
    pub minor: u32,
}

impl Server {
    pub(crate) async fn connect(
        &self,
        address: SocketAddr,
        name: &str,
        instance: u64,
    ) -> Result<Client, Error> {
        let server = self.clone();
        let credentials = move || {
            let (service, tls) = (server.service.as_deref(), server.tls.as_ref());
            vouch_bench::nfs::credentials(&server.target, server.sec, service, tls)
        };
        let made = tokio::task::spawn_blocking(credentials.clone()).await;
        let (tls, protection) = made.map_err(|error| Error::Program(error.to_string()))??;
        let identity = Identity::new(name, Verifier(instance.to_be_bytes()));
        let mut config =
            Config::new(address, self.minor, identity, vouch_nfs4_client::Plain::none());
        config.protection = protection;
        config.tls = tls;
        if self.sec.service().is_some() {
            config.renewal =
                Some(Arc::new(move || Ok(credentials().map(|(_, protection)| protection)?)));
        }
        Client::connect(config).await.map_err(Error::nfs(self.target.to_string()))
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
        Status::NOENT => Outcome::NotFound,
        Status::EXIST | Status::NOTDIR | Status::ISDIR | Status::NOTEMPTY => Outcome::Exists,
        Status::DENIED | Status::SHARE_DENIED => Outcome::Denied,
        status => Outcome::Failed(status.to_string()),
    }
}

const CHANGE: Bitmap = Bitmap::of(&[3]);

/// Content of one cell, None beyond the end.
pub(crate) async fn read(
    client: &Client,
    file: &Filehandle,
    offset: u64,
    count: u32,
) -> Result<Vec<u8>, CallError> {
    let args = ReadArgs { stateid: Stateid::ANONYMOUS, offset, count };
    let reply = client.compound().putfh(file).op(&Args::Read(args)).send().await?;
    let mut results = reply.results();
    results.skip(&[Op::PUTFH])?;
    match results.next_ok()? {
        Results::Read(Ok(ok)) => Ok(ok.data.to_vec()),
        _ => Err(CallError::Mismatch("expected the result of READ")),
    }
}

pub(crate) async fn write(
    client: &Client,
    file: &Filehandle,
    offset: u64,
    data: &[u8],
    stable: StableHow,
) -> Result<(bool, u64), CallError> {
    let args = WriteArgs { stateid: Stateid::ANONYMOUS, offset, stable, data: Bytes(data) };
    let reply = client.compound().cached().putfh(file).op(&Args::Write(args)).send().await?;
    let mut results = reply.results();
    results.skip(&[Op::PUTFH])?;
    match results.next_ok()? {
        Results::Write(Ok(ok)) if ok.count as usize == data.len() => {
            Ok((ok.committed != StableHow::Unstable, u64::from_be_bytes(ok.verifier.0)))
        }
        _ => Err(CallError::Mismatch("expected the result of WRITE")),
    }
}

pub(crate) async fn commit(client: &Client, file: &Filehandle) -> Result<u64, CallError> {
    let args = CommitArgs { offset: 0, count: 0 };
    let reply = client.compound().putfh(file).op(&Args::Commit(args)).send().await?;
    let mut results = reply.results();
    results.skip(&[Op::PUTFH])?;
    match results.next_ok()? {
        Results::Commit(Ok(ok)) => Ok(u64::from_be_bytes(ok.verifier.0)),
        _ => Err(CallError::Mismatch("expected the result of COMMIT")),
    }
}

pub(crate) async fn truncate(
    client: &Client,
    file: &Filehandle,
    size: u64,
) -> Result<(), CallError> {
    let attributes = Attributes { size: Some(size), ..Attributes::default() };
    let compound = client.compound().cached().putfh(file);
    let reply = compound.setattr(Stateid::ANONYMOUS, &attributes).send().await?;
    reply.results().skip(&[Op::PUTFH, Op::SETATTR])
}

/// Change attribute and size.
pub(crate) async fn attributes(
    client: &Client,
    file: &Filehandle,
) -> Result<(Option<u64>, u64), CallError> {
    let reply = client.compound().putfh(file).getattr(CHANGE.with(4)).send().await?;
    let mut results = reply.results();
    results.skip(&[Op::PUTFH])?;
    let Results::Getattr(Ok(ok)) = results.next_ok()? else {
        return Err(CallError::Mismatch("expected the result of GETATTR"));
    };
    let attributes = ok.attrs.attributes()?;
    Ok((attributes.change.map(|change| change.0), attributes.size.unwrap_or(0)))
}

/// File id of a name.
pub(crate) async fn lookup(
    client: &Client,
    directory: &Filehandle,
    name: &str,
) -> Result<u64, CallError> {
    let reply: Reply = client
        .compound()
        .putfh(directory)
        .op(&Args::Lookup(LookupArgs { name: Name(name.as_bytes()) }))
        .getattr(Bitmap::of(&[20]))
        .send()
        .await?;
    let mut results = reply.results();
    results.skip(&[Op::PUTFH, Op::LOOKUP])?;
    let Results::Getattr(Ok(ok)) = results.next_ok()? else {
        return Err(CallError::Mismatch("expected the result of GETATTR"));
    };
    Ok(ok.attrs.attributes()?.fileid.unwrap_or(0))
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
        let mut results = reply.results();
        results.skip(&[Op::PUTFH])?;
        let Results::Readdir(Ok(ok)) = results.next_ok()? else {
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
    let reply = client.compound().putfh(file).getattr(Bitmap::of(&[79])).send().await?;
    let mut results = reply.results();
    results.skip(&[Op::PUTFH])?;
    let Results::Getattr(Ok(ok)) = results.next_ok()? else {
        return Err(CallError::Mismatch("expected the result of GETATTR"));
    };
    Ok(ok.attrs.attributes()?.change_attr_type == Some(ChangeAttrType::MONOTONIC_INCR))
}
