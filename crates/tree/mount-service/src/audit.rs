use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::RwLock;
use tokio::sync::{Notify, oneshot};
use vouch_audit::operations::number;
use vouch_audit::record::{Act, Class, Refusal, access};
use vouch_audit::rules::Rules;
use vouch_audit::trail::{SystemDisk, Trail};
use vouch_audit::{Flavour, Record};
use vouch_daemon::audit_trail::{
    self as trail, Account, ActiveRules, RefusalLimit, TrailConfig, TrailError, now_ns,
};
use vouch_daemon::exposition::Exposition;
use vouch_tree_client::{ErrorClass, FaultObserver, ReplicaFault};
use vouch_tree_mount::{Observation, Observer, Operation, Recorded, TreeEvent};

pub(crate) struct MountAudit {
    trail: Trail,
    rules: ActiveRules,
    account: Account,
    point: Vec<u8>,
    bounds: RefusalLimit,
    since: Instant,
    halt: Arc<Notify>,
    /// Nothing more is recorded or answered. Recorders hold it for reading.
    ended: RwLock<bool>,
}

impl MountAudit {
    pub(crate) fn begin(config: &TrailConfig, point: &Path) -> Result<Self, TrailError> {
        let halt = Arc::new(Notify::new());
        let halted = halt.clone();
        let (trail, rules, account) =
            trail::begin(config, Arc::new(SystemDisk), &[], move || halted.notify_one())?;
        // A dead mount at the path can't be resolved.
        let point = point
            .canonicalize()
            .or_else(|_| std::path::absolute(point))
            .unwrap_or_else(|_| point.to_owned());
        let point = point.as_os_str().as_bytes().to_vec();
        Ok(MountAudit {
            trail,
            rules,
            account,
            point,
            bounds: RefusalLimit::default(),
            since: Instant::now(),
            halt,
            ended: RwLock::new(false),
        })
    }

    pub(crate) fn reload(&self) {
        match self.account.read() {
            Ok(new) => {
                self.account.put(&self.trail, &self.rules, new);
                tracing::info!("audit rules reloaded");
            }
            Err(error) => {
                self.account.failed(&self.trail, &error.to_string());
                tracing::error!(%error, "the new audit rules have errors; the old rules stay in force");
            }
        }
    }

    pub(crate) fn started(&self, detail: &str) {
        self.account.started(&self.trail, &self.rules, detail);
    }

    pub(crate) fn record_omitted(&self) {
        self.bounds.record_omitted(&self.trail, self.mono_ms());
    }

    pub(crate) async fn halted(&self) {
        self.halt.notified().await;
    }

    pub(crate) fn write_metrics(&self, page: &mut Exposition) {
        trail::metrics::write("vouch_mount_audit", &self.trail, &self.bounds, page);
    }

    pub(crate) fn is_healthy(&self) -> bool {
        self.trail.is_healthy()
    }

    /// The mount answers nothing from now on.
    pub(crate) fn stop(&self, detail: &str) {
        *self.ended.write() = true;
        self.record_omitted();
        trail::act(&self.trail, Act::Stop, b"", detail);
        self.trail.stop();
    }

    fn mono_ms(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn refuse(&self, refusal: Refusal, from: Option<(SocketAddr, &str)>, tree: &str, detail: &str) {
        let export = export(tree);
        let mut record = Record {
            time_ns: now_ns(),
            class: Class::Refusal,
            operation: refusal as u16,
            address: from.map(|(replica, _)| replica.ip()),
            port: from.map(|(replica, _)| replica.port()),
            client: from.map_or(b"", |(_, host)| host.as_bytes()),
            export: &export,
            detail: detail.as_bytes(),
            ..Record::default()
        };
        let Some(key) =
            self.rules.with(|rules| rules.select_refusal(&record).map(Box::<[u8]>::from))
        else {
            return;
        };
        let address = from.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |(replica, _)| replica.ip());
        let Some(omitted) = self.bounds.admit(address, self.mono_ms()) else { return };
        record.gap = omitted;
        record.key = &key;
        self.trail.record(&record);
    }

    fn record(&self, seen: &Observation<'_>, rules: &Rules) -> bool {
        let operation = number_of(seen.operation);
        if !rules.may_record(operation) {
            return false;
        }
        let (path, export) = ([&self.point, seen.path].concat(), export(seen.tree));
        let file = seen.number.map(u64::to_be_bytes);
        let asked = match seen.operation {
            Operation::Open if seen.executes => Some(access::READ | access::EXECUTE),
            Operation::Open => Some(access::READ),
            _ => None,
        };
        let record = Record {
            time_ns: now_ns(),
            class: Class::Operation,
            operation,
            flavour: Flavour::Local,
            result: seen.failure.map_or(0, |failure| status_of(failure.errno)),
            uid: Some(seen.caller.uid),
            gid: Some(seen.caller.gid),
            pid: seen.caller.pid,
            login: seen.caller.login,
            export: &export,
            path: &path,
            file: file.as_ref().map_or(b"", |file| file),
            requested: asked,
            granted: asked.filter(|_| seen.failure.is_none()),
            offset: seen.offset,
            read: seen.read,
            written: (seen.operation == Operation::Close).then_some(0),
            open_ns: seen.open.map(|open| u64::try_from(open.as_nanos()).unwrap_or(u64::MAX)),
            detail: seen.failure.map_or(seen.remark, |failure| failure.why).as_bytes(),
            ..Record::default()
        };
        if let Some(key) = rules.select(&record) {
            self.trail.record(&Record { key, ..record });
            return true;
        }
        // Rules apply to all names of a file.
        for other in seen.other_paths {
            let path = [&self.point, &**other].concat();
            let record = Record { path: &path, ..record.clone() };
            if let Some(key) = rules.select(&record) {
                self.trail.record(&Record { key, ..record });
                return true;
            }
        }
        false
    }

    /// Ready when all earlier records are durable.
    fn kept(&self) -> Recorded {
        let (send, kept) = oneshot::channel();
        self.trail.call_when_stored(Box::new(move || {
            let _ = send.send(());
        }));
        Box::pin(async move {
            if kept.await.is_err() {
                // The trail has ended.
                std::future::pending::<()>().await;
            }
        })
    }
}

impl Observer for MountAudit {
    fn wants(&self, operation: Operation) -> bool {
        self.rules.with(|rules| rules.may_record(number_of(operation)))
    }

    fn observe(&self, seen: &Observation<'_>) -> Option<Recorded> {
        let ended = self.ended.read();
        if *ended {
            return Some(Box::pin(std::future::pending()));
        }
        let is_recorded = self.rules.with(|rules| self.record(seen, rules));
        (is_recorded && self.trail.delays_replies()).then(|| self.kept())
    }

    fn tree_event(&self, news: &TreeEvent<'_>) {
        let revision = |tree: &str, detail: &str| {
            trail::act(&self.trail, Act::Revision, &export(tree), detail)
        };
        match *news {
            TreeEvent::Shown { tree, revision: now, before: None } => {
                revision(tree, &format!("revision {now} is shown"))
            }
            TreeEvent::Shown { tree, revision: now, before: Some(before) } => {
                revision(tree, &format!("revision {now} is shown, {before} before"))
            }
            TreeEvent::Restored { tree, revision: now } => {
                revision(tree, &format!("revision {now} is shown again"))
            }
            TreeEvent::Withdrawn { tree, class, why } => {
                let detail = format!("this tree is no longer shown: {why}");
                self.refuse(
                    refusal_to_show(class).unwrap_or(Refusal::Altered),
                    None,
                    tree,
                    &detail,
                );
            }
            TreeEvent::NotOpened { tree, class, why } => {
                if let Some(refusal) = refusal_to_show(class) {
                    self.refuse(refusal, None, tree, why);
                }
            }
        }
    }
}

impl FaultObserver for MountAudit {
    fn replica_fault(&self, fault: &ReplicaFault<'_>) {
        self.refuse(
            trail::refusal_of(&fault.kind),
            Some((fault.replica, fault.host)),
            &fault.tree.to_string(),
            fault.detail,
        );
    }
}

/// None if the tree is only unreachable.
const fn refusal_to_show(class: ErrorClass) -> Option<Refusal> {
    match class {
        ErrorClass::Expired => Some(Refusal::Expired),
        ErrorClass::Refused => Some(Refusal::Authentication),
        ErrorClass::Damaged => Some(Refusal::Altered),
        _ => None,
    }
}

fn export(tree: &str) -> Vec<u8> {
    if tree.is_empty() { Vec::new() } else { format!("tree:{tree}").into_bytes() }
}

const fn number_of(operation: Operation) -> u16 {
    match operation {
        Operation::Lookup => number::LOOKUP,
        Operation::Attributes => number::GETATTR,
        Operation::Link => number::READLINK,
        Operation::List => number::READDIR,
        Operation::Xattr => number::GETXATTR,
        Operation::Xattrs => number::LISTXATTRS,
        Operation::Open => number::OPEN,
        Operation::Read => number::READ,
        Operation::Seek => number::SEEK,
        Operation::Close => number::CLOSE,
    }
}

/// Records hold NFS statuses (RFC 8881 §15.1); most are equal to errnos.
fn status_of(errno: i32) -> u32 {
    match errno {
        // EKEYREVOKED has no NFS status; the detail names it.
        128 => 13,
        // ESTALE, ENODATA, ERANGE, ELOOP.
        116 => 70,
        61 => 10095,
        34 => 10005,
        40 => 10029,
        1..=31 => errno.unsigned_abs(),
        _ => 5,
    }
}
