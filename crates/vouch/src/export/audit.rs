//! The one point where what clients do becomes records: joins the engine's observations, refusals and administrative acts to rules and trail, which are `vouch_audit`'s.
//!
//! Costs a look at a set of operations where no rule wants the operation.

mod disbelief;
mod lost;
mod names;
mod refused;

use std::sync::Arc;

use parking_lot::RwLock;
use vouch_audit::operations::number;
use vouch_audit::record::{Act, Class, Refusal};
use vouch_audit::rules::Rules;
use vouch_audit::trail::{After, Trail};
use vouch_audit::{Flavour as AuditFlavour, Record};
use vouch_nfs4_server::{ExportId, Flavour, Lost, Observation, Observer, Principal, Told};

use super::ExportError;
use super::hosts::Hosts;
use super::metrics::{Metrics, line};
pub(super) use disbelief::Disbelief;
use names::Names;
pub(super) use refused::Refused;

use crate::trail::{self, Bounds, InForce, TrailConfig, now_ns};

/// What is recorded, where, and how.
#[derive(Clone, Debug)]
pub struct AuditConfig {
    /// The trail, and the rules.
    pub trail: TrailConfig,
    /// Exports, by their source, on which nothing is done that can't be recorded.
    pub deny: Vec<String>,
}

/// The trail of a server.
pub(super) struct Audit {
    trail: Trail,
    rules: InForce,
    config: AuditConfig,
    denied: RwLock<Vec<ExportId>>,
    names: Names,
    hosts: Arc<Hosts>,
    bounds: Bounds,
    halted: Arc<std::sync::atomic::AtomicBool>,
}

impl Audit {
    /// Goes on with the trail. The rules must be good.
    pub(super) fn open(config: AuditConfig, hosts: Arc<Hosts>) -> Result<Self, ExportError> {
        let halted = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let halt = halted.clone();
        let (trail, rules) = trail::begin(&config.trail, move || halt.store(true, std::sync::atomic::Ordering::SeqCst))?;
        Ok(Audit { trail, rules, config, denied: RwLock::default(), names: Names::new(), hosts, bounds: Bounds::default(), halted })
    }

    /// Which exports there are now.
    pub(super) fn name_exports<'a>(&self, exports: impl Iterator<Item = (ExportId, &'a str)>) {
        let wanted = |source: &str| self.config.deny.iter().any(|path| path == source);
        *self.denied.write() = exports.filter(|(_, source)| wanted(source)).map(|(id, _)| id).collect();
    }

    /// Reads the rules anew; a fault changes nothing.
    pub(super) fn reload(&self) -> Result<(), String> {
        trail::reload(&self.config.trail, &self.trail, &self.rules).map_err(|error| error.to_string())
    }

    /// Records what was done to the service.
    pub(super) fn act(&self, act: Act, detail: &str) {
        trail::act(&self.trail, act, b"", detail);
    }

    /// Whether a reply must wait until what was recorded before is kept.
    pub(super) fn holds_replies(&self) -> bool {
        self.trail.blocks() && self.trail.is_behind()
    }

    /// Does something when all that was recorded before is kept.
    pub(super) fn after(&self, after: After) {
        self.trail.after(after);
    }

    /// Whether the policy says to stop.
    pub(super) fn has_halted(&self) -> bool {
        self.halted.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Ends the trail.
    pub(super) fn stop(&self) {
        self.tell_left_out();
        self.act(Act::Stop, concat!("vouch export ", env!("CARGO_PKG_VERSION")));
        self.trail.stop();
    }

    /// In Prometheus' text format.
    pub(super) fn write(&self, out: &mut String) {
        use std::fmt::Write as _;
        let counts = self.trail.counts();
        let series = [
            ("records_total", "Audit records written.", "counter", counts.written),
            ("records_lost_total", "Audit records lost.", "counter", counts.lost),
            ("refusals_left_out_total", "Refusals beyond the rate that is recorded.", "counter", self.bounds.left_out()),
            ("failures_total", "Times that the disk refused audit records.", "counter", counts.failures),
            ("waiting_bytes", "Bytes of audit records that are not written yet.", "gauge", counts.waiting_len),
            ("healthy", "Whether the disk took the last audit records.", "gauge", u64::from(counts.is_healthy)),
        ];
        for (name, help, kind, value) in series {
            let metric = format!("vouch_export_audit_{name}");
            line(out, &metric, help, kind);
            let _ = writeln!(out, "{metric} {value}");
        }
    }

    fn operation(&self, seen: &Observation<'_>) {
        let operation = u16::try_from(seen.op).unwrap_or(u16::MAX);
        let refused = match (operation, seen.status) {
            (PUTFH, BADHANDLE) => Some((Refusal::Handle, "a filehandle that was never given out")),
            (_, WRONGSEC) => Some((Refusal::Flavour, "")),
            _ => None,
        };
        if let Some((why, detail)) = refused {
            let (flavour, principal) = (flavour(seen.flavour), principal(seen.principal));
            self.refuse(&Refused { flavour, principal, enctype: seen.enctype, detail, ..Refused::of(why, seen.connection) });
        }
        let Some(told) = &seen.told else { return };
        self.rules.with(|rules| self.record(operation, seen, told, rules));
    }

    fn record(&self, operation: u16, seen: &Observation<'_>, told: &Told<'_>, rules: &Rules) {
        let peer = seen.connection.peer();
        let is_recorded = rules.may_record(operation);
        if !is_recorded && !NAMING.contains(&operation) {
            return;
        }
        let paths = self.names.paths(seen, told);
        if !is_recorded {
            return;
        }
        let (uid, gid) = match (told.caller, seen.principal) {
            (Some(caller), _) => (Some(caller.uid), Some(caller.gid)),
            (None, Principal::Sys { uid, gid, .. }) => (Some(*uid), Some(*gid)),
            (None, _) => (None, None),
        };
        let file = told.after.filter(|_| FOLLOWS.contains(&operation)).or(seen.file).or(told.after);
        let is_data = matches!(operation, number::READ | number::READ_PLUS | number::WRITE | number::COPY);
        let done = |bytes: u64| (bytes > 0 || is_data).then_some(bytes);
        let name = self.hosts.name(peer.ip().to_canonical());
        let mut record = Record {
            time_ns: now_ns(),
            class: Class::Operation,
            operation,
            flavour: flavour(seen.flavour),
            minor: u8::try_from(seen.minor).unwrap_or(u8::MAX),
            result: seen.status,
            principal: principal(seen.principal).as_bytes(),
            enctype: seen.enctype,
            uid,
            gid,
            address: Some(peer.ip()),
            port: Some(peer.port()),
            client: name.as_ref().map_or(b"", |name| name.as_bytes()),
            export: told.export.map_or(&b""[..], |export| export.source.as_bytes()),
            path: &paths.path,
            path2: &paths.new_path,
            file: file.map_or(&b""[..], |file| file.as_bytes()),
            asked: told.asked.access,
            granted: told.granted,
            offset: told.asked.offset,
            read: done(seen.bytes_read),
            written: done(seen.bytes_written),
            connection: Some(seen.connection.id().0),
            xid: Some(seen.xid),
            ..Record::default()
        };
        if let Some(totals) = told.totals {
            record.read = Some(totals.read);
            record.written = Some(totals.written);
            record.open_ns = Some(totals.open_ms.saturating_mul(1_000_000));
        }
        if let Some(key) = rules.select(&record) {
            let record = Record { key, ..record };
            self.trail.record(&record);
        }
    }
}

/// What the engine tells is counted, and recorded.
pub(super) struct Audited {
    pub(super) metrics: Arc<Metrics>,
    pub(super) audit: Arc<Audit>,
}

impl Observer for Audited {
    fn operation(&self, seen: &Observation<'_>) {
        self.metrics.operation(seen);
        self.audit.operation(seen);
    }

    fn lost(&self, lost: &Lost<'_>) {
        self.audit.lost(lost);
    }

    fn wants(&self, op: u32) -> bool {
        // Names come from some, and totals from some, whoever records those.
        let Ok(op) = u16::try_from(op) else { return false };
        NAMING.contains(&op)
            || self
                .audit
                .rules
                .with(|rules| rules.may_record(op) || (MOVING.contains(&op) && CLOSING.iter().any(|closing| rules.may_record(*closing))))
    }

    fn admits(&self, _: u32, export: ExportId) -> bool {
        self.audit.trail.is_healthy() || !self.audit.denied.read().contains(&export)
    }
}

fn principal(principal: &Principal) -> &str {
    match principal {
        Principal::Gss { name } => name,
        _ => "",
    }
}

fn flavour(flavour: Flavour) -> AuditFlavour {
    match flavour {
        Flavour::None => AuditFlavour::None,
        Flavour::Sys => AuditFlavour::Sys,
        Flavour::Krb5 => AuditFlavour::Krb5,
        Flavour::Krb5i => AuditFlavour::Krb5i,
        Flavour::Krb5p => AuditFlavour::Krb5p,
    }
}

const PUTFH: u16 = 22;
/// Statuses (RFC 8881, section 15.1).
const BADHANDLE: u32 = 10001;
const WRONGSEC: u32 = 10016;
/// Operations after which the current filehandle is the file that they were about.
const FOLLOWS: [u16; 4] = [number::LOOKUP, number::LOOKUPP, number::OPEN, number::CREATE];
/// Operations that tell names of files.
const NAMING: [u16; 4] = [number::LOOKUP, number::OPEN, number::CREATE, number::RENAME];
/// Operations that move data, which closes tell.
const MOVING: [u16; 4] = [number::READ, number::READ_PLUS, number::WRITE, number::COPY];
/// Operations that tell how much was moved.
const CLOSING: [u16; 2] = [number::CLOSE, number::DELEGRETURN];
