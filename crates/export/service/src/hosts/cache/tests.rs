use super::*;
use crate::exports::client_matcher::ClientRules;
use crate::tests::blocking;
use std::net::SocketAddr;
use vouch_nfs4_server::ClientMatcher as _;

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

#[derive(Clone, Default)]
struct Everybody {
    silent: Arc<Mutex<[bool; 2]>>,
    nobody: Arc<AtomicBool>,
}

impl Resolver for Everybody {
    fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, NoAnswer> {
        if self.silent.lock()[1] {
            return Err(NoAnswer);
        }
        Ok(host
            .strip_prefix("host-")
            .and_then(|address| address.parse().ok())
            .into_iter()
            .collect())
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
fn connected_client_is_never_evicted() {
    let hosts = Hosts { clients_max: 64, ..Hosts::new(Arc::new(Everybody::default())) };
    hosts.resolve_named(&[], &["g".into()], true);
    let stays = IpAddr::from([192, 0, 2, 1]);
    hosts.look_up_if_stale(stays);
    hosts.connection_opened(stays);
    for number in 0..1000u32 {
        let passing = IpAddr::from((0x0a00_0000 + number).to_be_bytes());
        hosts.look_up_if_stale(passing);
        hosts.connection_opened(passing);
        hosts.connection_closed(passing);
        assert_eq!(
            (
                hosts.is_in_netgroup("g", stays),
                hosts.name_matches(stays, |name| name == "host-192.0.2.1")
            ),
            (Some(true), Some(true)),
            "{number}"
        );
        assert!(hosts.has_record(passing) && hosts.known.read().clients.len() <= 64);
    }
    assert!(
        hosts.has_record(IpAddr::from([10, 0, 3, 200]))
            && !hosts.has_record(IpAddr::from([10, 0, 0, 5]))
    );
    assert!(!hosts.has_requested());
    for number in 0..100u8 {
        let client = IpAddr::from([198, 51, 100, number]);
        hosts.connection_opened(client);
        hosts.look_up_if_stale(client);
    }
    assert!(
        (0..100u8).all(|number| hosts.has_record(IpAddr::from([198, 51, 100, number])))
            && hosts.has_record(stays)
    );
}

#[test]
fn client_name_is_current_and_verified() {
    let service = Everybody::default();
    let client = IpAddr::from([192, 0, 2, 1]);
    let name = |hosts: &Hosts| hosts.name(client).as_deref().map(str::to_owned);
    let quiet = Hosts::new(Arc::new(service.clone()));
    quiet.look_up_if_stale(client);
    assert!(!quiet.should_look_up(client) && !quiet.has_record(client));
    let hosts = Hosts::new(Arc::new(service.clone())).recording_names(true);
    assert!(
        hosts.should_look_up(client) && !hosts.must_look_up(client),
        "the tree is served meanwhile"
    );
    assert_eq!(name(&hosts), None);
    hosts.look_up_if_stale(client);
    assert_eq!(
        (name(&hosts).as_deref(), hosts.should_look_up(client)),
        (Some("host-192.0.2.1"), false)
    );
    assert_eq!(name(&quiet), None);
    service.nobody.store(true, Ordering::Relaxed);
    hosts.look_up(client);
    assert_eq!(name(&hosts), None);
    let other = IpAddr::from([192, 0, 2, 2]);
    hosts.connection_opened(other);
    assert_eq!(
        (hosts.stale_recorded_clients(), quiet.stale_recorded_clients()),
        (vec![other], vec![])
    );
    hosts.refresh_clients();
    assert!(!hosts.has_record(other));
    hosts.look_up_if_stale(other);
    assert!(hosts.stale_recorded_clients().is_empty());
    let last = IpAddr::from([192, 0, 2, 3]);
    hosts.resolve_named(&[], &["g".into()], true);
    hosts.connection_opened(last);
    assert!(hosts.stale_recorded_clients().is_empty());
    hosts.refresh_clients();
    assert!(hosts.has_record(last));
}

impl Hosts {
    pub(crate) fn let_all_grow_old(&self) {
        self.known.write().clients.values_mut().for_each(|met| met.fresh = Duration::ZERO);
    }
}

#[test]
fn oldest_records_are_refreshed_next() {
    const AT_ONCE: usize = 32;
    let service = Everybody::default();
    *service.silent.lock() = [true, false];
    let hosts = Hosts::new(Arc::new(service)).recording_names(true);
    let clients: HashSet<IpAddr> = (0..2 * CLIENTS_AT_ONCE_MAX as u32)
        .map(|number| (0x0a00_0000 + number).to_be_bytes().into())
        .collect();
    clients.iter().for_each(|&client| hosts.connection_opened(client));
    let round = || {
        hosts.let_all_grow_old();
        let old = hosts.stale_recorded_clients();
        assert!(old.len() <= CLIENTS_AT_ONCE_MAX);
        old.into_iter().take(AT_ONCE).inspect(|&client| hosts.look_up(client)).collect::<Vec<_>>()
    };
    let all = || (0..clients.len() / AT_ONCE).flat_map(|_| round()).collect::<Vec<_>>();
    let first = all();
    assert_eq!(
        first.iter().copied().collect::<HashSet<_>>(),
        clients,
        "every client is looked up once"
    );
    assert_eq!(all(), first, "the second round has the same order");
    let new = IpAddr::from([192, 0, 2, 1]);
    hosts.connection_opened(new);
    assert_eq!(hosts.stale_recorded_clients()[0], new);
    hosts.resolve_named(&[], &[], true);
    hosts.connection_closed(new);
    let refreshed = || {
        hosts.let_all_grow_old();
        let before = Instant::now();
        hosts.refresh_clients();
        let known = hosts.known.read();
        known
            .clients
            .iter()
            .filter(|(_, met)| met.since >= before)
            .map(|(client, _)| *client)
            .collect::<HashSet<_>>()
    };
    let (one, other) = (refreshed(), refreshed());
    assert_eq!(one.union(&other).copied().collect::<HashSet<_>>(), clients);
}

#[test]
fn moved_host_is_followed_and_missing_host_stays() {
    let resolver = Changing::default();
    let hosts = Hosts::new(Arc::new(resolver.clone()));
    let (old, new) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
    let names = ["one.example.org".to_owned(), "198.51.100.7".to_owned()];
    assert_eq!(
        hosts.resolve_named(&names, &[], false),
        ["one.example.org"],
        "the name cannot be resolved yet"
    );
    *resolver.0.lock() = vec![old];
    hosts.refresh_addresses();
    assert!(hosts.has_address("one.example.org", old));
    *resolver.0.lock() = vec![new];
    hosts.refresh_addresses();
    assert!(
        hosts.has_address("one.example.org", new) && !hosts.has_address("one.example.org", old)
    );
    *resolver.0.lock() = vec![];
    hosts.refresh_addresses();
    assert!(
        hosts.has_address("one.example.org", new),
        "a name service that is away changes nothing"
    );
    assert!(
        hosts.has_address("198.51.100.7", IpAddr::from([198, 51, 100, 7])),
        "an address is no name"
    );
    assert!(!hosts.has_address("two.example.org", new));
}

#[test]
fn failing_name_service_removes_no_known_name() {
    let service = Everybody::default();
    let mut hosts = Hosts::new(Arc::new(service.clone()));
    hosts.resolve_named(&[], &["g".into()], true);
    let [known, away, stranger] = [1, 2, 3].map(|last| IpAddr::from([192, 0, 2, last]));
    [known, away].into_iter().for_each(|client| hosts.look_up_if_stale(client));
    hosts.connection_opened(known);
    let is_known = |hosts: &Hosts, client| {
        (
            hosts.is_in_netgroup("g", client),
            hosts.name_matches(client, |name| name.starts_with("host-")),
        )
    };
    for silent in [[true, false], [false, true]] {
        *service.silent.lock() = silent;
        hosts.resolve_named(&[], &["g".into(), "h".into()], true);
        for client in [known, away] {
            assert_eq!(
                (is_known(&hosts, client), hosts.is_in_netgroup("h", client)),
                ((Some(true), Some(true)), Some(true))
            );
        }
        hosts.look_up_if_stale(stranger);
        assert_eq!(is_known(&hosts, stranger), (Some(false), Some(false)));
        assert!(
            hosts.has_answer(known) && !hosts.has_answer(stranger),
            "nothing ends by that for good"
        );
        assert!(
            [known, stranger]
                .iter()
                .all(|client| hosts.known.read().clients[client].fresh == RETRY),
            "the look-ups start soon"
        );
        hosts.resolve_named(&[], &["g".into()], true);
    }
    hosts.kept = Duration::ZERO;
    hosts.resolve_named(&[], &["g".into()], true);
    assert_eq!(
        (is_known(&hosts, known), is_known(&hosts, away)),
        ((Some(true), Some(true)), (Some(false), Some(false)))
    );
    hosts.take_changed();
    *service.silent.lock() = [false; 2];
    hosts.resolve_named(&[], &["g".into()], true);
    assert!(hosts.take_changed() && hosts.has_answer(stranger));
    hosts.resolve_named(&[], &["g".into()], true);
    assert!(!hosts.take_changed(), "the answers are the same");
    assert!(
        [known, away, stranger]
            .iter()
            .all(|client| is_known(&hosts, *client) == (Some(true), Some(true)))
    );
    service.nobody.store(true, Ordering::Relaxed);
    hosts.resolve_named(&[], &["g".into()], true);
    assert_eq!(is_known(&hosts, known), (Some(false), Some(false)));
    assert_eq!(hosts.known.read().clients[&known].fresh, FRESH);
}

#[derive(Clone, Default)]
struct Group {
    members: Arc<Mutex<Vec<IpAddr>>>,
    away: Arc<Mutex<usize>>,
    silent: Arc<AtomicBool>,
}

impl Resolver for Group {
    fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, NoAnswer> {
        Everybody::default().addresses(host)
    }
    fn name(&self, address: IpAddr) -> Result<Option<String>, NoAnswer> {
        if self.silent.load(Ordering::Relaxed) {
            return Err(NoAnswer);
        }
        Everybody::default().name(address)
    }
    fn in_netgroup(&self, _: &str, host: &str) -> bool {
        let mut away = self.away.lock();
        if *away > 0 {
            *away -= 1;
            return false;
        }
        self.members.lock().iter().any(|member| host == format!("host-{member}"))
    }
}

#[test]
fn netgroup_exclusion_needs_a_member_as_proof() {
    let service = Group::default();
    let hosts = Arc::new(Hosts::new(Arc::new(service.clone())));
    let [a, b, c] = [1, 2, 3].map(|last| IpAddr::from([192, 0, 2, last]));
    let clients = &crate::exports::syntax::parse(b"/a @g(rw)").unwrap().entries[0].clients;
    let rules = ClientRules::new(clients, hosts.clone());
    let access = |client: IpAddr| {
        let peer = SocketAddr::new(client, 700);
        (rules.access_for(peer).is_some(), rules.is_certain(peer))
    };
    [a, b, c].into_iter().for_each(|client| hosts.connection_opened(client));
    let ask = |members: &[IpAddr]| {
        *service.members.lock() = members.to_vec();
        hosts.resolve_named(&[], &["g".into()], true);
        [a, b, c].map(access)
    };
    let (inside, outside, uncertain) = ((true, true), (false, true), (false, false));
    assert_eq!(ask(&[]), [uncertain; 3]);
    assert_eq!(ask(&[a, b]), [inside, inside, outside]);
    assert_eq!(ask(&[]), [uncertain; 3], "an empty netgroup proves nothing");
    assert_eq!(ask(&[b]), [outside, inside, outside]);
    assert_eq!(ask(&[]), [uncertain; 3]);
    ask(&[a, b]);
    *service.away.lock() = 2;
    hosts.look_up(a);
    assert_eq!((*service.away.lock(), access(a)), (0, inside));
    service.silent.store(true, Ordering::Relaxed);
    assert_eq!(ask(&[b])[0], outside);
    assert_eq!(ask(&[a, b])[0], inside);
    assert_eq!(ask(&[])[0], inside, "the last certain answer stays valid");
}

struct Once(AtomicBool, blocking::Gate);

impl Resolver for Once {
    fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, NoAnswer> {
        Everybody::default().addresses(host)
    }
    fn name(&self, address: IpAddr) -> Result<Option<String>, NoAnswer> {
        if self.0.swap(true, Ordering::Relaxed) {
            self.1.pass();
        }
        Everybody::default().name(address)
    }
    fn in_netgroup(&self, _: &str, _: &str) -> bool {
        false
    }
}

#[test]
fn state_of_known_client_does_not_wait_for_others() {
    let gate = blocking::Gate::default();
    gate.set_closed(true);
    let hosts = Hosts::new(Arc::new(Once(AtomicBool::new(false), gate.clone())));
    let clients = [1, 2].map(|last| IpAddr::from([192, 0, 2, last]));
    assert!(clients.iter().all(|&client| hosts.name_matches(client, |_| true).is_none()));
    std::thread::scope(|scope| {
        scope.spawn(|| hosts.look_up_requested());
        blocking::until("the second lookup does not start", || gate.waiting().0 == 1);
        let known = clients.iter().filter(|&&client| hosts.has_record(client)).count();
        let changed = hosts.take_changed();
        gate.set_closed(false);
        assert_eq!((known, changed), (1, true));
    });
    assert!(clients.iter().all(|&client| hosts.has_record(client)) && hosts.take_changed());
    let looked_up_at = || hosts.known.read().clients[&clients[0]].since;
    let before = looked_up_at();
    hosts.request_lookup(clients[0]);
    hosts.look_up_requested();
    assert!(looked_up_at() == before && hosts.take_changed());
}

#[test]
fn state_check_is_repeated_after_panic() {
    let hosts = Hosts::new(Arc::new(Everybody::default()));
    hosts.when_changed(|| unreachable!("nothing has changed"));
    assert!(hosts.name_matches(IpAddr::from([192, 0, 2, 1]), |_| true).is_none());
    hosts.look_up_requested();
    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        hosts.when_changed(|| panic!("a panic on purpose"))
    }));
    assert!(failed.is_err() && hosts.has_changed());
    let mut ended = false;
    hosts.when_changed(|| ended = true);
    assert!(ended && !hosts.has_changed());
}
