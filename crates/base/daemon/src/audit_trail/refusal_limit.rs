//! Any peer can trigger refusals. A record has the number of omitted ones.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use vouch_audit::Record;
use vouch_audit::record::{Class, Refusal};
use vouch_audit::trail::Trail;

use super::now_ns;
use crate::rate_limit::{OmittedMessages, Rate, Throttle};

pub struct RefusalLimit {
    throttle: Mutex<Throttle>,
    left_out: AtomicU64,
}

pub type Omitted = Option<u64>;

impl Default for RefusalLimit {
    fn default() -> Self {
        RefusalLimit {
            throttle: Mutex::new(Throttle::new(OF_CLIENT, OF_ALL)),
            left_out: AtomicU64::new(0),
        }
    }
}

impl RefusalLimit {
    pub fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    pub fn admit(&self, address: IpAddr, mono_ms: u64) -> Option<Omitted> {
        let admitted = self.throttle.lock().admit(address, mono_ms);
        if admitted.is_none() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
        admitted.map(|omitted| (omitted > 0).then_some(omitted))
    }

    pub fn record_omitted(&self, trail: &Trail, mono_ms: u64) {
        let left_out = {
            let mut throttle = self.throttle.lock();
            let left_out = throttle.take_omitted();
            throttle.expire(mono_ms);
            left_out
        };
        if left_out.count == 0 {
            return;
        }
        let detail = describe(&left_out);
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

fn describe(left_out: &OmittedMessages) -> String {
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

const OF_CLIENT: Rate = Rate { count: 100, each_ms: 1000 };
/// At most about 150 MB a day, at 100 bytes a record.
const OF_ALL: Rate = Rate { count: 1000, each_ms: 50 };
