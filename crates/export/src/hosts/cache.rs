//! What is known of hosts, so that an export's matcher answers from memory: addresses of the hosts
//! that exports name, and names of the clients that have connected.

use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};

use crate::hosts::resolver::{NoAnswer, Resolver};

/// The memory.
pub(crate) struct Hosts {
    resolver: Arc<dyn Resolver>,
    known: RwLock<Known>,
    /// Names are told of clients, and so wanted whatever the exports name.
    records_names: bool,
    /// Whether any client has a name: asked for each operation where these are recorded.
    has_names: AtomicBool,
    /// Another number whenever what is known of clients has changed, and in no two memories the
    /// same.
    generation: AtomicU64,
    /// Connections of each address: whoever has one is not forgotten.
    connected: Mutex<HashMap<IpAddr, usize>>,
    /// Clients that were asked for and are not known.
    requested: Mutex<HashSet<IpAddr>>,
    has_requested: AtomicBool,
    /// Whether the exports may not be for somebody any more by what was learnt since that was asked
    /// last.
    has_changed: AtomicBool,
    clients_max: usize,
    /// For how long a client without a connection is believed to be what it was, while the name
    /// service does not answer.
    kept: Duration,
}

#[derive(Default)]
struct Known {
    /// Of host names in exports: their addresses.
    addresses: HashMap<String, HashSet<IpAddr>>,
    /// Clients that were met.
    clients: HashMap<IpAddr, ClientRecord>,
    /// Netgroups that exports name.
    netgroups: HashSet<String>,
    /// Of these: hosts that were found in them last, by which it is seen whether the name service
    /// knows them.
    members: HashMap<String, Vec<String>>,
    names_wanted: bool,
}

impl Known {
    /// Whether what is known of a client, if anything, is to be asked for again.
    fn is_stale(&self, client: &IpAddr) -> bool {
        self.clients.get(client).is_none_or(ClientRecord::is_stale)
    }
}

/// What was learnt of a client.
#[derive(Clone)]
struct ClientRecord {
    name: Option<Arc<str>>,
    /// Of netgroups that exports name: whether it is in them.
    groups: HashMap<String, Membership>,
    /// When it was asked for.
    since: Instant,
    /// When there was an answer.
    answered: Option<Instant>,
    /// For how long it is believed when it connects again.
    fresh: Duration,
}

/// Whether a host is in a netgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Membership {
    In,
    /// Another host was said to be in it at the same time.
    Out,
    /// It was not found in it, as it would not be where the name service is away: the system has
    /// one answer for both.
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
            kept: KEPT,
        }
    }

    /// The same; `records_names`: names of clients are told of them, and so looked for also where no
    /// export wants them.
    pub(crate) fn recording_names(self, records_names: bool) -> Self {
        Hosts { records_names, ..self }
    }

    /// A connection of a client is served from now on.
    pub(crate) fn connection_opened(&self, client: IpAddr) {
        *self.connected.lock().entry(client.to_canonical()).or_default() += 1;
    }

    /// One is gone.
    pub(crate) fn connection_closed(&self, client: IpAddr) {
        if let Entry::Occupied(mut count) = self.connected.lock().entry(client.to_canonical()) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// Resolves what exports name that are to be in force, and clients anew if their names matter.
    /// Sleeps as long as the resolver does. A host that can't be resolved now keeps the
    /// addresses that it had; without any it is told. What those in force name stays known, as they
    /// are asked until others are, or for good if those are refused ([`Hosts::keep_only`]).
    pub(crate) fn resolve_named(&self, hosts: &[String], netgroups: &[String], names_wanted: bool) -> Vec<String> {
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
            // Who has come before names mattered is not known: it would keep what it holds as if it might be
            // let in.
            let connected: Vec<IpAddr> =
                self.connected.lock().keys().copied().filter(|client| !known.clients.contains_key(client)).collect();
            known.clients.keys().copied().chain(connected).collect()
        };
        if names_wanted {
            clients.iter().for_each(|&client| self.look_up(client));
            // Members may have been found after those that are none.
            let doubted = |client: &IpAddr| {
                let known = self.known.read();
                let is_told =
                    |(group, membership): (&String, &Membership)| *membership == Membership::Uncertain && known.members.contains_key(group);
                known.clients.get(client).is_some_and(|met| met.groups.iter().any(is_told))
            };
            clients.into_iter().filter(doubted).for_each(|client| self.look_up(client));
        }
        unknown
    }

    /// The exports in force name nothing else any more: the rest is forgotten.
    pub(crate) fn retain_named(&self, hosts: &[String], netgroups: &[String], names_wanted: bool) {
        let mut known = self.known.write();
        known.addresses.retain(|host, _| hosts.contains(host));
        known.netgroups.retain(|group| netgroups.contains(group));
        known.members.retain(|group, _| netgroups.contains(group));
        known.names_wanted = names_wanted;
    }

    /// Asks again for addresses of the hosts that exports name. Sleeps as long as the resolver
    /// does. A host that can't be resolved keeps what it had.
    pub(crate) fn refresh_addresses(&self) {
        let hosts: Vec<String> = self.known.read().addresses.keys().filter(|host| host.parse::<IpAddr>().is_err()).cloned().collect();
        for host in hosts {
            let found = self.addresses(&host);
            let mut known = self.known.write();
            // A reload may have taken it off the list.
            if let Some(addresses) = known.addresses.get_mut(&host).filter(|before| !found.is_empty() && **before != found) {
                *addresses = found;
                self.has_changed.store(true, Ordering::Release);
            }
        }
    }

    /// Asks again for names of clients that stay connected, where exports may be for them by these.
    /// Sleeps as long as the resolver does, for each: nothing else may wait for it. One that
    /// does not answer takes nothing away from anybody.
    pub(crate) fn refresh_clients(&self) {
        if self.known.read().names_wanted {
            // One may have come again meanwhile.
            self.stale_connected_clients().into_iter().for_each(|client| self.look_up_if_stale(client));
        }
    }

    /// Clients that stay connected and whose names are told and nothing else, to be looked for
    /// again: never before what exports are granted by.
    pub(crate) fn stale_recorded_clients(&self) -> Vec<IpAddr> {
        if self.known.read().names_wanted || !self.records_names {
            return Vec::new();
        }
        self.stale_connected_clients()
    }

    /// Clients that stay connected and are to be asked for again; others are when they come again.
    /// Those that never were come first, then whoever was longest ago: however few of them are
    /// done before the next look, each has its turn. O(n log n) in connected clients.
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

    /// ConnectionQuota of a host; none if it is not found, for whatever reason.
    fn addresses(&self, host: &str) -> HashSet<IpAddr> {
        self.resolver.addresses(host).unwrap_or_default().into_iter().collect()
    }

    /// Whether the name of a client is to be asked for before a connection of it is served, since
    /// exports may be for it by that.
    pub(crate) fn must_look_up(&self, client: IpAddr) -> bool {
        let known = self.known.read();
        known.names_wanted && known.is_stale(&client)
    }

    /// Whether [`Hosts::meet`] would ask the resolver: a thread that must not sleep leaves it to
    /// another.
    pub(crate) fn should_look_up(&self, client: IpAddr) -> bool {
        let known = self.known.read();
        (known.names_wanted || self.records_names) && known.is_stale(&client)
    }

    /// Whether the client has been met before, however long ago.
    pub(crate) fn has_record(&self, client: IpAddr) -> bool {
        self.known.read().clients.contains_key(&client)
    }

    /// Learns a client's name, if names matter or are told. Where exports may be for it by that, to
    /// be called before a connection of it is served.
    pub(crate) fn look_up_if_stale(&self, client: IpAddr) {
        if self.should_look_up(client) {
            self.look_up(client);
        }
    }

    /// Asks for a client. Where the name service does not answer, what it said last stays good: a
    /// client that is connected shall not lose its exports by it.
    pub(crate) fn look_up(&self, client: IpAddr) {
        let found = self.verified_name(client);
        let (netgroups, before) = {
            let known = self.known.read();
            let before = match found {
                Ok(_) => None,
                Err(NoAnswer) => known.clients.get(&client).filter(|met| self.stays_good(client, met)).cloned(),
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
        // By the name that is known, too: who keeps his own zone from answering is not kept in a netgroup
        // by that.
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
        let told = (name.clone(), groups.clone(), answered.is_some());
        let before = known.clients.insert(client, ClientRecord { name, groups, since: Instant::now(), answered, fresh });
        self.generation.store(next_generation(), Ordering::Release);
        // Of who was not known nothing was told; what it holds all the same is asked for (`miss`).
        if before.is_some_and(|before| (before.name, before.groups, before.answered.is_some()) != told) {
            self.has_changed.store(true, Ordering::Release);
        }
    }

    /// Whether a host by these names is in a netgroup. That it isn't is certain only if one that
    /// was in it still is, and if that was so before, too: the name service may have come
    /// back in between.
    fn membership(&self, group: &str, own: &[&str]) -> Membership {
        let find = || own.iter().find(|host| self.resolver.in_netgroup(group, host));
        if let Some(host) = find() {
            let mut known = self.known.write();
            // An export may not name it any more.
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

    /// A client's name, if it is believed: its own addresses include the one that it was found by,
    /// as who owns a network may call its hosts what he likes.
    fn verified_name(&self, client: IpAddr) -> Result<Option<String>, NoAnswer> {
        let Some(name) = self.resolver.name(client)? else { return Ok(None) };
        Ok(self.resolver.addresses(&name)?.contains(&client).then_some(name))
    }

    /// Whether what is known of a client is good without a new answer: for as long as it is
    /// connected, and else for some time.
    fn stays_good(&self, client: IpAddr, met: &ClientRecord) -> bool {
        met.answered.is_some_and(|at| at.elapsed() < self.kept || self.connected.lock().contains_key(&client))
    }

    /// Forgets those without a connection that were met longest ago: a part of all, so that it is
    /// seldom done. O(n log n). Where all are connected there are as many as that.
    fn evict(&self, known: &mut Known) {
        let connected = self.connected.lock();
        let away = known.clients.iter().filter(|(client, _)| !connected.contains_key(client));
        let mut away: Vec<(Instant, IpAddr)> = away.map(|(client, met)| (met.since, *client)).collect();
        drop(connected);
        away.sort_unstable();
        for (_, client) in away.into_iter().take((self.clients_max / FORGET_SHARE).max(1)) {
            known.clients.remove(&client);
        }
    }

    /// A client that is not known was asked for: by a call of its, or because it holds something.
    /// Who isn't connected pushes nobody out.
    fn request_lookup(&self, client: IpAddr) {
        // One lock after the other: elsewhere the first is taken under the second.
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

    /// Whether [`Hosts::look_up_requested`] has something to do.
    pub(crate) fn has_requested(&self) -> bool {
        self.has_requested.load(Ordering::Acquire)
    }

    /// Looks for the clients that were asked for and are not known. Sleeps as long as the resolver
    /// does. What one of them holds may end as soon as it is known: it does not wait for those
    /// after it.
    pub(crate) fn look_up_requested(&self) {
        self.has_requested.store(false, Ordering::Release);
        let requested = std::mem::take(&mut *self.requested.lock());
        for client in requested {
            // Each time that what is held is looked at, all who are still to come are requested again; and another
            // may have asked meanwhile.
            if !self.is_known(client) {
                self.look_up(client);
            }
            self.has_changed.store(true, Ordering::Release);
        }
    }

    /// Whether nothing would be learnt about a client by asking for it now.
    fn is_known(&self, client: IpAddr) -> bool {
        let known = self.known.read();
        let is_sure =
            |group: &String, met: &ClientRecord| met.groups.get(group).is_some_and(|membership| *membership != Membership::Uncertain);
        known.clients.get(&client).is_some_and(|met| !met.is_stale() && known.netgroups.iter().all(|group| is_sure(group, met)))
    }

    /// Whether [`Hosts::when_changed`] would act.
    pub(crate) fn has_changed(&self) -> bool {
        self.has_changed.load(Ordering::Acquire)
    }

    /// Whether the exports may not be for somebody any more, by other answers than before.
    pub(crate) fn take_changed(&self) -> bool {
        self.has_changed.swap(false, Ordering::AcqRel)
    }

    /// Acts if they may not be. Where that ends in a panic it is to be done again.
    pub(crate) fn when_changed(&self, act: impl FnOnce()) {
        if self.take_changed() {
            let _again = Again(&self.has_changed);
            act();
        }
    }

    /// Whether the name service has answered for a client, then or now.
    pub(crate) fn has_answer(&self, client: IpAddr) -> bool {
        self.known.read().clients.get(&client).is_some_and(|met| met.answered.is_some())
    }

    /// Whether a host that exports name has this address.
    pub(crate) fn has_address(&self, host: &str, client: IpAddr) -> bool {
        self.known.read().addresses.get(host).is_some_and(|addresses| addresses.contains(&client))
    }

    /// Whether a client is in a netgroup that exports name. None if that is not known, and will be
    /// asked for.
    pub(crate) fn is_in_netgroup(&self, group: &str, client: IpAddr) -> Option<bool> {
        let found = self.known.read().clients.get(&client).and_then(|met| met.groups.get(group).copied());
        if found.is_none() {
            self.request_lookup(client);
        }
        found.map(|membership| membership == Membership::In)
    }

    /// Whether a client was not found in a netgroup, and that may be because the name service was
    /// away.
    pub(crate) fn is_membership_uncertain(&self, group: &str, client: IpAddr) -> bool {
        self.known.read().clients.get(&client).and_then(|met| met.groups.get(group)) == Some(&Membership::Uncertain)
    }

    /// Whether a client has a name that fits. None likewise.
    pub(crate) fn name_matches(&self, client: IpAddr, fits: impl Fn(&str) -> bool) -> Option<bool> {
        let found = self.known.read().clients.get(&client).map(|met| met.name.as_deref().is_some_and(fits));
        if found.is_none() {
            self.request_lookup(client);
        }
        found
    }

    /// Name of a client that has been met.
    pub(crate) fn name(&self, client: IpAddr) -> Option<Arc<str>> {
        if !self.has_names.load(Ordering::Relaxed) {
            return None;
        }
        // Before it is looked for: what changes meanwhile is looked for again.
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
    /// The client whose name this thread asked for last.
    static NAMED_LAST: RefCell<Option<NamedAt>> = const { RefCell::new(None) };
}

/// At which generation, which client, and its name.
type NamedAt = (u64, IpAddr, Option<Arc<str>>);

fn next_generation() -> u64 {
    static STANDS: AtomicU64 = AtomicU64::new(0);
    STANDS.fetch_add(1, Ordering::Relaxed)
}

/// Sets it again if a panic comes by.
struct Again<'h>(&'h AtomicBool);

impl Drop for Again<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Release);
        }
    }
}

/// For how long a client's name is believed when it connects again.
const FRESH: Duration = Duration::from_secs(600);
/// And where the name service did not answer: not each connection shall wait for it.
const RETRY: Duration = Duration::from_secs(30);
/// See [`Hosts::kept`]: over night.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// Clients whose names are asked for again in one go.
const CLIENTS_AT_ONCE_MAX: usize = 1024;

/// Clients whose names are remembered, and those that are connected; beyond it, which part of those
/// without a connection is forgotten at once.
const CLIENTS_MAX: usize = 65_536;
const FORGET_SHARE: usize = 16;

/// Of a netgroup's members so many are remembered: more than the client that is asked for.
const MEMBERS_MAX: usize = 2;

#[cfg(test)]
mod tests;
