//! The one point where what clients do becomes records: joins the engine's observations, refusals
//! and administrative acts to rules and trail, which are `vouch_audit`'s.
//!
//! Costs a look at a set of operations where no rule wants the operation.

mod disbelief;
mod lost;
mod names;
mod operation;
mod refused;

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread;

use parking_lot::{Mutex, RwLock};
use vouch_audit::Flavour as AuditFlavour;
use vouch_audit::operations::number;
use vouch_audit::record::Act;
use vouch_audit::trail::{Callback, Disk, Policy, Trail};
use vouch_nfs4_server::{
    Denied, EndedState, Export, ExportId, Exports, Flavour, NameChange, NameOrder, Observation, Observer, ObserverNote, Principal,
};

use crate::ExportError;
use crate::hosts::Hosts;
use crate::monitoring::operation_metrics::Metrics;
pub(super) use disbelief::Disbelief;
use names::{MOVED, Moved, Names, Paths};
pub(super) use refused::Refused;

use vouch_daemon::audit_trail::{self as trail, Account, Bounds, InForce, KeyWatch, NewRules, TrailConfig, now_ns};

/// What is recorded, where, and how.
#[derive(Clone, Debug)]
pub struct AuditConfig {
    /// The trail, and the rules.
    pub trail: TrailConfig,
    /// Exports, by their source as it is listed, on which nothing is done that can't be recorded.
    pub deny: Vec<String>,
}

/// The trail of a server.
pub(super) struct Audit {
    trail: Trail,
    rules: InForce,
    account: Account,
    config: AuditConfig,
    denied: RwLock<Vec<ExportId>>,
    /// Whether any can be.
    denies: bool,
    names: Names,
    /// To the thread that keeps where watched directories were moved to: others may act as callers,
    /// or wait for the trail's disk.
    keep_moved: Mutex<Option<(mpsc::Sender<()>, thread::JoinHandle<()>)>>,
    hosts: Arc<Hosts>,
    bounds: Bounds,
    keytab: Mutex<Option<KeyWatch>>,
    halted: Arc<std::sync::atomic::AtomicBool>,
}

impl Audit {
    /// Goes on with the trail. The rules must be good.
    pub(super) fn open(config: AuditConfig, hosts: Arc<Hosts>, disk: Arc<dyn Disk>) -> Result<Self, ExportError> {
        let halted = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let halt = halted.clone();
        let halt = move || halt.store(true, std::sync::atomic::Ordering::SeqCst);
        let (trail, rules, account) = trail::begin(&config.trail, disk, &config.deny, halt)?;
        let names = Names::new(Moved::read(Some(config.trail.directory.join(MOVED))));
        let (moved, (keep_moved, asked)) = (names.moved.clone(), mpsc::channel());
        let keeper = thread::Builder::new().name("audit-moved".into()).spawn(move || asked.iter().for_each(|()| moved.keep_asked()));
        let keeper = keeper.map_err(|source| ExportError::System { doing: "a thread", source })?;
        let keep_moved = Mutex::new(Some((keep_moved, keeper)));
        let (denied, bounds) = (RwLock::default(), Bounds::default());
        let denies = !config.deny.is_empty();
        let keytab = Mutex::default();
        Ok(Audit { trail, rules, account, config, denied, denies, names, keep_moved, hosts, bounds, keytab, halted })
    }

    /// Which exports there are now, and which are listed besides; what is to be denied and is none
    /// of them.
    pub(super) fn name_exports(&self, exports: &Exports, left_out: &[String]) -> Vec<&str> {
        let exports = exports.all();
        let wanted = |export: &&Arc<Export>| self.config.deny.iter().any(|path| *path == *export.source);
        *self.denied.write() = exports.iter().filter(wanted).map(|export| export.id).collect();
        let is_listed = |path: &String| exports.iter().any(|export| *path == *export.source) || left_out.contains(path);
        self.config.deny.iter().filter(|path| !is_listed(path)).map(String::as_str).collect()
    }

    /// Records that what is to be denied is no export any more.
    pub(super) fn denies_none(&self, path: &str) {
        trail::act(
            &self.trail,
            Act::TurnedDown,
            path.as_bytes(),
            "--audit-deny: there is no such export any more, and nothing is denied by it",
        );
    }

    /// Reads the rules anew, and puts nothing in force.
    pub(super) fn read_rules(&self) -> Result<NewRules, String> {
        self.account.read().map_err(|error| error.to_string())
    }

    /// Puts rules in force.
    pub(super) fn put(&self, new: NewRules) {
        self.account.put(&self.trail, &self.rules, new);
    }

    /// Records the start, and what is in force.
    pub(super) fn started(&self) {
        self.account.started(&self.trail, &self.rules, concat!("vouch export ", env!("CARGO_PKG_VERSION")));
    }

    /// Records a reload that failed.
    pub(super) fn reload_failed(&self, why: &str) {
        self.account.failed(&self.trail, why);
    }

    /// Records what was done to the service.
    pub(super) fn act(&self, act: Act, detail: &str) {
        trail::act(&self.trail, act, b"", detail);
    }

    /// Whether a reply must wait until what was recorded before is kept.
    pub(super) fn holds(&self, hold: Hold) -> bool {
        let holds = match hold {
            Hold::ByPolicy => self.config.trail.keeping.policy == Policy::Block,
            Hold::Recorded => true,
            // Which exports it was about nobody knows any more.
            Hold::Again => self.denies || self.config.trail.keeping.policy == Policy::Block,
        };
        holds && self.trail.has_unstored_records()
    }

    /// Does something when all that was recorded before is kept.
    pub(super) fn after(&self, after: Callback) {
        self.trail.call_when_stored(after);
    }

    /// Whether the policy says to stop.
    pub(super) fn has_halted(&self) -> bool {
        self.halted.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// From now on, this keytab is looked at. To be called before the start is recorded, which
    /// tells whether it is another than before.
    pub(super) fn watch_keys(&self, keytab: PathBuf) {
        let keytab = KeyWatch::new(keytab);
        self.account.keys_are(keytab.seen());
        *self.keytab.lock() = Some(keytab);
    }

    /// Records that the keytab was changed, if it was. To be called now and then.
    pub(super) fn look_at_keys(&self) {
        for keytab in self.keytab.lock().iter() {
            if keytab.look(&self.trail) {
                self.account.keys_changed(keytab.seen());
            }
        }
    }

    /// Ends the trail.
    pub(super) fn stop(&self) {
        self.look_at_keys();
        self.tell_left_out();
        self.act(Act::Stop, concat!("vouch export ", env!("CARGO_PKG_VERSION")));
        self.trail.stop();
        let keeper = self.keep_moved.lock().take();
        if let Some((asks, keeper)) = keeper {
            drop(asks);
            // One that panicked has said so.
            let _ = keeper.join();
        }
        self.names.moved.keep();
    }

    /// Has it kept where watched directories were moved to, if that is to be.
    fn keep_moved(&self) {
        if self.names.moved.is_to_be_kept() && self.keep_moved.lock().as_ref().is_none_or(|(asks, _)| asks.send(()).is_err()) {
            self.names.moved.keep_asked();
        }
    }

    /// In Prometheus' text format.
    pub(super) fn write(&self, out: &mut String) {
        trail::metrics::write("vouch_export_audit", &self.trail, &self.bounds, out);
    }
}

thread_local! {
    /// The call that this thread is about has done something on an export on which nothing is acknowledged that isn't recorded.
    static MUST_BE_KEPT: Cell<bool> = const { Cell::new(false) };
}

/// Whether the reply to the call that this thread is about must wait for its records, whatever the
/// policy.
pub(super) fn must_be_kept() -> bool {
    MUST_BE_KEPT.get()
}

/// What another thread has found out about the call that this one goes on with.
pub(super) fn set_must_be_kept(must: bool) {
    MUST_BE_KEPT.set(must);
}

/// Which replies wait for their records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// As the policy has it.
    ByPolicy,
    /// This one does: it tells of an export on which nothing is acknowledged that isn't recorded.
    Recorded,
    /// It was made when its call came first, and the records of that may be on their way still.
    Again,
}

/// Takes what this thread has found out about the reply to its call. `again`: it was made when the
/// call came first.
pub(super) fn take_hold(again: bool) -> Hold {
    match MUST_BE_KEPT.replace(false) {
        true => Hold::Recorded,
        false if again => Hold::Again,
        false => Hold::ByPolicy,
    }
}

/// What is known of an operation when it is done, where it is told later: others may have moved its
/// files by then.
struct Noted {
    time_ns: u64,
    paths: Paths,
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

    fn denied(&self, denied: &Denied<'_>) {
        self.audit.denied(denied);
    }

    fn state_ended(&self, lost: &EndedState<'_>) {
        self.audit.lost(lost);
    }

    fn wants(&self, op: u32) -> bool {
        // Names come from some, and totals from some, whoever records those.
        let Ok(op) = u16::try_from(op) else { return false };
        let may_record = |op| self.audit.rules.may_record(op);
        may_record(op) || NAMING.contains(&op) || (MOVING.contains(&op) && CLOSING.into_iter().any(may_record))
    }

    fn name_order(&self, export: ExportId) -> Option<&NameOrder> {
        self.audit.names.order(export)
    }

    fn name_changed(&self, export: &Export, op: u32, naming: &NameChange<'_>) -> Option<ObserverNote> {
        let op = u16::try_from(op).unwrap_or(u16::MAX);
        let time_ns = now_ns();
        let paths = self.audit.rules.with(|rules| self.audit.names.named(export, op, naming, rules));
        self.audit.keep_moved();
        Some(Box::new(Noted { time_ns, paths }))
    }

    fn before_deferral(&self, seen: &Observation<'_>) -> Option<ObserverNote> {
        let told = seen.details.as_ref()?;
        let op = u16::try_from(seen.op).unwrap_or(u16::MAX);
        let noted = self.audit.rules.with(|rules| {
            let is_wanted = rules.may_record(op) || NAMING.contains(&op);
            is_wanted.then(|| Noted { time_ns: now_ns(), paths: self.audit.names.paths(seen, told, rules) })
        });
        noted.map(|noted| Box::new(noted) as ObserverNote)
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
const SERVERFAULT: u32 = 10006;
const BADHANDLE: u32 = 10001;
const WRONGSEC: u32 = 10016;
/// Operations that change what a name means, of what was there before.
const MOVES: [u16; 3] = [number::RENAME, number::LINK, number::REMOVE];
/// Operations that tell names of files.
const NAMING: [u16; 6] = [number::LOOKUP, number::OPEN, number::CREATE, number::RENAME, number::LINK, number::REMOVE];
/// Operations that move data, which closes tell.
const MOVING: [u16; 4] = [number::READ, number::READ_PLUS, number::WRITE, number::COPY];
/// Operations that tell how much was moved.
const CLOSING: [u16; 2] = [number::CLOSE, number::DELEGRETURN];
