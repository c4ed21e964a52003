//! A client behind NAT, as in front of many clusters: the server sees the translator's address.
//! Uses three network namespaces and no route to the client's own address.

use crate::own_client::{HOST, assert_success, client_command, content};
use crate::prelude::*;

const NAMESPACE: &str = "VOUCH_TEST_NAT";
const TRANSLATOR: Ipv4Addr = Ipv4Addr::new(10, 77, 2, 1);
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 2, 2);

/// Namespaces of clients, of the translator and of a server.
pub(crate) struct NatNetwork {
    pub(crate) clients: Vec<String>,
    translator: String,
    server: String,
}

impl NatNetwork {
    pub(crate) fn make(test: &str, client_count: u8) -> NatNetwork {
        let name = |of: &str| format!("vouch-{test}-{of}-{}", std::process::id());
        let clients = (0..client_count).map(|number| name(&format!("client{number}"))).collect();
        let net = NatNetwork { clients, translator: name("translator"), server: name("server") };
        require(
            "root, network namespaces and the package nftables",
            run("nft --version") && net.names().all(|name| run(&format!("ip netns add {name}"))),
        );
        let NatNetwork { clients, translator, server } = &net;
        let mut lines = vec![
            format!("ip link add eth0 netns {server} type veth peer name outer netns {translator}"),
            format!("ip -n {server} addr add {SERVER}/24 dev eth0"),
            format!("ip -n {translator} addr add {TRANSLATOR}/24 dev outer"),
            format!("ip -n {translator} link set outer up"),
            format!("ip -n {server} link set lo up"),
            format!("ip -n {server} link set eth0 up"),
            format!("ip netns exec {translator} sysctl -q -w net.ipv4.ip_forward=1"),
            format!("ip netns exec {translator} nft add table ip nat"),
            format!(
                "ip netns exec {translator} nft add chain ip nat out {{ type nat hook postrouting priority 100 ; }}"
            ),
            format!("ip netns exec {translator} nft add rule ip nat out oifname outer masquerade"),
        ];
        for (number, client) in clients.iter().enumerate() {
            let network = format!("10.77.{}", 3 + number);
            lines.extend([
                format!("ip link add eth0 netns {client} type veth peer name inner{number} netns {translator}"),
                format!("ip -n {client} addr add {network}.2/24 dev eth0"),
                format!("ip -n {translator} addr add {network}.1/24 dev inner{number}"),
                format!("ip -n {client} link set lo up"),
                format!("ip -n {client} link set eth0 up"),
                format!("ip -n {translator} link set inner{number} up"),
                format!("ip -n {client} route add default via {network}.1"),
            ]);
        }
        for line in lines {
            assert!(run(&line), "{line}");
        }
        net
    }

    /// Runs a test of this program in the server's namespace. It must succeed.
    pub(crate) fn run_test(&self, name: &str, (variable, value): (&str, &str)) {
        succeed(in_namespace(&self.server, &this_test(name)).env(variable, value));
    }

    fn names(&self) -> impl Iterator<Item = &String> {
        self.clients.iter().chain([&self.translator, &self.server])
    }
}

impl Drop for NatNetwork {
    fn drop(&mut self) {
        for name in self.names() {
            run(&format!("ip netns del {name}"));
        }
    }
}

#[test]
#[ignore = "needs root, a KDC and nftables"]
fn client_behind_nat_is_served_and_recorded_by_translated_address() {
    let net = NatNetwork::make("nfs", 1);
    net.run_test("nat::client_process", (NAMESPACE, &net.clients[0]));
}

/// The child in the server's namespace; does nothing without its variable.
#[test]
fn client_process() {
    let Ok(namespace) = std::env::var(NAMESPACE) else { return };
    let kdc = realm(Kdc::start_on(&[SERVER.into()]));
    let export = Export::start_with(&kdc, ServerOptions { ip: SERVER, ..ServerOptions::default() });
    kdc.client(&kdc::Client { name: "far", kdc: SERVER.into(), ..kdc::Client::default() });
    let here = client_command(&kdc, "far", "", "krb5p", export.address.port());
    let mut there = in_namespace(&namespace, &here);
    there.env_remove(NAMESPACE).env(HOST, SERVER.to_string());
    there.stdout(Stdio::piped()).stderr(Stdio::piped());
    assert_success(there.spawn().expect("ip(8)"), &export);
    let name = "secret name krb5p";
    assert!(std::fs::read(export.data(name)).expect("the file") == content(name));
    within(60, "no operation was recorded", || !export.clients().is_empty());
    let translator = IpAddr::from(TRANSLATOR);
    assert!(export.clients().iter().all(|client| *client == translator), "{:?}", export.clients());
}
