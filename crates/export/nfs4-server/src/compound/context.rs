use std::sync::Arc;

use vouch_nfs4::op::Op;
use vouch_nfs4::{ChangeId, ChangeInfo, Stateid, Status};
use vouch_vfs::{Attributes, Blocking, DirectoryChange, FileId, FileType, SystemId};
use vouch_xdr::Writer;

use crate::access::grant::{Grant, Requester};
use crate::attributes::owner::Owners;
use crate::compound::lookahead::Lookahead;
use crate::compound::reply_space::ReplySpace;
use crate::compound::sequence::ExactlyOnce;
use crate::error::OpError;
use crate::filehandle::HandleTarget;
use crate::files::file_ref::{FileRef, Object};
use crate::files::open_handle::{OpenHandle, UsedBy};
use crate::observer::event::{CallOrigin, OpDetails};
use crate::observer::interface::Denial;
use crate::pseudo_fs::{Child, PseudoNode, Tree};
use crate::state::{ClientKey, FileKey, OwnerToken, State, Terms, Turn};
use crate::{Effect, ErrorReport, Now, Principal, ReplyKind, Server};

/// A result among the results of a call.
#[derive(Clone, Copy)]
pub(crate) struct ResultPlace {
    pub(crate) op: Op,
    pub(crate) index: u32,
    pub(crate) at: usize,
}

pub(crate) struct PendingSync {
    pub(crate) files: Arc<Grant>,
    pub(crate) ids: Vec<FileId>,
    /// The first result that depends on the sync.
    pub(crate) first: ResultPlace,
}

impl PendingSync {
    pub(crate) fn remote_system(&self) -> Option<SystemId> {
        self.files.site.export.file_system.remote_system()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = FileKey> {
        let export = &self.files.site.export;
        self.ids.iter().map(|&file| FileKey::new(export.id, file, export.file_system.home(&file)))
    }
}

pub(crate) struct CompoundContext<'s> {
    pub(crate) server: &'s Server,
    pub(crate) blocking: Blocking,
    pub(crate) names: Blocking,
    pub(crate) write_len_max: usize,
    pub(crate) call: &'s mut CallState,
    pub(crate) out: &'s mut Writer,
    pub(crate) lookahead: Lookahead<'s>,
}

/// The current or the saved filehandle, and its stateid (RFC 8881 §16.2.3.1.2).
#[derive(Clone, Default)]
pub(crate) struct Selected {
    pub(crate) object: Option<Object>,
    pub(crate) stateid: Option<Stateid>,
}

/// Of the current filehandle, if its security does not fit (RFC 8881 §2.10.8.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MachineCredential {
    NotAdmitted,
    Admitted,
    /// The operation is one that the machine may run for its user.
    Acts,
}

pub(crate) struct CallState {
    pub(crate) origin: CallOrigin,
    pub(crate) now: Now,
    pub(crate) tree: Arc<Tree>,
    pub(crate) current: Selected,
    pub(crate) saved: Selected,
    pub(crate) machine: MachineCredential,
    pub(crate) exactly_once: ExactlyOnce,
    /// The 4.0 owner whose operation runs.
    pub(crate) owner: Option<OwnerToken>,
    /// Of the operation that runs.
    pub(crate) result: ResultPlace,
    pub(crate) details: OpDetails,
    /// Bytes that earlier runs of a WRITE have written.
    pub(crate) written: usize,
    /// The opens by which it read and wrote.
    pub(crate) used: [Option<(OpenHandle, UsedBy)>; 2],
    pub(crate) space: ReplySpace,
    pub(crate) effects: Vec<Effect>,
    pub(crate) pending_syncs: Vec<PendingSync>,
    pub(crate) reply_kind: ReplyKind,
    /// The reply waits until the observer has stored its events.
    pub(crate) awaits_observer: bool,
}

impl CallState {
    pub(crate) fn turn(&self) -> Result<Turn, Status> {
        match self.exactly_once {
            ExactlyOnce::Slot(turn) => Ok(turn),
            _ => Err(Status::OP_NOT_IN_SESSION),
        }
    }

    /// The operation runs again from its start.
    pub(crate) fn forget_details(&mut self) {
        (self.details, self.used) = (OpDetails::default(), [const { None }; 2]);
    }

    /// Adds the bytes to the opens. True for an I/O that no open announced.
    pub(crate) fn count_use(&mut self) -> bool {
        let bytes = [(self.details.bytes_read, 0), (0, self.details.bytes_written)];
        let mut is_unopened = false;
        for (writes, (used, (read, written))) in self.used.iter_mut().zip(bytes).enumerate() {
            if let Some((held, by)) = used.take() {
                held.usage().add(read, written);
                is_unopened |= held.usage().is_unopened(by, writes);
            }
        }
        is_unopened
    }

    /// The remote file system that the next operation may call.
    pub(crate) fn remote_system(&self) -> Option<SystemId> {
        let of = |object: &Object| object.file()?.files().remote_system();
        let selected = [&self.current.object, &self.saved.object];
        selected.into_iter().flatten().find_map(of).or_else(|| {
            let listed = self.current.object.as_ref().filter(|_| self.result.op == Op::READDIR)?;
            // A listing has the attributes of roots of exports.
            self.tree
                .remote_child(listed.named())
                .or_else(|| listed.file().and_then(|file| file.files().listing_system(&file.id)))
        })
    }
}

impl std::ops::Deref for CompoundContext<'_> {
    type Target = CallState;

    fn deref(&self) -> &CallState {
        self.call
    }
}

impl std::ops::DerefMut for CompoundContext<'_> {
    fn deref_mut(&mut self) -> &mut CallState {
        self.call
    }
}

impl<'s> CompoundContext<'s> {
    /// RFC 8881 §15.1.2.5.
    pub(crate) fn current_any(&self) -> Result<&Object, OpError> {
        self.current.object.as_ref().ok_or_else(|| Status::NOFILEHANDLE.into())
    }

    /// For operations that check the export's flavours (RFC 8881 §2.6.3.1).
    pub(crate) fn current_object(&self) -> Result<Object, OpError> {
        self.checked(self.current_any()?)
    }

    pub(crate) fn saved_object(&self) -> Result<Object, OpError> {
        self.checked(self.saved.object.as_ref().ok_or(Status::NOFILEHANDLE)?)
    }

    fn checked(&self, object: &Object) -> Result<Object, OpError> {
        match object {
            Object::File(file)
                if !file.grant.security_fits && self.machine != MachineCredential::Acts =>
            {
                Err(Status::WRONGSEC.into())
            }
            // RFC 8881 §11.3.
            Object::File(file) if file.is_absent() => Err(Status::MOVED.into()),
            object => Ok(object.clone()),
        }
    }

    pub(crate) fn current_file(&self, otherwise: Status) -> Result<FileRef, OpError> {
        file_of(self.current_object()?, otherwise)
    }

    pub(crate) fn saved_file(&self, otherwise: Status) -> Result<FileRef, OpError> {
        file_of(self.saved_object()?, otherwise)
    }

    /// Clears the current stateid (RFC 8881 §16.2.3.1.2).
    pub(crate) fn set_current(&mut self, object: Object) {
        self.current = Selected { object: Some(object), stateid: None };
    }

    pub(crate) fn object(&self, named: HandleTarget) -> Result<Object, OpError> {
        match named {
            HandleTarget::Pseudo(id) => {
                self.tree.node(id).ok_or(Status::STALE)?;
                // A hidden export must not look as if it were gone.
                if self.is_undecided() {
                    return Err(Status::DELAY.into());
                }
                Ok(Object::Pseudo(id))
            }
            HandleTarget::File(export, id) => {
                Ok(Object::File(FileRef::new(self.grant(export)?, id)))
            }
            HandleTarget::LayoutFile(export, id, change) => Ok(Object::File(FileRef {
                layout_change: Some(change),
                ..FileRef::new(self.grant(export)?, id)
            })),
        }
    }

    pub(crate) fn grant(&self, export: crate::ExportId) -> Result<Arc<Grant>, OpError> {
        let requester = Requester {
            cache: self.origin.connection.grants(),
            peer: self.origin.connection.peer(),
            principal: &self.origin.principal,
            flavour: self.origin.flavour,
            transport: self.origin.connection.transport(),
            now_ms: self.now.mono_ms,
            blocking: self.names,
        };
        let granted = Grant::resolve(&requester, &self.tree, self.server.identity(), export);
        match &granted {
            Err(OpError::Status(status @ (Status::STALE | Status::ACCESS | Status::DELAY))) => {
                self.report_denied(export, *status)
            }
            Ok(grant) if !grant.transport_fits => self.report_denied(export, Status::WRONGSEC),
            _ => {}
        }
        granted
    }

    /// `status` says why the caller has no grant; STALE also stands for a hidden export.
    pub(crate) fn report_denied(&self, export: crate::ExportId, status: Status) {
        let Some(site) = self.tree.site(export) else { return };
        let access = site.export.clients.access_for(self.origin.connection.peer());
        let why = match access {
            // The client's host name is not known yet.
            None if status == Status::DELAY => return,
            None => Denial::Client,
            Some(_) if status == Status::STALE => return,
            Some(_) if status == Status::DELAY => Denial::NameService,
            Some(access)
                if access
                    .refuses_port(self.origin.flavour, self.origin.connection.peer().port()) =>
            {
                Denial::Port
            }
            Some(access)
                if access
                    .refuses_transport(self.origin.flavour, self.origin.connection.transport()) =>
            {
                Denial::Transport
            }
            Some(_) => Denial::Caller,
        };
        self.server.observer().denied(&self.origin, &site.export, why);
    }

    pub(crate) fn visible_child(&self, place: PseudoNode) -> Option<Child> {
        let (peer, now_ms) = (self.origin.connection.peer(), self.now.mono_ms);
        self.tree.visible_child(place, peer, |node| {
            self.origin
                .connection
                .visibility()
                .lock()
                .leads_to_visible_export(&self.tree, node, peer, now_ms)
        })
    }

    pub(crate) fn is_undecided(&self) -> bool {
        self.origin.connection.visibility().lock().is_undecided(
            &self.tree,
            self.origin.connection.peer(),
            self.now.mono_ms,
        )
    }

    pub(crate) fn owners(&self) -> Owners<'s> {
        Owners {
            identity: self.server.identity(),
            config: self.server.config(),
            flavour: self.origin.flavour,
            blocking: self.names,
        }
    }

    #[inline]
    pub(crate) fn state<R>(&mut self, act: impl FnOnce(&mut State<OpenHandle>) -> R) -> R {
        self.server.with_state(&mut self.call.effects, self.call.now.mono_ms, act)
    }

    /// A call keeps the exports of its start: checks that they are still in force.
    pub(crate) fn granting<R>(
        &mut self,
        file: &FileRef,
        act: impl FnOnce(&mut State<OpenHandle>) -> Result<R, Status>,
    ) -> Result<R, Status> {
        let (server, generation, peer, terms) =
            (self.server, self.tree.generation, self.origin.connection.peer(), self.terms());
        let mut act = Some(act);
        loop {
            // The check may read a disk: outside the lock, and again if the exports changed.
            let (checked, verdict) = server.still_grants(generation, file, peer, terms);
            let done = self.state(|state| {
                let act = (server.generation() == checked).then(|| act.take()).flatten()?;
                Some(verdict.and_then(|()| act(state)))
            });
            if let Some(result) = done {
                return result;
            }
        }
    }

    pub(crate) fn terms(&self) -> Terms {
        Terms {
            flavour: self.origin.flavour,
            reserved_port: self.origin.connection.peer().port() < 1024,
            transport: self.origin.connection.transport(),
        }
    }

    /// State that another client lost must not be reclaimable after this reply (RFC 8881 §8.4.3).
    pub(crate) fn wait_for_records(&mut self) {
        self.call.reply_kind = ReplyKind::Grant;
    }

    pub(crate) fn client_of_session(&self) -> Option<ClientKey> {
        self.turn().ok().map(|turn| turn.client)
    }

    pub(crate) fn proven(&self) -> Option<Arc<str>> {
        match &self.origin.principal {
            Principal::Gss { name } | Principal::Certificate { name } => Some(name.clone()),
            Principal::Sys { .. } | Principal::None => None,
        }
    }

    /// RFC 8881 §16.2.3.1.2.
    pub(crate) fn substituted(&self, stateid: &Stateid) -> Result<Stateid, Status> {
        if self.origin.minor == 0 || *stateid != Stateid::CURRENT {
            return Ok(*stateid);
        }
        self.current.stateid.ok_or(Status::BAD_STATEID)
    }

    pub(crate) fn result_stateid(&mut self, stateid: Stateid) {
        self.current.stateid = Some(stateid);
    }

    pub(crate) fn reply_room_len(&self) -> usize {
        self.space.left_len(self.out.len())
    }

    pub(crate) fn must_sync(&mut self, grant: &Arc<Grant>, ids: &[FileId]) {
        if !grant.site.export.sync || vouch_vfs::mutant("names-are-not-synced") {
            return;
        }
        self.details.changed = Some(grant.site.export.id);
        let known = self
            .pending_syncs
            .iter_mut()
            .find(|one| one.files.site.export.id == grant.site.export.id);
        if let Some(known) = known {
            known.ids.extend_from_slice(ids);
            return;
        }
        let (files, first) = (grant.clone(), self.result);
        self.pending_syncs.push(PendingSync { files, ids: ids.to_vec(), first });
    }

    pub(crate) fn require_directory(&self, attributes: &Attributes) -> Result<(), Status> {
        match attributes.file_type {
            FileType::Directory => Ok(()),
            // RFC 8881 §15.1.2.8.
            FileType::Symlink => Err(Status::SYMLINK),
            _ => Err(Status::NOTDIR),
        }
    }
}

fn file_of(object: Object, otherwise: Status) -> Result<FileRef, OpError> {
    match object {
        Object::File(file) => Ok(file),
        Object::Pseudo(_) => Err(otherwise.into()),
    }
}

pub(crate) fn change_info(change: DirectoryChange) -> ChangeInfo {
    ChangeInfo {
        atomic: change.atomic,
        before: ChangeId(change.before),
        after: ChangeId(change.after),
    }
}

impl Server {
    pub(crate) fn note_error(
        &self,
        call: &CallState,
        object: Option<&Object>,
        status: Status,
        source: &std::io::Error,
    ) {
        let object = object.or(call.current.object.as_ref());
        let (op, message) = (call.result.op, source.to_string());
        self.note_failure(&call.origin, call.now, op, object, status, message);
    }

    pub(crate) fn note_failure(
        &self,
        origin: &CallOrigin,
        now: Now,
        op: Op,
        object: Option<&Object>,
        status: Status,
        message: String,
    ) {
        self.record_error(ErrorReport {
            at_seconds: now.wall.seconds,
            peer: origin.connection.peer(),
            operation: op.name().unwrap_or("ILLEGAL"),
            status: status.0,
            export: object.and_then(Object::file).map(|file| file.grant.site.export.id.0),
            message,
        });
    }
}
