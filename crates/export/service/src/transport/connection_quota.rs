use std::collections::HashMap;
use std::net::IpAddr;

use parking_lot::Mutex;

use crate::limits::SHARE;
use crate::memory_quota::quota_address;

#[derive(Default)]
pub(crate) struct ConnectionQuota(Mutex<HashMap<IpAddr, usize>>);

impl ConnectionQuota {
    pub(crate) fn enter(&self, address: IpAddr, max: usize, left: usize) -> bool {
        let address = quota_address(address);
        let mut counts = self.0.lock();
        let count = counts.get(&address).copied().unwrap_or_default();
        let room = count < max.min(left.saturating_mul(SHARE));
        if room {
            counts.insert(address, count + 1);
        }
        room
    }

    pub(crate) fn leave(&self, address: IpAddr) {
        let address = quota_address(address);
        let mut counts = self.0.lock();
        if let Some(count) = counts.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_leaves_connections_to_others() {
        let addresses = ConnectionQuota::default();
        let mut open = 0;
        let mut greedy = |from: &dyn Fn(u32) -> String| {
            let taken = (0..1000).take_while(|&number| {
                let entered = addresses.enter(from(number).parse().unwrap(), 500, 100 - open);
                open += usize::from(entered);
                entered
            });
            taken.count()
        };
        assert_eq!(greedy(&|number| format!("2001:db8::{number:x}")), 80);
        assert_eq!(greedy(&|_| "192.0.2.1".into()), 16);
        assert_eq!(greedy(&|_| "2001:db8:0:1::1".into()), 4);
        assert_eq!(greedy(&|_| "192.0.2.2".into()), 0);
        addresses.leave("2001:db8::ffff".parse().unwrap());
        assert_eq!(addresses.0.lock().len(), 3, "a refused address is not stored");
    }
}
