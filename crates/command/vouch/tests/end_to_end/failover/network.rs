//! Namespaces of two heads and of their clients, joined by a bridge, and an address that moves.

use crate::prelude::*;

/// Of the service.
pub(super) const ADDRESS: &str = "10.78.0.100";

pub(super) struct Network {
    pub(super) client: String,
    pub(super) heads: [String; 2],
    /// The namespaces end with this value.
    is_owner: bool,
}

impl Network {
    pub(super) fn make() -> Network {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = |of: &str| format!("vouch-{of}-{}-{number}", std::process::id());
        let net = Network { client: name("c"), heads: [name("a"), name("b")], is_owner: true };
        for name in [&net.client, &net.heads[0], &net.heads[1]] {
            require("root and network namespaces", run(&format!("ip netns add {name}")));
        }
        let client = &net.client;
        let mut lines = vec![
            format!("ip -n {client} link set lo up"),
            format!("ip -n {client} link add bridge0 type bridge"),
            format!("ip -n {client} addr add 10.78.0.1/24 dev bridge0"),
            format!("ip -n {client} link set bridge0 up"),
        ];
        for (number, head) in net.heads.iter().enumerate() {
            lines.extend([
                format!(
                    "ip link add eth0 netns {head} type veth peer name head{number} netns {client}"
                ),
                format!("ip -n {client} link set head{number} master bridge0"),
                format!("ip -n {client} link set head{number} up"),
                format!("ip -n {head} addr add 10.78.0.{}/24 dev eth0", 11 + number),
                format!("ip -n {head} link set lo up"),
                format!("ip -n {head} link set eth0 up"),
            ]);
        }
        for line in lines {
            assert!(run(&line), "{line}");
        }
        net
    }

    /// For the process in the clients' namespace. `names`: as [`Self::names`] gives them.
    pub(super) fn of(names: &str) -> Network {
        let names: Vec<&str> = names.split(' ').collect();
        let [client, a, b] = names[..] else { panic!("not three names: {names:?}") };
        Network { client: client.to_owned(), heads: [a.to_owned(), b.to_owned()], is_owner: false }
    }

    pub(super) fn names(&self) -> String {
        [&*self.client, &self.heads[0], &self.heads[1]].join(" ")
    }

    /// As the network sees it: the old head has lost the address before the new one gets it.
    pub(super) fn move_address(&self, to: usize) {
        run(&format!("ip -n {} addr del {ADDRESS}/24 dev eth0", self.heads[1 - to]));
        run(&format!("ip -n {} addr add {ADDRESS}/24 dev eth0", self.heads[to]));
        run(&format!("ip -n {} neigh flush dev bridge0", self.client));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in
            [&self.client, &self.heads[0], &self.heads[1]].into_iter().filter(|_| self.is_owner)
        {
            run(&format!("ip netns del {name}"));
        }
    }
}
