//! What is known of hosts, so that an export's matcher answers from memory: addresses of the hosts that exports name, and names of the clients that have connected.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::RwLock;

use super::resolver::Resolver;

/// The memory.
pub(super) struct Hosts {
    resolver: Arc<dyn Resolver>,
    known: RwLock<Known>,
    /// Whether any client has a name: asked for each operation where these are recorded.
    has_names: AtomicBool,
}

#[derive(Default)]
struct Known {
    /// Of host names in exports: their addresses.
    addresses: HashMap<String, HashSet<IpAddr>>,
    /// Of clients: their names.
    names: HashMap<IpAddr, (Option<Arc<str>>, Instant)>,
    /// Netgroups that exports name.
    netgroups: HashSet<String>,
    /// Whether a client is in one.
    members: HashMap<(String, IpAddr), bool>,
    names_wanted: bool,
}

impl Hosts {
    pub(super) fn new(resolver: Arc<dyn Resolver>) -> Self {
        Hosts { resolver, known: RwLock::default(), has_names: AtomicBool::new(false) }
    }

    /// Resolves what exports name, and clients anew if their names matter. Sleeps as long as the resolver does. A host that can't be resolved now keeps the addresses that it
    /// had; without any it is told.
    pub(super) fn prepare(&self, hosts: &[String], netgroups: &[String], names_wanted: bool) -> Vec<String> {
        let mut unknown = Vec::new();
        let mut resolved = Vec::new();
        for host in hosts {
            let found: HashSet<IpAddr> = match host.parse::<IpAddr>() {
                Ok(address) => [address.to_canonical()].into(),
                Err(_) => self.resolver.addresses(host).into_iter().collect(),
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
            known.names.keys().copied().collect()
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
            let old = known.names.iter().filter(|(_, (_, since))| known.names_wanted && since.elapsed() > FRESH).map(|(client, _)| *client);
            let hosts = known.addresses.keys().filter(|host| host.parse::<IpAddr>().is_err());
            (hosts.cloned().collect(), old.take(CLIENTS_AT_ONCE_MAX).collect())
        };
        for host in hosts {
            let found: HashSet<IpAddr> = self.resolver.addresses(&host).into_iter().collect();
            let mut known = self.known.write();
            // A reload may have taken it off the list.
            if let Some(addresses) = known.addresses.get_mut(&host).filter(|_| !found.is_empty()) {
                *addresses = found;
            }
        }
        clients.into_iter().for_each(|client| self.look_up(client));
    }

    /// Whether [`Hosts::meet`] would ask the resolver: a thread that must not sleep leaves it to another.
    pub(super) fn must_ask(&self, client: IpAddr) -> bool {
        let known = self.known.read();
        known.names_wanted && known.names.get(&client).is_none_or(|(_, since)| since.elapsed() > FRESH)
    }

    /// Whether the client has been met before, however long ago.
    pub(super) fn has_met(&self, client: IpAddr) -> bool {
        self.known.read().names.contains_key(&client)
    }

    /// Learns a client's name, if names matter. To be called before a connection of it is served.
    pub(super) fn meet(&self, client: IpAddr) {
        if self.must_ask(client) {
            self.look_up(client);
        }
    }

    fn look_up(&self, client: IpAddr) {
        // A name is believed if its own addresses include the one that it was found by: who owns a network may call its hosts what he likes.
        let name = self.resolver.name(client).filter(|name| self.resolver.addresses(name).contains(&client));
        let netgroups: Vec<String> = self.known.read().netgroups.iter().cloned().collect();
        let address = client.to_string();
        let member =
            |group: &str| name.iter().map(String::as_str).chain([address.as_str()]).any(|host| self.resolver.in_netgroup(group, host));
        let members: Vec<_> = netgroups.into_iter().map(|group| (member(&group), group)).collect();
        let mut known = self.known.write();
        if known.names.len() >= CLIENTS_MAX {
            known.names.clear();
            known.members.clear();
        }
        self.has_names.fetch_or(name.is_some(), Ordering::Relaxed);
        known.names.insert(client, (name.map(Arc::from), Instant::now()));
        for (member, group) in members {
            known.members.insert((group, client), member);
        }
    }

    /// Whether a host that exports name has this address.
    pub(super) fn is(&self, host: &str, client: IpAddr) -> bool {
        self.known.read().addresses.get(host).is_some_and(|addresses| addresses.contains(&client))
    }

    /// Whether a client that has been met is in a netgroup that exports name.
    pub(super) fn is_in(&self, group: &str, client: IpAddr) -> bool {
        self.known.read().members.get(&(group.to_owned(), client)).copied().unwrap_or(false)
    }

    /// Name of a client that has been met.
    pub(super) fn name(&self, client: IpAddr) -> Option<Arc<str>> {
        if !self.has_names.load(Ordering::Relaxed) {
            return None;
        }
        self.known.read().names.get(&client)?.0.clone()
    }
}

/// For how long a client's name is believed when it connects again.
const FRESH: Duration = Duration::from_secs(600);

/// Clients whose names are asked for again in one go.
const CLIENTS_AT_ONCE_MAX: usize = 1024;

/// Clients whose names are remembered; beyond it all are forgotten and asked for again.
const CLIENTS_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;

    /// A name service that changes its mind.
    #[derive(Clone, Default)]
    struct Changing(Arc<Mutex<Vec<IpAddr>>>);

    impl Resolver for Changing {
        fn addresses(&self, _: &str) -> Vec<IpAddr> {
            self.0.lock().clone()
        }
        fn name(&self, _: IpAddr) -> Option<String> {
            None
        }
        fn in_netgroup(&self, _: &str, _: &str) -> bool {
            false
        }
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
}
