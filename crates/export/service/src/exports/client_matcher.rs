//! Rules of exports(5) for a client's address.

use std::net::SocketAddr;
use std::sync::Arc;

use vouch_nfs4_server::{ClientAccess, ClientMatcher, Transport};

use super::syntax::{Client, MachineName, fits, in_network};
use crate::hosts::Hosts;

pub(crate) type ClientRule = (MachineName, Arc<ClientAccess>);

pub(crate) struct ClientRules {
    rules: Vec<ClientRule>,
    hosts: Arc<Hosts>,
}

impl ClientRules {
    /// Precedence of the kernel's server: hosts, networks (longer prefixes first), netgroups,
    /// patterns, everybody; then the file's order.
    pub(crate) fn new(clients: &[Client], hosts: Arc<Hosts>) -> Self {
        let mut sorted: Vec<&Client> = clients.iter().collect();
        sorted.sort_by_key(|client| {
            let prefix =
                if let MachineName::Network(_, len) = client.machine { 128 - len } else { 0 };
            (client.machine.rank(), prefix)
        });
        let mut rules: Vec<ClientRule> = Vec::new();
        for client in sorted {
            let access = client.options.access();
            // In the old syntax each entry names one flavour: `gss/krb5(ro) gss/krb5p(rw)`.
            if let Some((_, rule)) = rules.iter_mut().find(|(who, _)| *who == client.machine) {
                let known = Arc::make_mut(rule);
                known.qos = known.qos.or(client.options.qos);
                known.flavours.extend(
                    access
                        .into_iter()
                        .filter(|access| known.under(access.flavour).is_none())
                        .collect::<Vec<_>>(),
                );
                continue;
            }
            let qos = client.options.qos;
            rules.push((client.machine.clone(), Arc::new(ClientAccess { flavours: access, qos })));
        }
        ClientRules { rules, hosts }
    }
}

impl ClientMatcher for ClientRules {
    fn access_for(&self, peer: SocketAddr) -> Option<Arc<ClientAccess>> {
        self.find(peer, false).ok()?.map(|(_, access)| access.clone())
    }

    fn demands_tls(&self) -> bool {
        self.rules.iter().any(|(_, access)| {
            access.flavours.iter().any(|under| under.transport_min > Transport::Clear)
        })
    }

    fn has_qos(&self) -> bool {
        self.rules.iter().any(|(_, access)| access.qos.is_some())
    }

    fn is_undecided(&self, peer: SocketAddr) -> bool {
        self.rules.iter().any(|(who, _)| who.needs_name()) && self.find(peer, false).is_err()
    }

    fn is_certain(&self, peer: SocketAddr) -> bool {
        self.find(peer, true).is_ok()
    }
}

struct Undecided;

impl ClientRules {
    /// In order of precedence.
    pub(crate) fn all(&self) -> &[ClientRule] {
        &self.rules
    }

    /// The rule that counts for a client whose name is already looked up.
    pub(crate) fn rule_for(&self, peer: SocketAddr) -> Option<&ClientRule> {
        self.find(peer, false).ok()?
    }

    /// An undecided rule hides later ones. With `certain`, a failed name service leaves a rule
    /// undecided.
    fn find(&self, peer: SocketAddr, certain: bool) -> Result<Option<&ClientRule>, Undecided> {
        let address = peer.ip().to_canonical();
        let if_answered =
            |fits: Option<bool>| fits.filter(|_| !certain || self.hosts.has_answer(address));
        for rule in &self.rules {
            let fits = match &rule.0 {
                MachineName::Host(host) => Some(self.hosts.has_address(host, address)),
                MachineName::Network(network, len) => Some(in_network(address, *network, *len)),
                MachineName::Netgroup(group) => {
                    if_answered(self.hosts.is_in_netgroup(group, address)).filter(|&is| {
                        is || !certain || !self.hosts.is_membership_uncertain(group, address)
                    })
                }
                MachineName::Pattern(pattern) => {
                    if_answered(self.hosts.name_matches(address, |name| fits(pattern, name)))
                }
                MachineName::Everyone => Some(true),
            };
            if fits.ok_or(Undecided)? {
                return Ok(Some(rule));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exports::syntax::parse;
    use crate::hosts::resolver::{NoAnswer, Resolver};
    use std::net::IpAddr;
    use vouch_nfs4_server::Flavour;

    struct Small;

    impl Resolver for Small {
        fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, NoAnswer> {
            Ok(match host {
                "one.example.org" => vec![IpAddr::from([192, 0, 2, 1])],
                "two.example.org" => vec![IpAddr::from([192, 0, 2, 2])],
                _ => vec![],
            })
        }
        fn name(&self, address: IpAddr) -> Result<Option<String>, NoAnswer> {
            Ok(match address.to_string().as_str() {
                "192.0.2.1" => Some("one.example.org".into()),
                "192.0.2.2" | "203.0.113.9" => Some("two.example.org".into()),
                _ => None,
            })
        }
        fn in_netgroup(&self, group: &str, host: &str) -> bool {
            (group, host) == ("trusted", "two.example.org")
                || (group, host) == ("numbers", "203.0.113.9")
        }
    }

    fn ask(text: &str, from: &str) -> Option<Arc<ClientAccess>> {
        let parsed = parse(text.as_bytes()).unwrap();
        let hosts = Arc::new(Hosts::new(Arc::new(Small)));
        let clients = &parsed.entries[0].clients;
        let of_kind = |pick: fn(&MachineName) -> Option<String>| {
            clients.iter().filter_map(|client| pick(&client.machine)).collect::<Vec<_>>()
        };
        let names =
            of_kind(
                |who| if let MachineName::Host(host) = who { Some(host.clone()) } else { None },
            );
        let groups = of_kind(|who| {
            if let MachineName::Netgroup(group) = who { Some(group.clone()) } else { None }
        });
        hosts.resolve_named(
            &names,
            &groups,
            clients.iter().any(|client| client.machine.needs_name()),
        );
        let from: IpAddr = from.parse().unwrap();
        hosts.look_up_if_stale(from);
        ClientRules::new(clients, hosts).access_for(SocketAddr::new(from, 700))
    }

    #[test]
    fn most_specific_kind_decides() {
        let text = "/a *(ro) *.example.org(ro,anonuid=4) @trusted(ro,anonuid=3) 192.0.2.0/24(ro,anonuid=2) 192.0.2.0/25(ro,anonuid=22) one.example.org(ro,anonuid=1)";
        let anonymous = |from: &str| ask(text, from).unwrap().flavours[0].squash.anonymous_uid;
        assert_eq!(anonymous("192.0.2.1"), 1);
        assert_eq!(anonymous("192.0.2.2"), 22);
        assert_eq!(anonymous("192.0.2.200"), 2);
        assert_eq!(anonymous("198.51.100.1"), 65_534);
    }

    #[test]
    fn only_listed_clients_have_access() {
        for (text, from, listed) in [
            ("/a *.example.org(ro)", "192.0.2.2", true),
            ("/a *.example.org(ro)", "203.0.113.9", false), // its name does not resolve back
            ("/a @trusted(ro)", "192.0.2.2", true),
            ("/a @trusted(ro)", "203.0.113.9", false),
            ("/a @numbers(ro)", "203.0.113.9", true),
            ("/a one.example.org(ro)", "192.0.2.2", false),
            ("/a nowhere.example.org(ro)", "192.0.2.2", false),
            ("/a 192.0.2.1", "::ffff:192.0.2.1", true),
        ] {
            assert_eq!(ask(text, from).is_some(), listed, "{text} {from}");
        }
    }

    #[test]
    fn flavours_as_clients_are_joined() {
        let access = ask("/a gss/krb5(ro) gss/krb5p(rw)\n/a *(rw)", "192.0.2.1").unwrap();
        let rights: Vec<_> =
            access.flavours.iter().map(|under| (under.flavour, under.read_only)).collect();
        assert_eq!(rights, [(Flavour::Krb5, true), (Flavour::Krb5p, false), (Flavour::Sys, false)]);
    }

    #[test]
    fn each_flavour_keeps_the_options_of_its_line() {
        let text = "/d *(sec=krb5,insecure,machine_writes)\n/d *(sec=sys,rw,secure)";
        let access = ask(text, "192.0.2.1").unwrap();
        assert!(
            access.refuses_port(Flavour::Sys, 50_000) && !access.refuses_port(Flavour::Sys, 700)
        );
        assert!(!access.refuses_port(Flavour::Krb5, 50_000));
        assert!(access.machine_writes(Flavour::Krb5) && !access.machine_writes(Flavour::Sys));
    }

    #[test]
    fn unknown_client_is_undecided_and_requests_a_lookup() {
        let hosts = Arc::new(Hosts::new(Arc::new(Small)));
        hosts.resolve_named(&[], &["trusted".into()], true);
        let clients = |text: &str| {
            ClientRules::new(&parse(text.as_bytes()).unwrap().entries[0].clients, hosts.clone())
        };
        let from = SocketAddr::from(([192, 0, 2, 2], 700));
        hosts.connection_opened(from.ip());
        for text in ["/a *.example.org(rw)", "/a @trusted(rw)", "/a *(ro) @trusted(rw)"] {
            let clients = clients(text);
            assert!(
                clients.access_for(from).is_none()
                    && clients.is_undecided(from)
                    && !clients.is_certain(from),
                "{text}"
            );
        }
        assert!(
            !clients("/a *(ro)").is_undecided(from)
                && !clients("/a 192.0.2.0/24(ro) @trusted(rw)").is_undecided(from)
        );
        assert!(hosts.has_requested());
        assert!(!hosts.take_changed());
        hosts.look_up_requested();
        assert!(!hosts.has_requested() && hosts.take_changed() && !hosts.take_changed());
        for text in ["/a *.example.org(rw)", "/a @trusted(rw)", "/a *(ro) @trusted(rw)"] {
            assert!(
                clients(text).access_for(from).is_some_and(|access| !access.flavours[0].read_only),
                "{text}"
            );
            assert!(clients(text).is_certain(from), "{text}");
        }
        assert!(
            clients("/a *.example.com(rw)").access_for(from).is_none()
                && !clients("/a *.example.com(rw)").is_undecided(from)
        );
    }
}
