//! Runs histories against a server: each has a new directory with one object of each kind, and
//! several clients that work on them at once. The seed determines the calls of each client and the
//! faults; the server and the network determine their order.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use vouch_bench::{Error, StopFlag};
use vouch_nfs4::op::*;
use vouch_nfs4::{Attributes, Filehandle, Stateid};
use vouch_nfs4_client::{Client, Error as CallError};

use crate::client::{self, Delegations, Server, is_later};
use crate::history::{
    Call, Fault, History, Operation, Outcome, RESTART, STABLE_NAMES, SetHow, stable_name,
};
use crate::relay::{Kind, Relay};
use crate::rng::Rng;
use crate::worker::{FIRST_MODE, HeldState, Objects, SOURCE, Worker, no_delegation};
use crate::{Verdict, check};

#[derive(Debug, Clone)]
pub struct Options {
    pub server: Server,
    pub clients: u16,
    /// Calls of each client in one history.
    pub calls: u32,
    pub histories: u64,
    pub seed: u64,
    pub faults: Vec<Kind>,
    /// Shell command that ends the server's process and starts it again.
    pub restart: Option<String>,
}

#[derive(Debug, Default)]
pub struct Summary {
    pub histories: u64,
    pub calls: u64,
    pub faults: u64,
    pub undecided: u64,
    pub violated: Option<(History, Box<crate::Violation>)>,
}

/// Ends at the first violation, or when `stop` is set.
pub fn run(
    options: &Options,
    stop: &StopFlag,
    progress: &dyn Fn(&Summary),
) -> Result<Summary, Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(Error::io("threads"))?;
    let mut summary = Summary::default();
    runtime.block_on(async {
        let address = options.server.target.address()?;
        let is_tls = options.server.tls.is_some();
        let relay = Relay::start(address, options.faults.clone(), is_tls, options.seed)
            .await
            .map_err(Error::io("relay"))?;
        let instance = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |now| now.as_nanos() as u64);
        let name = format!("admin {instance}");
        let admin =
            options.server.connect(address, &name, instance, Delegations::default()).await?;
        let (server, relayed) = (options.server.clone(), relay.address);
        let connect: Connect = Arc::new(move |_, name, instance, delegations| {
            let server = server.clone();
            Box::pin(async move { server.connect(relayed, &name, instance, delegations).await })
        });
        let mut clients = Vec::new();
        for at in 0..options.clients {
            let name = format!("vouch consistency {instance} {at}");
            let delegations = Delegations::default();
            let client = connect(at, name, instance, delegations.clone()).await?;
            clients.push((client, delegations));
        }
        for number in 0..options.histories {
            if stop.is_set() {
                break;
            }
            let seed = options.seed.wrapping_add(number);
            let all = (&admin, &clients[..]);
            let history = one_history(options, all, &relay, &connect, (instance, seed)).await?;
            summary.histories += 1;
            summary.calls += history.operations.len() as u64;
            summary.faults += history.faults.len() as u64;
            match check(&history) {
                Verdict::Right => {}
                Verdict::Undecided(_) => summary.undecided += 1,
                Verdict::Violated(violation) => {
                    summary.violated = Some((history, violation));
                    break;
                }
            }
            progress(&summary);
        }
        let _ = admin.close().await;
        for (client, _) in clients {
            let _ = tokio::time::timeout(Duration::from_secs(2), client.close()).await;
        }
        Ok(())
    })?;
    Ok(summary)
}

/// Repeats a call of the set-up while the server asks for it.
async fn set_up<T, F: Future<Output = Result<T, CallError>>>(
    admin: &Client,
    what: &str,
    mut call: impl FnMut() -> F,
) -> Result<T, Error> {
    let begun = Instant::now();
    loop {
        match call().await {
            Ok(value) => return Ok(value),
            Err(error) if begun.elapsed() > Duration::from_secs(180) => {
                return Err(Error::nfs(what)(error));
            }
            Err(CallError::Refused { status, .. }) if is_later(status) => {
                tokio::time::sleep(Duration::from_millis(100)).await
            }
            Err(error) if error.status().is_none_or(client::is_recovery) => {
                let _ = admin.renew().await;
                let _ = client::end_reclaims(admin).await;
                tokio::time::sleep(Duration::from_millis(100)).await
            }
            Err(error) => return Err(Error::nfs(what)(error)),
        }
    }
}

async fn make_file(
    admin: &Client,
    directory: &Filehandle,
    name: &str,
) -> Result<Filehandle, CallError> {
    let mode = Attributes { mode: Some(0o666), ..Attributes::default() };
    let access = no_delegation(admin, ShareAccess::BOTH);
    let file = admin.open(directory, name.as_bytes(), access, Some(&mode)).await?;
    let handle = file.handle;
    admin.close_file(file).await?;
    Ok(handle)
}

/// Connects a client of a worker, by its number, with a name and an instance.
pub type Connect =
    Arc<dyn Fn(u16, String, u64, Delegations) -> BoxFuture<Result<Client, Error>> + Send + Sync>;
type BoxFuture<T> = std::pin::Pin<Box<dyn Future<Output = T> + Send>>;

/// The new directory of one history, on the server.
pub struct Place {
    root: Filehandle,
    name: String,
    objects: Objects,
    changes_grow: bool,
    lease: Option<Duration>,
}

impl Place {
    /// `unique` makes its name.
    pub async fn make(options: &Options, admin: &Client, unique: u64) -> Result<Self, Error> {
        let what = options.server.target.to_string();
        let path = options.server.target.path.join("/");
        let root = set_up(admin, &what, || admin.walk(path.as_bytes())).await?.handle;
        let name = format!("vouch-consistency-{:016x}", Rng(unique).next());
        let directory = set_up(admin, &what, || admin.mkdir(&root, name.as_bytes(), 0o777)).await?;
        let names = set_up(admin, &what, || admin.mkdir(&directory, b"names", 0o777)).await?;
        for name in (0..STABLE_NAMES).map(stable_name) {
            set_up(admin, &what, || make_file(admin, &names, &name)).await?;
        }
        let mut files = Vec::new();
        for file in FILES {
            files.push(set_up(admin, &what, || make_file(admin, &directory, file)).await?);
        }
        let base_id = set_up(admin, &what, || client::lookup(admin, &directory, "base")).await?;
        let changes_grow = options.server.minor == 2
            && set_up(admin, &what, || client::changes_grow(admin, &files[1]))
                .await
                .unwrap_or(false);
        let source: Vec<u8> = SOURCE.iter().flat_map(|value| value.to_be_bytes()).collect();
        let how = StableHow::FileSync;
        set_up(admin, &what, || {
            client::write(admin, (&files[7], Stateid::ANONYMOUS), 0, &source, how)
        })
        .await?;
        set_up(admin, &what, || client::set_mode(admin, &files[5], FIRST_MODE)).await?;
        let lease_s = set_up(admin, &what, || client::lease_s(admin, &directory)).await?;
        let lease = lease_s.map(|s| Duration::from_secs(s.into()));
        let objects = Objects {
            names,
            base: files[0],
            base_id,
            file: files[1],
            shared: files[3],
            delegated: files[4],
            attributes: files[5],
            listed: files[6],
            directory,
            cached: Arc::default(),
        };
        Ok(Self { root, name, objects, changes_grow, lease })
    }

    /// The clients' calls beside `faults`, which returns those that it made.
    pub async fn history(
        &self,
        options: &Options,
        (admin, clients): (&Client, &[(Client, Delegations)]),
        (seed, start): (u64, Instant),
        connect: &Connect,
        faults: impl Future<Output = Result<Vec<Fault>, Error>>,
    ) -> Result<History, Error> {
        let log = Arc::new(Mutex::new(vec![first_mode()]));
        let mut rng = Rng(seed);
        // In some histories only: after it, a refusal proves less.
        let waits = rng.percent(25);
        let mut tasks = Vec::new();
        // Unlike a watch channel, it wakes the workers in their order.
        let is_restarted = Arc::new(tokio::sync::SetOnce::new());
        for (number, (client, delegations)) in clients.iter().enumerate() {
            let mut worker = Worker {
                client: client.clone(),
                id: client.id(),
                number: number as u16,
                rng: Rng(rng.next()),
                objects: self.objects.clone(),
                start,
                log: log.clone(),
                state: HeldState::default(),
                owners: number as u16,
                stride: options.clients,
                delegations: delegations.clone(),
                connect: connect.clone(),
                waits,
                short_lease: self.lease.filter(|lease| *lease <= SHORT_LEASE),
                lease: self.lease,
                last_ok: Default::default(),
            };
            let (calls, is_restarted) = (options.calls, is_restarted.clone());
            tasks.push(tokio::spawn(async move {
                // The lease may have ended between two histories.
                worker.end_reclaims().await;
                for _ in 0..calls {
                    worker.one_call().await;
                }
                // The server waits for the reclaims of each client that it knows.
                if *is_restarted.wait().await {
                    worker.notice_restart().await;
                }
                worker.finish().await;
            }));
        }
        let faults = faults.await?;
        let restarts = faults.iter().any(|fault| fault.kind == RESTART);
        is_restarted.set(restarts).expect("it is set once");
        if restarts {
            let reclaimed = async || {
                admin.renew().await?;
                client::end_reclaims(admin).await
            };
            set_up(admin, &options.server.target.to_string(), reclaimed).await?;
        }
        for task in tasks {
            task.await.map_err(|error| Error::Program(error.to_string()))?;
        }
        let mut operations = std::mem::take(&mut *log.lock());
        operations.sort_by_key(|op: &Operation| op.start);
        for (id, op) in operations.iter_mut().enumerate() {
            op.id = id as u32;
        }
        Ok(History {
            seed,
            server: options.server.target.to_string(),
            minor: options.server.minor,
            sec: options.server.sec.to_string(),
            changes_grow: self.changes_grow,
            operations,
            faults,
        })
    }

    async fn remove(&self, admin: &Client) {
        let cached = self.objects.cached.lock().clone();
        let cached = cached.iter().map(|(_, directory)| directory);
        for directory in cached.chain([&self.objects.names, &self.objects.directory]) {
            for entry in admin.list(directory, 10_000).await.unwrap_or_default() {
                let _ = admin.remove(directory, &entry.name).await;
            }
        }
        let _ = admin.remove(&self.root, self.name.as_bytes()).await;
    }
}

/// Short enough to wait for its end.
const SHORT_LEASE: Duration = Duration::from_secs(2);

const FILES: [&str; 8] =
    ["base", "file", "lock", "share", "delegated", "attributes", "listed", "source"];

/// The set-up's, before all calls.
fn first_mode() -> Operation {
    Operation {
        id: 0,
        client: u16::MAX,
        object: "mode".into(),
        start: 0,
        end: Some(0),
        call: Call::Set { key: 0, value: FIRST_MODE, how: SetHow::Either },
        outcome: Outcome::Done,
        change: None,
        verifier: None,
    }
}

async fn one_history(
    options: &Options,
    (admin, clients): (&Client, &[(Client, Delegations)]),
    relay: &Relay,
    connect: &Connect,
    (instance, seed): (u64, u64),
) -> Result<History, Error> {
    let place = Place::make(options, admin, seed ^ instance).await?;
    let start = Instant::now();
    relay.begin(start.into_std(), seed);
    let restart = restart(options, seed, start);
    let mut history =
        place.history(options, (admin, clients), (seed, start), connect, restart).await?;
    history.faults.extend(relay.end());
    place.remove(admin).await;
    Ok(history)
}

async fn restart(options: &Options, seed: u64, start: Instant) -> Result<Vec<Fault>, Error> {
    let Some(command) = &options.restart else { return Ok(Vec::new()) };
    tokio::time::sleep(Duration::from_millis(Rng(seed).below(200))).await;
    let begun = start.elapsed();
    let shell = command.clone();
    let ended = tokio::task::spawn_blocking(move || {
        std::process::Command::new("sh").args(["-c", &shell]).status()
    });
    let ended = ended.await.map_err(|error| Error::Program(error.to_string()))?;
    if !ended.map_err(Error::io(command.clone()))?.success() {
        return Err(Error::Program(format!("{command}: it failed")));
    }
    let (begun, end) = (begun.as_nanos() as u64, start.elapsed().as_nanos() as u64);
    Ok(vec![Fault { kind: RESTART.into(), start: begun, end }])
}
