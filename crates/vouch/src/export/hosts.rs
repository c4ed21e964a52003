//! What is known of hosts, so that an export's matcher answers from memory: addresses of the hosts that exports name, and names of the clients that have connected.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};

use super::resolver::{NoAnswer, Resolver};

/// The memory.
pub(super) struct Hosts {
    resolver: Arc<dyn Resolver>,
    known: RwLock<Known>,
    /// Whether any client has a name: asked for each operation where these are recorded.
    has_names: AtomicBool,
    /// Connections of each address: whoever has one is not forgotten.
    connected: Mutex<HashMap<IpAddr, usize>>,
    /// Clients that were asked for and are not known.
    missed: Mutex<HashSet<IpAddr>>,
    has_missed: AtomicBool,
    /// Whether the exports may not be for somebody any more by what was learnt since that was asked last.
    has_changed: AtomicBool,
    clients_max: usize,
    /// For how long a client without a connection is believed to be what it was, while the name service does not answer.
    kept: Duration,
}

#[derive(Default)]
struct Known {
    /// Of host names in exports: their addresses.
    addresses: HashMap<String, HashSet<IpAddr>>,
    /// Clients that were met.
    clients: HashMap<IpAddr, Met>,
    /// Netgroups that exports name.
    netgroups: HashSet<String>,
    names_wanted: bool,
}

/// What was learnt of a client.
#[derive(Clone)]
struct Met {
    name: Option<Arc<str>>,
    /// Of netgroups that exports name: whether it is in them.
    groups: HashMap<String, bool>,
    /// When it was asked for.
    since: Instant,
    /// When there was an answer.
    answered: Option<Instant>,
    /// For how long it is believed when it connects again.
    fresh: Duration,
}

impl Met {
    fn is_old(&self) -> bool {
        self.since.elapsed() > self.fresh
    }
}

impl Hosts {
    pub(super) fn new(resolver: Arc<dyn Resolver>) -> Self {
        Hosts {
            resolver,
            known: RwLock::default(),
            has_names: AtomicBool::new(false),
            connected: Mutex::default(),
            missed: Mutex::default(),
            has_missed: AtomicBool::new(false),
            has_changed: AtomicBool::new(false),
            clients_max: CLIENTS_MAX,
            kept: KEPT,
        }
    }

    /// A connection of a client is served from now on.
    pub(super) fn arrive(&self, client: IpAddr) {
        *self.connected.lock().entry(client.to_canonical()).or_default() += 1;
    }

    /// One is gone.
    pub(super) fn leave(&self, client: IpAddr) {
        if let Entry::Occupied(mut count) = self.connected.lock().entry(client.to_canonical()) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// Resolves what exports name, and clients anew if their names matter. Sleeps as long as the resolver does. A host that can't be resolved now keeps the addresses that it
    /// had; without any it is told.
    pub(super) fn prepare(&self, hosts: &[String], netgroups: &[String], names_wanted: bool) -> Vec<String> {
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
            let mut old = std::mem::take(&mut known.addresses);
            for (host, found) in resolved {
                let found = if found.is_empty() { old.remove(&host).unwrap_or_default() } else { found };
                if found.is_empty() {
                    unknown.push(host.clone());
                }
                known.addresses.insert(host, found);
            }
            known.netgroups = netgroups.iter().cloned().collect();
            known.names_wanted = names_wanted;
            // Who has come before names mattered is not known: it would keep what it holds as if it might be let in.
            let connected: Vec<IpAddr> =
                self.connected.lock().keys().copied().filter(|client| !known.clients.contains_key(client)).collect();
            known.clients.keys().copied().chain(connected).collect()
        };
        if names_wanted {
            clients.into_iter().for_each(|client| self.look_up(client));
        }
        unknown
    }

    /// Asks again what may have changed since: addresses of the hosts that exports name, and names of clients that stay connected. Sleeps as long as the resolver does. One
    /// that does not answer takes nothing away from anybody.
    pub(super) fn refresh(&self) {
        let (hosts, clients): (Vec<String>, Vec<IpAddr>) = {
            let known = self.known.read();
            let connected = self.connected.lock();
            // Others are asked for when they come again.
            let is_old = |client: &&IpAddr| known.names_wanted && known.clients.get(*client).is_none_or(Met::is_old);
            let hosts = known.addresses.keys().filter(|host| host.parse::<IpAddr>().is_err());
            (hosts.cloned().collect(), connected.keys().filter(is_old).take(CLIENTS_AT_ONCE_MAX).copied().collect())
        };
        for host in hosts {
            let found = self.addresses(&host);
            let mut known = self.known.write();
            // A reload may have taken it off the list.
            if let Some(addresses) = known.addresses.get_mut(&host).filter(|before| !found.is_empty() && **before != found) {
                *addresses = found;
                self.has_changed.store(true, Ordering::Release);
            }
        }
        clients.into_iter().for_each(|client| self.look_up(client));
    }

    /// Addresses of a host; none if it is not found, for whatever reason.
    fn addresses(&self, host: &str) -> HashSet<IpAddr> {
        self.resolver.addresses(host).unwrap_or_default().into_iter().collect()
    }

    /// Whether [`Hosts::meet`] would ask the resolver: a thread that must not sleep leaves it to another.
    pub(super) fn must_ask(&self, client: IpAddr) -> bool {
        let known = self.known.read();
        known.names_wanted && known.clients.get(&client).is_none_or(Met::is_old)
    }

    /// Whether the client has been met before, however long ago.
    pub(super) fn has_met(&self, client: IpAddr) -> bool {
        self.known.read().clients.contains_key(&client)
    }

    /// Learns a client's name, if names matter. To be called before a connection of it is served.
    pub(super) fn meet(&self, client: IpAddr) {
        if self.must_ask(client) {
            self.look_up(client);
        }
    }

    /// Asks for a client. Where the name service does not answer, what it said last stays good: a client that is connected shall not lose its exports by it.
    fn look_up(&self, client: IpAddr) {
        let found = self.find_name(client);
        let (netgroups, before) = {
            let known = self.known.read();
            let before = match found {
                Ok(_) => None,
                Err(NoAnswer) => known.clients.get(&client).filter(|met| self.stays_good(client, met)).cloned(),
            };
            (known.netgroups.clone(), before)
        };
        let (name, mut groups, answered, fresh) = match (found, before) {
            (Ok(name), _) => (name.map(Arc::from), HashMap::new(), Some(Instant::now()), FRESH),
            (Err(NoAnswer), Some(before)) => (before.name, before.groups, before.answered, RETRY),
            (Err(NoAnswer), None) => (None, HashMap::new(), None, RETRY),
        };
        let address = client.to_string();
        let member =
            |group: &str| name.iter().map(|name| &**name).chain([address.as_str()]).any(|host| self.resolver.in_netgroup(group, host));
        groups.retain(|group, _| netgroups.contains(group));
        for group in netgroups {
            groups.entry(group).or_insert_with_key(|group| member(group));
        }
        let mut known = self.known.write();
        if known.clients.len() >= self.clients_max && !known.clients.contains_key(&client) {
            self.forget_some(&mut known);
        }
        self.has_names.fetch_or(name.is_some(), Ordering::Relaxed);
        let told = (name.clone(), groups.clone(), answered.is_some());
        let before = known.clients.insert(client, Met { name, groups, since: Instant::now(), answered, fresh });
        // Of who was not known nothing was told; what it holds all the same is asked for (`miss`).
        if before.is_some_and(|before| (before.name, before.groups, before.answered.is_some()) != told) {
            self.has_changed.store(true, Ordering::Release);
        }
    }

    /// A client's name, if it is believed: its own addresses include the one that it was found by, as who owns a network may call its hosts what he likes.
    fn find_name(&self, client: IpAddr) -> Result<Option<String>, NoAnswer> {
        let Some(name) = self.resolver.name(client)? else { return Ok(None) };
        Ok(self.resolver.addresses(&name)?.contains(&client).then_some(name))
    }

    /// Whether what is known of a client is good without a new answer: for as long as it is connected, and else for some time.
    fn stays_good(&self, client: IpAddr, met: &Met) -> bool {
        met.answered.is_some_and(|at| at.elapsed() < self.kept || self.connected.lock().contains_key(&client))
    }

    /// Forgets those without a connection that were met longest ago: a part of all, so that it is seldom done. O(n log n). Where all are connected there are as many as that.
    fn forget_some(&self, known: &mut Known) {
        let connected = self.connected.lock();
        let away = known.clients.iter().filter(|(client, _)| !connected.contains_key(client));
        let mut away: Vec<(Instant, IpAddr)> = away.map(|(client, met)| (met.since, *client)).collect();
        drop(connected);
        away.sort_unstable();
        for (_, client) in away.into_iter().take((self.clients_max / FORGET_SHARE).max(1)) {
            known.clients.remove(&client);
        }
    }

    /// A client that is not known was asked for: by a call of its, or because it holds something. Who isn't connected pushes nobody out.
    fn miss(&self, client: IpAddr) {
        // One lock after the other: elsewhere the first is taken under the second.
        let connected = self.connected.lock().contains_key(&client);
        if !connected && self.known.read().clients.len() >= self.clients_max {
            return;
        }
        let mut missed = self.missed.lock();
        if missed.len() < CLIENTS_AT_ONCE_MAX {
            missed.insert(client);
            self.has_missed.store(true, Ordering::Release);
        }
    }

    /// Whether [`Hosts::ask_missed`] has something to do.
    pub(super) fn has_missed(&self) -> bool {
        self.has_missed.load(Ordering::Acquire)
    }

    /// Looks for the clients that were asked for and are not known. Sleeps as long as the resolver does.
    pub(super) fn ask_missed(&self) {
        self.has_missed.store(false, Ordering::Release);
        let missed = std::mem::take(&mut *self.missed.lock());
        let any = !missed.is_empty();
        missed.into_iter().for_each(|client| self.look_up(client));
        self.has_changed.fetch_or(any, Ordering::Release);
    }

    /// Whether [`Hosts::take_changed`] would say so.
    pub(super) fn has_changed(&self) -> bool {
        self.has_changed.load(Ordering::Acquire)
    }

    /// Whether the exports may not be for somebody any more, by other answers than before.
    pub(super) fn take_changed(&self) -> bool {
        self.has_changed.swap(false, Ordering::AcqRel)
    }

    /// Whether the name service has answered for a client, then or now.
    pub(super) fn has_answer(&self, client: IpAddr) -> bool {
        self.known.read().clients.get(&client).is_some_and(|met| met.answered.is_some())
    }

    /// Whether a host that exports name has this address.
    pub(super) fn is(&self, host: &str, client: IpAddr) -> bool {
        self.known.read().addresses.get(host).is_some_and(|addresses| addresses.contains(&client))
    }

    /// Whether a client is in a netgroup that exports name. None if that is not known, and will be asked for.
    pub(super) fn is_in(&self, group: &str, client: IpAddr) -> Option<bool> {
        let found = self.known.read().clients.get(&client).and_then(|met| met.groups.get(group).copied());
        if found.is_none() {
            self.miss(client);
        }
        found
    }

    /// Whether a client has a name that fits. None likewise.
    pub(super) fn fits(&self, client: IpAddr, fits: impl Fn(&str) -> bool) -> Option<bool> {
        let found = self.known.read().clients.get(&client).map(|met| met.name.as_deref().is_some_and(fits));
        if found.is_none() {
            self.miss(client);
        }
        found
    }

    /// Name of a client that has been met.
    pub(super) fn name(&self, client: IpAddr) -> Option<Arc<str>> {
        if !self.has_names.load(Ordering::Relaxed) {
            return None;
        }
        self.known.read().clients.get(&client)?.name.clone()
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

/// Clients whose names are remembered, and those that are connected; beyond it, which part of those without a connection is forgotten at once.
const CLIENTS_MAX: usize = 65_536;
const FORGET_SHARE: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// A name service that changes its mind.
    #[derive(Clone, Default)]
    struct Changing(Arc<Mutex<Vec<IpAddr>>>);

    impl Resolver for Changing {
        fn addresses(&self, _: &str) -> Result<Vec<IpAddr>, NoAnswer> {
            Ok(self.0.lock().clone())
        }
        fn name(&self, _: IpAddr) -> Result<Option<String>, NoAnswer> {
            Ok(None)
        }
        fn in_netgroup(&self, _: &str, _: &str) -> bool {
            false
        }
    }

    /// One that knows everybody, if it answers.
    #[derive(Clone, Default)]
    struct Everybody {
        /// What it does not answer: names, addresses.
        silent: Arc<Mutex<[bool; 2]>>,
        /// Nobody has a name any more.
        nobody: Arc<AtomicBool>,
    }

    impl Resolver for Everybody {
        fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, NoAnswer> {
            if self.silent.lock()[1] {
                return Err(NoAnswer);
            }
            Ok(host.strip_prefix("host-").and_then(|address| address.parse().ok()).into_iter().collect())
        }
        fn name(&self, address: IpAddr) -> Result<Option<String>, NoAnswer> {
            match self.silent.lock()[0] {
                true => Err(NoAnswer),
                false => Ok((!self.nobody.load(Ordering::Relaxed)).then(|| format!("host-{address}"))),
            }
        }
        fn in_netgroup(&self, _: &str, host: &str) -> bool {
            host.starts_with("host-")
        }
    }

    #[test]
    fn who_has_a_connection_is_not_forgotten_however_many_come_and_go() {
        let hosts = Hosts { clients_max: 64, ..Hosts::new(Arc::new(Everybody::default())) };
        hosts.prepare(&[], &["g".into()], true);
        let stays = IpAddr::from([192, 0, 2, 1]);
        hosts.meet(stays);
        hosts.arrive(stays);
        for number in 0..1000u32 {
            let passing = IpAddr::from((0x0a00_0000 + number).to_be_bytes());
            hosts.meet(passing);
            hosts.arrive(passing);
            hosts.leave(passing);
            assert_eq!((hosts.is_in("g", stays), hosts.fits(stays, |name| name == "host-192.0.2.1")), (Some(true), Some(true)), "{number}");
            assert!(hosts.has_met(passing) && hosts.known.read().clients.len() <= 64);
        }
        // Those who came last are remembered.
        assert!(hosts.has_met(IpAddr::from([10, 0, 3, 200])) && !hosts.has_met(IpAddr::from([10, 0, 0, 5])));
        assert!(!hosts.has_missed());
        // Who comes when all are connected is known as well.
        for number in 0..100u8 {
            let client = IpAddr::from([198, 51, 100, number]);
            hosts.arrive(client);
            hosts.meet(client);
        }
        assert!((0..100u8).all(|number| hosts.has_met(IpAddr::from([198, 51, 100, number]))) && hosts.has_met(stays));
    }

    #[test]
    fn a_host_that_moves_is_followed_and_one_that_is_not_found_stays() {
        let resolver = Changing::default();
        let hosts = Hosts::new(Arc::new(resolver.clone()));
        let (old, new) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let names = ["one.example.org".to_owned(), "198.51.100.7".to_owned()];
        assert_eq!(hosts.prepare(&names, &[], false), ["one.example.org"], "it can't be resolved yet");
        *resolver.0.lock() = vec![old];
        hosts.refresh();
        assert!(hosts.is("one.example.org", old));
        *resolver.0.lock() = vec![new];
        hosts.refresh();
        assert!(hosts.is("one.example.org", new) && !hosts.is("one.example.org", old));
        *resolver.0.lock() = vec![];
        hosts.refresh();
        assert!(hosts.is("one.example.org", new), "a name service that is away changes nothing");
        assert!(hosts.is("198.51.100.7", IpAddr::from([198, 51, 100, 7])), "an address is no name");
        assert!(!hosts.is("two.example.org", new));
    }

    #[test]
    fn a_name_service_that_does_not_answer_takes_no_name_from_who_is_known() {
        let service = Everybody::default();
        let mut hosts = Hosts::new(Arc::new(service.clone()));
        hosts.prepare(&[], &["g".into()], true);
        let [known, away, stranger] = [1, 2, 3].map(|last| IpAddr::from([192, 0, 2, last]));
        [known, away].into_iter().for_each(|client| hosts.meet(client));
        hosts.arrive(known);
        let is_known = |hosts: &Hosts, client| (hosts.is_in("g", client), hosts.fits(client, |name| name.starts_with("host-")));
        for silent in [[true, false], [false, true]] {
            *service.silent.lock() = silent;
            // All are asked for anew, and may be in one more netgroup.
            hosts.prepare(&[], &["g".into(), "h".into()], true);
            for client in [known, away] {
                assert_eq!((is_known(&hosts, client), hosts.is_in("h", client)), ((Some(true), Some(true)), Some(true)));
            }
            hosts.meet(stranger);
            assert_eq!(is_known(&hosts, stranger), (Some(false), Some(false)));
            assert!(hosts.has_answer(known) && !hosts.has_answer(stranger), "nothing ends by that for good");
            assert!([known, stranger].iter().all(|client| hosts.known.read().clients[client].fresh == RETRY), "they are asked for soon");
            hosts.prepare(&[], &["g".into()], true);
        }
        // Who was known long ago is believed only as long as he is connected.
        hosts.kept = Duration::ZERO;
        hosts.prepare(&[], &["g".into()], true);
        assert_eq!((is_known(&hosts, known), is_known(&hosts, away)), ((Some(true), Some(true)), (Some(false), Some(false))));
        hosts.take_changed();
        *service.silent.lock() = [false; 2];
        hosts.prepare(&[], &["g".into()], true);
        assert!(hosts.take_changed() && hosts.has_answer(stranger));
        hosts.prepare(&[], &["g".into()], true);
        assert!(!hosts.take_changed(), "the answers are the same");
        assert!([known, away, stranger].iter().all(|client| is_known(&hosts, *client) == (Some(true), Some(true))));
        // An answer counts, whatever it is.
        service.nobody.store(true, Ordering::Relaxed);
        hosts.prepare(&[], &["g".into()], true);
        assert_eq!(is_known(&hosts, known), (Some(false), Some(false)));
        assert_eq!(hosts.known.read().clients[&known].fresh, FRESH);
    }
}
