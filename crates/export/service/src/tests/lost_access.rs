use std::net::IpAddr;

use parking_lot::Mutex;
use vouch_nfs4::op::ShareAccess;
use vouch_nfs4::{Attributes, Verifier};
use vouch_nfs4_client::{Client, Config, Identity, Plain};
use vouch_oncrpc::AuthSys;

use super::blocking::{Gate, until};
use super::*;
use crate::hosts::resolver::{NoAnswer, Resolver};

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

const THERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 2));

#[derive(Clone)]
struct Service(Arc<Mutex<IpAddr>>, Arc<AtomicBool>, Gate);

impl Service {
    fn new() -> Self {
        Service(Arc::new(Mutex::new(HERE)), Arc::new(AtomicBool::new(true)), Gate::default())
    }
}

impl Resolver for Service {
    fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, NoAnswer> {
        Ok(vec![if host == "other.example.org" { THERE } else { *self.0.lock() }])
    }
    fn name(&self, address: IpAddr) -> Result<Option<String>, NoAnswer> {
        self.2.pass();
        if address == THERE {
            return Ok(Some("other.example.org".into()));
        }
        Ok((address == *self.0.lock()).then(|| "host.example.org".into()))
    }
    fn in_netgroup(&self, group: &str, host: &str) -> bool {
        self.1.load(Ordering::SeqCst)
            && [("trusted", "host.example.org"), ("others", "other.example.org")]
                .contains(&(group, host))
    }
}

fn started() -> (Service, Running) {
    let service = Service::new();
    let hooks = SystemHooks { resolver: Arc::new(service.clone()), ..hooks(&MemoryFs::new()) };
    (service, Running::start_in(|_| (), hooks))
}

fn reload(server: &Running, clients: &str) {
    std::fs::write(
        server.state.parent().unwrap().join("exports"),
        format!("/data {clients}(rw,insecure,no_root_squash)\n"),
    )
    .unwrap();
    status_client::reload(&state_directory::control_path(&server.state, None)).unwrap();
}

fn opens(server: &Running) -> usize {
    server.status().clients.iter().map(|client| client.opens).sum()
}

fn while_open(server: &Running, act: impl FnOnce()) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let root =
            AuthSys { stamp: 0, machine_name: b"test".to_vec(), uid: 0, gid: 0, gids: Vec::new() };
        let config = Config::new(
            server.address,
            1,
            Identity::new(b"one", Verifier([1; 8])),
            Plain::sys(&root),
        );
        let client = Client::connect(config).await.unwrap();
        let data = client.walk(b"/data").await.unwrap();
        let mode = Attributes { mode: Some(0o644), ..Attributes::default() };
        let _open = client.open(&data.handle, b"f", ShareAccess::BOTH, Some(&mode)).await.unwrap();
        assert_eq!(opens(server), 1);
        act();
    });
}

#[test]
fn reload_looks_up_clients_from_before_names_mattered() {
    let (service, server) = started();
    while_open(&server, || {
        reload(&server, "@trusted");
        assert_eq!(opens(&server), 1, "the host is in the netgroup");
        service.1.store(false, Ordering::SeqCst);
        reload(&server, "@trusted");
        assert_eq!(opens(&server), 1, "missing netgroups remove nobody");
    });
    let (_, server) = started();
    while_open(&server, || {
        reload(&server, "@others");
        assert_eq!(opens(&server), 1, "a netgroup without known members ends no state");
        let mut other = server.connect_from(2);
        other.write_all(&call(1, 0)).unwrap();
        read_record(&mut other);
        reload(&server, "@others");
        assert_eq!(opens(&server), 0);
        drop(other);
    });
}

#[test]
fn moved_host_loses_state_of_old_address() {
    let moved = IpAddr::from([127, 0, 0, 9]);
    let (service, server) = started();
    reload(&server, "host.example.org");
    while_open(&server, || {
        *service.0.lock() = moved;
        until("state of the old address stays open", || opens(&server) == 0);
    });
    let (service, server) = started();
    reload(&server, "*.elsewhere.example.org(ro) host.example.org");
    while_open(&server, || {
        let hosts = server.driver.upgrade().unwrap().hosts.clone();
        service.2.set_closed(true);
        hosts.let_all_grow_old();
        until("the refresh does not look up the remaining client", || service.2.waiting().0 == 1);
        assert_eq!(hosts.name_matches(IpAddr::from([192, 0, 2, 1]), |_| true), None);
        until("the requested client is not looked up", || service.2.waiting().0 == 2);
        *service.0.lock() = moved;
        until("state of the old address stays open despite slow names", || opens(&server) == 0);
        assert!(hosts.has_address("host.example.org", moved));
        assert_eq!(service.2.waiting().0, 2, "a thread each, and no more");
        service.2.set_closed(false);
    });
}
