//! Connects the engine's observations, refusals and administrative acts to `vouch_audit`.

mod ended_state;
pub(crate) mod names;
mod operation;
mod refusals;
mod replica_faults;

use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread;

use parking_lot::{Mutex, RwLock};
use vouch_audit::operations::{self, number};
use vouch_audit::record::Act;
use vouch_audit::trail::{Callback, Disk, Policy, Trail};
use vouch_audit::{Flavour as AuditFlavour, Record};
use vouch_nfs4::op::Op;
use vouch_nfs4_server::{
    CallOrigin, CompletedOp, Connection, Denial, EndedState, EventPaths, Export, ExportId, Exports,
    Flavour, NameChange, NameOrder, Observer, Principal, ReplyKind,
};

use crate::ExportError;
use crate::hosts::Hosts;
use crate::management::Administrator;
use crate::monitoring::operation_metrics::Metrics;
use names::{MOVED, MovedPaths, Names};
pub(super) use refusals::Refused;
pub(super) use replica_faults::ReplicaFaultReporter;

use vouch_daemon::audit_trail::{
    self as trail, Account, ActiveRules, KeyWatch, NewRules, RefusalLimit, TrailConfig, now_ns,
};
use vouch_daemon::exposition::Exposition;

#[derive(Clone, Debug)]
pub struct AuditConfig {
    pub trail: TrailConfig,
    /// Exports whose operations are refused if they can't be recorded.
    pub deny: Vec<String>,
}

pub(super) struct Audit {
    trail: Trail,
    rules: ActiveRules,
    account: Account,
    config: AuditConfig,
    denied: RwLock<Vec<ExportId>>,
    denies: bool,
    names: Names,
    /// Worker threads act as callers and must not wait for the trail's disk.
    save_moved_paths: Mutex<Option<(mpsc::Sender<()>, thread::JoinHandle<()>)>>,
    hosts: Arc<Hosts>,
    bounds: RefusalLimit,
    keytab: Mutex<Option<KeyWatch>>,
    halted: Arc<std::sync::atomic::AtomicBool>,
}

impl Audit {
    /// The rules must be valid.
    pub(super) fn open(
        config: AuditConfig,
        hosts: Arc<Hosts>,
        disk: Arc<dyn Disk>,
    ) -> Result<Self, ExportError> {
        let halted = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let halt = halted.clone();
        let halt = move || halt.store(true, std::sync::atomic::Ordering::SeqCst);
        let (trail, rules, account) = trail::begin(&config.trail, disk, &config.deny, halt)?;
        let names = Names::new(MovedPaths::read(Some(config.trail.directory.join(MOVED))));
        let (moved, (save_moved_paths, save_requests)) = (names.moved.clone(), mpsc::channel());
        let keeper = thread::Builder::new()
            .name("audit-moved".into())
            .spawn(move || save_requests.iter().for_each(|()| moved.save_requested()));
        let keeper = keeper.map_err(|source| ExportError::System { doing: "a thread", source })?;
        let save_moved_paths = Mutex::new(Some((save_moved_paths, keeper)));
        let (denied, bounds) = (RwLock::default(), RefusalLimit::default());
        let denies = !config.deny.is_empty();
        let keytab = Mutex::default();
        Ok(Audit {
            trail,
            rules,
            account,
            config,
            denied,
            denies,
            names,
            save_moved_paths,
            hosts,
            bounds,
            keytab,
            halted,
        })
    }

    pub(super) fn set_exports(&self, exports: &Exports, left_out: &[String]) -> Vec<&str> {
        let exports = exports.all();
        let wanted =
            |export: &&Arc<Export>| self.config.deny.iter().any(|path| *path == *export.source);
        *self.denied.write() = exports.iter().filter(wanted).map(|export| export.id).collect();
        let is_listed = |path: &String| {
            exports.iter().any(|export| *path == *export.source) || left_out.contains(path)
        };
        self.config.deny.iter().filter(|path| !is_listed(path)).map(String::as_str).collect()
    }

    pub(super) fn record_missing_deny_export(&self, path: &str) {
        trail::act(
            &self.trail,
            Act::TurnedDown,
            path.as_bytes(),
            "--audit-deny: this export no longer exists",
        );
    }

    pub(super) fn read_rules(&self) -> Result<NewRules, String> {
        self.account.read().map_err(|error| error.to_string())
    }

    pub(super) fn apply_rules(&self, new: NewRules) {
        self.account.put(&self.trail, &self.rules, new);
    }

    pub(super) fn started(&self) {
        self.account.started(
            &self.trail,
            &self.rules,
            concat!("vouch export ", env!("CARGO_PKG_VERSION")),
        );
    }

    pub(super) fn reload_failed(&self, why: &str) {
        self.account.failed(&self.trail, why);
    }

    pub(super) fn act(&self, act: Act, detail: &str) {
        trail::act(&self.trail, act, b"", detail);
    }

    pub(super) fn ordered(&self, by: &Administrator, is_done: bool, detail: &str) {
        trail::ordered(&self.trail, by.record(), is_done, detail);
    }

    /// The exports of a call whose reply is repeated are unknown.
    pub(super) fn holds(&self, awaits_observer: bool, kind: ReplyKind) -> bool {
        (awaits_observer
            || self.config.trail.keeping.policy == Policy::Block
            || kind == ReplyKind::Replay && self.denies)
            && self.trail.has_unstored_records()
    }

    pub(super) fn after(&self, after: Callback) {
        self.trail.call_when_stored(after);
    }

    pub(super) fn has_halted(&self) -> bool {
        self.halted.load(std::sync::atomic::Ordering::Relaxed)
    }

    pub(super) fn watch_keytab(&self, keytab: PathBuf) {
        let keytab = KeyWatch::new(keytab);
        self.account.set_keys(keytab.seen());
        *self.keytab.lock() = Some(keytab);
    }

    pub(super) fn check_keytab(&self) {
        for keytab in self.keytab.lock().iter() {
            if keytab.check(&self.trail) {
                self.account.keys_changed(keytab.seen());
            }
        }
    }

    pub(super) fn stop(&self) {
        self.check_keytab();
        self.record_omitted_refusals();
        self.act(Act::Stop, concat!("vouch export ", env!("CARGO_PKG_VERSION")));
        self.trail.stop();
        let keeper = self.save_moved_paths.lock().take();
        if let Some((asks, keeper)) = keeper {
            drop(asks);
            let _ = keeper.join();
        }
        self.names.moved.save();
    }

    fn save_moved_paths(&self) {
        if self.names.moved.request_save()
            && self.save_moved_paths.lock().as_ref().is_none_or(|(asks, _)| asks.send(()).is_err())
        {
            self.names.moved.save_requested();
        }
    }

    pub(super) fn write(&self, page: &mut Exposition) {
        trail::metrics::write("vouch_export_audit", &self.trail, &self.bounds, page);
    }
}

pub(super) struct AuditObserver {
    pub(super) metrics: Arc<Metrics>,
    pub(super) audit: Arc<Audit>,
}

impl Observer for AuditObserver {
    fn operation(&self, origin: &CallOrigin, done: &CompletedOp<'_>) -> bool {
        self.metrics.operation(origin, done);
        self.audit.operation(origin, done)
    }

    fn denied(&self, origin: &CallOrigin, export: &Export, why: Denial) {
        self.metrics.denied(origin, export, why);
        self.audit.denied(origin, export, why);
    }

    fn state_ended(&self, lost: &EndedState<'_>) {
        self.audit.record_ended_state(lost);
    }

    fn wants(&self, op: Op) -> bool {
        let Ok(op) = u16::try_from(op.0) else { return false };
        let may_record = |op| self.audit.rules.may_record(op);
        may_record(op)
            || NAMING.contains(&op)
            || (MOVING.contains(&op) && CLOSING.into_iter().any(may_record))
    }

    fn name_order(&self, export: ExportId) -> Option<&NameOrder> {
        self.audit.names.order(export)
    }

    fn name_changed(
        &self,
        export: &Export,
        op: Op,
        change: &NameChange<'_>,
    ) -> Option<Box<EventPaths>> {
        let time_ns = now_ns();
        let names = &self.audit.names;
        let paths = self
            .audit
            .rules
            .with(|rules| names.name_changed(export, operations::code(op), change, rules));
        self.audit.save_moved_paths();
        Some(Box::new(EventPaths { time_ns, ..paths }))
    }

    fn paths(&self, done: &CompletedOp<'_>) -> Option<Box<EventPaths>> {
        let (op, arguments) = (operations::code(done.op), done.arguments.as_ref()?);
        self.audit.rules.with(|rules| {
            let is_wanted = rules.may_record(op) || NAMING.contains(&op);
            is_wanted.then(|| {
                let time_ns = now_ns();
                let paths = self.audit.names.paths(done, arguments, rules);
                Box::new(EventPaths { time_ns, ..paths })
            })
        })
    }

    fn admits(&self, _: Op, export: ExportId) -> bool {
        self.audit.trail.is_healthy() || !self.audit.denied.read().contains(&export)
    }
}

fn principal(principal: &Principal) -> &str {
    match principal {
        Principal::Gss { name } | Principal::Certificate { name } => name,
        _ => "",
    }
}

fn transport(connection: &Connection) -> Record<'_> {
    let Some(tls) = connection.tls() else { return Record::default() };
    match &tls.certificate {
        None => Record { transport: Some(1), ..Record::default() },
        Some(certificate) => Record {
            transport: Some(2),
            fingerprint: &certificate.fingerprint,
            certificate: certificate.name.as_bytes(),
            ..Record::default()
        },
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
const MOVES: [u16; 3] = [number::RENAME, number::LINK, number::REMOVE];
const NAMING: [u16; 6] =
    [number::LOOKUP, number::OPEN, number::CREATE, number::RENAME, number::LINK, number::REMOVE];
const MOVING: [u16; 4] = [number::READ, number::READ_PLUS, number::WRITE, number::COPY];
const CLOSING: [u16; 2] = [number::CLOSE, number::DELEGRETURN];
