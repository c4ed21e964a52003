//! Ceilings of `qos=` by client, principal and export. The worker holds a connection back from
//! reading while one of its limits is exceeded.

mod shaper;

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use vouch_daemon::exposition::{Exposition, Metric};
use vouch_nfs4_server::{Compound, Export, ExportId, Exports, Principal, Qos, Reply};

use self::shaper::{Resource, Shaper};
use crate::clock;
use crate::memory_quota::quota_address;
use crate::monitoring::counter::Counter;
use crate::monitoring::status::QosStatus;
use crate::transport::connection::Connection;

#[derive(Default)]
pub(crate) struct QosLimits {
    /// False if no export has `qos=`: calls then cost one look at it.
    is_active: AtomicBool,
    generation: AtomicU64,
    held: [Counter; 4],
    /// A client that reconnects meets its old limits.
    shapers: Mutex<HashMap<Key, Arc<Shaper>>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    export: ExportId,
    source: Arc<str>,
    subject: Subject,
    /// A reload that changes the limits begins a new account.
    qos: Qos,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Subject {
    All,
    Address(IpAddr),
    Principal(String),
}

/// The limits of a connection. Only its own threads take the lock.
pub(crate) struct ConnectionQos {
    cache: Mutex<Vec<Cached>>,
    held_until_ns: AtomicU64,
    weight: AtomicU32,
}

struct Cached {
    export: ExportId,
    subject: Subject,
    generation: u64,
    until_ms: u64,
    /// Of the client, and of all clients.
    shapers: Vec<Arc<Shaper>>,
    weight: u32,
}

impl Default for ConnectionQos {
    fn default() -> Self {
        ConnectionQos {
            cache: Mutex::default(),
            held_until_ns: AtomicU64::new(0),
            weight: AtomicU32::new(1),
        }
    }
}

impl ConnectionQos {
    pub(crate) fn weight(&self) -> u32 {
        self.weight.load(Ordering::Relaxed)
    }

    /// The worker reads on at this time.
    pub(crate) fn held_until_ns(&self) -> Option<u64> {
        let until_ns = self.held_until_ns.load(Ordering::Relaxed);
        (until_ns > 0 && until_ns > clock::mono_ns()).then_some(until_ns)
    }

    pub(crate) fn release(&self) {
        self.cache.lock().clear();
        self.held_until_ns.store(0, Ordering::Relaxed);
        self.weight.store(1, Ordering::Relaxed);
    }
}

impl QosLimits {
    pub(crate) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }

    /// The caller then releases the connections.
    pub(crate) fn set_exports(&self, exports: &Exports) {
        let has_qos = exports.all().iter().any(|export| export.clients.has_qos());
        self.is_active.store(has_qos, Ordering::Relaxed);
        self.generation.fetch_add(1, Ordering::Relaxed);
        let exported = |id| exports.all().iter().any(|export| export.id == id);
        let now_ns = clock::mono_ns();
        self.shapers
            .lock()
            .retain(|key, shaper| has_qos && exported(key.export) && !shaper.is_unused(now_ns));
    }

    /// When a call has run: its cost is known then.
    pub(crate) fn charge(&self, connection: &Connection, call: &Compound, reply: Option<&Reply>) {
        if !self.is_active() {
            return;
        }
        let Some((principal, export)) = call.account() else { return };
        let bytes = call.body_len() + reply.map_or(0, Reply::len);
        let (own, now_ns) = (connection.qos(), clock::mono_ns());
        let mut cache = own.cache.lock();
        let at = self.find(&mut cache, connection, principal, export);
        let applied = &cache[at];
        own.weight.store(applied.weight, Ordering::Relaxed);
        for (number, shaper) in applied.shapers.iter().enumerate() {
            shaper.charge(1, bytes as u64, now_ns);
            if let Some((wait_ns, resource)) = shaper.wait(now_ns) {
                // A client must be able to renew its lease.
                let until_ns = now_ns + wait_ns.min(HOLD_NS_MAX);
                if own.held_until_ns.fetch_max(until_ns, Ordering::Relaxed) <= now_ns {
                    self.held[2 * number + usize::from(resource == Resource::Bytes)].add(1);
                    shaper.held.add(1);
                    shaper.held_ms.add((until_ns - now_ns) / 1_000_000);
                }
            }
        }
    }

    fn find(
        &self,
        cache: &mut Vec<Cached>,
        connection: &Connection,
        principal: &Principal,
        export: &Export,
    ) -> usize {
        let (now_ms, generation) = (clock::mono_ms(), self.generation.load(Ordering::Relaxed));
        cache.retain(|known| known.generation == generation && known.until_ms > now_ms);
        let known = cache.iter().position(|known| {
            known.export == export.id
                && match &known.subject {
                    Subject::Principal(name) => *name == name_of(principal),
                    _ => true,
                }
        });
        if let Some(known) = known {
            return known;
        }
        if cache.len() >= CACHE_MAX {
            cache.remove(0);
        }
        let qos = export.clients.access_for(connection.peer()).and_then(|access| access.qos);
        let subject = match qos {
            Some(qos) if qos.by_principal => Subject::Principal(name_of(principal).into_owned()),
            _ => Subject::Address(quota_address(connection.peer().ip())),
        };
        let shapers = qos.map_or_else(Vec::new, |qos| {
            [(subject.clone(), qos.client), (Subject::All, qos.all)]
                .into_iter()
                .map(|(subject, rates)| {
                    let source = export.source.clone();
                    self.shaper(Key { export: export.id, source, subject, qos }, rates)
                })
                .collect()
        });
        cache.push(Cached {
            export: export.id,
            subject,
            generation,
            until_ms: now_ms + CACHE_MS,
            shapers,
            weight: qos.map_or(1, |qos| qos.weight),
        });
        cache.len() - 1
    }

    fn shaper(&self, key: Key, rates: vouch_nfs4_server::Rates) -> Arc<Shaper> {
        let mut shapers = self.shapers.lock();
        // Amortised O(1): only before the map would grow.
        if shapers.len() == shapers.capacity() {
            let now_ns = clock::mono_ns();
            shapers.retain(|_, shaper| Arc::strong_count(shaper) > 1 || !shaper.is_unused(now_ns));
        }
        if let Some(known) = shapers.get(&key) {
            return known.clone();
        }
        let shaper = Arc::new(Shaper::new(rates, key.qos.burst_ms));
        if shapers.len() < SHAPERS_MAX {
            shapers.insert(key, shaper.clone());
        }
        shaper
    }

    pub(crate) fn write(&self, page: &mut Exposition) {
        let name = "vouch_export_qos_held_total";
        let held = (name, Metric::Counter, "Times that a client exceeded a limit of qos=.");
        let counts = self.held.iter().map(|count| count.get());
        page.by(held, "limit", ["ops", "bytes", "all-ops", "all-bytes"].into_iter().zip(counts));
        let name = "vouch_export_qos_held_accounts";
        page.family(name, Metric::Gauge, "Clients and exports that a limit of qos= holds back.");
        let now_ns = clock::mono_ns();
        let shapers = self.shapers.lock();
        page.sample(name, &[], shapers.values().filter(|one| one.wait(now_ns).is_some()).count());
    }

    /// The accounts that were held back longest.
    pub(crate) fn status(&self) -> Vec<QosStatus> {
        let now_ns = clock::mono_ns();
        let mut list: Vec<QosStatus> = self
            .shapers
            .lock()
            .iter()
            .map(|(key, shaper)| {
                let rates = if key.subject == Subject::All { key.qos.all } else { key.qos.client };
                let wait = shaper.wait(now_ns);
                QosStatus {
                    export: key.source.to_string(),
                    client: match &key.subject {
                        Subject::All => "all".to_owned(),
                        Subject::Address(address) => address.to_string(),
                        Subject::Principal(name) => name.clone(),
                    },
                    ops_per_second: rates.ops,
                    bytes_per_second: rates.bytes,
                    weight: key.qos.weight,
                    operations: shaper.ops_used.get(),
                    bytes: shaper.bytes_used.get(),
                    held: shaper.held.get(),
                    held_ms: shaper.held_ms.get(),
                    held_by: wait.map(|(_, resource)| {
                        match resource {
                            Resource::Ops => "ops",
                            Resource::Bytes => "bytes",
                        }
                        .to_owned()
                    }),
                }
            })
            .collect();
        list.sort_by(|a, b| {
            (b.held_by.is_some(), b.held_ms, &a.client).cmp(&(
                a.held_by.is_some(),
                a.held_ms,
                &b.client,
            ))
        });
        list.truncate(STATUS_MAX);
        list
    }
}

fn name_of(principal: &Principal) -> Cow<'_, str> {
    match principal {
        Principal::None => "nobody".into(),
        Principal::Sys { uid, .. } => format!("uid {uid}").into(),
        Principal::Gss { name } | Principal::Certificate { name, .. } => Cow::Borrowed(name),
    }
}

const CACHE_MAX: usize = 16;
/// The name of a host may change.
const CACHE_MS: u64 = 10_000;
/// A connection runs a call after this time, whatever its client owes: a reply to a recall behind 64
/// calls arrives before the lease ends.
const HOLD_NS_MAX: u64 = 1_000_000_000;
/// More than clients with state. A further client begins each connection with a new account.
const SHAPERS_MAX: usize = 1 << 16;
const STATUS_MAX: usize = 64;
