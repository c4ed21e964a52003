use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use vouch_daemon::failure::{Failure, Why};
use vouch_gss_mit::{ClientSource, MitInitiator};
use vouch_nfs4::cb;
use vouch_nfs4::op::Op;
use vouch_nfs4::{Bitmap, Filehandle, Status, Verifier};
use vouch_nfs4_client::{
    Client, Config, Error, Identity, Plain, Protection, Renewal, establish_with,
};

use crate::attributes::{Converter, Known, WANTED};
use crate::caller::Callers;
use crate::options::{MountOptions, Security};
use crate::reserved_port;
use crate::session::Session;

/// What a mount begins with.
pub(crate) struct Connected {
    pub(crate) session: Arc<Session>,
    pub(crate) root: (Filehandle, Known),
    pub(crate) converter: Converter,
    pub(crate) lease: Duration,
    pub(crate) lock_freed: Arc<Notify>,
}

pub(crate) async fn connect(options: &MountOptions) -> Result<Connected, Failure> {
    let lock_freed = Arc::new(Notify::new());
    let client = match client(options, 2, protect(options).await?, &lock_freed).await {
        Err(error) if error.status() == Some(Status::MINOR_VERS_MISMATCH) => {
            client(options, 1, protect(options).await?, &lock_freed).await
        }
        connected => connected,
    };
    let client = client.map_err(|error| failure(options, &error))?;
    let complete = client.reclaim_complete().await;
    if let Err(error) = complete
        && error.status() != Some(Status::COMPLETE_ALREADY)
    {
        return Err(failure(options, &error));
    }
    let converter = Converter::new(options.io_len_max);
    let (root, lease) = root(&client, options, &converter).await?;
    let session = Session::new(client, options.timeout);
    Ok(Connected { session, root, converter, lease, lock_freed })
}

async fn protect(options: &MountOptions) -> Result<Box<dyn Protection>, Failure> {
    let copy = options.clone();
    let refused = |error: String| Failure::refused(&options.source, error);
    tokio::task::spawn_blocking(move || protection_of(&copy).map_err(|error| error.to_string()))
        .await
        .unwrap_or_else(|error| Err(error.to_string()))
        .map_err(refused)
}

async fn client(
    options: &MountOptions,
    minor: u32,
    protection: Box<dyn Protection>,
    lock_freed: &Arc<Notify>,
) -> Result<Client, Error> {
    let options = options.clone();
    let identity = identity(&options)?;
    let freed = lock_freed.clone();
    let mut config = Config {
        address: options.address,
        trunk: Vec::new(),
        minor,
        connections: options.connections,
        record_len_max: identity.message_len_max as usize + 4096,
        identity,
        connector: reserved_port::connector(),
        tls: options.tls.clone(),
        protection,
        renewal: None,
        callbacks: Box::new(move |args: &cb::Args<'_>| match args {
            cb::Args::NotifyLock(_) => {
                freed.notify_waiters();
                cb::Results::NotifyLock(Ok(()))
            }
            args => cb::Results::failure(args.op(), Status::NOTSUPP),
        }),
        // The caller of a hard mount waits as long as it takes.
        reconnect_timeout: options.timeout.unwrap_or(RECONNECT_MAX),
    };
    if let Security::Kerberos { .. } = &options.security {
        let renewal: Renewal =
            Arc::new(move || protection_of(&options).map_err(|error| error.to_string().into()));
        config.renewal = Some(renewal);
    }
    Client::connect(config).await
}

fn identity(options: &MountOptions) -> Result<Identity, Error> {
    let mut random = [0; 24];
    getrandom::fill(&mut random).map_err(|_| Error::Io(std::io::Error::other("no randomness")))?;
    let (verifier, owner) = random.split_at(8);
    let owner: String = owner.iter().map(|byte| format!("{byte:02x}")).collect();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let verifier = Verifier(verifier.try_into().expect("eight bytes"));
    Ok(Identity {
        slots: SLOTS,
        message_len_max: options.io_len_max + MESSAGE_HEAD_LEN,
        reclaim_complete: false,
        ..Identity::new(format!("vouch nfs-mount {host} {owner}"), verifier)
    })
}

type ProtectionFailure = Box<dyn std::error::Error + Send + Sync>;

fn protection_of(options: &MountOptions) -> Result<Box<dyn Protection>, ProtectionFailure> {
    Ok(match &options.security {
        Security::Sys => Box::new(Plain::sys(&Callers::new(true, true).own())),
        Security::Kerberos { service, principal } => {
            let initiator = MitInitiator::new(principal, &ClientSource::default())?;
            Box::new(establish_with(options.address, options.tls.as_ref(), initiator, *service)?)
        }
    })
}

async fn root(
    client: &Client,
    options: &MountOptions,
    converter: &Converter,
) -> Result<((Filehandle, Known), Duration), Failure> {
    let names: Vec<&[u8]> =
        options.path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).collect();
    loop {
        let mut compound = client.compound().putrootfh();
        for name in &names {
            compound = compound.lookup(name);
        }
        let reply = compound.getfh().getattr(WANTED).getattr(LEASE_TIME).send().await;
        let reply = reply.map_err(|error| failure(options, &error))?;
        if matches!(reply.status(), Status::DELAY | Status::GRACE) {
            tokio::time::sleep(GRACE_PAUSE).await;
            continue;
        }
        let found = || -> Result<_, Error> {
            let mut results = reply.results();
            results.skip(&[Op::PUTROOTFH])?;
            names.iter().try_for_each(|_| results.skip(&[Op::LOOKUP]))?;
            let handle = match results.next_ok()? {
                vouch_nfs4::op::Results::Getfh(Ok(ok)) => ok.handle,
                _ => return Err(Error::Mismatch("expected the result of GETFH")),
            };
            let known = converter
                .next(&mut results)
                .map_err(|_| Error::Mismatch("attributes of the root are missing"))?;
            let lease = match results.next_ok()? {
                vouch_nfs4::op::Results::Getattr(Ok(ok)) => ok.attrs.attributes()?.lease_time_s,
                _ => None,
            };
            Ok(((handle, known), Duration::from_secs(lease.unwrap_or(LEASE_S).into())))
        };
        return found().map_err(|error| failure(options, &error));
    }
}

fn failure(options: &MountOptions, error: &Error) -> Failure {
    let what = &options.source;
    match error.status() {
        Some(Status::NOENT) => {
            Failure::new(what, Why::NotFound("the server has no such export".into()))
        }
        Some(Status::ACCESS | Status::PERM | Status::WRONGSEC) => {
            Failure::refused(what, format!("the server refuses: {error}"))
                .cure("try another --sec, or let the server's exports name this client")
        }
        Some(_) => Failure::refused(what, error.to_string()),
        None => match error {
            Error::Denied(_) => Failure::refused(what, error.to_string()),
            _ => Failure::new(what, Why::Unreachable(error.to_string())),
        },
    }
}

const LEASE_TIME: Bitmap = Bitmap::of(&[10]);
const LEASE_S: u32 = 90;
const SLOTS: u32 = 64;
const GRACE_PAUSE: Duration = Duration::from_millis(500);

/// Headers of a READ or WRITE beside its data.
const MESSAGE_HEAD_LEN: u32 = 4096;

/// A hundred years.
const RECONNECT_MAX: Duration = Duration::from_secs(3_000_000_000);
