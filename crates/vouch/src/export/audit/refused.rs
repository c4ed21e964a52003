//! Calls that were refused before they were operations. Anybody who reaches the port can cause them, as fast as he likes: so they are recorded at a bounded rate, and what
//! was left out is counted in a record itself.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use vouch_audit::record::{Class, Refusal};
use vouch_audit::{Flavour, Record};
use vouch_nfs4_server::Connection;

use super::{Audit, now_ns};
use crate::export::clock;
use crate::export::throttle::{LeftOut, Rate, Throttle};

/// A call that was refused.
pub(in crate::export) struct Refused<'a> {
    pub(in crate::export) why: Refusal,
    pub(in crate::export) peer: SocketAddr,
    pub(in crate::export) connection: Option<u64>,
    pub(in crate::export) flavour: Flavour,
    /// Who, where it is known.
    pub(in crate::export) principal: &'a str,
    pub(in crate::export) enctype: Option<u32>,
    pub(in crate::export) detail: &'a str,
}

impl Refused<'_> {
    /// One of which no more is known.
    pub(in crate::export) fn of(why: Refusal, connection: &Connection) -> Self {
        Refused { connection: Some(connection.id().0), ..Self::from(why, connection.peer()) }
    }

    /// Likewise, without a connection.
    pub(in crate::export) fn from(why: Refusal, peer: SocketAddr) -> Self {
        Refused { why, peer, connection: None, flavour: Flavour::None, principal: "", enctype: None, detail: "" }
    }
}

/// What may still be recorded of refusals.
pub(super) struct Bounds {
    throttle: Mutex<Throttle>,
    left_out: AtomicU64,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds { throttle: Mutex::new(Throttle::new(OF_CLIENT, OF_ALL)), left_out: AtomicU64::new(0) }
    }
}

impl Bounds {
    /// How many were left out since the start.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }
}

impl Audit {
    /// Records a call that was refused, if no rule says never and its client has not had too many.
    pub(in crate::export) fn refuse(&self, refused: &Refused<'_>) {
        let name = self.hosts.name(refused.peer.ip().to_canonical());
        let mut record = Record {
            time_ns: now_ns(),
            class: Class::Refusal,
            operation: refused.why as u16,
            flavour: refused.flavour,
            principal: refused.principal.as_bytes(),
            enctype: refused.enctype,
            address: Some(refused.peer.ip()),
            port: Some(refused.peer.port()),
            client: name.as_ref().map_or(b"", |name| name.as_bytes()),
            detail: refused.detail.as_bytes(),
            connection: refused.connection,
            ..Record::default()
        };
        let Some(key) = self.rules.with(|rules| rules.select_refusal(&record).map(Box::<[u8]>::from)) else { return };
        let Some(untold) = self.bounds.throttle.lock().admit(refused.peer.ip(), clock::mono_ms()) else {
            self.bounds.left_out.fetch_add(1, Ordering::Relaxed);
            return;
        };
        record.gap = (untold > 0).then_some(untold);
        record.key = &key;
        self.trail.record(&record);
    }

    /// Records how many refusals were left out since this was last told, if any were. To be called now and then.
    pub(in crate::export) fn tell_left_out(&self) {
        let left_out = {
            let mut throttle = self.bounds.throttle.lock();
            let left_out = throttle.take_left_out();
            throttle.expire(clock::mono_ms());
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
        self.trail.record(&Record {
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

/// Refusals of one client that are recorded: a user's mistakes are all there, a loop's are counted.
const OF_CLIENT: Rate = Rate { count: 100, each_ms: 1000 };
/// And of all: with some 100 bytes a record on disk at most about 150 MB a day, whoever is at it.
const OF_ALL: Rate = Rate { count: 1000, each_ms: 50 };
