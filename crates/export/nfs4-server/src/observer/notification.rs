//! Changes and all later operations are reported when the changes are durable: no report
//! contradicts the reply.

use std::sync::Arc;

use vouch_nfs4::Status;
use vouch_nfs4::op::Op;

use crate::compound::context::CallState;
use crate::files::file_ref::{FileRef, Object};
use crate::observer::interface::{Arguments, Details, ObserverNote, Stage, Totals};
use crate::{Connection, ErrorReport, ExportId, Flavour, Now, Observation, Principal, Server};

pub(crate) struct CompletedOp<'a> {
    pub(crate) op: u32,
    pub(crate) status: Status,
    pub(crate) object: Option<&'a Object>,
    pub(crate) after: Option<&'a Object>,
    pub(crate) saved: Option<&'a Object>,
    pub(crate) arguments: Option<Arguments<'a>>,
    pub(crate) stage: Stage,
    pub(crate) granted: Option<u32>,
    pub(crate) totals: Option<Totals>,
    pub(crate) new_owner: (Option<u32>, Option<u32>),
    pub(crate) bytes: (u64, u64),
    pub(crate) note: Option<&'a ObserverNote>,
}

struct By<'a> {
    connection: &'a Connection,
    principal: &'a Principal,
    flavour: Flavour,
    enctype: Option<u32>,
    xid: u32,
    minor: u32,
}

impl<'a> By<'a> {
    fn of(call: &'a CallState) -> Self {
        let CallState { connection, principal, flavour, enctype, xid, minor, .. } = call;
        By { connection, principal, flavour: *flavour, enctype: *enctype, xid: *xid, minor: *minor }
    }
}

pub(crate) struct BackgroundCopyOp {
    connection: Arc<Connection>,
    principal: Principal,
    flavour: Flavour,
    enctype: Option<u32>,
    xid: u32,
    minor: u32,
    op: u32,
    from: Object,
    to: Object,
}

impl BackgroundCopyOp {
    pub(crate) fn of(call: &CallState, from: FileRef, to: FileRef) -> Self {
        let CallState { connection, principal, flavour, enctype, xid, minor, op, .. } = call;
        BackgroundCopyOp {
            connection: connection.clone(),
            principal: principal.clone(),
            flavour: *flavour,
            enctype: *enctype,
            xid: *xid,
            minor: *minor,
            op: *op,
            from: Object::File(from),
            to: Object::File(to),
        }
    }

    pub(crate) fn fault(&self, now: Now, status: Status, message: &str) -> ErrorReport {
        ErrorReport {
            at_seconds: now.wall.seconds,
            peer: self.connection.peer(),
            operation: Op(self.op).name().unwrap_or("ILLEGAL"),
            status: status.0,
            export: file_of(Some(&self.to)).map(|file| file.grant.site.export.id.0),
            message: message.to_owned(),
        }
    }

    pub(crate) fn report(&self, server: &Server, status: Status, stage: Stage, done: u64) {
        let BackgroundCopyOp { connection, principal, flavour, enctype, xid, minor, op, from, to } =
            self;
        let access = vouch_vfs::Access::READ.0 | vouch_vfs::Access::MODIFY.0;
        let seen = CompletedOp {
            op: *op,
            status,
            object: Some(to),
            after: Some(to),
            saved: Some(from),
            arguments: server
                .observer()
                .wants(*op)
                .then_some(Arguments { access: Some(access), ..Arguments::default() }),
            stage,
            granted: None,
            totals: None,
            new_owner: (None, None),
            bytes: (done, done),
            note: None,
        };
        seen.report(
            server,
            &By {
                connection,
                principal,
                flavour: *flavour,
                enctype: *enctype,
                xid: *xid,
                minor: *minor,
            },
        );
    }
}

pub(crate) struct DeferredNotification {
    op: u32,
    status: Status,
    object: Option<Object>,
    after: Option<Object>,
    saved: Option<Object>,
    arguments: Option<OwnedArguments>,
    stage: Stage,
    granted: Option<u32>,
    totals: Option<Totals>,
    new_owner: (Option<u32>, Option<u32>),
    bytes: (u64, u64),
    note: Option<ObserverNote>,
    changed: Option<ExportId>,
}

struct OwnedArguments {
    name: Option<Box<[u8]>>,
    new_name: Option<Box<[u8]>>,
    rest: Arguments<'static>,
}

impl OwnedArguments {
    fn of(arguments: Arguments<'_>) -> Self {
        let own = |name: Option<&[u8]>| name.map(Box::from);
        Self {
            name: own(arguments.name),
            new_name: own(arguments.new_name),
            rest: Arguments { name: None, new_name: None, ..arguments },
        }
    }

    fn arguments(&self) -> Arguments<'_> {
        Arguments { name: self.name.as_deref(), new_name: self.new_name.as_deref(), ..self.rest }
    }
}

impl CompletedOp<'_> {
    pub(crate) fn notify_or_defer(
        self,
        server: &Server,
        call: &CallState,
        (changed, note): (Option<ExportId>, Option<ObserverNote>),
        deferred: &mut Vec<DeferredNotification>,
    ) {
        if changed.is_none() && deferred.is_empty() {
            return CompletedOp { note: note.as_ref(), ..self }.report(server, &By::of(call));
        }
        let note =
            note.or_else(|| server.observer().before_deferral(&self.observation(&By::of(call))));
        deferred.push(DeferredNotification {
            op: self.op,
            status: self.status,
            object: self.object.cloned(),
            after: self.after.cloned(),
            saved: self.saved.cloned(),
            arguments: self.arguments.map(OwnedArguments::of),
            stage: self.stage,
            granted: self.granted,
            totals: self.totals,
            new_owner: self.new_owner,
            bytes: self.bytes,
            note,
            changed,
        });
    }

    fn report(&self, server: &Server, by: &By<'_>) {
        server.observer().operation(&self.observation(by));
    }

    fn observation<'o>(&'o self, by: &By<'o>) -> Observation<'o> {
        let file = file_of(self.object);
        let details = self.arguments.map(|arguments| {
            let after = file_of(self.after);
            let grant = file.or(after).map(|file| &file.grant);
            Details {
                export: grant.map(|grant| &grant.site.export),
                caller: grant.map(|grant| &*grant.caller),
                saved: file_of(self.saved).map(|file| &file.id),
                after: after.map(|file| &file.id),
                arguments,
                stage: self.stage,
                granted: self.granted,
                totals: self.totals,
                new_owner: self.new_owner,
                note: self.note,
            }
        });
        Observation {
            connection: by.connection,
            principal: by.principal,
            flavour: by.flavour,
            enctype: by.enctype,
            xid: by.xid,
            minor: by.minor,
            op: self.op,
            status: self.status.0,
            export: file.map(|file| file.grant.site.export.id),
            file: file.map(|file| &file.id),
            details,
            bytes_read: self.bytes.0,
            bytes_written: self.bytes.1,
            is_squashed: matches!(by.principal, Principal::Sys { uid: 0, .. })
                && file.is_some_and(|file| file.grant.caller.uid != 0),
        }
    }
}

impl DeferredNotification {
    pub(crate) fn fail(&mut self, export: ExportId, status: Status) {
        if self.changed == Some(export) && self.status.is_ok() {
            self.status = status;
        }
    }

    pub(crate) fn report(&self, server: &Server, call: &CallState) {
        let seen = CompletedOp {
            op: self.op,
            status: self.status,
            object: self.object.as_ref(),
            after: self.after.as_ref(),
            saved: self.saved.as_ref(),
            arguments: self.arguments.as_ref().map(OwnedArguments::arguments),
            stage: self.stage,
            granted: self.granted,
            totals: self.totals,
            new_owner: self.new_owner,
            bytes: self.bytes,
            note: self.note.as_ref(),
        };
        seen.report(server, &By::of(call));
    }
}

fn file_of(object: Option<&Object>) -> Option<&FileRef> {
    match object {
        Some(Object::File(file)) => Some(file),
        _ => None,
    }
}
