use std::sync::Arc;

use vouch_nfs4::op::Op;
use vouch_nfs4::{ChangeId, ChangeInfo, Stateid, Status};
use vouch_vfs::{Attributes, Blocking, DirectoryChange, FileId, FileSpan, FileType, SystemId};
use vouch_xdr::Writer;

use crate::access::grant::{Grant, Requester};
use crate::attributes::owner::Owners;
use crate::compound::lookahead::Lookahead;
use crate::compound::reply_cache::ReplyKey;
use crate::error::OpError;
use crate::filehandle::HandleTarget;
use crate::files::file_ref::{FileRef, Object};
use crate::files::open_handle::{OpenHandle, UsedBy};
use crate::observer::interface::{Denial, Denied, Stage, Totals};
use crate::pseudo_fs::{Child, PseudoNode, Tree};
use crate::state::{ClientKey, FileKey, OwnerToken, State, Terms, Turn};
use crate::{Connection, Effect, ErrorReport, Flavour, Now, Principal, Server};

/// RFC 8881 §8.4.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordWait {
    None,
    ForGrant,
    ForReplay,
}

pub(crate) struct PendingSync {
    pub(crate) files: Arc<Grant>,
    pub(crate) ids: Vec<FileId>,
    pub(crate) result_at: usize,
    pub(crate) results_before: u32,
    pub(crate) op: u32,
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
    pub(crate) call: &'s mut CallState,
    pub(crate) out: &'s mut Writer,
    pub(crate) lookahead: Lookahead<'s>,
}

pub(crate) struct Running {
    pub(crate) turn: Turn,
}

pub(crate) struct CallState {
    pub(crate) connection: Arc<Connection>,
    pub(crate) principal: Principal,
    pub(crate) flavour: Flavour,
    pub(crate) enctype: Option<u32>,
    pub(crate) xid: u32,
    pub(crate) now: Now,
    pub(crate) tree: Arc<Tree>,
    pub(crate) minor: u32,
    pub(crate) current: Option<Object>,
    pub(crate) saved: Option<Object>,
    /// RFC 8881 §16.2.3.1.2.
    pub(crate) current_stateid: Option<Stateid>,
    pub(crate) saved_stateid: Option<Stateid>,
    pub(crate) session: Option<Running>,
    pub(crate) owner: Option<OwnerToken>,
    /// Key in the 4.0 reply cache: before the first change, and after.
    pub(crate) candidate: Option<ReplyKey>,
    pub(crate) replay: Option<ReplyKey>,
    pub(crate) spans_allowed: bool,
    pub(crate) spans: Vec<(usize, FileSpan)>,
    pub(crate) spans_len: usize,
    pub(crate) effects: Vec<Effect>,
    pub(crate) pending_syncs: Vec<PendingSync>,
    pub(crate) machine_admitted: bool,
    pub(crate) machine_does: bool,
    pub(crate) names: Blocking,
    /// The thread may wait for this remote file system, besides disks.
    pub(crate) may_wait_for: Option<SystemId>,
    pub(crate) op: u32,
    pub(crate) index: u32,
    pub(crate) result_at: usize,
    pub(crate) end_max: usize,
    pub(crate) tail_len: usize,
    pub(crate) end_status: Status,
    pub(crate) record_wait: RecordWait,
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
    pub(crate) tracks: bool,
    pub(crate) used: [Option<(OpenHandle, UsedBy)>; 2],
    pub(crate) granted: Option<u32>,
    pub(crate) totals: Option<Totals>,
    pub(crate) new_owner: (Option<u32>, Option<u32>),
    pub(crate) stage: Stage,
    pub(crate) changed: Option<crate::ExportId>,
    pub(crate) note: Option<crate::ObserverNote>,
}

impl CallState {
    pub(crate) fn turn(&self) -> Result<Turn, Status> {
        self.session.as_ref().map(|running| running.turn).ok_or(Status::OP_NOT_IN_SESSION)
    }

    /// The remote file system that the next operation may call.
    pub(crate) fn remote_system(&self) -> Option<SystemId> {
        let of = |object: &Object| match object {
            Object::File(file) => file.files().remote_system(),
            Object::Pseudo(_) => None,
        };
        let entered = [&self.current, &self.saved].into_iter().flatten().find_map(of);
        // A listing has the attributes of roots of exports.
        entered.or_else(|| {
            self.current
                .as_ref()
                .filter(|_| self.op == Op::READDIR.0)
                .and_then(|object| self.tree.remote_child(object.named()))
        })
    }

    pub(crate) fn begin_tracking(&mut self, tracks: bool) {
        self.tracks = tracks;
        (self.used, self.granted, self.totals, self.changed) =
            ([const { None }; 2], None, None, None);
        (self.note, self.stage, self.new_owner) = (None, Stage::Whole, (None, None));
    }

    pub(crate) fn count(&mut self, (read, written): (u64, u64)) -> bool {
        let mut unopened = false;
        for (writes, used) in self.used.iter_mut().enumerate() {
            if let Some((held, by)) = used.take() {
                held.usage()
                    .add(if writes == 0 { read } else { 0 }, if writes == 0 { 0 } else { written });
                unopened |= held.usage().is_unopened(by, writes);
            }
        }
        unopened
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
        self.current.as_ref().ok_or_else(|| Status::NOFILEHANDLE.into())
    }

    /// For operations that check the export's flavours (RFC 8881 §2.6.3.1).
    pub(crate) fn current_object(&self) -> Result<Object, OpError> {
        self.checked(self.current_any()?)
    }

    pub(crate) fn saved_object(&self) -> Result<Object, OpError> {
        self.checked(self.saved.as_ref().ok_or(Status::NOFILEHANDLE)?)
    }

    fn checked(&self, object: &Object) -> Result<Object, OpError> {
        match object {
            Object::File(file) if !file.grant.security_fits && !self.machine_does => {
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
        self.current = Some(object);
        self.current_stateid = None;
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
            cache: self.connection.grants(),
            peer: self.connection.peer(),
            principal: &self.principal,
            flavour: self.flavour,
            transport: self.connection.transport(),
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
        let access = site.export.clients.access_for(self.connection.peer());
        let why = match access {
            // The client's host name is not known yet.
            None if status == Status::DELAY => return,
            None => Denial::Client,
            Some(_) if status == Status::STALE => return,
            Some(_) if status == Status::DELAY => Denial::NameService,
            Some(access) if access.refuses_port(self.flavour, self.connection.peer().port()) => {
                Denial::Port
            }
            Some(access) if access.refuses_transport(self.flavour, self.connection.transport()) => {
                Denial::Transport
            }
            Some(_) => Denial::Caller,
        };
        self.server.observer().denied(&Denied {
            connection: &self.connection,
            principal: &self.principal,
            flavour: self.flavour,
            enctype: self.enctype,
            export: &site.export,
            why,
        });
    }

    pub(crate) fn visible_child(&self, place: PseudoNode) -> Option<Child> {
        let (peer, now_ms) = (self.connection.peer(), self.now.mono_ms);
        self.tree.visible_child(place, peer, |node| {
            self.connection
                .visibility()
                .lock()
                .leads_to_visible_export(&self.tree, node, peer, now_ms)
        })
    }

    pub(crate) fn is_undecided(&self) -> bool {
        self.connection.visibility().lock().is_undecided(
            &self.tree,
            self.connection.peer(),
            self.now.mono_ms,
        )
    }

    pub(crate) fn owners(&self) -> Owners<'s> {
        Owners {
            identity: self.server.identity(),
            config: self.server.config(),
            flavour: self.flavour,
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
            (self.server, self.tree.generation, self.connection.peer(), self.terms());
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
            flavour: self.flavour,
            reserved_port: self.connection.peer().port() < 1024,
            transport: self.connection.transport(),
        }
    }

    /// State that another client lost must not be reclaimable after this reply (RFC 8881 §8.4.3).
    pub(crate) fn wait_for_records(&mut self) {
        self.call.record_wait = RecordWait::ForGrant;
    }

    pub(crate) fn client_of_session(&self) -> Option<ClientKey> {
        self.session.as_ref().map(|running| running.turn.client)
    }

    pub(crate) fn proven(&self) -> Option<Arc<str>> {
        match &self.principal {
            Principal::Gss { name } | Principal::Certificate { name } => Some(name.clone()),
            Principal::Sys { .. } | Principal::None => None,
        }
    }

    /// RFC 8881 §16.2.3.1.2.
    pub(crate) fn substituted(&self, stateid: &Stateid) -> Result<Stateid, Status> {
        if self.minor == 0 || *stateid != Stateid::CURRENT {
            return Ok(*stateid);
        }
        self.current_stateid.ok_or(Status::BAD_STATEID)
    }

    pub(crate) fn result_stateid(&mut self, stateid: Stateid) {
        self.current_stateid = Some(stateid);
    }

    pub(crate) fn reply_room_len(&self) -> usize {
        self.end_max.saturating_sub(self.out.len() + self.spans_len)
    }

    pub(crate) fn must_sync(&mut self, grant: &Arc<Grant>, ids: &[FileId]) {
        if !grant.site.export.sync {
            return;
        }
        self.changed = Some(grant.site.export.id);
        let known = self
            .pending_syncs
            .iter_mut()
            .find(|one| one.files.site.export.id == grant.site.export.id);
        if let Some(known) = known {
            known.ids.extend_from_slice(ids);
            return;
        }
        let (result_at, results_before, op) = (self.result_at, self.index, self.op);
        self.pending_syncs.push(PendingSync {
            files: grant.clone(),
            ids: ids.to_vec(),
            result_at,
            results_before,
            op,
        });
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
        let export = match object.or(call.current.as_ref()) {
            Some(Object::File(file)) => Some(file.grant.site.export.id.0),
            _ => None,
        };
        let report = ErrorReport {
            at_seconds: call.now.wall.seconds,
            peer: call.connection.peer(),
            operation: vouch_nfs4::op::Op(call.op).name().unwrap_or("ILLEGAL"),
            status: status.0,
            export,
            message: source.to_string(),
        };
        self.record_error(report);
    }
}
