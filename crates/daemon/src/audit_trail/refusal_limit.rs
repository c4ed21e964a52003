//! How much is recorded of what others can cause as fast as they like: refusals. What is left out
//! is counted, for a record of its own. The clock is passed in.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use vouch_audit::Record;
use vouch_audit::record::{Class, Refusal};
use vouch_audit::trail::Trail;

use super::now_ns;
use crate::rate_limit::{LeftOut, Rate, Throttle};

/// What may still be recorded of refusals.
pub struct Bounds {
    throttle: Mutex<Throttle>,
    left_out: AtomicU64,
}

/// How many refusals of the same address were left out before this one.
pub type Untold = Option<u64>;

impl Default for Bounds {
    fn default() -> Self {
        Bounds { throttle: Mutex::new(Throttle::new(OF_CLIENT, OF_ALL)), left_out: AtomicU64::new(0) }
    }
}

impl Bounds {
    /// How many were left out since the start.
    pub fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    /// Whether a refusal that this address has caused is recorded. If not, it is counted.
    pub fn admit(&self, address: IpAddr, mono_ms: u64) -> Option<Untold> {
        let admitted = self.throttle.lock().admit(address, mono_ms);
        if admitted.is_none() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
        admitted.map(|untold| (untold > 0).then_some(untold))
    }

    /// Records how many refusals were left out since this was last told, if any were. To be called
    /// now and then.
    pub fn tell_left_out(&self, trail: &Trail, mono_ms: u64) {
        let left_out = {
            let mut throttle = self.throttle.lock();
            let left_out = throttle.take_left_out();
            throttle.expire(mono_ms);
            left_out
        };
        if left_out.count == 0 {
            return;
        }
        let detail = told(&left_out);
        let address = match left_out.clients[..] {
            [(address, count)] if count == left_out.count => Some(address),
            _ => None,
        };
        trail.record(&Record {
            time_ns: now_ns(),
            class: Class::Refusal,
            operation: Refusal::Many as u16,
            address,
            gap: Some(left_out.count),
            detail: detail.as_bytes(),
            ..Record::default()
        });
    }
}

fn told(left_out: &LeftOut) -> String {
    let mut text = String::from("refusals beyond the rate that is recorded:");
    let named: u64 = left_out.clients.iter().map(|(_, count)| count).sum();
    for (address, count) in &left_out.clients {
        let _ = write!(text, " {count} of {address},");
    }
    match left_out.count - named {
        0 => text.truncate(text.len() - 1),
        others => {
            let _ = write!(text, " {others} of others");
        }
    }
    text
}

/// Refusals of one address that are recorded: a user's mistakes are all there, a loop's are
/// counted.
const OF_CLIENT: Rate = Rate { count: 100, each_ms: 1000 };
/// And of all: with some 100 bytes a record on disk at most about 150 MB a day, whoever is at it.
const OF_ALL: Rate = Rate { count: 1000, each_ms: 50 };
