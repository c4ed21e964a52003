//! When what was done is told to the observer: at once; but what changed names or attributes, and all that follows it in its call, once it is known whether that is on the
//! disk, so that nothing is told as done which the reply says failed.

use vouch_nfs4::Status;

use crate::observer::{Asked, Told, Totals};
use crate::walk::{Core, FileRef, Object};
use crate::{ExportId, Observation, Server};

/// An operation and what came of it.
pub(crate) struct Seen<'a> {
    pub(crate) op: u32,
    pub(crate) status: Status,
    /// What the filehandles stood for: the current one before, both after.
    pub(crate) object: Option<&'a Object>,
    pub(crate) after: Option<&'a Object>,
    pub(crate) saved: Option<&'a Object>,
    /// What was asked, if the observer wants to know.
    pub(crate) asked: Option<Asked<'a>>,
    pub(crate) granted: Option<u32>,
    pub(crate) totals: Option<Totals>,
    /// Bytes read and written.
    pub(crate) bytes: (u64, u64),
}

/// The same, kept until its change is on the disk.
pub(crate) struct Later {
    op: u32,
    status: Status,
    object: Option<Object>,
    after: Option<Object>,
    saved: Option<Object>,
    asked: Option<AskedOwned>,
    granted: Option<u32>,
    totals: Option<Totals>,
    bytes: (u64, u64),
    /// The export that its own change is of.
    changed: Option<ExportId>,
}

/// What was asked, with names of its own.
struct AskedOwned {
    name: Option<Box<[u8]>>,
    new_name: Option<Box<[u8]>>,
    /// Without names.
    rest: Asked<'static>,
}

impl AskedOwned {
    fn of(asked: Asked<'_>) -> Self {
        let own = |name: Option<&[u8]>| name.map(Box::from);
        Self { name: own(asked.name), new_name: own(asked.new_name), rest: Asked { name: None, new_name: None, ..asked } }
    }

    fn asked(&self) -> Asked<'_> {
        Asked { name: self.name.as_deref(), new_name: self.new_name.as_deref(), ..self.rest }
    }
}

impl Seen<'_> {
    /// Tells it now, or when the changes that the call waits for are on the disk. `changed`: the export that it changed what must become durable of.
    pub(crate) fn tell_in_turn(self, server: &Server, core: &Core, changed: Option<ExportId>, later: &mut Vec<Later>) {
        if changed.is_none() && later.is_empty() {
            return self.tell(server, core);
        }
        later.push(Later {
            op: self.op,
            status: self.status,
            object: self.object.cloned(),
            after: self.after.cloned(),
            saved: self.saved.cloned(),
            asked: self.asked.map(AskedOwned::of),
            granted: self.granted,
            totals: self.totals,
            bytes: self.bytes,
            changed,
        });
    }

    fn tell(&self, server: &Server, core: &Core) {
        let file = file_of(self.object);
        let told = self.asked.map(|asked| {
            let after = file_of(self.after);
            // Where the filehandle was put by this operation, it is the one that it was done on.
            let grant = file.or(after).map(|file| &file.grant);
            Told {
                export: grant.map(|grant| &grant.site.export),
                caller: grant.map(|grant| &*grant.caller),
                saved: file_of(self.saved).map(|file| &file.id),
                after: after.map(|file| &file.id),
                asked,
                granted: self.granted,
                totals: self.totals,
            }
        });
        server.observer().operation(&Observation {
            connection: &core.connection,
            principal: &core.principal,
            flavour: core.flavour,
            enctype: core.enctype,
            xid: core.xid,
            minor: core.minor,
            op: self.op,
            status: self.status.0,
            export: file.map(|file| file.grant.site.export.id),
            file: file.map(|file| &file.id),
            told,
            bytes_read: self.bytes.0,
            bytes_written: self.bytes.1,
        });
    }
}

impl Later {
    /// The changes of this export did not become durable.
    pub(crate) fn fail(&mut self, export: ExportId, status: Status) {
        if self.changed == Some(export) && self.status.is_ok() {
            self.status = status;
        }
    }

    /// Tells it.
    pub(crate) fn tell(&self, server: &Server, core: &Core) {
        let seen = Seen {
            op: self.op,
            status: self.status,
            object: self.object.as_ref(),
            after: self.after.as_ref(),
            saved: self.saved.as_ref(),
            asked: self.asked.as_ref().map(AskedOwned::asked),
            granted: self.granted,
            totals: self.totals,
            bytes: self.bytes,
        };
        seen.tell(server, core);
    }
}

fn file_of(object: Option<&Object>) -> Option<&FileRef> {
    match object {
        Some(Object::File(file)) => Some(file),
        _ => None,
    }
}
