//! One event for each completed operation. Changes and all later operations of a call are reported
//! when the changes are durable: no event contradicts the reply.

use std::borrow::Cow;
use std::sync::Arc;

use vouch_nfs4::Status;
use vouch_nfs4::op::Op;
use vouch_vfs::{Caller, FileId};

use super::interface::{Arguments, EventPaths, Observer, Stage, Totals};
use crate::access::grant::Grant;
use crate::files::file_ref::{FileRef, Object};
use crate::{Connection, Export, ExportId, Flavour, Principal};

/// The call that an operation belongs to.
#[derive(Clone)]
pub struct CallOrigin {
    pub connection: Arc<Connection>,
    pub principal: Principal,
    pub flavour: Flavour,
    /// RFC 3961.
    pub enctype: Option<u32>,
    pub xid: u32,
    pub minor: u32,
}

pub struct CompletedOp<'a> {
    pub op: Op,
    pub status: Status,
    /// `None` if the observer does not want details.
    pub arguments: Option<Arguments<'a>>,
    pub details: OpDetails,
    /// The current filehandle before the operation and after it, and the saved one.
    pub(crate) before: Option<Cow<'a, Object>>,
    pub(crate) after: Option<Cow<'a, Object>>,
    pub(crate) saved: Option<Cow<'a, Object>>,
}

/// The operation fills this in as it runs.
#[derive(Default)]
pub struct OpDetails {
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub stage: Stage,
    /// ACCESS and OPEN: the bits of [`Arguments::access`]. OPEN adds
    /// [`requested::CREATE`](super::interface::requested::CREATE) and `TRUNCATE` for what it did.
    pub granted: Option<u32>,
    pub totals: Option<Totals>,
    pub new_owner: (Option<u32>, Option<u32>),
    /// From [`Observer::name_changed`](super::interface::Observer::name_changed) or `paths`.
    pub paths: Option<Box<EventPaths>>,
    /// The observer wants more than the bytes.
    pub(crate) is_tracked: bool,
    /// The event waits until changes of this export are durable.
    pub(crate) changed: Option<ExportId>,
}

impl CompletedOp<'_> {
    /// The file of the current filehandle before the operation.
    pub fn file(&self) -> Option<&FileId> {
        file_of(&self.before).map(|file| &file.id)
    }

    pub fn file_after(&self) -> Option<&FileId> {
        file_of(&self.after).map(|file| &file.id)
    }

    pub fn saved_file(&self) -> Option<&FileId> {
        file_of(&self.saved).map(|file| &file.id)
    }

    /// The export of [`file`](Self::file).
    pub fn export(&self) -> Option<&Export> {
        file_of(&self.before).map(|file| &file.grant.site.export)
    }

    /// The same, or the export that the operation entered.
    pub fn export_or_entered(&self) -> Option<&Export> {
        self.grant().map(|grant| &grant.site.export)
    }

    /// The rights that were used there.
    pub fn caller(&self) -> Option<&Caller> {
        self.grant().map(|grant| &*grant.caller)
    }

    /// Root acts as another user here.
    pub fn is_squashed(&self, origin: &CallOrigin) -> bool {
        matches!(origin.principal, Principal::Sys { uid: 0, .. })
            && file_of(&self.before).is_some_and(|file| file.grant.caller.uid != 0)
    }

    fn grant(&self) -> Option<&Grant> {
        file_of(&self.before).or(file_of(&self.after)).map(|file| &*file.grant)
    }

    /// Reports the event, or appends it to those that wait. True if the reply must wait until the
    /// observer has stored the event.
    #[inline]
    pub(crate) fn report_or_defer(
        mut self,
        observer: &dyn Observer,
        origin: &CallOrigin,
        deferred: &mut Vec<CompletedOp<'static>>,
    ) -> bool {
        if self.details.changed.is_none() && deferred.is_empty() {
            return observer.operation(origin, &self);
        }
        if self.details.paths.is_none() {
            self.details.paths = observer.paths(&self);
        }
        let own =
            |object: Option<Cow<'_, Object>>| object.map(|object| Cow::Owned(object.into_owned()));
        deferred.push(CompletedOp {
            op: self.op,
            status: self.status,
            arguments: self.arguments.map(Arguments::into_owned),
            details: self.details,
            before: own(self.before),
            after: own(self.after),
            saved: own(self.saved),
        });
        false
    }

    /// The change of this operation did not become durable.
    pub(crate) fn fail(&mut self, export: ExportId, status: Status) {
        if self.details.changed == Some(export) && self.status.is_ok() {
            self.status = status;
        }
    }
}

fn file_of<'o>(object: &'o Option<Cow<'_, Object>>) -> Option<&'o FileRef> {
    object.as_deref().and_then(Object::file)
}
