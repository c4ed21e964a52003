//! On the hot path: relaxed counters, and one look-up for each connection.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use vouch_audit::operations;
use vouch_daemon::exposition::{Exposition, Metric};
use vouch_nfs4_server::{
    CallOrigin, CompletedOp, ConnectionId, Denial, Export, ExportId, Observer, OpDetails, Principal,
};

use crate::limits::METRIC_CLIENTS_MAX;
use crate::monitoring::client_faults::{ClientFault, ClientFaults};
use crate::monitoring::counter::Counter;

pub(crate) struct Metrics {
    shards: Mutex<Shards>,
    statuses: RwLock<HashMap<u32, Arc<Counter>>>,
    clients: RwLock<HashMap<IpAddr, Arc<Totals>>>,
    other_clients: Arc<Totals>,
    exports: RwLock<HashMap<ExportId, Named>>,
    number: u64,
    pub(crate) client_faults: Arc<ClientFaults>,
}

type Named = (Arc<str>, Arc<Totals>);

struct Operations([[AtomicU64; 2]; OPERATIONS]);

#[derive(Default)]
struct Shards {
    live: Vec<Arc<Operations>>,
    gone: Arc<Operations>,
}

#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) operations: Counter,
    pub(crate) failed: Counter,
    pub(crate) bytes_read: Counter,
    pub(crate) bytes_written: Counter,
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

struct Last {
    metrics: u64,
    operations: Arc<Operations>,
    connection: ConnectionId,
    client: Arc<Totals>,
    export: Option<(ExportId, Arc<Totals>)>,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        Metrics {
            shards: Mutex::default(),
            statuses: RwLock::default(),
            clients: RwLock::default(),
            other_clients: Arc::default(),
            exports: RwLock::default(),
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            client_faults: Arc::new(ClientFaults::new()),
        }
    }

    /// Exports that stay keep their counters.
    pub(crate) fn name_exports(&self, exports: impl IntoIterator<Item = (ExportId, Arc<str>)>) {
        let mut known = self.exports.write();
        let mut old = std::mem::take(&mut *known);
        for (id, name) in exports {
            let totals = old.remove(&id).map_or_else(Arc::default, |(_, totals)| totals);
            known.insert(id, (name, totals));
        }
    }

    fn client(&self, address: IpAddr) -> Arc<Totals> {
        if let Some(known) = self.clients.read().get(&address) {
            return known.clone();
        }
        let mut clients = self.clients.write();
        if clients.len() >= METRIC_CLIENTS_MAX && !clients.contains_key(&address) {
            return self.other_clients.clone();
        }
        clients.entry(address).or_default().clone()
    }

    /// Adds up the counters of ended threads first, so that there are no more sets than threads.
    fn shard(&self) -> Arc<Operations> {
        let mut shards = self.shards.lock();
        let Shards { live, gone } = &mut *shards;
        live.retain(|operations| {
            let held = Arc::strong_count(operations) > 1;
            if !held {
                gone.take_over(operations);
            }
            held
        });
        let new = Arc::<Operations>::default();
        live.push(new.clone());
        new
    }

    fn operation_counts(&self) -> Vec<[u64; 2]> {
        let shards = self.shards.lock();
        let all = || shards.live.iter().chain([&shards.gone]);
        (0..OPERATIONS)
            .map(|number| {
                [0, 1].map(|kind| {
                    all().map(|operations| operations.0[number][kind].load(Ordering::Relaxed)).sum()
                })
            })
            .collect()
    }

    fn client_failed(&self, fault: ClientFault, origin: &CallOrigin, done: &CompletedOp<'_>) {
        let export = done.export().map_or("", |export| &*export.source);
        let (operation, status) =
            (done.op.name().unwrap_or("ILLEGAL"), done.status.name().unwrap_or("unknown"));
        let (connection, user) = (&origin.connection, user(&origin.principal));
        self.client_faults.note(
            fault,
            connection.client_name(),
            connection.peer().ip(),
            format_args!("operation={operation} status={status} export={export} user={user}"),
        );
    }

    fn failure(&self, status: u32) {
        if let Some(count) = self.statuses.read().get(&status) {
            return count.add(1);
        }
        self.statuses.write().entry(status).or_default().add(1);
    }

    pub(crate) fn write(&self, page: &mut Exposition) {
        let counts = self.operation_counts();
        let all = counts.iter().enumerate().filter(|(_, [done, _])| *done > 0);
        let done = ("vouch_export_operations_total", Metric::Counter, "Operations by name.");
        page.by(done, "op", all.clone().map(|(number, [done, _])| (name(number), done)));
        let help = "Failed operations by name.";
        let failed = ("vouch_export_operations_failed_total", Metric::Counter, help);
        page.by(failed, "op", all.map(|(number, [_, failed])| (name(number), failed)));
        page.family("vouch_export_status_total", Metric::Counter, "Failed operations by status.");
        let mut statuses: Vec<_> =
            self.statuses.read().iter().map(|(status, count)| (*status, count.get())).collect();
        statuses.sort_unstable();
        for (status, count) in statuses {
            page.sample("vouch_export_status_total", &[("status", &status.to_string())], count);
        }
        self.client_faults.write(page);
        let mut clients: Vec<_> = self
            .clients
            .read()
            .iter()
            .map(|(address, totals)| (address.to_string(), totals.clone()))
            .collect();
        clients.sort_by(|a, b| a.0.cmp(&b.0));
        clients.push(("other".into(), self.other_clients.clone()));
        totals(page, "client", &clients);
        let mut exports: Vec<_> = self
            .exports
            .read()
            .values()
            .map(|(name, totals)| (name.to_string(), totals.clone()))
            .collect();
        exports.sort_by(|a, b| a.0.cmp(&b.0));
        totals(page, "export", &exports);
    }
}

impl Observer for Metrics {
    fn denied(&self, origin: &CallOrigin, export: &Export, why: Denial) {
        let (connection, export) = (&origin.connection, &export.source);
        let fault = ClientFault::of_denial(why);
        let (user, transport) = (user(&origin.principal), connection.transport().name());
        self.client_faults.note(
            fault,
            connection.client_name(),
            connection.peer().ip(),
            format_args!("export={export} user={user} xprtsec={transport}"),
        );
    }

    fn operation(&self, origin: &CallOrigin, done: &CompletedOp<'_>) -> bool {
        let number = usize::try_from(done.op.0).ok().filter(|&op| op < OPERATIONS).unwrap_or(0);
        let bad = !done.status.is_ok();
        if bad {
            self.failure(done.status.0);
            let is_squashed = done.is_squashed(origin);
            if let Some(fault) = ClientFault::of_status(done.op.0, done.status.0, is_squashed) {
                self.client_failed(fault, origin, done);
            }
        }
        LAST.with_borrow_mut(|last| {
            let id = origin.connection.id();
            if last.as_ref().is_none_or(|last| last.connection != id || last.metrics != self.number)
            {
                let mine = last
                    .take()
                    .filter(|last| last.metrics == self.number)
                    .map(|last| last.operations);
                let operations = mine.unwrap_or_else(|| self.shard());
                let client = self.client(origin.connection.peer().ip());
                *last = Some(Last {
                    metrics: self.number,
                    operations,
                    connection: id,
                    client,
                    export: None,
                });
            }
            let Some(last) = last else { return };
            last.operations.add(number, bad);
            last.client.count(&done.details, bad);
            if let Some(export) = done.export().map(|export| export.id) {
                if last.export.as_ref().is_none_or(|(known, _)| *known != export) {
                    last.export = self
                        .exports
                        .read()
                        .get(&export)
                        .map(|(_, totals)| (export, totals.clone()));
                }
                if let Some((_, totals)) = &last.export {
                    totals.count(&done.details, bad);
                }
            }
        });
        false
    }
}

impl Default for Operations {
    fn default() -> Self {
        Operations(std::array::from_fn(|_| Default::default()))
    }
}

impl Operations {
    fn add(&self, number: usize, failed: bool) {
        let bump =
            |count: &AtomicU64| count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let [done, bad] = &self.0[number];
        bump(done);
        if failed {
            bump(bad);
        }
    }

    fn take_over(&self, other: &Operations) {
        for (mine, theirs) in self.0.iter().flatten().zip(other.0.iter().flatten()) {
            mine.fetch_add(theirs.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

impl Totals {
    fn count(&self, done: &OpDetails, failed: bool) {
        self.operations.add(1);
        if failed {
            self.failed.add(1);
        }
        if done.bytes_read > 0 {
            self.bytes_read.add(done.bytes_read);
        }
        if done.bytes_written > 0 {
            self.bytes_written.add(done.bytes_written);
        }
    }
}

fn totals(page: &mut Exposition, label: &str, all: &[(String, Arc<Totals>)]) {
    type Pick = fn(&Totals) -> &Counter;
    let series: [(&str, &str, Pick); 4] = [
        ("operations", "Operations", |totals| &totals.operations),
        ("operations_failed", "Failed operations", |totals| &totals.failed),
        ("read_bytes", "Bytes read from files", |totals| &totals.bytes_read),
        ("written_bytes", "Bytes written to files", |totals| &totals.bytes_written),
    ];
    for (what, help, pick) in series {
        let metric = format!("vouch_export_{label}_{what}_total");
        let family = (&*metric, Metric::Counter, &*format!("{help}, by {label}."));
        page.by(family, label, all.iter().map(|(name, totals)| (name, pick(totals).get())));
    }
}

fn user(principal: &Principal) -> Cow<'_, str> {
    match principal {
        Principal::None => "nobody".into(),
        Principal::Sys { uid, .. } => uid.to_string().into(),
        Principal::Gss { name } | Principal::Certificate { name } => (&**name).into(),
    }
}

/// Index 0 counts unknown operations.
const OPERATIONS: usize = operations::COUNT;

fn name(number: usize) -> &'static str {
    u16::try_from(number).map_or("ILLEGAL", operations::name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operation_names_match_their_numbers() {
        // RFC 8881 §18 (4.1); RFC 7862 §15; RFC 8276 §8.4.
        let some = [
            (3, "ACCESS"),
            (9, "GETATTR"),
            (18, "OPEN"),
            (25, "READ"),
            (38, "WRITE"),
            (42, "EXCHANGE_ID"),
            (53, "SEQUENCE"),
            (58, "RECLAIM_COMPLETE"),
        ];
        let more = [
            (59, "ALLOCATE"),
            (69, "SEEK"),
            (71, "CLONE"),
            (75, "REMOVEXATTR"),
            (0, "ILLEGAL"),
            (2, "ILLEGAL"),
        ];
        for (number, expected) in some.into_iter().chain(more) {
            assert_eq!(name(number), expected);
        }
    }

    #[test]
    fn keeps_counts_of_ended_threads() {
        let metrics = Metrics::new();
        for _ in 0..5 {
            std::thread::scope(|scope| {
                scope.spawn(|| metrics.shard().add(9, true));
            });
        }
        assert_eq!(metrics.operation_counts()[9], [5, 5]);
        let _mine = metrics.shard();
        let live = metrics.shards.lock().live.len();
        assert_eq!((live, metrics.operation_counts()[9]), (1, [5, 5]));
    }

    #[test]
    fn clients_above_the_limit_are_counted_together() {
        let metrics = Metrics::new();
        for i in 0..METRIC_CLIENTS_MAX as u32 + 10 {
            metrics.client(IpAddr::from(i.to_be_bytes())).operations.add(1);
        }
        assert_eq!(metrics.clients.read().len(), METRIC_CLIENTS_MAX);
        assert_eq!(metrics.other_clients.operations.get(), 10);
        let mut page = Exposition::default();
        metrics.write(&mut page);
        assert!(
            page.into_text()
                .contains("vouch_export_client_operations_total{client=\"other\"} 10\n")
        );
    }
}
