use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

/// Entries have at least one connection each, so `connections_max` limits the table.
pub(crate) struct AddressQuota {
    open: Mutex<Open>,
    connections_max: usize,
    address_max: usize,
}

#[derive(Default)]
struct Open {
    total: usize,
    of_address: HashMap<IpAddr, usize>,
}

pub(crate) struct ConnectionPermit {
    quota: Arc<AddressQuota>,
    address: IpAddr,
}

impl AddressQuota {
    pub(crate) fn new(connections_max: usize, address_max: usize) -> Arc<Self> {
        Arc::new(Self { open: Mutex::default(), connections_max, address_max })
    }

    pub(crate) fn take(self: &Arc<Self>, peer: IpAddr) -> Option<ConnectionPermit> {
        let address = network(peer);
        let mut open = self.open.lock();
        let of_address = open.of_address.get(&address).copied().unwrap_or(0);
        if open.total >= self.connections_max || of_address >= self.address_max {
            return None;
        }
        open.total += 1;
        open.of_address.insert(address, of_address + 1);
        drop(open);
        Some(ConnectionPermit { quota: self.clone(), address })
    }

    pub(crate) fn total(&self) -> usize {
        self.open.lock().total
    }

    pub(crate) const fn connections_max(&self) -> usize {
        self.connections_max
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut open = self.quota.open.lock();
        open.total -= 1;
        if let Some(count) = open.of_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                open.of_address.remove(&self.address);
            }
        }
    }
}

/// A site has an IPv6 /64 network at least, which counts as one address.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_cannot_take_all_connections() {
        let quota = AddressQuota::new(3, 2);
        let (a, b): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let first = quota.take(a).unwrap();
        let _second = quota.take(a).unwrap();
        assert!(quota.take(a).is_none());
        let _third = quota.take(b).unwrap();
        assert!(quota.take(b).is_none());
        drop(first);
        assert!(quota.take(b).is_some());
        assert_eq!(quota.total(), 2);
    }

    #[test]
    fn addresses_of_one_ipv6_network_share_a_quota() {
        let quota = AddressQuota::new(9, 1);
        let _first = quota.take("2001:db8::1".parse().unwrap()).unwrap();
        assert!(quota.take("2001:db8::2".parse().unwrap()).is_none());
        assert!(quota.take("2001:db8:0:1::1".parse().unwrap()).is_some());
        let _mapped = quota.take("::ffff:192.0.2.1".parse().unwrap()).unwrap();
        assert!(quota.take("192.0.2.1".parse().unwrap()).is_none());
    }
}
