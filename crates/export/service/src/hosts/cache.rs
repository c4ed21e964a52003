//! Access checks read only this cache.

use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};

use crate::hosts::resolver::{NoAnswer, Resolver};

pub(crate) struct Hosts {
    resolver: Arc<dyn Resolver>,
    known: RwLock<Known>,
    records_names: bool,
    has_names: AtomicBool,
    generation: AtomicU64,
    /// Connections of each address. A connected client is not evicted.
    connected: Mutex<HashMap<IpAddr, usize>>,
    requested: Mutex<HashSet<IpAddr>>,
    has_requested: AtomicBool,
    has_changed: AtomicBool,
    clients_max: usize,
    /// Validity of a disconnected client's record during an outage of the name service.
    kept: Duration,
}

#[derive(Default)]
struct Known {
    addresses: HashMap<String, HashSet<IpAddr>>,
    clients: HashMap<IpAddr, ClientRecord>,
    netgroups: HashSet<String>,
    /// Finding one proves that the name service knows the netgroup now.
    members: HashMap<String, Vec<String>>,
    names_wanted: bool,
}

impl Known {
    fn is_stale(&self, client: &IpAddr) -> bool {
        self.clients.get(client).is_none_or(ClientRecord::is_stale)
    }
}

#[derive(Clone)]
struct ClientRecord {
    name: Option<Arc<str>>,
    groups: HashMap<String, Membership>,
    since: Instant,
    answered: Option<Instant>,
    fresh: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Membership {
    In,
    Out,
    /// innetgr(3) returns the same when the name service is down.
    Uncertain,
}

impl ClientRecord {
    fn is_stale(&self) -> bool {
        self.since.elapsed() > self.fresh
    }
}

impl Hosts {
    pub(crate) fn new(resolver: Arc<dyn Resolver>) -> Self {
        Hosts {
            resolver,
            known: RwLock::default(),
            records_names: false,
            has_names: AtomicBool::new(false),
            generation: AtomicU64::new(next_generation()),
            connected: Mutex::default(),
            requested: Mutex::default(),
            has_requested: AtomicBool::new(false),
            has_changed: AtomicBool::new(false),
            clients_max: CLIENTS_MAX,
            kept: STALE_MAX,
        }
    }

    pub(crate) fn recording_names(self, records_names: bool) -> Self {
        Hosts { records_names, ..self }
    }

    pub(crate) fn connection_opened(&self, client: IpAddr) {
        *self.connected.lock().entry(client.to_canonical()).or_default() += 1;
    }

    pub(crate) fn connection_closed(&self, client: IpAddr) {
        if let Entry::Occupied(mut count) = self.connected.lock().entry(client.to_canonical()) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// Returns hosts without an address. A failed look-up keeps old addresses, and old names stay
    /// until [`Hosts::retain_named`].
    pub(crate) fn resolve_named(
        &self,
        hosts: &[String],
        netgroups: &[String],
        names_wanted: bool,
    ) -> Vec<String> {
        let mut unknown = Vec::new();
        let mut resolved = Vec::new();
        for host in hosts {
            let found: HashSet<IpAddr> = match host.parse::<IpAddr>() {
                Ok(address) => [address.to_canonical()].into(),
                Err(_) => self.addresses(host),
            };
            resolved.push((host.clone(), found));
        }
        let clients: Vec<IpAddr> = {
            let mut known = self.known.write();
            for (host, found) in resolved {
                if found.is_empty() && known.addresses.get(&host).is_none_or(HashSet::is_empty) {
                    unknown.push(host.clone());
                }
                match known.addresses.entry(host) {
                    Entry::Vacant(new) => drop(new.insert(found)),
                    Entry::Occupied(mut before) if !found.is_empty() && *before.get() != found => {
                        before.insert(found);
                        self.has_changed.store(true, Ordering::Release);
                    }
                    Entry::Occupied(_) => {}
                }
            }
            known.netgroups.extend(netgroups.iter().cloned());
            known.names_wanted |= names_wanted;
            let connected: Vec<IpAddr> = self
                .connected
                .lock()
                .keys()
                .copied()
                .filter(|client| !known.clients.contains_key(client))
                .collect();
            known.clients.keys().copied().chain(connected).collect()
        };
        if names_wanted {
            clients.iter().for_each(|&client| self.look_up(client));
            let has_uncertain_group = |client: &IpAddr| {
                let known = self.known.read();
                let is_uncertain = |(group, membership): (&String, &Membership)| {
                    *membership == Membership::Uncertain && known.members.contains_key(group)
                };
                known.clients.get(client).is_some_and(|met| met.groups.iter().any(is_uncertain))
            };
            clients.into_iter().filter(has_uncertain_group).for_each(|client| self.look_up(client));
        }
        unknown
    }

    pub(crate) fn retain_named(&self, hosts: &[String], netgroups: &[String], names_wanted: bool) {
        let mut known = self.known.write();
        known.addresses.retain(|host, _| hosts.contains(host));
        known.netgroups.retain(|group| netgroups.contains(group));
        known.members.retain(|group, _| netgroups.contains(group));
        known.names_wanted = names_wanted;
    }

    /// A failed look-up keeps the old addresses.
    pub(crate) fn refresh_addresses(&self) {
        let hosts: Vec<String> = self
            .known
            .read()
            .addresses
            .keys()
            .filter(|host| host.parse::<IpAddr>().is_err())
            .cloned()
            .collect();
        for host in hosts {
            let found = self.addresses(&host);
            let mut known = self.known.write();
            if let Some(addresses) = known
                .addresses
                .get_mut(&host)
                .filter(|before| !found.is_empty() && **before != found)
            {
                *addresses = found;
                self.has_changed.store(true, Ordering::Release);
            }
        }
    }

    /// Refreshes connected clients whose access depends on names. A failed look-up changes nothing.
    pub(crate) fn refresh_clients(&self) {
        if self.known.read().names_wanted {
            self.stale_connected_clients()
                .into_iter()
                .for_each(|client| self.look_up_if_stale(client));
        }
    }

    pub(crate) fn stale_recorded_clients(&self) -> Vec<IpAddr> {
        if self.known.read().names_wanted || !self.records_names {
            return Vec::new();
        }
        self.stale_connected_clients()
    }

    fn stale_connected_clients(&self) -> Vec<IpAddr> {
        let mut old: Vec<(Option<Instant>, IpAddr)> = {
            let known = self.known.read();
            let connected = self.connected.lock();
            let met = |client: &IpAddr| (known.clients.get(client).map(|met| met.since), *client);
            connected.keys().filter(|client| known.is_stale(client)).map(met).collect()
        };
        old.sort_by_key(|&(since, _)| since);
        old.into_iter().take(CLIENTS_AT_ONCE_MAX).map(|(_, client)| client).collect()
    }

    fn addresses(&self, host: &str) -> HashSet<IpAddr> {
        self.resolver.addresses(host).unwrap_or_default().into_iter().collect()
    }

    /// True if access depends on a name that must be looked up before the first call.
    pub(crate) fn must_look_up(&self, client: IpAddr) -> bool {
        let known = self.known.read();
        known.names_wanted && known.is_stale(&client)
    }

    pub(crate) fn should_look_up(&self, client: IpAddr) -> bool {
        let known = self.known.read();
        (known.names_wanted || self.records_names) && known.is_stale(&client)
    }

    pub(crate) fn has_record(&self, client: IpAddr) -> bool {
        self.known.read().clients.contains_key(&client)
    }

    pub(crate) fn look_up_if_stale(&self, client: IpAddr) {
        if self.should_look_up(client) {
            self.look_up(client);
        }
    }

    pub(crate) fn look_up(&self, client: IpAddr) {
        let found = self.verified_name(client);
        let (netgroups, before) = {
            let known = self.known.read();
            let before = match found {
                Ok(_) => None,
                Err(NoAnswer) => {
                    known.clients.get(&client).filter(|met| self.stays_good(client, met)).cloned()
                }
            };
            (known.netgroups.clone(), before)
        };
        let (name, had, answered, fresh) = match (found, before) {
            (Ok(name), _) => (name.map(Arc::from), HashMap::new(), Some(Instant::now()), FRESH),
            (Err(NoAnswer), Some(before)) => (before.name, before.groups, before.answered, RETRY),
            (Err(NoAnswer), None) => (None, HashMap::new(), None, RETRY),
        };
        let address = client.to_string();
        let own: Vec<&str> = name.iter().map(|name| &**name).chain([address.as_str()]).collect();
        // By address even without a name: an outage of the client's reverse zone does not preserve
        // membership.
        let answer = |group: String| {
            let membership = match (self.membership(&group, &own), had.get(&group)) {
                (Membership::Uncertain, Some(before)) => *before,
                (membership, _) => membership,
            };
            (group, membership)
        };
        let groups: HashMap<String, Membership> = netgroups.into_iter().map(answer).collect();
        let mut known = self.known.write();
        if known.clients.len() >= self.clients_max && !known.clients.contains_key(&client) {
            self.evict(&mut known);
        }
        self.has_names.fetch_or(name.is_some(), Ordering::Relaxed);
        let after = (name.clone(), groups.clone(), answered.is_some());
        let before = known
            .clients
            .insert(client, ClientRecord { name, groups, since: Instant::now(), answered, fresh });
        self.generation.store(next_generation(), Ordering::Release);
        // `request_lookup` has its own notification.
        if before
            .is_some_and(|before| (before.name, before.groups, before.answered.is_some()) != after)
        {
            self.has_changed.store(true, Ordering::Release);
        }
    }

    /// A host is certainly no member only if a known member is found at the same time: the host is
    /// checked again after the member.
    fn membership(&self, group: &str, own: &[&str]) -> Membership {
        let find = || own.iter().find(|host| self.resolver.in_netgroup(group, host));
        if let Some(host) = find() {
            let mut known = self.known.write();
            if known.netgroups.contains(group) {
                let members = known.members.entry(group.to_owned()).or_default();
                if !members.iter().any(|member| member == host) {
                    members.push((*host).to_owned());
                    let surplus = members.len().saturating_sub(MEMBERS_MAX);
                    members.drain(..surplus);
                }
            }
            return Membership::In;
        }
        let mut others = self.known.read().members.get(group).cloned().unwrap_or_default();
        others.retain(|member| !own.contains(&member.as_str()));
        match others.iter().any(|other| self.resolver.in_netgroup(group, other)) {
            false => Membership::Uncertain,
            true if find().is_some() => Membership::In,
            true => Membership::Out,
        }
    }

    /// The owner of a reverse zone may claim any name.
    fn verified_name(&self, client: IpAddr) -> Result<Option<String>, NoAnswer> {
        let Some(name) = self.resolver.name(client)? else { return Ok(None) };
        Ok(self.resolver.addresses(&name)?.contains(&client).then_some(name))
    }

    /// While the client is connected, and for some time afterwards.
    fn stays_good(&self, client: IpAddr, met: &ClientRecord) -> bool {
        met.answered.is_some_and(|at| {
            at.elapsed() < self.kept || self.connected.lock().contains_key(&client)
        })
    }

    /// Oldest disconnected clients first. O(n log n).
    fn evict(&self, known: &mut Known) {
        let connected = self.connected.lock();
        let away = known.clients.iter().filter(|(client, _)| !connected.contains_key(client));
        let mut away: Vec<(Instant, IpAddr)> =
            away.map(|(client, met)| (met.since, *client)).collect();
        drop(connected);
        away.sort_unstable();
        for (_, client) in away.into_iter().take((self.clients_max / FORGET_SHARE).max(1)) {
            known.clients.remove(&client);
        }
    }

    /// A disconnected client evicts nobody.
    fn request_lookup(&self, client: IpAddr) {
        let connected = self.connected.lock().contains_key(&client);
        if !connected && self.known.read().clients.len() >= self.clients_max {
            return;
        }
        let mut requested = self.requested.lock();
        if requested.len() < CLIENTS_AT_ONCE_MAX {
            requested.insert(client);
            self.has_requested.store(true, Ordering::Release);
        }
    }

    pub(crate) fn has_requested(&self) -> bool {
        self.has_requested.load(Ordering::Acquire)
    }

    /// Notifies after each client, so that its state does not wait for other look-ups.
    pub(crate) fn look_up_requested(&self) {
        self.has_requested.store(false, Ordering::Release);
        let requested = std::mem::take(&mut *self.requested.lock());
        for client in requested {
            if !self.is_known(client) {
                self.look_up(client);
            }
            self.has_changed.store(true, Ordering::Release);
        }
    }

    fn is_known(&self, client: IpAddr) -> bool {
        let known = self.known.read();
        let is_sure = |group: &String, met: &ClientRecord| {
            met.groups.get(group).is_some_and(|membership| *membership != Membership::Uncertain)
        };
        known.clients.get(&client).is_some_and(|met| {
            !met.is_stale() && known.netgroups.iter().all(|group| is_sure(group, met))
        })
    }

    pub(crate) fn has_changed(&self) -> bool {
        self.has_changed.load(Ordering::Acquire)
    }

    pub(crate) fn take_changed(&self) -> bool {
        self.has_changed.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn when_changed(&self, act: impl FnOnce()) {
        if self.take_changed() {
            let _again = SetOnPanic(&self.has_changed);
            act();
        }
    }

    pub(crate) fn has_answer(&self, client: IpAddr) -> bool {
        self.known.read().clients.get(&client).is_some_and(|met| met.answered.is_some())
    }

    pub(crate) fn has_address(&self, host: &str, client: IpAddr) -> bool {
        self.known.read().addresses.get(host).is_some_and(|addresses| addresses.contains(&client))
    }

    /// `None` if unknown, which requests a look-up.
    pub(crate) fn is_in_netgroup(&self, group: &str, client: IpAddr) -> Option<bool> {
        let found =
            self.known.read().clients.get(&client).and_then(|met| met.groups.get(group).copied());
        if found.is_none() {
            self.request_lookup(client);
        }
        found.map(|membership| membership == Membership::In)
    }

    /// The client was not found, perhaps because the name service was down.
    pub(crate) fn is_membership_uncertain(&self, group: &str, client: IpAddr) -> bool {
        self.known.read().clients.get(&client).and_then(|met| met.groups.get(group))
            == Some(&Membership::Uncertain)
    }

    /// `None` if unknown, which requests a look-up.
    pub(crate) fn name_matches(&self, client: IpAddr, fits: impl Fn(&str) -> bool) -> Option<bool> {
        let found =
            self.known.read().clients.get(&client).map(|met| met.name.as_deref().is_some_and(fits));
        if found.is_none() {
            self.request_lookup(client);
        }
        found
    }

    pub(crate) fn name(&self, client: IpAddr) -> Option<Arc<str>> {
        if !self.has_names.load(Ordering::Relaxed) {
            return None;
        }
        // A concurrent change invalidates the entry.
        let generation = self.generation.load(Ordering::Acquire);
        NAMED_LAST.with_borrow_mut(|last| match last {
            Some((at, of, name)) if (*at, *of) == (generation, client) => name.clone(),
            _ => {
                let name = self.known.read().clients.get(&client).and_then(|met| met.name.clone());
                *last = Some((generation, client, name.clone()));
                name
            }
        })
    }
}

thread_local! {
    static NAMED_LAST: RefCell<Option<NamedAt>> = const { RefCell::new(None) };
}

type NamedAt = (u64, IpAddr, Option<Arc<str>>);

fn next_generation() -> u64 {
    static STANDS: AtomicU64 = AtomicU64::new(0);
    STANDS.fetch_add(1, Ordering::Relaxed)
}

struct SetOnPanic<'h>(&'h AtomicBool);

impl Drop for SetOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Release);
        }
    }
}

const FRESH: Duration = Duration::from_secs(600);
/// Also after a failure, so that connections do not each wait for a dead name service.
const RETRY: Duration = Duration::from_secs(30);
/// An outage overnight.
const STALE_MAX: Duration = Duration::from_secs(24 * 3600);

const CLIENTS_AT_ONCE_MAX: usize = 1024;

const CLIENTS_MAX: usize = 65_536;
const FORGET_SHARE: usize = 16;

const MEMBERS_MAX: usize = 2;

#[cfg(test)]
mod tests;
